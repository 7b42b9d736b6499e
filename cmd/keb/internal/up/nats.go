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

// The store is bounded, so that a bus without consumers does not fill the disk.
const (
	natsReady     = 30 * time.Second
	maxStageBytes = 1 << 30
	maxStoreBytes = 16 << 30
)

// startNATS starts a server with JetStream in the data folder. It listens on addr, which is the same at each start, so that workers
// in other processes can reconnect; port 0 selects a free port.
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
			return nil, err // another program took the port meanwhile
		}
		return nil, fmt.Errorf("NATS cannot start: %w; if %s is damaged, delete it; it holds no data that is not in the database",
			err, filepath.Join(dataDir, "nats"))
	}
	return srv, nil
}

func tryNATS(dataDir, host string, port int, log *slog.Logger) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "keb", Host: host, Port: port,
		// keb handles signals itself. The listener is on a loopback address, so there are no users.
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
	// Wait in slices, so that a fatal error is returned immediately instead of at the timeout.
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

// natsLog forwards the server's log and records its fatal errors.
type natsLog struct {
	log   *slog.Logger
	fatal chan string
}

// Noticef logs notices at level Debug, because there are many of them.
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

// Debugf discards the text, which the server does not produce.
func (l *natsLog) Debugf(string, ...any) {}

// Tracef discards the text, which the server does not produce.
func (l *natsLog) Tracef(string, ...any) {}

// Fatalf logs the text and records it for tryNATS, because the server keeps running in an unusable state.
func (l *natsLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("nats error", "text", text)
	select {
	case l.fatal <- text:
	default: // the first errors are sufficient
	}
}
