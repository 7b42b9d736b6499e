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
	Succeeded int64 `json:"succeeded"`
	// Polled counts tries that ended without an error and asked to run again, and Retry those with an error that are repeated.
	Polled       int64 `json:"polled"`
	Retry        int64 `json:"retry"`
	Failed       int64 `json:"failed"`
	Skipped      int64 `json:"skipped"`
	NotCompleted int64 `json:"notCompleted"`
	StageLost    int64 `json:"stageLost"`
	NoAnswer     int64 `json:"noAnswer"`
}

// Overview counts operations by state, the reasons that they wait for, and the results of the last hour.
type Overview struct {
	// Time is when the numbers were counted.
	Time time.Time `json:"time"`
	// Operations counts operations by type and state. Combinations without operations are omitted.
	Operations []StateCount `json:"operations"`
	// Waiting counts operations that have not ended, by reason.
	Waiting map[WaitingReason]int `json:"waiting"`
	// Oldest contains, for each type, the oldest operation that has not ended.
	Oldest []Oldest `json:"oldest"`
	// Steps counts operations in progress by step, as in the object waiting.
	Steps []StepCount `json:"steps"`
	// LastHour counts the operations that started, and those that ended since LastHourSince. The list with finished_since returns as many ended
	// ones, unless there are more than 10,000.
	LastHour      OperationCounts `json:"lastHour"`
	LastHourSince time.Time       `json:"lastHourSince"`
}

// StateCount counts the operations of a type in a state.
type StateCount struct {
	Type  event.OperationType  `json:"type"`
	State event.OperationState `json:"state"`
	Count int                  `json:"count"`
	// Capped reports whether there are more operations than count.
	Capped bool `json:"capped,omitempty"`
}

// StepCount counts the operations of a type whose current step is this one.
type StepCount struct {
	Type  event.OperationType `json:"type"`
	Stage string              `json:"stage"`
	Step  string              `json:"step"`
	Count int                 `json:"count"`
}

// StepFigures counts the operations at a step of a type.
type StepFigures struct {
	Type  event.OperationType `json:"type"`
	Stage string              `json:"stage"`
	Step  string              `json:"step"`
	// Operations is the number of operations in progress at the step, as in the object waiting.
	Operations int `json:"operations"`
	// Waiting counts these operations by reason. Reasons without operations are omitted.
	Waiting map[WaitingReason]int `json:"waiting"`
	// FailedLastDay is the number of operations that failed at the step in the last 24 hours.
	FailedLastDay int `json:"failedLastDay"`
}

// Oldest is the oldest operation of a type that has not ended.
type Oldest struct {
	Type      event.OperationType  `json:"type"`
	Operation string               `json:"operation" jsonschema:"format=uuid"`
	State     event.OperationState `json:"state"`
	CreatedAt time.Time            `json:"createdAt"`
}

// Stuck is a group of operations that wait for the same reason. Operations that poll are stuck once they have polled for half of the time
// that their step may take.
type Stuck struct {
	// Reason is never executing.
	Reason WaitingReason       `json:"reason"`
	Type   event.OperationType `json:"type"`
	// Worker, Stage and Step are absent for the reasons instance_busy and admission, and for pending operations that are held or limited.
	Worker string `json:"worker,omitempty"`
	Step   string `json:"step,omitempty"`
	Stage  string `json:"stage,omitempty"`
	// Version is the version that the worker must have because of a ramp (no_worker); absent for any.
	Version string `json:"version,omitempty"`
	// Since is when the first operation of the group began to wait, as in the object waiting.
	Since time.Time `json:"since"`
	Count int       `json:"count"`
	// Error is the last error of one of the longest-waiting operations.
	Error *event.Error `json:"error,omitempty"`
	// Message is the last message of one of the longest-waiting operations.
	Message string `json:"message,omitempty"`
	// Operations lists the longest-waiting operations, at most 5.
	Operations []string `json:"operations"`
	// BlockedBy lists the operations in progress on the instances of these operations, for the reason instance_busy.
	BlockedBy []string `json:"blockedBy,omitempty"`
	// Text is a human-readable summary.
	Text string `json:"text"`
}

// Throughput is a series of counts over time.
type Throughput struct {
	List[*Bucket]
	BucketSeconds int `json:"bucketSeconds"`
}

// Bucket counts what ended in an interval.
type Bucket struct {
	// Time is the start of the interval.
	Time       time.Time       `json:"time"`
	Operations OperationCounts `json:"operations"`
	// Types counts operations by type. Types that neither started nor ended are omitted.
	Types map[event.OperationType]OperationCounts `json:"types,omitempty"`
	Steps StepCounts                              `json:"steps"`
}

