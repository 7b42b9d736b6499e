package testkit

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const natsReady = time.Minute

// NATSConfig is what a test changes about its server. Zero values are the server's defaults.
type NATSConfig struct {
	// User and Password are the only ones that may connect.
	User, Password string
	// MaxStore and MaxMemory limit JetStream in bytes; 0 means 16 GiB and 1 GiB.
	MaxStore, MaxMemory int64
	// Trace writes the messages of clients to the log.
	Trace bool

	// cluster is the block of a server in a cluster.
	cluster string
}

// NATSServer is a real NATS server with JetStream in a process of its own, on a separate loopback port. Its store is a folder of MemoryDir.
type NATSServer struct {
	mu   sync.Mutex
	port int
	// dir has the store; work has the configuration and the log.
	dir, work string
	process   *exec.Cmd
	ended     chan struct{}
}

// NATS starts a server and stops it when the test ends.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	return NATSWith(t, NATSConfig{})
}

// NATSWith is like NATS, with a configuration.
func NATSWith(t testing.TB, cfg NATSConfig) *NATSServer {
	t.Helper()
	n := &NATSServer{port: Port(t), dir: MemoryDir(t), work: t.TempDir()} // the port is reserved even while the server is stopped
	if err := os.WriteFile(n.config(), n.settings(cfg), 0o600); err != nil {
		t.Fatalf("start NATS: %v", err)
	}
	n.start(t)
	t.Cleanup(n.kill)
	return n
}

// NATSCluster starts a cluster of that many servers, and stops it when the test ends.
func NATSCluster(t testing.TB, servers int) []*NATSServer {
	t.Helper()
	addrs, routes := make([]string, servers), make([]string, servers)
	for i := range servers {
		addrs[i] = Addr(t)
		routes[i] = "\"nats://" + addrs[i] + "\""
	}
	cluster := make([]*NATSServer, servers)
	for i := range servers {
		cluster[i] = NATSWith(t, NATSConfig{cluster: fmt.Sprintf("cluster { name: keb-test, listen: %q, routes: [%s] }", addrs[i], strings.Join(routes, ", "))})
	}
	return cluster
}

func (n *NATSServer) settings(cfg NATSConfig) []byte {
	if cfg.MaxStore == 0 {
		cfg.MaxStore = 16 << 30
	}
	if cfg.MaxMemory == 0 {
		cfg.MaxMemory = 1 << 30
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "server_name: keb-test-%d\nlisten: \"127.0.0.1:%d\"\nlog_file: %q\ntrace: %t\n%s\n", n.port, n.port, n.log(), cfg.Trace, cfg.cluster)
	fmt.Fprintf(&b, "jetstream { store_dir: %q, max_file_store: %d, max_memory_store: %d }\n", n.dir, cfg.MaxStore, cfg.MaxMemory)
	if cfg.User != "" {
		fmt.Fprintf(&b, "authorization { user: %q, password: %q }\n", cfg.User, cfg.Password)
	}
	return b.Bytes()
}

func (n *NATSServer) config() string { return filepath.Join(n.work, "nats.conf") }

func (n *NATSServer) log() string { return filepath.Join(n.work, "nats.log") }

func (n *NATSServer) start(t testing.TB) {
	t.Helper()
	program, err := natsProgram()
	if err != nil {
		t.Fatalf("start NATS: %v", err)
	}
	n.process, n.ended = exec.Command(program, "-c", n.config()), make(chan struct{})
	n.process.SysProcAttr = endWithTests()
	if err := n.process.Start(); err != nil {
		t.Fatalf("start NATS: %v", err)
	}
	go func(process *exec.Cmd, ended chan struct{}) {
		_ = process.Wait() // a stopped server has a bad exit code
		close(ended)
	}(n.process, n.ended)
	deadline, pause := time.NewTimer(natsReady), time.NewTicker(firstPoll)
	defer deadline.Stop()
	defer pause.Stop()
	for !n.greets() {
		select {
		case <-n.ended:
			t.Fatalf("start NATS: it ended: %s", n.Log())
		case <-deadline.C:
			t.Fatalf("start NATS: not ready within %s: %s", natsReady, n.Log())
		case <-pause.C:
		}
	}
}

// greets reports whether the server accepts a client. It listens for clients after it has loaded its streams.
func (n *NATSServer) greets() bool {
	conn, err := net.DialTimeout("tcp", n.address(), natsReady)
	if err != nil {
		return false
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "INFO ")
}

// Log returns what the server has logged since the test began.
func (n *NATSServer) Log() string {
	log, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

func (n *NATSServer) address() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

// URL returns the server's address. Restart does not change it.
func (n *NATSServer) URL() string { return "nats://" + n.address() }

// StoreDir returns the folder of JetStream's files.
func (n *NATSServer) StoreDir() string { return filepath.Join(n.dir, "jetstream") }

// Restart restarts the server with the same address and store. Connections are lost, and so is everything that is stored in
// memory.
func (n *NATSServer) Restart(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop(syscall.SIGTERM)
	n.start(t)
}

// RestartEmpty restarts the server with an empty JetStream store.
func (n *NATSServer) RestartEmpty(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop(syscall.SIGTERM)
	if err := os.RemoveAll(n.StoreDir()); err != nil {
		t.Fatalf("delete the JetStream store: %v", err)
	}
	n.start(t)
}

// Shutdown stops the server until Restart.
func (n *NATSServer) Shutdown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop(syscall.SIGTERM)
}

func (n *NATSServer) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop(syscall.SIGKILL)
}

// stop waits for the end; to stop a server twice is harmless.
func (n *NATSServer) stop(signal syscall.Signal) {
	_ = n.process.Process.Signal(signal) // it fails when the process has ended
	<-n.ended
}
