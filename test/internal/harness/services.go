package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// Services run in the process of the test, with a database and a bus of their own. They are for tests that need the insides of a service,
// such as its log, or other steps than those of KEB; a System runs the built program.
type Services struct {
	// Bus is a connection of the orchestrator's user.
	Bus *bus.Bus
	// Orchestrator and Broker are the configurations of the next start.
	Orchestrator orchestrator.Config
	Broker       broker.Config
	// HTTP bounds the clients of the servers.
	HTTP service.HTTP

	t           *testing.T
	log         *slog.Logger
	keys        *seal.Keyring
	natsURL     string
	isCommitted bool
}

// NewServices starts the bus and makes the database. root is the folder of the repository, whose users the bus gets; "" is a bus without
// users. A test with users cannot run in parallel.
func NewServices(t *testing.T, root string, log *slog.Logger) *Services {
	t.Helper()
	s := &Services{t: t, log: log, isCommitted: root != ""}
	if s.isCommitted {
		s.natsURL = committedNATS(t, root).ClientURL()
	} else {
		s.natsURL = testkit.NATS(t).URL()
	}
	s.Bus = s.Connect(event.UserOrchestrator)
	if !s.isCommitted { // else the orchestrator makes the streams, and all others wait for them
		require.NoError(t, s.Bus.EnsureStreams(t.Context()))
	}
	var err error
	s.keys, err = seal.ParseKeyring("k1:" + seal.NewKey())
	require.NoError(t, err)
	database := pgtest.Database(t, broker.Migrate)
	s.Orchestrator, s.Broker = service.Defaults[orchestrator.Config](), service.Defaults[broker.Config]()
	s.Orchestrator.Database.URL, s.Broker.Database.URL = database, database
	s.Broker.User, s.Broker.Password, s.Broker.SealKeys = "keb", "keb", "k1:"+seal.NewKey()
	return s
}

// NATS is the URL of the bus.
func (s *Services) NATS() string { return s.natsURL }

// Connect connects to the bus as a user, until the test ends.
func (s *Services) Connect(user string) *bus.Bus {
	s.t.Helper()
	cfg := bus.Config{URL: s.natsURL, Name: user}
	if s.isCommitted {
		cfg.User, cfg.Password, cfg.Guest = user, Password(user), user != event.UserOrchestrator
	}
	b, err := bus.Connect(s.t.Context(), cfg, bus.Deps{Log: s.log})
	require.NoError(s.t, err)
	s.t.Cleanup(b.Close)
	return b
}

// Run runs a part until it is stopped, or the test ends.
func (s *Services) Run(name string, part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: %v", name, err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// StartOrchestrator starts an orchestrator and its server; addr is "host:port", or "" for any.
func (s *Services) StartOrchestrator(addr string) (at string, stop func()) {
	s.t.Helper()
	b := s.Connect(event.UserOrchestrator)
	registry := prometheus.NewRegistry()
	o, err := orchestrator.New(s.t.Context(), s.Orchestrator, orchestrator.Deps{
		Bus: b, Memory: stagemem.New(b.JetStream(), &seal.Keyring{}), Log: s.log, Registerer: registry, Gatherer: registry,
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = o.Close() })
	return s.serve("orchestrator", addr, o.Handler(), o.Run)
}

// StartBroker starts a broker and its server.
func (s *Services) StartBroker() (at string, stop func()) {
	s.t.Helper()
	b, err := broker.New(s.t.Context(), s.Broker, broker.Deps{Bus: s.Connect(event.UserBroker), Log: s.log})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = b.Close() })
	return s.serve("broker", "", b.Handler(), b.Run)
}

func (s *Services) serve(name, addr string, h http.Handler, part func(context.Context) error) (at string, stop func()) {
	s.t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := service.Listen(addr)
	require.NoError(s.t, err)
	stopPart := s.Run(name, part)
	stopServer := s.Run("server of the "+name, func(ctx context.Context) error { return s.HTTP.Serve(ctx, listener, h) })
	return listener.Addr().String(), func() {
		stopServer()
		stopPart()
	}
}

// StartWorker starts a worker.
func (s *Services) StartWorker(cfg worker.Config, steps ...worker.Step) (stop func()) {
	s.t.Helper()
	b := s.Connect(event.WorkerUserName(cfg.Name))
	memory := stagemem.New
	if s.isCommitted {
		memory = stagemem.NewGuest
	}
	w, err := worker.New(cfg, worker.Deps{Bus: b, StageMemory: memory(b.JetStream(), s.keys), Log: s.log}, steps...)
	require.NoError(s.t, err)
	return s.Run("worker "+cfg.Name, w.Run)
}

// Tokens writes a file with static tokens of the operator API: victor is a viewer, olga an operator.
func Tokens(t testing.TB, viewer, operator string) (file string) {
	t.Helper()
	var text strings.Builder
	for _, u := range []struct {
		name, token string
		role        access.Role
	}{{"victor", viewer, access.Viewer}, {"olga", operator, access.Operator}} {
		sum := sha256.Sum256([]byte(u.token))
		line, err := access.TokenLine(u.name, u.role, hex.EncodeToString(sum[:]))
		require.NoError(t, err)
		text.WriteString(line + "\n")
	}
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}
