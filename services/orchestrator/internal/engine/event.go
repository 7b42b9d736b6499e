package engine

import (
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Event is an input of the state machine.
type Event interface{ isEvent() }

// Start starts a pending operation.
type Start struct {
	// Details are the saved data of the instance, from its last finished operation.
	Details json.RawMessage
	// Completed holds the names of the steps that an earlier operation of this type completed on this instance.
	Completed []string
	// UnansweredAt has the meaning of State.UnansweredAt, after the last finished operation of the instance.
	UnansweredAt time.Time
	// Removed means that the runtime of the instance is already deprovisioned.
	Removed bool
}

// Result is the result of a command.
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
	// Removed names the objects that the execution deleted in external systems.
	Removed []string
	// RetryAfter applies to the outcome retry; zero means the time in the process definition.
	RetryAfter time.Duration
	// EventKey is the key of the event that a step with the outcome retry waits for; empty for none.
	EventKey string
	// StartedAt and FinishedAt are set by the worker; zero means the time at which the result is applied.
	StartedAt, FinishedAt time.Time
}

// Due reports that DueAt, ExecuteBefore or the deadline of the operation has passed, or that its command was lost.
type Due struct {
	// WorkerAlive reports whether a live worker serves the current step. Without one the command is not sent again.
	WorkerAlive bool
	// Version is the version that a worker of the step must have; empty for any.
	Version string
	// LostBefore, if set, means that the bus has lost every command that was sent before that time, or its result. Such a command is
	// sent again before its limit. Without a live worker it is not sent, because a worker that cannot be reached may still execute
	// it.
	LostBefore time.Time
	// ResultsOnly means that only results were lost. The stream may still know the message id of the command and would drop a copy, so
	// the command is sent with a new dispatch number. Otherwise it keeps its number, and the new stream drops a second copy.
	ResultsOnly bool
}

// Signal continues an operation that waits for the event, without waiting for DueAt.
type Signal struct{ event.Signal }

// Unsendable reports that the current command can never be sent, for example because it exceeds the message limit of the bus. It
// ends the operation, because its next commands would be rejected too.
type Unsendable struct {
	// Cursor is the cursor of the command.
	Cursor int64
	// Reason is shown to operators and must not be empty.
	Reason string
}

// Hold holds an operation that is pending, or whose command is decided and not yet sent. For a held operation it replaces the hold.
type Hold struct {
	// ID is the id of the hold; it must not be empty.
	ID string
	// Cursor and Dispatch are those of the decided command; 0 for a pending operation.
	Cursor   int64
	Dispatch int
}

// Release ends the hold of an operation. A pending operation may start again; the decided command of another one is sent.
type Release struct{}

// Slow marks an operation whose command has been executing for longer than usual.
type Slow struct {
	// Cursor and Dispatch are those of the command.
	Cursor   int64
	Dispatch int
}

// Extend moves the limit of the command in flight, because the worker that executes it needs more time.
type Extend struct {
	// Cursor is that of the command.
	Cursor int64
	// For is the time that the worker needs from now on.
	For time.Duration
}

// Park makes the decided command of an operation, which is not yet sent, wait for room in a limit. For an operation that waits already, it
// changes the limit that it waits for.
type Park struct {
	// Queue is the limit; it must not be empty.
	Queue string
	// Cursor and Dispatch are those of the decided command.
	Cursor   int64
	Dispatch int
}

// Grant sends the decided command of an operation that waits for limits. For a command in flight, it only changes the limits in which it
// counts.
type Grant struct {
	// Keys are the limits in which the command counts while it is in flight; nil if it is in the scope of none.
	Keys []string
}

// Cancel requests the end of the operation. It takes effect at once, or with the next result while a command is in flight.
type Cancel struct {
	// Reason is shown to operators and must not be empty.
	Reason string
	// Pending cancels the operation only if it has not started.
	Pending bool
}

// Retry runs a failed operation again, from its failed stage or from an earlier one. The operation becomes pending.
type Retry struct {
	// By is the name of the operator.
	By string
	// Stage is the name of the stage to start with: the failed stage or one before it, which has finished and runs again. Empty means the
	// failed stage.
	Stage string
	// Step is the name of the step of Stage to start with; the steps before it stay as they are. In the failed stage it is the failed step or
	// one before it. Empty means the first step.
	Step string
}

