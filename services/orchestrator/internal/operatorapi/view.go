package operatorapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// operation is an operation as the API shows it.
type operation struct {
	ID           string               `json:"id"`
	Type         event.OperationType  `json:"type"`
	State        event.OperationState `json:"state"`
	InstanceID   string               `json:"instanceId"`
	Plan         string               `json:"plan"`
	Stage        string               `json:"stage,omitempty"`
	Step         string               `json:"step,omitempty"`
	StageAttempt int                  `json:"stageAttempt,omitempty"`
	StepAttempt  int                  `json:"stepAttempt,omitempty"`
	Cursor       int64                `json:"cursor"`
	Message      string               `json:"message,omitempty"`
	Error        *event.Error         `json:"error,omitempty"`
	NotCompleted []string             `json:"notCompleted"`
	// WaitingFor says why an operation that has not ended is not moving; absent while a worker executes its step.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Waiting is the same for programs, and also tells which worker executes the step.
	Waiting *waiting `json:"waiting,omitempty"`
	// CancelRequested is why the operation is to be cancelled; it happens with the next result of its step.
	CancelRequested string     `json:"cancelRequested,omitempty"`
	DueAt           *time.Time `json:"dueAt,omitempty"`
	CreatedAt       time.Time  `json:"createdAt"`
	StartedAt       *time.Time `json:"startedAt,omitempty"`
	FinishedAt      *time.Time `json:"finishedAt,omitempty"`
	// Archived tells that the operation ended long ago: it is in no list, and nothing can be done with it.
	Archived bool `json:"archived,omitempty"`

	GlobalAccountID string `json:"globalAccountId,omitempty"`
	SubaccountID    string `json:"subaccountId,omitempty"`
	RuntimeName     string `json:"runtimeName,omitempty"`
	ShootName       string `json:"shootName,omitempty"`
	// Region is that of the hyperscaler.
	Region          string `json:"region,omitempty"`
	OrchestrationID string `json:"orchestrationId,omitempty"`
}

// waiting is why an operation that has not ended is where it is.
type waiting struct {
	Reason store.Reason `json:"reason"`
	Since  time.Time    `json:"since"`
	Worker string       `json:"worker,omitempty"`
	Step   string       `json:"step,omitempty"`
	// Until is when the step is taken up again, or its command sent again.
	Until *time.Time `json:"until,omitempty"`
	// Operation is the one in progress on the instance.
	Operation string `json:"operation,omitempty"`
}

// detail is an operation with its stages and history.
type detail struct {
	operation
	Stages  []stage `json:"stages"`
	History []line  `json:"history"`
	// ProcessHash is that of the definition that the operation runs by.
	ProcessHash string `json:"processHash"`
	// Details is what workers have saved, by worker.
	Details json.RawMessage `json:"details,omitempty"`
}

type stage struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
	// Finally marks the stage that runs however the operation ends.
	Finally bool   `json:"finally,omitempty"`
	Steps   []step `json:"steps"`
}

type step struct {
	Name         string       `json:"name"`
	Worker       string       `json:"worker"`
	State        string       `json:"state"`
	Attempts     int          `json:"attempts"`
	FirstTriedAt *time.Time   `json:"firstTriedAt,omitempty"`
	StartedAt    *time.Time   `json:"startedAt,omitempty"`
	FinishedAt   *time.Time   `json:"finishedAt,omitempty"`
	DurationMS   *int64       `json:"durationMs,omitempty"`
	Message      string       `json:"message,omitempty"`
	Error        *event.Error `json:"error,omitempty"`
}

type line struct {
	Cursor        int64        `json:"cursor"`
	Stage         string       `json:"stage,omitempty"`
	Step          string       `json:"step,omitempty"`
	Worker        string       `json:"worker,omitempty"`
	WorkerVersion string       `json:"workerVersion,omitempty"`
	Outcome       string       `json:"outcome"`
	StageAttempt  int          `json:"stageAttempt,omitempty"`
	StepAttempt   int          `json:"stepAttempt,omitempty"`
	Message       string       `json:"message,omitempty"`
	Error         *event.Error `json:"error,omitempty"`
	StartedAt     time.Time    `json:"startedAt"`
	FinishedAt    time.Time    `json:"finishedAt"`
}

// States of stages and steps.
const (
	stateWaiting  = "waiting"
	stateCurrent  = "current"
	stateFinished = "finished"
	stateRetrying = "retrying"
	stateFailed   = "failed"
)

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// around is what is shown with operations besides their rows.
type around struct {
	// running is the operation in progress by instance, and recorded when the last line was added to the history by operation.
	running  map[string]string
	recorded map[string]time.Time
}

