package simulation_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

const (
	orchestrators = 2
	instances     = 3
	accounts      = 2
	maxOperations = 8
)

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

type applyFunc func(*process.Process, engine.State, engine.Event, time.Time) (engine.State, engine.Effects, error)

// world is the environment of a schedule: a database with a few instances, the bus, two orchestrators, the
// workers, the operator and the clocks, all of them unreliable.
type world struct {
	apply applyFunc
	bug   bug
	set   process.Set
	now   time.Time
	// slow has two bits for each of the first tries of a step with a wait after the last choice; see slowly.
	slow uint16
	// log is written if traced is set; a failed schedule runs again with it.
	log    []string
	traced bool
	counts *counts
	// metrics are shared by all orchestrators, and threads by all schedules.
	metrics *dispatch.Metrics
	threads *threads

	// The database and its model.
	db         *ram
	operations []*operation // in order of arrival
	byID       [maxOperations]*operation
	instances  [instances]instance
	limits     *limit.Set
	commits    int
	// admitted are the pending operations that the current transaction has started.
	admitted []*operation

	// The bus.
	seq                         int
	requests, commands, results []*message
	requested                   int
	asked                       [maxOperations]request
	taken                       map[string]bool // the duplicate window
	memory                      []memory
	made                        map[event.Stream]time.Time

	// unsent are the events whose sending was not confirmed, and some others.
	unsent []event.Signal

	holds         []pause
	bounds        bounds
	orchestrators [orchestrators]orchestrator
	// current is the running task, and fault the fault of its call.
	current *task
	fault   fault
	// workerSkew is the skew of the clock of the workers.
	workerSkew time.Duration
	absent     bool // no worker is alive
	calm       bool // there are no more faults
}

// operation is a row with its model.
type operation struct {
	*stored
	request
	p *process.Process
	// limits are those that apply to the operation in progress.
	limits []limit.Key
	// since is the commit that made it pending.
	since int
	facts []engine.Fact // as they were decided
	// journal holds the history entries as they were committed.
	journal []engine.Entry
	// traced has the saved data before and after each entry, by cursor.
	traced map[int64][2]json.RawMessage
	// published holds the ids of published facts, and excused means that a result was lost whose redelivery would publish facts.
	published map[string]bool
	excused   bool
	model     model
}

// request is a request of the broker.
type request struct {
	n         int // the id of the operation
	kind      event.OperationType
	instance  int
	temporary bool
}

// instance is the model of an instance.
type instance struct {
	saved  []string // the members that its details must have
	plan   event.Plan
	starts int
}

type message struct {
	seq       int
	id        string
	operation int
	request   request
	worker    string
	command   event.StepExecute
	stage     int
	isResult  bool
	result    engine.Result
	// event and subject are made when a task takes the message.
	event   *cloudevents.Event
	subject string
}

// memory is a part of the stage memory.
type memory struct{ operation, stage, attempt int }

// violation is the panic value of a violated invariant. Its format identifies the invariant.
type violation struct{ format, text string }

func (w *world) violate(format string, args ...any) {
	panic(violation{format: format, text: fmt.Sprintf(format, args...)})
}

func (w *world) trace(format string, args ...any) {
	if w.traced {
		w.log = append(w.log, w.now.Sub(epoch).String()+" "+fmt.Sprintf(format, args...))
	}
}

// skews are the possible clock skews.
var skews = []time.Duration{0, 0, 0, 2 * time.Second, -2 * time.Second, 90 * time.Second, -5 * time.Minute, 20 * time.Minute}

var plans = []event.Plan{{ID: "azure", Name: "azure"}, {ID: "trial", Name: "trial"}}

