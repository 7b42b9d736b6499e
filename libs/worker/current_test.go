package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func ref(c event.StepExecute) event.CommandRef {
	return event.CommandRef{OperationID: c.Operation.ID, Cursor: c.Cursor}
}

var byCommand = cmpopts.SortSlices(func(a, b event.CommandRef) bool { return a.OperationID < b.OperationID })

// sendAgain sends commands that another process has received without acknowledging them.
func (o *orchestrator) sendAgain(commands ...event.StepExecute) {
	o.t.Helper()
	ctx := o.t.Context()
	require.NoError(o.t, o.bus.EnsureConsumer(ctx, event.CommandsConsumer(workerName)))
	o.send(commands...)
	c, err := o.bus.JetStream().Consumer(ctx, string(event.StreamCommands), workerName)
	require.NoError(o.t, err)
	batch, err := c.Fetch(len(commands), jetstream.FetchMaxWait(soon))
	require.NoError(o.t, err)
	var taken []jetstream.Msg
	for m := range batch.Messages() {
		taken = append(taken, m)
	}
	if len(taken) != len(commands) || batch.Error() != nil {
		o.t.Fatalf("%d of %d commands are taken, %v", len(taken), len(commands), batch.Error())
	}
	for _, m := range taken {
		require.NoError(o.t, m.Nak())
	}
}

// A command that another process received, and may have answered, is executed only if it is still current.
func TestRedelivery_Current_IsExecuted(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	current, outdated, fresh := command("Step"), command("Step"), command("Step")
	o.say(func(context.Context, []event.CommandRef) ([]event.CommandRef, error) {
		return []event.CommandRef{ref(current), ref(fresh), {OperationID: "another", Cursor: 1}}, nil
	})
	o.sendAgain(current, outdated)
	w := o.start([]worker.Step{noop("Step")})
	o.send(fresh)
	got := []event.CommandRef{}
	for range 2 {
		r := o.next()
		got = append(got, event.CommandRef{OperationID: r.OperationID, Cursor: r.Cursor})
	}
	if diff := cmp.Diff([]event.CommandRef{ref(current), ref(fresh)}, got, byCommand); diff != "" {
		t.Errorf("executed (-want +got):\n%s", diff)
	}
	o.settled()
	o.noResult()
	if n := w.metric("keb_worker_commands_ignored_total", "reason=outdated"); n != 1 {
		t.Errorf("%g commands are counted as outdated, want 1", n)
	}
	var asked []event.CommandRef
	for _, q := range o.questions() {
		asked = append(asked, q...)
	}
	if diff := cmp.Diff([]event.CommandRef{ref(current), ref(outdated)}, asked, byCommand); diff != "" {
		t.Errorf("asked about, once each (-want +got):\n%s", diff)
	}
}

// A server that lost its power delivers answered commands as if for the first time. They are from before the connection.
func TestRedelivery_CountLost_IsExecutedOnlyIfCurrent(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	current, outdated := command("Step"), command("Step")
	o.say(func(context.Context, []event.CommandRef) ([]event.CommandRef, error) {
		return []event.CommandRef{ref(current)}, nil
	})
	require.NoError(t, o.bus.EnsureConsumer(t.Context(), event.CommandsConsumer(workerName)))
	o.send(current, outdated)
	w := o.start([]worker.Step{noop("Step")})
	if r := o.next(); (event.CommandRef{OperationID: r.OperationID, Cursor: r.Cursor}) != ref(current) {
		t.Errorf("executed %+v, want the current command", r)
	}
	o.settled()
	o.noResult()
	if n := w.metric("keb_worker_commands_ignored_total", "reason=outdated"); n != 1 {
		t.Errorf("%g commands are counted as outdated, want 1", n)
	}
}

func TestRedelivery_NoAnswer_IsNotExecuted(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]func(o *orchestrator){
		"no orchestrator": func(o *orchestrator) { o.stopAnswers() },
		"no answer in time": func(o *orchestrator) {
			o.say(func(ctx context.Context, _ []event.CommandRef) ([]event.CommandRef, error) {
				<-ctx.Done() // the worker no longer waits
				return nil, ctx.Err()
			})
		},
		"a refusal": func(o *orchestrator) {
			o.say(func(context.Context, []event.CommandRef) ([]event.CommandRef, error) {
				return nil, errors.New("the operations cannot be read now")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrchestrator(t)
			g := newGate("Step")
			close(g.release)
			late := command("Step")
			late.ExecuteBefore = time.Now().Add(2*time.Second - worker.ExtendedFor) // it may have been extended
			o.sendAgain(command("Step"), late)
			silence(o)
			w := o.start([]worker.Step{g.step(), noop("Other")})
			o.send(command("Other"))
			if r := o.next(); r.Step != "Other" {
				t.Errorf("%s is executed", r.Step)
			}
			testkit.Eventually(t, soon, "it is redelivered, and the late one is dropped", func() bool {
				return w.metric("keb_worker_commands_ignored_total", "reason=unchecked") >= 3 &&
					w.metric("keb_worker_commands_ignored_total", "reason=late") == 1
			})
			if n := g.runs.Load(); n != 0 {
				t.Fatalf("the step ran %d times without confirmation that the command is current", n)
			}
			o.stopAnswers()
			o.answerCurrent()
			o.next()
			o.settled()
			o.noResult()
		})
	}
}

func TestRedelivery_WorkerStops_IsReturned(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	o.say(func(ctx context.Context, _ []event.CommandRef) ([]event.CommandRef, error) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	again := command("Step")
	o.sendAgain(again)
	g := newGate("Step")
	// The question has as long as slotPatience, so the stop precedes its end even on a slow machine.
	w := o.start([]worker.Step{g.step()}, ackWait(3*time.Minute), func(_ *worker.Config, _ *worker.Deps, w *worker.Worker) {
		if w != nil {
			worker.SetSlotPatience(w, time.Minute)
		}
	})
	receive(t, "the worker asks", asked)
	if err := w.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	// Unconfirmed commands are redelivered after a second.
	if n := w.metric("keb_worker_commands_ignored_total", "reason=unchecked"); n != 0 || g.runs.Load() != 0 {
		t.Errorf("of one command %g are returned with a delay and %d executed, want none", n, g.runs.Load())
	}
	close(answer)
	o.say(everyOne)
	o.start([]worker.Step{noop("Step")})
	if r := o.next(); r.OperationID != again.Operation.ID {
		t.Errorf("a result for %s, want %s", r.OperationID, again.Operation.ID)
	}
	o.settled()
}

func TestRedelivery_Question_FitsMessage(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	refs := make([]event.CommandRef, 2*event.MaxCurrent+1)
	for i := range refs {
		refs[i] = event.CommandRef{OperationID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Cursor: int64(i + 1)}
	}
	o.say(func(_ context.Context, commands []event.CommandRef) ([]event.CommandRef, error) {
		if len(commands) > event.MaxCurrent {
			return nil, errors.New("too many")
		}
		return commands[1:], nil
	})
	w, err := worker.New(worker.Config{Name: workerName}, worker.Deps{Bus: o.bus, Log: testkit.Logger(t)}, noop("Step"))
	require.NoError(t, err)
	answers := worker.AskCurrent(t.Context(), w, soon, refs)
	current := 0
	for _, is := range answers {
		if is {
			current++
		}
	}
	if len(answers) != len(refs) || current != len(refs)-3 || len(o.questions()) != 3 {
		t.Errorf("%d answers with %d current ones to %d questions: want %d, %d and 3", len(answers), current, len(o.questions()), len(refs), len(refs)-3)
	}
}
