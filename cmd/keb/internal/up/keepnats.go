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
	// natsLookEvery is the time between two looks at the health of the server.
	natsLookEvery = 5 * time.Second
	// natsRoom is what must fit onto the disk before a server that could not write is restarted.
	natsRoom = 4 << 20
)

// natsServer is the NATS server of the system, or the one that has replaced it. Connections of this process find the new one by themselves.
type natsServer struct {
	dataDir string
	addr    string // where it listens, also after a restart
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

// ClientURL is where workers in other processes find the server.
func (n *natsServer) ClientURL() string { return n.current.Load().ClientURL() }

func (n *natsServer) stop() { stopNATS(n.current.Load()) }

// watch restarts the server when it has stopped writing, as after a full disk, and there is room again: a stream that could not write once
// refuses everything until then.
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
					n.log.Error("NATS cannot write; make room, then it is restarted", "cause", cause, "err", err)
					told = true
				}
				continue
			}
			n.log.Warn("NATS has stopped writing and is restarted, because there is room again; nothing is lost", "cause", cause)
			stopNATS(n.current.Load())
			stopped = true
		}
		srv, err := startNATS(n.dataDir, n.addr, n.log)
		if err != nil {
			n.log.Error("NATS is not restarted yet, trying again", "err", err)
			continue
		}
		n.current.Store(srv)
		stopped = false
	}
}

// writeError returns what the server says about a stream that it has stopped writing; empty when there is none.
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

// memoryResponse keeps the body of an answer.
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

// hasRoom reports whether a file of natsRoom bytes can be written beside the store.
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
