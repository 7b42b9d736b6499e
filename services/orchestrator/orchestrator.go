// Package orchestrator stores the state of operations and decides what runs next. It contains the whole service as a library; the command
// and the all-in-one process call New and Run.
package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/census"
	"github.com/kyma-project/keb/services/orchestrator/internal/console"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/hold"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/operatorapi"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
	"github.com/kyma-project/keb/services/orchestrator/internal/recovery"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/timer"
	"github.com/kyma-project/keb/services/orchestrator/internal/webhook"
)

const (
	// committers is the number of connections for transitions: two commit batches alternately, the others start operations, sweep and apply
	// actions.
	committers = 6
	// maxIdleTransaction is how long an orchestrator that freezes in the middle of a transaction keeps its locks: the others get its messages after
	// AckWait, and would wait for them.
	maxIdleTransaction = 4 * time.Second
	// readers is the number of connections for reads. One of them holds the rank.
	readers = 7
	// drivers is the number of connections for rounds: two for each of three orchestrations and of two webhooks, and one for each of two
	// batches. The others are for requests about them.
	drivers = 14
	// handlers is the number of result batches that are processed in parallel.
	handlers = 2
	maxBatch = 500
	// tallyEvery is the interval at which counts are saved. A killed process loses at most the counts of one interval.
	tallyEvery = 10 * time.Second
	// changesEvery is the interval of reads of changed operations. reconcileEvery is the delay of a change whose notice was lost.
	changesEvery   = 200 * time.Millisecond
	reconcileEvery = 5 * time.Second
	// clientBuffer limits the changed operations that wait for a slow client, and maxClients the number of clients.
	clientBuffer = 2000
	maxClients   = 500
)

// settleAfterLoss is the delay between a loss of the bus and the question to workers which commands they execute. A busy worker waits up to two
// seconds for a free slot before it returns a batch. It may have fetched three batches: the current one, the next one, and one in the
// client of the bus.
const settleAfterLoss = 3*2*time.Second + time.Second

// Deps contains the dependencies of an orchestrator. Log, Registerer and Now have defaults.
type Deps struct {
	Bus    *bus.Bus
	Memory dispatch.Memory
	Log    *slog.Logger
	// Registerer registers the metrics. If Gatherer is set, it is served at /metrics.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// Health receives the conditions of readiness and is served with the operator API; nil creates one.
	Health *service.Health
	Now    func() time.Time
	// TracerProvider creates the spans of operations, stages and steps; nil disables tracing.
	TracerProvider trace.TracerProvider
}

// Orchestrator is the service.
type Orchestrator struct {
	cfg            Config
	deps           Deps
	pools          map[string]*sqlx.DB
	store          *store.Store
	processes      *overlay.Cache
	dispatch       *dispatch.Dispatcher
	purger         *dispatch.Purger
	timer          *timer.Timer
	archive        *timer.Retention
	recovery       *recovery.Recovery
	workers        *liveness.Liveness
	progress       *liveness.Progress
	holds          *hold.Cache
	limits         *limit.Cache
	ramps          *ramp.Cache
	presence       *replica.Presence
	orchestrations *orchestration.Controller
	batches        *batch.Controller
	webhooks       *webhook.Service
	// rank is set while Run runs.
	rank    int
	tally   *census.Tally
	slow    *census.Slow
	changes *operatorapi.Hub
	api     *operatorapi.API
	console *console.Console
	gate    *gate
}

// Migrate migrates the database. Several processes may call it at the same time.
func Migrate(ctx context.Context, db *sqlx.DB) error { return store.Migrate(ctx, db) }

