package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/cmd/keb/internal/cli"
)

// interrupting cancels a context as soon as a line is written to it.
type interrupting struct {
	bytes.Buffer
	line   string
	cancel context.CancelFunc
}

func (i *interrupting) Write(p []byte) (int, error) {
	n, err := i.Buffer.Write(p)
	if strings.Contains(i.String(), i.line) {
		i.cancel()
	}
	return n, err
}

func TestTaskrun_Interrupted_CommandCleansUp(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}})
	ctx, cancel := context.WithCancel(t.Context())
	out := &interrupting{line: "c-1: ready\n", cancel: cancel}
	code := cli.Main(ctx, []string{
		"taskrun", "-t", "plan=azure", "--osb-addr", addr, "trap 'echo cleaned up; exit' TERM; echo ready; sleep 120 & wait",
	}, cli.IO{In: strings.NewReader(""), Out: out, Err: out})
	if code != 1 || !strings.Contains(out.String(), "c-1: cleaned up\n") {
		t.Errorf("code %d, %s", code, out)
	}
}

func TestTaskrun_CatalogNotReadable_PlanIsNotVerified(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{
		"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}, "GET /oauth/cf-eu10/v2/catalog": {"401 {}"},
	})
	expect(t, run(t, "", "taskrun", "-t", "shoot=c-1", "-e", "plan=aws", "--osb-addr", addr, "true"), 0, "the command succeeded for 1 runtimes\n",
		"keb: no runtime has the plan \"aws\", and the catalog cannot be read: the OSB API rejected user and password; set KEB_OSB_USER and KEB_OSB_PASSWORD\n")
}

func TestTaskrun_ProcessesLeft_AreKilled(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /runtimes": {"200 " + twoRuntimes}, "GET /kubeconfig/i-1": {"200 one"}})
	for name, c := range map[string]struct {
		command string
		code    int
	}{
		"after an interruption": {"echo ready; sleep 120 & wait", 1},
		"after the end":         {"sleep 120 >/dev/null 2>&1 &", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The command and its children hold the pipe open.
			pipe := filepath.Join(t.TempDir(), "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			held, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			require.NoError(t, err)
			defer held.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &interrupting{line: "c-1: ready\n", cancel: cancel}
			code := cli.Main(ctx, []string{"taskrun", "-t", "plan=azure", "--osb-addr", addr, "exec 3>" + pipe + "; echo x >&3; " + c.command},
				cli.IO{In: strings.NewReader(""), Out: out, Err: out})
			require.NoError(t, held.SetReadDeadline(time.Now().Add(10*time.Second)))
			if content, err := io.ReadAll(held); code != c.code || err != nil || string(content) != "x\n" {
				t.Errorf("code %d, %q, %v: a process is left", code, content, err)
			}
		})
	}
}
