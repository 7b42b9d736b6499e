package event

import (
	"cmp"
	"encoding/json"
	"time"
)

// Plan identifies the service plan of an instance.
type Plan struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Context describes where an instance was ordered, without credentials.
type Context struct {
	GlobalAccountID string `json:"globalAccountId"`
	SubaccountID    string `json:"subaccountId"`
	UserID          string `json:"userId,omitempty"`
	// PlatformRegion is the region in the path of the OSB request, for example "cf-eu10".
	PlatformRegion string `json:"platformRegion,omitempty"`
	// Platform is the kind of platform, for example "cloudfoundry" or "kubernetes".
	Platform    string `json:"platform,omitempty"`
	LicenseType string `json:"licenseType,omitempty"`
	// SubscriptionGlobalAccountID is the global account in which the instance was ordered. It is set only after the subaccount was moved to
	// another global account. The hyperscaler account still belongs to it.
	SubscriptionGlobalAccountID string `json:"subscriptionGlobalAccountId,omitempty"`
}

// Subscription returns the global account that owns the hyperscaler account of the instance.
func (c Context) Subscription() string {
	return cmp.Or(c.SubscriptionGlobalAccountID, c.GlobalAccountID)
}

// Runtime contains the properties of a runtime that are fixed when the instance is ordered.
type Runtime struct {
	// Name is the name that the customer chose.
	Name        string `json:"name"`
	ShootName   string `json:"shootName"`
	ShootDomain string `json:"shootDomain"`
	// Provider is the hyperscaler: "azure", "aws", "gcp", "openstack", or "custom" for an own cluster.
	Provider string `json:"provider"`
	// Region is the provider's region, for example "eu-central-1".
	Region string `json:"region"`
}

// Operation describes an operation. It does not change while the operation runs, and contains no secret.
type Operation struct {
	// ID is a UUID.
	ID         string        `json:"id"`
	Type       OperationType `json:"type"`
	InstanceID string        `json:"instanceId"`
	Plan       Plan          `json:"plan"`
	Context    Context       `json:"context"`
	Runtime    Runtime       `json:"runtime"`
	// Parameters is a JSON object with the OSB parameters and the plan's defaults, without secrets.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Credentials lists the names of the sealed credentials that a worker may claim from the broker, see CredentialsRequest.
	Credentials []string `json:"credentials,omitempty"`
	// Temporary reports whether a deprovisioning suspends the instance: its runtime is removed, and the instance remains.
	Temporary bool `json:"temporary,omitempty"`
	// Purpose distinguishes the operations of a suspension; empty for all others.
	Purpose Purpose `json:"purpose,omitempty"`
	// UserAgent is the user agent of the client that requested a deprovisioning; empty for other operations.
	UserAgent string `json:"userAgent,omitempty"`
	// Update contains the changes of an update; absent for other operations.
	Update *Changes `json:"update,omitempty"`
	// Upgrade contains the target of an upgrade; absent for other operations.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
}

// Purpose is why a runtime is removed although its instance remains, or is made again. An expiry is a suspension that cannot be ended.
type Purpose string

// Purposes of operations.
const (
	PurposeSuspension   Purpose = "suspension"
	PurposeExpiry       Purpose = "expiry"
	PurposeUnsuspension Purpose = "unsuspension"
)

// Purposes returns every purpose.
func Purposes() []Purpose { return []Purpose{PurposeSuspension, PurposeExpiry, PurposeUnsuspension} }

// Changes describes the changes of an update. The operation describes the instance after the update.
type Changes struct {
	// Parameters is a JSON object with the effective parameters that change, and their new values; absent if none changes.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Credentials lists the names of the credentials that the request replaced.
	Credentials []string `json:"credentials,omitempty"`
	// LicenseType reports whether the license type of the context changes.
	LicenseType bool `json:"licenseType,omitempty"`
	// Plan reports whether the plan changes.
	Plan bool `json:"plan,omitempty"`
}

// Upgrade is the target of an upgrade, as the orchestration specifies it. An empty version means the configured version.
type Upgrade struct {
	// OrchestrationID is a UUID.
	OrchestrationID string `json:"orchestrationId"`
	// KymaVersion is set only for an upgrade of Kyma.
	KymaVersion string `json:"kymaVersion,omitempty"`
	// KubernetesVersion, MachineImage and MachineImageVersion are set only for an upgrade of the cluster.
	KubernetesVersion   string `json:"kubernetesVersion,omitempty"`
	MachineImage        string `json:"machineImage,omitempty"`
	MachineImageVersion string `json:"machineImageVersion,omitempty"`
	// DryRun reports whether the runtime must not be changed.
	DryRun bool `json:"dryRun,omitempty"`
	// Notification reports whether customers are notified through SPC.
	Notification bool `json:"notification,omitempty"`
	// MaintenanceWindowBegin and MaintenanceWindowEnd limit the planned time of the upgrade; absent if it has none.
	MaintenanceWindowBegin *time.Time `json:"maintenanceWindowBegin,omitempty"`
	MaintenanceWindowEnd   *time.Time `json:"maintenanceWindowEnd,omitempty"`
}

