package service

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// dumpable returns the flag that NoDumps resets.
func dumpable() int {
	flag, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_DUMPABLE, 0, 0)
	return int(flag)
}

// endBadly starts a helper without a limit for core dumps, kills it, and returns its state and output.
func endBadly(t *testing.T, kind string, signal os.Signal) (syscall.WaitStatus, string) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_CORE, &limit))
	ctx, cancel := context.WithTimeout(t.Context(), helperLimit)
	t.Cleanup(cancel)
	// The shell removes the limit for the helper only.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `ulimit -c "$(ulimit -H -c)"; exec "$0"`, os.Args[0])
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), helperEnv+"="+kind, "GOTRACEBACK=crash", "KEB_TEST_SECRET="+kept)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	_ = write.Close()
	require.NoError(t, err)
	lines := bufio.NewReader(read)
	expect(t, lines, "ready\n")
	send(t, cmd, signal)
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	_ = cmd.Wait() // the state is checked below
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		t.Fatalf("the helper was not ended by a signal: %v\n%s", cmd.ProcessState, rest)
	}
	files, err := os.ReadDir(cmd.Dir)
	require.NoError(t, err)
	for _, file := range files {
		if kind != kindDumps {
			t.Errorf("%s was not removed", file.Name())
		}
	}
	return status, string(rest)
}

func TestNoDumps_Crash_LeavesNoCore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		signal syscall.Signal
	}{{kindHolds, syscall.SIGABRT}, {kindHolds, syscall.SIGQUIT}, {kindHolds, syscall.SIGSEGV}, {kindPanics, syscall.SIGTERM}} {
		status, printed := endBadly(t, c.kind, c.signal)
		if status.CoreDump() {
			t.Errorf("%s, %v: the kernel has written a core dump", c.kind, c.signal)
		}
		// The crash prints the goroutines with addresses of arguments, not their contents.
		if !strings.Contains(printed, "goroutine ") || !strings.Contains(printed, "service.hold(") {
			t.Errorf("%s, %v: no goroutines are printed:\n%s", c.kind, c.signal, printed)
		}
		if strings.Contains(printed, kept) {
			t.Errorf("%s, %v: the secret is printed", c.kind, c.signal)
		}
	}
	// Without NoDumps there is a dump, if the machine allows dumps. Otherwise the test could not fail.
	if status, _ := endBadly(t, kindDumps, syscall.SIGABRT); !status.CoreDump() {
		t.Log("this machine writes no core dumps of anybody")
	}
}

// The limit does not apply if core_pattern is a program, and does not protect the memory from other processes of the user.
func TestMain_Service_IsNotDumpable(t *testing.T) {
	t.Parallel()
	cmd, lines := helper(t, kindHolds)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 0 0") {
		t.Errorf("core dumps are allowed: %v\n%s", err, limits)
	}
	send(t, cmd, syscall.SIGTERM)
	expect(t, lines, "dumpable: 0\n")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