// New loads the process definitions, opens and migrates the database, and prepares the service. Close releases its resources.
func New(ctx context.Context, cfg Config, deps Deps) (*Orchestrator, error) {
	cfg = cfg.completed()
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Health == nil {
		deps.Health = service.NewHealth()
	}
	o := &Orchestrator{cfg: cfg, deps: deps, pools: map[string]*sqlx.DB{}}
	if err := o.open(ctx); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *Orchestrator) open(ctx context.Context) error {
	commit, err := o.pool(ctx, postgres.Config{ApplicationName: "keb-orchestrator", MaxOpen: committers, IdleInTransaction: maxIdleTransaction, ByIndex: true})
	if err != nil {
		return err
	}
	if err := Migrate(ctx, commit); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	read, err := o.pool(ctx, postgres.Config{ApplicationName: "keb-orchestrator-read", MaxOpen: readers})
	if err != nil {
		return err
	}
	if o.store, err = store.New(ctx, commit, read); err != nil {
		return err
	}
	if o.processes, err = o.openProcesses(ctx); err != nil {
		return err
	}
	definitions := o.processes.Definitions()
	o.workers = liveness.New(liveness.Config{
		Every: o.cfg.AskWorkersEvery, Timeout: o.cfg.AskWorkersEvery / 4, Grace: 2 * o.cfg.AskWorkersEvery,
	}, o.deps.Bus.NATS(), o.deps.Now, o.deps.Log)
	looker := &cacheLooker{Store: o.store}
	o.timer = timer.New(timer.Config{Every: o.cfg.SweepEvery, Timeout: o.cfg.BatchTimeout}, looker, o.deps.Now, o.deps.Log)
	o.holds = hold.NewCache(o.cfg.BatchTimeout, o.store, o.deps.Bus.NATS(), o.deps.Now, o.timer.Wake, o.deps.Log)
	o.limits = limit.NewCache(o.cfg.BatchTimeout, o.store, o.deps.Bus.NATS(), func() { o.dispatch.WakeGrants() }, o.deps.Log)
	o.ramps = ramp.NewCache(o.cfg.BatchTimeout, o.store, o.deps.Bus.NATS(), o.deps.Log)
	o.presence = replica.NewPresence(replica.PresenceConfig{Pause: o.cfg.SweepEvery, Timeout: o.cfg.BatchTimeout}, o.redeliver, o.deps.Log)
	looker.presence = o.presence
	looker.holds, looker.limits, looker.processes, looker.ramps = o.holds, o.limits, o.processes, o.ramps
	o.purger = dispatch.NewPurger(o.deps.Memory, o.deps.Log)
	o.tally = census.NewTally(tallyEvery, o.store, o.deps.Now, o.deps.Log)
	o.changes = operatorapi.NewHub(operatorapi.HubConfig{
		Every: changesEvery, Reconcile: reconcileEvery, Buffer: clientBuffer, MaxClients: maxClients,
	}, o.deps.Bus.NATS(), o.store, o.deps.Log)
	o.progress = liveness.NewProgress(o.deps.Bus.NATS(), o.changes.Refresh, o.deps.Now, o.deps.Log)
	o.dispatch, err = dispatch.New(dispatch.Config{BatchTimeout: o.cfg.BatchTimeout}, dispatch.Deps{
		Store: dispatch.Postgres{Store: o.store}, Publisher: o.deps.Bus, Definitions: definitions, Workers: o.workers, Purger: o.purger,
		Holds: o.holds, Limits: o.limits, Ramps: o.ramps, Backlog: o.deps.Bus, Metrics: dispatch.NewMetrics(o.deps.Registerer), Log: o.deps.Log, Now: o.deps.Now, Wake: o.timer.Wake,
		TracerProvider: o.deps.TracerProvider, Watcher: dispatch.Watchers{o.tally, o.changes}, Notifier: o.deps.Bus,
	})
	if err != nil {
		return err
	}
	// The operator API can decide commands before Run.
	for _, read := range []func(context.Context) error{o.holds.Refresh, o.limits.Refresh, o.ramps.Refresh} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	o.slow = census.NewSlow(o.cfg.SlowAfter, o.store, definitions, o.dispatch, o.deps.Now, o.deps.Log)
	o.recovery = recovery.New(recovery.Config{
		Every: o.cfg.SweepEvery, Timeout: 2 * o.cfg.SweepEvery, Settle: settleAfterLoss, WorkerTimeout: o.cfg.LossTimeout,
		Redelivery: event.ResultsConsumer().AckWait + time.Second, // plus the time to process them
	}, recovery.Deps{Bus: o.deps.Bus, Workers: o.workers, Dispatcher: o.dispatch, Now: o.deps.Now, Log: o.deps.Log})
	o.archive, err = timer.NewRetention(timer.RetentionConfig{
		Every: o.cfg.ArchiveEvery, Keep: o.cfg.KeepOperations, KeepArchived: o.cfg.KeepArchive,
	}, o.store, o.deps.Registerer, o.deps.Now, o.deps.Log)
	if err != nil {
		return err
	}
	if o.gate, err = newGate(o.cfg, o.deps, store.NewActions(commit, read)); err != nil {
		return err
	}
	write, err := o.pool(ctx, postgres.Config{ApplicationName: "keb-orchestrator-orchestrations", MaxOpen: drivers})
	if err != nil {
		return err
	}
	orchestrations, err := o.openOrchestrations(write, read)
	if err != nil {
		return err
	}
	batches := store.NewBatches(o.store, write, read)
	o.gate.batches = batches
	o.batches = batch.NewController(batch.Config{Every: o.cfg.OrchestrationsEvery, Timeout: o.cfg.BatchTimeout}, batches, o.dispatch, o.deps.Now, o.deps.Log)
	standing := census.New(census.Deps{
		Operations: o.store, Orchestrations: orchestrations, Definitions: definitions, Workers: o.workers,
		Limits: o.currentLimits, Ramps: o.ramps.All, JetStream: o.deps.Bus.JetStream(), Now: o.deps.Now, Log: o.deps.Log,
	})
	links, err := operatorapi.ParseLinks(o.cfg.Links)
	if err != nil {
		return fmt.Errorf("KEB_OPERATOR_LINKS: %w", err)
	}
	if err := o.openWebhooks(write, read); err != nil {
		return err
	}
	o.api = operatorapi.New(operatorapi.Deps{
		Links:      links,
		Operations: o.store, Troubles: o.store, Census: standing, Definitions: definitions, Workers: o.workers, Progress: o.progress, Actor: o.dispatch, Facts: o.dispatch,
		Orchestrations: orchestrations, FailedSteps: o.store, Memberships: orchestrations, Asker: o.deps.Bus, Wake: o.orchestrations.Wake,
		Plans: func(ctx context.Context) ([]string, error) { return orchestration.KnownPlans(ctx, o.deps.Bus) }, Now: o.deps.Now, Log: o.deps.Log,
		Holds: o.store, HoldsChanged: o.holds.Changed, Ramps: o.store, RampsChanged: o.ramps.Changed, CurrentRamps: o.ramps.All, VersionOf: o.ramps.Version, Limits: o.store, LimitsChanged: o.limits.Changed, CurrentLimits: o.currentLimits,
		Batches: batches, WakeBatches: o.batches.Wake, Webhooks: store.NewWebhooks(write, read), WebhookService: o.webhooks,
		LocalWebhooks: o.cfg.LocalWebhooks,
		Signals:       o.dispatch, DeadLetters: o.deps.Bus, Commands: o.dispatch, Actions: o.gate.actions, Registerer: o.deps.Registerer,
		Counts: o.tally, Changes: o.changes, Overlays: o.processes, OverlayVersions: o.store,
	})
	o.gate.guard.OnRefusal(o.api.Refused)
	o.gate.guard.AllowSender(operatorapi.IsEvent)
	if o.console, err = console.New(); err != nil {
		return err
	}
	if err := o.observe(standing); err != nil {
		return err
	}
	o.deps.Health.Add("postgres", o.store.Ping)
	o.deps.Health.Add("nats", o.deps.Bus.Ready)
	return nil
}

