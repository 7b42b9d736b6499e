package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

const canary = "canary-4711-secret"

// trusted is an operation whose steps receive the canary.
func trusted() workertest.Operation {
	return workertest.Operation{Credentials: map[string]any{
		event.CredentialsServiceManager: map[string]string{"clientsecret": canary, "url": "https://sm.example.com/token"},
	}}
}

func TestRedact_SecretsInResult_AreRemoved(t *testing.T) {
	t.Parallel()
	claim := func(ctx context.Context, op operation) error {
		var credentials map[string]string
		return op.ClaimCredentials(ctx, event.CredentialsServiceManager, &credentials)
	}
	for _, c := range []struct {
		name string
		end  func(op operation) (operation, time.Duration, error)
	}{
		{"in an error", func(op operation) (operation, time.Duration, error) {
			return op, 0, fmt.Errorf("Post https://sm.example.com/token?secret=%s: refused", canary)
		}},
		{"in a typed error", func(op operation) (operation, time.Duration, error) {
			return worker.Fail(op, &worker.Error{Component: "btp", Reason: canary, Message: "it was " + canary})
		}},
		{"in the cause of a retry", func(op operation) (operation, time.Duration, error) {
			return worker.Retry(op, time.Second, errors.New(canary))
		}},
		{"in a message", func(op operation) (operation, time.Duration, error) {
			return worker.Wait(op, time.Second, "waiting with "+canary)
		}},
		{"in a panic", func(operation) (operation, time.Duration, error) { panic("at " + canary) }},
		{"cut in the middle", func(op operation) (operation, time.Duration, error) {
			return op, 0, errors.New(strings.Repeat("x", 4<<10-15) + canary + strings.Repeat("y", 100))
		}},
		{"in the details", func(op operation) (operation, time.Duration, error) {
			return op, 0, op.SaveDetails(map[string]any{"nested": []string{"a " + canary}})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := workertest.Run(t, step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
				if err := claim(ctx, op); err != nil {
					return op, 0, err
				}
				return c.end(op)
			}), trusted())
			raw, err := json.Marshal(r)
			require.NoError(t, err)
			for n := len(canary); n >= 10; n-- {
				if strings.Contains(string(raw), canary[:n]) {
					t.Fatalf("the result contains %q", canary[:n])
				}
			}
			if c.name == "in the details" && (r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, `"nested" holds a secret`)) {
				t.Errorf("outcome %s, error %+v; want a failure that names the member", r.Outcome, r.Error)
			}
			if c.name == "in an error" && !strings.Contains(r.Error.Message, "https://sm.example.com/token?secret=[redacted]: refused") {
				t.Errorf("error %q has lost more than the secret", r.Error.Message)
			}
		})
	}
}

// A credential that the SDK does not know is found by its form, which it loses if the text is cut before.
func TestRedact_CredentialAtTheLimit_IsRemoved(t *testing.T) {
	t.Parallel()
	token := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		return op, 0, errors.New(strings.Repeat("x ", 2<<10-15) + token)
	}), workertest.Operation{})
	require.NotContains(t, r.Error.Message, token[:12])
	require.LessOrEqual(t, len(r.Error.Message), 4<<10)
}

// A step that fails because of its details has not changed the stage memory.
func TestRedact_SecretInDetails_WritesNoMemory(t *testing.T) {
	t.Parallel()
	r := workertest.Run(t, step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
		var credentials map[string]string
		if err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &credentials); err != nil {
			return op, 0, err
		}
		op.Remember("key", []byte("value"))
		return op, 0, op.SaveDetails(map[string]any{"secret": canary})
	}), trusted())
	require.Equal(t, event.OutcomeFailed, r.Outcome)
	require.Empty(t, r.Remembered)
}

// A goroutine that a step leaves behind does not change the result while it is written.
func TestRemember_AfterRun_HasNoEffect(t *testing.T) {
	t.Parallel()
	var left operation
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		left = op
		op.Remember("key", []byte("value"))
		return op, 0, nil
	}), workertest.Operation{})
	left.Remember("key", []byte("other"))
	left.SetOverrides("btp", []worker.Override{{Key: "a", Value: "b"}})
	_, err := left.Recall(t.Context(), "late")
	require.Error(t, err)
	value, err := left.Recall(t.Context(), "key")
	require.NoError(t, err)
	require.Equal(t, "value", string(value))
	require.Equal(t, map[string][]byte{"key": []byte("value")}, r.Remembered)
}

func TestRedact_StageMemorySecrets_AreRemoved(t *testing.T) {
	t.Parallel()
	kubeconfig := "apiVersion: v1\nusers:\n- name: admin\n  user:\n    token: eyJhbGciOiJSUzI1NiJ9.canary.signature\n"
	op := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		op.Remember("kubeconfig", []byte(kubeconfig))
		op.SetOverrides("btp", []worker.Override{{Key: "secret", Value: canary, Secret: true}, {Key: "plain", Value: "not a secret"}})
		return op, 0, nil
	}), workertest.Operation{}).Then()
	r := workertest.Run(t, step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
		if _, err := op.Recall(ctx, "kubeconfig"); err != nil {
			return op, 0, err
		}
		if _, err := op.Overrides(ctx); err != nil {
			return op, 0, err
		}
		return op, 0, fmt.Errorf("%s and %s and not a secret and eyJhbGciOiJSUzI1NiJ9.canary.signature", kubeconfig, canary)
	}), op)
	if m := r.Error.Message; strings.Contains(m, "canary") || !strings.Contains(m, "not a secret") {
		t.Errorf("error is %q", m)
	}
}
