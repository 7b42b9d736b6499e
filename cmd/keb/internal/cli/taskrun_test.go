package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTaskrun_Interrupted_CommandCleansUp(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}})
	got := run(t, "", "taskrun", "-t", "plan=azure", "--timeout", "1s", "--osb-addr", addr, "trap 'echo cleaned up; exit' TERM; sleep 120 & wait")
	if got.code != 1 || !strings.Contains(got.out, "c-1: cleaned up\n") || !strings.Contains(got.out, "not finished within 1s") {
		t.Errorf("%+v", got)
	}
}

func TestTaskrun_CatalogNotReadable_PlanIsNotVerified(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}, "GET /oauth/cf-eu10/v2/catalog": {"401 {}"},
	})
	expect(t, run(t, "", "taskrun", "-t", "shoot=c-1", "-e", "plan=aws", "--osb-addr", addr, "true"), 0, "the command succeeded for 1 runtimes\n",
		"keb: the plan \"aws\" has no runtimes, and was not verified: the OSB API rejected user and password; set KEB_OSB_USER and KEB_OSB_PASSWORD\n")
}

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
