package worker_test

import (
	"context"
	"errors"
	"fmt"
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

// away is an unavailable stage memory with that error.
type away struct{ error }

func (a away) Put(context.Context, string, []byte) error               { return a }
func (a away) Get(context.Context, string) ([]byte, error)             { return nil, a }
func (a away) List(context.Context, string) (map[string][]byte, error) { return nil, a }
func (a away) Check(context.Context) error                             { return a }
func (a away) Unwrap() error                                           { return a.error }

// Steps need not handle it: they may return this or any other error. If the bus does not answer, the time in the process file does not
// apply: it is meant for failures of external systems.
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
			for after, err := range map[time.Duration]error{
				0:               errors.New("the memory is full"),
				5 * time.Second: fmt.Errorf("open the bucket: %w", context.DeadlineExceeded),
			} {
				r := worker.Execute(t.Context(), step(run), worker.Execution{Command: command("Test_Step"), Memory: away{err}})
				if r.Outcome != event.OutcomeRetry || r.RetryAfter != after || r.Error == nil || !strings.Contains(r.Error.Message, err.Error()) {
					t.Errorf("%s after %s with %+v, want a retry after %s with the reason", r.Outcome, r.RetryAfter, r.Error, after)
				}
			}
		})
	}
}
