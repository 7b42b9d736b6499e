package up

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kyma-project/keb/libs/service"
)

// The store is bounded, so that a bus that nobody reads does not fill the disk.
const (
	natsReady     = 30 * time.Second
	maxStageBytes = 1 << 30
	maxStoreBytes = 16 << 30
)

// startNATS starts a server with JetStream in the data folder. It listens on addr, which stays the same from start to start, so that workers
// in other processes find it again; port 0 takes a free port.
func startNATS(dataDir, addr string, log *slog.Logger) (*server.Server, error) {
	// The server reports a taken port only in its log.
	if err := checkFree(addr); err != nil {
		return nil, err
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %q is not a port number", natsFlag, text)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	srv, err := tryNATS(dataDir, host, port, log)
	if err != nil {
		if err := checkFree(addr); err != nil {
			return nil, err // another program took the port in between
		}
		return nil, fmt.Errorf("NATS cannot start: %w; if %s is damaged, delete it: nothing is lost with it",
			err, filepath.Join(dataDir, "nats"))
	}
	return srv, nil
}

func tryNATS(dataDir, host string, port int, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "keb", Host: host, Port: port,
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

// checkFree reports a port that another program listens on, and the flag that chooses another one.
func checkFree(addr string) error {
	ln, err := service.Listen(addr)
	if err != nil {
		return fmt.Errorf("%w: %s", err, natsFlag)
	}
	return ln.Close()
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
