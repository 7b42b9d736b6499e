package engine

import (
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Event is something that happens to an operation.
type Event interface{ isEvent() }

// Start takes a pending operation in progress: its turn has come.
type Start struct {
	// Details are the saved data of the instance, from its last finished operation.
	Details json.RawMessage
	// Completed names the steps that an earlier operation of this type has completed on this instance.
	Completed []string
}

// Result is the answer of a worker to a command.
type Result struct {
	// Outcome is one of succeeded, retry, failed, skipped, not completed and stage lost.
	Outcome event.Outcome
	Cursor  int64
	Worker  event.Worker
	Message string
	Error   *event.Error
	// Details is the patch of the worker's own key; nil for none.
	Details     json.RawMessage
	StageMemory bool
	// RetryAfter is for the outcome retry; zero means the time that the process says.
	RetryAfter time.Duration
	// StartedAt and FinishedAt are the worker's; zero means the time at which the result is taken.
	StartedAt, FinishedAt time.Time
}

// Due tells that the time of the operation has come: it waited for DueAt, its command was not answered before
// ExecuteBefore, or its deadline has passed.
type Due struct {
	// WorkerAlive tells whether somebody serves the current step; a command is not sent again to nobody.
	WorkerAlive bool
	// LostBefore, if set, tells that the bus has lost every command that was sent before that time, or its result: such a command is
	// sent again although its time is not over. It is left as it is while nobody serves its step, because a worker that is not seen
	// may still execute it.
	LostBefore time.Time
	// ResultsOnly tells that the loss has spared the commands. The bus may still know the command that is out and would drop it, so it
	// is sent under a new number. Otherwise it is repeated under its own, and dropped if it has come to the new stream already.
	ResultsOnly bool
}

// Unsendable reports that the current command can never be sent, for example because the bus takes no message of its size. It ends
// the operation: no other command of it could be sent either.
type Unsendable struct {
	// Cursor is that of the command.
	Cursor int64
	// Reason is for people, and not empty.
	Reason string
}

// Cancel asks to end the operation. It takes effect at once, or with the next result while a command is out.
type Cancel struct {
	// Reason is for people, and not empty.
	Reason string
}

// Retry is an operator's wish to run a failed operation again from its failed stage. The operation becomes pending.
type Retry struct {
	// By is who asks.
	By string
}

// SkipStep is an operator's wish to go on without the current step.
type SkipStep struct {
	// Step is the name of the step to skip; it must be the current one.
	Step string
	// By is who asks.
	By string
}

func (Start) isEvent()      {}
func (Result) isEvent()     {}
func (Due) isEvent()        {}
func (Unsendable) isEvent() {}
func (Cancel) isEvent()     {}
func (Retry) isEvent()      {}
func (SkipStep) isEvent()   {}

// Effects is what has to happen because of a transition, after the new state is durable.
type Effects struct {
	// Changed tells that the state has changed and must be written.
	Changed bool
	// Dispatch tells that the command of the state (see Command) must be published.
	Dispatch bool
	// Facts are to be published, in this order.
	Facts []Fact
	// History is to be recorded with the state.
	History []Entry
	// PurgeStages names the finished stages whose stage memory is to be purged; an empty name means the whole operation.
	PurgeStages []string
	// Stages are those that have ended.
	Stages []StageEnd
	// Finished tells that the operation has ended and its instance is free.
	Finished bool
}

// StageEnd is the end of a stage.
type StageEnd struct {
	// Stage is an index into the process.
	Stage int
	// Took is the time since the stage began, with its repetitions.
	Took time.Duration
}

// Fact is a fact to publish.
type Fact struct {
	Type   event.Type
	Cursor int64
	// OccurredAt is when it was decided.
	OccurredAt time.Time
	// Payload is the payload of the type.
	Payload any
}

// Kind says what a history entry records.
type Kind string

// The kinds of history entries.
const (
	KindStarted   Kind = "operation started"
	KindStep      Kind = "step"
	KindSucceeded Kind = "operation succeeded"
	KindFailed    Kind = "operation failed"
	KindCancelled Kind = "operation cancelled"
	KindRetried   Kind = "retried by operator"
	// KindEnding: the operation has failed or was cancelled, and its finally stage begins.
	KindEnding Kind = "operation ending"
)

// Entry is one line of the history of an operation.
type Entry struct {
	Cursor int64
	Kind   Kind
	// Stage and Step are indexes into the process; -1 when the entry is about no step.
	Stage, Step               int
	StageAttempt, StepAttempt int
	// Outcome is set for KindStep.
	Outcome       event.Outcome
	WorkerVersion string
	Message       string
	Error         *event.Error
	StartedAt     time.Time
	FinishedAt    time.Time
	// Took is the time since the step was first tried, with all attempts and waits; zero for one that nobody tried. It is not
	// kept.
	Took time.Duration
}