// around reads what is shown with rows.
func (a *API) around(ctx context.Context, rows []*store.Row) (s around, err error) {
	var instances, again []string
	for _, r := range rows {
		if r.Status != event.Pending {
			continue
		}
		instances = append(instances, r.Operation.InstanceID)
		if r.Cursor > 0 {
			again = append(again, r.Operation.ID)
		}
	}
	if len(instances) > 0 {
		if s.running, err = a.deps.Operations.Running(ctx, instances); err != nil {
			return s, err
		}
	}
	s.recorded, err = a.deps.Operations.Recorded(ctx, again)
	return s, err
}

// views shows rows.
func (a *API) views(ctx context.Context, rows []*store.Row) ([]operation, error) {
	s, err := a.around(ctx, rows)
	if err != nil {
		return nil, err
	}
	views := make([]operation, len(rows))
	for i, r := range rows {
		p, err := a.deps.Definitions.Pinned(ctx, r.Definition)
		if err != nil {
			return nil, err
		}
		views[i] = a.view(r, p, s)
	}
	return views, nil
}

// view shows a row.
func (a *API) view(r *store.Row, p *process.Process, s around) operation {
	op := &r.Operation
	o := operation{
		ID: op.ID, Type: op.Type, State: r.Status, InstanceID: op.InstanceID, Plan: op.Plan.Name,
		Cursor: r.Cursor, Message: r.Message, Error: r.Error, NotCompleted: r.NotCompleted, DueAt: optional(r.DueAt),
		CreatedAt: r.CreatedAt, StartedAt: optional(r.StartedAt), FinishedAt: optional(r.FinishedAt), Archived: r.Archived,
		GlobalAccountID: op.Context.GlobalAccountID, SubaccountID: op.Context.SubaccountID,
		RuntimeName: op.Runtime.Name, ShootName: op.Runtime.ShootName, Region: op.Runtime.Region,
	}
	if o.NotCompleted == nil {
		o.NotCompleted = []string{}
	}
	if op.Upgrade != nil {
		o.OrchestrationID = op.Upgrade.OrchestrationID
	}
	if r.Ending != nil {
		o.Error = &r.Ending.Error // why it ends, not what the finally stage makes of it
	}
	if at := r.Position(p); at != nil {
		o.Stage, o.Step, o.StageAttempt, o.StepAttempt = at.Stage, at.Step, at.StageAttempt, at.StepAttempt
	} else if r.Status == event.Failed && r.Stage < len(p.Stages) && r.Step < len(p.Stages[r.Stage].Steps) {
		o.Stage, o.Step = p.Stages[r.Stage].Name, p.Stages[r.Stage].Steps[r.Step].Name
	}
	o.Waiting = a.waiting(r, p, s)
	o.WaitingFor = o.Waiting.String()
	if !r.Status.Final() {
		o.CancelRequested = r.CancelReason
	}
	return o
}

// waiting says why an operation is where it is; nil once it has ended.
func (a *API) waiting(r *store.Row, p *process.Process, s around) *waiting {
	if r.Status == event.Pending {
		w := &waiting{Reason: store.WaitsForAdmission, Since: r.CreatedAt}
		if again, ok := s.recorded[r.Operation.ID]; ok {
			w.Since = again // retried by an operator
		}
		// Read a moment after the row, the operation in progress may be this one: until then it waited for its admission.
		if running := s.running[r.Operation.InstanceID]; running != "" && running != r.Operation.ID {
			w.Reason, w.Operation = store.WaitsForInstance, running
		}
		return w
	}
	if !r.InFlight() && !r.Waiting() {
		return nil
	}
	worker, command := engine.Command(p, &r.State)
	w := &waiting{Reason: store.Executing, Since: r.FirstTriedAt, Worker: worker, Step: command.Step, Until: optional(r.ExecuteBefore)}
	switch {
	case r.Waiting():
		w.Reason, w.Until = store.WaitsForRetry, optional(r.DueAt)
		if w.Since.IsZero() { // the stage starts again after its memory was lost
			w.Since = r.SentAt
		}
	case !a.deps.Workers.Serves(worker, command.Step):
		w.Reason, w.Until = store.WaitsForWorker, nil
		// The first try is put off while nobody is there to execute it.
		if w.Since = r.SentAt; w.Since.IsZero() {
			w.Since = r.FirstTriedAt
		}
		if seen := a.deps.Workers.Seen(worker).UTC(); seen.After(w.Since) {
			w.Since = seen
		}
	}
	return w
}

// String says it to people; it is empty while a worker executes the step.
func (w *waiting) String() string {
	if w == nil {
		return ""
	}
	switch w.Reason {
	case store.WaitsForInstance:
		return "instance busy with operation " + w.Operation
	case store.WaitsForAdmission:
		return "admission"
	case store.WaitsForRetry:
		return "retry at " + w.Until.Format(time.RFC3339)
	case store.WaitsForWorker:
		return fmt.Sprintf("no live worker %s for step %s since %s", w.Worker, w.Step, w.Since.Format(time.RFC3339))
	default:
		return ""
	}
}

