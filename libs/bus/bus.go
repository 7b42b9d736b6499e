package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// DefaultTimeout is how long a publish or a question waits when Config names no timeout.
const DefaultTimeout = 5 * time.Second

const (
	reconnectWait = 100 * time.Millisecond
	pingInterval  = 5 * time.Second
	drainTimeout  = 5 * time.Second
	// connectTimeout lets a server answer that everybody logs on to at once, after its restart.
	connectTimeout = 5 * time.Second
)

// Config says which server to use, and as whom.
type Config struct {
	// URL is one address or several with commas between, for example "nats://127.0.0.1:4222".
	URL string
	// Name shows in the server's list of connections.
	Name string
	// User and Password are optional. The password is never printed. With a user, answers come to subjects below
	// event.InboxPrefix(User), so that the server can keep others from listening there.
	User, Password string
	// TLS are the files for TLS; with any of them the server must speak it, whatever the scheme of URL. Without, "tls://" does the same
	// with the authorities of the system, and a server that demands TLS gets it. Files are read again for each connection. Errors name
	// the variables KEB_NATS_CA_FILE and so on.
	TLS tlsfiles.Client
	// TLSFirst begins with TLS, where the server expects it (handshake_first) and shows nothing of itself before.
	TLSFirst bool
	// Guest makes no stream, consumer or bucket: it waits until another connection, the orchestrator's, has made them. A user
	// with the rights of event.Users needs it, except the orchestrator.
	Guest bool
	// Timeout bounds the wait for the acknowledgements of one Publish, and for the answer of one Ask whose context
	// has no earlier deadline. 0 means DefaultTimeout.
	Timeout time.Duration
	// Replicas is how many copies new streams have in a cluster; 0 means 1. Existing streams keep what they have.
	Replicas int
}

// LogValue leaves the password out.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("url", redact(c.URL)), slog.String("name", c.Name), slog.String("user", c.User),
		slog.Duration("timeout", c.Timeout), slog.Int("replicas", c.Replicas))
}

// Deps are what a Bus needs besides a server. All are optional.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// InProcess connects without a socket to a server in the same process; Config.URL is not used then.
	InProcess nats.InProcessConnProvider
}

// Bus is a connection to NATS. It is safe for concurrent use.
type Bus struct {
	cfg     Config
	log     *slog.Logger
	nc      *nats.Conn
	live    atomic.Pointer[nats.Conn] // nc, for what may run before it is set
	js      jetstream.JetStream
	pub     *publisher
	metrics *metrics
	streams seen
	closed  chan struct{}

	reconnects *signal
	// refusals are the streams that do not store what is published to them.
	refusals refusals
	probing  sync.Mutex
	probed   probe

	// roomLog bounds what is logged about a server that is smaller than its streams may become.
	roomLog rate.Sometimes
	// deadLog bounds the log of dead letters, which anybody on the bus can cause; the metrics count all of them.
	deadLog rate.Sometimes
}

// Connect connects to the server and waits for it until ctx ends. Once connected, a Bus reconnects for ever.
// An address that cannot be understood and refused credentials are errors at once.
func Connect(ctx context.Context, cfg Config, deps Deps) (*Bus, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("connect to nats: timeout %s: must not be negative", cfg.Timeout)
	}
	if cfg.URL == "" && deps.InProcess == nil {
		return nil, errors.New("connect to nats: URL is empty: want for example nats://127.0.0.1:4222")
	}
	if err := checkURLs(cfg.URL); err != nil && deps.InProcess == nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	if err := cfg.TLS.Validate(tlsPrefix); err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b := &Bus{
		cfg: cfg, log: deps.Log, closed: make(chan struct{}), reconnects: newSignal(),
		deadLog: rate.Sometimes{First: 20, Interval: 10 * time.Second}, roomLog: rate.Sometimes{First: 10, Interval: time.Hour},
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if b.metrics, err = newMetrics(deps.Registerer); err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	if b.nc, err = b.dial(ctx, deps.InProcess); err != nil {
		return nil, fmt.Errorf("connect to nats at %s: %w", redact(cfg.URL), err)
	}
	if b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(cfg.Timeout)); err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	if b.pub, err = newPublisher(b.nc); err != nil {
		b.nc.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	b.live.Store(b.nc)
	b.nc.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil {
			b.log.Warn("bus disconnected", "err", err)
		}
		b.pub.failAll(nats.ErrDisconnected)
	})
	b.metrics.connections.add(b.nc)
	return b, nil
}

func (b *Bus) dial(ctx context.Context, inProcess nats.InProcessConnProvider) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(b.cfg.Name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(b.pause()),
		nats.PingInterval(pingInterval),
		nats.DrainTimeout(drainTimeout),
		nats.ReconnectHandler(func(*nats.Conn) {
			b.log.Info("bus reconnected")
			b.refusals.clear() // the server may have been restarted, which makes it write again
			b.reconnects.raise()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.log.Warn("bus error", "subject", subject, "err", err)
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
	if inProcess == nil {
		opts = append(opts, b.cfg.security()...)
	}
	if b.cfg.User != "" {
		opts = append(opts, nats.UserInfo(b.cfg.User, b.cfg.Password))
		if !strings.ContainsAny(b.cfg.User, " \t\r\n*>") && !strings.HasSuffix(b.cfg.User, ".") {
			opts = append(opts, nats.CustomInboxPrefix(event.InboxPrefix(b.cfg.User)))
		}
	}
	if inProcess != nil {
		opts = append(opts, nats.InProcessServer(inProcess))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for told := false; ; told = true {
		nc, err := nats.Connect(b.cfg.URL, opts...)
		if err == nil {
			return nc, nil
		}
		if !worthWaiting(err) {
			return nil, explain(b.cfg, err)
		}
		if !told {
			b.log.Warn("waiting for nats", "url", redact(b.cfg.URL), "err", err)
		}
		timer.Reset(reconnectWait)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

// worthWaiting tells a server that is not up yet from an address or credentials that will never do.
func worthWaiting(err error) bool {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || tlsfiles.IsTLS(err) {
		return false
	}
	// A proxy in front of a server that is away hangs up, which is the end of the stream.
	if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF) {
		return true
	}
	return isNetError(err)
}

// NATS is the connection, for what this package does not cover.
func (b *Bus) NATS() *nats.Conn { return b.nc }

// JetStream is the JetStream context of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Close drains the connection: what was published is sent, and subscriptions end. It waits until that is done, and
// is safe to call more than once.
func (b *Bus) Close() {
	b.metrics.connections.remove(b.nc)
	if err := b.nc.Drain(); err != nil {
		b.nc.Close()
	}
	<-b.closed
	b.pub.failAll(nats.ErrConnectionClosed)
}

// signal lets any number of goroutines wait for the next time something happens.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// next returns a channel that is closed when the signal is raised again.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}
