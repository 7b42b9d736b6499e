package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// State is the state of one operation. The zero value of a time means "not set".
type State struct {
	// Operation is the request; it never changes.
	Operation event.Operation
	Status    event.OperationState

	// Cursor is the fencing token: it grows by one with every transition. A command carries the cursor at which it was first sent.
	Cursor int64
	// CommandCursor is the cursor of the command in flight if the command was sent again and the cursor has grown since; 0 otherwise.
	CommandCursor int64
	// Stage and Step are indexes into the process; Stage is len(Stages) once all are finished.
	Stage, Step int
	// StageAttempt and StepAttempt count the attempts of the current stage and step from 1.
	StageAttempt, StepAttempt int
	// Dispatch counts how often the current command was sent, from 1; 0 if no command is decided. A held or limited command counts as sent.
	Dispatch int
	// FirstTriedAt is the time of the first try of the current step since it last succeeded.
	FirstTriedAt time.Time
	// ExecuteBefore is the limit after which the current command counts as unanswered; set exactly while a command is in flight.
	ExecuteBefore time.Time
	// Extended is how much later ExecuteBefore is because the worker asked for more time, in whole milliseconds. It is negative if the deadline of
	// the operation has cut the limit off.
	Extended time.Duration
	// SentAt is the time at which the current or last command was first sent.
	SentAt time.Time
	// DueAt is the time at which a waiting operation continues, or at which a limited one has used up its time; set exactly in these states.
	DueAt time.Time

	StartedAt, FinishedAt time.Time
	// StageStartedAt is the start of the current stage; repetitions do not change it.
	StageStartedAt time.Time
	// Deadline is the time limit of the operation, counted from its start; the finally stage has at least process.MaxFinally.
	Deadline time.Time

	// StageMemory reports whether a step of this stage attempt has written to the stage memory.
	StageMemory bool
	// Tries holds the budgets of the steps of the current stage that were tried and have not succeeded since, by step name, and attempts
	// of stages, by names that begin with a slash; see finallyTries. The values of the current step are FirstTriedAt and StepAttempt.
	Tries map[string]Try
	// Details is the saved data: a JSON object with one key per worker; nil if empty.
	Details json.RawMessage
	// NotCompleted holds the names of the steps that were not completed, in the order of the process.
	NotCompleted []string
	// Skipped holds the steps of the current stage that an operator has skipped, with the name of the operator. They are skipped again
	// when the stage is repeated.
	Skipped map[string]string
	// Completed holds the names of the steps that an earlier operation of the same type completed on this instance.
	Completed []string
	// Message and Error belong to the last step result; after a failure Error is its reason. While a stage is repeated because a step
	// failed, they belong to that step.
	Message string
	Error   *event.Error
	// Condition is how the last try of the step ConditionStep of the current stage went; empty if no step is tried again. It is kept
	// while earlier steps of the stage are repeated. ConditionSince is the time of its last change.
	Condition      Condition
	ConditionStep  int
	ConditionSince time.Time
	// EventKey is the key of the event that the last try of the step ConditionStep waits for; empty for none. The event continues the
	// operation only while it waits, see AwaitsEvent.
	EventKey string
	// Events holds the events that came for steps of the current stage, by step name. The commands of a step have its event until a result
	// of the step waits for the next one, or the operation leaves the step.
	Events map[string]event.Signal
	// HoldID is the hold that keeps the operation from starting or from sending its command, and HeldSince the time since which it is
	// held; both are empty if none does.
	HoldID    string
	HeldSince time.Time
	// Queue is the limit that has no room for the decided command, and LimitedSince the time since which the command waits for limits; both
	// are empty if it waits for none. DueAt is then Deadline.
	Queue        string
	LimitedSince time.Time
	// Granted are the limits in which the command in flight counts; nil if it is in the scope of none.
	Granted []string
	// UnansweredAt is the end of the instance's last try with a request that got no answer and may still take effect (mayTakeEffectLate).
	// Each operation starts with the value of the previous one. Tries of deprovisionings do not count: their requests only remove.
	UnansweredAt time.Time
	// CancelReason is set once cancellation was requested; the next result cancels the operation.
	CancelReason string
	// Ending is set while the finally stage of a failed or cancelled operation runs.
	Ending *Ending
	// Cause is what a cancelled operation failed at when it was cancelled; nil if no step failed then.
	Cause *Cause
}

