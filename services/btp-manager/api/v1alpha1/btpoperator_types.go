package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// Finalizer keeps the leading BtpOperator until its operand is deprovisioned (docs/contracts/btp-manager.md#btpoperator).
	Finalizer = "operator.kyma-project.io/btp-manager"
	// ForceDeleteLabel on a BtpOperator, with the value "true", deletes its service instances and bindings though deletion is
	// blocked while some exist (docs/contracts/btp-manager.md#btpoperator).
	ForceDeleteLabel = "force-delete"
	// DisableNetworkPoliciesAnnotation on a BtpOperator, with the value "true" in any case, leaves the operand without network
	// policies (docs/contracts/btp-manager.md#btpoperator).
	DisableNetworkPoliciesAnnotation = "operator.kyma-project.io/btp-operator-disable-network-policies"
)

// State is where a BtpOperator is.
//
// +kubebuilder:validation:Enum=Ready;Processing;Warning;Error;Deleting
type State string

// The states of a BtpOperator. One that is new has none.
const (
	// StateReady means that everything in the operand's chart is there as the chart says, and ready.
	StateReady State = "Ready"
	// StateProcessing means that the operand is being provisioned.
	StateProcessing State = "Processing"
	// StateWarning means that it waits for its user.
	StateWarning State = "Warning"
	// StateError means that it cannot go on; the condition says why.
	StateError State = "Error"
	// StateDeleting means that it is being deprovisioned.
	StateDeleting State = "Deleting"
)

// BtpOperatorSpec is empty: the credentials come from the Secret sap-btp-manager.
type BtpOperatorSpec struct{}

// BtpOperatorStatus is what BTP Manager found and is doing. Everything that must survive a restart of BTP Manager is here.
type BtpOperatorStatus struct {
	// State sums up the condition.
	State State `json:"state"`

	// Conditions holds one condition, of the type Ready, whose reason and message tell why the state is what it is.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=1
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ChartVersion is the version of the operand's chart that was applied last.
	// +optional
	ChartVersion string `json:"chartVersion,omitempty"`

	// ReadyDeadline is when the objects of the chart must be ready while the state is Processing.
	// +optional
	ReadyDeadline *metav1.Time `json:"readyDeadline,omitempty"`

	// Deprovisioning tells how far the deprovisioning is, from its start on.
	// +optional
	Deprovisioning *Deprovisioning `json:"deprovisioning,omitempty"`
}

// DeprovisioningPhase is a part of a deprovisioning.
//
// +kubebuilder:validation:Enum=HardDelete;SoftDelete;Removal
type DeprovisioningPhase string

// The phases of a deprovisioning, in their order. SoftDelete is left out when everything was deleted before the deadline.
const (
	// PhaseHardDelete deletes the service bindings, then the service instances, and lets the operand clean up the remote side.
	PhaseHardDelete DeprovisioningPhase = "HardDelete"
	// PhaseSoftDelete takes the finalizers off what is left.
	PhaseSoftDelete DeprovisioningPhase = "SoftDelete"
	// PhaseRemoval removes what the chart made.
	PhaseRemoval DeprovisioningPhase = "Removal"
)

// Deprovisioning is how far a deprovisioning is.
type Deprovisioning struct {
	// Phase is the part that is under way.
	Phase DeprovisioningPhase `json:"phase"`
	// StartedAt is when the hard delete began.
	StartedAt metav1.Time `json:"startedAt"`
	// HardDeleteDeadline is when the hard delete gives way to the soft delete, also after a restart of BTP Manager.
	HardDeleteDeadline metav1.Time `json:"hardDeleteDeadline"`
	// SoftDeleted tells that the hard delete failed or ran out of time, so that the remote side may keep what was deleted here.
	// +optional
	SoftDeleted bool `json:"softDeleted,omitempty"`
	// ServiceInstances is how many service instances were left when they were last counted.
	ServiceInstances int32 `json:"serviceInstances"`
	// ServiceBindings is how many service bindings were left when they were last counted.
	ServiceBindings int32 `json:"serviceBindings"`
}

// BtpOperator asks for the SAP BTP service operator (the operand) in a cluster. The oldest one in a cluster leads; the others
// wait until it is gone.
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
