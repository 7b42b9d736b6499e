package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionReady is the type of the one condition of a BtpOperator.
const ConditionReady = "Ready"

// Reason is the reason for the state of a BtpOperator.
type Reason string

// The reasons (docs/contracts/btp-manager.md#reasons). Reasons describes each.
const (
	ReasonReconcileSucceeded          Reason = "ReconcileSucceeded"
	ReasonInitialized                 Reason = "Initialized"
	ReasonProcessing                  Reason = "Processing"
	ReasonUpdated                     Reason = "Updated"
	ReasonCredentialsNamespaceChanged Reason = "CredentialsNamespaceChanged"
	ReasonClusterIDChanged            Reason = "ClusterIdChanged"
	ReasonHardDeleting                Reason = "HardDeleting"
	ReasonSoftDeleting                Reason = "SoftDeleting"
	ReasonNotCleaned                  Reason = "ServiceInstancesAndBindingsNotCleaned"
	ReasonOlderCRExists               Reason = "OlderCRExists"
	ReasonMissingSecret               Reason = "MissingSecret"
	ReasonInvalidSecret               Reason = "InvalidSecret"
	ReasonChartInstallFailed          Reason = "ChartInstallFailed"
	ReasonConsistencyCheckFailed      Reason = "ConsistencyCheckFailed"
	ReasonResourceRemovalFailed       Reason = "ResourceRemovalFailed"
)

// Meaning describes a reason. A reason has one state and one condition status.
type Meaning struct {
	Reason Reason
	State  State
	Status metav1.ConditionStatus
	// Means is a sentence for the user.
	Means string
}

// Reasons lists every reason. docs/btp-manager-states.md is generated from it.
func Reasons() []Meaning {
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	return []Meaning{
		{ReasonReconcileSucceeded, StateReady, yes, "The operand is complete and ready."},
		{ReasonInitialized, StateProcessing, no, "The operand is being provisioned."},
		{ReasonProcessing, StateProcessing, no, "The leading BtpOperator was deleted, and this one leads now."},
		{ReasonUpdated, StateProcessing, no, "The cause of an error has changed, and the operand is provisioned again."},
		{ReasonCredentialsNamespaceChanged, StateProcessing, no, "The operand's credentials are moved to another namespace."},
		{ReasonClusterIDChanged, StateProcessing, no, "The operand gets another cluster ID."},
		{ReasonNotCleaned, StateWarning, no, "The deletion waits until all service instances and bindings are gone or the label force-delete is set. If the ConfigMap is rejected, it waits for a valid one."},
		{ReasonHardDeleting, StateDeleting, no, "Service bindings and then service instances are being deleted, and the operand cleans up the remote side."},
		{ReasonSoftDeleting, StateDeleting, no, "The hard delete failed or timed out: the finalizers of the remaining objects are removed."},
		{ReasonOlderCRExists, StateError, no, "An older BtpOperator leads. The message names it."},
		{ReasonMissingSecret, StateError, no, "The Secret with the credentials does not exist."},
		{ReasonInvalidSecret, StateError, no, "The Secret with the credentials lacks keys or values. The message names them."},
		{ReasonChartInstallFailed, StateError, no, "The chart could not be rendered or applied, or its objects were not ready in time. The message names the object."},
		{ReasonConsistencyCheckFailed, StateError, no, "The objects of the chart could not be compared with the chart or restored."},
		{ReasonResourceRemovalFailed, StateError, no, "The objects of the chart could not be removed. The removal is retried."},
	}
}

// Meaning returns the description of a reason, and false for an unknown reason.
func (r Reason) Meaning() (Meaning, bool) {
	for _, m := range Reasons() {
		if m.Reason == r {
			return m, true
		}
	}
	return Meaning{}, false
}
