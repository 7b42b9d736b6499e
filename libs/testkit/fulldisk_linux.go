package testkit

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// fullDiskVariable marks the process that FullDisk starts.
const fullDiskVariable = "KEB_TEST_FULL_DISK"

// FullDisk runs the calling test in a separate process. fill limits the size of files, which must not be zero, also for root. A write that
// exceeds it is truncated, and the next one fails, as on a full disk. empty removes the limit. The test must not be parallel, and must
// not write its own files while the disk is full.
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
	signal.Ignore(syscall.SIGXFSZ) // makes the write fail instead
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
