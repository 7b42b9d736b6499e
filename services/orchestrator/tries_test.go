package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// Each try of a step shows the data that its worker could read then, and what it changed; secrets are masked.
func TestTries_Step_ShowInputAndResult(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	tries := 0
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if tries++; tries == 1 {
			require.NoError(t, op.SaveDetails(map[string]any{"id": "one", "apiToken": "secret-canary", "nested": map[string]int{"a": 1}}))
			return worker.Wait(op, time.Millisecond, "creating")
		}
		require.NoError(t, op.SaveDetails(map[string]any{"id": "two", "nested": nil}))
		return op, 0, nil
	})
	s.start()
	op := operation(event.Provision, "i-1", "azure")
	op.Parameters = json.RawMessage(`{"name":"demo","password":"order-canary"}`)
	op.Credentials = []string{event.CredentialsServiceManager}
	s.request(op)
	s.await(op, event.Succeeded)

	var shown operator.OperationDetail
	s.get("/operations/"+op.ID, &shown)
	var lines []operator.HistoryLine
	for _, l := range shown.History {
		if l.Step == "First" {
			lines = append(lines, l)
		}
	}
	require.Len(t, lines, 2)
	var first, second operator.Try
	path := "/operations/" + op.ID + "/tries/"
	s.get(fmt.Sprint(path, lines[0].Cursor), &first)
	s.get(fmt.Sprint(path, lines[1].Cursor), &second)
	require.Equal(t, "First", first.Step)
	require.True(t, first.Sent.DetailsRecorded)
	require.Empty(t, first.Sent.Details)
	require.Equal(t, []string{event.CredentialsServiceManager}, first.Sent.Credentials)
	require.JSONEq(t, `{"name":"demo","password":"[redacted]"}`, string(first.Sent.Parameters))
	require.Equal(t, "retry", first.Answer.Outcome)
	require.EqualValues(t, 1, first.Answer.RetryAfterMS)
	require.JSONEq(t, `{"id":"one","apiToken":"[redacted]","nested":{"a":1}}`, string(first.Answer.Saved))
	require.JSONEq(t, `{"alpha":{"id":"one","apiToken":"[redacted]","nested":{"a":1}}}`, string(second.Sent.Details))
	require.JSONEq(t, `{"id":"two","nested":null}`, string(second.Answer.Saved))
	require.Zero(t, second.Answer.RetryAfterMS)
	for _, l := range lines {
		require.NotContains(t, s.body(fmt.Sprint(path, l.Cursor)), "canary")
	}
	for line, want := range map[string]int{"1": http.StatusNotFound, "x": http.StatusBadRequest, operator.TryRunning: http.StatusNotFound} {
		s.must(want, http.MethodGet, path+line, nil, nil)
	}
}

func TestTries_Running_ShowsInput(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.script.set("First", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		<-ctx.Done()
		return op, 0, ctx.Err()
	})
	s.start()
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	testkit.Eventually(t, patience, "the step runs", func() bool {
		return strings.Contains(s.body("/operations/"+op.ID+"/tries/"+operator.TryRunning), `"sent"`)
	})
	var try operator.Try
	s.get("/operations/"+op.ID+"/tries/"+operator.TryRunning, &try)
	require.Equal(t, "First", try.Step)
	require.Nil(t, try.Answer)
	require.NotZero(t, try.Sent.ExecutionMS)
}

// A retry from a step leaves out the steps before it. If a step needs what they shared in the stage memory, which is deleted, the stage starts
// at its first step, on a real bus, too.
func TestRetry_FromStep_StartsTheStageIfMemoryIsNeeded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		needs bool
		first int
	}{{"unused", false, 1}, {"used", true, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				op.Remember("token", []byte("x"))
				return op, 0, nil
			})
			s.script.set("Poll", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				return op, 0, errors.New("the system is down")
			})
			s.start()
			op := operation(event.Provision, "i-1", "azure")
			s.request(op)
			s.await(op, event.Failed)
			s.script.set("Poll", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				if !c.needs {
					return op, 0, nil
				}
				_, err := op.Recall(ctx, "token")
				return op, 0, err
			})
			path := "/operations/" + op.ID + "/retry"
			code, text := s.post(path, `{"stage":"create","step":"Poll","dryRun":true}`)
			require.Equal(t, http.StatusOK, code, text)
			var preview operator.RetryPreview
			require.NoError(t, json.Unmarshal([]byte(text), &preview))
			require.True(t, preview.LosesMemory)
			require.Equal(t, "Poll", preview.Steps[0].Step)
			require.NotNil(t, preview.Sent)
			for body, want := range map[string]int{
				`{"step":"Poll"}`: http.StatusBadRequest, `{"stage":"create","step":"Last"}`: http.StatusConflict, `{"stage":"finish","step":"Last"}`: http.StatusConflict,
			} {
				code, text := s.post(path, body)
				require.Equal(t, want, code, text)
			}
			code, text = s.post(path, `{"stage":"create","step":"Poll"}`)
			require.Equal(t, http.StatusNoContent, code, text)
			s.await(op, event.Succeeded)
			require.Equal(t, c.first, s.script.count("First"), s.history(op.ID))
		})
	}
}
