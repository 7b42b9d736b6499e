// Package broker implements the Open Service Broker API that platforms call. It stores
// the instances, their sealed credentials, and a read model of the operations that the
// orchestrator runs.
//
// The broker accepts a request (202) once its transaction is committed. The transaction
// holds the instance, the operation, the credentials and the publication. The bus may be
// down at that moment: the broker publishes the request later. If the database is down,
// the broker rejects every request with 503.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker/internal/api"
	"github.com/kyma-project/keb/services/broker/internal/auth"
	"github.com/kyma-project/keb/services/broker/internal/binding"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/credential"
	"github.com/kyma-project/keb/services/broker/internal/exchange"
	"github.com/kyma-project/keb/services/broker/internal/runtimes"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Deps are what a Broker needs besides its configuration.
type Deps struct {
	Bus *bus.Bus
	// Log, Registerer, Health and Now are optional. Health gets the conditions of readiness. Now is the clock; nil means time.Now.
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Health     *service.Health
	Now        func() time.Time
	// TracerProvider creates a span for each request, publication and step. Nil creates none.
	TracerProvider trace.TracerProvider
}

// Broker is the service. Several brokers can share one database.
type Broker struct {
	cfg     Config
	deps    Deps
	pool    *sqlx.DB
	store   *store.Store
	vault   *credential.Vault
	relay   *exchange.Relay
	repair  *exchange.Repair
	facts   *exchange.Projection
	orders  *exchange.Rejections
	remover *worker.Worker
	// runtimes answers operators, and queries of orchestrations for instances.
	runtimes *runtimes.API
	requests *api.Broker
	bindings *binding.Service
	resealer *credential.Resealer
	handler  http.Handler
}

// DescribeSteps describes the steps that the broker executes, by name.
func DescribeSteps() map[string]worker.Description {
	return map[string]worker.Description{api.StepName: api.DescribeRemoveInstance()}
}

// Migrate updates the broker's database schema. Several processes can call it concurrently.
func Migrate(ctx context.Context, db *sqlx.DB) error { return store.Migrate(ctx, db) }

// New opens and migrates the database, and creates a broker from a valid configuration. Close releases it.
func New(ctx context.Context, cfg Config, deps Deps) (*Broker, error) {
	if deps.Bus == nil {
		return nil, errors.New("new broker: Deps.Bus is required")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	b := &Broker{cfg: cfg.completed(), deps: deps}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("new broker: %w", err), b.Close())
	}
	return b, nil
}

// Close closes the pool. It must not be called while Run runs.
func (b *Broker) Close() error {
	if b.pool == nil {
		return nil
	}
	return postgres.Close(b.pool)
}

func (b *Broker) open(ctx context.Context) error {
	offers, err := catalog.New(b.cfg.catalog())
	if err != nil {
		return err
	}
	keys, err := seal.ParseKeyring(b.cfg.SealKeys)
	if err != nil {
		return err
	}
	g, err := newGuards(ctx, b.cfg, b.deps)
	if err != nil {
		return err
	}
	m, err := newMetrics(b.deps.Registerer)
	if err != nil {
		return err
	}
	if err := b.openStore(ctx); err != nil {
		return err
	}
	b.orders = exchange.NewRejections(exchange.RejectionsDeps{Store: b.store, Bus: b.deps.Bus, Log: b.deps.Log, Now: b.deps.Now})
	if err := b.orders.Load(ctx); err != nil {
		return err
	}
	if err := b.newParts(keys, offers, m); err != nil {
		return err
	}
	b.handler = b.newHandler(offers, g, m)
	return nil
}

// guards authenticate and limit the clients of the broker.
type guards struct {
	platforms, viewers, actors osb.Authenticator
	clients                    *access.Clients
}

func newGuards(ctx context.Context, cfg Config, deps Deps) (guards, error) {
	authenticator, err := cfg.authenticator(ctx, deps.Now)
	if err != nil {
		return guards{}, err
	}
	tokens, err := access.New(cfg.Access, access.Deps{Log: deps.Log, Now: deps.Now})
	if err != nil {
		return guards{}, err
	}
	attempts, err := access.NewAttempts(cfg.Access, deps.Now)
	if err != nil {
		return guards{}, err
	}
	clients, err := access.NewClients(cfg.Access, deps.Now)
	if err != nil {
		return guards{}, err
	}
	return guards{
		platforms: auth.Limited(authenticator, attempts),
		viewers:   auth.Limited(auth.ForRole(authenticator, tokens, access.Viewer), attempts),
		actors:    auth.Limited(auth.ForRole(authenticator, tokens, access.Operator), attempts),
		clients:   clients,
	}, nil
}

