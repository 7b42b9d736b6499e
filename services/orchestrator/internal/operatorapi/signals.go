package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Signals stores events for operations, and delivers them.
type Signals interface {
	// Signal returns the number of new events; the others are repetitions.
	Signal(ctx context.Context, signals ...event.Signal) (added int, err error)
}

// sourcePrefix is the prefix of the source of events that come over HTTP. The name of the client follows.
const sourcePrefix = "/keb/client/"

// IsEvent reports whether a request sends an event to an operation.
func IsEvent(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/events/")
}

// receiveEvent stores an event for the operation that waits for its key. It is not recorded as an action, because events come as often as
// external systems send them; the history of the operation names the sender.
func (a *API) receiveEvent(r *http.Request) (any, error) {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, event.MaxSignalData))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("body: must have at most %d bytes", event.MaxSignalData)}
	} else if err != nil {
		return nil, badRequest(fmt.Errorf("body: cannot be read: %w", err))
	}
	s := event.Signal{
		Key: r.PathValue("key"), Source: sourcePrefix + url.PathEscape(caller(r.Context()).Name), ID: r.Header.Get("Ce-Id"), Data: data,
	}
	if s.ID == "" {
		s.ID = uuid.NewString()
	}
	if err := s.Validate(); err != nil {
		return nil, badRequest(err)
	}
	added, err := a.deps.Signals.Signal(r.Context(), s)
	switch {
	case errors.Is(err, store.ErrTooManySignals):
		return nil, &refusal{http.StatusServiceUnavailable, err}
	case err != nil:
		return nil, err
	}
	return accepted{operator.EventAnswer{Key: s.Key, Source: s.Source, ID: s.ID, Repeated: added == 0}}, nil
}
