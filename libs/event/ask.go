package event

import (
	"encoding/json"
	"time"
)

// Subjects of NATS request/reply, for requests that need an immediate answer. Requests and answers are JSON, are not stored, and have no
// CloudEvents attributes. An AskError is the answer to a request that failed.
const (
	// AskOperations asks the orchestrator for the status of operations. OperationsRequest -> OperationsAnswer.
	AskOperations = "keb.ask.orchestrator.operations"
	// AskCurrent is the prefix of the subjects on which workers ask the orchestrator whether redelivered commands are still current, see
	// AskCurrentAs. CurrentRequest -> CurrentAnswer.
	AskCurrent = "keb.ask.orchestrator.current"
	// AskExtend is the prefix of the subjects on which workers ask the orchestrator for more time for a running step, see AskExtendAs.
	// ExtendRequest -> ExtendAnswer.
	AskExtend = "keb.ask.orchestrator.extend"
	// AskRejections asks the orchestrator for the holds that reject orders. RejectionsRequest -> RejectionsAnswer.
	AskRejections = "keb.ask.orchestrator.rejections"
	// AskCredentials is the prefix of the subjects on which workers claim the credentials of an instance from the broker, see
	// AskCredentialsAs. CredentialsRequest -> CredentialsAnswer.
	AskCredentials = "keb.ask.broker.credentials" //nolint:gosec // a subject
	// AskKeep and AskKept are the prefixes of the subjects on which workers store a value of an instance with the broker, which seals it,
	// and read it back, see AskKeepAs. KeepRequest -> KeepAnswer, KeptRequest -> KeptAnswer.
	AskKeep = "keb.ask.broker.keep"
	AskKept = "keb.ask.broker.kept"
	// AskInstances asks the broker for instances. InstancesRequest -> InstancesAnswer.
	AskInstances = "keb.ask.broker.instances"
	// AskInstance asks the broker for everything that it knows of one instance. InstanceRequest -> InstanceAnswer.
	AskInstance = "keb.ask.broker.instance"
	// AskFind asks the broker for the instances of which a property begins with a text. FindRequest -> FindAnswer.
	AskFind = "keb.ask.broker.find"
	// AskUpgrade asks the broker to record upgrades of instances and to publish their requests. UpgradeRequest -> UpgradeAnswer.
	AskUpgrade = "keb.ask.broker.upgrade"
	// AskMaintenanceWindows asks the worker hyperscaler for the maintenance windows of shoots. MaintenanceWindowsRequest ->
	// MaintenanceWindowsAnswer.
	AskMaintenanceWindows = "keb.ask.hyperscaler.maintenance-windows"
	// AskNotify asks the worker spc to notify customers of an orchestration that is scheduled or was cancelled. NotifyRequest ->
	// NotifyAnswer.
	AskNotify = "keb.ask.spc.notify"
	// AskCluster asks the worker runtime for the address of a runtime. RuntimeAccess -> ClusterAnswer.
	AskCluster = "keb.ask.runtime.cluster"
	// AskBind and AskUnbind ask the worker runtime to create or remove the access of a binding. BindRequest -> BindAnswer, UnbindRequest ->
	// UnbindAnswer.
	AskBind   = "keb.ask.runtime.bind"
	AskUnbind = "keb.ask.runtime.unbind"
)

// AskCredentialsAs returns the subject on which a worker claims credentials: "keb.ask.broker.credentials.<worker>". Only this worker may
// publish on it.
func AskCredentialsAs(worker string) string { return AskCredentials + "." + worker }

// AskCurrentAs returns the subject on which a worker asks about its commands: "keb.ask.orchestrator.current.<worker>". Only this worker may
// publish on it.
func AskCurrentAs(worker string) string { return AskCurrent + "." + worker }

// AskExtendAs returns the subject on which a worker asks for more time: "keb.ask.orchestrator.extend.<worker>". Only this worker may publish
// on it.
func AskExtendAs(worker string) string { return AskExtend + "." + worker }

// AskKeepAs returns the subject on which a worker stores its values: "keb.ask.broker.keep.<worker>". Only this worker may publish on it.
func AskKeepAs(worker string) string { return AskKeep + "." + worker }

// AskKeptAs returns the subject on which a worker reads its values: "keb.ask.broker.kept.<worker>". Only this worker may publish on it.
func AskKeptAs(worker string) string { return AskKept + "." + worker }

// AskError is the answer to a request that failed.
type AskError struct {
	// Error is a human-readable message. It is empty in every other answer.
	Error string `json:"error"`
}

