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
	// maxRounds is how often a batch is read again for the rows that others have changed meanwhile.
	maxRounds = 5
	// pauseAfterFailure is when messages come again that could not be dealt with because something else is down.
	pauseAfterFailure = time.Second
)

// item is a result that waits to be folded.
type item struct {
	delivery    Delivery
	operationID string
	result      engine.Result
	// worker is that of the subject. The bus lets a worker publish under its own name only, so it is true.
	worker string
	// awaited is the worker that was asked, if it is another one.
	awaited string
}

// foreign tells that a result is not of the worker whose result the operation awaits.
func (it *item) foreign(w *work) bool {
	if !w.row.InFlight() || it.result.Cursor != w.row.Cursor {
		return false // it is stale
	}
	return it.worker != engine.Awaited(w.process, &w.row.State)
}

// Results folds a batch of step results: one read for what the cache does not have, one commit, one publication, then the
// acknowledgements. A batch that fails is taken apart; a message that fails alone for no passing reason is a dead letter.
func (d *Dispatcher) Results(ctx context.Context, batch []Delivery) error {
	items := make([]item, 0, len(batch))
	for _, delivery := range batch {
		it, err := read(delivery)
		if err != nil {
			d.dead(ctx, delivery, err)
			continue
		}
		items = append(items, it)
	}
	d.metrics.batchSize.Observe(float64(len(items)))
	err := d.fold(ctx, items)
	if err == nil {
		return nil
	}
	if passing(ctx, err) {
		d.giveBack(ctx, items, err)
		return nil
	}
	d.log.Warn("batch of results failed and is taken apart", "results", len(items), "err", err)
	for i := range items {
		one := items[i : i+1]
		err := d.fold(ctx, one)
		if unfit(err) {
			d.log.Warn("result cannot be saved and fails its step", "operation_id", one[0].operationID, "err", err)
			one[0].result = rejected(one[0].result, err)
			err = d.fold(ctx, one)
		}
		if err != nil {
			d.giveBack(ctx, one, err)
		}
	}
	return nil
}

