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
	// Soft takes the finalizers off.
	Soft Mode = "soft"
)

func modes() []Mode { return []Mode{Hard, Soft} }

// End is how a hard or a soft delete ended.
type End string

// The ends of a delete.
const (
	// Done means that no service instance and no service binding is left.
	Done End = "done"
	// Refused means that the API server or a webhook said no.
	Refused End = "refused"
	// TimedOut means that the deadline passed with some left.
	TimedOut End = "timed_out"
	// Broken means that it ended with another error.
	Broken End = "broken"
)

func ends() []End { return []End{Done, Refused, TimedOut, Broken} }

// The certificates of the webhooks.
const (
	// CertificateCA signs the serving certificate.
	CertificateCA = "ca"
	// CertificateServing is what the operand's webhooks show.
	CertificateServing = "serving"
)

func certificates() []string { return []string{CertificateCA, CertificateServing} }

const (
	// none is the state and the reason of a BtpOperator that has no status yet.
	none = "none"
	// other stands for what has no label of its own.
	other = "other"
)

// kinds lists the kinds that a chart is likely to hold; all others share a label, so that a chart cannot make endless series.
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

// standing is a pair of labels that belong together: a reason has one state.
type standing struct{ state, reason string }

func standings() []standing {
	all := []standing{{none, none}, {other, other}}
	for _, m := range v1alpha1.Reasons() {
		all = append(all, standing{string(m.State), string(m.Reason)})
	}
	return all
}

// bounded answers the value itself while it is one of the known ones.
func bounded[S ~string](value S, known []S, otherwise S) string {
	if slices.Contains(known, value) {
		return string(value)
	}
	return string(otherwise)
}
