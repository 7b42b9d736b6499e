package event

import (
	"encoding/json"
	"time"
)

// Subjects of NATS request/reply: a question that needs an answer now. Requests and answers are JSON, are stored
// nowhere, and carry no CloudEvents attributes. An answer to a question that cannot be answered is an AskError.
const (
	// AskOperations asks the orchestrator where operations stand. OperationsRequest -> OperationsAnswer.
	AskOperations = "keb.ask.orchestrator.operations"
	// AskCurrent is what the subjects begin with on which workers ask the orchestrator whether it still waits for commands that were
	// delivered to them again, see AskCurrentAs. CurrentRequest -> CurrentAnswer.
	AskCurrent = "keb.ask.orchestrator.current"
	// AskCredentials is what the subjects begin with on which workers ask the broker for the credentials of an instance, see
	// AskCredentialsAs. CredentialsRequest -> CredentialsAnswer.
	AskCredentials = "keb.ask.broker.credentials" //nolint:gosec // a subject
	// AskKeep and AskKept are what the subjects begin with on which workers have the broker keep a value of an instance, sealed, and
	// ask for it, see AskKeepAs. KeepRequest -> KeepAnswer, KeptRequest -> KeptAnswer.
	AskKeep = "keb.ask.broker.keep"
	AskKept = "keb.ask.broker.kept"
	// AskInstances asks the broker which instances there are. InstancesRequest -> InstancesAnswer.
	AskInstances = "keb.ask.broker.instances"
	// AskUpgrade asks the broker to record upgrades of instances and to publish their requests. UpgradeRequest -> UpgradeAnswer.
	AskUpgrade = "keb.ask.broker.upgrade"
	// AskMaintenanceWindows asks the worker hyperscaler for the maintenance windows of shoots.
	// MaintenanceWindowsRequest -> MaintenanceWindowsAnswer.
	AskMaintenanceWindows = "keb.ask.hyperscaler.maintenance-windows"
	// AskNotify asks the worker spc to tell customers of an orchestration as a whole: that it is scheduled, or that it was cancelled.
	// NotifyRequest -> NotifyAnswer.
	AskNotify = "keb.ask.spc.notify"
	// AskCluster asks the worker runtime how a runtime is reached. RuntimeAccess -> ClusterAnswer.
	AskCluster = "keb.ask.runtime.cluster"
	// AskBind and AskUnbind ask the worker runtime to make, or to remove, the access of a binding. BindRequest -> BindAnswer,
	// UnbindRequest -> UnbindAnswer.
	AskBind   = "keb.ask.runtime.bind"
	AskUnbind = "keb.ask.runtime.unbind"
)

// AskCredentialsAs is where a worker claims credentials: "keb.ask.broker.credentials.<worker>". Nobody else may ask there.
func AskCredentialsAs(worker string) string { return AskCredentials + "." + worker }

// AskCurrentAs is where a worker asks about its commands: "keb.ask.orchestrator.current.<worker>". Nobody else may ask there.
func AskCurrentAs(worker string) string { return AskCurrent + "." + worker }

// AskKeepAs and AskKeptAs are where a worker asks about its own: "keb.ask.broker.keep.<worker>" and "keb.ask.broker.kept.<worker>".
// No other user may ask there.
func AskKeepAs(worker string) string { return AskKeep + "." + worker }

// AskKeptAs is described at AskKeepAs.
func AskKeptAs(worker string) string { return AskKept + "." + worker }

// AskError is the answer to a question that cannot be answered.
type AskError struct {
	// Error is for people; empty in every other answer.
	Error string `json:"error"`
}

// OperationsRequest asks for the status of operations, at most 500 at once.
type OperationsRequest struct {
	IDs []string `json:"ids"`
}

// OperationsAnswer holds the status of each operation asked for that the orchestrator knows.
type OperationsAnswer struct {
	Operations []OperationStatus `json:"operations"`
	// Left are the ids of known operations that did not fit into the answer: ask about them again.
	Left []string `json:"left,omitempty"`
}

// OperationStatus is where an operation stands.
type OperationStatus struct {
	OperationID string         `json:"operationId"`
	State       OperationState `json:"state"`
	Cursor      int64          `json:"cursor"`
	// Position is absent unless the operation is in progress.
	Position *Position `json:"position,omitempty"`
	// Worker is who has the command that is out; empty while none is.
	Worker string `json:"worker,omitempty"`
	// Message and Error are those of the last step result.
	Message      string   `json:"message,omitempty"`
	Error        *Error   `json:"error,omitempty"`
	NotCompleted []string `json:"notCompleted,omitempty"`
	// Details is the saved data of an operation that has ended, see OperationSucceeded.
	Details json.RawMessage `json:"details,omitempty"`
}

