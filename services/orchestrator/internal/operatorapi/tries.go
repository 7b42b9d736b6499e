package operatorapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// try answers what the worker of one try was sent, and what it answered.
func (a *API) try(r *http.Request) (any, error) {
	line := r.PathValue("line")
	cursor, err := strconv.ParseInt(line, 10, 64)
	if err != nil && line != operator.TryRunning {
		return nil, badRequest(fmt.Errorf("try %.50q: must be the cursor of a line of the history, or %s", line, operator.TryRunning))
	}
	row, p, history, err := a.readHistory(r)
	if err != nil {
		return nil, err
	}
	if line == operator.TryRunning {
		if !row.InFlight() {
			return nil, notFound(fmt.Errorf("no worker has a command of operation %s now", row.Operation.ID))
		}
		return runningTry(row, p, history), nil
	}
	i := slices.IndexFunc(history, func(e engine.Entry) bool { return e.Cursor == cursor && e.Kind == engine.KindStep })
	if i < 0 || p.At(history[i].Stage, history[i].Step) == nil {
		return nil, notFound(fmt.Errorf("operation %s has no try of a step with the cursor %d; the history has the cursors, and a later try with the same result replaces a line",
			row.Operation.ID, cursor))
	}
	return viewTry(row, p, history, i)
}

// runningTry returns the try whose command is in flight.
func runningTry(r *store.Row, p *process.Process, history []engine.Entry) *operator.Try {
	at := r.Position(p)
	try := &operator.Try{
		OperationID: r.Operation.ID, Tries: 1, Stage: at.Stage, Step: at.Step, Worker: engine.Next(p, &r.State).Worker, StageAttempt: at.StageAttempt,
		StepAttempt: at.StepAttempt, Sent: sentTo(r, p.At(r.Stage, r.Step), eventBefore(history, len(history), r.Stage, r.Step)),
	}
	try.Sent.Details, try.Sent.DetailsRecorded = mask.JSON(r.Details), true
	return try
}

// viewTry converts the history entry i, which is one of a step.
func viewTry(r *store.Row, p *process.Process, history []engine.Entry, i int) (*operator.Try, error) {
	e := &history[i]
	l := viewLine(e, p)
	try := &operator.Try{
		OperationID: r.Operation.ID, Cursor: l.Cursor, Tries: l.Tries, First: l.First, Stage: l.Stage, Step: l.Step, Worker: l.Worker,
		StageAttempt: l.StageAttempt, StepAttempt: l.StepAttempt,
		Answer: &operator.Answer{
			Outcome: l.Outcome, WorkerVersion: l.WorkerVersion, Message: l.Message, Error: l.Error, RetryAfterMS: e.RetryAfter.Milliseconds(),
			QueuedMS: l.QueuedMS, StartedAt: l.StartedAt, FinishedAt: l.FinishedAt,
		},
	}
	step := p.At(e.Stage, e.Step)
	if e.StepAttempt == 0 || step.BuiltIn() {
		return try, nil
	}
	try.Sent = sentTo(r, step, eventBefore(history, i, e.Stage, e.Step))
	before, after, recorded, err := engine.SavedAround(r.Details, history, i)
	if err != nil {
		return nil, fmt.Errorf("operation %s, try %d: %w", r.Operation.ID, e.Cursor, err)
	}
	try.Sent.DetailsRecorded = recorded
	try.Sent.Details, try.Sent.Unknown = mask.JSON(before.Details), before.Unknown
	if s, ok := e.Saved[step.Worker]; ok && recorded {
		if try.Answer.Saved, try.Answer.Unknown, err = savedBy(step.Worker, s, after); err != nil {
			return nil, fmt.Errorf("operation %s, try %d: %w", r.Operation.ID, e.Cursor, err)
		}
	}
	return try, nil
}

// savedBy returns the members that a worker changed, with their values in the data after the change, and the names of the unknown ones.
func savedBy(worker string, s engine.Saved, after engine.SavedData) (saved json.RawMessage, unknown []string, err error) {
	var data map[string]map[string]json.RawMessage
	if len(after.Details) > 0 {
		if err := json.Unmarshal(after.Details, &data); err != nil {
			return nil, nil, fmt.Errorf("read the saved data: %w", err)
		}
	}
	changed := map[string]json.RawMessage{}
	for _, name := range s.Members() {
		if slices.Contains(after.Unknown, worker+"."+name) {
			unknown = append(unknown, name)
			continue
		}
		changed[name] = data[worker][name] // nil is null: the member was removed
	}
	if s.More {
		unknown = append(unknown, worker)
	}
	if len(changed) == 0 {
		return nil, unknown, nil
	}
	raw, err := json.Marshal(changed)
	if err != nil {
		return nil, nil, fmt.Errorf("write the saved data: %w", err)
	}
	return mask.JSON(raw), unknown, nil
}

// sentTo returns what the worker of a step was sent, apart from the saved data.
func sentTo(r *store.Row, step *process.Step, received string) *operator.Sent {
	op := &r.Operation
	return &operator.Sent{
		Parameters: mask.JSON(op.Parameters), Update: maskedUpdate(op.Update), Upgrade: op.Upgrade, Credentials: append([]string{}, op.Credentials...),
		Event: received, ExecutionMS: step.Execution.Milliseconds(), RetryTimeoutMS: step.Retry.Timeout.Milliseconds(),
		WaitTimeoutMS: step.Wait.Timeout.Milliseconds(),
	}
}

// maskedUpdate returns the changes of an update without secrets.
func maskedUpdate(u *event.Changes) *event.Changes {
	if u == nil {
		return nil
	}
	changes := *u
	changes.Parameters = mask.JSON(u.Parameters)
	return &changes
}

// eventBefore returns the description of the event that came for a step since its last answer before the history entry i. A step that fails
// gets the event again.
func eventBefore(history []engine.Entry, i, stage, step int) string {
	for i--; i >= 0; i-- {
		e := &history[i]
		switch {
		case e.Stage != stage || e.Step != step:
			continue
		case e.Kind == engine.KindEventReceived:
			return e.Message
		case e.Error == nil:
			return ""
		}
	}
	return ""
}
