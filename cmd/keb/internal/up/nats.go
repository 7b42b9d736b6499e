package up

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// The store is bounded, so that a bus that nobody reads does not fill the disk.
const (
	natsReady     = 30 * time.Second
	maxStageBytes = 1 << 30
	maxStoreBytes = 16 << 30
)

// startNATS starts a server with JetStream in the data folder, on its usual port if that is free.
func startNATS(dataDir string, log *slog.Logger) (*server.Server, error) {
	// A fixed port lets a worker in another terminal find the bus; a second keb on the machine makes do with any.
	port := natsPort
	if !portIsFree(port) {
		port = server.RANDOM_PORT
	}
	srv, err := tryNATS(dataDir, port, log)
	if err != nil && port != server.RANDOM_PORT && !portIsFree(port) {
		// Someone else took the port in between.
		srv, err = tryNATS(dataDir, server.RANDOM_PORT, log)
	}
	if err != nil {
		return nil, fmt.Errorf("NATS cannot start: %w; if %s is damaged, delete it: nothing is lost with it",
			err, filepath.Join(dataDir, "nats"))
	}
	return srv, nil
}

func tryNATS(dataDir string, port int, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "keb", Host: "127.0.0.1", Port: port,
		// Signals are ours, and the listener is on the loopback address, so there are no users.
		JetStream: true, StoreDir: filepath.Join(dataDir, "nats"),
		JetStreamMaxMemory: maxStageBytes, JetStreamMaxStore: maxStoreBytes,
		NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	l := &natsLog{log: log.With("component", "nats"), fatal: make(chan string, 8)}
	srv.SetLoggerV2(l, false, false, false)
	srv.Start()
	deadline := time.NewTimer(natsReady)
	defer deadline.Stop()
	// Ready within slices, so that a fatal problem is told when it happens and not when the time is over.
	for !srv.ReadyForConnections(50 * time.Millisecond) {
		select {
		case message := <-l.fatal:
			stopNATS(srv)
			return nil, fmt.Errorf("%s", message)
		case <-deadline.C:
			stopNATS(srv)
			return nil, fmt.Errorf("not ready within %s", natsReady)
		default:
		}
	}
	return srv, nil
}

func stopNATS(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

func portIsFree(port int) bool {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

// natsLog hands the server's log on and keeps what it calls fatal.
type natsLog struct {
	log   *slog.Logger
	fatal chan string
}

// Noticef logs what the server reports about itself; that is much, so it is for debugging only.
func (l *natsLog) Noticef(format string, v ...any) {
	l.log.Debug("nats notice", "text", fmt.Sprintf(format, v...))
}

// Warnf logs a warning.
func (l *natsLog) Warnf(format string, v ...any) {
	l.log.Warn("nats warning", "text", fmt.Sprintf(format, v...))
}

// Errorf logs an error.
func (l *natsLog) Errorf(format string, v ...any) {
	l.log.Error("nats error", "text", fmt.Sprintf(format, v...))
}

// Debugf drops the text; the server is never asked for it.
func (l *natsLog) Debugf(string, ...any) {}

// Tracef drops the text; the server is never asked for it.
func (l *natsLog) Tracef(string, ...any) {}

// Fatalf logs the text and keeps it for tryNATS; the server goes on half dead after it.
func (l *natsLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("nats error", "text", text)
	select {
	case l.fatal <- text:
	default: // the first ones say it
	}
}
