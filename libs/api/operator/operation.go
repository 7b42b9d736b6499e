package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// WaitingReason is why an operation that has not ended stands where it stands. executing: the first try of the step runs. slow: it
// has been running for longer than usual. polling: the last
// try ended without an error, and the step asked to run again. event: the last try ended without an error, and the step waits for an event.
// failing: the last try ended with an error. no_answer: a live worker has not answered within the execution limit of the step. no_worker: no
// live worker serves the step. held: a hold keeps the operation from starting or from sending its next command. limited: a limit has no room
// for the operation. instance_busy: another operation of the instance is in progress. admission: the operation may start, and is about to.
// polling, event, failing and no_answer do not change while the next try runs.
type WaitingReason string

// The reasons. Only Held, Limited, InstanceBusy and Admission are of pending operations.
const (
	Executing    WaitingReason = "executing"
	Slow         WaitingReason = "slow"
	Polling      WaitingReason = "polling"
	AwaitsEvent  WaitingReason = "event"
	Failing      WaitingReason = "failing"
	NoAnswer     WaitingReason = "no_answer"
	NoWorker     WaitingReason = "no_worker"
	Held         WaitingReason = "held"
	Limited      WaitingReason = "limited"
	InstanceBusy WaitingReason = "instance_busy"
	Admission    WaitingReason = "admission"
)

// StepReasons returns the reasons of operations that are at a step of a worker.
func StepReasons() []WaitingReason {
	return []WaitingReason{Executing, Slow, Polling, AwaitsEvent, Failing, NoAnswer, NoWorker, Held, Limited}
}

// WaitingReasons returns all reasons.
func WaitingReasons() []WaitingReason { return append(StepReasons(), InstanceBusy, Admission) }

// Incomplete is a value of the filter by state besides the states of operations: succeeded without some of the steps.
const Incomplete event.OperationState = "incomplete"

// FilterStates returns the values of the filter by state, in the order of an operation's life.
func FilterStates() []event.OperationState {
	return []event.OperationState{event.Pending, event.InProgress, event.Succeeded, Incomplete, event.Failed, event.Cancelled}
}

// Operation is an operation in a list.
type Operation struct {
	ID    string               `json:"id" jsonschema:"format=uuid"`
	Type  event.OperationType  `json:"type"`
	State event.OperationState `json:"state"`
	// Incomplete reports whether the operation succeeded without the steps in notCompleted.
	Incomplete bool   `json:"incomplete,omitempty"`
	InstanceID string `json:"instanceId"`
	Plan       string `json:"plan"`
	// Stage is the current stage, or the stage that failed.
	Stage        string `json:"stage,omitempty"`
	Step         string `json:"step,omitempty"`
	StageAttempt int    `json:"stageAttempt,omitempty"`
	StepAttempt  int    `json:"stepAttempt,omitempty"`
	// Cursor grows with every transition.
	Cursor int64 `json:"cursor"`
	// Message is the message of the last step result.
	Message string       `json:"message,omitempty"`
	Error   *event.Error `json:"error,omitempty"`
	// Cause is what a cancelled operation failed at when it was cancelled. It is absent if no step failed then.
	Cause *Cause `json:"cause,omitempty"`
	// NotCompleted lists the steps that were not completed and that the operation continued without.
	NotCompleted []string `json:"notCompleted"`
	// WaitingFor is a human-readable form of waiting. It is absent during the first try of a step.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Waiting is absent once the operation has ended.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Progress is how far the step in execution is. It is absent unless its worker has reported it.
	Progress *StepProgress `json:"progress,omitempty"`
	// Budget is the limit of the step in waiting. It is absent unless the operation is at a step of a worker.
	Budget *Budget `json:"budget,omitempty"`
	// CancelRequested is why the operation will be cancelled when its current step returns a result.
	CancelRequested string     `json:"cancelRequested,omitempty"`
	DueAt           *time.Time `json:"dueAt,omitempty"`
	CreatedAt       time.Time  `json:"createdAt"`
	StartedAt       *time.Time `json:"startedAt,omitempty"`
	FinishedAt      *time.Time `json:"finishedAt,omitempty"`
	// Archived reports whether the operation was archived long after its end. Archived operations are not listed, and accept no actions.
	Archived bool `json:"archived,omitempty"`

	GlobalAccountID string `json:"globalAccountId,omitempty"`
	SubaccountID    string `json:"subaccountId,omitempty"`
	RuntimeName     string `json:"runtimeName,omitempty"`
	ShootName       string `json:"shootName,omitempty"`
	// Region is the region of the hyperscaler.
	Region string `json:"region,omitempty"`
	// OrchestrationID is set only for upgrades.
	OrchestrationID string `json:"orchestrationId,omitempty" jsonschema:"format=uuid"`
	// DryRun reports whether the operation changes nothing in the runtime.
	DryRun bool `json:"dryRun,omitempty"`
	// Purpose distinguishes the operations of a suspension: suspension and expiry are deprovisionings that keep the instance, unsuspension is
	// a provisioning that makes its runtime again. It is absent from all others.
	Purpose event.Purpose `json:"purpose,omitempty"`
}

