package simulation_test

import (
	"errors"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// orchestrator is a process: its tasks run beside each other, and share a cache.
type orchestrator struct {
	skew  time.Duration
	cache []row
	tasks [taskKinds]task
	// noticed is how many losses of the bus it knows of.
	noticed int
}

type taskKind int

const (
	taskResults  taskKind = iota // two committers fold results
	taskResults2                 //
	taskRequests                 // takes in requests
	taskTimer                    // sweeps
	taskAction                   // carries out what an operator asks for
	taskKinds
)

var taskOf = [16]taskKind{
	taskResults, taskResults, taskResults, taskResults, taskResults, taskResults, taskResults2, taskResults2, taskResults2,
	taskRequests, taskRequests, taskTimer, taskTimer, taskTimer, taskAction, taskAction,
}

// phase is the next thing that a task does.
type phase int

const (
	phaseFold       phase = iota // read and decide
	phaseWrite                   // commit what was decided
	phaseTakeIn                  // take in requests, in one transaction
	phaseLost                    // send again what the bus has lost
	phaseDue                     // take up what is due
	phaseUnanswered              // send commands again
	phaseAct                     // do what an operator asks for
	phasePublish                 // publish one command
	phaseConfirm                 // take the answers of the bus
	phaseSettle                  // purge and free instances
	phaseAdmitFree               // start what waits for the freed instances
	phaseAdmit                   // start what has room, of every type
	phaseConfirmed               // the answers of the bus about what was started; a failure does no harm
	phaseAck
	phases
)

var phaseNames = [phases]string{
	"fold", "commit", "take in", "send what was lost", "take up due", "take up unanswered", "act", "publish", "confirm", "settle", "admit freed", "admit",
	"confirm admitted", "acknowledge",
}

// task is what one goroutine of an orchestrator is at.
type task struct {
	kind taskKind
	plan []phase // what is left to do; none when it is idle

	batch  []*message // what is acknowledged in the end
	todo   []*message // results that are not folded yet
	rounds int
	works  []*work // of this round
	done   []*work // that were committed
	out    []*message
	failed bool // a publication has failed
	free   []freed
	admit  bool

	event     engine.Event // of an operator
	operation int
}

// freed is an instance that an operation has left, with the commit that did it.
type freed struct{ instance, starts, commit int }

func (t *task) working() bool { return len(t.plan) > 0 }

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

// The faults of a choice for a task.
const (
	faultNone   = iota
	faultFails  // what is asked for is not done
	faultSilent // it is done, and the answer is lost
	faultLiar   // it is told of a worker that is not there, or of none although there is one
)

// step takes a task one phase further.
func (w *world) step(o *orchestrator, t *task, c choice) {
	if !t.working() && !w.start(o, t, c) {
		return
	}
	p := t.plan[0]
	t.plan = t.plan[1:]
	if w.traced {
		w.trace("orchestrator %d, task %d: %s%s", w.index(o), t.kind, phaseNames[p], []string{"", ": fails", ": no answer", ": is misled"}[c.c%4])
	}
	switch p {
	case phaseFold:
		w.fold(o, t)
	case phaseWrite:
		w.write(o, t, c.c)
	case phaseTakeIn:
		w.takeIn(o, t, c.c)
	case phaseLost, phaseDue, phaseUnanswered:
		w.wake(o, t, p, c.c)
	case phaseAct:
		w.act(o, t, c.c)
	case phasePublish:
		w.publish(t, c.c)
	case phaseConfirm:
		if t.failed {
			t.abort()
		}
	case phaseConfirmed:
		t.failed = false
	case phaseSettle:
		w.afterwards(t)
	case phaseAdmitFree:
		w.admitFree(o, t, c.c)
	case phaseAdmit:
		w.admit(o, t, c.c)
	case phaseAck:
		w.ack(t, c.c)
	default:
	}
	if !t.working() {
		t.abort()
	}
}

func (w *world) index(o *orchestrator) int {
	if o == &w.orchestrators[0] {
		return 0
	}
	return 1
}

// abort ends what the task is at. Its messages come again.
func (t *task) abort() {
	*t = task{kind: t.kind, plan: t.plan[:0], batch: t.batch[:0], done: t.done[:0]}
}

// start finds something to do for a task that is idle.
func (w *world) start(o *orchestrator, t *task, c choice) bool {
	for i := range o.tasks {
		o.tasks[i].kind = taskKind(i)
	}
	n := 1 + int(c.d%3)
	switch t.kind {
	case taskResults, taskResults2:
		t.batch = w.take(t.batch[:0], w.results, int(c.b), n)
		t.todo = t.batch
		t.plan = append(t.plan, phaseFold)
	case taskRequests:
		t.batch = w.take(t.batch[:0], w.requests, int(c.b), n)
		if t.plan = append(t.plan, phaseTakeIn); w.bug == bugRequestAckedFirst {
			t.plan = []phase{phaseAck, phaseTakeIn}
		}
	case taskTimer:
		if o.noticed < w.losses {
			t.plan = append(t.plan, phaseLost)
		} else {
			t.plan = append(t.plan, phaseDue)
		}
		return true
	default:
		return false
	}
	if len(t.batch) == 0 {
		t.abort()
		return false
	}
	return true
}

// take takes messages from a stream; they stay there until they are acknowledged.
func (w *world) take(batch, queue []*message, from, n int) []*message {
	for i := range min(n, len(queue)) {
		batch = append(batch, queue[(from+i)%len(queue)])
	}
	if len(queue) > 0 && from%len(queue) > 0 {
		w.count(countReordered)
	}
	return batch
}

// fold reads the rows of results, from the cache or the database, and lets the engine decide.
func (w *world) fold(o *orchestrator, t *task) {
	t.works = nil
	at := w.clock(o)
	var again []*message
	for i := range t.todo {
		m := t.todo[i]
		k := find(t.works, m.operation)
		if k == nil {
			op := w.byID[m.operation]
			if r := o.cached(op.n); r.known {
				k = w.newWork(op, &r, false)
				w.count(countCached)
			} else {
				k = w.load(op)
			}
			t.works = append(t.works, k)
		}
		switch err := w.decide(k, m.result, at); {
		case err == nil:
		case !errors.Is(err, engine.ErrStale):
			w.violate("a result is refused: %v", err)
		case k.fresh || w.bug == bugStaleFromTheCache:
			k.owes = k.owes || len(k.changes) == 0
			k.republish = k.owes && w.bug != bugNoRepublish
			w.count(countStale)
		case len(k.changes) == 0:
			o.drop(m.operation)
			again = append(again, m)
			continue
		default:
			w.count(countStale)
		}
		k.items = append(k.items, m)
	}
	t.todo = again
	t.works = filter(t.works, func(k *work) bool { return len(k.items) > 0 })
	for _, k := range t.works {
		if len(k.changes) > 0 && k.effects.Finished {
			k.release = true
		}
	}
	t.plan = append(t.plan, phaseWrite)
	switch w.bug {
	case bugAckBeforeCommit:
		t.plan = append([]phase{phaseAck}, t.plan...)
	case bugPublishBeforeCommit:
		t.collect(w, t.works)
		for range t.out {
			t.plan = append([]phase{phasePublish}, t.plan...)
		}
	default:
	}
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

// write commits a round. What others have changed meanwhile is folded again.
func (w *world) write(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		w.forgetAll(o, t)
		return
	}
	for _, k := range t.works {
		if len(k.changes) > 0 && k.op.version != k.read && w.bug != bugNoCompareAndSet {
			w.count(countConflicts)
			o.drop(k.op.n)
			t.todo = append(t.todo, k.items...)
			continue
		}
		w.commit(k)
		if k.release {
			w.release(k)
		}
		t.done = append(t.done, k)
	}
	w.checkDatabase()
	if w.silent(fault) {
		w.forgetAll(o, t)
		return
	}
	w.remember(o, t.works)
	if len(t.todo) > 0 {
		if t.rounds++; t.rounds == 5 {
			w.count(countGivenUp)
			t.abort()
			return
		}
		t.plan = append(t.plan, phaseFold)
		return
	}
	if w.bug == bugAckBeforePublish {
		t.plan = append(t.plan, phaseAck)
	}
	t.after(w, t.done, phaseSettle, phaseAck)
}

// fails and silent tell whether the database does not do it, or does it and does not say so.
func (w *world) fails(fault uint16) bool {
	if fault != faultFails {
		return false
	}
	w.count(countCommitFailed)
	return true
}

func (w *world) silent(fault uint16) bool {
	if fault != faultSilent {
		return false
	}
	w.count(countCommitUnknown)
	return true
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

// collect finds the commands that committed works make necessary.
func (t *task) collect(w *world, works []*work) {
	for _, k := range works {
		if s := &k.row.state; (k.effects.Dispatch || k.republish) && s.InFlight() {
			worker, command := engine.Command(k.op.p, s)
			id := messageID{operation: k.op.n, cursor: command.Cursor, dispatch: command.Dispatch}
			if w.bug == bugNoDispatchInID {
				id.dispatch = 0
			}
			m := w.arenas.messages.next()
			*m = message{id: id, operation: k.op.n, worker: worker, command: command, stage: s.Stage}
			t.out = append(t.out, m)
			if k.republish {
				w.count(countRepublished)
			}
		}
	}
}

// after plans the publication of what was committed, and what comes then.
func (t *task) after(w *world, works []*work, then ...phase) {
	t.collect(w, works)
	for range t.out {
		t.plan = append(t.plan, phasePublish)
	}
	t.plan = append(t.plan, phaseConfirm)
	t.plan = append(t.plan, then...)
}

// publish gives one command to the bus.
func (w *world) publish(t *task, fault uint16) {
	m := t.out[0]
	t.out = t.out[1:]
	switch fault {
	case faultFails:
		t.failed = true
		w.count(countPublishFailed)
		return
	case faultSilent:
		t.failed = true
		w.count(countPublishUnknown)
	}
	w.checkCommand(m)
	w.checkPut(m, w.put(&w.commands, m))
}

// afterwards purges, frees instances and plans who is admitted.
func (w *world) afterwards(t *task) {
	for _, k := range t.done {
		if len(k.changes) == 0 {
			continue
		}
		for _, stage := range k.purge {
			n := -1
			for i := range k.op.p.Stages {
				if k.op.p.Stages[i].Name == stage {
					n = i
				}
			}
			w.forget(k.op.n, n)
			w.count(countPurges)
		}
		if !k.release {
			continue
		}
		if _, limited := w.limit[k.op.kind]; limited {
			t.admit = true
		}
		switch i := &w.instances[k.op.instance]; {
		case k.waiting > 0:
			t.free = append(t.free, freed{instance: k.op.instance, starts: i.starts, commit: w.commits})
		case k.gone() && i.running < 0 && i.waiting == 0:
			i.details, i.saved, i.completed = nil, nil, nil
		}
	}
	// It goes before what is planned: the acknowledgement, or the rest of a sweep.
	var plan []phase
	if len(t.free) > 0 && w.bug != bugNoWakeUp {
		plan = append(plan, phaseAdmitFree)
	}
	if t.admit {
		plan = append(plan, phaseAdmit)
	}
	t.plan = append(plan, t.plan...)
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

// release frees the instance, in the same statement that ends the operation.
func (w *world) release(k *work) {
	i := &w.instances[k.op.instance]
	if w.bug != bugInstanceNotFreed && i.running == k.op.n {
		i.running = -1
	}
	i.completed = k.leaves()
	if w.bug != bugDetailsNotLeft {
		i.details = k.row.state.Details
	}
	i.saved = k.op.model.saved
	if k.gone() {
		i.details, i.saved = nil, nil
	}
	k.waiting = i.waiting
}

// leave is release inside a transaction that holds the instance.
func (w *world) leave(k *work) { w.release(k) }

// startOn starts a pending operation on a free instance.
func (w *world) startOn(k *work, at time.Time) {
	i := &w.instances[k.op.instance]
	start := engine.Start{Details: i.details}
	if k.op.kind == event.Deprovision {
		start.Completed = i.completed
	}
	k.op.model.saved = append([]string(nil), i.saved...)
	if err := w.decide(k, start, at); err != nil {
		w.violate("a pending operation does not start: %v", err)
	}
	i.starts++
	w.count(countStarts)
	if k.row.state.Status == event.InProgress {
		i.running = k.op.n
		return
	}
	w.leave(k)
	w.count(countNothingToDo)
}

// takeIn takes in requests, of each instance the first.
func (w *world) takeIn(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		t.abort()
		return
	}
	at := w.clock(o)
	var seen [instances]bool
	batch := t.batch[:0:0]
	limited := false
	for _, m := range t.batch {
		if seen[m.request.instance] {
			continue
		}
		seen[m.request.instance] = true
		batch = append(batch, m)
		if op := w.byID[m.operation]; op != nil {
			k := w.load(op)
			k.owes, k.republish = true, w.bug != bugNoRepublish
			t.works = append(t.works, k)
			w.count(countKnown)
			continue
		}
		limited = w.add(t, m.request, at) || limited
	}
	t.batch = batch
	w.checkDatabase()
	if w.silent(fault) {
		w.forgetAll(o, t)
		return
	}
	t.done = t.works
	w.remember(o, t.works)
	if limited {
		t.after(w, t.done, phaseSettle, phaseAdmit, phaseAck)
	} else {
		t.after(w, t.done, phaseSettle, phaseAck)
	}
}

// add takes in one new request: it makes way for a deprovisioning, and starts the operation or lets it wait.
func (w *world) add(t *task, r request, at time.Time) (limited bool) {
	i := &w.instances[r.instance]
	if r.kind == event.Deprovision && (i.running >= 0 || i.waiting > 0) && w.bug != bugNoPreemption {
		w.preempt(t, i, r, at)
	}
	op := w.arenas.operations.next()
	*op = operation{request: r, p: w.set[r.kind], state: engine.New(event.Operation{
		ID: operationID, Type: r.kind, InstanceID: "i", Plan: i.plan, Temporary: r.temporary,
	}), since: w.commits, history: op.history[:0], model: op.model}
	op.model.reset()
	w.insert(op)
	w.checkPreempted(op)
	k := w.load(op)
	k.inserted = true
	t.works = append(t.works, k)
	if _, limited := w.limit[r.kind]; limited || i.running >= 0 || i.waiting > 0 {
		i.waiting++
		w.count(countWaits)
		return limited
	}
	w.startOn(k, at)
	w.commit(k)
	return false
}

// preempt cancels what a deprovisioning need not wait for.
func (w *world) preempt(t *task, i *instance, r request, at time.Time) {
	for _, op := range w.unfinished(r.instance) {
		pending := op.state.Status == event.Pending
		if op.kind == event.Deprovision || !pending && op.kind != event.Provision {
			continue
		}
		k := w.load(op)
		if err := w.decide(k, engine.Cancel{Reason: "preempted"}, at); err != nil && !errors.Is(err, engine.ErrNotPossible) {
			w.violate("a deprovisioning cannot cancel: %v", err)
		}
		w.count(countPreempted)
		t.works = append(t.works, k)
		switch {
		case pending:
			i.waiting--
		case k.row.state.Status.Final():
			w.leave(k)
		}
		w.commit(k)
	}
}

// wake tells the engine about operations whose time has come, in one transaction that holds their rows.
func (w *world) wake(o *orchestrator, t *task, p phase, fault uint16) {
	var rest []phase
	switch {
	case p == phaseLost:
		rest = []phase{phaseDue}
	case p == phaseDue:
		rest = []phase{phaseUnanswered}
	case p == phaseUnanswered && w.pending() && w.bug != bugNoSweepOfPending:
		rest = []phase{phaseAdmit}
	}
	lostBefore, noticed := time.Time{}, w.losses
	if p == phaseLost {
		lostBefore = w.lostAt
	}
	now := w.clock(o)
	t.works, t.done, t.free, t.admit = nil, nil, nil, false
	for _, op := range w.operations {
		switch s := &op.state; {
		case p == phaseDue && (s.DueAt.IsZero() || s.DueAt.After(now) || w.bug == bugNoSweepOfDue):
			continue
		case p == phaseLost && !s.InFlight():
			continue
		case p == phaseUnanswered && (s.Status != event.InProgress || !s.DueAt.IsZero() || s.ExecuteBefore.After(now) || w.bug == bugNoSweepOfUnanswered):
			continue
		}
		t.works = append(t.works, w.load(op))
	}
	if len(t.works) == 0 {
		o.noticed = noticed
		t.plan = append(t.plan, rest...)
		return
	}
	if w.fails(fault) {
		w.forgetAll(o, t)
		return
	}
	alive := !w.absent != (fault == faultLiar)
	for _, k := range t.works {
		due := engine.Due{WorkerAlive: alive || !k.row.state.InFlight(), LostBefore: lostBefore, ResultsOnly: p == phaseLost && w.resultsOnly}
		if err := w.decide(k, due, now); p == phaseLost && errors.Is(err, engine.ErrNotPossible) {
			if errors.Is(err, engine.ErrNobody) {
				noticed = o.noticed // it is looked again
			}
			continue
		} else if err != nil {
			w.violate("an operation that is due refuses: %v", err)
		}
		if p == phaseLost {
			w.count(countLostAgain)
		}
		k.release = k.effects.Finished
		w.commit(k)
		if k.release {
			w.release(k)
		}
	}
	w.checkDatabase()
	if w.silent(fault) {
		w.forgetAll(o, t)
		return
	}
	w.remember(o, t.works)
	o.noticed = noticed
	t.done = t.works
	t.after(w, t.done, append([]phase{phaseSettle}, rest...)...)
}

func (w *world) pending() bool {
	for _, op := range w.operations {
		if op.state.Status == event.Pending {
			return true
		}
	}
	return false
}

// admitFree starts, on instances that became free, the first of the operations that wait for them.
func (w *world) admitFree(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		t.free = nil // the sweep finds them
		return
	}
	var first []*operation
	limited := false
	for _, f := range t.free {
		op := w.firstPending(f.instance)
		if op == nil || w.instances[f.instance].running >= 0 && w.bug != bugTwoOfAnInstance {
			continue
		}
		if _, ok := w.limit[op.kind]; ok {
			limited = true
			continue
		}
		first = append(first, op)
	}
	if limited && !t.planned(phaseAdmit) {
		t.plan = append([]phase{phaseAdmit}, t.plan...)
	}
	w.startAll(o, t, first, fault)
}

func (t *task) planned(p phase) bool { return slices.Contains(t.plan, p) }

// admit starts pending operations whose instances are free, of every type that has room, in order of arrival.
func (w *world) admit(o *orchestrator, t *task, fault uint16) {
	if w.fails(fault) {
		return
	}
	var first []*operation
	for _, kind := range event.OperationTypes() {
		room := maxOperations
		if limit, ok := w.limit[kind]; ok {
			room = limit - w.running(kind)
			if w.bug == bugNoLimit {
				room = limit
			}
		}
		for _, op := range w.operations {
			if room <= 0 {
				break
			}
			if op.kind != kind || op.state.Status != event.Pending || w.instances[op.instance].running >= 0 {
				continue
			}
			if w.bug != bugOvertaking && w.firstPending(op.instance) != op {
				continue
			}
			first = append(first, op)
			room--
		}
	}
	w.startAll(o, t, first, fault)
}

// startAll starts the first of each instance.
func (w *world) startAll(o *orchestrator, t *task, first []*operation, fault uint16) {
	t.works = nil
	var seen [instances]bool
	for _, op := range first {
		if seen[op.instance] {
			continue
		}
		seen[op.instance] = true
		w.checkOrder(op)
		k := w.load(op)
		w.instances[op.instance].waiting--
		w.startOn(k, w.clock(o))
		w.commit(k)
		t.works = append(t.works, k)
		w.count(countAdmitted)
	}
	w.checkDatabase()
	if w.silent(fault) {
		for _, k := range t.works {
			o.drop(k.op.n)
		}
		return
	}
	w.remember(o, t.works)
	t.out = nil
	t.collect(w, t.works)
	plan := make([]phase, 0, len(t.out)+1+len(t.plan))
	for range t.out {
		plan = append(plan, phasePublish)
	}
	t.plan = append(append(plan, phaseConfirmed), t.plan...)
}

// ack acknowledges what was folded. Some of it may not reach the bus.
func (w *world) ack(t *task, fault uint16) {
	w.checkPublished(t)
	for i := range t.batch {
		m := t.batch[i]
		w.checkAck(m)
		if i > 0 && fault != faultNone {
			w.count(countNotAcked)
			continue
		}
		if m.id.result {
			remove(&w.results, m.seq)
		} else {
			remove(&w.requests, m.seq)
		}
	}
	for _, f := range t.free {
		w.checkWoken(f)
	}
}

// begin lets an operator ask for something.
func (w *world) begin(c choice) {
	o := &w.orchestrators[c.a%orchestrators]
	t := &o.tasks[taskAction]
	if t.working() || len(w.operations) == 0 {
		return
	}
	op := w.operations[int(c.b)%len(w.operations)]
	t.operation = op.n
	switch c.c % 3 {
	case 0:
		t.event = engine.Cancel{Reason: "not wanted"}
	case 1:
		t.event = engine.Retry{By: "me"}
	default:
		step := "none"
		if at := op.state.Position(op.p); at != nil {
			step = at.Step
		}
		t.event = engine.SkipStep{Step: step, By: "me"}
	}
	t.plan = append(t.plan, phaseAct)
}

// act carries out what an operator asks for, in one transaction that holds the instance and the row.
func (w *world) act(o *orchestrator, t *task, fault uint16) {
	op := w.byID[t.operation]
	o.drop(op.n)
	if w.fails(fault) {
		t.abort()
		return
	}
	if _, retry := t.event.(engine.Retry); retry && w.newer(op) && w.bug != bugRetryOfAnOldOne {
		w.count(countRefused)
		t.abort()
		return
	}
	k := w.load(op)
	err := w.decide(k, t.event, w.clock(o))
	w.checkAllowed(op, t.event, err)
	if err != nil {
		w.count(countRefused)
		t.abort()
		return
	}
	w.count(countActions)
	i := &w.instances[op.instance]
	switch before, after := op.state.Status, k.row.state.Status; {
	case before == event.Pending && after != event.Pending:
		i.waiting--
	case before != event.Pending && after == event.Pending:
		i.waiting++
		op.since = w.commits
	case before == event.InProgress && after.Final():
		w.leave(k)
	}
	w.commit(k)
	w.checkDatabase()
	if w.silent(fault) {
		t.abort()
		return
	}
	t.done = []*work{k}
	then := []phase{phaseSettle}
	if s := k.row.state.Status; s == event.Pending || s.Final() {
		t.free = append(t.free, freed{instance: op.instance, starts: i.starts, commit: w.commits})
	}
	t.after(w, t.done, then...)
}

// crash kills an orchestrator: its cache and what its tasks were at are gone.
func (w *world) crash(n int) {
	o := &w.orchestrators[n]
	interrupted := false
	for i := range o.tasks {
		if t := &o.tasks[i]; t.working() {
			interrupted = true
			w.counts.crashBefore[t.plan[0]]++
		}
	}
	if interrupted {
		w.count(countCrashes)
	}
	w.trace("orchestrator %d crashes", n)
	*o = orchestrator{skew: o.skew, noticed: o.noticed}
}

// commit makes the changes of a work durable, and holds them against the invariants.
func (w *world) commit(k *work) {
	if len(k.changes) == 0 {
		return
	}
	op := k.op
	w.commits++
	op.version++
	k.row.version = op.version
	w.count(countCommits)
	for i := range k.changes {
		c := &k.changes[i]
		w.count(countTransitions)
		for j := range c.effects.History {
			h := &c.effects.History[j]
			l := line{cursor: h.Cursor, kind: h.Kind, result: h.Outcome}
			if h.Kind == engine.KindStep {
				l.step = op.p.Stages[h.Stage].Steps[h.Step].Name
			}
			op.history = append(op.history, l)
		}
		if w.traced {
			w.trace("operation %d: %T: %s at %d/%d, cursor %d", op.n, c.event, c.next.Status, c.next.Stage, c.next.Step, c.next.Cursor)
		}
		before := op.state // what was read, as long as nobody writes over others
		op.state = c.next
		w.check(op, &before, c.event, &c.next, &c.effects, c.at)
	}
}

const operationID = "0193a3c5-0000-7000-8000-000000000001"

// insert adds a row.
func (w *world) insert(op *operation) {
	w.operations = append(w.operations, op)
	w.byID[op.n] = op
}

// unfinished are the operations of an instance that have not ended, in order of arrival.
func (w *world) unfinished(instance int) (found []*operation) {
	for _, op := range w.operations {
		if op.instance == instance && !op.state.Status.Final() {
			found = append(found, op)
		}
	}
	return found
}

func (w *world) firstPending(instance int) *operation {
	for _, op := range w.operations {
		if op.instance == instance && op.state.Status == event.Pending {
			return op
		}
	}
	return nil
}

func (w *world) running(kind event.OperationType) (n int) {
	for _, op := range w.operations {
		if op.kind == kind && op.state.Status == event.InProgress {
			n++
		}
	}
	return n
}

// newer tells that the instance has a later operation that was not cancelled.
func (w *world) newer(op *operation) bool {
	after := false
	for _, other := range w.operations {
		if after && other.instance == op.instance && other.state.Status != event.Cancelled {
			return true
		}
		after = after || other == op
	}
	return false
}
