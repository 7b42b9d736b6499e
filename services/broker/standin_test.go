package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

// orchestrator simulates the orchestrator: it consumes requests, publishes facts, sends Remove_Instance to the broker and answers
// queries. Its state survives stop and start, like the real database.
type orchestrator struct {
	t   testing.TB
	bus *bus.Bus

	mu        sync.Mutex
	changed   chan struct{}
	held      bool
	failing   map[event.OperationType]bool
	exhausted bool
	// unsettled makes deprovisionings start before earlier requests can no longer take effect.
	unsettled bool
	retrying  bool
	silent    bool
	lingering bool
	// details are the saved data of every operation that succeeds or fails.
	details    json.RawMessage
	operations map[string]*operation
	order      []string
	delivered  map[string]int
	identities map[string]string
	traces     map[string]string
	resources  map[string]bool
	stepRuns   map[string]map[string]int
	results    map[string]chan event.Type
	rejections []event.Rejection

	stop func()
}

type operation struct {
	event.Operation
	status    event.OperationStatus
	cancelled bool
	// released makes the operation end in spite of held.
	released bool
}

func newOrchestrator(t testing.TB, b *bus.Bus) *orchestrator {
	t.Helper()
	o := &orchestrator{
		t: t, bus: b, changed: make(chan struct{}), failing: make(map[event.OperationType]bool),
		operations: make(map[string]*operation), delivered: make(map[string]int), identities: make(map[string]string),
		traces: make(map[string]string), resources: make(map[string]bool), stepRuns: make(map[string]map[string]int),
		results: make(map[string]chan event.Type),
	}
	o.start()
	t.Cleanup(func() { o.stop() })
	return o
}

// start starts the orchestrator, and resumes unfinished operations.
func (o *orchestrator) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stopAnswers, err := o.bus.Answer(event.AskOperations, "orchestrator", o.answer)
	require.NoError(o.t, err)
	stopRejections, err := o.bus.Answer(event.AskRejections, "orchestrator", o.rejected)
	require.NoError(o.t, err)
	stopCurrent, err := o.bus.Answer(event.AskCurrentAs(event.UserBroker), "orchestrator", o.current)
	require.NoError(o.t, err)
	running.Go(func() {
		_ = o.bus.Consume(ctx, bus.ConsumeConfig{Consumer: event.RequestsConsumer()}, func(_ context.Context, batch []*bus.Delivery) {
			for _, d := range batch {
				if op := o.accept(d); op != nil {
					running.Go(func() { o.run(ctx, op) })
				}
				_ = d.Ack()
			}
		})
	})
	running.Go(func() {
		_ = o.bus.Consume(ctx, bus.ConsumeConfig{Consumer: event.ResultsConsumer()}, o.collect)
	})
	o.mu.Lock()
	for _, op := range o.operations {
		if !op.status.State.Final() {
			running.Go(func() { o.run(ctx, op) })
		}
	}
	o.mu.Unlock()
	o.stop = func() {
		stopAnswers()
		stopCurrent()
		stopRejections()
		cancel()
		running.Wait()
	}
}

// rejected answers with one hold at a time.
func (o *orchestrator) rejected(_ context.Context, question []byte) (any, error) {
	var request event.RejectionsRequest
	if err := json.Unmarshal(question, &request); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := event.RejectionsAnswer{Rejections: []event.Rejection{}}
	for _, r := range o.rejections {
		switch {
		case r.HoldID <= request.After:
		case len(answer.Rejections) > 0:
			answer.More = true
			return answer, nil
		default:
			answer.Rejections = append(answer.Rejections, r)
		}
	}
	return answer, nil
}

// set changes the state and wakes all waiting goroutines.
func (o *orchestrator) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	close(o.changed)
	o.changed = make(chan struct{})
}

