package simulation_test

import (
	"slices"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// orchestrator is a process: its tasks run beside each other, and share a cache.
type orchestrator struct {
	skew  time.Duration
	cache []row
	tasks [taskKinds]task
	// noticed is how many losses of the bus it knows of.
	noticed int
	// fresh tells that it was killed and started again, and has not yet published once more what may not be on the bus.
	fresh bool
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
	phaseRepublish               // publish once more what was sent a moment ago
	phaseStarted                 // the bus has taken it
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
	"fold", "commit", "take in", "publish once more", "have started", "send what was lost", "take up due", "take up unanswered", "act", "publish", "confirm", "settle", "admit freed", "admit",
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
	case phaseRepublish:
		w.republish(o, t)
	case phaseStarted:
		w.started(o, t)
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
		switch {
		case o.fresh:
			t.plan = append(t.plan, phaseRepublish)
		case o.noticed < w.losses:
			t.plan = append(t.plan, phaseLost)
		default:
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

func (t *task) planned(p phase) bool { return slices.Contains(t.plan, p) }

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
	*o = orchestrator{skew: o.skew, noticed: o.noticed, fresh: true}
}
