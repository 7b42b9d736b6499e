package contract

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
)

// again is the suffix of a message id that makes the stream accept a command a second time.
const again = "/again"

// executionTime is the minimum execution time of a command, unless a check sets it.
const executionTime = 2 * time.Minute

// kit is one run of the checks.
type kit struct {
	cfg    Config
	rig    *rig
	pulse  *pulse
	wire   *wire
	output *output
	door   *door
	// instance is nil if the worker runs externally.
	instance Instance
	version  string
	steps    []string
	base     map[string]*order // the first answer of each step
	problems []string
	skipped  string
	figure   string
	sent     *atomic.Int64
	// instances contains the ids of the instances of the commands.
	instances *instances
}

// Run checks a worker. It returns an error if the checks cannot run, for example because of an invalid Config or a worker that does
// not start. The report contains the violations of the worker. Run waits for the end of everything that it has started.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r, err := newRig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer r.close()
	k := &kit{cfg: cfg, rig: r, pulse: r.pulse, wire: r.wire, base: map[string]*order{}, sent: new(atomic.Int64), instances: newInstances()}
	if err := k.canaries(); err != nil {
		return nil, err
	}
	k.output = newOutput(r.secrets())
	k.wire.secrets = r.secrets()
	defer k.end()
	if err := k.begin(); err != nil {
		return nil, err
	}
	began := time.Now()
	report := &Report{Worker: cfg.Worker, Steps: cfg.Steps}
	if err := k.runAll(ctx, report); err != nil {
		return nil, err
	}
	report.Version, report.Steps, report.Took = k.version, k.steps, time.Since(began).Seconds()
	report.Commands, report.Instances = int(k.sent.Load()), k.touched()
	k.wire.look(func() { report.Results = len(k.wire.results) })
	return report, nil
}

// few limits the number of reported problems and removes duplicates.
func few(problems []string) []string {
	const most = 5
	problems = slices.Compact(problems)
	if extra := len(problems) - most; extra > 0 {
		problems = append(problems[:most:most], fmt.Sprintf("and %d more like these", extra))
	}
	return problems
}

func how(err error) string {
	if err == nil {
		return "without an error"
	}
	return err.Error()
}

func (k *kit) bad(format string, args ...any) {
	k.problems = append(k.problems, fmt.Sprintf(format, args...))
}

func (k *kit) skip(format string, args ...any) { k.skipped = fmt.Sprintf(format, args...) }

// begin opens the door, and starts the worker or prints its environment.
func (k *kit) begin() error {
	var err error
	if k.door, err = openDoor(k.cfg.Port, k.rig.target, k.wire.see); err != nil {
		return err
	}
	if k.cfg.Starter == nil {
		k.cfg.Attach(k.rig.environment(k.door))
		return nil
	}
	k.instance, err = k.cfg.Starter.Start(k.rig.environment(k.door), k.output)
	return err
}

// alive starts the worker again if it has ended.
func (k *kit) alive() error {
	if k.instance == nil {
		return nil
	}
	select {
	case <-k.instance.Done():
	default:
		return nil
	}
	return k.another()
}

// another starts an instance in place of one that has ended, behind a door of its own.
func (k *kit) another() error {
	k.door.close()
	k.wire.forget()
	return k.begin()
}

// kill kills the instance.
func (k *kit) kill() {
	k.door.cut() // disconnects an instance that cannot be killed
	k.instance.Kill()
}

// afresh replaces a worker that has failed a check, and removes the commands of the check, so that the next check is independent. The next
// check reports if this fails.
func (k *kit) afresh(ctx context.Context) {
	if k.instance != nil {
		k.kill()
	}
	_ = k.rig.purge(ctx)
	if k.instance != nil {
		_ = k.another()
	}
	k.registered(ctx, k.cfg.Patience)
}

// end stops the worker and the door.
func (k *kit) end() {
	if k.instance != nil {
		_ = k.instance.Stop()
		select {
		case <-k.instance.Done():
		case <-time.After(2 * time.Second):
			k.kill()
		}
	}
	if k.door != nil {
		k.door.close()
	}
}

