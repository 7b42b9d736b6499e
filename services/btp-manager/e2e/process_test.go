package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

// process is a running BTP Manager.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log *testkit.Log
	// The addresses of the metrics and the probes.
	metrics, probes string
	ended           chan struct{}
}

// launch starts the program with these flags and free addresses. If it still runs at the end of the test, it is killed.
func launch(t *testing.T, kubeconfig string, flags ...string) *process {
	t.Helper()
	p := &process{t: t, log: new(testkit.Log), metrics: testkit.Addr(t), probes: testkit.Addr(t), ended: make(chan struct{})}
	p.cmd = command(t, append(flags,
		"--kubeconfig="+kubeconfig, "--metrics-bind-address="+p.metrics, "--health-probe-bind-address="+p.probes)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the state contains the result
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.cmd, p.log)
		}
	})
	return p
}

// command returns a command for the program without the environment of the test, except the memory settings.
func command(t *testing.T, flags ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program.path(t), flags...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "GOGC=" + os.Getenv("GOGC")}
	return cmd
}

// signal sends a signal, waits for the end of the process, and returns its exit code: -1 if the signal ended it.
func (p *process) signal(s syscall.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %s to BTP Manager: %v", s, err)
	}
	select {
	case <-p.ended:
	case <-time.After(waitTimeout):
		p.t.Fatalf("BTP Manager still runs after %s", s)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process like a failure of the node.
func (p *process) kill() {
	p.t.Helper()
	if code := p.signal(syscall.SIGKILL); code != -1 {
		p.t.Fatalf("BTP Manager had ended by itself, with code %d", code)
	}
}

// terminate ends the process like a kubelet.
func (p *process) terminate() {
	p.t.Helper()
	if code := p.signal(syscall.SIGTERM); code != 0 {
		p.t.Errorf("BTP Manager ended with code %d after SIGTERM", code)
	}
}

// awaitUp waits until both probes succeed.
func (p *process) awaitUp() {
	p.t.Helper()
	testkit.Eventually(p.t, waitTimeout, "BTP Manager is up", func() bool {
		p.mustRun()
		for _, probe := range []string{"/healthz", "/readyz"} {
			if code, _, err := get(p.t.Context(), p.probes, probe); err != nil || code != http.StatusOK {
				return false
			}
		}
		return true
	})
}

// awaitPass waits for a pass over a BtpOperator.
func (p *process) awaitPass() {
	p.t.Helper()
	testkit.Eventually(p.t, waitTimeout, "a pass over a BtpOperator", func() bool {
		p.mustRun()
		return p.metric("btpmanager_reconciles_total") > 0
	})
}

func (p *process) mustRun() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("BTP Manager has ended with code %d", p.cmd.ProcessState.ExitCode())
	default:
	}
}

// metric returns the sum of a metric's series, or 0 if there are none or the process does not serve metrics yet.
func (p *process) metric(name string) float64 {
	p.t.Helper()
	_, page, err := get(p.t.Context(), p.metrics, "/metrics")
	if err != nil {
		return 0
	}
	sum := 0.0
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			p.t.Fatalf("/metrics: %v", err)
		}
		sum += n
	}
	return sum
}

func (p *process) leads() bool { return p.metric("btpmanager_leader") == 1 }

// awaitLead waits until the process leads.
func (p *process) awaitLead() {
	p.t.Helper()
	testkit.Eventually(p.t, waitTimeout, "BTP Manager leads", func() bool {
		p.mustRun()
		return p.leads()
	})
}

// get reads a page.
func get(ctx context.Context, address, path string) (code int, page string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	return res.StatusCode, string(content), err
}

// call runs the program to its end, and returns its output and exit code.
func call(t *testing.T, flags ...string) (printed string, code int) {
	t.Helper()
	cmd := command(t, flags...)
	var out testkit.Log
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	require.NoError(t, err)
	kill := time.AfterFunc(waitTimeout, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	if cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("%s does not end:\n%s", cmd, &out)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