// MaxCurrent is how many commands one CurrentRequest may ask about.
const MaxCurrent = 500

// CurrentRequest asks which commands of the worker in the subject the orchestrator still waits for, at most MaxCurrent at once.
type CurrentRequest struct {
	Commands []CommandRef `json:"commands"`
}

// CurrentAnswer holds those of the commands asked about that are out and not answered yet. The others must not be executed.
type CurrentAnswer struct {
	Current []CommandRef `json:"current"`
}

// CommandRef names a command, in whichever dispatch.
type CommandRef struct {
	OperationID string `json:"operationId"`
	Cursor      int64  `json:"cursor"`
}

// CredentialsRequest claims one kind of sealed credentials of an instance, for the step of the operation that the worker has the
// command of.
type CredentialsRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
	// Name is one of the names in Operation.Credentials.
	Name string `json:"name"`
}

// ClaimNeighbours is the name under which a worker claims Neighbours instead of credentials. Every operation has them.
const ClaimNeighbours = "neighbours"

// Neighbours are the other instances of an instance's subaccount.
type Neighbours struct {
	// Count is how many neither are suspended nor being removed. Own clusters do not count.
	Count int `json:"count"`
}

// CredentialsAnswer holds the credentials in the clear.
type CredentialsAnswer struct {
	Credentials json.RawMessage `json:"credentials"`
}

// MaxKept is how large a value may be that a worker lets the broker keep, in bytes.
const MaxKept = 256 << 10

// KeepRequest asks the broker to keep a value of an instance, sealed, in place of the one that the worker had it keep before. Like
// credentials, it is accepted only while the worker has the command of a step of the operation.
type KeepRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
	// Value is any JSON of at most MaxKept bytes. It may hold secrets.
	Value json.RawMessage `json:"value"`
}

// KeepAnswer says that the value is kept.
type KeepAnswer struct{}

// KeptRequest asks for what the worker had the broker keep of an instance, under the conditions of KeepRequest.
type KeptRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
}

// KeptBroken is the error of an answer about a kept value that is there and cannot be opened: its key is missing, or it was changed.
const KeptBroken = "the kept value cannot be opened: see the broker's log"

// KeptAnswer holds the value in the clear; it is absent if nothing is kept.
type KeptAnswer struct {
	Value json.RawMessage `json:"value,omitempty"`
}

// InstanceState is where an instance stands, derived from its newest operation.
type InstanceState string

// The states of an instance.
const (
	InstanceProvisioning   InstanceState = "provisioning"
	InstanceProvisioned    InstanceState = "provisioned"
	InstanceFailed         InstanceState = "failed"
	InstanceSuspended      InstanceState = "suspended"
	InstanceDeprovisioning InstanceState = "deprovisioning"
	// InstanceDeleted: the platform no longer sees it, and not everything behind it is removed.
	InstanceDeleted InstanceState = "deleted"
)

// InstancesRequest asks for instances in the order of their ids.
type InstancesRequest struct {
	// IDs selects instances, at most 1000; empty means all.
	IDs []string `json:"ids,omitempty"`
	// After is the id to go on behind; empty for the first page.
	After string `json:"after,omitempty"`
	// Limit is the size of a page, 1 to 1000.
	Limit int `json:"limit"`
}

// InstancesAnswer is a page of instances.
type InstancesAnswer struct {
	Instances []InstanceSummary `json:"instances"`
	// Next is what After is for the next page; empty after the last one.
	Next string `json:"next,omitempty"`
}

// InstanceSummary is what others need to know of an instance to choose it.
type InstanceSummary struct {
	InstanceID      string        `json:"instanceId"`
	Plan            Plan          `json:"plan"`
	GlobalAccountID string        `json:"globalAccountId"`
	SubaccountID    string        `json:"subaccountId"`
	Runtime         Runtime       `json:"runtime"`
	RuntimeID       string        `json:"runtimeId,omitempty"`
	State           InstanceState `json:"state"`
}