// canaries creates the credentials that every command offers. It records them, and the credentials and stage memory of the cases, as secrets.
func (k *kit) canaries() error {
	for i := range k.cfg.Cases {
		for name, value := range k.cfg.Cases[i].Credentials {
			if err := k.rig.claims.add("", name, value); err != nil {
				return fmt.Errorf("case %q: credentials %s: %w", k.cfg.Cases[i].Name, name, err)
			}
		}
		for key, value := range k.cfg.Cases[i].Remembered {
			k.rig.claims.keep(value, "what the stage memory has under "+key)
		}
	}
	for name, value := range offered {
		if err := k.rig.claims.add("", name, value); err != nil {
			return err
		}
	}
	return nil
}

// offered contains the credentials of commands without a case.
var offered = map[string]any{
	event.CredentialsServiceManager: map[string]string{
		"clientid": "canary-client-5f1c09", "clientsecret": "canary-secret-a94b21", "url": "https://sm.example.com", "sm_url": "https://sm.example.com",
		"xsappname": "canary-app-77d3f0",
	},
}

// variation changes a command before it is sent.
type variation func(*event.StepExecute)

// order creates a command for a step, from the team's first case for it or with minimal data.
func (k *kit) order(step string, changes ...variation) (*order, error) {
	for i := range k.cfg.Cases {
		if c := &k.cfg.Cases[i]; c.Step == step && c.Takes == 0 && !c.Only && !c.Cleanup {
			return k.orderOf(c, changes...)
		}
	}
	return k.orderOf(&Case{Step: step}, changes...)
}

func (k *kit) orderOf(c *Case, changes ...variation) (*order, error) {
	command, err := c.command()
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	o := &command.Operation
	o.ID = uuid.NewString()
	if !c.Cleanup { // a cleanup sets the instance
		o.InstanceID = k.instances.next(command.Step)
	}
	// Longer than any check waits, even on a busy machine.
	command.FirstTriedAt, command.ExecuteBefore = now, now.Add(executionTime+8*k.cfg.Patience+4*time.Duration(c.Takes))
	if command.Details == nil {
		command.Details = json.RawMessage(`{"` + foreign + `":{"id":"of another worker"}}`)
	}
	credentials := c.Credentials
	if credentials == nil {
		credentials = offered
	}
	o.Credentials = slices.Sorted(maps.Keys(credentials))
	for name, value := range credentials {
		if err := k.rig.claims.add(o.ID, name, value); err != nil {
			return nil, err
		}
	}
	scope := stagemem.Scope{OperationID: o.ID, Stage: command.Stage, StageAttempt: command.StageAttempt}
	for key, value := range c.Remembered {
		ctx, cancel := context.WithTimeout(context.Background(), k.cfg.Patience)
		err := k.rig.memory.Put(ctx, scope, stagemem.ValueName(key), []byte(value))
		cancel()
		if err != nil {
			return nil, err
		}
		command.StageMemory = true
	}
	for _, change := range changes {
		change(&command)
	}
	return &order{
		command: command, subject: event.CommandSubject(k.cfg.Worker, command.Step), trace: traceparent(), ids: map[string]bool{},
	}, nil
}

// foreign is another worker that has saved details.
const foreign = "another-worker"

func traceparent() string {
	id := strings.ReplaceAll(uuid.NewString(), "-", "")
	return "00-" + id + "-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16] + "-01"
}

// message returns a command in the format of the orchestrator. Data replaces the body if it is not nil.
func (k *kit) message(o *order, data []byte) (*nats.Msg, error) {
	c := &o.command
	e, err := bus.New(event.TypeStepExecute, event.CommandID(c.Operation.ID, c.Cursor), event.SourceOrchestrator, c.Operation.ID, time.Now(), c)
	if err != nil {
		return nil, err
	}
	e.SetExtension(bus.TraceParent, o.trace)
	h, body, err := bus.Encode(&e)
	if err != nil {
		return nil, err
	}
	if data != nil {
		body = data
	}
	h.Set(nats.MsgIdHdr, event.DispatchID(c.Operation.ID, c.Cursor, c.Dispatch))
	return &nats.Msg{Subject: o.subject, Header: h, Data: body}, nil
}