func (r *runner) newWorld(s *schedule, traced bool) *world {
	w := &world{
		apply: r.apply, bug: r.bug, counts: &r.counts, metrics: r.metrics, threads: &r.threads, now: epoch, traced: traced, set: process.Set{},
		taken: make(map[string]bool, 64), made: map[event.Stream]time.Time{}, db: newRAM(),
	}
	w.db.seen, w.db.early = w.seen, w.early
	w.db.execution = func(row *store.Row) time.Duration {
		p := w.byID[numberOf(row.Operation.ID)].p
		return p.Stages[row.Stage].Steps[row.Step].Execution
	}
	w.db.conflict = func(id string) {
		w.count(countConflicts)
		delete(w.current.decided, numberOf(id))
	}
	w.db.foldable, w.db.folded = w.checkFoldable, func(entries int) { w.counts.of[countFolded] += int64(entries) }
	w.db.at, w.db.committed, w.db.done, w.db.bug = w.access, w.committed, w.checkDatabase, r.bug
	for i, t := range event.OperationTypes() {
		w.set[t] = r.pools.set(s.pool, s.setup[setDefinition+i])[t]
	}
	w.limits = limitsOf(s)
	w.bounds = bounds{set: w.limits}
	for i := range w.instances {
		w.instances[i] = instance{plan: plans[s.setup[setPlan+i]%4/3]}
	}
	for i := range w.orchestrators {
		w.orchestrators[i] = orchestrator{w: w, skew: skews[int(s.setup[setSkew+i])%len(skews)]}
		w.orchestrators[i].boot()
	}
	w.workerSkew = skews[int(s.setup[setWorker])%len(skews)] / 10
	w.slow = s.setup[setSlow]
	for i := range 1 + int(s.setup[setFirst]%instances)/2 {
		w.ask(i, event.Provision, false)
	}
	return w
}

// ask publishes a request of the broker.
func (w *world) ask(instance int, t event.OperationType, temporary bool) {
	if w.requested == maxOperations {
		return
	}
	r := request{n: w.requested, kind: t, instance: instance, temporary: temporary}
	w.asked[r.n] = r
	w.requested++
	w.seq++
	w.requests = append(w.requests, &message{seq: w.seq, id: operationID(r.n), operation: r.n, request: r})
	w.count(countRequests)
	w.trace("operation %d is requested: %s of instance %d", r.n, t, instance)
}

// do carries out one choice.
func (w *world) do(c choice) {
	switch c.kind {
	case doTask:
		if c.a%4 > 0 && w.busy(c) { // mostly started tasks continue
			return
		}
		o := &w.orchestrators[c.a/4%orchestrators]
		w.step(o, &o.tasks[taskOf[int(c.a/4/orchestrators)%len(taskOf)]], c)
	case doWork:
		w.work(c)
	case doTimer:
		if at := w.timer(); at.After(w.now) {
			w.now = at
			w.count(countTimers)
		}
	case doClock:
		// Mostly seconds, sometimes minutes.
		if by := time.Duration(c.a%5000) * time.Millisecond; c.b%4 != 1 {
			w.now = w.now.Add(by)
		} else {
			w.now = w.now.Add(by * 300)
			w.count(countJumps)
		}
	case doRequest:
		w.demand(c)
	case doAct:
		w.begin(c)
	case doCrash:
		w.crash(int(c.a % orchestrators))
	case doLose:
		if q := w.stream(c.a); len(*q) > 0 {
			m := (*q)[int(c.b)%len(*q)]
			w.trace("message %d is lost", m.seq)
			if q == &w.requests {
				return // the broker publishes a request until it sees the fact
			}
			w.lost(m)
			remove(q, m.seq)
			w.count(countLost)
		}
	case doDuplicate:
		if q := w.stream(c.a); len(*q) > 0 {
			m := (*q)[int(c.b)%len(*q)]
			w.trace("message %d is there twice", m.seq)
			w.again(q, m)
			w.count(countDuplicates)
		}
	case doWindow:
		clear(w.taken)
	case doStreams:
		w.loseStreams(c)
	case doSkew:
		skew := skews[int(c.b)%len(skews)]
		if n := c.a % (orchestrators + 1); n < orchestrators {
			if o := &w.orchestrators[n]; skew < o.skew {
				w.count(countBack)
			}
			w.orchestrators[n].skew = skew
		} else {
			w.workerSkew = skew / 10
		}
		w.count(countSkews)
	case doWorkers:
		if absent := c.a%3 == 0; absent != w.absent {
			w.absent = absent
			w.count(countAbsent)
		}
	case doHold:
		w.pauses(c)
	case doSignal:
		w.signal(c)
	case doLimit:
		w.bound(c)
	case doMemory:
		w.trace("the stage memory is lost")
		w.memory = w.memory[:0]
		w.made["KV_"+event.StageBucket] = w.now // as after a restart of the bus
		w.count(countMemory)
	default:
	}
}

