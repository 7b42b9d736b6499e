package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
)

func TestFilterFields_Pages_NameEachField(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/operator.md", "api/openapi.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		for _, f := range operator.FilterFields() {
			if !strings.Contains(string(text), "`"+f.Name+"`") {
				t.Errorf("%s does not describe the field %s of filters", page, f.Name)
			}
		}
	}
}
