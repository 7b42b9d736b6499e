package avs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// Statuses of an evaluation (docs/contracts/avs.md#statuses).
const (
	statusActive      = "ACTIVE"
	statusMaintenance = "MAINTENANCE"
	statusInactive    = "INACTIVE"
	statusRetired     = "RETIRED"
	statusDeleted     = "DELETED"
)

// watched is an evaluation with the status that it had before maintenance.
type watched struct {
	id int64
	// original is the saved status; empty means none.
	original string
	// member is the member of the details with the saved status.
	member string
	kind   kind
}

func (d Details) evaluations() []watched {
	list := []watched{
		{id: d.InternalID, original: d.InternalStatus, member: "internalStatus", kind: internal},
		{id: d.ExternalID, original: d.ExternalStatus, member: "externalStatus", kind: external},
	}
	return slices.DeleteFunc(list, func(w watched) bool { return w.id == 0 })
}

// restored returns the status after the maintenance.
func (w watched) restored() string {
	if slices.Contains([]string{statusActive, statusInactive, statusRetired}, w.original) {
		return w.original
	}
	return statusActive
}

// status returns the status of an evaluation; empty if it is missing.
func (c *client) status(ctx context.Context, id int64) (string, error) {
	got, err := c.get(ctx, id)
	if extclient.IsStatus(err, http.StatusNotFound) || got.Status == statusDeleted {
		return "", nil
	}
	return got.Status, err
}

// setStatus changes the status of an evaluation. A missing evaluation is no error.
func (c *client) setStatus(ctx context.Context, id int64, status string) error {
	return c.http.Do(ctx, extclient.Request{
		Method: http.MethodPut, Route: "/{id}/lifecycle", Params: params(id), Body: status,
		Accept: acceptedOrGone,
	}, nil)
}

// forEachEvaluation calls f for both evaluations. An error of one does not prevent the call for the other.
func (s *shared) forEachEvaluation(ctx context.Context, op worker.Operation, d Details, f func(w watched, status string) error) (worker.Operation, time.Duration, error) {
	var errs, temporary []error
	for _, w := range d.evaluations() {
		status, err := s.avs.status(ctx, w.id)
		if err == nil {
			err = f(w, status)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s evaluation: %w", w.kind, err))
		}
		if extclient.IsTemporary(err) {
			temporary = append(temporary, err)
		}
	}
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return op, 0, nil
	case len(temporary) > 0 || ctx.Err() != nil:
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	return op, 0, err
}
