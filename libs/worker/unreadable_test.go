package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
)

// An outdated keyring or a changed value makes an operation wait, and does not fail it.
func TestStageMemory_Unreadable_IsRetriedWithReason(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	recall := named("Recall", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		_, err := op.Recall(ctx, "kubeconfig")
		return op, 0, err
	})
	list := named("List", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		if _, err := op.Overrides(ctx); err != nil {
			return worker.Fail(op, &worker.Error{Message: "no overrides: " + err.Error()})
		}
		return op, 0, nil
	})
	o.start([]worker.Step{recall, list})
	first := command("Recall")
	scope := stagemem.Scope{OperationID: first.Operation.ID, Stage: first.Stage, StageAttempt: first.StageAttempt}
	others, err := seal.ParseKeyring("k2:" + seal.NewKey())
	require.NoError(t, err)
	ours, err := seal.ParseKeyring(oneKey)
	require.NoError(t, err)
	cursor := first.Cursor
	send := func(step string) result {
		t.Helper()
		c := command(step)
		cursor++
		c.Operation, c.StageMemory, c.Cursor = first.Operation, true, cursor
		o.send(c)
		return o.next()
	}
	memory := stagemem.New(o.bus.JetStream(), others)
	for _, key := range []string{"value.kubeconfig", "override.Remember.btp"} {
		require.NoError(t, memory.Put(t.Context(), scope, key, []byte("CANARY")))
	}
	for _, step := range []string{"Recall", "List"} {
		r := send(step)
		if r.Type != event.TypeStepRetry || r.Error == nil || !strings.Contains(r.Error.Message, `key id "k2"`) || strings.Contains(r.Error.Message, "CANARY") {
			t.Errorf("%s: %s with %+v, want a retry that names the key", step, r.Type, r.Error)
		}
	}
	// A value that is encrypted with the right key but stored under another key.
	good := stagemem.New(o.bus.JetStream(), ours)
	require.NoError(t, good.Put(t.Context(), scope, "value.other", []byte("CANARY")))
	kv, err := o.bus.JetStream().KeyValue(t.Context(), event.StageBucket)
	require.NoError(t, err)
	keys, err := kv.Keys(t.Context())
	require.NoError(t, err)
	var from, to string
	for _, key := range keys {
		if strings.HasSuffix(key, "other") {
			from = key
		}
		if strings.HasSuffix(key, "kubeconfig") {
			to = key
		}
	}
	moved, err := kv.Get(t.Context(), from)
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), to, moved.Value())
	require.NoError(t, err)
	if r := send("Recall"); r.Type != event.TypeStepRetry || r.Error == nil || !strings.Contains(r.Error.Message, "belongs to another owner") {
		t.Errorf("a value that was moved: %s with %+v, want a retry with the reason", r.Type, r.Error)
	}
}

// away is an unavailable stage memory.
type away struct{}

var errAway = errors.New("the bus is away")

func (away) Put(context.Context, string, []byte) error               { return errAway }
func (away) Get(context.Context, string) ([]byte, error)             { return nil, errAway }
func (away) List(context.Context, string) (map[string][]byte, error) { return nil, errAway }
func (away) Check(context.Context) error                             { return errAway }

// Steps need not handle it: they may return this or any other error.
func TestStageMemory_BrieflyUnavailable_FailsNoStep(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(ctx context.Context, op operation) (operation, time.Duration, error){
		"the error of Recall": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			_, err := op.Recall(ctx, "kubeconfig")
			return op, 0, err
		},
		"the error of Overrides": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			_, err := op.Overrides(ctx)
			return op, 0, err
		},
		"another error": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			if _, err := op.Recall(ctx, "kubeconfig"); err != nil {
				return worker.Fail(op, &worker.Error{Message: "no kubeconfig"})
			}
			return op, 0, nil
		},
		"what is to be remembered": func(_ context.Context, op operation) (operation, time.Duration, error) {
			op.Remember("kubeconfig", []byte("CANARY"))
			return op, 0, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := worker.Execute(t.Context(), step(run), worker.Execution{Command: command("Test_Step"), Memory: away{}})
			if r.Outcome != event.OutcomeRetry || r.Error == nil || !strings.Contains(r.Error.Message, "the bus is away") {
				t.Errorf("%s with %+v, want a retry with the reason", r.Outcome, r.Error)
			}
		})
	}
}
