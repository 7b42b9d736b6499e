package testkit

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// fullDiskVariable is set in the process that FullDisk starts.
const fullDiskVariable = "KEB_TEST_FULL_DISK"

// FullDisk runs the test that calls it in a process of its own. After fill no file can grow beyond a size, for root as well: a write is cut
// short there, and the next one fails, as on a full disk. It must not be zero. After empty there is room again. The test must not run
// parallel, and must not write files of its own while the disk is full.
func FullDisk(t *testing.T, test func(t *testing.T, fill func(size int64), empty func())) {
	t.Helper()
	if os.Getenv(fullDiskVariable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), fullDiskVariable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // the write fails instead
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(bytes uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	test(t, func(size int64) { set(uint64(size)) }, func() { set(limit.Cur) })
}
