package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator"
)

// stepsPerOperation is the number of steps in the built-in provisioning process. Two of them run inside the orchestrator.
const stepsPerOperation = 17

// concurrency of each worker. It is high, so that the load is the limit and not the workers.
const concurrency = 512

// noOp is a step that does nothing, except that it takes a time and waits for something.
type noOp struct {
	name string
	// takes is the duration of each try. The step waits after each of its first tries, for the time after.
	takes, after time.Duration
	tries        int
	// system is what the step calls; nil if it calls nothing.
	system *outage
}

func (s noOp) Name() string { return s.name }

func (s noOp) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	if s.takes > 0 {
		if err := wait(ctx, s.takes); err != nil {
			return op, 0, err
		}
	}
	if err := s.try(op); err != nil {
		return worker.Retry(op, 0, err)
	}
	if op.StepAttempt <= s.tries {
		return worker.Wait(op, s.after, "waiting, for the benchmark")
	}
	return op, 0, nil
}

// installation is a KEB whose workers do nothing.
type installation struct {
	// bus is the connection of an orchestrator, requests the connection of a broker.
	bus, requests *bus.Bus
	process       *process.Process
	cancel        context.CancelFunc
	ended         sync.WaitGroup
	mu            sync.Mutex
	errs          []error
	close         []func()
}

// layout configures an installation. Its zero value is one orchestrator whose steps succeed immediately.
type layout struct {
	// step returns the step with a name; nil means steps that do nothing.
	step func(name string) noOp
	// concurrency is that of each worker; zero means that the load is the limit, and not the workers.
	concurrency int
	// limits is the document with the limits; empty means that there are none.
	limits string
	// orchestrators is the number of orchestrators; zero means one.
	orchestrators int
	// keepOperations and archiveEvery are the fields of orchestrator.Config.
	keepOperations, archiveEvery time.Duration
}

const limitsSQL = `INSERT INTO orchestrator.limits (version, document, applied_by, applied_at) VALUES (1, $1, 'bench', now())`

// install starts orchestrators and all workers.
func install(ctx context.Context, p *parts, log *slog.Logger, l layout) (_ *installation, err error) {
	ctx, cancel := context.WithCancel(ctx)
	i := &installation{cancel: cancel}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.stop())
		}
	}()
	connect := func(user string) (*bus.Bus, error) {
		b, err := p.bus(ctx, user, log)
		if err == nil {
			i.close = append(i.close, b.Close)
		}
		return b, err
	}
	if i.bus, err = connect(event.UserOrchestrator); err != nil {
		return nil, err
	}
	if err := i.bus.EnsureStreams(ctx); err != nil {
		return nil, err
	}
	if i.requests, err = connect(event.UserBroker); err != nil {
		return nil, err
	}
	keys, err := seal.ParseKeyring("bench:" + seal.NewKey())
	if err != nil {
		return nil, err
	}
	var orchestrators []*orchestrator.Orchestrator
	for range max(l.orchestrators, 1) {
		ob, err := connect(event.UserOrchestrator)
		if err != nil {
			return nil, err
		}
		cfg := service.Defaults[orchestrator.Config]()
		cfg.Database.URL, cfg.KeepOperations, cfg.ArchiveEvery = p.databaseURL, cmp.Or(l.keepOperations, cfg.KeepOperations), l.archiveEvery
		o, err := orchestrator.New(ctx, cfg, orchestrator.Deps{Bus: ob, Memory: stagemem.New(ob.JetStream(), keys), Log: log})
		if err != nil {
			return nil, err
		}
		i.close = append(i.close, func() { _ = o.Close() })
		orchestrators = append(orchestrators, o)
	}
	if l.limits != "" {
		if _, err := p.db.ExecContext(ctx, limitsSQL, l.limits); err != nil {
			return nil, fmt.Errorf("apply limits: %w", err)
		}
	}
	if i.process = orchestrators[0].Processes()[event.Provision]; i.process == nil {
		return nil, errors.New("there is no provisioning process")
	}
	var wb *bus.Bus
	for name, steps := range l.stepsByWorker(orchestrators[0].Processes()) {
		// Without users all workers share a connection.
		if wb == nil || p.password != "" {
			if wb, err = connect(userOf(name)); err != nil {
				return nil, err
			}
		}
		w, err := worker.New(worker.Config{Name: name, Version: "1.0.0", Concurrency: cmp.Or(l.concurrency, concurrency), DrainTimeout: time.Second},
			worker.Deps{Bus: wb, StageMemory: stagemem.New(wb.JetStream(), keys), Log: log}, steps...)
		if err != nil {
			return nil, err
		}
		i.run(ctx, w.Run)
	}
	for _, o := range orchestrators {
		i.run(ctx, o.Run)
	}
	return i, nil
}