// OperationsRequest asks for the status of at most 500 operations.
type OperationsRequest struct {
	IDs []string `json:"ids"`
}

// OperationsAnswer contains the status of each requested operation that exists.
type OperationsAnswer struct {
	Operations []OperationStatus `json:"operations"`
	// Left contains the IDs of existing operations that did not fit into the answer. Ask for them again.
	Left []string `json:"left,omitempty"`
}

// StepRemoveInstance is the broker's step that removes an instance, the last one of a deprovisioning. It is not completed if another step was
// not, or if the deprovisioning started too early (OperationStatus.UnsettledUntil).
const StepRemoveInstance = "Remove_Instance"

// OperationStatus is the status of an operation.
type OperationStatus struct {
	OperationID string         `json:"operationId"`
	State       OperationState `json:"state"`
	Cursor      int64          `json:"cursor"`
	// Position is set only while the operation is in progress.
	Position *Position `json:"position,omitempty"`
	// Worker is the worker whose command has been sent; empty if no command has been sent.
	Worker string `json:"worker,omitempty"`
	// Message and Error are from the last step result.
	Message      string   `json:"message,omitempty"`
	Error        *Error   `json:"error,omitempty"`
	NotCompleted []string `json:"notCompleted,omitempty"`
	// UnsettledUntil is set for a deprovisioning that started while an unanswered request of an earlier try could still create an object: its
	// steps must run again after that time.
	UnsettledUntil *time.Time `json:"unsettledUntil,omitempty"`
	// Stages are the names of the stages of the operation, in order, see OperationStarted.
	Stages []string `json:"stages,omitempty"`
	// Details contains the saved data of an operation that has ended, see OperationSucceeded.
	Details json.RawMessage `json:"details,omitempty"`
}

// RejectionsRequest asks for the holds that reject orders, ordered by their ID, which grows with the time of their creation.
type RejectionsRequest struct {
	// After is the ID of the last hold of the previous answer; empty for the first one.
	After string `json:"after,omitempty"`
}

// RejectionsAnswer contains the holds that fit into one answer.
type RejectionsAnswer struct {
	Rejections []Rejection `json:"rejections"`
	// More reports whether there are holds after the last one.
	More bool `json:"more,omitempty"`
}

// Rejection is a hold that rejects the orders in its scope. All members of the scope that are set must match.
type Rejection struct {
	HoldID string `json:"holdId"`
	// Type is Provision or Update. Without it, bindings are rejected as well.
	Type       OperationType `json:"type,omitempty"`
	InstanceID string        `json:"instanceId,omitempty"`
	// GlobalAccountID is the global account, Plan the name or the ID of the plan, and Region the region of the hyperscaler.
	GlobalAccountID string `json:"globalAccountId,omitempty"`
	Plan            string `json:"plan,omitempty"`
	Region          string `json:"region,omitempty"`
	// Reason is shown to the platform.
	Reason string `json:"reason"`
	// Until is when the hold ends by itself.
	Until *time.Time `json:"until,omitempty"`
}

// MaxCurrent is the maximum number of commands in a CurrentRequest.
const MaxCurrent = 500

// CurrentRequest asks which commands the orchestrator still waits for. The commands belong to the worker in the subject. At most MaxCurrent
// are allowed.
type CurrentRequest struct {
	Commands []CommandRef `json:"commands"`
}

// CurrentAnswer contains the requested commands that have been sent and have no result yet. The others must not be executed.
type CurrentAnswer struct {
	Current []CommandRef `json:"current"`
	// Extended contains those of Current whose worker was granted more time.
	Extended []Extended `json:"extended,omitempty"`
}

// Extended is the time limit of a command that was extended.
type Extended struct {
	CommandRef
	// Dispatch is the dispatch that was extended. Other dispatches keep the time limit in their message.
	Dispatch int `json:"dispatch"`
	// ExecuteBefore replaces the ExecuteBefore of the command.
	ExecuteBefore time.Time `json:"executeBefore"`
}

// MaxExtension is the most time that one ExtendRequest asks for.
const MaxExtension = 24 * time.Hour

// ExtendRequest asks for more time for a running step. It moves the ExecuteBefore of the command, at most to the end of the budget of the step,
// and never to an earlier time.
type ExtendRequest struct {
	CommandRef
	// Seconds is the time that the step needs from now on, more than 0 and at most MaxExtension.
	Seconds float64 `json:"seconds"`
}

// ExtendAnswer contains the granted time limit, which may be earlier than requested.
type ExtendAnswer struct {
	ExecuteBefore time.Time `json:"executeBefore"`
}