// loseStreams empties streams and creates them again.
func (w *world) loseStreams(c choice) {
	w.trace("streams are lost")
	clear(w.taken)
	w.count(countStreams)
	if c.a&1 == 0 {
		w.commands = w.commands[:0]
		w.made[event.StreamCommands] = w.now
	}
	if c.a&2 == 0 {
		for _, m := range w.results {
			w.lost(m)
		}
		w.results = w.results[:0]
		w.made[event.StreamResults] = w.now
	}
}

// lost records that a result is lost, so that nothing republishes its facts.
func (w *world) lost(m *message) {
	if m.isResult {
		w.byID[m.operation].excused = true
	}
}

// demand requests an operation that is possible for the instance.
func (w *world) demand(c choice) {
	i := int(c.a % instances)
	asked := slices.ContainsFunc(w.operations, func(op *operation) bool { return op.instance == i })
	switch {
	case !asked:
		w.ask(i, event.Provision, false)
	case c.b%8 < 3:
		w.ask(i, event.Deprovision, false)
	case c.b%8 == 3:
		w.ask(i, event.Deprovision, true)
	default:
		w.ask(i, []event.OperationType{event.Update, event.UpgradeKyma, event.UpgradeCluster, event.Provision}[c.b%4], false)
	}
}

func (w *world) stream(n uint16) *[]*message {
	return [...]*[]*message{&w.commands, &w.results, &w.requests}[n%3]
}

func (w *world) clock(o *orchestrator) time.Time { return w.now.Add(o.skew) }

// put adds a message to a stream, unless the bus has seen its id within the duplicate window.
func (w *world) put(queue *[]*message, m *message) (dropped bool) {
	if w.taken[m.id] {
		w.count(countDropped)
		return true
	}
	w.taken[m.id] = true
	w.seq++
	m.seq = w.seq
	*queue = append(*queue, m)
	return false
}

// again adds a copy of a message.
func (w *world) again(queue *[]*message, m *message) {
	second := *m
	w.seq++
	second.seq = w.seq
	*queue = append(*queue, &second)
}

func remove(queue *[]*message, seq int) {
	for i := range *queue {
		if (*queue)[i].seq == seq {
			*queue = append((*queue)[:i], (*queue)[i+1:]...)
			return
		}
	}
}

// timer returns the earliest time that an operation waits for; zero if there is none.
func (w *world) timer() (at time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, op := range w.operations {
		earlier(op.row.ExecuteBefore)
		if !op.row.Limited() || !w.calm { // it is granted before its deadline
			earlier(op.row.DueAt)
		}
	}
	for i := range w.orchestrators {
		if at := w.orchestrators[i].nextGrant; at.After(w.now) {
			earlier(at)
		}
	}
	return at
}

var retryAfter = []time.Duration{0, time.Second, 30 * time.Second, 2 * time.Minute, 2 * time.Hour}

// Faults of a worker that executes a command.
const (
	workFine      = iota
	workDead      // it dies before its result is published
	workNotAcked  // it dies before it acknowledges the command, which is executed again
	workDuplicate // its result is published twice, once after the duplicate window
	workFaults
)