// details shows a row with its history.
func (a *API) details(r *store.Row, p *process.Process, around around, history []store.Line) detail {
	d := detail{
		operation: a.view(r, p, around), Stages: make([]stage, len(p.Stages)), History: make([]line, 0, len(history)), ProcessHash: p.Hash(),
		Details: r.Details,
	}
	for i := range p.Stages {
		d.Stages[i] = stage{Name: p.Stages[i].Name, State: stageState(r, i), Finally: p.Stages[i].Finally, Steps: make([]step, len(p.Stages[i].Steps))}
		for j := range p.Stages[i].Steps {
			d.Stages[i].Steps[j] = step{Name: p.Stages[i].Steps[j].Name, Worker: p.Stages[i].Steps[j].Worker, State: stateWaiting}
		}
	}
	for i := range history {
		h := &history[i]
		if h.Stage >= 0 && h.Step >= 0 {
			s := &d.Stages[h.Stage].Steps[h.Step]
			if h.Kind != string(engine.KindFailed) {
				d.Stages[h.Stage].Attempt = h.StageAttempt
				s.see(h)
				if r.Status.Final() && h.Stage == p.Finally() {
					d.Stages[h.Stage].State = stateFinished
				}
			}
		}
		d.History = append(d.History, viewLine(h, p))
	}
	if r.Status == event.InProgress && r.Stage < len(p.Stages) && r.Step < len(p.Stages[r.Stage].Steps) {
		current := &d.Stages[r.Stage]
		current.Attempt = r.StageAttempt
		for j := range current.Steps {
			switch s := &current.Steps[j]; {
			case j == r.Step && r.Waiting():
				s.State = stateRetrying
			case j == r.Step:
				s.State = stateCurrent
				s.Attempts = max(s.Attempts, r.StepAttempt)
				s.FirstTriedAt = optional(r.FirstTriedAt)
				s.FinishedAt, s.DurationMS = nil, nil
			case j > r.Step:
				s.State = stateWaiting
			}
		}
	}
	return d
}

// viewLine shows one line of a history.
func viewLine(h *store.Line, p *process.Process) line {
	l := line{
		Cursor: h.Cursor, WorkerVersion: h.WorkerVersion, Outcome: h.Kind, StageAttempt: h.StageAttempt, StepAttempt: h.StepAttempt,
		Message: h.Message, Error: h.Error, StartedAt: h.StartedAt, FinishedAt: h.FinishedAt,
	}
	if h.Stage >= 0 && h.Stage < len(p.Stages) && h.Step >= 0 && h.Step < len(p.Stages[h.Stage].Steps) {
		s := &p.Stages[h.Stage].Steps[h.Step]
		l.Stage, l.Step, l.Worker = p.Stages[h.Stage].Name, s.Name, s.Worker
	}
	return l
}

// see takes in one line of the history.
func (s *step) see(h *store.Line) {
	s.State = h.Kind
	if h.Kind == string(event.OutcomeRetry) || h.Kind == string(event.OutcomeStageLost) {
		s.State = stateRetrying
	}
	s.Attempts = h.StepAttempt
	if s.FirstTriedAt == nil {
		s.FirstTriedAt = optional(h.StartedAt)
	}
	ms := h.FinishedAt.Sub(h.StartedAt).Milliseconds()
	s.StartedAt, s.FinishedAt, s.DurationMS = optional(h.StartedAt), optional(h.FinishedAt), &ms
	s.Message, s.Error = h.Message, h.Error
}

func stageState(r *store.Row, i int) string {
	if e := r.Ending; e != nil && i < r.Stage {
		// The stages between the one that failed and the finally stage did not run.
		switch {
		case i > e.Stage:
			return stateWaiting
		case i == e.Stage && e.Status == event.Failed:
			return stateFailed
		case i == e.Stage:
			return string(event.Cancelled)
		}
	}
	switch {
	case i < r.Stage || r.Status == event.Succeeded:
		return stateFinished
	case i > r.Stage || r.Status == event.Pending:
		return stateWaiting
	case r.Status == event.Failed:
		return stateFailed
	case r.Status == event.Cancelled:
		return string(event.Cancelled)
	default:
		return stateCurrent
	}
}

// status is the answer to a question over the bus.
func status(r *store.Row, p *process.Process) event.OperationStatus {
	s := event.OperationStatus{
		OperationID: r.Operation.ID, State: r.Status, Cursor: r.Cursor, Position: r.Position(p),
		Message: r.Message, Error: r.Error, NotCompleted: slices.Clone(r.NotCompleted),
	}
	if r.Status.Final() {
		s.Details = r.Details
	}
	if r.InFlight() {
		s.Worker = engine.Awaited(p, &r.State)
	}
	return s
}