// CommandRef identifies a command in any of its dispatches.
type CommandRef struct {
	OperationID string `json:"operationId"`
	Cursor      int64  `json:"cursor"`
}

// CancelNotice names a command that should end early. The worker ends the step that executes it and publishes its result as usual: the
// result may hold ids that are needed later.
type CancelNotice struct {
	CommandRef
	// Reason is a human-readable reason.
	Reason string `json:"reason"`
}

// MaxProgress is the maximum length of the message of a ProgressNotice, in bytes.
const MaxProgress = 200

// ProgressNotice says how far the step is that executes a command. It is shown while the step runs, and not stored. A worker sends at most
// one per second for a command.
type ProgressNotice struct {
	CommandRef
	// Message is a human-readable text, for example "3 of 7 nodes", of at most MaxProgress bytes.
	Message string `json:"message"`
	// Percent is from 0 to 100; absent if the step does not know it.
	Percent *int `json:"percent,omitempty"`
}

// CredentialsRequest claims one kind of sealed credentials of an instance, for the step whose command the worker has.
type CredentialsRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
	// Name is one of the names in Operation.Credentials.
	Name string `json:"name"`
}

// ClaimNeighbours is the name under which a worker claims Neighbours instead of credentials. It is valid for every operation.
const ClaimNeighbours = "neighbours"

// Neighbours describes the other instances in an instance's subaccount.
type Neighbours struct {
	// Count is the number of instances that are neither suspended nor being removed. Own clusters are not counted.
	Count int `json:"count"`
}

// CredentialsAnswer contains the credentials in plain text.
type CredentialsAnswer struct {
	Credentials json.RawMessage `json:"credentials"`
}

// MaxKept is the maximum size of a kept value, in bytes.
const MaxKept = 256 << 10

// KeepRequest asks the broker to seal and store a value of an instance. The value replaces the worker's previous value. Like credentials,
// it is accepted only while the worker has the command of a step of the operation.
type KeepRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
	// Value is any JSON of at most MaxKept bytes. It may contain secrets.
	Value json.RawMessage `json:"value"`
}

// KeepAnswer confirms that the value is stored.
type KeepAnswer struct{}

// KeptRequest asks for the worker's stored value of an instance, under the conditions of KeepRequest.
type KeptRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
}

// KeptBroken is the error of an answer about a stored value that cannot be opened because its key is missing or the value was changed.
const KeptBroken = "the kept value cannot be opened: see the broker's log"

// KeptAnswer contains the value in plain text. The value is absent if none is stored.
type KeptAnswer struct {
	Value json.RawMessage `json:"value,omitempty"`
}

// InstanceState is the state of an instance, derived from its newest operation.
type InstanceState string

// States of an instance.
const (
	InstanceProvisioning   InstanceState = "provisioning"
	InstanceProvisioned    InstanceState = "provisioned"
	InstanceFailed         InstanceState = "failed"
	InstanceSuspended      InstanceState = "suspended"
	InstanceDeprovisioning InstanceState = "deprovisioning"
	// InstanceDeleted means that the platform no longer sees the instance, but some of its resources are not removed yet.
	InstanceDeleted InstanceState = "deleted"
)

// InstancesRequest asks for instances, ordered by ID.
type InstancesRequest struct {
	// IDs selects instances, at most 1000; empty means all.
	IDs []string `json:"ids,omitempty"`
	// After is the last ID of the previous page; empty for the first page.
	After string `json:"after,omitempty"`
	// Limit is the page size, 1 to 1000.
	Limit int `json:"limit"`
}

// InstancesAnswer is a page of instances.
type InstancesAnswer struct {
	Instances []InstanceSummary `json:"instances"`
	// Next is the value of After for the next page; empty on the last page.
	Next string `json:"next,omitempty"`
	// Plans contains the names of all plans that an instance can have, on the first page only.
	Plans []string `json:"plans,omitempty"`
	// Versions reports whether the instances have their versions and failures. Brokers of earlier releases leave them out.
	Versions bool `json:"versions,omitempty"`
}

// InstanceSummary contains the properties by which other services select instances.
type InstanceSummary struct {
	InstanceID      string        `json:"instanceId"`
	Plan            Plan          `json:"plan"`
	GlobalAccountID string        `json:"globalAccountId"`
	SubaccountID    string        `json:"subaccountId"`
	Runtime         Runtime       `json:"runtime"`
	RuntimeID       string        `json:"runtimeId,omitempty"`
	State           InstanceState `json:"state"`
	// KymaVersion and KubernetesVersion are the versions of the runtime as far as they are known.
	KymaVersion       string `json:"kymaVersion,omitempty"`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Failed reports whether the last operation of the runtime failed.
	Failed bool `json:"failed,omitempty"`
}