// StepProgress is what a worker has reported about a running step. It is not stored.
type StepProgress struct {
	// Message is for example "3 of 7 nodes".
	Message string `json:"message"`
	// Percent is from 0 to 100; absent if the step does not know it.
	Percent *int `json:"percent,omitempty"`
	// At is when the report came.
	At time.Time `json:"at"`
}

// String returns the message with the percentage.
func (p *StepProgress) String() string {
	if p.Percent == nil {
		return p.Message
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%d %%)", p.Message, *p.Percent))
}

// Cause is a step that failed when its operation was cancelled.
type Cause struct {
	Stage string      `json:"stage"`
	Step  string      `json:"step"`
	Error event.Error `json:"error"`
	// Since is when the step began to fail, and Attempts the number of its tries.
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
}

// Final reports whether the operation has ended.
func (o *Operation) Final() bool { return o.State.Final() }

// ShownState returns the state for people: Incomplete if the operation succeeded without some of its steps.
func (o *Operation) ShownState() event.OperationState {
	if o.Incomplete {
		return Incomplete
	}
	return o.State
}

// Waiting describes why an operation that has not ended waits.
type Waiting struct {
	Reason WaitingReason `json:"reason"`
	// Since depends on the reason. For polling, event, failing, no_answer and held, it is since when the reason holds. For executing and slow, it is when
	// the command was sent. For no_worker, it is also when the worker was last seen, if that was later. For instance_busy and admission, and
	// for pending operations that are limited, it is when the operation was requested, or retried by an operator.
	Since time.Time `json:"since"`
	// Step is the step that the reason belongs to, and Worker its worker. While a stage is repeated, the current step may be an earlier one.
	Worker string `json:"worker,omitempty"`
	Step   string `json:"step,omitempty"`
	// Version is the version that the worker must have because of a ramp (no_worker); absent for any.
	Version string `json:"version,omitempty"`
	// Until is when the next try starts, or, while a try runs, when its execution limit ends. It is absent for no_worker and held.
	Until *time.Time `json:"until,omitempty"`
	// ExtendedSeconds is by how much until is later because the worker asked for more time for the running try; absent if it did not.
	ExtendedSeconds int `json:"extendedSeconds,omitempty"`
	// Event is the key of the event that the step waits for (event, or failing with a step that waits for one).
	Event string `json:"event,omitempty"`
	// Operation is the operation in progress on the instance (instance_busy).
	Operation string `json:"operation,omitempty" jsonschema:"format=uuid"`
	// Hold is the hold that holds the operation (held).
	Hold string `json:"hold,omitempty" jsonschema:"format=uuid"`
	// Limit is the name of the limit that has no room (limited).
	Limit string `json:"limit,omitempty"`
	// Position is the position in the queue of the limit, from 1. It is absent in long lists. It grows when others have earlier turns.
	Position int `json:"position,omitempty"`
}

