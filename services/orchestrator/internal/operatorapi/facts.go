package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Facts publishes facts again.
type Facts interface {
	// ReplayFacts publishes facts that occurred at a time or later, for a few seconds. It starts with the operation after the given one.
	// next is the position for the next call; empty when there are no more facts.
	ReplayFacts(ctx context.Context, since time.Time, behind string) (published int, next string, err error)
}

// replayFacts publishes some facts again. The body is {"since": a time, "next": the value of the previous answer}.
func (a *API) replayFacts(r *http.Request) (any, error) {
	var body operator.Replay
	if err := decode(r, maxBody, `"since", a time such as 2026-11-21T22:00:00Z, and "next"`, &body); err != nil {
		return nil, err
	}
	switch {
	case body.Since.IsZero():
		return nil, badRequest(errors.New("since: must be a time such as 2026-11-21T22:00:00Z"))
	case body.Since.After(a.deps.Now()):
		return nil, badRequest(errors.New("since: must not be in the future"))
	}
	if _, err := uuid.Parse(body.Next); body.Next != "" && err != nil {
		return nil, badRequest(errors.New("next: must be the value of an earlier answer"))
	}
	note(r.Context(), func(a *store.Action) { a.Target, a.Detail = body.Next, "since "+body.Since.UTC().Format(time.RFC3339) })
	n, next, err := a.deps.Facts.ReplayFacts(r.Context(), body.Since, body.Next)
	if err != nil {
		return nil, err
	}
	return operator.ReplayAnswer{Published: n, Next: next}, nil
}
