package testkit

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const natsReady = time.Minute

// NATSServer is a real NATS server with JetStream in this process, on a separate loopback port. Its store is a folder of MemoryDir.
type NATSServer struct {
	mu   sync.Mutex
	opts *server.Options
	srv  *server.Server
	url  string
}

// NATS starts a server and stops it when the test ends.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	n := &NATSServer{opts: &server.Options{
		ServerName: "keb-test", Host: "127.0.0.1", Port: Port(t), // reserved even while the server is stopped
		JetStream: true, StoreDir: MemoryDir(t), JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 16 << 30,
		NoSigs: true, NoLog: true,
	}}
	n.start(t)
	t.Cleanup(n.Shutdown)
	return n
}

func (n *NATSServer) start(t testing.TB) {
	t.Helper()
	srv, err := server.NewServer(n.opts.Clone())
	if err != nil {
		t.Fatalf("start NATS: %v", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(natsReady) {
		srv.Shutdown()
		t.Fatalf("start NATS: not ready within %s", natsReady)
	}
	n.srv = srv
	n.url = srv.ClientURL()
}

// URL returns the server's address. Restart does not change it.
func (n *NATSServer) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.url
}

// StoreDir returns the folder of JetStream's files.
func (n *NATSServer) StoreDir() string { return filepath.Join(n.opts.StoreDir, "jetstream") }

// Restart restarts the server with the same address and store. Connections are lost, and so is everything that is stored in
// memory.
func (n *NATSServer) Restart(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shutdown()
	n.start(t)
}

// RestartEmpty restarts the server with an empty JetStream store.
func (n *NATSServer) RestartEmpty(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shutdown()
	if err := os.RemoveAll(n.StoreDir()); err != nil {
		t.Fatalf("delete the JetStream store: %v", err)
	}
	n.start(t)
}

// Shutdown stops the server until Restart.
func (n *NATSServer) Shutdown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shutdown()
}

func (n *NATSServer) shutdown() {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
}