// userOf returns the NATS user of a worker or of the broker.
func userOf(worker string) string {
	if worker == event.UserBroker {
		return worker
	}
	return event.WorkerUserName(worker)
}

func (i *installation) run(ctx context.Context, f func(context.Context) error) {
	i.ended.Go(func() {
		if err := f(ctx); err != nil {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.errs = append(i.errs, err)
		}
	})
}

func (i *installation) stop() error {
	i.cancel()
	i.ended.Wait()
	for _, end := range slices.Backward(i.close) {
		end()
	}
	return errors.Join(i.errs...)
}

// stepsByWorker returns the steps of all processes.
func (l *layout) stepsByWorker(set process.Set) map[string][]worker.Step {
	steps := map[string][]worker.Step{}
	made := map[string]bool{}
	for _, p := range set {
		for _, stage := range p.Stages {
			for i := range stage.Steps {
				s := &stage.Steps[i]
				if s.BuiltIn() || made[s.Name] {
					continue
				}
				made[s.Name] = true
				step := noOp{name: s.Name}
				if l.step != nil {
					step = l.step(s.Name)
				}
				steps[s.Worker] = append(steps[s.Worker], step)
			}
		}
	}
	return steps
}

// newOperation returns a provisioning in which the condition of every step is true.
func newOperation() event.Operation {
	id := uuid.Must(uuid.NewV7()).String()
	return event.Operation{
		ID: id, Type: event.Provision, InstanceID: id,
		Plan: event.Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: "azure"},
		Context: event.Context{
			GlobalAccountID: "3e64ebae-38b5-46a0-b1ed-9ccee153a0ae", SubaccountID: "39ba9a66-2c1a-4fe4-a28e-6e5db434084e",
			UserID: "user@example.com", PlatformRegion: "cf-eu10", Platform: "cloudfoundry",
		},
		Runtime: event.Runtime{
			Name: "demo", ShootName: "c-1a2b3c4", ShootDomain: "c-1a2b3c4.kyma.example.com", Provider: "azure", Region: "westeurope",
		},
		Parameters: json.RawMessage(
			`{"name":"demo","region":"westeurope","machineType":"Standard_D4_v3","autoScalerMin":3,"autoScalerMax":20,"kymaVersion":"2.20.0"}`),
		Credentials: []string{event.CredentialsServiceManager},
	}
}

// begin publishes requests for n provisionings on the bus.
func (i *installation) begin(ctx context.Context, n int, started func(id string)) error {
	operations := make([]event.Operation, n)
	for k := range operations {
		operations[k] = newOperation()
	}
	return i.request(ctx, operations, started)
}

// request publishes requests for operations on the bus.
func (i *installation) request(ctx context.Context, operations []event.Operation, started func(id string)) error {
	messages := make([]bus.Message, len(operations))
	for k, op := range operations {
		e, err := bus.New(event.TypeOperationRequested, op.ID, event.SourceBroker, op.ID, time.Now(),
			event.OperationRequested{Operation: op, RequestedAt: time.Now().UTC()})
		if err != nil {
			return err
		}
		messages[k] = bus.Message{Subject: event.RequestSubject(op.Type), ID: op.ID, Event: e}
		started(op.ID)
	}
	return i.requests.Publish(ctx, messages...)
}

func runKEB(ctx context.Context, m *machine, load load) (_ result, err error) {
	p, err := m.parts(ctx, "keb")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	return measure(ctx, m, p, load, layout{})
}

// operationOf returns the id of the operation of a fact, with which the event id starts.
func operationOf(msg *nats.Msg) string {
	id, _, _ := strings.Cut(strings.ReplaceAll(msg.Header.Get("ce-id"), "%2F", "/"), "/")
	return id
}

// measure runs a load against an installation.
func measure(ctx context.Context, m *machine, p *parts, load load, how layout) (_ result, err error) {
	i, err := install(ctx, p, m.log, how)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, i.stop()) }()

	l := newLoop(load.inFlight)
	ended := func(msg *nats.Msg) { l.finished(operationOf(msg)) }
	sub, err := i.bus.NATS().Subscribe(event.FactSubject(event.Provision, event.TypeOperationSucceeded), ended)
	if err != nil {
		return result{}, fmt.Errorf("follow the facts: %w", err)
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()
	r, err := l.run(ctx, m, p.db, load, func(n int) error { return i.begin(context.WithoutCancel(ctx), n, l.begin) })
	r.Scenario = "keb"
	return r, err
}