// send publishes a command. Another call with the same order publishes the command again.
func (k *kit) send(ctx context.Context, o *order) error {
	m, err := k.message(o, nil)
	if err != nil {
		return err
	}
	return k.publish(ctx, o, m)
}

func (k *kit) publish(ctx context.Context, o *order, messages ...*nats.Msg) error {
	for _, m := range messages {
		id := m.Header.Get(nats.MsgIdHdr)
		k.wire.look(func() {
			k.wire.orders[o.command.Operation.ID] = o
			if o.ids[id] {
				m.Header.Set(nats.MsgIdHdr, id+again)
			}
			o.ids[id] = true
			o.sent++
		})
		k.sent.Add(1)
		ctx, cancel := context.WithTimeout(ctx, k.cfg.Patience)
		_, err := k.rig.bus.JetStream().PublishMsg(ctx, m)
		cancel()
		if err != nil {
			return fmt.Errorf("send a command: %w", err)
		}
	}
	return nil
}

// settled waits until an order is answered, and reports what is missing.
func (k *kit) settled(ctx context.Context, o *order, what string) bool {
	return k.settledWithin(ctx, k.cfg.Patience, o, what)
}

func (k *kit) settledWithin(ctx context.Context, within time.Duration, o *order, what string) bool {
	if k.wire.await(ctx, within, func() bool { return o.answered() || k.gone() }) && !k.gone() {
		return true
	}
	k.unsettled(within, o, what)
	return false
}

// hurryEvery is the interval of redeliveries in hurry. cancelEvery is that of notices about cancelled commands: a worker ignores a notice
// that comes before the step runs.
const (
	hurryEvery  = 2 * time.Second
	cancelEvery = 200 * time.Millisecond
)

// hurry is wire.await, but the bus delivers unsettled commands again every two seconds, instead of after the ack wait or the delay that the
// worker has requested. It cancels the given commands.
func (k *kit) hurry(ctx context.Context, within time.Duration, ok func() bool, cancelled ...*order) bool {
	for end := k.pulse.now() + within; ctx.Err() == nil; {
		if err := errors.Join(k.rig.expire(ctx), k.findStrays(ctx)); err != nil {
			k.bad("%v", err)
			return false
		}
		left := end - k.pulse.now()
		if k.awaitCancelled(ctx, min(hurryEvery, left), ok, cancelled) {
			return true
		}
		if left <= hurryEvery {
			return false
		}
	}
	return false
}

// findStrays marks deliveries that crossed with the acknowledgement of their message: it is gone from the stream, and the worker takes them
// for repetitions of a command that it has answered.
func (k *kit) findStrays(ctx context.Context) error {
	var crossed []*delivery
	k.wire.look(func() {
		for _, o := range k.wire.orders {
			if !o.acknowledged() {
				crossed = append(crossed, o.crossed()...)
			}
		}
	})
	for _, d := range crossed {
		gone, err := k.rig.gone(ctx, d.seq)
		if err != nil {
			return fmt.Errorf("look for message %d: %w", d.seq, err)
		}
		k.wire.look(func() { d.stray = gone })
	}
	return nil
}

// awaitCancelled is wire.await, but cancels commands again and again, so that they end soon.
func (k *kit) awaitCancelled(ctx context.Context, within time.Duration, ok func() bool, cancelled []*order) bool {
	end := k.pulse.now() + within
	for len(cancelled) > 0 && end-k.pulse.now() > cancelEvery && ctx.Err() == nil {
		for _, o := range cancelled {
			if err := k.cancel(o); err != nil {
				k.bad("%v", err)
				return false
			}
		}
		if k.wire.await(ctx, cancelEvery, ok) {
			return true
		}
	}
	return k.wire.await(ctx, end-k.pulse.now(), ok)
}

