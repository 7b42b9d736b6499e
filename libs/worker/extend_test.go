package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// grant answers requests for more time.
func (o *orchestrator) grant(answer func(q event.ExtendRequest) (time.Time, error)) {
	o.t.Helper()
	stop, err := o.bus.Answer(event.AskExtendAs(workerName), "orchestrator", func(_ context.Context, raw []byte) (any, error) {
		var q event.ExtendRequest
		if err := json.Unmarshal(raw, &q); err != nil {
			return nil, err
		}
		until, err := answer(q)
		return event.ExtendAnswer{ExecuteBefore: until}, err
	})
	require.NoError(o.t, err)
	o.t.Cleanup(stop)
}

// extending is a step that asks for more time and then runs until it is released or its time is over.
func extending(d time.Duration, extended chan<- time.Time, release <-chan struct{}) worker.Step {
	return named("Extending", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		// A context that was derived before must live on, too.
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		until, err := op.ExtendExecution(ctx, d)
		if err != nil {
			return op, 0, err
		}
		extended <- until
		select {
		case <-release:
			return op, 0, errors.Join(ctx.Err(), derived.Err())
		case <-derived.Done():
			return op, 0, context.Cause(derived)
		}
	})
}

func TestExtend_RunningStep_OutlivesItsFirstLimit(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	limit := time.Now().Add(time.Minute).UTC()
	var asked atomic.Pointer[event.ExtendRequest]
	o.grant(func(q event.ExtendRequest) (time.Time, error) {
		asked.Store(&q)
		return limit, nil
	})
	extended, release := make(chan time.Time, 1), make(chan struct{})
	w := o.start([]worker.Step{extending(90*time.Second, extended, release), noop("Other")}, overdueGrace(0), ackWait(time.Second))
	c := hanging("Extending")
	o.send(c)
	if until := receive(t, "the step has more time", extended); !until.Equal(limit) {
		t.Errorf("granted until %s, want %s", until, limit)
	}
	if q := asked.Load(); q.CommandRef != ref(c) || q.Seconds != 90 {
		t.Errorf("the request is %+v, want 90 seconds for %+v", q, ref(c))
	}
	testkit.Eventually(t, soon, "the first limit and an ack wait have passed", func() bool { return time.Now().After(c.ExecuteBefore.Add(2500 * time.Millisecond)) })
	if n := w.metric("keb_worker_steps_abandoned"); n != 0 {
		t.Errorf("%v steps are abandoned, want none: it has more time", n)
	}
	if n := o.consumer().NumRedelivered; n != 0 {
		t.Errorf("the command was redelivered %d times, want never: its step runs", n)
	}
	close(release)
	if r := o.next(); r.Type != event.TypeStepSucceeded {
		t.Errorf("%s with %+v, want a success after the first limit", r.Type, r.Error)
	}
	o.settled()
}

func TestExtend_ExtendedLimit_EndsTheStep(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	limit := time.Now().Add(2 * time.Second)
	o.grant(func(event.ExtendRequest) (time.Time, error) { return limit, nil })
	o.start([]worker.Step{extending(time.Minute, make(chan time.Time, 1), nil)})
	o.send(hanging("Extending"))
	if r := o.next(); r.Type != event.TypeStepRetry || r.Error == nil || r.Error.Reason != worker.ReasonTimeout || r.StartedAt.Add(time.Second).After(r.FinishedAt) {
		t.Errorf("%s with %+v after %s, want a retry at the extended limit", r.Type, r.Error, r.FinishedAt.Sub(r.StartedAt))
	}
}

func TestExtend_Refusal_KeepsTheLimit(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	o.grant(func(event.ExtendRequest) (time.Time, error) {
		return time.Time{}, errors.New("no more time: the budget is spent")
	})
	o.start([]worker.Step{named("Refused", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		_, err := op.ExtendExecution(ctx, time.Minute)
		if err == nil || !strings.Contains(err.Error(), "the budget is spent") {
			return op, 0, fmt.Errorf("the error is %w", err)
		}
		<-ctx.Done()
		return op, 0, ctx.Err()
	})})
	o.send(hanging("Refused"))
	if r := o.next(); r.Type != event.TypeStepRetry || r.Error == nil || r.Error.Reason != worker.ReasonTimeout {
		t.Errorf("%s with %+v, want a retry at the limit of the command", r.Type, r.Error)
	}
}

// The worker was killed after its step had asked for more time. The message still has the first limit, which has passed.
func TestRedelivery_ExtendedCommand_IsExecuted(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	extended, other, late := command("Step"), command("Step"), command("Step")
	for _, c := range []*event.StepExecute{&extended, &other, &late} {
		c.ExecuteBefore = time.Now().Add(-time.Minute).UTC()
	}
	limit := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	o.mu.Lock()
	o.extended = []event.Extended{
		{CommandRef: ref(extended), Dispatch: 1, ExecuteBefore: limit},
		{CommandRef: ref(other), Dispatch: 2, ExecuteBefore: limit}, // its copy is elsewhere
	}
	o.mu.Unlock()
	o.sendAgain(extended, other, late)
	seen := make(chan time.Time, 1)
	w := o.start([]worker.Step{named("Step", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		seen <- op.ExecuteBefore
		return op, 0, ctx.Err()
	})})
	if r := o.next(); r.OperationID != extended.Operation.ID || r.Type != event.TypeStepSucceeded {
		t.Errorf("%s of %s, want a success of the extended one", r.Type, r.OperationID)
	}
	if got := receive(t, "the step has run", seen); !got.Equal(limit) {
		t.Errorf("its limit is %s, want %s", got, limit)
	}
	o.settled()
	o.noResult()
	if n := w.metric("keb_worker_commands_ignored_total", "reason=late"); n != 2 {
		t.Errorf("%v commands are dropped as late, want 2", n)
	}
}

func TestExtend_Workertest_GrantsUpToTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pause := func(ctx context.Context, d time.Duration) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		step := worker.NewStep("Long", "", func(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
			for range 4 {
				until, err := op.ExtendExecution(ctx, 10*time.Minute)
				if err != nil {
					return op, 0, err
				}
				if deadline, ok := ctx.Deadline(); !ok || deadline.Sub(until).Abs() > time.Millisecond {
					return op, 0, fmt.Errorf("deadline %s after a grant until %s", deadline, until)
				}
				if err := pause(ctx, 5*time.Minute); err != nil {
					return op, 0, err
				}
			}
			return op, 0, nil
		}, worker.Description{})
		r := workertest.Run(t, step, workertest.Operation{})
		if r.Outcome != event.OutcomeSucceeded || len(r.Extensions) != 4 || r.Extensions[0] != 10*time.Minute {
			t.Errorf("%s (%+v) with the extensions %v", r.Outcome, r.Error, r.Extensions)
		}
		if r := workertest.Run(t, step, workertest.Operation{Budget: 12 * time.Minute}); r.Outcome != event.OutcomeRetry || r.Error.Reason != worker.ReasonTimeout {
			t.Errorf("%s (%+v), want a retry at the end of the budget", r.Outcome, r.Error)
		}
	})
}
