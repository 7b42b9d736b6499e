package service

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	helperEnv   = "KEB_TEST_SERVICE_HELPER"
	helperLimit = time.Minute
)

// beAService is the main function of the process that receives signals.
func beAService(kind string) {
	switch kind {
	case kindHolds, kindPanics, kindDumps:
		beOneThatEndsBadly(kind)
		return
	}
	Main("helper", func(ctx context.Context, _ *slog.Logger) error {
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("stopping")
		if kind == "stuck" {
			select {}
		}
		return ctx.Err()
	})
}

// helper runs the test binary as a service and returns its output, line by line.
func helper(t *testing.T, kind string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), helperLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+kind)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	expect(t, lines, "ready\n")
	return cmd, lines
}

func expect(t *testing.T, lines *bufio.Reader, want string) {
	t.Helper()
	if got, err := lines.ReadString('\n'); got != want {
		t.Fatalf("the helper printed %q (%v), want %q", got, err, want)
	}
}

func send(t *testing.T, cmd *exec.Cmd, signal os.Signal) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(signal))
}

func TestMain_Signal_StopsInOrder(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, lines := helper(t, "orderly")
		send(t, cmd, signal)
		expect(t, lines, "stopping\n")
		_, _ = io.Copy(io.Discard, lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v, want exit code 0", signal, err)
		}
	}
}

func TestMain_SecondSignal_ExitsImmediately(t *testing.T) {
	t.Parallel()
	cmd, lines := helper(t, "stuck")
	send(t, cmd, syscall.SIGTERM)
	expect(t, lines, "stopping\n")
	// The default behaviour is restored a moment after the first signal; an earlier signal is ignored.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
				t.Errorf("ended with %v, want by the signal", err)
			}
			return
		case <-tick.C:
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}