// Cause is a step that failed when its operation was cancelled.
type Cause struct {
	// Stage and Step are indexes into the process.
	Stage int         `json:"stage"`
	Step  int         `json:"step"`
	Error event.Error `json:"error"`
	// Since is when the step began to fail, and Attempts the number of its tries.
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
}

// Ending is the final status of an operation whose finally stage runs, and its position before that stage.
type Ending struct {
	// Status is event.Failed or event.Cancelled.
	Status       event.OperationState `json:"status"`
	Error        event.Error          `json:"error"`
	Stage        int                  `json:"stage"`
	Step         int                  `json:"step"`
	StageAttempt int                  `json:"stageAttempt"`
}

// Try is the used part of the budgets of one step. The last three fields are used only for a step with a wait.
type Try struct {
	FirstTriedAt time.Time `json:"firstTriedAt,omitzero"`
	Attempts     int       `json:"attempts"`
	// Failures counts the failed tries in a row, for a step whose retry interval grows with them.
	Failures int `json:"failures,omitzero"`
	// WaitingSince is the time of the first try that ended with waiting.
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// FailingSince is the time of the first try that ended with an error since the step last waited.
	FailingSince time.Time `json:"failingSince,omitzero"`
	// LastError is the error of the last try that failed; waiting does not clear it.
	LastError *event.Error `json:"lastError,omitempty"`
}

// Condition describes the last try of a step that is not done. It does not change while the next try is executing.
type Condition string

// The conditions besides the empty one, which means that the first try has not ended.
const (
	// Polling means that the last try ended without an error and asked for another one.
	Polling Condition = "polling"
	// EventAwaited means that the last try ended without an error, and that the step waits for an event.
	EventAwaited Condition = "event"
	// Failing means that the last try ended with an error.
	Failing Condition = "failing"
	// TakesLong means that the first try has been executing for longer than usual.
	TakesLong Condition = "slow"
	// NoAnswer means that the execution limit of the last try has passed without a result, although a worker is live.
	NoAnswer Condition = "no_answer"
	// Held means that a hold keeps the operation from continuing, and Limited that its command waits for room in a limit. They are not stored
	// as State.Condition, see State.Standing.
	Held    Condition = "held"
	Limited Condition = "limited"
)

// New returns the state of a pending operation.
func New(op event.Operation) State {
	return State{Operation: op, Status: event.Pending}
}

// InFlight reports whether a command was sent and its result is awaited.
func (s *State) InFlight() bool { return s.Status == event.InProgress && !s.ExecuteBefore.IsZero() }

// Waiting reports whether the operation waits for its next try.
func (s *State) Waiting() bool {
	return s.Status == event.InProgress && !s.DueAt.IsZero() && !s.Limited()
}

// StandsAt returns the index of the step that Condition belongs to, or of the current step.
func (s *State) StandsAt() int {
	if s.Condition != "" {
		return s.ConditionStep
	}
	return s.Step
}

// AwaitedCursor is the cursor of the command in flight: only a result with it is applied.
func (s *State) AwaitedCursor() int64 { return cmp.Or(s.CommandCursor, s.Cursor) }

// Position returns the current stage and step of an operation in progress; nil otherwise.
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

// CompletedSteps returns the names of the steps that an ended operation completed or skipped, so that a later operation of the
// same type on the same instance need not run them. It does not include the finally stage, which every operation runs.
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

// current returns the current stage and step; nil if there is none.
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

// Next returns the step of the decided command, which is in flight, held or limited. Call it only in these states; Awaits implies one
// of them.
func Next(p *process.Process, s *State) *process.Step {
	_, step := s.current(p)
	return step
}

// Command derives the command in flight from the state, and returns it with its worker. Call it only while InFlight.
func Command(p *process.Process, s *State) (worker string, command event.StepExecute) {
	stage, step := s.current(p)
	var signal *event.Signal
	if e, ok := s.Events[step.Name]; ok {
		signal = &e
	}
	return step.Worker, event.StepExecute{
		Operation:     s.Operation,
		Details:       s.Details,
		Stage:         stage.Name,
		Step:          step.Name,
		Cursor:        s.AwaitedCursor(),
		Dispatch:      s.Dispatch,
		StageAttempt:  s.StageAttempt,
		StepAttempt:   s.StepAttempt,
		FirstTriedAt:  s.FirstTriedAt,
		ExecuteBefore: s.ExecuteBefore,
		StageMemory:   s.StageMemory,
		Event:         signal,
	}
}
