package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Workers in other languages depend on the document.
func TestDiscovery_ContractDocument_Agrees(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "api", "asyncapi.yaml"))
	require.NoError(t, err)
	document := strings.Join(strings.Fields(string(raw)), " ")
	for _, want := range []string{
		`"` + ServicePrefix + `{worker}"`, PingSubject("{worker}"), `"` + MetadataWorker + `"`, `"` + MetadataVersion + `"`, `"` + MetadataSteps + `"`, `"` + MetadataRamped + `"`,
	} {
		if !strings.Contains(document, want) {
			t.Errorf("api/asyncapi.yaml does not name %s", want)
		}
	}
}