// Extension describes the time that the worker has asked for; empty if it has not.
func (w *Waiting) Extension() string {
	if w == nil || w.ExtendedSeconds == 0 || w.Until == nil {
		return ""
	}
	return fmt.Sprintf("the worker was given more time, until %s (%s longer)", w.Until.Format(time.RFC3339), time.Duration(w.ExtendedSeconds)*time.Second)
}

// String returns a human-readable sentence. It is empty during the first try of a step.
func (w *Waiting) String() string {
	if w == nil {
		return ""
	}
	since := w.Since.Format(time.RFC3339)
	switch w.Reason {
	case InstanceBusy:
		return "instance busy with operation " + w.Operation
	case Admission:
		return "admission"
	case Held:
		return fmt.Sprintf("hold %s since %s", w.Hold, since)
	case Limited:
		if w.Position > 0 {
			return fmt.Sprintf("limit %s at position %d since %s", w.Limit, w.Position, since)
		}
		return fmt.Sprintf("limit %s since %s", w.Limit, since)
	case Slow:
		return fmt.Sprintf("step %s, executing for longer than usual since %s", w.Step, since)
	case Polling:
		return fmt.Sprintf("step %s, polling since %s", w.Step, since)
	case AwaitsEvent:
		return fmt.Sprintf("step %s, waiting for the event %s since %s", w.Step, w.Event, since)
	case Failing:
		return fmt.Sprintf("step %s, failing since %s", w.Step, since)
	case NoAnswer:
		return fmt.Sprintf("worker %s, which has not answered for step %s since %s", w.Worker, w.Step, since)
	case NoWorker:
		worker := w.Worker
		if w.Version != "" {
			worker += " of version " + w.Version
		}
		return fmt.Sprintf("no live worker %s for step %s since %s", worker, w.Step, since)
	default:
		return ""
	}
}

// Budget is how long a step is tried, and what happens then.
type Budget struct {
	// Attempts is the number of tries of the step so far, including the running one.
	Attempts int `json:"attempts"`
	// Limit is the budget that ends first. retry: the retry timeout of the step. wait: its wait timeout, for a step that polls. operation: the
	// time limit of the operation.
	Limit string `json:"limit" jsonschema:"enum=retry,enum=wait,enum=operation"`
	// NextTryAt is when the step is tried again; absent while a try runs or a stage is repeated on the way to the step.
	NextTryAt *time.Time `json:"nextTryAt,omitempty"`
	// EndsAt is when the budget is spent, or when the time of the operation ends, if that is earlier.
	EndsAt time.Time `json:"endsAt"`
	// SecondsLeft is the time until endsAt when the answer was made; 0 if it is over.
	SecondsLeft int `json:"secondsLeft"`
	// OnTimeout is what happens if the step has not succeeded by then. fail: the operation fails. skip: the step is not completed, and the
	// operation continues with the next one.
	OnTimeout string `json:"onTimeout" jsonschema:"enum=fail,enum=skip"`
}

// OperationDetail is an operation with its stages and its history.
type OperationDetail struct {
	Operation
	Stages []Stage `json:"stages"`
	// History is ordered from oldest to newest, and contains at most the newest 500 lines. Consecutive tries of a step with the same result
	// are one line.
	History []HistoryLine `json:"history"`
	// HistoryCount is the number of all lines. If there are more than in history, GET /operations/{id}/history lists them.
	HistoryCount int `json:"historyCount"`
	// ProcessHash is the hash of the process definition that the operation uses, and ProcessCurrent reports whether new operations use it, too.
	ProcessHash    string `json:"processHash"`
	ProcessCurrent bool   `json:"processCurrent,omitempty"`
	// Details contains the data that each worker has saved, by worker, without secrets.
	Details json.RawMessage `json:"details,omitempty"`
	// Parameters are those that the workers get: those of the request with the defaults of the plan, without secrets.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Update is what an update changes, and Upgrade the target of an upgrade.
	Update  *event.Changes `json:"update,omitempty"`
	Upgrade *event.Upgrade `json:"upgrade,omitempty"`
	// Runs are the times in which the operation ran, from oldest to newest. An operator's retry begins another run.
	Runs []Run `json:"runs"`
	// TraceID is the trace of the operation; absent if it is not traced.
	TraceID string `json:"traceId,omitempty"`
	// Links lead to other systems, such as those with logs and traces (KEB_OPERATOR_LINKS).
	Links []Link `json:"links,omitempty"`
}