// settledSoon is settledWithin with hurry.
func (k *kit) settledSoon(ctx context.Context, within time.Duration, o *order, what string) bool {
	if k.hurry(ctx, within, func() bool { return o.answered() || k.gone() }) && !k.gone() {
		return true
	}
	k.unsettled(within, o, what)
	return false
}

// allSettledSoon is allSettledWithin with hurry.
func (k *kit) allSettledSoon(ctx context.Context, within time.Duration, orders []*order, what string, cancelled ...*order) bool {
	if k.hurry(ctx, within, func() bool { return k.gone() || allAnswered(orders) }, cancelled...) && !k.gone() {
		return true
	}
	for i, o := range orders {
		answered := false
		if k.wire.look(func() { answered = o.answered() }); !answered {
			k.unsettled(within, o, fmt.Sprintf("%s, command %d of %d", what, i+1, len(orders)))
		}
	}
	return false
}

// allAnswered reports whether all orders are answered. The caller holds the lock of the wire.
func allAnswered(orders []*order) bool {
	return !slices.ContainsFunc(orders, func(o *order) bool { return !o.answered() })
}

// unsettled reports what is missing for an order.
func (k *kit) unsettled(within time.Duration, o *order, what string) {
	k.wire.look(func() {
		switch {
		case k.gone():
			// check reports it
		case len(o.given) == 0:
			k.bad("%s: the worker did not take the command within %s", what, within)
		case o.good() == nil && len(o.outcomes) > 0:
			k.bad("%s: the stream has not taken the result: %s", what, cmp.Or(o.outcomes[len(o.outcomes)-1].refused, "the connection was gone"))
		case o.good() == nil:
			k.bad("%s: the worker took the command, and did not answer within %s", what, within)
		default:
			k.bad("%s: the worker answered, and did not acknowledge the command within %s", what, within)
		}
	})
}

// gone reports whether the worker has ended unexpectedly. The caller may hold the lock of the wire.
func (k *kit) gone() bool {
	if k.instance == nil {
		return false
	}
	select {
	case <-k.instance.Done():
		return true
	default:
		return false
	}
}

// ask sends an order and waits for its answer.
func (k *kit) ask(ctx context.Context, what, step string, changes ...variation) (*order, bool) {
	o, err := k.order(step, changes...)
	if err == nil {
		err = k.send(ctx, o)
	}
	if err != nil {
		k.bad("%s: %v", what, err)
		return o, false
	}
	return o, k.settled(ctx, o, what)
}

// askMany sends commands for a step and waits for all answers.
func (k *kit) askMany(ctx context.Context, n int, what, step string) bool {
	orders, err := k.sendMany(ctx, n, step)
	if err != nil {
		k.bad("%s: %v", what, err)
		return false
	}
	return k.allSettled(ctx, orders, what)
}

func (k *kit) sendMany(ctx context.Context, n int, step string) ([]*order, error) {
	orders := make([]*order, n)
	for i := range orders {
		o, err := k.order(step)
		if err == nil {
			err = k.send(ctx, o)
		}
		if err != nil {
			return nil, err
		}
		orders[i] = o
	}
	return orders, nil
}

func (k *kit) allSettled(ctx context.Context, orders []*order, what string) bool {
	return k.allSettledWithin(ctx, k.cfg.Patience, orders, what)
}

// allSettledWithin waits for all orders, for this time in total.
func (k *kit) allSettledWithin(ctx context.Context, within time.Duration, orders []*order, what string) bool {
	end := k.pulse.now() + within
	good := true
	for i, o := range orders {
		if !k.settledWithin(ctx, max(0, end-k.pulse.now()).Round(time.Second), o, fmt.Sprintf("%s, command %d of %d", what, i+1, len(orders))) {
			good = false
			if k.gone() {
				break
			}
		}
	}
	return good
}

// outcome returns the outcome of a result; empty without a result.
func (r *result) outcome() event.Outcome {
	if r == nil {
		return ""
	}
	switch r.kind {
	case event.TypeStepSucceeded:
		return event.OutcomeSucceeded
	case event.TypeStepRetry:
		return event.OutcomeRetry
	case event.TypeStepFailed:
		return event.OutcomeFailed
	case event.TypeStageLost:
		return event.OutcomeStageLost
	case event.TypeStepSkipped:
		if r.body.NotCompleted {
			return event.OutcomeNotCompleted
		}
		return event.OutcomeSkipped
	}
	return ""
}

