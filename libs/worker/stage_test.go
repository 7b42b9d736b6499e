package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

func remembering() worker.Step {
	return named("Remember", func(_ context.Context, op operation) (operation, time.Duration, error) {
		op.Remember("kubeconfig", []byte("s3cret"))
		op.SetOverrides("btp", []worker.Override{{Key: "k", Value: "v", Secret: true}})
		return op, 0, nil
	})
}

func TestStageMemory_OtherProcess_ReadsIt(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	first := command("Remember")
	w := o.start([]worker.Step{remembering()})
	o.send(first)
	if r := o.next(); r.Type != event.TypeStepSucceeded || !r.StageMemory {
		t.Fatalf("%s with stage memory %v", r.Type, r.StageMemory)
	}
	require.NoError(t, w.stop())

	o.start([]worker.Step{named("Recall", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		value, err := op.Recall(ctx, "kubeconfig")
		if err != nil || string(value) != "s3cret" {
			t.Errorf("recall: %q, %v", value, err)
		}
		overrides, err := op.Overrides(ctx)
		want := []worker.ComponentOverrides{{Component: "btp", Entries: []worker.Override{{Key: "k", Value: "v", Secret: true}}}}
		if diff := cmp.Diff(want, overrides); diff != "" || err != nil {
			t.Errorf("overrides (-want +got):\n%s%v", diff, err)
		}
		return op, 0, err
	})})
	second := command("Recall")
	second.Operation, second.StageMemory = first.Operation, true
	o.send(second)
	if r := o.next(); r.Type != event.TypeStepSucceeded || r.StageMemory {
		t.Errorf("%s with stage memory %v, want a success without stage memory", r.Type, r.StageMemory)
	}
	o.settled()
}

func TestStageMemory_BusRestarts_StageIsLost(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	first := command("Remember")
	o.start([]worker.Step{
		remembering(),
		named("Recall", func(ctx context.Context, op operation) (operation, time.Duration, error) {
			_, err := op.Recall(ctx, "kubeconfig")
			return op, 0, err
		}),
	})
	o.send(first)
	o.next()
	o.nats.Restart(t)
	for i, step := range []string{"Recall", "Remember"} {
		c := command(step)
		c.Operation, c.StageMemory, c.Cursor = first.Operation, true, first.Cursor+int64(i)+1
		o.send(c)
		if r := o.next(); r.Type != event.TypeStageLost || r.Step != step {
			t.Errorf("%s of %s, want the loss of the stage", r.Type, r.Step)
		}
	}
	again := command("Remember")
	again.Operation, again.StageAttempt, again.Cursor = first.Operation, 2, first.Cursor+10
	o.send(again)
	if r := o.next(); r.Type != event.TypeStepSucceeded || !r.StageMemory {
		t.Errorf("%s with stage memory %v: want the next attempt of the stage to work", r.Type, r.StageMemory)
	}
	o.settled()
}