// Run is the time from a start of an operation to its end.
type Run struct {
	StartedAt time.Time `json:"startedAt"`
	// EndedAt and State are absent while it runs.
	EndedAt *time.Time           `json:"endedAt,omitempty"`
	State   event.OperationState `json:"state,omitempty"`
}

// Link is a page of another system.
type Link struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// OperationChange is the data of the stream event change: what has changed in an OperationDetail since the event before. The members stages
// and history are not in set: changed stages and steps are listed here, and lines of the history have an event of their own.
type OperationChange struct {
	// Set contains the members with new values, and Unset the names of those that are gone.
	Set    map[string]json.RawMessage `json:"set,omitempty"`
	Unset  []string                   `json:"unset,omitempty"`
	Stages []StageChange              `json:"stages,omitempty"`
	Steps  []StepChange               `json:"steps,omitempty"`
}

// StageChange contains the members of a stage that change, with its index.
type StageChange struct {
	Stage   int    `json:"stage"`
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
}

// StepChange is a changed step, with the indexes of its stage and of itself.
type StepChange struct {
	Stage int  `json:"stage"`
	Step  int  `json:"step"`
	To    Step `json:"to"`
}

// States of stages and steps. The state of a step may also be an event.Outcome that ends it, or one of StepReasons other than executing.
const (
	StateWaiting      = "waiting"
	StateCurrent      = "current"
	StateFinished     = "finished"
	StateSucceeded    = "succeeded"
	StateFailed       = "failed"
	StateSkipped      = "skipped"
	StateNotCompleted = "not completed"
	StateCancelled    = "cancelled"
)

// Stage is a stage of an operation.
type Stage struct {
	Name    string `json:"name"`
	State   string `json:"state" jsonschema:"enum=waiting,enum=current,enum=finished,enum=failed,enum=cancelled"`
	Attempt int    `json:"attempt"`
	// Finally reports whether this is the stage that always runs at the end of the operation, also after a failure.
	Finally bool   `json:"finally,omitempty"`
	Steps   []Step `json:"steps"`
}

// Step is a step of an operation.
type Step struct {
	Name string `json:"name"`
	// Worker is "orchestrator" for steps that the orchestrator runs itself.
	Worker string `json:"worker"`
	State  string `json:"state" jsonschema:"enum=waiting,enum=current,enum=slow,enum=polling,enum=event,enum=failing,enum=no_answer,enum=no_worker,enum=held,enum=limited,enum=succeeded,enum=failed,enum=cancelled,enum=skipped,enum=not completed"`
	// Attempts is the number of executions in all attempts of the stage.
	Attempts     int        `json:"attempts"`
	FirstTriedAt *time.Time `json:"firstTriedAt,omitempty"`
	// StartedAt is when the last execution started.
	StartedAt  *time.Time   `json:"startedAt,omitempty"`
	FinishedAt *time.Time   `json:"finishedAt,omitempty"`
	DurationMS *int64       `json:"durationMs,omitempty"`
	Message    string       `json:"message,omitempty"`
	Error      *event.Error `json:"error,omitempty"`
}

