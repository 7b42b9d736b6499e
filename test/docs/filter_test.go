package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
)

func TestFilterFields_Pages_NameEachField(t *testing.T) {
	t.Parallel()
	for page, form := range map[string]string{
		"docs/operator.md": "`%s`", "api/openapi.yaml": "`%s`",
		"services/orchestrator/internal/console/static/views/operations.js": `['\w, .]*\b%s\b[\w, .]*', '`,
	} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		for _, f := range operator.FilterFields() {
			if !regexp.MustCompile(fmt.Sprintf(form, regexp.QuoteMeta(f.Name))).Match(text) {
				t.Errorf("%s does not describe the field %s of filters", page, f.Name)
			}
		}
	}
}
