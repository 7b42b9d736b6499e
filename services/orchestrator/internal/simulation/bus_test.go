package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/dispatch"
)

var errRefused = errors.New("the bus does not confirm the message")

// Publish implements dispatch.Publisher: each command is one action, and the facts of a batch are one.
func (w *world) Publish(_ context.Context, messages ...bus.Message) error {
	w.acknowledgeFirst(w.current, bugAckBeforePublish)
	failed := bus.PublishError{Total: len(messages)}
	facts, asked := faultNone, false
	known := w.current.process.known // a hold that is read during the publication comes too late
	for i := range messages {
		m := &messages[i]
		become := facts
		switch isFact := strings.HasPrefix(m.Subject, "keb.fact."); {
		case !isFact:
			w.checkHeld(m, known)
			become = w.access(callPublish)
		case !asked:
			facts, asked = w.access(callFacts), true
			become = facts
		}
		if become == faultFails || become == faultSilent {
			err := errRefused
			if become == faultSilent {
				err = context.DeadlineExceeded
			}
			failed.Failures = append(failed.Failures, bus.Failure{Index: i, Subject: m.Subject, EventID: m.Event.ID(), Err: err})
		}
		if become != faultFails && !w.forgets(m) {
			w.store(m)
		}
	}
	if len(failed.Failures) > 0 {
		return &failed
	}
	return nil
}

// acknowledgeFirst is a planted bug: it acknowledges the messages of a task too early.
func (w *world) acknowledgeFirst(t *task, planted bug) {
	if w.bug != planted || planted == bugAckBeforePublish && t.kind > taskResults2 {
		return
	}
	for _, m := range t.batch {
		w.checkPublished(t, m)
		w.checkAck(m)
		w.acknowledged(m)
	}
}

// forgets is a planted bug: a redelivered message does not publish the command again.
func (w *world) forgets(m *bus.Message) bool {
	t := w.current
	return w.bug == bugNoRepublish && t.kind <= taskRequests && strings.HasPrefix(m.Subject, "keb.command.") && !t.written[numberOf(m.Event.Subject())]
}

// store stores a command or a fact.
func (w *world) store(m *bus.Message) {
	words := strings.Split(m.Subject, ".")
	if words[1] == "fact" {
		id, rest, _ := strings.Cut(m.Event.ID(), "/")
		w.byID[numberOf(id)].published[rest] = true
		return
	}
	command, err := bus.Data[event.StepExecute](m.Event)
	if err != nil {
		w.violate("a command cannot be read: %v", err)
	}
	op := w.byID[numberOf(command.Operation.ID)]
	if op == nil {
		w.violate("command %s was never committed", m.ID)
	}
	stage, _, _ := op.p.Find(command.Step)
	if w.bug == bugNoDispatchInID {
		m.ID = m.Event.ID()
	}
	sent := &message{id: m.ID, operation: op.n, worker: words[2], command: command, stage: stage}
	w.checkCommand(sent)
	if c := op.model.commands[command.Cursor]; c.dispatch == command.Dispatch {
		w.count(countRepublished)
	}
	if w.current.starting {
		w.count(countAtStart)
	}
	w.checkPut(sent, w.put(&w.commands, sent))
}

// delivery is a message that a task handles.
type delivery struct {
	w *world
	t *task
	m *message
}

func (w *world) deliveries(t *task) []dispatch.Delivery {
	batch := make([]dispatch.Delivery, len(t.batch))
	for i, m := range t.batch {
		batch[i] = &delivery{w, t, m}
	}
	return batch
}

// Message implements dispatch.Delivery.
func (d *delivery) Message() (cloudevents.Event, string) {
	m := d.m
	if m.event == nil {
		e, subject := d.w.event(m)
		m.event, m.subject = &e, subject
	}
	return *m.event, m.subject
}

