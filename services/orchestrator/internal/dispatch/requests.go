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
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// incoming is a request that is not yet accepted.
type incoming struct {
	delivery Delivery
	request  event.OperationRequested
	process  *process.Process
	// trace is the trace context of the operation, and span the span of the intake.
	trace string
	span  trace.Span
}

// Requests accepts a batch of operation requests. Each becomes a row, and starts if its instance is free and its type has no limit. For a
// known request the current command is published again.
func (d *Dispatcher) Requests(ctx context.Context, batch []Delivery) error {
	requests := make([]incoming, 0, len(batch))
	for _, delivery := range batch {
		request, err := decodeRequest(message(delivery))
		if err != nil {
			d.deadLetter(ctx, delivery, err)
			continue
		}
		p := d.deps.Definitions.Current(request.Operation.Type)
		if p == nil {
			d.deadLetter(ctx, delivery, fmt.Errorf("operation.type %q: there is no process for it", bound(string(request.Operation.Type))))
			continue
		}
		r := incoming{delivery: delivery, request: request, process: p}
		r.trace, r.span = d.startIntake(ctx, delivery, &request.Operation)
		requests = append(requests, r)
	}
	blocked := map[string]bool{} // instances with a request that will be redelivered: later requests must not overtake it
	for len(requests) > 0 {
		var wave []incoming
		wave, requests = firstPerInstance(requests)
		wave = slices.DeleteFunc(wave, func(r incoming) bool {
			skip := blocked[r.request.Operation.InstanceID]
			if skip {
				d.rejectRequest(ctx, &r, errOutOfOrder)
			}
			return skip
		})
		err := d.accept(ctx, wave)
		if err == nil {
			continue
		}
		if isUnavailable(ctx, err) {
			// Handled one by one, each request would wait for the timeout.
			for i := range wave {
				blocked[wave[i].request.Operation.InstanceID] = true
				d.rejectRequest(ctx, &wave[i], err)
			}
			continue
		}
		if len(wave) > 1 {
			d.log.Warn("batch of requests failed; each request is handled alone", "requests", len(wave), "err", err)
		}
		for i := range wave {
			// Later requests would overtake one that is redelivered.
			if err := retryConflicts(ctx, func() error { return d.accept(ctx, wave[i:i+1]) }); err != nil {
				blocked[wave[i].request.Operation.InstanceID] = isTransient(ctx, err)
				d.rejectRequest(ctx, &wave[i], err)
			}
		}
	}
	return nil
}

func message(delivery Delivery) cloudevents.Event {
	e, _ := delivery.Message()
	return e
}

// errOutOfOrder rejects a request whose predecessor for the same instance will be redelivered.
var errOutOfOrder = fmt.Errorf("an earlier request for the instance is redelivered first: %w", store.ErrConflict)

const (
	// conflictAttempts is the number of attempts after conflicts; the pause between them starts with firstPause and doubles: 315 ms in all.
	conflictAttempts = 7
	firstPause       = 5 * time.Millisecond
)

// retryConflicts calls f again after conflicts with other transactions, which end soon.
func retryConflicts(ctx context.Context, f func() error) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := f()
		if attempt == conflictAttempts || !postgres.IsRetryable(err) && !errors.Is(err, store.ErrConflict) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		pause *= 2
	}
}

// firstPerInstance returns the first request of each instance, and the others. One transaction accepts one request per instance.
func firstPerInstance(requests []incoming) (first, others []incoming) {
	seen := map[string]bool{}
	for _, r := range requests {
		if id := r.request.Operation.InstanceID; seen[id] {
			others = append(others, r)
		} else {
			seen[id] = true
			first = append(first, r)
		}
	}
	return first, others
}

// rejectRequest requests redelivery after a transient error, and otherwise moves the request to the dead letters.
func (d *Dispatcher) rejectRequest(ctx context.Context, r *incoming, cause error) {
	d.endIntake(r.span, cause)
	if !isTransient(ctx, cause) {
		d.deadLetter(ctx, r.delivery, cause)
		return
	}
	d.log.Warn("request failed and will be redelivered", "operation_id", r.request.Operation.ID, "err", cause)
	if err := r.delivery.Nak(redeliveryPause); err != nil {
		d.log.Debug("redelivery not requested", "operation_id", r.request.Operation.ID, "err", err)
	}
}

// intake is one transaction that accepts requests.
type intake struct {
	d         *Dispatcher
	tx        Tx
	instances map[string]*store.Instance
	touched   map[string]bool
	added     []*work // new operations
	works     []*work // all operations
	cancelled []*store.Change
	limited   bool
}

func (d *Dispatcher) accept(ctx context.Context, requests []incoming) error {
	if len(requests) == 0 {
		return nil
	}
	return d.withBatchTimeout(ctx, func(ctx context.Context) error { return d.acceptAll(ctx, requests) })
}

