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

// DefaultTimeout is the timeout of a publish or a request if Config sets none.
const DefaultTimeout = 5 * time.Second

const (
	reconnectWait = 100 * time.Millisecond
	// A connection to a server that does not answer two pings is given up with the third.
	pingInterval = 2 * time.Second
	drainTimeout = 5 * time.Second
	// connectTimeout is long enough for a restarted server to which all clients connect at the same time.
	connectTimeout = 5 * time.Second
)

// Config describes the server and the connection. Fields with a variable are the same for all connections of a process.
type Config struct {
	// URL is one address, or several separated by commas, for example "nats://127.0.0.1:4222".
	URL string `env:"KEB_NATS_URL" envDefault:"nats://127.0.0.1:4222"`
	// Name is the name of the connection in the server's list.
	Name string
	// User and Password are optional. The password is never logged. With a user, answers arrive on subjects below
	// event.InboxPrefix(User), so that the server can reject other subscribers.
	User     string `env:"KEB_NATS_USER"`
	Password string `env:"KEB_NATS_PASSWORD"`
	// TLS holds the files for TLS. If one is set, the server must use TLS, for any scheme of URL. Without files, "tls://" requires TLS with
	// the system's certificate authorities, and TLS is also used if the server requires it. The files are read for each connection.
	// Errors contain the names of the variables, for example KEB_NATS_CA_FILE.
	TLS tlsfiles.Client `envPrefix:"KEB_NATS_"`
	// TLSFirst starts the connection with TLS, for a server with handshake_first.
	TLSFirst bool `env:"KEB_NATS_TLS_FIRST"`
	// Guest makes the connection create no stream, consumer or bucket: it waits until the orchestrator has created them. All users with
	// the rights of event.Users need it, except the orchestrator.
	Guest bool
	// Timeout limits the wait for the acknowledgements of one Publish, and for the answer of one Ask. An earlier deadline of the
	// context takes precedence. 0 means DefaultTimeout.
	Timeout time.Duration
	// Replicas is the number of replicas of new streams; 0 means three in a cluster of three or more servers, else one. Existing streams keep
	// theirs.
	Replicas int
}

// Validate reports invalid files for TLS.
func (c Config) Validate() error { return c.TLS.Validate(tlsPrefix) }

// LogValue omits the password.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("url", redact(c.URL)), slog.String("name", c.Name), slog.String("user", c.User),
		slog.Duration("timeout", c.Timeout), slog.Int("replicas", c.Replicas))
}

// Deps are the optional dependencies of a Bus.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// InProcess connects to a server in the same process without a socket. Config.URL is then ignored.
	InProcess nats.InProcessConnProvider
}

// Bus is a connection to NATS. It is safe for concurrent use.
type Bus struct {
	cfg     Config
	log     *slog.Logger
	nc      *nats.Conn
	live    atomic.Pointer[nats.Conn] // nc, for callbacks that may run before it is set
	js      jetstream.JetStream
	pub     *publisher
	metrics *metrics
	streams seen
	closed  chan struct{}

	reconnects *signal
	// connection is the current connection to a server.
	connection connection
	// refusals are the streams that reject publications.
	refusals refusals
	// isolation is about the server of the connection.
	isolation isolation
	probing   sync.Mutex
	probed    probe

	// roomLog limits the logging about a server with less storage than its streams may use.
	roomLog rate.Sometimes
	// deadLog limits the logging of dead letters, which every client of the bus can cause. The metrics count all of them.
	deadLog rate.Sometimes
}

// Connect connects to the server, and retries until ctx ends. A connected Bus reconnects without a limit. An invalid address and
// rejected credentials are immediate errors.
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
	b.connectedSince()
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
			b.refusals.clear() // a restarted server may be able to write again
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
		if !isTemporary(err) {
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

// isTemporary reports whether a connection error is temporary, unlike an invalid address or wrong credentials.
func isTemporary(err error) bool {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || tlsfiles.IsTLS(err) {
		return false
	}
	// A proxy closes the connection while its server is down.
	if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF) {
		return true
	}
	// The library has no values for these errors of a server: the credentials did not reach it in time, or it has too many connections.
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "authentication timeout") || strings.Contains(text, "maximum connections exceeded") || isNetError(err)
}

// NATS returns the connection, for functions that this package does not provide.
func (b *Bus) NATS() *nats.Conn { return b.nc }

// JetStream returns the JetStream context of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Close drains the connection: it sends everything that was published, and ends the subscriptions. It waits for that, and
// can be called more than once.
func (b *Bus) Close() {
	b.metrics.connections.remove(b.nc)
	if err := b.nc.Drain(); err != nil {
		b.nc.Close()
	}
	<-b.closed
	b.pub.failAll(nats.ErrConnectionClosed)
}

// signal notifies any number of goroutines of the next event.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

// next returns a channel that is closed when the signal is next raised.
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
