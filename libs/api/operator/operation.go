package operator

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// WaitingReason is why an operation that has not ended waits. retry: the step will run again at a set time. no_worker: no live worker
// serves the step. instance_busy: another operation of the instance is in progress. admission: the instance is free but the operation has
// not started, for example because the limit on operations of its type is reached. executing: a worker has the step's command; the
// operation is not stuck.
type WaitingReason string

// Reasons to wait.
const (
	WaitsForRetry     WaitingReason = "retry"
	WaitsForWorker    WaitingReason = "no_worker"
	WaitsForInstance  WaitingReason = "instance_busy"
	WaitsForAdmission WaitingReason = "admission"
	Executing         WaitingReason = "executing"
)

// WaitingReasons returns all reasons.
func WaitingReasons() []WaitingReason {
	return []WaitingReason{WaitsForRetry, WaitsForWorker, WaitsForInstance, WaitsForAdmission, Executing}
}

// Operation is an operation in a list.
type Operation struct {
	ID         string               `json:"id" jsonschema:"format=uuid"`
	Type       event.OperationType  `json:"type"`
	State      event.OperationState `json:"state"`
	InstanceID string               `json:"instanceId"`
	Plan       string               `json:"plan"`
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
	// NotCompleted lists the steps that were not completed and that the operation continued without.
	NotCompleted []string `json:"notCompleted"`
	// WaitingFor is a human-readable form of waiting. It is absent while a worker executes the step.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Waiting is absent once the operation has ended.
	Waiting *Waiting `json:"waiting,omitempty"`
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
}

// Final reports whether the operation has ended.
func (o *Operation) Final() bool { return o.State.Final() }

// Waiting describes why an operation that has not ended waits.
type Waiting struct {
	Reason WaitingReason `json:"reason"`
	// Since depends on the reason. For retry and executing, it is when the step was first tried. For no_worker, it is when the operation
	// reached the step or when the worker was last seen, whichever is later. For instance_busy and admission, it is when the operation was
	// requested, or retried by an operator.
	Since  time.Time `json:"since"`
	Worker string    `json:"worker,omitempty"`
	Step   string    `json:"step,omitempty"`
	// Until is when the step runs again (retry), or when its command is sent again if no result arrives (executing).
	Until *time.Time `json:"until,omitempty"`
	// Operation is the operation in progress on the instance (instance_busy).
	Operation string `json:"operation,omitempty" jsonschema:"format=uuid"`
}

// String returns a human-readable sentence. It is empty while a worker executes the step.
func (w *Waiting) String() string {
	if w == nil {
		return ""
	}
	switch w.Reason {
	case WaitsForInstance:
		return "instance busy with operation " + w.Operation
	case WaitsForAdmission:
		return "admission"
	case WaitsForRetry:
		return "retry at " + w.Until.Format(time.RFC3339)
	case WaitsForWorker:
		return fmt.Sprintf("no live worker %s for step %s since %s", w.Worker, w.Step, w.Since.Format(time.RFC3339))
	default:
		return ""
	}
}

// OperationDetail is an operation with its stages and its history.
type OperationDetail struct {
	Operation
	Stages []Stage `json:"stages"`
	// History is ordered from oldest to newest, and contains at most the newest 2000 lines.
	History []HistoryLine `json:"history"`
	// ProcessHash is the hash of the process definition that the operation uses.
	ProcessHash string `json:"processHash"`
	// Details contains the data that each worker has saved, by worker. It contains no secrets.
	Details json.RawMessage `json:"details,omitempty"`
}

// States of stages and steps. The state of a step may also be an event.Outcome other than retry.
const (
	StateWaiting      = "waiting"
	StateCurrent      = "current"
	StateFinished     = "finished"
	StateRetrying     = "retrying"
	StateSucceeded    = "succeeded"
	StateFailed       = "failed"
	StateSkipped      = "skipped"
	StateNotCompleted = "not completed"
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
	State  string `json:"state" jsonschema:"enum=waiting,enum=current,enum=retrying,enum=succeeded,enum=failed,enum=skipped,enum=not completed"`
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

// HistoryLine is one execution of a step, or a transition of the operation, which has neither stage nor step.
type HistoryLine struct {
	// Cursor is unique in the operation.
	Cursor        int64        `json:"cursor"`
	Stage         string       `json:"stage,omitempty"`
	Step          string       `json:"step,omitempty"`
	Worker        string       `json:"worker,omitempty"`
	WorkerVersion string       `json:"workerVersion,omitempty"`
	Outcome       string       `json:"outcome" jsonschema:"enum=succeeded,enum=retry,enum=failed,enum=skipped,enum=not completed,enum=stage lost,enum=no answer,enum=operation started,enum=operation succeeded,enum=operation failed,enum=operation cancelled,enum=operation ending,enum=retried by operator"`
	StageAttempt  int          `json:"stageAttempt,omitempty"`
	StepAttempt   int          `json:"stepAttempt,omitempty"`
	Message       string       `json:"message,omitempty"`
	Error         *event.Error `json:"error,omitempty"`
	StartedAt     time.Time    `json:"startedAt"`
	FinishedAt    time.Time    `json:"finishedAt"`
}

// HistoryLines is the data of the stream event history.
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
	// NextCursor is absent on the last page.
	NextCursor string `json:"nextCursor,omitempty"`
}

// ActionRequest is the body of a request to cancel, retry or skip.
type ActionRequest struct {
	// By is the name of the caller. It is ignored if callers are authenticated.
	By string `json:"by,omitempty"`
	// Step is the current step. It is required for skip; the request is rejected if the operation is at another step.
	Step string `json:"step,omitempty"`
}
