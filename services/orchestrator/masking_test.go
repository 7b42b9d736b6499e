package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// leak is the error of a careless step.
const leak = "password=hunter2-canary at https://admin:pass-canary@edp.example.com/data with Authorization: Bearer token-canary"

// A worker with the SDK and one without it report credentials. They are in no row, no answer of the API and no fact.
func TestMasking_Credentials_AreNowhere(t *testing.T) {
	s := newSystem(t)
	var mu sync.Mutex
	var published strings.Builder
	sub, err := s.bus.NATS().Subscribe("keb.fact.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&published, "%s %v %s\n", m.Subject, m.Header, m.Data)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	tries := 0
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if tries++; tries == 1 {
			return worker.Retry(op, time.Millisecond, errors.New("the SDK says "+leak))
		}
		return worker.Wait(op, time.Hour, "the message says "+leak)
	})
	s.orchestrator()
	s.worker("alpha")
	sdk, bare := operation(event.Provision, "i-1", "azure"), operation(event.Deprovision, "i-2", "azure")
	s.request(sdk, bare)
	testkit.Eventually(t, patience, "the step of the worker without the SDK is next", func() bool {
		var next bool
		err := s.db.Get(&next, `SELECT coalesce(bool_or(stage = 2), false) FROM orchestrator.operations WHERE id = $1`, bare.ID)
		return err == nil && next
	})
	now, cursor := time.Now(), s.cursor(bare)
	id := event.DispatchID(bare.ID, cursor, 1)
	result, err := bus.New(event.TypeStepSkipped, id, event.WorkerSource("beta"), bare.ID, now, event.StepSkipped{
		Result: event.Result{
			OperationID: bare.ID, Cursor: cursor, Stage: "remove_second", Step: "Remove_Second", Worker: event.Worker{Name: "beta"},
			Message: "the bare message says " + leak, StartedAt: now, FinishedAt: now,
		},
		NotCompleted: true, Error: &event.Error{Component: "edp", Reason: "err " + leak, Message: "the bare error says " + leak},
	})
	require.NoError(t, err)
	require.NoError(t, s.bus.Publish(t.Context(), bus.Message{Subject: event.ResultSubject("beta", "Remove_Second"), ID: id, Event: result}))
	s.await(bare, event.Succeeded)
	testkit.Eventually(t, patience, "the message of the step is stored", func() bool {
		return strings.Contains(s.tables(), "the message says")
	})

	mu.Lock()
	facts := published.String()
	mu.Unlock()
	places := map[string]string{"the database": s.tables(), "the facts": facts}
	for _, path := range []string{
		"/operations", "/operations/" + sdk.ID, "/operations/" + bare.ID, "/overview", "/stuck", "/operations?not_completed=true",
	} {
		places["GET "+path] = s.body(path)
	}
	for place, text := range places {
		if strings.Contains(text, "-canary") {
			t.Errorf("%s contains a credential:\n%.3000s", place, text)
		}
	}
	for _, place := range []string{"the database", "the facts", "GET /operations/" + bare.ID} {
		if !strings.Contains(places[place], "the bare error says password=[redacted] at https://[redacted]@edp.example.com/data") {
			t.Errorf("%s lacks the rest of the error:\n%.3000s", place, places[place])
		}
	}
}

// tables returns all rows of the orchestrator's schema as text.
func (s *system) tables() string {
	s.t.Helper()
	var names []string
	require.NoError(s.t, s.db.Select(&names, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'orchestrator'`))
	var all strings.Builder
	for _, name := range names {
		var rows string
		require.NoError(s.t, s.db.Get(&rows, fmt.Sprintf(`SELECT coalesce(string_agg(t::text, E'\n'), '') FROM orchestrator.%q t`, name)))
		all.WriteString(rows + "\n")
	}
	return all.String()
}

// body returns an answer of the operator API.
func (s *system) body(path string) string {
	s.t.Helper()
	_, text := s.do(http.MethodGet, path, nil)
	return text
}
