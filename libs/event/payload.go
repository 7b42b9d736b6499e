package event

import (
	"cmp"
	"encoding/json"
	"time"
)

// Plan names the service plan of an instance.
type Plan struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Context is who ordered the instance, and from where, without its credentials.
type Context struct {
	GlobalAccountID string `json:"globalAccountId"`
	SubaccountID    string `json:"subaccountId"`
	UserID          string `json:"userId,omitempty"`
	// PlatformRegion is the region in the path of the OSB request, for example "cf-eu10".
	PlatformRegion string `json:"platformRegion,omitempty"`
	// Platform is the kind of platform, for example "cloudfoundry" or "kubernetes".
	Platform    string `json:"platform,omitempty"`
	LicenseType string `json:"licenseType,omitempty"`
	// SubscriptionGlobalAccountID is the global account that the instance was ordered in, after its subaccount was moved to
	// another one; empty before. The hyperscaler account stays with it.
	SubscriptionGlobalAccountID string `json:"subscriptionGlobalAccountId,omitempty"`
}

// Subscription is the global account that the hyperscaler account of the instance belongs to.
func (c Context) Subscription() string {
	return cmp.Or(c.SubscriptionGlobalAccountID, c.GlobalAccountID)
}

// Runtime holds what is fixed for the runtime of an instance when it is ordered.
type Runtime struct {
	// Name is the name the customer gave.
	Name        string `json:"name"`
	ShootName   string `json:"shootName"`
	ShootDomain string `json:"shootDomain"`
	// Provider is the hyperscaler: "azure", "aws", "gcp", "openstack", or "custom" for an own cluster.
	Provider string `json:"provider"`
	// Region is the provider's region, for example "eu-central-1".
	Region string `json:"region"`
}

// Operation is what an operation is about. It never changes while the operation runs, and holds no secret.
type Operation struct {
	// ID is a UUID.
	ID         string        `json:"id"`
	Type       OperationType `json:"type"`
	InstanceID string        `json:"instanceId"`
	Plan       Plan          `json:"plan"`
	Context    Context       `json:"context"`
	Runtime    Runtime       `json:"runtime"`
	// Parameters is a JSON object: the OSB parameters with the plan's defaults filled in, without secrets.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Credentials names the instance's sealed credentials that a worker may claim from the broker, see CredentialsRequest.
	Credentials []string `json:"credentials,omitempty"`
	// Temporary marks a deprovisioning that suspends the instance: its runtime goes, the instance stays.
	Temporary bool `json:"temporary,omitempty"`
	// UserAgent is that of the client that asked for a deprovisioning; empty for other operations.
	UserAgent string `json:"userAgent,omitempty"`
	// Update is what an update changes; absent for other operations.
	Update *Changes `json:"update,omitempty"`
	// Upgrade is what an upgrade brings; absent for other operations.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
}

// Changes is what an update changes. The operation holds the instance as it is to be afterwards.
type Changes struct {
	// Parameters is a JSON object with the effective parameters that change, and their new values; absent when none does.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Credentials names the credentials that the request has replaced.
	Credentials []string `json:"credentials,omitempty"`
	// LicenseType tells that the license type of the context changes.
	LicenseType bool `json:"licenseType,omitempty"`
	// Plan tells that the plan changes.
	Plan bool `json:"plan,omitempty"`
}

// Upgrade is what an upgrade brings to a runtime, as its orchestration demands. An empty version means the configured one.
type Upgrade struct {
	// OrchestrationID is a UUID.
	OrchestrationID string `json:"orchestrationId"`
	// KymaVersion is for an upgrade of Kyma.
	KymaVersion string `json:"kymaVersion,omitempty"`
	// KubernetesVersion, MachineImage and MachineImageVersion are for an upgrade of the cluster.
	KubernetesVersion   string `json:"kubernetesVersion,omitempty"`
	MachineImage        string `json:"machineImage,omitempty"`
	MachineImageVersion string `json:"machineImageVersion,omitempty"`
	// DryRun tells that nothing is to be changed in the runtime.
	DryRun bool `json:"dryRun,omitempty"`
	// Notification tells that customers are told through SPC.
	Notification bool `json:"notification,omitempty"`
	// MaintenanceWindowBegin and MaintenanceWindowEnd are when the upgrade was planned for; absent when it was not.
	MaintenanceWindowBegin *time.Time `json:"maintenanceWindowBegin,omitempty"`
	MaintenanceWindowEnd   *time.Time `json:"maintenanceWindowEnd,omitempty"`
}

// Names of sealed credentials.
const (
	// CredentialsServiceManager is the sm_operator_credentials object of the OSB context.
	CredentialsServiceManager = "sm_operator_credentials" //nolint:gosec // a name
	// CredentialsPlatform is the sm_platform_credentials object of the OSB context, which only Kyma 1 uses.
	CredentialsPlatform = "sm_platform_credentials" //nolint:gosec // a name
	// CredentialsKubeconfig is the kubeconfig of an own_cluster instance: {"kubeconfig": "<YAML>"}.
	CredentialsKubeconfig = "kubeconfig"
)

// OperationRequested is the payload of TypeOperationRequested. The event id is the operation id.
type OperationRequested struct {
	Operation   Operation `json:"operation"`
	RequestedAt time.Time `json:"requestedAt"`
}