// SkipStep continues the operation without its current step.
type SkipStep struct {
	// Step is the name of the step to skip; it must be the current one.
	Step string
	// By is the name of the operator.
	By string
}

func (Start) isEvent()      {}
func (Result) isEvent()     {}
func (Due) isEvent()        {}
func (Signal) isEvent()     {}
func (Unsendable) isEvent() {}
func (Hold) isEvent()       {}
func (Release) isEvent()    {}
func (Slow) isEvent()       {}
func (Extend) isEvent()     {}
func (Park) isEvent()       {}
func (Grant) isEvent()      {}
func (Cancel) isEvent()     {}
func (Retry) isEvent()      {}
func (SkipStep) isEvent()   {}

// Effects are the effects of a transition. The caller carries them out after the new state is durable.
type Effects struct {
	// Changed means that the state has changed and must be written.
	Changed bool
	// Dispatch means that the command of the state (see Command) must be published.
	Dispatch bool
	// Facts are the facts to publish, in this order.
	Facts []Fact
	// History holds the entries to write with the state.
	History []Entry
	// PurgeStages names the finished stages whose stage memory must be purged; an empty name means the whole operation.
	PurgeStages []string
	// Stages are the stages that have ended.
	Stages []StageEnd
	// Finished means that the operation has ended and its instance is free.
	Finished bool
}

// StageEnd is the end of a stage.
type StageEnd struct {
	// Stage is an index into the process.
	Stage int
	// Took is the time since the stage started, including its repetitions.
	Took time.Duration
}

// Fact is a fact to publish.
type Fact struct {
	Type   event.Type
	Cursor int64
	// OccurredAt is the time of the transition.
	OccurredAt time.Time
	// Payload is the event data that belongs to Type.
	Payload any
}

// Kind is the kind of a history entry.
type Kind string

// The kinds of history entries.
const (
	KindStarted   Kind = "operation started"
	KindStep      Kind = "step"
	KindSucceeded Kind = "operation succeeded"
	KindFailed    Kind = "operation failed"
	KindCancelled Kind = "operation cancelled"
	KindRetried   Kind = "retried by operator"
	// KindEventReceived means that the event came that the step has waited for, and that the step runs again.
	KindEventReceived Kind = "event received"
	// KindEnding means that the operation has failed or was cancelled, and its finally stage starts.
	KindEnding Kind = "operation ending"
)

// Entry is one entry of the history of an operation.
type Entry struct {
	Cursor int64
	Kind   Kind
	// Stage and Step are indexes into the process; -1 if the entry does not refer to a step.
	Stage, Step               int
	StageAttempt, StepAttempt int
	// Outcome is set for KindStep.
	Outcome       event.Outcome
	WorkerVersion string
	Message       string
	Error         *event.Error
	StartedAt     time.Time
	FinishedAt    time.Time
	// Folded is set if the entry stands for several tries.
	Folded *Folded
	// RetryAfter is the time to the next try as it was decided, in whole milliseconds; zero if there is none.
	RetryAfter time.Duration
	// Saved records by worker what changed in the saved data; nil if nothing did. In a KindStarted entry it is not nil, see SavedAround.
	Saved map[string]Saved
	// Queued is how long the command waited for its worker, in whole milliseconds; zero for less than minQueued.
	Queued time.Duration
	// Took is the time since the first try of the step, including all attempts and waits; zero if it was never tried. It is not
	// stored.
	Took time.Duration
	// LateEffects is the number of objects that the step deleted although the instance was already deprovisioned. It is not stored.
	LateEffects int
}

// Name returns the outcome of a step, otherwise the kind of the entry.
func (e *Entry) Name() string {
	if e.Kind == KindStep {
		return string(e.Outcome)
	}
	return string(e.Kind)
}

// Tries returns the number of tries that an entry stands for.
func (e *Entry) Tries() int {
	if e.Folded != nil {
		return e.Folded.Tries
	}
	return 1
}