// until waits for a condition. It returns false if ctx ends first.
func (o *orchestrator) until(ctx context.Context, ok func() bool) bool {
	for {
		o.mu.Lock()
		done, changed := ok(), o.changed
		o.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

func (o *orchestrator) accept(d *bus.Delivery) *operation {
	r, err := bus.Data[event.OperationRequested](d.Event)
	if err != nil {
		o.t.Errorf("unreadable request: %v", err)
		return nil
	}
	var op *operation
	o.set(func() {
		id := r.Operation.ID
		if d.NumDelivered() <= 1 || o.operations[id] == nil { // a redelivery is not a second request
			o.delivered[id]++
		}
		if d.Event.ID() != id || d.Event.Subject() != id {
			o.t.Errorf("event of operation %s has id %s and subject %s", id, d.Event.ID(), d.Event.Subject())
		}
		o.identities[r.Operation.InstanceID], _ = d.Event.Extensions()["originatingidentity"].(string)
		o.traces[id], _ = d.Event.Extensions()["traceparent"].(string)
		if o.operations[id] != nil {
			return
		}
		op = &operation{Operation: r.Operation, status: event.OperationStatus{OperationID: id, State: event.Pending}}
		o.operations[id] = op
		o.order = append(o.order, id)
		if op.Type == event.Deprovision {
			for _, other := range o.operations {
				if other.InstanceID == op.InstanceID && other.Type != event.Deprovision && !other.status.State.Final() {
					other.cancelled = true
				}
			}
		}
	})
	return op
}

func (o *orchestrator) run(ctx context.Context, op *operation) {
	if !o.until(ctx, func() bool { return !o.busy(op) }) {
		return
	}
	step := "Check_Runtime"
	if op.Type == event.Deprovision {
		step = "Remove_Runtime"
	}
	o.step(op, func(s *event.OperationStatus) {
		s.State, s.Position = event.InProgress, &event.Position{Stage: "stage_of_" + step, Step: step, StageAttempt: 1, StepAttempt: 1}
		if op.Type == event.Provision {
			o.resources[op.InstanceID] = true
		}
	}, func(f event.Fact, s event.OperationStatus) (event.Type, any) {
		return event.TypeOperationStarted, event.OperationStarted{Fact: f, Next: s.Position}
	})
	if o.is(&o.retrying) {
		o.step(op, func(s *event.OperationStatus) { s.Position.StepAttempt++ }, o.retried)
	}
	if !o.until(ctx, func() bool {
		return op.cancelled || op.released || (!o.held && (!o.retrying || op.Type == event.Deprovision))
	}) {
		return
	}
	o.mu.Lock()
	cancelled, failing := op.cancelled, o.failing[op.Type]
	o.mu.Unlock()
	switch {
	case cancelled:
		o.step(op, func(s *event.OperationStatus) { s.State, s.Position = event.Cancelled, nil },
			func(f event.Fact, _ event.OperationStatus) (event.Type, any) {
				return event.TypeOperationCancelled, event.OperationCancelled{Fact: f, Reason: "preempted"}
			})
	case op.Type == event.Deprovision:
		o.deprovision(ctx, op, failing)
	case failing:
		o.fail(op, "Check_Runtime")
	default:
		o.succeed(op)
	}
}

// busy reports whether an earlier operation on the instance is unfinished.
func (o *orchestrator) busy(op *operation) bool {
	for _, id := range o.order {
		other := o.operations[id]
		if other == op {
			break
		}
		if other.InstanceID == op.InstanceID && !other.status.State.Final() {
			return true
		}
	}
	return false
}

func (o *orchestrator) is(flag *bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return *flag
}

func (o *orchestrator) deprovision(ctx context.Context, op *operation, failing bool) {
	const skippable = "EDP_Deregistration"
	switch {
	case o.is(&o.exhausted):
		o.step(op, func(s *event.OperationStatus) { s.NotCompleted = []string{skippable} },
			func(f event.Fact, s event.OperationStatus) (event.Type, any) {
				return event.TypeStepFinished, event.StepFinished{
					Fact: f, Position: event.Position{Stage: "edp", Step: skippable}, Outcome: event.OutcomeNotCompleted, Next: s.Position,
				}
			})
	default:
		o.ran(op, skippable)
	}
	if failing {
		o.fail(op, "Remove_Runtime")
		return
	}
	o.ran(op, "Remove_Runtime")
	o.set(func() {
		delete(o.resources, op.InstanceID)
		if o.unsettled {
			op.status.UnsettledUntil = new(time.Now().Add(time.Minute))
		}
	})
	if !o.removeInstance(ctx, op) {
		return
	}
	o.set(func() {
		if op.status.UnsettledUntil != nil {
			op.status.NotCompleted = []string{"Remove_Instance"}
		}
	})
	o.ran(op, "Remove_Instance")
	if !o.until(ctx, func() bool { return !o.lingering }) {
		return
	}
	o.succeed(op)
}

// ran counts a step of a deprovisioning unless an earlier operation completed it.
func (o *orchestrator) ran(op *operation, step string) {
	o.set(func() {
		runs := o.stepRuns[op.InstanceID]
		if runs == nil {
			runs = make(map[string]int)
			o.stepRuns[op.InstanceID] = runs
		}
		if runs[step] == 0 {
			runs[step]++
		}
	})
}

// removeInstance sends the command to the broker until it succeeds.
func (o *orchestrator) removeInstance(ctx context.Context, op *operation) bool {
	results := make(chan event.Type, 16)
	o.set(func() { o.results[op.ID] = results })
	for attempt := 1; ; attempt++ {
		o.mu.Lock()
		if attempt > 1 {
			op.status.Cursor++ // a retry is a transition; its command differs from the previous one
		}
		cursor := op.status.Cursor
		o.mu.Unlock()
		now := time.Now()
		command := event.StepExecute{
			Operation: op.Operation, Stage: "remove_instance", Step: "Remove_Instance", Cursor: cursor, Dispatch: 1,
			StageAttempt: 1, StepAttempt: attempt, FirstTriedAt: now, ExecuteBefore: now.Add(time.Minute),
		}
		e, err := bus.New(event.TypeStepExecute, event.CommandID(op.ID, cursor), event.SourceOrchestrator, op.ID, now, command)
		if err != nil {
			o.t.Errorf("command: %v", err)
			return false
		}
		id := event.DispatchID(op.ID, cursor, 1)
		if err := o.bus.Publish(ctx, bus.Message{Subject: event.CommandSubject("broker", "Remove_Instance"), ID: id, Event: e}); err != nil {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case outcome := <-results:
			if outcome != event.TypeStepRetry {
				return true
			}
		}
	}
}

func (o *orchestrator) collect(_ context.Context, batch []*bus.Delivery) {
	for _, d := range batch {
		r, err := bus.Data[event.Result](d.Event)
		if err != nil {
			o.t.Errorf("unreadable result: %v", err)
		}
		o.mu.Lock()
		results := o.results[r.OperationID]
		o.mu.Unlock()
		if results != nil {
			results <- event.Type(d.Event.Type())
		}
		_ = d.Ack()
	}
}

func (o *orchestrator) retried(f event.Fact, s event.OperationStatus) (event.Type, any) {
	return event.TypeStepFinished, event.StepFinished{
		Fact: f, Position: *s.Position, Outcome: event.OutcomeRetry, Next: s.Position,
		Error: &event.Error{
			Component: "provisioner", Reason: "err_http_status_code",
			Message: `Post "http://provisioner.kcp-system.svc:3000/graphql": dial tcp 127.0.0.1:3000: refused, token=` + canary,
		},
	}
}

func (o *orchestrator) succeed(op *operation) {
	o.step(op, func(s *event.OperationStatus) {
		s.State, s.Position = event.Succeeded, nil
		if op.Type == event.Provision {
			id, _ := json.Marshal("runtime-of-" + op.InstanceID)
			s.Details = json.RawMessage(`{"provisioner":{"runtimeId":` + string(id) + `}}`)
		}
		if o.details != nil {
			s.Details = o.details
		}
	}, func(f event.Fact, s event.OperationStatus) (event.Type, any) {
		return event.TypeOperationSucceeded, event.OperationSucceeded{Fact: f, NotCompleted: s.NotCompleted, Details: s.Details}
	})
}

func (o *orchestrator) fail(op *operation, step string) {
	failure := event.Error{Component: "provisioner", Reason: "err_cluster", Message: "the cluster failed"}
	o.step(op, func(s *event.OperationStatus) {
		s.State, s.Position, s.Error, s.Details = event.Failed, nil, &failure, o.details
	}, func(f event.Fact, s event.OperationStatus) (event.Type, any) {
		return event.TypeOperationFailed, event.OperationFailed{
			Fact: f, Stage: "create_runtime", Step: step, Error: failure, Details: s.Details,
		}
	})
}

// step is one transition: it increments the cursor and publishes a fact.
func (o *orchestrator) step(op *operation, change func(*event.OperationStatus), fact func(event.Fact, event.OperationStatus) (event.Type, any)) {
	var (
		status event.OperationStatus
		silent bool
	)
	o.set(func() {
		change(&op.status)
		op.status.Cursor++
		status, silent = op.status, o.silent
	})
	if silent {
		return
	}
	f := event.Fact{
		OperationID: op.ID, OperationType: op.Type, InstanceID: op.InstanceID, Cursor: status.Cursor, OccurredAt: time.Now(),
	}
	kind, data := fact(f, status)
	if err := o.publish(op, kind, status.Cursor, data); err != nil && !errors.Is(err, context.Canceled) {
		o.t.Logf("fact not published: %v", err)
	}
}

func (o *orchestrator) publish(op *operation, kind event.Type, cursor int64, data any) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	e, err := bus.New(kind, event.CommandID(op.ID, cursor)+"/"+string(kind), event.SourceOrchestrator, op.ID, time.Now(), data)
	if err != nil {
		return err
	}
	for { // the real orchestrator has an outbox
		if err = o.bus.Publish(ctx, bus.Message{Subject: event.FactSubject(op.Type, kind), Event: e}); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (o *orchestrator) answer(_ context.Context, data []byte) (any, error) {
	var q event.OperationsRequest
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	a := event.OperationsAnswer{Operations: []event.OperationStatus{}}
	for _, id := range q.IDs {
		if op := o.operations[id]; op != nil {
			status := op.status
			if !status.State.Final() {
				status.Worker = claimant // at any step
			}
			a.Operations = append(a.Operations, status)
		}
	}
	return a, nil
}

// current reports whether the commands of the broker are still awaited.
func (o *orchestrator) current(_ context.Context, data []byte) (any, error) {
	var q event.CurrentRequest
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var a event.CurrentAnswer
	for _, c := range q.Commands {
		if op := o.operations[c.OperationID]; op != nil && !op.status.State.Final() && op.status.Cursor == c.Cursor {
			a.Current = append(a.Current, c)
		}
	}
	return a, nil
}

// requests counts the deliveries of requests for an instance.
func (o *orchestrator) requests(instanceID string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for id, count := range o.delivered {
		if o.operations[id].InstanceID == instanceID {
			n += count
		}
	}
	return n
}

// received lists the operations of an instance in the order of their arrival.
func (o *orchestrator) received(instanceID string) []event.Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []event.Operation
	for _, id := range o.order {
		if op := o.operations[id]; op.InstanceID == instanceID {
			out = append(out, op.Operation)
		}
	}
	return out
}

func (o *orchestrator) deliveries() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.delivered)
}

func (o *orchestrator) runs(instanceID string) map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.stepRuns[instanceID])
}