func (d *Dispatcher) acceptAll(ctx context.Context, requests []incoming) error {
	in := &intake{d: d, touched: map[string]bool{}}
	begun := d.deps.Now()
	written := false
	err := d.deps.Store.InTx(ctx, func(tx Tx) error {
		in.tx = tx
		err := in.run(ctx, requests)
		written = err == nil
		return err
	})
	if err != nil {
		d.uncache(in.works)
		if written { // the transaction may have been committed
			d.outbox.add(in.works, begun)
		}
		return fmt.Errorf("take in requests: %w", err)
	}
	d.committed(in.works)
	for _, w := range in.added {
		d.metrics.kind(&w.row.Operation).created.Inc()
	}
	if err := d.after(ctx, in.works, nil); err != nil {
		return err
	}
	if in.limited {
		d.admitSoon()
	}
	for i := range requests {
		d.endIntake(requests[i].span, nil)
		if err := requests[i].delivery.Ack(); err != nil {
			d.log.Debug("request not acknowledged", "operation_id", requests[i].request.Operation.ID, "err", err)
		}
	}
	return nil
}

func (in *intake) run(ctx context.Context, requests []incoming) error {
	operations, instances := map[string]bool{}, map[string]bool{}
	for i := range requests {
		operations[requests[i].request.Operation.ID] = true
		instances[requests[i].request.Operation.InstanceID] = true
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
	for i := range requests {
		id := requests[i].request.Operation.ID
		if slices.Contains(archived, id) {
			continue // a late redelivery
		}
		if row, ok := known[id]; ok {
			w, err := in.d.newWork(ctx, row, true)
			if err != nil {
				return err
			}
			w.republish = true
			w.noteRedelivery(0)
			in.works = append(in.works, w)
			continue
		}
		if err := in.add(ctx, &requests[i]); err != nil {
			return err
		}
	}
	return in.write(ctx)
}

// write writes instances, cancelled and new operations.
func (in *intake) write(ctx context.Context) error {
	// New instances are written first: a concurrent transaction for the same new instance waits here, and then reads all changes.
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
	// Cancelled operations are written before new ones, because an instance has at most one operation in progress at any time.
	written, err := in.tx.Write(ctx, in.cancelled)
	if err != nil {
		return err
	}
	if len(written) != len(in.cancelled) {
		return fmt.Errorf("write operations: %w", store.ErrConflict)
	}
	added := make([]*store.Change, len(in.added))
	for i, w := range in.added {
		if added[i] = w.change; w.change == nil {
			added[i] = &store.Change{Row: w.row}
		}
	}
	if err := in.tx.Insert(ctx, added); err != nil {
		return err
	}
	return in.tx.SaveInstances(ctx, save)
}

// archived returns the operations that are archived. Operations in known are not.
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

// add accepts one new request. A deprovisioning first cancels other operations; then the new operation starts or waits.
func (in *intake) add(ctx context.Context, r *incoming) error {
	now := in.d.deps.Now()
	op := r.request.Operation
	instance := in.instances[op.InstanceID]
	in.touched[instance.ID] = true
	if op.Type == event.Deprovision && (instance.Running != "" || instance.Waiting > 0) {
		if err := in.preempt(ctx, instance, op.ID); err != nil {
			return err
		}
	}
	row := &store.Row{State: engine.New(op), Definition: r.process.Hash(), TraceParent: r.trace, CreatedAt: now}
	if err := encodeOnce(row); err != nil {
		return err
	}
	w := &work{row: row, process: r.process, fresh: true, inserted: true, hasMessage: true, decide: in.d.deps.Apply, holds: in.d.deps.Holds, limits: in.d.deps.Limits, tracer: in.d.tracer}
	in.added = append(in.added, w)
	in.works = append(in.works, w)
	if limited := in.d.limited(limit.QueueOf(&op)); limited || instance.Running != "" || instance.Waiting > 0 {
		in.limited = in.limited || limited
		instance.Waiting++
		return nil
	}
	if held, err := in.d.holdStart(w); held {
		instance.Waiting++
		return err
	}
	return startOn(w, instance, in.d)
}

// startOn starts a pending operation on a free and locked instance.
func startOn(w *work, instance *store.Instance, d *Dispatcher) error {
	start := engine.Start{Details: instance.Details, UnansweredAt: instance.UnansweredAt, Removed: instance.Removed}
	switch {
	case w.row.Operation.Type == event.Deprovision:
		start.Completed = instance.Completed
	case instance.Removed:
		start.Details = nil
	}
	if err := w.apply(start, d.deps.Now()); err != nil {
		return fmt.Errorf("start operation %s: %w", w.row.Operation.ID, err)
	}
	if w.row.Status == event.InProgress {
		instance.Running = w.row.Operation.ID
		return nil
	}
	updateInstance(w, instance) // the operation ended without a command
	return nil
}

// updateInstance applies the end of an operation to its locked instance.
func updateInstance(w *work, instance *store.Instance) {
	if instance.Running == w.row.Operation.ID {
		instance.Running = ""
	}
	r := store.NewRelease(&w.row.State, func() []string { return w.row.CompletedSteps(w.process) })
	instance.Details, instance.Completed, instance.UnansweredAt = w.row.Details, r.Completed, w.row.UnansweredAt
	instance.Removed = r.Removed
	if r.Gone {
		instance.Details, instance.UnansweredAt = nil, time.Time{}
	}
}

// preempt cancels the unfinished operations of an instance for a deprovisioning: waiting ones at once, and running ones with their next
// result, after their finally stage. It does not cancel another deprovisioning.
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
			updateInstance(w, instance)
			in.limited = in.limited || in.d.freesCapacity(w)
		}
	}
	return nil
}
