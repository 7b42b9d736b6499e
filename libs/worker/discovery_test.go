package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Workers in other languages have only the document to go by.
func TestTheContractDocumentSaysHowAWorkerAnnouncesItself(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "api", "asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	document := strings.Join(strings.Fields(string(raw)), " ")
	for _, want := range []string{
		`"` + ServicePrefix + `{worker}"`, PingSubject("{worker}"), `"` + MetadataWorker + `"`, `"` + MetadataVersion + `"`, `"` + MetadataSteps + `"`,
	} {
		if !strings.Contains(document, want) {
			t.Errorf("api/asyncapi.yaml does not name %s", want)
		}
	}
}