// UpgradeRequest asks for upgrades, at most 100 at once.
type UpgradeRequest struct {
	Upgrades []UpgradeOrder `json:"upgrades"`
}

// UpgradeOrder asks for the upgrade of one instance.
type UpgradeOrder struct {
	// OperationID is a UUID that the asker has chosen: asking twice records once.
	OperationID string `json:"operationId"`
	InstanceID  string `json:"instanceId"`
	// Type is UpgradeKyma or UpgradeCluster.
	Type    OperationType `json:"type"`
	Upgrade Upgrade       `json:"upgrade"`
}

// UpgradeAnswer holds an answer for each order, in their order.
type UpgradeAnswer struct {
	Upgrades []UpgradeRecorded `json:"upgrades"`
}

// UpgradeRecorded tells what became of an order.
type UpgradeRecorded struct {
	OperationID string `json:"operationId"`
	// Refused is why there will be no such operation, for people; empty when it is recorded.
	Refused string `json:"refused,omitempty"`
}

// NotifyRequest tells customers that an orchestration is scheduled, or that it was cancelled. Asking twice changes nothing.
type NotifyRequest struct {
	OrchestrationID string `json:"orchestrationId"`
	// Type is upgradeKyma or upgradeCluster.
	Type OperationType `json:"type"`
	// Cancelled orchestrations have no instances here.
	Cancelled bool `json:"cancelled,omitempty"`
	// Instances are those of all operations.
	Instances []NotifiedInstance `json:"instances,omitempty"`
}

// NotifiedInstance is an instance whose maintenance is scheduled.
type NotifiedInstance struct {
	InstanceID string `json:"instanceId"`
	// Begin is when its operation may start. End is present only with a maintenance window.
	Begin time.Time  `json:"begin"`
	End   *time.Time `json:"end,omitempty"`
}

// NotifyAnswer confirms a NotifyRequest.
type NotifyAnswer struct {
	// Skipped is why customers were not told although nothing failed; empty when they were told.
	Skipped string `json:"skipped,omitempty"`
}

// MaintenanceWindowsRequest asks for the maintenance windows of shoots, at most 1000.
type MaintenanceWindowsRequest struct {
	ShootNames []string `json:"shootNames"`
}

// MaintenanceWindowsAnswer holds the windows of those shoots that exist and have one.
type MaintenanceWindowsAnswer struct {
	Windows []MaintenanceWindow `json:"windows"`
}

// MaintenanceWindow is the daily time in which a shoot may be disturbed. Begin and End are times of day with their zone in
// the form "150405-0700" (docs/contracts/gardener.md#shoots); a window that ends before it begins goes over midnight.
type MaintenanceWindow struct {
	ShootName string `json:"shootName"`
	Begin     string `json:"begin"`
	End       string `json:"end"`
}

// RuntimeAccess says which runtime is meant, and how it is found.
type RuntimeAccess struct {
	InstanceID string `json:"instanceId"`
	// Account, the global account that the instance is in now, and RuntimeID find it in the Runtime Provisioner.
	Account   string `json:"subscription,omitempty"`
	RuntimeID string `json:"runtimeId,omitempty"`
	// Kubeconfig is given for an own cluster instead, in the clear: it is on no stream.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// ClusterAnswer says how a runtime is reached, without credentials.
type ClusterAnswer struct {
	// Server is the URL of the Kubernetes API.
	Server string `json:"server"`
	// CAData is the certificate authority in base64, as in a kubeconfig; empty for a public one.
	CAData string `json:"caData,omitempty"`
}

// BindRequest asks for the access of a binding to a runtime. Asking twice makes one access, with a new token.
type BindRequest struct {
	Runtime   RuntimeAccess `json:"runtime"`
	BindingID string        `json:"bindingId"`
	// ExpirationSeconds is how long the token lives.
	ExpirationSeconds int64 `json:"expirationSeconds"`
}

// BindAnswer holds the access in the clear.
type BindAnswer struct {
	// Kubeconfig is YAML with a token.
	Kubeconfig string `json:"kubeconfig"`
	// ExpiresAt is when the token ends.
	ExpiresAt time.Time `json:"expiresAt"`
}

// UnbindRequest asks to remove the access of a binding. What is not there is removed.
type UnbindRequest struct {
	Runtime   RuntimeAccess `json:"runtime"`
	BindingID string        `json:"bindingId"`
}

// UnbindAnswer says that the access is removed.
type UnbindAnswer struct{}
