package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTaskrun_ProcessesLeft_AreKilled(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}})
	for name, c := range map[string]struct {
		command, timeout string
		code             int
	}{
		"after the timeout": {"sleep 120 & wait", "200ms", 1},
		"after the end":     {"sleep 120 >/dev/null 2>&1 &", "1m", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The command and its children hold the pipe open.
			pipe := filepath.Join(t.TempDir(), "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			held, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			require.NoError(t, err)
			defer held.Close()
			got := run(t, "", "taskrun", "-t", "plan=azure", "--timeout", c.timeout, "--osb-addr", addr, "exec 3>"+pipe+"; echo x >&3; "+c.command)
			require.NoError(t, held.SetReadDeadline(time.Now().Add(10*time.Second)))
			if content, err := io.ReadAll(held); got.code != c.code || err != nil || string(content) != "x\n" {
				t.Errorf("code %d, %q, %v: a process is left", got.code, content, err)
			}
		})
	}
}
