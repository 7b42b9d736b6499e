package operator

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// WaitingReason is what an operation that has not ended waits for: retry, the step is due to run again; no_worker, no live worker serves
// the step; instance_busy, another operation of the instance is in progress; admission, the operation has not started although its
// instance is free, for example because the most operations of its type are in progress; executing, a worker has the step's command, so the
// operation is not stuck.
type WaitingReason string

// The reasons.
const (
	WaitsForRetry     WaitingReason = "retry"
	WaitsForWorker    WaitingReason = "no_worker"
	WaitsForInstance  WaitingReason = "instance_busy"
	WaitsForAdmission WaitingReason = "admission"
	Executing         WaitingReason = "executing"
)

// WaitingReasons lists the reasons.
func WaitingReasons() []WaitingReason {
	return []WaitingReason{WaitsForRetry, WaitsForWorker, WaitsForInstance, WaitsForAdmission, Executing}
}

// Operation is an operation as lists show it.
type Operation struct {
	ID         string               `json:"id" jsonschema:"format=uuid"`
	Type       event.OperationType  `json:"type"`
	State      event.OperationState `json:"state"`
	InstanceID string               `json:"instanceId"`
	Plan       string               `json:"plan"`
	// Stage is where the operation is, or where it failed.
	Stage        string `json:"stage,omitempty"`
	Step         string `json:"step,omitempty"`
	StageAttempt int    `json:"stageAttempt,omitempty"`
	StepAttempt  int    `json:"stepAttempt,omitempty"`
	// Cursor grows with every transition.
	Cursor int64 `json:"cursor"`
	// Message is that of the last result of a step.
	Message string       `json:"message,omitempty"`
	Error   *event.Error `json:"error,omitempty"`
	// NotCompleted are the steps that the operation went on without.
	NotCompleted []string `json:"notCompleted"`
	// WaitingFor is the object waiting as a sentence; absent while a worker executes the step.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Waiting is absent once the operation has ended.
	Waiting *Waiting `json:"waiting,omitempty"`
	// CancelRequested is why the operation will be cancelled with the next result of its step.
	CancelRequested string     `json:"cancelRequested,omitempty"`
	DueAt           *time.Time `json:"dueAt,omitempty"`
	CreatedAt       time.Time  `json:"createdAt"`
	StartedAt       *time.Time `json:"startedAt,omitempty"`
	FinishedAt      *time.Time `json:"finishedAt,omitempty"`
	// Archived operations ended long ago: they are in no list, and no action is possible.
	Archived bool `json:"archived,omitempty"`

	GlobalAccountID string `json:"globalAccountId,omitempty"`
	SubaccountID    string `json:"subaccountId,omitempty"`
	RuntimeName     string `json:"runtimeName,omitempty"`
	ShootName       string `json:"shootName,omitempty"`
	// Region is that of the hyperscaler.
	Region string `json:"region,omitempty"`
	// OrchestrationID is only for upgrades.
	OrchestrationID string `json:"orchestrationId,omitempty" jsonschema:"format=uuid"`
}

// Final reports whether the operation has ended.
func (o *Operation) Final() bool { return o.State.Final() }

// Waiting is why an operation that has not ended is where it is.
type Waiting struct {
	Reason WaitingReason `json:"reason"`
	// Since depends on the reason. retry and executing: when the step was first tried. no_worker: when the operation came to the step or its
	// worker was last seen, whichever is later. instance_busy and admission: when the operation was requested, or retried by an operator.
	Since  time.Time `json:"since"`
	Worker string    `json:"worker,omitempty"`
	Step   string    `json:"step,omitempty"`
	// Until is when the step runs again (retry), or when its command is sent again without a result (executing).
	Until *time.Time `json:"until,omitempty"`
	// Operation is the one in progress on the instance (instance_busy).
	Operation string `json:"operation,omitempty" jsonschema:"format=uuid"`
}

// String is the object as a sentence for people; it is empty while a worker executes the step.
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
	// History has the oldest line first, and the newest 2000.
	History []HistoryLine `json:"history"`
	// ProcessHash is that of the process definition that the operation runs by.
	ProcessHash string `json:"processHash"`
	// Details is what workers have saved, by worker; no secrets.
	Details json.RawMessage `json:"details,omitempty"`
}

// States of stages and steps. A step also has the outcomes of event.Outcome as states, except retry.
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
	// Finally marks the stage that runs however the operation ends.
	Finally bool   `json:"finally,omitempty"`
	Steps   []Step `json:"steps"`
}

// Step is a step of an operation.
type Step struct {
	Name string `json:"name"`
	// Worker is orchestrator for steps that the orchestrator runs itself.
	Worker string `json:"worker"`
	State  string `json:"state" jsonschema:"enum=waiting,enum=current,enum=retrying,enum=succeeded,enum=failed,enum=skipped,enum=not completed"`
	// Attempts counts over all attempts of the stage.
	Attempts     int        `json:"attempts"`
	FirstTriedAt *time.Time `json:"firstTriedAt,omitempty"`
	// StartedAt is that of the last execution.
	StartedAt  *time.Time   `json:"startedAt,omitempty"`
	FinishedAt *time.Time   `json:"finishedAt,omitempty"`
	DurationMS *int64       `json:"durationMs,omitempty"`
	Message    string       `json:"message,omitempty"`
	Error      *event.Error `json:"error,omitempty"`
}

// HistoryLine is one execution of a step, or a transition of the operation itself, which has no stage and no step.
type HistoryLine struct {
	// Cursor is unique in the operation.
	Cursor        int64        `json:"cursor"`
	Stage         string       `json:"stage,omitempty"`
	Step          string       `json:"step,omitempty"`
	Worker        string       `json:"worker,omitempty"`
	WorkerVersion string       `json:"workerVersion,omitempty"`
	Outcome       string       `json:"outcome" jsonschema:"enum=succeeded,enum=retry,enum=failed,enum=skipped,enum=not completed,enum=stage lost,enum=operation started,enum=operation succeeded,enum=operation failed,enum=operation cancelled,enum=operation ending,enum=retried by operator"`
	StageAttempt  int          `json:"stageAttempt,omitempty"`
	StepAttempt   int          `json:"stepAttempt,omitempty"`
	Message       string       `json:"message,omitempty"`
	Error         *event.Error `json:"error,omitempty"`
	StartedAt     time.Time    `json:"startedAt"`
	FinishedAt    time.Time    `json:"finishedAt"`
}

// HistoryLines are the data of the stream's event history.
type HistoryLines struct {
	Operation string        `json:"operation" jsonschema:"format=uuid"`
	Lines     []HistoryLine `json:"lines"`
}

// Resync is the data of the stream's event resync.
type Resync struct {
	Reason string `json:"reason"`
}

// OperationList is a page of operations.
type OperationList struct {
	List[Operation]
	// TotalCountCapped tells that there are more than totalCount.
	TotalCountCapped bool `json:"totalCountCapped,omitempty"`
	// NextCursor is absent on the last page.
	NextCursor string `json:"nextCursor,omitempty"`
}

// ActionRequest is the body of a request to cancel, retry or skip.
type ActionRequest struct {
	// By is the name of the caller; it counts only where callers are not authenticated.
	By string `json:"by,omitempty"`
	// Step is the current step, for skip; the request is rejected when the operation is elsewhere.
	Step string `json:"step,omitempty"`
}
