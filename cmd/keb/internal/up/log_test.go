package up

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestLog_LimitIsReached_FourFilesAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := openLog(dir)
	require.NoError(t, err)
	l.limit = 100
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for i := range 25 {
				if _, err := fmt.Fprintf(l, "line %013d\n", i); err != nil { // 19 bytes: five fit
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	require.NoError(t, l.Close())
	files, err := filepath.Glob(filepath.Join(dir, "keb.log*"))
	require.NoError(t, err)
	lines := map[string]int{}
	for _, path := range files {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		lines[filepath.Base(path)] = strings.Count(string(content), "\n")
	}
	if diff := cmp.Diff(map[string]int{"keb.log": 5, "keb.log.1": 5, "keb.log.2": 5, "keb.log.3": 5}, lines); diff != "" {
		t.Errorf("lines by file (-want +got):\n%s", diff)
	}
}