// Names of sealed credentials.
const (
	// CredentialsServiceManager is the sm_operator_credentials object of the OSB context.
	CredentialsServiceManager = "sm_operator_credentials" //nolint:gosec // a name
	// CredentialsPlatform is the sm_platform_credentials object of the OSB context. Only Kyma 1 uses it.
	CredentialsPlatform = "sm_platform_credentials" //nolint:gosec // a name
	// CredentialsKubeconfig is the kubeconfig of an own_cluster instance: {"kubeconfig": "<YAML>"}.
	CredentialsKubeconfig = "kubeconfig"
)

// OperationRequested is the payload of TypeOperationRequested. The event ID is the operation ID.
type OperationRequested struct {
	Operation   Operation `json:"operation"`
	RequestedAt time.Time `json:"requestedAt"`
}

// StepExecute is the payload of TypeStepExecute.
type StepExecute struct {
	Operation Operation `json:"operation"`
	// Details contains the saved data of the operation, a JSON object with one key for each worker.
	Details json.RawMessage `json:"details,omitempty"`
	Stage   string          `json:"stage"`
	Step    string          `json:"step"`
	// Cursor is the fencing token. It increases by one with every transition of the operation.
	Cursor int64 `json:"cursor"`
	// Dispatch is the number of times that this command was sent deliberately, starting at 1.
	Dispatch int `json:"dispatch"`
	// StageAttempt and StepAttempt start at 1.
	StageAttempt int `json:"stageAttempt"`
	StepAttempt  int `json:"stepAttempt"`
	// FirstTriedAt is when this step was first tried after it last succeeded. Its budgets start at this time or later.
	FirstTriedAt time.Time `json:"firstTriedAt"`
	// ExecuteBefore is when the command is sent again if there is no result. The worker must stop before this time.
	ExecuteBefore time.Time `json:"executeBefore"`
	// StageMemory reports whether an earlier step of this stage attempt wrote to the stage memory.
	StageMemory bool `json:"stageMemory,omitempty"`
	// Event is the event that the step has waited for; absent if none has come. It comes with every command of the step until a result of
	// the step waits for the next event, or the step is done.
	Event *Signal `json:"event,omitempty"`
}

// Worker identifies the worker that executed a step.
type Worker struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Error describes a failure with a component and a reason, by which operators can group failures. It contains no secret.
type Error struct {
	// Component is the failing system, for example "avs".
	Component string `json:"component,omitempty"`
	// Reason is a short code, for example "err_http_status_code".
	Reason string `json:"reason,omitempty"`
	// Message is a human-readable message.
	Message string `json:"message"`
}

// String returns the error in one line.
func (e *Error) String() string {
	text := e.Message
	if e.Reason != "" {
		text = e.Reason + ": " + text
	}
	if e.Component != "" {
		text = e.Component + ": " + text
	}
	return text
}

const (
	// MaxRemoved is the maximum number of objects in Result.Removed.
	MaxRemoved = 100
	// MaxRemovedSize is the maximum size of each name in Result.Removed, in bytes.
	MaxRemovedSize = 256
)

