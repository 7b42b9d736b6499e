package operatorapi

import (
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
	// CancelRequested is why the operation is to be cancelled; it happens with the next result of its step.
	CancelRequested string     `json:"cancelRequested,omitempty"`
	DueAt           *time.Time `json:"dueAt,omitempty"`
	CreatedAt       time.Time  `json:"createdAt"`
	StartedAt       *time.Time `json:"startedAt,omitempty"`
	FinishedAt      *time.Time `json:"finishedAt,omitempty"`
}

// detail is an operation with its stages and history.
type detail struct {
	operation
	Stages  []stage `json:"stages"`
	History []line  `json:"history"`
}

type stage struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
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

// view shows a row. running is the operation in progress on its instance.
func (a *API) view(r *store.Row, p *process.Process, running string) operation {
	o := operation{
		ID: r.Operation.ID, Type: r.Operation.Type, State: r.Status, InstanceID: r.Operation.InstanceID, Plan: r.Operation.Plan.Name,
		Cursor: r.Cursor, Message: r.Message, Error: r.Error, NotCompleted: r.NotCompleted, DueAt: optional(r.DueAt),
		CreatedAt: r.CreatedAt, StartedAt: optional(r.StartedAt), FinishedAt: optional(r.FinishedAt),
	}
	if o.NotCompleted == nil {
		o.NotCompleted = []string{}
	}
	if r.Ending != nil {
		o.Error = &r.Ending.Error // why it ends, not what the finally stage makes of it
	}
	if at := r.Position(p); at != nil {
		o.Stage, o.Step, o.StageAttempt, o.StepAttempt = at.Stage, at.Step, at.StageAttempt, at.StepAttempt
	} else if r.Status == event.Failed && r.Stage < len(p.Stages) && r.Step < len(p.Stages[r.Stage].Steps) {
		o.Stage, o.Step = p.Stages[r.Stage].Name, p.Stages[r.Stage].Steps[r.Step].Name
	}
	o.WaitingFor = a.waitingFor(r, p, running)
	if !r.Status.Final() {
		o.CancelRequested = r.CancelReason
	}
	return o
}

// waitingFor says why an operation is not moving.
func (a *API) waitingFor(r *store.Row, p *process.Process, running string) string {
	switch {
	// Read a moment after the row, the operation in progress may be this one: until then it waited for its admission.
	case r.Status == event.Pending && running != "" && running != r.Operation.ID:
		return "instance busy with operation " + running
	case r.Status == event.Pending:
		return "admission"
	case r.Waiting():
		return "retry at " + r.DueAt.Format(time.RFC3339)
	case r.InFlight():
		if worker, command := engine.Command(p, &r.State); !a.deps.Workers.Serves(worker, command.Step) {
			return fmt.Sprintf("no live worker %s for step %s since %s", worker, command.Step, r.FirstTriedAt.Format(time.RFC3339))
		}
	}
	return ""
}

// details shows a row with its history.
func (a *API) details(r *store.Row, p *process.Process, running string, history []store.Line) detail {
	d := detail{operation: a.view(r, p, running), Stages: make([]stage, len(p.Stages)), History: make([]line, 0, len(history))}
	for i := range p.Stages {
		d.Stages[i] = stage{Name: p.Stages[i].Name, State: stageState(r, i), Steps: make([]step, len(p.Stages[i].Steps))}
		for j := range p.Stages[i].Steps {
			d.Stages[i].Steps[j] = step{Name: p.Stages[i].Steps[j].Name, Worker: p.Stages[i].Steps[j].Worker, State: stateWaiting}
		}
	}
	for i := range history {
		h := &history[i]
		l := line{
			Cursor: h.Cursor, WorkerVersion: h.WorkerVersion, Outcome: h.Kind, StageAttempt: h.StageAttempt, StepAttempt: h.StepAttempt,
			Message: h.Message, Error: h.Error, StartedAt: h.StartedAt, FinishedAt: h.FinishedAt,
		}
		if h.Stage >= 0 && h.Step >= 0 {
			s := &d.Stages[h.Stage].Steps[h.Step]
			l.Stage, l.Step, l.Worker = d.Stages[h.Stage].Name, s.Name, s.Worker
			if h.Kind != string(engine.KindFailed) {
				d.Stages[h.Stage].Attempt = h.StageAttempt
				s.see(h)
				if r.Status.Final() && h.Stage == p.Finally() {
					d.Stages[h.Stage].State = stateFinished
				}
			}
		}
		d.History = append(d.History, l)
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
	return s
}
