package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// order is a request that waits to be taken in.
type order struct {
	delivery Delivery
	request  event.OperationRequested
	process  *process.Process
	// trace is what the operation is part of, and span the intake of the request.
	trace string
	span  trace.Span
}

// Requests takes in a batch of operation requests: each becomes a row, and starts if its instance is free and its type has no
// limit. A request that is already there makes its current command published once more.
func (d *Dispatcher) Requests(ctx context.Context, batch []Delivery) error {
	orders := make([]order, 0, len(batch))
	for _, delivery := range batch {
		request, err := decodeRequest(message(delivery))
		if err != nil {
			d.dead(ctx, delivery, err)
			continue
		}
		p := d.deps.Definitions.Current(request.Operation.Type)
		if p == nil {
			d.dead(ctx, delivery, fmt.Errorf("operation.type %q: there is no process for it", bound(string(request.Operation.Type))))
			continue
		}
		o := order{delivery: delivery, request: request, process: p}
		o.trace, o.span = d.startIntake(ctx, delivery, &request.Operation)
		orders = append(orders, o)
	}
	held := map[string]bool{} // instances of which a request was given back: what follows must not overtake it
	for len(orders) > 0 {
		var wave []order
		wave, orders = firstPerInstance(orders)
		wave = slices.DeleteFunc(wave, func(o order) bool {
			behind := held[o.request.Operation.InstanceID]
			if behind {
				d.refuse(ctx, &o, errBehind)
			}
			return behind
		})
		err := d.takeIn(ctx, wave)
		if err == nil {
			continue
		}
		if away(ctx, err) {
			// One by one they would only wait one after the other.
			for i := range wave {
				held[wave[i].request.Operation.InstanceID] = true
				d.refuse(ctx, &wave[i], err)
			}
			continue
		}
		if len(wave) > 1 {
			d.log.Warn("batch of requests failed and is taken apart", "requests", len(wave), "err", err)
		}
		for i := range wave {
			if err := d.takeInPatiently(ctx, wave[i:i+1]); err != nil {
				held[wave[i].request.Operation.InstanceID] = passing(ctx, err)
				d.refuse(ctx, &wave[i], err)
			}
		}
	}
	return nil
}

func message(delivery Delivery) cloudevents.Event {
	e, _ := delivery.Message()
	return e
}

// errBehind holds a request back that follows one which comes again.
var errBehind = fmt.Errorf("an earlier request for the instance comes again first: %w", store.ErrConflict)

const (
	// attempts is how often a request is taken in that meets others at the same rows; the pause between doubles from firstPause on.
	attempts   = 7
	firstPause = 5 * time.Millisecond
)

// takeInPatiently waits a little for others who hold the rows: a request that is given back is overtaken by those that come
// meanwhile.
func (d *Dispatcher) takeInPatiently(ctx context.Context, orders []order) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := firstPause
	var err error
	for range attempts {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		err = d.takeIn(ctx, orders)
		if !postgres.IsRetryable(err) && !errors.Is(err, store.ErrConflict) {
			return err
		}
		timer.Reset(pause)
		pause *= 2
	}
	return err
}

// firstPerInstance splits orders into the first of each instance, and the others: one transaction takes in one request of an
// instance.
func firstPerInstance(orders []order) (first, others []order) {
	seen := map[string]bool{}
	for _, o := range orders {
		if id := o.request.Operation.InstanceID; seen[id] {
			others = append(others, o)
		} else {
			seen[id] = true
			first = append(first, o)
		}
	}
	return first, others
}

func (d *Dispatcher) refuse(ctx context.Context, o *order, cause error) {
	d.endIntake(o.span, cause)
	if !passing(ctx, cause) {
		d.dead(ctx, o.delivery, cause)
		return
	}
	d.log.Warn("request is taken up again", "operation_id", o.request.Operation.ID, "err", cause)
	if err := o.delivery.Nak(pauseAfterFailure); err != nil {
		d.log.Debug("request not given back", "operation_id", o.request.Operation.ID, "err", err)
	}
}

// intake is one transaction that takes in requests.
type intake struct {
	d         *Dispatcher
	tx        Tx
	instances map[string]*store.Instance
	touched   map[string]bool
	news      []*work // new operations
	works     []*work // all
	cancelled []*store.Change
	limited   bool
}

func (d *Dispatcher) takeIn(ctx context.Context, orders []order) error {
	if len(orders) == 0 {
		return nil
	}
	return d.limited(ctx, func(ctx context.Context) error { return d.takeInAll(ctx, orders) })
}

func (d *Dispatcher) takeInAll(ctx context.Context, orders []order) error {
	in := &intake{d: d}
	err := d.deps.Store.InTx(ctx, func(tx Tx) error {
		*in = intake{d: d, tx: tx, touched: map[string]bool{}}
		return in.run(ctx, orders)
	})
	if err != nil {
		d.forget(in.works)
		return fmt.Errorf("take in requests: %w", err)
	}
	d.remember(in.works)
	for _, w := range in.news {
		d.metrics.kind(&w.row.Operation).created.Inc()
	}
	if err := d.after(ctx, in.works, nil); err != nil {
		return err
	}
	if in.limited {
		if err := d.Admit(ctx); err != nil {
			d.log.Warn("pending operations not admitted", "err", err)
		}
	}
	for i := range orders {
		d.endIntake(orders[i].span, nil)
		if err := orders[i].delivery.Ack(); err != nil {
			d.log.Debug("request not acknowledged", "operation_id", orders[i].request.Operation.ID, "err", err)
		}
	}
	return nil
}

