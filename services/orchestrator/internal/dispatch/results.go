package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	// maxRounds is the maximum number of attempts to write rows that other orchestrators change concurrently.
	maxRounds = 5
	// redeliveryPause is the delay of a redelivery after a transient error.
	redeliveryPause = time.Second
)

// item is a result that is not yet applied.
type item struct {
	delivery    Delivery
	operationID string
	result      engine.Result
	// worker is the worker in the subject. It is trustworthy, because the bus lets a worker publish only under its own name.
	worker string
	// awaited is the worker whose result the operation awaits, if it is another one.
	awaited string
}

// isForeign reports whether a current result comes from another worker than the one that the operation awaits.
func (it *item) isForeign(w *work) bool {
	if !w.row.Awaits() || it.result.Cursor != w.row.AwaitedCursor() {
		return false // the result is stale
	}
	return it.worker != engine.Next(w.process, &w.row.State).Worker
}

// Results applies a batch of step results: it reads the rows that are not cached, commits once, publishes once, and then acknowledges the
// messages. After a transient error, all results are redelivered. After any other error, each result is applied alone; one that then fails with a
// permanent error becomes a dead letter.
func (d *Dispatcher) Results(ctx context.Context, batch []Delivery) error {
	items := make([]item, 0, len(batch))
	for _, delivery := range batch {
		it, err := decodeItem(delivery)
		if err != nil {
			d.deadLetter(ctx, delivery, err)
			continue
		}
		items = append(items, it)
	}
	d.metrics.batchSize.Observe(float64(len(items)))
	err := d.applyResults(ctx, items)
	if err == nil {
		return nil
	}
	if isTransient(ctx, err) {
		d.rejectResults(ctx, items, err)
		return nil
	}
	d.log.Warn("batch of results failed; each result is handled alone", "results", len(items), "err", err)
	for i := range items {
		one := items[i : i+1]
		err := d.applyResults(ctx, one)
		if isDataException(err) {
			d.log.Warn("result cannot be saved and fails its step", "operation_id", one[0].operationID, "err", err)
			one[0].result = unsavable(one[0].result, err)
			err = d.applyResults(ctx, one)
		}
		if err != nil {
			d.rejectResults(ctx, one, err)
		}
	}
	return nil
}

// decodeItem decodes a delivery. It rejects a result that names another worker than its publisher.
func decodeItem(delivery Delivery) (item, error) {
	e, subject := delivery.Message()
	id, result, err := DecodeResult(e)
	if err != nil {
		return item{}, err
	}
	it := item{delivery: delivery, operationID: id, result: result}
	if it.worker = event.WorkerOfResult(subject); result.Worker.Name != it.worker {
		return item{}, fmt.Errorf("worker.name is %q: want %q, who has published it", bound(result.Worker.Name), it.worker)
	}
	return it, nil
}

// isDataException reports whether the database rejected a value (SQLSTATE class 22). Some JSON texts and numbers are invalid in jsonb.
func isDataException(err error) bool {
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return ok && strings.HasPrefix(state.SQLState(), "22")
}

// unsavable returns the failure of a step whose result cannot be saved. If the result became a dead letter, the command would be repeated
// without end.
func unsavable(r engine.Result, cause error) engine.Result {
	return engine.Result{
		Outcome: event.OutcomeFailed, Cursor: r.Cursor, Worker: r.Worker, StageMemory: r.StageMemory,
		Error: &event.Error{Component: r.Worker.Name, Reason: "err_keb_details", Message: bound("the details of the result cannot be saved: " + cause.Error())},
	}
}

// isTransient reports whether a retry may succeed. Otherwise the message itself causes the error.
func isTransient(ctx context.Context, err error) bool {
	_, unpublished := errors.AsType[*bus.PublishError](err)
	return unpublished || isUnavailable(ctx, err) || postgres.IsRetryable(err) || errors.Is(err, store.ErrConflict)
}

// isUnavailable reports whether the database cannot be reached or does not answer, or ctx has ended.
func isUnavailable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || postgres.IsConnection(err) || errors.Is(err, context.DeadlineExceeded)
}