// done reports whether the operation continues after the outcome.
func done(o event.Outcome) bool {
	return o == event.OutcomeSucceeded || o == event.OutcomeSkipped
}

// first returns the first valid result of an order.
func (k *kit) first(o *order) (r *result) {
	k.wire.look(func() { r = o.good() })
	return r
}

// like reports an order whose result is worse than that of the base order of its step, which differs only in the subject of the check.
func (k *kit) like(o *order, what string) {
	base := k.base[o.command.Step]
	if base == nil {
		return
	}
	want, got := k.first(base).outcome(), k.first(o).outcome()
	if done(want) && got == event.OutcomeFailed {
		k.bad("%s: the step failed (%s), and without it it is %s", what, k.first(o).why(), want)
	}
}

// panicked reports whether the result says that the step panicked.
func (r *result) panicked() bool {
	return r != nil && r.body.Error != nil && r.body.Error.Reason == worker.ReasonPanic
}

func (r *result) why() string {
	if r == nil || r.body.Error == nil {
		return "no reason"
	}
	return r.body.Error.Message
}

// registered returns the worker's answer to a request of the micro services; nil if there is none within the time.
func (k *kit) registered(ctx context.Context, within time.Duration) *micro.Info {
	var info *micro.Info
	k.service(ctx, within, "$SRV.INFO", func(m *nats.Msg) bool {
		var i micro.Info
		if json.Unmarshal(m.Data, &i) != nil || i.Name != worker.ServicePrefix+k.cfg.Worker && i.Metadata[worker.MetadataWorker] != k.cfg.Worker {
			return false
		}
		info = &i
		return true
	})
	return info
}

const (
	// answerPatience is the time limit for an optional answer, and statsPatience that for the answer about statistics.
	answerPatience = 300 * time.Millisecond
	statsPatience  = 3 * time.Second
	// askAgainAfter is the time after which a request is repeated, because the worker may have started meanwhile; lookEvery is the pause
	// without a responder.
	askAgainAfter = time.Second
	lookEvery     = 100 * time.Millisecond
)

// service repeats a request on a subject of the micro services, like the orchestrator, and returns the first matching answer; nil if the
// time is over or the worker has ended. A late answer counts for any of the requests.
func (k *kit) service(ctx context.Context, within time.Duration, subject string, wanted func(*nats.Msg) bool) *nats.Msg {
	nc := k.rig.bus.NATS()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox + ".*")
	if err != nil {
		return nil
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closing if this fails
	end := k.pulse.now() + within
	for n := 0; ctx.Err() == nil && k.pulse.now() < end; n++ {
		// Each request has its own subject for the answer, to which the worker may publish once.
		if nc.PublishRequest(subject, fmt.Sprintf("%s.%d", inbox, n), nil) != nil {
			return nil
		}
		m, err := k.answer(ctx, min(askAgainAfter, end-k.pulse.now()), sub, wanted)
		if err == nil {
			return m
		}
		if k.gone() || errors.Is(err, nats.ErrNoResponders) && pause(ctx, lookEvery) != nil {
			return nil
		}
	}
	return nil
}

// answer waits for the matching answer to one request.
func (k *kit) answer(ctx context.Context, within time.Duration, sub *nats.Subscription, wanted func(*nats.Msg) bool) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil || wanted(m) {
			return m, err
		}
	}
}

// restart restarts the server with its store, as after a crash, which loses the data in memory.
func (r *rig) restart(ctx context.Context) error {
	r.stop()
	return r.start(ctx)
}

// recreate deletes the worker's consumer, and creates it again.
func (r *rig) recreate(ctx context.Context) error {
	err := r.bus.JetStream().DeleteConsumer(ctx, string(event.StreamCommands), r.cfg.Worker)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	return r.bus.EnsureConsumer(ctx, r.spec)
}