// work executes a command.
func (w *world) work(c choice) {
	if len(w.commands) == 0 {
		w.busy(choice{a: c.a})
		return
	}
	if w.absent {
		return
	}
	i := int(c.a) % len(w.commands)
	if i > 0 {
		w.count(countReordered)
	}
	m := w.commands[i]
	now := w.now.Add(w.workerSkew)
	if !now.Before(m.command.ExecuteBefore) {
		if w.traced {
			w.trace("the command of operation %d, cursor %d is late", m.operation, m.command.Cursor)
		}
		remove(&w.commands, m.seq)
		w.count(countLate)
		return
	}
	w.count(countExecutions)
	r := w.outcome(m, c, now)
	if w.traced {
		w.trace("a worker executes %s of operation %d, cursor %d: %s", m.command.Step, m.operation, r.Cursor, r.Outcome)
	}
	fault := c.d % workFaults
	if fault == workDead {
		w.trace("the worker dies before its result is published")
		w.count(countWorkerDied)
		return
	}
	answer := &message{id: "result/" + m.id, operation: m.operation, worker: m.worker, command: m.command, isResult: true, result: r}
	w.put(&w.results, answer)
	if fault == workDuplicate {
		w.again(&w.results, answer)
		w.count(countDuplicates)
	}
	if fault == workNotAcked {
		w.count(countNotAcked)
		return
	}
	remove(&w.commands, m.seq)
}

