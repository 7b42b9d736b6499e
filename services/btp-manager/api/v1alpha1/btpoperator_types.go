package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// Finalizer keeps the leading BtpOperator until its operand is deprovisioned (docs/contracts/btp-manager.md#btpoperator).
	Finalizer = "operator.kyma-project.io/btp-manager"
	// ForceDeleteLabel on a BtpOperator, with the value "true", deletes its service instances and bindings even if their existence blocks
	// its deletion (docs/contracts/btp-manager.md#btpoperator).
	ForceDeleteLabel = "force-delete"
	// DisableNetworkPoliciesAnnotation on a BtpOperator, with the value "true" in any case, omits the network policies of the operand
	// (docs/contracts/btp-manager.md#btpoperator).
	DisableNetworkPoliciesAnnotation = "operator.kyma-project.io/btp-operator-disable-network-policies"
)

// State is the state of a BtpOperator.
//
// +kubebuilder:validation:Enum=Ready;Processing;Warning;Error;Deleting
type State string

// The states of a BtpOperator. A new one has none.
const (
	// StateReady means that all objects of the operand's chart exist and are ready.
	StateReady State = "Ready"
	// StateProcessing means that the operand is being provisioned.
	StateProcessing State = "Processing"
	// StateWarning means that it waits for an action of the user.
	StateWarning State = "Warning"
	// StateError means that it cannot continue; the condition contains the reason.
	StateError State = "Error"
	// StateDeleting means that it is being deprovisioned.
	StateDeleting State = "Deleting"
)

// BtpOperatorSpec is empty: the credentials come from the Secret sap-btp-manager.
type BtpOperatorSpec struct{}

// BtpOperatorStatus is the state of the provisioning. It contains all data that must survive a restart of BTP Manager.
type BtpOperatorStatus struct {
	// State summarizes the condition.
	State State `json:"state"`

	// Conditions contains one condition, of the type Ready, with the reason and the message of the state.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=1
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ChartVersion is the version of the operand's chart that was last applied.
	// +optional
	ChartVersion string `json:"chartVersion,omitempty"`

	// ReadyDeadline is the time by which the objects of the chart must be ready while the state is Processing.
	// +optional
	ReadyDeadline *metav1.Time `json:"readyDeadline,omitempty"`

	// Deprovisioning is the progress of the deprovisioning since its start.
	// +optional
	Deprovisioning *Deprovisioning `json:"deprovisioning,omitempty"`
}

// DeprovisioningPhase is a phase of a deprovisioning.
//
// +kubebuilder:validation:Enum=HardDelete;SoftDelete;Removal
type DeprovisioningPhase string

// The phases of a deprovisioning, in order. SoftDelete is skipped if everything is deleted before the deadline.
const (
	// PhaseHardDelete deletes the service bindings, then the service instances, and lets the operand clean up the remote side.
	PhaseHardDelete DeprovisioningPhase = "HardDelete"
	// PhaseSoftDelete removes the finalizers of the remaining objects.
	PhaseSoftDelete DeprovisioningPhase = "SoftDelete"
	// PhaseRemoval removes the objects of the chart.
	PhaseRemoval DeprovisioningPhase = "Removal"
)

// Deprovisioning is the progress of a deprovisioning.
type Deprovisioning struct {
	// Phase is the current phase.
	Phase DeprovisioningPhase `json:"phase"`
	// StartedAt is the start of the hard delete.
	StartedAt metav1.Time `json:"startedAt"`
	// HardDeleteDeadline is the time when the soft delete replaces the hard delete, also after a restart of BTP Manager.
	HardDeleteDeadline metav1.Time `json:"hardDeleteDeadline"`
	// SoftDeleted reports whether the hard delete failed or timed out, so that the deleted objects may still exist on the remote side.
	// +optional
	SoftDeleted bool `json:"softDeleted,omitempty"`
	// ServiceInstances is the number of remaining service instances at the last count.
	ServiceInstances int32 `json:"serviceInstances"`
	// ServiceBindings is the number of remaining service bindings at the last count.
	ServiceBindings int32 `json:"serviceBindings"`
}

// BtpOperator requests the SAP BTP service operator (the operand) in a cluster. The oldest one in a cluster leads; the others wait until
// it is deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:categories={kyma-modules,kyma-btp-operator}
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[0].reason"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[0].message",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type BtpOperator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +nullable
	Spec BtpOperatorSpec `json:"spec,omitempty"`
	// +optional
	Status BtpOperatorStatus `json:"status,omitempty"`
}

// BtpOperatorList is a list of BtpOperators.
//
// +kubebuilder:object:root=true
type BtpOperatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BtpOperator `json:"items"`
}
