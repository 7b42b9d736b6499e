package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// natsLookEvery is the interval of health checks.
	natsLookEvery = 5 * time.Second
	// natsRoom is the free space in bytes that is required to restart a server that could not write.
	natsRoom = 4 << 20
)

// natsServer is the current NATS server of the system. Connections of this process reconnect to a new server automatically.
type natsServer struct {
	dataDir string
	addr    string // listening address, kept across restarts
	log     *slog.Logger
	current atomic.Pointer[server.Server]
}

func newNATS(dataDir, addr string, log *slog.Logger) (*natsServer, error) {
	srv, err := startNATS(dataDir, addr, log)
	if err != nil {
		return nil, err
	}
	n := &natsServer{dataDir: dataDir, addr: srv.Addr().String(), log: log}
	n.current.Store(srv)
	return n, nil
}

// InProcessConn implements nats.InProcessConnProvider.
func (n *natsServer) InProcessConn() (net.Conn, error) { return n.current.Load().InProcessConn() }

// ClientURL returns the URL of the server for workers in other processes.
func (n *natsServer) ClientURL() string { return n.current.Load().ClientURL() }

func (n *natsServer) stop() { stopNATS(n.current.Load()) }

// watch restarts a server that has stopped writing, for example after a full disk, when there is space again. A stream that failed
// to write rejects all messages until the restart.
func (n *natsServer) watch(ctx context.Context) error { return n.watchEvery(ctx, natsLookEvery) }

func (n *natsServer) watchEvery(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	told, stopped := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !stopped {
			cause := writeError(n.current.Load())
			if cause == "" {
				told = false
				continue
			}
			if err := hasRoom(n.dataDir); err != nil {
				if !told {
					n.log.Error("NATS cannot write; it is restarted when there is disk space", "cause", cause, "err", err)
					told = true
				}
				continue
			}
			n.log.Warn("NATS has stopped writing and is restarted, because there is disk space again; nothing is lost", "cause", cause)
			stopNATS(n.current.Load())
			stopped = true
		}
		srv, err := startNATS(n.dataDir, n.addr, n.log)
		if err != nil {
			n.log.Error("restart of NATS failed; it is retried", "err", err)
			continue
		}
		n.current.Store(srv)
		stopped = false
	}
}

// writeError returns the server's error about a stream that it has stopped writing, or the empty string.
func writeError(srv *server.Server) string {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return ""
	}
	var answer memoryResponse
	srv.HandleHealthz(&answer, r)
	if text := answer.body.String(); strings.Contains(text, "write error") {
		return strings.TrimSpace(text)
	}
	return ""
}

// memoryResponse records the body of a response.
type memoryResponse struct {
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (m *memoryResponse) Header() http.Header {
	if m.header == nil {
		m.header = http.Header{}
	}
	return m.header
}

// Write implements http.ResponseWriter.
func (m *memoryResponse) Write(b []byte) (int, error) { return m.body.Write(b) }

// WriteHeader implements http.ResponseWriter.
func (m *memoryResponse) WriteHeader(int) {}

// hasRoom returns an error unless a file of natsRoom bytes can be written next to the store.
func hasRoom(dir string) (err error) {
	path := filepath.Join(dir, "room")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("try for room: %w", err)
	}
	_, err = f.Write(make([]byte, natsRoom))
	err = errors.Join(err, f.Sync(), f.Close(), os.Remove(path))
	if err != nil {
		return fmt.Errorf("try for room: %w", err)
	}
	return nil
}