// openProcesses combines the processes with the overlays. After a change of them, the consumers of new workers are created, and the metrics of new
// steps.
func (o *Orchestrator) openProcesses(ctx context.Context) (*overlay.Cache, error) {
	builtIn, folders, err := o.cfg.files()
	if err != nil {
		return nil, err
	}
	return overlay.Open(ctx, overlay.Config{
		WatchEvery: o.cfg.WatchEvery, Timeout: o.cfg.BatchTimeout, BuiltIn: builtIn, Folders: folders,
	}, overlay.Deps{
		Store: o.store, NATS: o.deps.Bus.NATS(), Now: o.deps.Now, Log: o.deps.Log,
		Changed: func(ctx context.Context) {
			o.dispatch.PrepareMetrics()
			if err := o.deps.Bus.EnsureAll(ctx, o.consumers()); err != nil {
				o.deps.Log.Warn("streams and consumers are not complete; the next check creates them", "err", err)
			}
		},
	})
}

func (o *Orchestrator) currentLimits() *limit.Set {
	set, _ := o.limits.Current()
	return set
}

// observe registers the gauges and the statistics of the pools.
func (o *Orchestrator) observe(standing *census.Census) error {
	r := o.deps.Registerer
	if r == nil {
		return nil
	}
	for name, db := range o.pools {
		if err := r.Register(collectors.NewDBStatsCollector(db.DB, name)); err != nil {
			return fmt.Errorf("register the metrics of pool %s: %w", name, err)
		}
	}
	if err := o.processes.Register(r); err != nil {
		return fmt.Errorf("register the gauges of overlays: %w", err)
	}
	holds := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keb_holds", Help: "Holds that have not ended."}, func() float64 {
		return float64(len(o.holds.Active()))
	})
	if err := r.Register(holds); err != nil {
		return fmt.Errorf("register the gauge of holds: %w", err)
	}
	if err := standing.Register(r); err != nil {
		return fmt.Errorf("register the gauges: %w", err)
	}
	return nil
}

