package openapi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/internal/openapi"
)

func TestDocuments_MatchTheGoTypes(t *testing.T) {
	t.Parallel()
	const libs, api = "../../..", "../../../../api"
	for _, d := range openapi.Documents() {
		want, err := d.Render(libs, api)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(api, d.File))
		require.NoError(t, err)
		if diff := cmp.Diff(string(got), string(want)); diff != "" {
			t.Errorf("api/%s is out of date: run go generate ./api/... in libs (-file +generated):\n%.2000s", d.File, diff)
		}
	}
}
