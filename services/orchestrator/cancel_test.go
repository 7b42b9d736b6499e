package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// blocking returns a step that saves an id, reports its start, waits until its context ends, and reports the cause.
func blocking() (step behaviour, started chan struct{}, ended chan error) {
	started, ended = make(chan struct{}, 100), make(chan error, 100)
	return func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if err := op.SaveDetails(map[string]string{"id": "made"}); err != nil {
			return op, 0, err
		}
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return op, 0, ctx.Err()
	}, started, ended
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: did not happen", what)
	}
	panic("unreachable")
}

// checkCancelled checks that a step is cancelled. Without the notice, its context would end with its execution limit, and with that cause.
func (s *system) checkCancelled(asked time.Time, reason string, ended <-chan error) {
	s.t.Helper()
	cause := receive(s.t, "the context of the step ends", ended)
	s.t.Logf("the context ended %s after the cancel", time.Since(asked))
	if !errors.Is(cause, worker.ErrCancelled) || !strings.Contains(cause.Error(), reason) {
		s.t.Errorf("cause %v, want worker.ErrCancelled because of %q", cause, reason)
	}
}

func TestCancel_BlockingStep_EndsItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		cancel func(s *system, op event.Operation)
		reason string
		want   event.OperationState
	}{
		"by operator": {func(s *system, op event.Operation) {
			if code, text := s.post("/operations/"+op.ID+"/cancel", "{}"); code != http.StatusNoContent {
				s.t.Errorf("cancel: %d %s", code, text)
			}
		}, "cancelled by", event.Cancelled},
		"by deprovisioning": {func(s *system, op event.Operation) {
			s.request(operation(event.Deprovision, op.InstanceID, "azure"))
		}, "preempted by deprovisioning", event.Cancelled},
		"by skip": {func(s *system, op event.Operation) {
			if code, text := s.post("/operations/"+op.ID+"/skip", `{"step":"Change"}`); code != http.StatusNoContent {
				s.t.Errorf("skip: %d %s", code, text)
			}
		}, "skipped by", event.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			s.start()
			step, started, ended := blocking()
			s.script.set("Change", step)
			op := operation(event.Update, "i-1", "azure")
			s.request(op)
			receive(t, "the step starts", started)
			asked := time.Now()
			c.cancel(s, op)
			s.checkCancelled(asked, c.reason, ended)
			s.await(op, c.want)
			if c.want == event.Cancelled {
				if details := s.details(op.ID); details["alpha"]["id"] != "made" {
					t.Errorf("details %v, want those of the cancelled step", details)
				}
			}
		})
	}
}

// details returns the saved data of an operation.
func (s *system) details(id string) (details map[string]map[string]string) {
	s.t.Helper()
	var raw []byte
	require.NoError(s.t, s.db.Get(&raw, `SELECT details FROM orchestrator.operations WHERE id = $1`, id))
	require.NoError(s.t, json.Unmarshal(raw, &details))
	return details
}