// read makes an item of a delivery, and refuses what says that it is of another worker than the one that has published it.
func read(delivery Delivery) (item, error) {
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

// unfit tells that the database does not take what is to be saved (SQLSTATE class 22, data exception): JSON knows text and
// numbers that jsonb does not.
func unfit(err error) bool {
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return ok && strings.HasPrefix(state.SQLState(), "22")
}

// rejected is the failure of a step whose result cannot be saved. As a dead letter it would be sent again and again.
func rejected(r engine.Result, cause error) engine.Result {
	return engine.Result{
		Outcome: event.OutcomeFailed, Cursor: r.Cursor, Worker: r.Worker, StageMemory: r.StageMemory,
		Error: &event.Error{Component: r.Worker.Name, Reason: "err_keb_details", Message: bound("the details of the result cannot be saved: " + cause.Error())},
	}
}

// passing tells an error that will pass from one that is the message's own fault.
func passing(ctx context.Context, err error) bool {
	var publish *bus.PublishError
	return away(ctx, err) || postgres.IsRetryable(err) || errors.Is(err, store.ErrConflict) || errors.As(err, &publish)
}

// away tells that the database cannot be reached or does not answer, or that ctx has ended.
func away(ctx context.Context, err error) bool {
	return ctx.Err() != nil || postgres.IsConnection(err) || errors.Is(err, context.DeadlineExceeded)
}

func (d *Dispatcher) giveBack(ctx context.Context, items []item, cause error) {
	again := passing(ctx, cause)
	if again && ctx.Err() == nil {
		d.log.Warn("results are taken up again", "results", len(items), "err", cause)
	}
	for _, it := range items {
		if !again {
			d.dead(ctx, it.delivery, cause)
			continue
		}
		if err := it.delivery.Nak(pauseAfterFailure); err != nil {
			d.log.Debug("result not given back", "operation_id", it.operationID, "err", err)
		}
	}
}

func (d *Dispatcher) dead(ctx context.Context, delivery Delivery, cause error) {
	e, subject := delivery.Message()
	d.seldom.Do(func() { d.log.Error("message cannot be read", "event_id", e.ID(), "subject", subject, "err", cause) })
	if err := delivery.Dead(ctx, cause.Error()); err != nil {
		d.log.Warn("dead letter not written", "event_id", e.ID(), "err", err)
	}
}

func (d *Dispatcher) fold(ctx context.Context, items []item) error {
	return d.limited(ctx, func(ctx context.Context) error { return d.foldAll(ctx, items) })
}

func (d *Dispatcher) foldAll(ctx context.Context, items []item) error {
	var done []*work
	waiting := map[string]int{}
	start := d.deps.Now()
	todo := items
	for round := 0; len(todo) > 0; round++ {
		if round == maxRounds {
			return fmt.Errorf("fold results: %w", store.ErrConflict)
		}
		works, again, err := d.foldRound(ctx, todo, waiting)
		if err != nil {
			return err
		}
		done = append(done, works...)
		todo = again
	}
	if err := d.after(ctx, done, waiting); err != nil {
		return err
	}
	d.traceFolds(ctx, done, start)
	for _, it := range items {
		if err := it.delivery.Ack(); err != nil {
			d.log.Debug("result not acknowledged", "operation_id", it.operationID, "err", err)
		}
	}
	return nil
}

// foldRound folds what it can, and returns the items whose rows must be read again.
func (d *Dispatcher) foldRound(ctx context.Context, items []item, waiting map[string]int) (works []*work, again []item, err error) {
	byID, err := d.rows(ctx, items)
	if err != nil {
		return nil, nil, err
	}
	now := d.deps.Now()
	perWork, foreign := map[*work][]item{}, map[*work][]item{}
	all := make([]*work, 0, len(byID)) // in the order of their first results
	for _, it := range items {
		w := byID[it.operationID]
		if w == nil {
			d.metrics.unknown.Inc()
			d.seldom.Do(func() {
				e, _ := it.delivery.Message()
				d.log.Warn("result of an unknown operation", "operation_id", it.operationID, "event_id", e.ID(), "worker", it.worker)
			})
			continue
		}
		if it.foreign(w) {
			it.awaited = engine.Awaited(w.process, &w.row.State)
			switch {
			case w.fresh && w.change == nil:
				d.dropForeign(&it)
			case w.change == nil:
				d.cache.drop(it.operationID) // perhaps another orchestrator has sent the command
				again = append(again, it)
			default: // the same, which only the write tells
				perWork[w], foreign[w] = append(perWork[w], it), append(foreign[w], it)
			}
			continue
		}
		step := w.row
		switch err := w.apply(it.result, now); {
		case err == nil:
			if d.tracer != nil {
				w.folds = append(w.folds, folded{delivery: it.delivery, step: stepContext(step)})
			}
		case errors.Is(err, engine.ErrStale) && w.fresh:
			d.metrics.stale.Inc()
			w.republish = w.republish || w.change == nil
			w.comesAgain(it.result.Cursor)
		case errors.Is(err, engine.ErrStale) && w.change == nil:
			d.cache.drop(it.operationID) // perhaps another orchestrator is further on
			again = append(again, it)
			continue
		case errors.Is(err, engine.ErrStale):
			d.metrics.stale.Inc()
			w.comesAgain(it.result.Cursor)
		default:
			return nil, nil, fmt.Errorf("operation %s: %w", it.operationID, err)
		}
		if perWork[w] == nil {
			all = append(all, w)
		}
		perWork[w] = append(perWork[w], it)
	}
	for _, w := range all {
		if w.change != nil && w.effects.Finished {
			w.release()
		}
	}
	start := time.Now()
	written, err := d.deps.Store.Write(ctx, changesOf(all))
	if err != nil {
		d.forget(all)
		return nil, nil, err
	}
	d.metrics.commitTime.Observe(time.Since(start).Seconds())
	for _, w := range all {
		id := w.row.Operation.ID
		n, ok := written[id]
		if w.change != nil && !ok {
			d.metrics.conflicts.Inc()
			d.cache.drop(id)
			again = append(again, perWork[w]...)
			continue
		}
		for i := range foreign[w] {
			d.dropForeign(&foreign[w][i])
		}
		if w.change != nil { // a stale result of the same batch must not take back what the last one has found
			waiting[id] = n
		}
		works = append(works, w)
	}
	d.remember(works)
	return works, again, nil
}

// dropForeign drops a result of a worker that was not asked.
func (d *Dispatcher) dropForeign(it *item) {
	d.metrics.foreign.Inc()
	d.seldom.Do(func() {
		d.log.Error("result of a worker that was not asked", "operation_id", it.operationID, "worker", it.worker, "awaited", it.awaited)
	})
}

// rows finds the operations that items are about, in the cache or the database.
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
		w.guarded = true
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
		w.guarded = true
		byID[id] = w
	}
	return byID, nil
}