// HistoryLine is one try of a step, several consecutive tries with the same result, or a transition of the operation, which has neither
// stage nor step. Other steps of a repeated stage may lie between the tries. Of several tries, first describes the first one, and all other
// members the last one.
type HistoryLine struct {
	// Cursor is unique in the operation. It grows if another try becomes part of the line.
	Cursor int64 `json:"cursor"`
	// Tries is the number of tries of the line; 1 for a transition of the operation.
	Tries int `json:"tries"`
	// First is the first try; absent if there is only one.
	First *FirstTry `json:"first,omitempty"`
	// Similar reports whether the tries had different messages or errors, of which only the last one is kept. That happens only in long loops.
	Similar       bool         `json:"similar,omitempty"`
	Stage         string       `json:"stage,omitempty"`
	Step          string       `json:"step,omitempty"`
	Worker        string       `json:"worker,omitempty"`
	WorkerVersion string       `json:"workerVersion,omitempty"`
	Outcome       string       `json:"outcome" jsonschema:"enum=succeeded,enum=retry,enum=failed,enum=skipped,enum=not completed,enum=stage lost,enum=no answer,enum=operation started,enum=operation succeeded,enum=operation failed,enum=operation cancelled,enum=operation ending,enum=retried by operator,enum=event received"`
	StageAttempt  int          `json:"stageAttempt,omitempty"`
	StepAttempt   int          `json:"stepAttempt,omitempty"`
	Message       string       `json:"message,omitempty"`
	Error         *event.Error `json:"error,omitempty"`
	// QueuedMS is how long the command waited for its worker, in milliseconds; absent for less than 50.
	QueuedMS   int64     `json:"queuedMs,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// FirstTry is the first of the tries of a HistoryLine. Its cursor identifies the line: it does not change when the line grows.
type FirstTry struct {
	Cursor       int64     `json:"cursor"`
	StageAttempt int       `json:"stageAttempt"`
	StepAttempt  int       `json:"stepAttempt"`
	StartedAt    time.Time `json:"startedAt"`
}

// Try is one execution of a step: what its worker was sent, and what it answered. For a line of several tries, first describes the first
// one, sent is what the first one got, answer is that of the last one, and saved is what all of them changed.
type Try struct {
	OperationID string `json:"operationId" jsonschema:"format=uuid"`
	// Cursor is that of the line of the history; absent while the try is running.
	Cursor       int64     `json:"cursor,omitempty"`
	Tries        int       `json:"tries"`
	First        *FirstTry `json:"first,omitempty"`
	Stage        string    `json:"stage"`
	Step         string    `json:"step"`
	Worker       string    `json:"worker"`
	StageAttempt int       `json:"stageAttempt,omitempty"`
	StepAttempt  int       `json:"stepAttempt,omitempty"`
	// Sent is absent if no worker was sent a command, such as for a skipped step.
	Sent *Sent `json:"sent,omitempty"`
	// Answer is absent while the try is running.
	Answer *Answer `json:"answer,omitempty"`
}

// Sent is what a worker was sent. The stage memory, which holds secrets, is not part of a command.
type Sent struct {
	// Parameters are those of the request with the defaults of the plan, without secrets.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Update is what an update changes, and Upgrade the target of an upgrade.
	Update  *event.Changes `json:"update,omitempty"`
	Upgrade *event.Upgrade `json:"upgrade,omitempty"`
	// Credentials lists the names of the credentials that the worker could claim from the broker.
	Credentials []string `json:"credentials"`
	// Details contains the data that each worker had saved by then, by worker, without secrets.
	Details json.RawMessage `json:"details,omitempty"`
	// Unknown names members of details that had another value, which was not recorded because of its size, as worker.member. A worker alone
	// means any of its members.
	Unknown []string `json:"unknown,omitempty"`
	// DetailsRecorded is false if the operation started with an earlier release, which did not record changes: details and saved are then
	// absent.
	DetailsRecorded bool `json:"detailsRecorded"`
	// Event describes the event that came for the step since its answer before.
	Event string `json:"event,omitempty"`
	// ExecutionMS is the limit on one execution; RetryTimeoutMS and WaitTimeoutMS are the budgets of the step. A budget is absent if only the
	// timeout of the operation applies.
	ExecutionMS    int64 `json:"executionMs"`
	RetryTimeoutMS int64 `json:"retryTimeoutMs,omitempty"`
	WaitTimeoutMS  int64 `json:"waitTimeoutMs,omitempty"`
}

// Answer is the result of a try.
type Answer struct {
	Outcome       string       `json:"outcome" jsonschema:"enum=succeeded,enum=retry,enum=failed,enum=skipped,enum=not completed,enum=stage lost,enum=no answer"`
	WorkerVersion string       `json:"workerVersion,omitempty"`
	Message       string       `json:"message,omitempty"`
	Error         *event.Error `json:"error,omitempty"`
	// RetryAfterMS is the time to the next try; absent if the outcome asks for none.
	RetryAfterMS int64 `json:"retryAfterMs,omitempty"`
	// Saved contains the members of the worker's own saved data that the try changed, without secrets; null means that it removed the member.
	Saved json.RawMessage `json:"saved,omitempty"`
	// Unknown names the changed members whose values are not known, because a later change was too large to record. The name of the worker
	// means that it changed more members than are recorded.
	Unknown []string `json:"unknown,omitempty"`
	// QueuedMS is how long the command waited for its worker; absent for less than 50.
	QueuedMS   int64     `json:"queuedMs,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// TryRunning is the name of the try that is running, in place of the cursor of a line.
const TryRunning = "running"

// HistoryPage is a page of the history of an operation, ordered from oldest to newest. A line that grows while the pages are read moves to
// the end, and may be on two pages.
type HistoryPage struct {
	List[HistoryLine]
	// NextAfter is the value of after for the next page. It is absent on the last page.
	NextAfter int64 `json:"nextAfter,omitempty"`
}

// HistoryLines is the data of the stream event history: the lines that are new or have grown. A line that has grown replaces the one with
// the same first cursor.
type HistoryLines struct {
	Operation string        `json:"operation" jsonschema:"format=uuid"`
	Lines     []HistoryLine `json:"lines"`
}

// Resync is the data of the stream event resync.
type Resync struct {
	Reason string `json:"reason"`
}

// OperationList is a page of operations.
type OperationList struct {
	List[Operation]
	// TotalCountCapped reports whether there are more operations than totalCount.
	TotalCountCapped bool `json:"totalCountCapped,omitempty"`
	// NextCursor is absent on the last page, and with the orders duration, attempts and state.
	NextCursor string `json:"nextCursor,omitempty"`
	// SortedWithin is the number of newest operations that were sorted, if there are more: the others are not in the list.
	SortedWithin int `json:"sortedWithin,omitempty"`
}

// ActionRequest is the body of a request to cancel, retry or skip.
type ActionRequest struct {
	// By is the name of the caller. It is ignored if callers are authenticated.
	By string `json:"by,omitempty"`
	// Step is the current step. It is required for skip; the request is rejected if the operation is at another step. For retry it is the step
	// of the stage to retry from; the steps before it stay as they are.
	Step string `json:"step,omitempty"`
	// Stage is the stage to retry from: the failed one or an earlier one. Without it a retry begins with the failed stage. It is allowed
	// only for retry, and required with the step to retry from.
	Stage string `json:"stage,omitempty"`
	// DryRun returns a preview of a retry and changes nothing. It is allowed only for retry.
	DryRun bool `json:"dryRun,omitempty"`
}

// RetryPreview lists what becomes of the steps of an operation if it is retried.
type RetryPreview struct {
	// Steps are in the order in which they run.
	Steps []PlannedStep `json:"steps"`
	// LosesMemory reports whether steps before the chosen one may have shared secrets or overrides in the stage memory, which is deleted when
	// an operation ends. If one of the steps needs them, the stage starts again at its first step.
	LosesMemory bool `json:"losesMemory,omitempty"`
	// Sent is what the worker of the first step that runs is sent; absent if none runs.
	Sent *Sent `json:"sent,omitempty"`
}

// RetryFrom returns the place to retry from in one text: the stage, or the stage and the step.
func RetryFrom(stage, step string) string {
	if step == "" {
		return stage
	}
	return stage + "/" + step
}

// PlannedStep is what becomes of a step after a retry, as far as it is known before.
type PlannedStep struct {
	Stage string `json:"stage"`
	Step  string `json:"step"`
	// Plan is again (the step has run already), first, skipped, or unknown if its condition needs data that the operation does not have
	// yet.
	Plan string `json:"plan"`
	// Reason explains why a step is skipped or why its plan is unknown.
	Reason string `json:"reason,omitempty"`
}
