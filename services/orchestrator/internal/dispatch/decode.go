package dispatch

import (
	"bytes"
	"fmt"
	"math"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

const (
	// maxText is the maximum size of each text of a result, in bytes.
	maxText = 4 << 10
	// maxRetryAfter bounds the retry time of a worker; the budget of the step and the deadline of the operation apply as well.
	maxRetryAfter = 7 * 24 * time.Hour
)

// DecodeResult converts the event of a worker into a result for the engine, and returns the id of its operation.
func DecodeResult(e cloudevents.Event) (operationID string, r engine.Result, err error) {
	var base event.Result
	switch event.Type(e.Type()) {
	case event.TypeStepSucceeded:
		var v event.StepSucceeded
		v, err = bus.Data[event.StepSucceeded](e)
		base, r.Outcome = v.Result, event.OutcomeSucceeded
	case event.TypeStepRetry:
		var v event.StepRetry
		v, err = bus.Data[event.StepRetry](e)
		base, r.Outcome, r.Error = v.Result, event.OutcomeRetry, v.Error
		r.RetryAfter = seconds(v.RetryAfter)
		if v.Event != nil {
			r.EventKey = v.Event.Key
		}
	case event.TypeStepFailed:
		var v event.StepFailed
		v, err = bus.Data[event.StepFailed](e)
		base, r.Outcome, r.Error = v.Result, event.OutcomeFailed, &v.Error
	case event.TypeStepSkipped:
		var v event.StepSkipped
		v, err = bus.Data[event.StepSkipped](e)
		base, r.Outcome, r.Error = v.Result, event.OutcomeSkipped, v.Error
		if v.NotCompleted {
			r.Outcome = event.OutcomeNotCompleted
		}
	case event.TypeStageLost:
		var v event.StageLost
		v, err = bus.Data[event.StageLost](e)
		base, r.Outcome = v.Result, event.OutcomeStageLost
	default:
		return "", r, fmt.Errorf("event type %q is not a step result", e.Type())
	}
	if err != nil {
		return "", r, err
	}
	id, err := uuid.Parse(base.OperationID)
	if err != nil {
		return "", r, fmt.Errorf("operationId %q: must be a UUID", bound(base.OperationID))
	}
	r.Cursor, r.Worker, r.Message, r.StageMemory = base.Cursor, base.Worker, shown(base.Message), base.StageMemory
	r.Details, r.StartedAt, r.FinishedAt = base.Details, base.StartedAt, base.FinishedAt
	for _, name := range base.Removed[:min(len(base.Removed), event.MaxRemoved)] {
		r.Removed = append(r.Removed, cut(mask.Text(name), event.MaxRemovedSize))
	}
	if r.Error != nil {
		r.Error = &event.Error{
			Component: shown(r.Error.Component), Reason: shown(r.Error.Reason), Message: shown(r.Error.Message),
		}
	}
	return id.String(), r, nil
}

func seconds(s float64) time.Duration {
	if math.IsNaN(s) || s < 0 {
		return 0
	}
	if s >= maxRetryAfter.Seconds() {
		return maxRetryAfter
	}
	return time.Duration(s * float64(time.Second))
}

// shown returns a text of a worker as it is stored and shown: without credentials, and bounded. The SDK masks its texts, too; a worker
// without it may not. A credential that was cut before would not be found.
func shown(s string) string { return bound(mask.Text(s)) }

func bound(s string) string { return cut(s, maxText) }

func cut(s string, size int) string {
	const more = "..."
	if len(s) <= size {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:size-len(more)]), nil)) + more
}

// decodeRequest decodes and validates a request.
func decodeRequest(e cloudevents.Event) (event.OperationRequested, error) {
	if e.Type() != string(event.TypeOperationRequested) {
		return event.OperationRequested{}, fmt.Errorf("event type %q is not a request", e.Type())
	}
	r, err := bus.Data[event.OperationRequested](e)
	if err != nil {
		return r, err
	}
	id, err := uuid.Parse(r.Operation.ID)
	if err != nil {
		return r, fmt.Errorf("operation.id %q: must be a UUID", bound(r.Operation.ID))
	}
	r.Operation.ID = id.String()
	if r.Operation.InstanceID == "" {
		return r, fmt.Errorf("operation.instanceId: must not be empty")
	}
	return r, nil
}