// openOrchestrations prepares the controller of orchestrations. write is a separate pool, because a round holds a connection while it waits
// for other services.
func (o *Orchestrator) openOrchestrations(write, read *sqlx.DB) (*store.Orchestrations, error) {
	policy, err := loadPolicy(o.cfg.MaintenancePolicy)
	if err != nil {
		return nil, fmt.Errorf("KEB_MAINTENANCE_POLICY: %w", err)
	}
	orchestrations := store.NewOrchestrations(write, read)
	o.orchestrations, err = orchestration.NewController(orchestration.Config{
		Every: o.cfg.OrchestrationsEvery, Patience: o.cfg.BatchTimeout, Policy: policy,
	}, orchestration.Deps{
		Store: orchestrations, Asker: o.deps.Bus, Cancel: o.cancelOf(false), Withdraw: o.cancelOf(true), Now: o.deps.Now, Log: o.deps.Log, Registerer: o.deps.Registerer,
	})
	return orchestrations, err
}

// cancelOf returns a function that cancels an operation, unless it has ended or, if pending is set, has started.
func (o *Orchestrator) cancelOf(pending bool) func(ctx context.Context, operationID, reason string) error {
	return func(ctx context.Context, operationID, reason string) error {
		err := o.dispatch.Act(ctx, operationID, engine.Cancel{Reason: reason, Pending: pending})
		if errors.Is(err, engine.ErrNotPossible) || errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	}
}

// wakeOrchestrations wakes the controller of orchestrations when an upgrade ends. The controller also polls, so a lost fact only
// delays it.
func (o *Orchestrator) wakeOrchestrations() (stop func(), err error) {
	var subs []*nats.Subscription
	stop = func() {
		for _, sub := range subs {
			if err := sub.Unsubscribe(); err != nil {
				o.deps.Log.Debug("unsubscribe failed", "subject", sub.Subject, "err", err)
			}
		}
	}
	for _, operation := range []event.OperationType{event.UpgradeKyma, event.UpgradeCluster} {
		for _, t := range []event.Type{event.TypeOperationSucceeded, event.TypeOperationFailed, event.TypeOperationCancelled} {
			sub, err := o.deps.Bus.NATS().Subscribe(event.FactSubject(operation, t), func(*nats.Msg) { o.orchestrations.Wake() })
			if err != nil {
				stop()
				return nil, fmt.Errorf("subscribe to the ends of upgrades: %w", err)
			}
			subs = append(subs, sub)
		}
	}
	return stop, nil
}

func (o *Orchestrator) pool(ctx context.Context, cfg postgres.Config) (*sqlx.DB, error) {
	cfg.URL, cfg.TLS = o.cfg.Database.URL, o.cfg.Database.TLS
	db, err := postgres.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	o.pools[cfg.ApplicationName] = db
	return db, nil
}

// Handler serves the operator API, the console, /healthz, /readyz and /metrics.
func (o *Orchestrator) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", o.api.Observed(o.gate.guard.Protect(limited(o.api.Handler(), o.cfg.BatchTimeout))))
	o.gate.login.Register(mux)
	mux.Handle("GET /{$}", http.RedirectHandler(console.Root, http.StatusSeeOther))
	mux.Handle("GET "+console.Root, o.console.Handler())
	// Health and metrics bypass client limits.
	all := http.NewServeMux()
	all.Handle("/", o.gate.bounded(o.gate.origins.Handler(mux), o.api.Observed))
	all.Handle("/healthz", o.deps.Health.Handler())
	all.Handle("/readyz", o.deps.Health.Handler())
	if o.deps.Gatherer != nil {
		all.Handle("GET /metrics", service.Monitoring(o.deps.Gatherer, o.deps.Health))
	}
	return all
}