// event returns the event of a request or a result.
func (w *world) event(m *message) (cloudevents.Event, string) {
	id := operationID(m.operation)
	made := func(t event.Type, eventID, source string, data any) cloudevents.Event {
		e, err := bus.New(t, eventID, source, id, epoch, data)
		if err != nil {
			panic(err)
		}
		return e
	}
	if !m.isResult {
		r := m.request
		return made(event.TypeOperationRequested, id, event.SourceBroker, event.OperationRequested{RequestedAt: epoch, Operation: event.Operation{
			ID: id, Type: r.kind, InstanceID: instanceID(r.instance), Plan: w.instances[r.instance].plan, Temporary: r.temporary,
			Context: event.Context{GlobalAccountID: accountID(r.instance % accounts)},
		}}), event.RequestSubject(r.kind)
	}
	r := m.result
	base := event.Result{
		OperationID: id, Cursor: r.Cursor, Stage: m.command.Stage, Step: m.command.Step, Worker: event.Worker{Name: m.worker}, Message: r.Message,
		Details: r.Details, StageMemory: r.StageMemory, Removed: []string{"object"}, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
	broken := unreadable(&r)
	if broken {
		base.Details = nil
	}
	source := event.WorkerSource(m.worker)
	var e cloudevents.Event
	switch r.Outcome {
	case event.OutcomeSucceeded:
		e = made(event.TypeStepSucceeded, m.id, source, &event.StepSucceeded{Result: base})
	case event.OutcomeRetry:
		e = made(event.TypeStepRetry, m.id, source, &event.StepRetry{Result: base, RetryAfter: r.RetryAfter.Seconds(), Error: r.Error})
		if r.EventKey != "" {
			e = made(event.TypeStepRetry, m.id, source, &event.StepRetry{
				Result: base, RetryAfter: r.RetryAfter.Seconds(), Error: r.Error, Event: &event.AwaitedEvent{Key: r.EventKey},
			})
		}
	case event.OutcomeFailed:
		e = made(event.TypeStepFailed, m.id, source, &event.StepFailed{Result: base, Error: *r.Error})
	case event.OutcomeSkipped:
		e = made(event.TypeStepSkipped, m.id, source, &event.StepSkipped{Result: base})
	case event.OutcomeNotCompleted:
		e = made(event.TypeStepSkipped, m.id, source, &event.StepSkipped{Result: base, NotCompleted: true, Error: r.Error})
	case event.OutcomeStageLost:
		e = made(event.TypeStageLost, m.id, source, &event.StageLost{Result: base})
	default:
		panic(fmt.Sprintf("outcome %q", r.Outcome))
	}
	if broken { // a worker in another language may send anything
		e.DataEncoded = append([]byte(`{"details":`+string(r.Details)+","), e.DataEncoded[1:]...)
	}
	return e, event.ResultSubject(m.worker, m.command.Step)
}

// Ack implements dispatch.Delivery. Some acknowledgements of a batch may be lost.
func (d *delivery) Ack() error {
	w, t, m := d.w, d.t, d.m
	if t.acks++; t.acks == 1 {
		t.ackFault = w.access(callAcknowledge)
	}
	w.checkPublished(t, m)
	w.checkAck(m)
	if t.acks > 1 && t.ackFault != faultNone {
		w.count(countNotAcked)
		return nil
	}
	w.acknowledged(m)
	if t.acks == len(t.batch) {
		w.checkWoken(t)
	}
	return nil
}

func (w *world) acknowledged(m *message) {
	if m.isResult {
		remove(&w.results, m.seq)
	} else {
		remove(&w.requests, m.seq)
	}
}

// Nak implements dispatch.Delivery: the message may be redelivered at any time.
func (d *delivery) Nak(time.Duration) error { return nil }

// Dead implements dispatch.Delivery.
func (d *delivery) Dead(_ context.Context, reason string) error {
	if !d.m.isResult || !unreadable(&d.m.result) {
		d.w.violate("message %s is a dead letter: %s", strconv.Quote(d.m.id), reason)
	}
	d.w.count(countUnreadable)
	d.w.acknowledged(d.m)
	return nil
}
