package metric

import (
	"slices"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// The outcomes of a pass over a BtpOperator.
const (
	outcomeDone     = "done"
	outcomeConflict = "conflict"
	outcomeFailed   = "failed"
)

func outcomes() []string { return []string{outcomeDone, outcomeConflict, outcomeFailed} }

// Mode is a way to delete service instances and bindings.
type Mode string

// The modes of a delete.
const (
	// Hard lets the operand clean up the remote side.
	Hard Mode = "hard"
	// Soft removes the finalizers.
	Soft Mode = "soft"
)

func modes() []Mode { return []Mode{Hard, Soft} }

// End is the result of a hard or a soft delete.
type End string

// The results of a delete.
const (
	// Done means that no service instance or binding is left.
	Done End = "done"
	// Refused means that the API server or a webhook rejected the delete.
	Refused End = "refused"
	// TimedOut means that some were left at the deadline.
	TimedOut End = "timed_out"
	// Broken means that another error ended the delete.
	Broken End = "broken"
)

func ends() []End { return []End{Done, Refused, TimedOut, Broken} }

// The certificates of the webhooks.
const (
	// CertificateCA is the CA, which signs the serving certificate.
	CertificateCA = "ca"
	// CertificateServing is the serving certificate of the operand's webhooks.
	CertificateServing = "serving"
)

func certificates() []string { return []string{CertificateCA, CertificateServing} }

const (
	// none is the state and the reason of a BtpOperator without a status.
	none = "none"
	// other stands for all values without their own label.
	other = "other"
)

// kinds lists the kinds with their own label. All others share one, so that a chart cannot create an unlimited number of series.
func kinds() []string {
	return []string{
		"ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition", "Deployment", "MutatingWebhookConfiguration",
		"NetworkPolicy", "PodDisruptionBudget", "PriorityClass", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount",
		"ValidatingWebhookConfiguration", other,
	}
}

func states() []string {
	return []string{
		none, string(v1alpha1.StateProcessing), string(v1alpha1.StateReady), string(v1alpha1.StateWarning),
		string(v1alpha1.StateError), string(v1alpha1.StateDeleting), other,
	}
}

// standing is a state and a reason that occur together.
type standing struct{ state, reason string }

func standings() []standing {
	all := []standing{{none, none}, {other, other}}
	for _, m := range v1alpha1.Reasons() {
		all = append(all, standing{string(m.State), string(m.Reason)})
	}
	return all
}

// bounded returns value if it is a known one, and otherwise the fallback.
func bounded[S ~string](value S, known []S, otherwise S) string {
	if slices.Contains(known, value) {
		return string(value)
	}
	return string(otherwise)
}