func (in *intake) run(ctx context.Context, orders []order) error {
	operations, instances := map[string]bool{}, map[string]bool{}
	for i := range orders {
		operations[orders[i].request.Operation.ID] = true
		instances[orders[i].request.Operation.InstanceID] = true
	}
	var err error
	if in.instances, err = in.tx.LockInstances(ctx, slices.Sorted(maps.Keys(instances))); err != nil {
		return err
	}
	known, err := in.tx.Load(ctx, slices.Sorted(maps.Keys(operations)))
	if err != nil {
		return err
	}
	archived, err := in.archived(ctx, operations, known)
	if err != nil {
		return err
	}
	for i := range orders {
		id := orders[i].request.Operation.ID
		if slices.Contains(archived, id) {
			continue // it ended long ago
		}
		if row, ok := known[id]; ok {
			w, err := in.d.newWork(ctx, row, true)
			if err != nil {
				return err
			}
			w.republish = true
			w.comesAgain(0)
			in.works = append(in.works, w)
			continue
		}
		if err := in.add(ctx, &orders[i]); err != nil {
			return err
		}
	}
	// New instances come first: who takes in a request for the same one at the same time waits here, and then finds everything.
	created := make([]*store.Instance, 0, len(in.touched))
	save := make([]*store.Instance, 0, len(in.touched))
	for _, id := range slices.Sorted(maps.Keys(in.touched)) {
		if i := in.instances[id]; i.New {
			created = append(created, i)
		} else {
			save = append(save, i)
		}
	}
	if err := in.tx.SaveInstances(ctx, created); err != nil {
		return err
	}
	// What is cancelled makes room first: an instance has one operation in progress at any moment of the transaction.
	written, err := in.tx.Write(ctx, in.cancelled)
	if err != nil {
		return err
	}
	if len(written) != len(in.cancelled) {
		return fmt.Errorf("write operations: %w", store.ErrConflict)
	}
	news := make([]*store.Change, len(in.news))
	for i, w := range in.news {
		if news[i] = w.change; w.change == nil {
			news[i] = &store.Change{Row: w.row}
		}
	}
	if err := in.tx.Insert(ctx, news); err != nil {
		return err
	}
	return in.tx.SaveInstances(ctx, save)
}

// archived are those of the operations that are not among the known ones because they ended long ago.
func (in *intake) archived(ctx context.Context, operations map[string]bool, known map[string]*store.Row) ([]string, error) {
	unknown := make([]string, 0, len(operations))
	for id := range operations {
		if known[id] == nil {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return nil, nil
	}
	return in.tx.Archived(ctx, unknown)
}

// add takes in one new request: it makes way for a deprovisioning, and starts the operation or lets it wait.
func (in *intake) add(ctx context.Context, o *order) error {
	now := in.d.deps.Now()
	op := o.request.Operation
	instance := in.instances[op.InstanceID]
	in.touched[instance.ID] = true
	if op.Type == event.Deprovision && (instance.Running != "" || instance.Waiting > 0) {
		if err := in.preempt(ctx, instance, op.ID); err != nil {
			return err
		}
	}
	row := &store.Row{State: engine.New(op), Definition: o.process.Hash(), TraceParent: o.trace, CreatedAt: now}
	if err := encodeOnce(row); err != nil {
		return err
	}
	w := &work{row: row, process: o.process, fresh: true, inserted: true, guarded: true, decide: in.d.deps.Apply, tracer: in.d.tracer}
	in.news = append(in.news, w)
	in.works = append(in.works, w)
	if _, limited := in.d.cfg.Admission[op.Type]; limited || instance.Running != "" || instance.Waiting > 0 {
		in.limited = in.limited || limited
		instance.Waiting++
		return nil
	}
	return startOn(w, instance, in.d)
}

// startOn starts a pending operation on a free instance that is locked.
func startOn(w *work, instance *store.Instance, d *Dispatcher) error {
	start := engine.Start{Details: instance.Details}
	if w.row.Operation.Type == event.Deprovision {
		start.Completed = instance.Completed
	}
	if err := w.apply(start, d.deps.Now()); err != nil {
		return fmt.Errorf("start operation %s: %w", w.row.Operation.ID, err)
	}
	if w.row.Status == event.InProgress {
		instance.Running = w.row.Operation.ID
		return nil
	}
	leave(w, instance) // it had nothing to do
	return nil
}

// leave puts what an ended operation leaves behind into its instance, which is locked.
func leave(w *work, instance *store.Instance) {
	if instance.Running == w.row.Operation.ID {
		instance.Running = ""
	}
	r := store.NewRelease(&w.row.State, func() []string { return w.row.CompletedSteps(w.process) })
	instance.Details, instance.Completed = w.row.Details, r.Completed
	if r.Gone {
		instance.Details = nil
	}
}

// preempt cancels every unfinished operation that a deprovisioning makes pointless: one that waits at once, one that runs with its
// next result, after its finally stage. Only another deprovisioning goes on.
func (in *intake) preempt(ctx context.Context, instance *store.Instance, by string) error {
	rows, err := in.tx.Unfinished(ctx, instance.ID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Operation.Type == event.Deprovision {
			continue
		}
		pending := row.Status == event.Pending
		w, err := in.d.newWork(ctx, row, true)
		if err != nil {
			return err
		}
		err = w.apply(engine.Cancel{Reason: "preempted by deprovisioning " + by}, in.d.deps.Now())
		if err != nil && !errors.Is(err, engine.ErrNotPossible) {
			return fmt.Errorf("cancel operation %s: %w", row.Operation.ID, err)
		}
		in.works = append(in.works, w)
		in.cancelled = append(in.cancelled, changesOf([]*work{w})...)
		switch {
		case pending:
			instance.Waiting--
		case w.row.Status.Final():
			leave(w, instance)
			in.limited = in.limited || in.d.madeRoom(w)
		}
	}
	return nil
}
