package tlsfiles

import (
	"fmt"
	"log"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// tellEvery is the minimum interval between log lines about rejected connections, which any client can cause.
const tellEvery = time.Second

// listener is a TLS listener with the error log of its server.
type listener struct {
	net.Listener
	refusals *refusals
}

// ErrorLog returns the error log for an http.Server.
func (l *listener) ErrorLog() *log.Logger { return log.New(l.refusals, "", 0) }

// refusals writes the errors of an http.Server to the log, with a possible reason.
type refusals struct {
	prefix string
	log    *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	told   time.Time
	missed int
}

// Write logs one error.
func (r *refusals) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	// Port scanners and health checks connect and disconnect frequently.
	if strings.Contains(text, "TLS handshake error") && strings.HasSuffix(text, ": EOF") {
		return len(line), nil
	}
	r.mu.Lock()
	now := r.now()
	if now.Sub(r.told) < tellEvery {
		r.missed++
		r.mu.Unlock()
		return len(line), nil
	}
	missed := r.missed
	r.told, r.missed = now, 0
	r.mu.Unlock()
	if !strings.Contains(text, "TLS handshake error") {
		r.log.Error("http server", "err", text)
		return len(line), nil
	}
	r.log.Warn("connection refused", "err", fmt.Sprintf("%s%s", strings.TrimPrefix(text, "http: "), r.hint(text)), "refused_before", missed)
	return len(line), nil
}

func (r *refusals) hint(text string) string {
	switch {
	case strings.Contains(text, "didn't provide a certificate"):
		return fmt.Sprintf(" (%s demands one)", r.prefix+clientCASuffix)
	case strings.Contains(text, "remote error"):
		return fmt.Sprintf(" (the client does not take the certificate in %s: does it know its authority, and is it for the name that the client uses?)", r.prefix+certSuffix)
	case strings.Contains(text, "failed to verify certificate"):
		return fmt.Sprintf(" (only clients of the authorities in %s are let in)", r.prefix+clientCASuffix)
	case strings.Contains(text, "does not look like a TLS handshake"):
		return " (the client speaks without TLS)"
	}
	return ""
}

func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return real
}
