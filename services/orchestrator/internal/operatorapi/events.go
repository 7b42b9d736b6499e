package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// maxEventIDs limits the IDs of a request for events.
const maxEventIDs = 100

// events lists the events of operations and instances. As in the original broker, a failure is a 503 in plain text.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	operations, instances, err := parseEvents(r)
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	events, err := a.deps.Orchestrations.Events(r.Context(), operations, instances, operator.MaxEvents)
	out := make([]operator.Event, 0, len(events))
	for i := range events {
		var p *process.Process
		if p, err = a.deps.Definitions.Pinned(r.Context(), events[i].Definition); err != nil {
			break
		}
		out = append(out, viewEvent(&events[i], p))
	}
	if err != nil && errors.Is(r.Context().Err(), context.Canceled) {
		a.internalError(w, r, err)
		return
	}
	if err != nil {
		a.deps.Log.Error("question failed", "err", err)
		http.Error(w, "the events cannot be read now; the log contains the reason", http.StatusServiceUnavailable)
		return
	}
	a.write(w, http.StatusOK, out)
}

func parseEvents(r *http.Request) (operations, instances []string, err error) {
	q := r.URL.Query()
	for name := range q {
		switch name {
		case "operation_ids":
			operations = splitIDs(q[name])
		case "instance_ids":
			instances = splitIDs(q[name])
		default:
			return nil, nil, fmt.Errorf("unknown parameter %.50q; allowed are operation_ids, instance_ids", name)
		}
	}
	if n := len(operations) + len(instances); n == 0 || n > maxEventIDs {
		return nil, nil, fmt.Errorf("operation_ids, instance_ids: got %d ids, want 1 to %d, separated by commas", n, maxEventIDs)
	}
	return operations, instances, nil
}

func splitIDs(values []string) []string {
	var ids []string
	for _, value := range values {
		for id := range strings.SplitSeq(value, ",") {
			if id = strings.TrimSpace(id); id != "" {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func viewEvent(e *store.Event, p *process.Process) operator.Event {
	v := operator.Event{
		ID: event.CommandID(e.OperationID, e.Cursor), Level: "info", InstanceID: e.InstanceID, OperationID: e.OperationID,
		Message: e.Name(), CreatedAt: e.FinishedAt,
	}
	if e.Stage >= 0 && e.Stage < len(p.Stages) && e.Step >= 0 && e.Step < len(p.Stages[e.Stage].Steps) {
		v.Message = p.Stages[e.Stage].Name + "/" + p.Stages[e.Stage].Steps[e.Step].Name + " " + e.Name()
	}
	if n := e.Tries(); n > 1 {
		v.Message += fmt.Sprintf(" (%d tries)", n)
	}
	told := e.Message
	if e.Error != nil {
		v.Level, told = "error", e.Error.Message
	}
	if told != "" {
		v.Message += ": " + told
	}
	return v
}