// limited sets a time limit on requests, so that an unresponsive database cannot block them. The stream of changes has no limit.
func limited(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == operatorapi.StreamPath {
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Processes returns the definitions that new operations use.
func (o *Orchestrator) Processes() process.Set { return o.processes.Definitions().Set() }

// Run works until ctx ends. It returns when everything that it started has ended.
func (o *Orchestrator) Run(ctx context.Context) error {
	err := o.run(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // stopped while starting
	}
	return err
}

func (o *Orchestrator) run(ctx context.Context) error {
	if err := o.deps.Bus.EnsureAll(ctx, o.consumers()); err != nil {
		return fmt.Errorf("prepare the bus: %w", err)
	}
	stop, err := o.deps.Bus.Answer(event.AskOperations, "orchestrator", o.api.Answer)
	if err != nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	defer stop()
	stopRejections, err := o.deps.Bus.Answer(event.AskRejections, "orchestrator", o.api.Rejections)
	if err != nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	defer stopRejections()
	stopCurrent, err := o.deps.Bus.AnswerAll(event.AskCurrentAs("*"), "orchestrator", o.api.Current)
	if err != nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	defer stopCurrent()
	stopExtend, err := o.deps.Bus.AnswerAll(event.AskExtendAs("*"), "orchestrator", o.api.Extend)
	if err != nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	defer stopExtend()
	unsubscribe, err := o.wakeOrchestrations()
	if err != nil {
		return err
	}
	defer unsubscribe()
	// The bus may have answered late, and no notice was received in the meantime.
	if !o.holds.Load(ctx) || !o.limits.Load(ctx) || !o.ramps.Load(ctx) {
		return nil // stopped
	}
	lease, err := o.store.Rank(ctx, bus.Ranks)
	if err != nil {
		o.deps.Log.Warn("no rank assigned, a random one is used", "err", err)
	}
	defer lease.Release(ctx)
	rank := lease.Rank()
	o.rank = rank
	group := service.NewGroup(o.deps.Log)
	group.Add("results", func(ctx context.Context) error {
		return o.deps.Bus.Consume(ctx, bus.ConsumeConfig{
			Consumer: event.ResultsConsumer(), MaxBatch: maxBatch, Handlers: handlers, Prefetch: 2 * maxBatch, Rank: rank,
		}, func(ctx context.Context, batch []*bus.Delivery) {
			o.report("results", o.dispatch.Results(ctx, dispatch.Deliveries(batch)))
		})
	})
	group.Add("requests", func(ctx context.Context) error {
		return o.deps.Bus.Consume(ctx, bus.ConsumeConfig{
			Consumer: event.RequestsConsumer(), MaxBatch: maxBatch, Handlers: 1, Prefetch: 2 * maxBatch, Rank: rank,
		}, func(ctx context.Context, batch []*bus.Delivery) {
			o.report("requests", o.dispatch.Requests(ctx, dispatch.Deliveries(batch)))
		})
	})
	group.Add("signals", func(ctx context.Context) error {
		return o.deps.Bus.Consume(ctx, bus.ConsumeConfig{
			Consumer: event.SignalsConsumer(), MaxBatch: maxBatch, Handlers: 1, Prefetch: maxBatch, Rank: rank,
		}, func(ctx context.Context, batch []*bus.Delivery) {
			o.report("signals", o.dispatch.Signals(ctx, dispatch.Deliveries(batch)))
		})
	})
	group.Add("other orchestrators", func(ctx context.Context) error { return o.presence.Run(ctx, lease) })
	group.Add("bus", func(ctx context.Context) error { return o.deps.Bus.Keep(ctx, o.consumers) })
	group.Add("workers", o.workers.Run)
	group.Add("timer", o.afterDiscovery(func(ctx context.Context) error { return o.timer.Run(ctx, o.dispatch) }))
	group.Add("facts", o.dispatch.RunFacts)
	group.Add("recovery", o.afterDiscovery(o.recovery.Run))
	group.Add("progress", o.progress.Run)
	group.Add("holds", o.holds.Run)
	group.Add("limits", o.limits.Run)
	group.Add("ramps", o.ramps.Run)
	group.Add("removal of ramps", o.afterDiscovery(ramp.NewRemoval(o.cfg.SweepEvery, ramp.RemovalDeps{
		Removed: o.ramps.Removed, Workers: o.workers, Dispatcher: o.dispatch, Drop: o.store.DropRamps, Now: o.deps.Now, Log: o.deps.Log,
		Purge: func(ctx context.Context, worker string) error {
			return o.deps.Bus.PurgeConsumer(ctx, event.CommandsConsumer(event.Ramped(worker)))
		},
	}).Run))
	group.Add("overlays", o.processes.Run)
	group.Add("overlay folders", o.processes.Watch)
	group.Add("admission", o.dispatch.RunAdmission)
	group.Add("grants", o.dispatch.RunGrants)
	group.Add("purger", o.purger.Run)
	group.Add("orchestrations", o.orchestrations.Run)
	group.Add("batches", o.batches.Run)
	group.Add("webhooks", o.webhooks.Run)
	group.Add("actions", o.gate.forget)
	group.Add("archive", o.archive.Run)
	group.Add("tally", o.tally.Run)
	group.Add("slow", o.slow.Run)
	group.Add("changes", func(ctx context.Context) error { return o.changes.Run(ctx, o.api) })
	defer o.tally.Flush(context.WithoutCancel(ctx))
	return group.Run(ctx)
}

// redeliver makes the bus deliver again what orchestrators have received and not acknowledged. Those that live get their messages twice, without
// harm: the second result of a command changes nothing.
func (o *Orchestrator) redeliver(ctx context.Context) (messages int, err error) {
	for _, consumer := range []event.ConsumerSpec{event.ResultsConsumer(), event.RequestsConsumer(), event.SignalsConsumer()} {
		n, problem := o.deps.Bus.Redeliver(ctx, consumer)
		messages, err = messages+n, errors.Join(err, problem)
	}
	return messages, err
}

// afterDiscovery delays a function until the live workers are known: it sends commands, and none to a step without a worker. Results and requests
// are processed earlier.
func (o *Orchestrator) afterDiscovery(run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-o.workers.Asked():
			return run(ctx)
		}
	}
}