// rejectResults requests redelivery after a transient error, and otherwise moves the results to the dead letters.
func (d *Dispatcher) rejectResults(ctx context.Context, items []item, cause error) {
	transient := isTransient(ctx, cause)
	if transient && ctx.Err() == nil {
		d.log.Warn("results failed and will be redelivered", "results", len(items), "err", cause)
	}
	for _, it := range items {
		if !transient {
			d.deadLetter(ctx, it.delivery, cause)
			continue
		}
		if err := it.delivery.Nak(redeliveryPause); err != nil {
			d.log.Debug("redelivery not requested", "operation_id", it.operationID, "err", err)
		}
	}
}

func (d *Dispatcher) deadLetter(ctx context.Context, delivery Delivery, cause error) {
	e, subject := delivery.Message()
	d.rareLog.Do(func() { d.log.Error("message cannot be read", "event_id", e.ID(), "subject", subject, "err", cause) })
	if err := delivery.Dead(ctx, cause.Error()); err != nil {
		d.log.Warn("dead letter not written", "event_id", e.ID(), "err", err)
	}
}

func (d *Dispatcher) applyResults(ctx context.Context, items []item) error {
	return d.withBatchTimeout(ctx, func(ctx context.Context) error { return d.applyAll(ctx, items) })
}

func (d *Dispatcher) applyAll(ctx context.Context, items []item) error {
	var done []*work
	waiting := map[string]int{}
	start := d.deps.Now()
	todo := items
	for round := 0; len(todo) > 0; round++ {
		if round == maxRounds {
			return fmt.Errorf("apply results: %w", store.ErrConflict)
		}
		works, again, err := d.applyRound(ctx, todo, waiting)
		if err != nil {
			return err
		}
		done = append(done, works...)
		todo = again
	}
	if err := d.after(ctx, done, waiting); err != nil {
		return err
	}
	d.traceResults(ctx, done, start)
	for _, it := range items {
		if err := it.delivery.Ack(); err != nil {
			d.log.Debug("result not acknowledged", "operation_id", it.operationID, "err", err)
		}
	}
	return nil
}

// round is one attempt to apply results.
type round struct {
	d   *Dispatcher
	now time.Time
	// works are the works with results, in the order of their first results.
	works []*work
	// items and foreign hold the results of each work, and those of other workers among them.
	items, foreign map[*work][]item
	// again holds the results whose rows must be read again.
	again []item
}

// applyRound applies results, and returns the works that are written and the items whose rows must be read again.
func (d *Dispatcher) applyRound(ctx context.Context, items []item, waiting map[string]int) (works []*work, again []item, err error) {
	byID, err := d.rows(ctx, items)
	if err != nil {
		return nil, nil, err
	}
	r := &round{
		d: d, now: d.deps.Now(), works: make([]*work, 0, len(byID)), items: map[*work][]item{}, foreign: map[*work][]item{},
	}
	for _, it := range items {
		w := byID[it.operationID]
		if w == nil {
			d.metrics.unknown.Inc()
			d.rareLog.Do(func() {
				e, _ := it.delivery.Message()
				d.log.Warn("result of an unknown operation", "operation_id", it.operationID, "event_id", e.ID(), "worker", it.worker)
			})
			continue
		}
		if err := r.apply(w, it); err != nil {
			return nil, nil, err
		}
	}
	for _, w := range r.works {
		w.release()
	}
	start := time.Now()
	written, err := d.deps.Store.Write(ctx, changesOf(r.works))
	if err != nil {
		d.uncache(r.works)
		return nil, nil, err
	}
	d.metrics.commitTime.Observe(time.Since(start).Seconds())
	works = r.collect(written, waiting)
	d.committed(works)
	return works, r.again, nil
}

