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

// The orchestrator accepts every overlay and every process file on the pages. Lists of changes without an operation are left out.
func TestOverlaysOfPages_AreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for name, text := range files(t, []string{"docs"}, ".md") {
		for i, m := range regexp.MustCompile("(?ms)^```yaml\n(operation: .*?)^```").FindAllStringSubmatch(text, -1) {
			found++
			block := fmt.Sprintf("%s, block %d", name, i+1)
			var err error
			if operation, isProcess := strings.CutPrefix(strings.Split(m[1], "\n")[0], "operation: "); isProcess && strings.Contains(m[1], "\nstages:") {
				_, err = process.Load(process.Named(block, fstest.MapFS{operation + ".yaml": {Data: []byte(m[1])}}))
			} else {
				_, err = process.Load(processes.FS, process.Named(block, fstest.MapFS{"overlay.yaml": {Data: []byte(m[1])}}))
			}
			if err != nil {
				t.Error(strings.TrimSpace(err.Error()))
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d overlays were found", found)
	}
}