// LiveWorker describes a worker without the numbers that change continuously.
type LiveWorker struct {
	Name     string `json:"name"`
	Replicas int    `json:"replicas"`
	// Alive reports whether a replica of the worker has answered recently.
	Alive bool `json:"alive"`
	// Versions lists the versions of the live replicas, and VersionReplicas the number of replicas of each.
	Versions        []string          `json:"versions"`
	VersionReplicas []VersionReplicas `json:"versionReplicas"`
	// Steps lists the steps that a live replica serves.
	Steps []string `json:"steps"`
	// MissingSteps lists the steps that the processes use and that no live replica serves.
	MissingSteps []string `json:"missingSteps"`
	// Ramps are the ramps of the worker, oldest first.
	Ramps []Ramp `json:"ramps,omitempty"`
}

// VersionReplicas is the number of live replicas of a version.
type VersionReplicas struct {
	Version  string `json:"version"`
	Replicas int    `json:"replicas"`
	// Ramped is the number of these replicas that execute only the commands that a ramp sends to their version.
	Ramped int `json:"ramped,omitempty"`
}

// LiveWorkers is the data of the stream event workers.
type LiveWorkers struct {
	Data []*LiveWorker `json:"data"`
}

// Worker describes a worker. The list contains the workers that are live and the workers that the processes name.
type Worker struct {
	LiveWorker
	// Version lists the versions, separated by commas.
	Version string `json:"version"`
	// LastSeen is when a replica last answered. It is absent if none has answered since this orchestrator started.
	LastSeen *time.Time `json:"lastSeen,omitempty"`
	// Pending is the number of commands that wait on the bus. It is 0 for a worker without steps, and absent if the bus does not answer.
	Pending *int64 `json:"pending,omitempty"`
	// DeliveredNotAcked is the number of commands that were delivered to a replica and not acknowledged. It is absent if the bus does not
	// answer.
	DeliveredNotAcked *int64 `json:"deliveredNotAcked,omitempty"`
	// StepsPerMinute is the number of executions that ended per minute, over the last one to two minutes.
	StepsPerMinute float64 `json:"stepsPerMinute"`
	// RetriesPerMinute is the number of these executions that ended with an error or got no answer, and are repeated.
	RetriesPerMinute float64 `json:"retriesPerMinute"`
	// FailuresPerMinute is the number of these executions that failed or were not completed.
	FailuresPerMinute float64 `json:"failuresPerMinute"`
	// OperationsWaiting is the number of operations at the worker's steps that poll, fail, get no answer or have no live worker.
	OperationsWaiting int `json:"operationsWaiting"`
	// OperationsExecuting is the number of operations at the worker's steps whose first try runs.
	OperationsExecuting int `json:"operationsExecuting"`
}

// Me is the caller.
type Me struct {
	Name           string `json:"name"`
	Role           string `json:"role" jsonschema:"enum=viewer,enum=operator"`
	Authentication string `json:"authentication" jsonschema:"enum=none,enum=token,enum=oidc"`
}

// Action is an audit record of a request to change something, including rejected requests.
type Action struct {
	// ID increases with time.
	ID   int64     `json:"id"`
	Time time.Time `json:"time"`
	// Name is the name of the caller.
	Name string `json:"name"`
	// Subject is the permanent ID of the caller at the OIDC issuer. It is set only with authentication oidc.
	Subject string `json:"subject,omitempty"`
	// Role is empty if the request was rejected because the caller has no role.
	Role           string `json:"role" jsonschema:"enum=viewer,enum=operator,enum="`
	Authentication string `json:"authentication" jsonschema:"enum=none,enum=token,enum=oidc"`
	// Action is cancel, retry, skip, upgrade_kyma, upgrade_cluster, cancel_orchestration, pause_orchestration, resume_orchestration,
	// approve_orchestration, retry_orchestration, replay_facts, create_hold, release_hold, create_ramp, remove_ramps, apply_limits, order_batch, pause_batch, resume_batch,
	// cancel_batch, apply_overlay, remove_overlay, roll_back_overlays, redrive_dead_letter or drop_dead_letter.
	Action string `json:"action"`
	// Target is the ID of the operation or orchestration, the name of the overlay, or the version of the overlays that was restored.
	Target string `json:"target"`
	// Detail depends on the action, for example the step that was skipped.
	Detail string `json:"detail,omitempty"`
	// Outcome is begun before the action runs, and then updated. An action that stays begun was interrupted by the end of its orchestrator.
	Outcome string `json:"outcome" jsonschema:"enum=begun,enum=done,enum=refused,enum=failed"`
	// Reason explains why the action was refused or failed.
	Reason string `json:"reason,omitempty"`
}

// Event is a line of a history in the format of the older events API (docs/contracts/broker.md#events).
type Event struct {
	ID          string
	Level       string `jsonschema:"enum=info,enum=error"`
	InstanceID  string
	OperationID string `jsonschema:"format=uuid"`
	Message     string
	CreatedAt   time.Time
}
