package simulation_test

import (
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// row is an operation as an orchestrator has read it.
type row struct {
	state   engine.State
	version int
	known   bool
}

// work is what is done to one operation in one batch.
type work struct {
	op        *operation
	row       row
	read      int // the version
	fresh     bool
	republish bool
	owes      bool // the command that is out is to be published, whatever a bug makes of it
	effects   engine.Effects
	purge     []string
	changes   []transition
	items     []*message
	release   bool
	waiting   int
	inserted  bool
}

// transition is one step of the engine.
type transition struct {
	event   engine.Event
	next    engine.State
	effects engine.Effects
	at      time.Time
}

func (w *world) newWork(op *operation, r *row, fresh bool) *work {
	k := w.arenas.works.next()
	*k = work{op: op, row: *r, read: r.version, fresh: fresh, changes: k.changes[:0], items: k.items[:0], purge: k.purge[:0]}
	return k
}

// load reads a row from the database.
func (w *world) load(op *operation) *work {
	return w.newWork(op, &row{state: op.state, version: op.version, known: true}, true)
}

// decide lets the engine decide on an event.
func (w *world) decide(k *work, e engine.Event, at time.Time) error {
	next, effects, err := w.apply(k.op.p, k.row.state, e, at)
	if err != nil {
		return err
	}
	if !effects.Changed {
		return nil
	}
	k.changes = append(k.changes, transition{event: e, next: next, effects: effects, at: at})
	k.row.state = next
	k.effects.Dispatch, k.effects.Finished = effects.Dispatch, effects.Finished
	k.owes = effects.Dispatch
	k.purge = append(k.purge, effects.PurgeStages...)
	return nil
}

func find(works []*work, operation int) *work {
	for _, k := range works {
		if k.op.n == operation {
			return k
		}
	}
	return nil
}

func filter(works []*work, keep func(*work) bool) (kept []*work) {
	for _, k := range works {
		if keep(k) {
			kept = append(kept, k)
		}
	}
	return kept
}

func (w *world) forgetAll(o *orchestrator, t *task) {
	for _, k := range t.works {
		o.drop(k.op.n)
	}
	t.abort()
}

// remember keeps the rows whose results are on the way.
func (w *world) remember(o *orchestrator, works []*work) {
	for _, k := range works {
		if k.op.version != k.row.version && len(k.changes) > 0 {
			continue // a conflict
		}
		if k.row.state.InFlight() {
			o.put(k.op.n, k.row)
		} else {
			o.drop(k.op.n)
		}
	}
}

func (o *orchestrator) cached(n int) row {
	if n < len(o.cache) {
		return o.cache[n]
	}
	return row{}
}

func (o *orchestrator) put(n int, r row) {
	for n >= len(o.cache) {
		o.cache = append(o.cache, row{})
	}
	r.known = true
	o.cache[n] = r
}

func (o *orchestrator) drop(n int) {
	if n < len(o.cache) {
		o.cache[n] = row{}
	}
}

// gone tells that nothing is left behind the instance.
func (k *work) gone() bool {
	s := &k.row.state
	return k.op.kind == event.Deprovision && s.Status == event.Succeeded && len(s.NotCompleted) == 0
}

// leaves names the steps of an unfinished deprovisioning that need not run again.
func (k *work) leaves() []string {
	if k.op.kind != event.Deprovision || k.gone() || k.op.temporary {
		return nil
	}
	return k.row.state.CompletedSteps(k.op.p)
}