// openStore opens the database, migrates it and registers its readiness and counts.
func (b *Broker) openStore(ctx context.Context) (err error) {
	cfg, deps := b.cfg, b.deps
	pool := cfg.Database.Pool("keb-broker")
	pool.MaxOpen, pool.StatementTimeout = cfg.MaxConnections, cmp.Or(cfg.StatementTimeout, statementTimeout)
	if b.pool, err = postgres.Open(ctx, pool); err != nil {
		return err
	}
	if err := Migrate(ctx, b.pool); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	b.store = store.New(b.pool, cfg.StoreTimeout)
	if deps.Health != nil {
		deps.Health.Add("database", b.Ready)
	}
	return registerCounts(deps.Registerer, b.pool.DB, b.store, deps.Now, deps.Log)
}

func (b *Broker) newParts(keys *seal.Keyring, offers *catalog.Catalog, m *metrics) (err error) {
	cfg, deps := b.cfg, b.deps
	if b.remover, err = worker.New(
		worker.Config{Name: api.Worker, Version: "1"},
		worker.Deps{
			Bus: deps.Bus, Log: deps.Log, Registerer: deps.Registerer, Now: deps.Now, TracerProvider: deps.TracerProvider,
		},
		&api.RemoveInstance{Store: b.store, Bus: deps.Bus, Now: deps.Now, Retry: cfg.StepRetry, BindingGrace: cfg.BindingGrace},
	); err != nil {
		return err
	}
	b.vault = credential.New(keys, b.store, deps.Log)
	if b.resealer, err = credential.NewResealer(keys, b.store, deps.Log, deps.Registerer); err != nil {
		return err
	}
	b.relay = exchange.NewRelay(
		exchange.RelayConfig{SweepEvery: cfg.SweepEvery, Age: cfg.SweepAge, Timeout: publishTimeout},
		exchange.RelayDeps{
			Outbox: b.store, Publisher: deps.Bus, Log: deps.Log, Now: deps.Now, Waiting: m.unpublished,
			Tracer: tracing.TracerOf(deps.TracerProvider, "services/broker"),
		},
	)
	b.facts = exchange.NewProjection(b.store, deps.Log, deps.Now)
	b.bindings = binding.New(binding.Config{
		Timeout: cfg.BindingTimeout, Limit: cfg.BindingLimit, Every: cfg.BindingCleanup, Grace: cfg.BindingGrace,
		Keep: cfg.KeepOperations,
	}, binding.Deps{
		Store: b.store, Bus: deps.Bus, Keys: keys, Vault: b.vault, Catalog: offers, Rejections: b.orders, Log: deps.Log, Now: deps.Now,
	})
	b.repair = exchange.NewRepair(
		exchange.RepairConfig{Every: cfg.RepairEvery, Silence: cfg.RepairSilence}, b.store, deps.Bus, deps.Log, deps.Now)
	return nil
}

func (b *Broker) newHandler(offers *catalog.Catalog, g guards, m *metrics) http.Handler {
	cfg, deps := b.cfg, b.deps
	b.requests = api.New(api.Config{
		EUAccounts: cfg.EUAccounts, EURejection: cfg.EURejection, RetryAfter: cfg.RetryAfter, MaximumPolling: cfg.MaximumPolling,
		TrialLifetime: cfg.TrialLifetime, FreeLifetime: cfg.FreeLifetime, SingleTrial: cfg.SingleTrial,
		TrialDocumentation: cfg.TrialDocumentation, SubaccountMovement: cfg.SubaccountMovement,
		PublicURL: strings.TrimSuffix(cfg.PublicURL, "/"),
	}, api.Deps{
		Catalog: offers, Store: b.store, Vault: b.vault, Bindings: b.bindings, Rejections: b.orders, Notify: b.relay.Notify,
		Log: deps.Log, Now: deps.Now,
	})
	b.runtimes = runtimes.New(runtimes.Deps{
		Store: b.store, Requests: b.requests, Bus: deps.Bus, Viewers: g.viewers, Operators: g.actors, Origins: cfg.KubeconfigOrigins, Log: deps.Log,
	})
	operators := http.NewServeMux()
	b.runtimes.Register(operators)
	operators.Handle(api.ExpirePattern, b.requests.ExpireHandler(g.actors))
	handler := tracing.Handler(deps.TracerProvider, first(operators, osb.NewHandler(b.requests, osb.WithAuth(g.platforms), osb.WithLogger(deps.Log),
		osb.WithObserver(m.observe), osb.WithObserver(traceRoute), osb.WithRequireOrgSpace(cfg.RequireOrgSpace))))
	return g.clients.Limit(handler, nil, m.refuse)
}