// maxVisitors limits the consumers that are created for workers that no process names.
const maxVisitors = 100

// consumers returns the consumers of all services, which cannot create them themselves. It includes workers that the current processes
// name, and live workers that these do not name: operations with older definitions may wait for them, or their overlay is not enabled yet. The
// ramped replicas of a worker have a consumer only if the current processes name it.
func (o *Orchestrator) consumers() []event.ConsumerSpec {
	specs := []event.ConsumerSpec{event.RequestsConsumer(), event.ResultsConsumer(), event.SignalsConsumer(), event.FactsConsumer(event.UserBroker)}
	named := o.Processes().Workers()
	for _, name := range named {
		specs = append(specs, event.CommandsConsumer(name))
	}
	visitors := 0
	for _, w := range o.workers.Workers() {
		if len(w.Ramped) > 0 && slices.Contains(named, w.Name) {
			specs = append(specs, event.CommandsConsumer(event.Ramped(w.Name)))
		}
		if visitors < maxVisitors && len(w.Steps) > 0 && !slices.Contains(named, w.Name) && worker.CheckName(w.Name) == nil {
			specs = append(specs, event.CommandsConsumer(w.Name))
			visitors++
		}
	}
	return specs
}

func (o *Orchestrator) report(what string, err error) {
	if err != nil {
		o.deps.Log.Error("batch failed", "batch", what, "err", err)
	}
}

// Close closes the pools. It must not be called while Run runs.
func (o *Orchestrator) Close() error {
	var problems []error
	for _, db := range o.pools {
		problems = append(problems, postgres.Close(db))
	}
	return errors.Join(problems...)
}

// cacheLooker passes on what the sweep reads about the holds, the limits and the overlays, so that their caches need no statement of their own. The
// same holds for the ranks.
type cacheLooker struct {
	*store.Store

	holds     *hold.Cache
	limits    *limit.Cache
	processes *overlay.Cache
	ramps     *ramp.Cache
	presence  *replica.Presence
}

// SweepStatus implements timer.Store.
func (l *cacheLooker) SweepStatus(ctx context.Context, now time.Time, whole bool) (store.SweepStatus, error) {
	status, err := l.Store.SweepStatus(ctx, now, whole)
	if err == nil {
		l.holds.Seen(status.Holds)
		l.limits.Seen(status.Limits)
		l.processes.Seen(status.Overlays)
		l.ramps.Seen(status.Ramps)
		l.presence.Seen(status.Ranks)
	}
	return status, err
}
