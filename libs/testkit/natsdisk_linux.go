package testkit

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FillDisk fails every further write of the server, as a full disk does, until EmptyDisk or a restart.
func (n *NATSServer) FillDisk(t testing.TB) { n.limitFiles(t, 1) }

// EmptyDisk lets the server write again.
func (n *NATSServer) EmptyDisk(t testing.TB) { n.limitFiles(t, unix.RLIM_INFINITY) }

func (n *NATSServer) limitFiles(t testing.TB, size uint64) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	pid := n.process.Process.Pid
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		t.Fatalf("read the file limit of NATS: %v", err)
	}
	limit.Cur = min(size, limit.Max)
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatalf("limit the files of NATS: %v", err)
	}
}