// first serves the routes of a mux, and passes every other path to rest unchanged: a mux would redirect some paths. Browsers
// resend basic credentials, so first rejects cross-origin requests. Requests to rest need a header that a page cannot set.
func first(mux *http.ServeMux, rest http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		access.Refuse(w, &access.Error{Status: http.StatusForbidden, Message: "cross-origin requests are not allowed"})
	}))
	own := origins.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			rest.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// publishTimeout bounds one round of publishing.
const publishTimeout = 5 * time.Second

// statementTimeout is the deadline of a statement in the database.
const statementTimeout = 10 * time.Second

func (c Config) authenticator(ctx context.Context, now func() time.Time) (osb.Authenticator, error) {
	var accepted []osb.Authenticator
	if c.User != "" {
		accepted = append(accepted, osb.BasicAuth("keb", map[string]string{c.User: c.Password}))
	}
	if c.JWTIssuer != "" {
		j, err := auth.New(ctx, c.jwt(), now)
		if err != nil {
			return nil, err
		}
		accepted = append(accepted, j)
	}
	return osb.AnyOf(accepted...), nil
}

// Handler serves the Open Service Broker API under "/", "/oauth" and "/oauth/{region}". It serves operators under "/runtimes"
// and "/info/runtimes", and customers under "/kubeconfig/{instance_id}".
func (b *Broker) Handler() http.Handler { return b.handler }

// Ready returns an error if the database does not answer: the broker accepts no requests then.
func (b *Broker) Ready(ctx context.Context) error { return b.store.Ping(ctx) }

// Run does the broker's background work until ctx ends: it publishes accepted requests, applies facts, repairs the read model,
// answers workers' claims for credentials, executes Remove_Instance, and cleans up.
func (b *Broker) Run(ctx context.Context) error {
	g := service.NewGroup(b.deps.Log)
	g.Add("publication", b.relay.Run)
	g.Add("facts", func(ctx context.Context) error {
		return b.deps.Bus.Consume(ctx, exchange.Consumption(), b.facts.Handle)
	})
	g.Add("repair", b.repair.Run)
	g.Add("usual durations", b.requests.RunUsual)
	claims := credential.NewClaims(b.vault, b.deps.Bus, b.deps.Log)
	g.Add("credentials", b.answerAll(event.AskCredentialsAs("*"), claims.Answer))
	g.Add("keep", b.answerAll(event.AskKeepAs("*"), claims.AnswerKeep))
	g.Add("kept", b.answerAll(event.AskKeptAs("*"), claims.AnswerKept))
	g.Add("instances", b.answer(event.AskInstances, b.runtimes.Answer))
	g.Add("instance", b.answer(event.AskInstance, b.runtimes.AnswerInstance))
	g.Add("find", b.answer(event.AskFind, b.runtimes.AnswerFind))
	g.Add("upgrades", b.answer(event.AskUpgrade, b.requests.AnswerUpgrade))
	g.Add("rejections", b.orders.Run)
	g.Add("bindings", b.bindings.Run)
	g.Add("steps", b.remover.Run)
	g.Add("secrets", func(ctx context.Context) error {
		if err := b.resealer.Round(ctx); err != nil && ctx.Err() == nil {
			b.deps.Log.Warn("secrets not sealed anew, trying again", "err", err)
		}
		return service.Every(ctx, b.cfg.ResealEvery, b.deps.Log, "secrets", b.resealer.Round)
	})
	g.Add("housekeeping", func(ctx context.Context) error {
		return service.Every(ctx, time.Hour, b.deps.Log, "clean-up", func(ctx context.Context) error {
			now := b.deps.Now()
			return b.store.Purge(ctx, now.Add(-b.cfg.KeepOperations), now.Add(-b.cfg.KeepTombstones))
		})
	})
	return g.Run(ctx)
}

// answer answers queries of other services until its context ends.
func (b *Broker) answer(subject string, handle func(context.Context, []byte) (any, error)) func(context.Context) error {
	return b.answerAll(subject, func(ctx context.Context, _ string, data []byte) (any, error) { return handle(ctx, data) })
}

func (b *Broker) answerAll(filter string, handle func(context.Context, string, []byte) (any, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		stop, err := b.deps.Bus.AnswerAll(filter, "broker", handle)
		if err != nil {
			return err
		}
		<-ctx.Done()
		stop()
		return nil
	}
}
