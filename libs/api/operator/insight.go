package operator

import (
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// OperationCounts counts operations.
type OperationCounts struct {
	Started   int64 `json:"started"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
}

// StepCounts counts executions of steps by outcome.
type StepCounts struct {
	Succeeded    int64 `json:"succeeded"`
	Retry        int64 `json:"retry"`
	Failed       int64 `json:"failed"`
	Skipped      int64 `json:"skipped"`
	NotCompleted int64 `json:"notCompleted"`
	StageLost    int64 `json:"stageLost"`
}

// Overview is how many operations there are, what they wait for, and what the last hour brought.
type Overview struct {
	// Time is when the numbers were taken.
	Time time.Time `json:"time"`
	// Operations has the types and states that have operations.
	Operations []StateCount `json:"operations"`
	// Waiting counts operations that have not ended, by what they wait for.
	Waiting map[WaitingReason]int `json:"waiting"`
	// Oldest has the oldest operation of each type that has not ended.
	Oldest []Oldest `json:"oldest"`
	// Steps are those that operations in progress are at.
	Steps    []StepCount     `json:"steps"`
	LastHour OperationCounts `json:"lastHour"`
}

// StateCount counts the operations of a type in a state.
type StateCount struct {
	Type  event.OperationType  `json:"type"`
	State event.OperationState `json:"state"`
	Count int                  `json:"count"`
	// Capped tells that there are more.
	Capped bool `json:"capped,omitempty"`
}

// StepCount counts the operations of a type at a step.
type StepCount struct {
	Type  event.OperationType `json:"type"`
	Stage string              `json:"stage"`
	Step  string              `json:"step"`
	Count int                 `json:"count"`
}

// Oldest is the oldest operation of a type that has not ended.
type Oldest struct {
	Type      event.OperationType  `json:"type"`
	Operation string               `json:"operation" jsonschema:"format=uuid"`
	State     event.OperationState `json:"state"`
	CreatedAt time.Time            `json:"createdAt"`
}

// Stuck is a number of operations that do not move for the same reason.
type Stuck struct {
	// Reason is never executing.
	Reason WaitingReason       `json:"reason"`
	Type   event.OperationType `json:"type"`
	// Worker, Step and Stage are those of retry and no_worker.
	Worker string `json:"worker,omitempty"`
	Step   string `json:"step,omitempty"`
	Stage  string `json:"stage,omitempty"`
	// Since is when the first of them began to wait, as in the object waiting.
	Since time.Time `json:"since"`
	Count int       `json:"count"`
	// Error is the last error of one of those that wait longest.
	Error *event.Error `json:"error,omitempty"`
	// Message is the last message of one of those that wait longest.
	Message string `json:"message,omitempty"`
	// Operations are those that wait longest, at most 5.
	Operations []string `json:"operations"`
	// Text is for people.
	Text string `json:"text"`
}

// Throughput is a series of counts over time.
type Throughput struct {
	List[*Bucket]
	BucketSeconds int `json:"bucketSeconds"`
}

// Bucket is what ended within a time.
type Bucket struct {
	// Time is when the bucket begins.
	Time       time.Time       `json:"time"`
	Operations OperationCounts `json:"operations"`
	Steps      StepCounts      `json:"steps"`
}

// LiveWorker is a worker without the numbers that change all the time.
type LiveWorker struct {
	Name     string `json:"name"`
	Replicas int    `json:"replicas"`
	// Alive tells that a replica has answered lately.
	Alive bool `json:"alive"`
	// Versions are those of the live replicas.
	Versions []string `json:"versions"`
	// Steps are those that a live replica serves.
	Steps []string `json:"steps"`
	// MissingSteps are those that the processes name and no live replica serves.
	MissingSteps []string `json:"missingSteps"`
}

// LiveWorkers are the data of the stream's event workers.
type LiveWorkers struct {
	Data []*LiveWorker `json:"data"`
}

// Worker is a worker.
type Worker struct {
	LiveWorker
	// Version is versions with commas between.
	Version string `json:"version"`
	// LastSeen is when a replica answered last; absent when this orchestrator has seen none since its start.
	LastSeen *time.Time `json:"lastSeen,omitempty"`
	// Pending is how many commands wait on the bus; absent when the bus does not answer.
	Pending *int64 `json:"pending,omitempty"`
	// DeliveredNotAcked is how many commands replicas have and have not answered; absent when the bus does not answer.
	DeliveredNotAcked *int64 `json:"deliveredNotAcked,omitempty"`
	// StepsPerMinute is how many executions ended, in the last one to two minutes.
	StepsPerMinute float64 `json:"stepsPerMinute"`
	// FailuresPerMinute is how many of them failed or were not completed.
	FailuresPerMinute float64 `json:"failuresPerMinute"`
	// OperationsWaiting is how many operations at its steps wait for a retry or for the worker.
	OperationsWaiting int `json:"operationsWaiting"`
	// OperationsExecuting is how many operations at its steps have their command out.
	OperationsExecuting int `json:"operationsExecuting"`
}

// Me is the caller.
type Me struct {
	Name           string `json:"name"`
	Role           string `json:"role" jsonschema:"enum=viewer,enum=operator"`
	Authentication string `json:"authentication" jsonschema:"enum=none,enum=token,enum=oidc"`
}

// Action is a request that changed something, or was refused.
type Action struct {
	// ID grows with time.
	ID   int64     `json:"id"`
	Time time.Time `json:"time"`
	// Name is that of the caller.
	Name string `json:"name"`
	// Subject is what the issuer calls the same person for good, with authentication oidc.
	Subject string `json:"subject,omitempty"`
	// Role is empty for a caller that was refused because it has none.
	Role           string `json:"role" jsonschema:"enum=viewer,enum=operator,enum="`
	Authentication string `json:"authentication" jsonschema:"enum=none,enum=token,enum=oidc"`
	// Action is cancel, retry, skip, upgrade_kyma, upgrade_cluster, cancel_orchestration, retry_orchestration or replay_facts.
	Action string `json:"action"`
	// Target is the operation or orchestration.
	Target string `json:"target"`
	// Detail is, for example, the step that was skipped.
	Detail string `json:"detail,omitempty"`
	// Outcome is written twice: an action is recorded before it is done. One that stays begun is of an orchestrator that ended meanwhile.
	Outcome string `json:"outcome" jsonschema:"enum=begun,enum=done,enum=refused,enum=failed"`
	// Reason is why the action was refused or failed.
	Reason string `json:"reason,omitempty"`
}

// Event is a line of a history as an API older than this one shows it (docs/contracts/broker.md#events).
type Event struct {
	ID          string
	Level       string `jsonschema:"enum=info,enum=error"`
	InstanceID  string
	OperationID string `jsonschema:"format=uuid"`
	Message     string
	CreatedAt   time.Time
}