// InstanceRequest asks for one instance.
type InstanceRequest struct {
	InstanceID string `json:"instanceId"`
}

// InstanceAnswer contains the instance.
type InstanceAnswer struct {
	// Instance is absent if the broker does not know it.
	Instance *InstanceDetail `json:"instance,omitempty"`
}

// InstanceDetail is everything that operators may know of an instance. It contains no secrets: parameters that look like one are masked.
type InstanceDetail struct {
	InstanceID string `json:"instanceId"`
	Plan       Plan   `json:"plan"`
	// State is the state of the runtime as in the list of runtimes, for example "succeeded" or "suspended".
	State                 string  `json:"state"`
	Runtime               Runtime `json:"runtime"`
	RuntimeID             string  `json:"runtimeId,omitempty"`
	GlobalAccountID       string  `json:"globalAccountId"`
	SubscriptionAccountID string  `json:"subscriptionAccountId,omitempty"`
	SubaccountID          string  `json:"subaccountId"`
	PlatformRegion        string  `json:"platformRegion,omitempty"`
	DashboardURL          string  `json:"dashboardUrl,omitempty"`
	KymaVersion           string  `json:"kymaVersion,omitempty"`
	// MaintenanceVersion is the version of the maintenance information that the platform sent.
	MaintenanceVersion string     `json:"maintenanceVersion,omitempty"`
	CreatedAt          time.Time  `json:"createdAt"`
	ExpiredAt          *time.Time `json:"expiredAt,omitempty"`
	DeletedAt          *time.Time `json:"deletedAt,omitempty"`
	// Parameters are the parameters as the platform sent them, and EffectiveParameters those with all defaults. They are absent for a removed
	// instance.
	Parameters          json.RawMessage `json:"parameters,omitempty"`
	EffectiveParameters json.RawMessage `json:"effectiveParameters,omitempty"`
	// Bindings are the newest bindings, at most 100.
	Bindings []BindingSummary `json:"bindings,omitempty"`
}

// BindingSummary is a binding without its access.
type BindingSummary struct {
	BindingID string    `json:"bindingId"`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
	// CreatedAccessAt is when the access was created; absent until then.
	CreatedAccessAt *time.Time `json:"createdAccessAt,omitempty"`
	RevokedAt       *time.Time `json:"revokedAt,omitempty"`
	// Predecessor is the binding that this one replaces.
	Predecessor string `json:"predecessor,omitempty"`
}

// FindRequest searches instances.
type FindRequest struct {
	// Text is the beginning of the name of the runtime, the name of the shoot, or the ID of the instance, the runtime, the subaccount or the
	// global account. It has from 3 to 100 bytes. Names ignore case.
	Text string `json:"text"`
	// Limit is the maximum number of instances, 1 to 100.
	Limit int `json:"limit"`
}

// FindAnswer contains the instances that match.
type FindAnswer struct {
	Instances []FoundInstance `json:"instances"`
	// More reports whether there are more.
	More bool `json:"more,omitempty"`
}

// FoundInstance is an instance that matches a search.
type FoundInstance struct {
	InstanceID string `json:"instanceId"`
	// Matched is the property that matches: instance, runtime, shoot, name, subaccount or account.
	Matched string `json:"matched"`
	// RuntimeName is absent for a removed instance.
	RuntimeName     string     `json:"runtimeName,omitempty"`
	ShootName       string     `json:"shootName,omitempty"`
	RuntimeID       string     `json:"runtimeId,omitempty"`
	Plan            string     `json:"plan"`
	Region          string     `json:"region,omitempty"`
	GlobalAccountID string     `json:"globalAccountId"`
	SubaccountID    string     `json:"subaccountId"`
	State           string     `json:"state"`
	CreatedAt       time.Time  `json:"createdAt"`
	ExpiredAt       *time.Time `json:"expiredAt,omitempty"`
}

