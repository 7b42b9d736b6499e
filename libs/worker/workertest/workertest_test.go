package workertest_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// poll is a step that waits once and then succeeds.
type poll struct {
	t    *testing.T
	seen []worker.Operation
}

func (*poll) Name() string { return "Poll" }

func (p *poll) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	p.seen = append(p.seen, op)
	remembered, err := op.Recall(ctx, "token")
	p.t.Logf("attempt %d recalls %q, %v", op.StepAttempt, remembered, err)
	if op.StepAttempt == 1 {
		if string(remembered) != "x" {
			p.t.Errorf("the first attempt recalls %q, %v", remembered, err)
		}
		return worker.Wait(op, time.Minute, "not yet")
	}
	if err == nil {
		p.t.Error("a repeated stage still has the memory of the previous attempt")
	}
	op.Remember("token", []byte("y"))
	return op, 0, nil
}

func TestThenIsTheOperationAsItGoesOn(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	step := &poll{t: t}
	waits := workertest.Run(t, step, workertest.Operation{Now: now, Remembered: map[string][]byte{"token": []byte("x")}})
	if waits.Outcome != event.OutcomeRetry || waits.Message != "not yet" {
		t.Fatalf("outcome %q with message %q", waits.Outcome, waits.Message)
	}
	done := workertest.Run(t, step, waits.Then())
	if done.Outcome != event.OutcomeSucceeded || string(done.Remembered["token"]) != "y" {
		t.Errorf("outcome %q, remembered %q", done.Outcome, done.Remembered)
	}
	first, second := step.seen[0], step.seen[1]
	if second.StageAttempt != 2 || second.StepAttempt != 2 || first.ID != second.ID {
		t.Errorf("second try: stage attempt %d, step attempt %d", second.StageAttempt, second.StepAttempt)
	}
	if !first.FirstTriedAt.Equal(now) || !second.FirstTriedAt.Equal(now) {
		t.Errorf("first tried at %s, then %s: want %s both times", first.FirstTriedAt, second.FirstTriedAt, now)
	}
	if wait := second.ExecuteBefore.Sub(first.ExecuteBefore); wait != time.Minute {
		t.Errorf("the second try is %s later, want a minute", wait)
	}
}

// A step that waits for an event sees it with its next try, and again after a failed try.
// purposeful is a step that records its operation.
type purposeful struct{ seen worker.Operation }

func (*purposeful) Name() string { return "Purposeful" }

func (p *purposeful) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	p.seen = op
	return op, 0, nil
}

func TestRun_Operation_HasAllMembers(t *testing.T) {
	t.Parallel()
	for _, operation := range []reflect.Type{reflect.TypeFor[worker.Operation](), reflect.TypeFor[workertest.Operation]()} {
		for _, member := range reflect.VisibleFields(reflect.TypeFor[event.Operation]()) {
			_, isField := operation.FieldByName(member.Name)
			_, isMethod := operation.MethodByName(member.Name)
			if !isField && !isMethod {
				t.Errorf("%s has no %s", operation, member.Name)
			}
		}
	}
	step := &purposeful{}
	workertest.Run(t, step, workertest.Operation{Purpose: event.PurposeExpiry})
	if step.seen.Purpose != event.PurposeExpiry {
		t.Errorf("the step sees the purpose %q", step.seen.Purpose)
	}
}

func TestRun_Event_ComesWithTheNextTry(t *testing.T) {
	t.Parallel()
	step := worker.NewStep("Approval", "", func(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
		switch {
		case op.Event == nil:
			return worker.WaitForEvent(op, "approval."+op.ID, time.Minute, "")
		case op.StepAttempt == 2:
			return worker.Retry(op, time.Second, errors.New("503"))
		case string(op.Event.Data) != `{"approved":true}`:
			return worker.Fail(op, nil)
		}
		return op, 0, nil
	}, worker.Description{})
	first := workertest.Run(t, step, workertest.Operation{})
	second := workertest.Run(t, step, first.ThenEvent(t, map[string]bool{"approved": true}))
	third := workertest.Run(t, step, second.Then())
	if got := []event.Outcome{first.Outcome, second.Outcome, third.Outcome}; !slices.Equal(got, []event.Outcome{event.OutcomeRetry, event.OutcomeRetry, event.OutcomeSucceeded}) {
		t.Errorf("outcomes %v", got)
	}
	if again := workertest.Run(t, step, first.Then()); again.EventKey == "" {
		t.Error("the fallback poll sees an event")
	}
}
