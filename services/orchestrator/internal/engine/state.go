package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// State is everything the engine knows of one operation. The zero values of the times mean "not set".
type State struct {
	// Operation is what was requested; it never changes.
	Operation event.Operation
	Status    event.OperationState

	// Cursor grows by one with every transition and fences results: only a result that carries it counts.
	Cursor int64
	// Stage and Step are indexes into the process; Stage is len(Stages) once all are finished.
	Stage, Step int
	// StageAttempt and StepAttempt count the attempts of the current stage and step from 1.
	StageAttempt, StepAttempt int
	// Dispatch counts how often the current command was sent, from 1; 0 when no command is out.
	Dispatch int
	// FirstTriedAt is when the current step was first tried since it last succeeded.
	FirstTriedAt time.Time
	// ExecuteBefore is when the current command counts as unanswered; set exactly while a command is out.
	ExecuteBefore time.Time
	// SentAt is when the command that is out, or was last, was sent for the first time. Unlike FirstTriedAt it is not put off
	// while nobody serves the step.
	SentAt time.Time
	// DueAt is when a waiting operation is taken up again; set exactly while it waits for a time.
	DueAt time.Time

	StartedAt, FinishedAt time.Time
	// StageStartedAt is when the current stage began; its repetitions do not change it.
	StageStartedAt time.Time
	// Deadline is when the operation times out, counted from its start; the finally stage has at least process.MaxFinally.
	Deadline time.Time

	// StageMemory tells that a step of this stage attempt has put something into the stage memory.
	StageMemory bool
	// Tries holds the budgets of the steps of the current stage that were tried and have not succeeded since, by step name, and how
	// often the finally stage of an operation that was retried has run. The first try and the attempts of the current step are
	// those above.
	Tries map[string]Try
	// Details is the saved data: a JSON object with one key per worker; nil when empty.
	Details json.RawMessage
	// NotCompleted names the steps that the operation went on without, in the order of the process.
	NotCompleted []string
	// Completed names the steps that an earlier operation of the same type has completed on this instance.
	Completed []string
	// Message and Error are those of the last step result; Error is the reason once the operation has failed.
	Message string
	Error   *event.Error
	// CancelReason is set once cancellation was asked for, and takes effect with the next result.
	CancelReason string
	// Ending is set while the finally stage runs before an operation that has failed or was cancelled ends.
	Ending *Ending
}

// Ending is how an operation ends once its finally stage is over, and where it stood.
type Ending struct {
	// Status is event.Failed or event.Cancelled.
	Status       event.OperationState `json:"status"`
	Error        event.Error          `json:"error"`
	Stage        int                  `json:"stage"`
	Step         int                  `json:"step"`
	StageAttempt int                  `json:"stageAttempt"`
}

// Try is what one step has used of its budgets. The last three are kept only for a step with a wait.
type Try struct {
	FirstTriedAt time.Time `json:"firstTriedAt"`
	Attempts     int       `json:"attempts"`
	// WaitingSince is the first try that ended with waiting.
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// FailingSince is the first try that ended with an error since the step last waited.
	FailingSince time.Time `json:"failingSince,omitzero"`
	// LastError is the last error that ended a try; waiting does not clear it.
	LastError *event.Error `json:"lastError,omitempty"`
}

// New is the state of an operation that was requested and has not started.
func New(op event.Operation) State {
	return State{Operation: op, Status: event.Pending}
}

// InFlight tells that a command is out and its result is awaited.
func (s *State) InFlight() bool { return s.Status == event.InProgress && !s.ExecuteBefore.IsZero() }

// Waiting tells that the operation waits for a time.
func (s *State) Waiting() bool { return s.Status == event.InProgress && !s.DueAt.IsZero() }

// Position is where an operation in progress stands, by name; nil otherwise.
func (s *State) Position(p *process.Process) *event.Position {
	if s.Status != event.InProgress {
		return nil
	}
	stage, step := s.current(p)
	if step == nil {
		return nil
	}
	return &event.Position{Stage: stage.Name, Step: step.Name, StageAttempt: s.StageAttempt, StepAttempt: max(s.StepAttempt, 1)}
}

// CompletedSteps names the steps whose work an ended operation has done, or found not to be needed, so that a later
// operation of the same type on the same instance need not run them. Those of the finally stage belong to each operation.
func (s *State) CompletedSteps(p *process.Process) []string {
	completed := slices.Clone(s.Completed)
	for i := range p.Stages {
		if p.Stages[i].Finally {
			break
		}
		for j := range p.Stages[i].Steps {
			step := &p.Stages[i].Steps[j]
			if i > s.Stage || i == s.Stage && j >= s.Step {
				return completed
			}
			if step.Worker != process.WorkerOrchestrator && !slices.Contains(s.NotCompleted, step.Name) && !slices.Contains(completed, step.Name) {
				completed = append(completed, step.Name)
			}
		}
	}
	return completed
}

// current is the current stage and step; nil when there is none.
func (s *State) current(p *process.Process) (*process.Stage, *process.Step) {
	if s.Stage < 0 || s.Stage >= len(p.Stages) {
		return nil, nil
	}
	stage := &p.Stages[s.Stage]
	if s.Step < 0 || s.Step >= len(stage.Steps) {
		return stage, nil
	}
	return stage, &stage.Steps[s.Step]
}

// Awaited is the worker whose result is awaited. It must only be called while InFlight.
func Awaited(p *process.Process, s *State) string {
	_, step := s.current(p)
	return step.Worker
}

// Command is the command that is out for an operation in flight, derived from its state alone, and the worker it is for.
// It must only be called while InFlight.
func Command(p *process.Process, s *State) (worker string, command event.StepExecute) {
	stage, step := s.current(p)
	return step.Worker, event.StepExecute{
		Operation:     s.Operation,
		Details:       s.Details,
		Stage:         stage.Name,
		Step:          step.Name,
		Cursor:        s.Cursor,
		Dispatch:      s.Dispatch,
		StageAttempt:  s.StageAttempt,
		StepAttempt:   s.StepAttempt,
		FirstTriedAt:  s.FirstTriedAt,
		ExecuteBefore: s.ExecuteBefore,
		StageMemory:   s.StageMemory,
	}
}