// UpgradeRequest asks for at most 100 upgrades.
type UpgradeRequest struct {
	Upgrades []UpgradeOrder `json:"upgrades"`
	// ConfirmOnly asks which of the upgrades are recorded. The broker records none, and refuses those that are not. A broker of an earlier
	// release ignores it.
	ConfirmOnly bool `json:"confirmOnly,omitempty"`
	// ExpiresAt is when the broker must not record the upgrades any more. Zero means never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// UpgradeOrder asks for the upgrade of one instance.
type UpgradeOrder struct {
	// OperationID is a UUID that the client chooses. A repeated request with the same ID has no further effect.
	OperationID string `json:"operationId"`
	InstanceID  string `json:"instanceId"`
	// Type is UpgradeKyma or UpgradeCluster.
	Type    OperationType `json:"type"`
	Upgrade Upgrade       `json:"upgrade"`
}

// UpgradeAnswer contains an answer for each order, in the same order.
type UpgradeAnswer struct {
	Upgrades []UpgradeRecorded `json:"upgrades"`
}

// UpgradeRecorded is the answer to one UpgradeOrder.
type UpgradeRecorded struct {
	OperationID string `json:"operationId"`
	// Refused is a human-readable reason why the upgrade was rejected; empty if it was recorded.
	Refused string `json:"refused,omitempty"`
}

// NotifyRequest notifies customers that an orchestration is scheduled or was cancelled. A repeated request has no further effect.
type NotifyRequest struct {
	OrchestrationID string `json:"orchestrationId"`
	// Type is upgradeKyma or upgradeCluster.
	Type OperationType `json:"type"`
	// Cancelled reports whether the orchestration was cancelled. It then has no instances here.
	Cancelled bool `json:"cancelled,omitempty"`
	// Instances contains the instances of all operations.
	Instances []NotifiedInstance `json:"instances,omitempty"`
}

// NotifiedInstance is an instance whose maintenance is scheduled.
type NotifiedInstance struct {
	InstanceID string `json:"instanceId"`
	// Begin is when its operation may start. End is set only with a maintenance window.
	Begin time.Time  `json:"begin"`
	End   *time.Time `json:"end,omitempty"`
}

// NotifyAnswer confirms a NotifyRequest.
type NotifyAnswer struct {
	// Skipped is why customers were not notified although nothing failed; empty if they were notified.
	Skipped string `json:"skipped,omitempty"`
}

// MaintenanceWindowsRequest asks for the maintenance windows of at most 1000 shoots.
type MaintenanceWindowsRequest struct {
	ShootNames []string `json:"shootNames"`
}

// MaintenanceWindowsAnswer contains the windows of the shoots that exist and have one.
type MaintenanceWindowsAnswer struct {
	Windows []MaintenanceWindow `json:"windows"`
}

// MaintenanceWindow is the daily period in which a shoot may be disrupted. Begin and End are times of day with a zone, in the form
// "150405-0700" (docs/contracts/gardener.md#shoots). A window that ends before it begins spans midnight.
type MaintenanceWindow struct {
	ShootName string `json:"shootName"`
	Begin     string `json:"begin"`
	End       string `json:"end"`
}

// RuntimeAccess identifies a runtime and how to find it.
type RuntimeAccess struct {
	InstanceID string `json:"instanceId"`
	// Account is the current global account of the instance. Account and RuntimeID identify the runtime in the Runtime Provisioner.
	Account   string `json:"subscription,omitempty"`
	RuntimeID string `json:"runtimeId,omitempty"`
	// Kubeconfig is set only for an own cluster. It is in plain text, and is not sent on any stream.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// ClusterAnswer contains the address of a runtime, without credentials.
type ClusterAnswer struct {
	// Server is the URL of the Kubernetes API.
	Server string `json:"server"`
	// CAData is the certificate authority in base64, as in a kubeconfig; empty if the authority is public.
	CAData string `json:"caData,omitempty"`
}

// BindRequest asks for access to a runtime for a binding. A repeated request returns the same access with a new token.
type BindRequest struct {
	Runtime   RuntimeAccess `json:"runtime"`
	BindingID string        `json:"bindingId"`
	// ExpirationSeconds is the lifetime of the token.
	ExpirationSeconds int64 `json:"expirationSeconds"`
}

// BindAnswer contains the access in plain text.
type BindAnswer struct {
	// Kubeconfig is YAML that contains a token.
	Kubeconfig string `json:"kubeconfig"`
	// ExpiresAt is when the token expires.
	ExpiresAt time.Time `json:"expiresAt"`
}

// UnbindRequest asks to remove the access of a binding. It succeeds if the access does not exist.
type UnbindRequest struct {
	Runtime   RuntimeAccess `json:"runtime"`
	BindingID string        `json:"bindingId"`
}

// UnbindAnswer confirms that the access is removed.
type UnbindAnswer struct{}