func (w *world) outcome(m *message, c choice, now time.Time) engine.Result {
	r := engine.Result{Cursor: m.command.Cursor, Outcome: event.OutcomeSucceeded, StartedAt: now, FinishedAt: now}
	at := memory{operation: m.operation, stage: m.stage, attempt: m.command.StageAttempt}
	if m.command.StageMemory && !w.remembers(at) && c.b%8 != 7 { // not every step reads it
		r.Outcome = event.OutcomeStageLost
		w.count(countStageLost)
		return r
	}
	if c.c%4 == 1 {
		if !w.remembers(at) {
			w.memory = append(w.memory, at)
		}
		r.StageMemory = true
	}
	if c.c>>2%4 == 1 {
		r.Details = json.RawMessage(fmt.Sprintf(`{"o%dc%dd%d":%d}`, m.operation, r.Cursor, m.command.Dispatch, w.seq))
		w.count(countDetails)
	}
	if c.c%64 == 3 {
		r.StartedAt, r.FinishedAt = time.Time{}, time.Time{}
	}
	if c.c%64 == 2 {
		r.Details = [...]json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"never":null}`)}[c.c>>6%2]
	}
	switch n := c.b % 32; {
	case n < 16:
	case n < 24:
		r.Outcome, r.RetryAfter = event.OutcomeRetry, retryAfter[int(c.c>>4)%len(retryAfter)]
		if c.c&1 == 1 {
			r.Error = &event.Error{Component: "ext", Reason: "down", Message: "not yet"}
		}
		if c.c>>9&1 == 1 {
			r.EventKey = keyOf(m.operation)
			w.count(countAwaited)
		}
	case n < 27:
		r.Outcome, r.Error = event.OutcomeFailed, &event.Error{Component: "ext", Reason: "broken", Message: "it broke"}
	case n < 28:
		r.Outcome = event.OutcomeSkipped
	case n < 30:
		r.Outcome, r.Error = event.OutcomeNotCompleted, &event.Error{Component: "ext", Reason: "gone", Message: "gave up"}
	case n < 31:
		r.Outcome = event.OutcomeStageLost
		w.count(countStageLost)
	default:
		r.Details = json.RawMessage(`["not an object"]`)
	}
	return r
}

func (w *world) remembers(m memory) bool { return slices.Contains(w.memory, m) }

// forget purges the memory of a stage, or of the whole operation.
func (w *world) forget(operation, stage int) {
	kept := w.memory[:0]
	for _, m := range w.memory {
		if m.operation != operation || stage >= 0 && m.stage != stage {
			kept = append(kept, m)
		}
	}
	w.memory = kept
}

// settle runs without faults until every operation has ended.
func (w *world) settle() {
	w.trace("from here on there are no faults")
	w.calm, w.absent, w.workerSkew, w.holds = true, false, 0, nil
	for i := range w.orchestrators {
		w.orchestrators[i].skew, w.orchestrators[i].known = 0, nil
		w.orchestrators[i].read()
	}
	granted := true
	for range 5000 {
		if w.over() {
			return
		}
		switch {
		case w.busy(choice{}):
		case len(w.results) > 0:
			w.stepCalm(&w.orchestrators[0], taskResults)
		case len(w.commands) > 0:
			w.work(w.slowly(w.commands[0]))
		case len(w.requests) > 0:
			w.stepCalm(&w.orchestrators[0], taskRequests)
		case !granted:
			granted = true
			w.stepCalm(&w.orchestrators[0], taskGrants)
		default:
			granted = false
			if at := w.timer(); at.After(w.now) {
				w.now = at
			} else {
				w.now = w.now.Add(10 * time.Second) // facts may be left, or an operation is below the marks
			}
			w.stepCalm(&w.orchestrators[0], taskTimer)
		}
	}
	w.violate("the operations do not end: %s", w.states())
}

// slowly returns the result of a step after the last choice: it succeeds, but a step with a wait and the scope step may first wait and fail
// for a while. Schedules are too short for the many tries that spend a budget.
func (w *world) slowly(m *message) choice {
	c := choice{kind: doWork}
	p := w.byID[m.operation].p
	i, j, _ := p.Find(m.command.Step)
	step := &p.Stages[i].Steps[j]
	n := uint(m.command.StepAttempt-1) * 2
	if step.Wait == (process.Wait{}) || step.Retry.Scope != process.ScopeStep || n >= 16 {
		return c
	}
	switch w.slow >> n & 3 {
	case 1, 2:
		c.b, c.c = 16, 8 // it waits
	case 3:
		c.b, c.c = 16, 11 // an error
	}
	return c
}

func (w *world) over() bool {
	if w.requested > len(w.operations) {
		return false
	}
	for _, op := range w.operations {
		if !op.row.Status.Final() || op.factsAfter != nil {
			return false
		}
	}
	return len(w.requests)+len(w.results) == 0 && !w.working()
}

// busy runs the next step of one of the running tasks.
func (w *world) busy(c choice) bool {
	n := 0
	for i := range w.orchestrators {
		for k := range w.orchestrators[i].tasks {
			if w.orchestrators[i].tasks[k].working() {
				n++
			}
		}
	}
	if n == 0 {
		return false
	}
	n = int(c.a/4) % n
	for i := range w.orchestrators {
		for k := range w.orchestrators[i].tasks {
			t := &w.orchestrators[i].tasks[k]
			if !t.working() {
				continue
			}
			if n == 0 {
				w.step(&w.orchestrators[i], t, c)
				return true
			}
			n--
		}
	}
	return false
}

func (w *world) working() bool {
	for i := range w.orchestrators {
		for k := range w.orchestrators[i].tasks {
			if w.orchestrators[i].tasks[k].working() {
				return true
			}
		}
	}
	return false
}

func (w *world) stepCalm(o *orchestrator, k taskKind) { w.step(o, &o.tasks[k], choice{}) }

func (w *world) states() (text string) {
	for _, op := range w.operations {
		text += fmt.Sprintf("%d: %s %d/%d cursor %d due %s execute before %s; ", op.n, op.row.Status, op.row.Stage, op.row.Step,
			op.row.Cursor, op.row.DueAt, op.row.ExecuteBefore)
	}
	for id, i := range w.db.instances {
		text += fmt.Sprintf("instance %s: running %s, waiting %d; ", id, i.Running, i.Waiting)
	}
	return text + fmt.Sprintf("%d requests, %d commands, %d results", len(w.requests), len(w.commands), len(w.results))
}