// StepExecute is the payload of TypeStepExecute.
type StepExecute struct {
	Operation Operation `json:"operation"`
	// Details is the saved data of the operation, a JSON object with one key per worker.
	Details json.RawMessage `json:"details,omitempty"`
	Stage   string          `json:"stage"`
	Step    string          `json:"step"`
	// Cursor is the fencing token: it grows by one with every transition of the operation.
	Cursor int64 `json:"cursor"`
	// Dispatch counts how often this command was sent on purpose, from 1.
	Dispatch int `json:"dispatch"`
	// StageAttempt and StepAttempt count from 1.
	StageAttempt int `json:"stageAttempt"`
	StepAttempt  int `json:"stepAttempt"`
	// FirstTriedAt is when this step was first tried since it last succeeded; its budgets do not begin before.
	FirstTriedAt time.Time `json:"firstTriedAt"`
	// ExecuteBefore is when the command is sent again if nobody has answered; a worker must have stopped by then.
	ExecuteBefore time.Time `json:"executeBefore"`
	// StageMemory tells that an earlier step of this stage attempt has put something into the stage memory.
	StageMemory bool `json:"stageMemory,omitempty"`
}

// Worker names who executed a step.
type Worker struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Error says what went wrong in terms that an operator can sort by. It holds no secret.
type Error struct {
	// Component is the system at fault, for example "avs".
	Component string `json:"component,omitempty"`
	// Reason is a short code, for example "err_http_status_code".
	Reason string `json:"reason,omitempty"`
	// Message is for people.
	Message string `json:"message"`
}

// String is the error in one line.
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

// Result is the part that the results of all outcomes share.
type Result struct {
	OperationID string `json:"operationId"`
	// Cursor repeats the command's cursor; a result with any other cursor than the operation's changes nothing.
	Cursor int64  `json:"cursor"`
	Stage  string `json:"stage"`
	Step   string `json:"step"`
	Worker Worker `json:"worker"`
	// Message is for people, and optional.
	Message string `json:"message,omitempty"`
	// Details replaces the members of the worker's own key in the operation's details: a JSON object, merged member
	// by member; null removes a member.
	Details json.RawMessage `json:"details,omitempty"`
	// StageMemory tells that this execution has put something into the stage memory.
	StageMemory bool      `json:"stageMemory,omitempty"`
	StartedAt   time.Time `json:"startedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
}

// StepSucceeded is the payload of TypeStepSucceeded.
type StepSucceeded struct {
	Result
}

// StepRetry is the payload of TypeStepRetry.
type StepRetry struct {
	Result
	// RetryAfter is in seconds, may have a fraction, and is not negative.
	RetryAfter float64 `json:"retryAfter"`
	// Error is why, if something went wrong; absent when the step only waits.
	Error *Error `json:"error,omitempty"`
}

// StepFailed is the payload of TypeStepFailed.
type StepFailed struct {
	Result
	Error Error `json:"error"`
}

// StepSkipped is the payload of TypeStepSkipped.
type StepSkipped struct {
	Result
	// NotCompleted tells that the step gave up on work that is still to be done; the operation goes on and records it.
	NotCompleted bool `json:"notCompleted,omitempty"`
	// Error is why a step was not completed.
	Error *Error `json:"error,omitempty"`
}

// StageLost is the payload of TypeStageLost.
type StageLost struct {
	Result
}

// Fact is the part that all facts share.
type Fact struct {
	OperationID   string        `json:"operationId"`
	OperationType OperationType `json:"operationType"`
	InstanceID    string        `json:"instanceId"`
	// Cursor orders the facts of an operation; the facts of one transition share it.
	Cursor     int64     `json:"cursor"`
	OccurredAt time.Time `json:"occurredAt"`
}

// Position is where an operation stands.
type Position struct {
	Stage string `json:"stage"`
	Step  string `json:"step"`
	// StageAttempt and StepAttempt count from 1.
	StageAttempt int `json:"stageAttempt"`
	StepAttempt  int `json:"stepAttempt"`
}

// OperationStarted is the payload of TypeOperationStarted.
type OperationStarted struct {
	Fact
	// Next is the first step that a worker executes; absent if there is none.
	Next *Position `json:"next,omitempty"`
}

// StepFinished is the payload of TypeStepFinished.
type StepFinished struct {
	Fact
	Position
	Worker  Worker  `json:"worker"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message,omitempty"`
	Error   *Error  `json:"error,omitempty"`
	// RetryAt is when the step is taken up again, for OutcomeRetry.
	RetryAt    *time.Time `json:"retryAt,omitempty"`
	StartedAt  time.Time  `json:"startedAt"`
	FinishedAt time.Time  `json:"finishedAt"`
	// Next is where the operation stands now; absent when it has ended.
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
	// NotCompleted names the steps that the operation went on without.
	NotCompleted []string `json:"notCompleted,omitempty"`
	// Details is the saved data of the operation at its end, a JSON object with one key per worker; absent when there is none.
	Details json.RawMessage `json:"details,omitempty"`
}

// OperationFailed is the payload of TypeOperationFailed.
type OperationFailed struct {
	Fact
	// Stage and Step are where it failed.
	Stage string `json:"stage,omitempty"`
	Step  string `json:"step,omitempty"`
	Error Error  `json:"error"`
	// Details is the saved data of the operation at its end, a JSON object with one key per worker; absent when there is none.
	Details json.RawMessage `json:"details,omitempty"`
}

// OperationCancelled is the payload of TypeOperationCancelled.
type OperationCancelled struct {
	Fact
	// Reason is for people, for example "preempted by deprovisioning <operation id>".
	Reason string `json:"reason"`
	// Details is the saved data of the operation at its end, a JSON object with one key per worker; absent when there is none.
	Details json.RawMessage `json:"details,omitempty"`
}
