package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// Every overlay that a page shows is one that the orchestrator takes. Lists of changes alone are of no operation, and left out.
func TestOverlaysOfPages_AreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for name, text := range files(t, []string{"docs"}, ".md") {
		for i, m := range regexp.MustCompile("(?ms)^```yaml\n(operation: .*?)^```").FindAllStringSubmatch(text, -1) {
			found++
			overlay := fstest.MapFS{"overlay.yaml": {Data: []byte(m[1])}}
			if _, err := process.Load(processes.FS, process.Named(fmt.Sprintf("%s, block %d", name, i+1), overlay)); err != nil {
				t.Error(strings.TrimSpace(err.Error()))
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d overlays were found", found)
	}
}