// Result contains the fields that all results have.
type Result struct {
	OperationID string `json:"operationId"`
	// Cursor is the command's cursor. A result whose cursor differs from the operation's cursor has no effect.
	Cursor int64  `json:"cursor"`
	Stage  string `json:"stage"`
	Step   string `json:"step"`
	Worker Worker `json:"worker"`
	// Message is an optional human-readable message.
	Message string `json:"message,omitempty"`
	// Details changes the worker's own key in the operation's details. It is a JSON object that is merged member by member; null removes a
	// member.
	Details json.RawMessage `json:"details,omitempty"`
	// StageMemory reports whether this execution wrote to the stage memory.
	StageMemory bool `json:"stageMemory,omitempty"`
	// Removed names the objects in external systems that this execution deleted or began to delete, for example "evaluation 12". If the
	// instance was already deprovisioned, an unanswered request had created them late.
	Removed    []string  `json:"removed,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// StepSucceeded is the payload of TypeStepSucceeded.
type StepSucceeded struct {
	Result
}

// StepRetry is the payload of TypeStepRetry.
type StepRetry struct {
	Result
	// RetryAfter is in seconds. It may have a fraction, and must not be negative.
	RetryAfter float64 `json:"retryAfter"`
	// Error is set if the execution failed; absent if the step only waits.
	Error *Error `json:"error,omitempty"`
	// Event is the event that the step waits for; absent if it waits for none. If the event comes first, the step runs before RetryAfter.
	Event *AwaitedEvent `json:"event,omitempty"`
}

// StepFailed is the payload of TypeStepFailed.
type StepFailed struct {
	Result
	Error Error `json:"error"`
}

// StepSkipped is the payload of TypeStepSkipped.
type StepSkipped struct {
	Result
	// NotCompleted reports whether the step gave up with work left to do. The operation continues and records the step.
	NotCompleted bool `json:"notCompleted,omitempty"`
	// Error is why the step was not completed.
	Error *Error `json:"error,omitempty"`
}

// StageLost is the payload of TypeStageLost.
type StageLost struct {
	Result
}

// Fact contains the fields that all facts have.
type Fact struct {
	OperationID   string        `json:"operationId"`
	OperationType OperationType `json:"operationType"`
	InstanceID    string        `json:"instanceId"`
	// Cursor orders the facts of an operation. Facts of the same transition have the same cursor.
	Cursor     int64     `json:"cursor"`
	OccurredAt time.Time `json:"occurredAt"`
}

// Position is the current position of an operation.
type Position struct {
	Stage string `json:"stage"`
	Step  string `json:"step"`
	// StageAttempt and StepAttempt start at 1.
	StageAttempt int `json:"stageAttempt"`
	StepAttempt  int `json:"stepAttempt"`
}

// OperationStarted is the payload of TypeOperationStarted.
type OperationStarted struct {
	Fact
	// Next is the first step that a worker executes; absent if there is none.
	Next *Position `json:"next,omitempty"`
	// Stages are the names of the stages of the operation, in order, without the one that runs after a failure.
	Stages []string `json:"stages,omitempty"`
}

// StepFinished is the payload of TypeStepFinished.
type StepFinished struct {
	Fact
	Position
	Worker  Worker  `json:"worker"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message,omitempty"`
	Error   *Error  `json:"error,omitempty"`
	// RetryAt is when the step runs again, for OutcomeRetry.
	RetryAt *time.Time `json:"retryAt,omitempty"`
	// Event is the event that the step waits for until RetryAt; absent if it waits for none.
	Event      *AwaitedEvent `json:"event,omitempty"`
	StartedAt  time.Time     `json:"startedAt"`
	FinishedAt time.Time     `json:"finishedAt"`
	// Tries is set if the fact stands for several tries with the same result, of which it describes the last one. Only facts that are
	// published again long after the step do.
	Tries int `json:"tries,omitempty"`
	// FirstStartedAt is the start of the first of these tries.
	FirstStartedAt *time.Time `json:"firstStartedAt,omitempty"`
	// Next is the current position of the operation; absent if it has ended.
	Next *Position `json:"next,omitempty"`
}

// StageFinished is the payload of TypeStageFinished.
type StageFinished struct {
	Fact
	Stage        string `json:"stage"`
	StageAttempt int    `json:"stageAttempt"`
}

// OperationSucceeded is the payload of TypeOperationSucceeded.
type OperationSucceeded struct {
	Fact
	// NotCompleted lists the steps that were not completed and that the operation continued without.
	NotCompleted []string `json:"notCompleted,omitempty"`
	// Details contains the saved data of the operation at its end, a JSON object with one key for each worker; absent if there is none.
	Details json.RawMessage `json:"details,omitempty"`
}

// OperationFailed is the payload of TypeOperationFailed.
type OperationFailed struct {
	Fact
	// Stage and Step are the position of the failure.
	Stage string `json:"stage,omitempty"`
	Step  string `json:"step,omitempty"`
	Error Error  `json:"error"`
	// Details contains the saved data of the operation at its end, a JSON object with one key for each worker; absent if there is none.
	Details json.RawMessage `json:"details,omitempty"`
}

// OperationCancelled is the payload of TypeOperationCancelled.
type OperationCancelled struct {
	Fact
	// Reason is a human-readable reason, for example "preempted by deprovisioning <operation id>".
	Reason string `json:"reason"`
	// Details contains the saved data of the operation at its end, a JSON object with one key for each worker; absent if there is none.
	Details json.RawMessage `json:"details,omitempty"`
}
