package openapi_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/internal/openapi"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestDocuments_MatchTheGoTypes(t *testing.T) {
	t.Parallel()
	const libs, api = "../../..", "../../../../api"
	for _, d := range openapi.Documents() {
		document, err := d.Render(libs, api)
		require.NoError(t, err)
		testkit.Golden(t, filepath.Join(api, d.File), document)
	}
}