// apply applies one result to its operation.
func (r *round) apply(w *work, it item) error {
	d := r.d
	if it.isForeign(w) {
		it.awaited = engine.Next(w.process, &w.row.State).Worker
		switch {
		case w.fresh && w.change == nil:
			d.dropForeign(&it)
		case w.change == nil:
			d.cache.drop(it.operationID) // another orchestrator may have sent the command
			r.again = append(r.again, it)
		default: // as above, but only the write shows whether the row is current
			r.items[w], r.foreign[w] = append(r.items[w], it), append(r.foreign[w], it)
		}
		return nil
	}
	step := w.row
	switch err := w.apply(it.result, r.now); {
	case err == nil:
		if d.tracer != nil {
			w.applied = append(w.applied, applied{delivery: it.delivery, step: stepContext(step)})
		}
	case errors.Is(err, engine.ErrStale) && w.fresh:
		d.noteStale(w, &it)
		w.republish = w.republish || w.change == nil
		w.noteRedelivery(it.result.Cursor)
	case errors.Is(err, engine.ErrStale) && w.change == nil:
		d.cache.drop(it.operationID) // another orchestrator may have moved the operation on
		r.again = append(r.again, it)
		return nil
	case errors.Is(err, engine.ErrStale):
		d.noteStale(w, &it)
		w.noteRedelivery(it.result.Cursor)
	default:
		return fmt.Errorf("operation %s: %w", it.operationID, err)
	}
	if r.items[w] == nil {
		r.works = append(r.works, w)
	}
	r.items[w] = append(r.items[w], it)
	return nil
}

// collect returns the works whose changes were written, and moves the results of the others to again. It sets the number of operations
// that wait for each released instance.
func (r *round) collect(written, waiting map[string]int) (works []*work) {
	for _, w := range r.works {
		id := w.row.Operation.ID
		n, ok := written[id]
		if w.change != nil && !ok {
			r.d.metrics.conflicts.Inc()
			r.d.cache.drop(id)
			r.again = append(r.again, r.items[w]...)
			continue
		}
		for i := range r.foreign[w] {
			r.d.dropForeign(&r.foreign[w][i])
		}
		if w.change != nil { // a stale result in a later round must not overwrite the number
			waiting[id] = n
		}
		works = append(works, w)
	}
	return works
}

// noteStale counts a stale result. What it would have saved may be the id of an object that an earlier try has created after all.
func (d *Dispatcher) noteStale(w *work, it *item) {
	d.metrics.stale.Inc()
	if w.row.IsUnsaved(it.worker, it.result.Details) {
		d.log.Warn("details of a stale result are not saved; an object that they name may remain", "operation_id", it.operationID, "instance_id", w.row.Operation.InstanceID,
			"worker", it.worker, "details", shown(string(it.result.Details)), "text", it.result.Message)
	}
}

// dropForeign drops a result of a worker that was not asked.
func (d *Dispatcher) dropForeign(it *item) {
	d.metrics.foreign.Inc()
	d.rareLog.Do(func() {
		d.log.Error("result of a worker that was not asked", "operation_id", it.operationID, "worker", it.worker, "awaited", it.awaited)
	})
}

// rows reads the operations of items from the cache or the database.
func (d *Dispatcher) rows(ctx context.Context, items []item) (map[string]*work, error) {
	byID := make(map[string]*work, len(items))
	var missing []string
	for _, it := range items {
		if _, ok := byID[it.operationID]; ok {
			continue
		}
		row := d.cache.get(it.operationID)
		if row == nil {
			byID[it.operationID] = nil
			missing = append(missing, it.operationID)
			continue
		}
		w, err := d.newWork(ctx, row, false)
		if err != nil {
			return nil, err
		}
		w.hasMessage = row.CommandCursor == 0
		byID[it.operationID] = w
	}
	loaded, err := d.deps.Store.Load(ctx, missing)
	if err != nil {
		return nil, err
	}
	for id, row := range loaded {
		w, err := d.newWork(ctx, row, true)
		if err != nil {
			return nil, err
		}
		w.hasMessage = row.CommandCursor == 0 // else the cursor of the result does not lead to the facts of its transition
		byID[id] = w
	}
	return byID, nil
}
