package metric

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// Leads records whether this replica reconciles.
func (m *Metrics) Leads(yes bool) { m.leader.Set(flag(yes)) }

// BtpOperators records the states of all existing BtpOperators.
func (m *Metrics) BtpOperators(all []v1alpha1.BtpOperator) {
	count := map[standing]int{}
	oldest := map[standing]time.Time{}
	known := standings()
	for i := range all {
		at, since := stands(&all[i], known)
		count[at]++
		if first, ok := oldest[at]; !ok || since.Before(first) {
			oldest[at] = since
		}
	}
	for _, at := range known {
		m.btpOperators.WithLabelValues(at.state, at.reason).Set(float64(count[at]))
		m.since.WithLabelValues(at.state, at.reason).Set(seconds(oldest[at]))
	}
}

// stands returns the state and the reason of a BtpOperator, and their start: the start of the deprovisioning, the request for the
// deletion, or the last transition of its readiness, in this order.
func stands(b *v1alpha1.BtpOperator, known []standing) (standing, time.Time) {
	at, since := standing{none, none}, b.CreationTimestamp.Time
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		at, since = standing{string(b.Status.State), c.Reason}, c.LastTransitionTime.Time
	} else if b.Status.State != "" {
		at = standing{other, other}
	}
	if !slices.Contains(known, at) {
		at = standing{other, other}
	}
	switch d := b.Status.Deprovisioning; {
	case d != nil && !d.StartedAt.IsZero():
		since = d.StartedAt.Time
	case !b.DeletionTimestamp.IsZero():
		since = b.DeletionTimestamp.Time
	}
	return at, since
}

// Reconciled counts a pass over a BtpOperator by its state at the start of the pass, with its duration. err determines whether the pass
// succeeded, failed, or conflicted with another client's change.
func (m *Metrics) Reconciled(state v1alpha1.State, took time.Duration, err error) {
	s := string(state)
	if s == "" {
		s = none
	}
	how := outcomeDone
	switch {
	case apierrors.IsConflict(err):
		how = outcomeConflict
	case err != nil:
		how = outcomeFailed
	}
	m.reconciles.WithLabelValues(how).Inc()
	m.reconcileDuration.WithLabelValues(bounded(s, states(), other)).Observe(took.Seconds())
}

// Provisioned records the duration of a successful provisioning.
func (m *Metrics) Provisioned(took time.Duration) { m.provisioning.Observe(took.Seconds()) }

// Deleted records the end of a hard or a soft delete, not of one of its passes.
func (m *Metrics) Deleted(mode Mode, how End) {
	m.deletes.WithLabelValues(bounded(mode, modes(), Soft), bounded(how, ends(), Broken)).Inc()
}

// Deprovisioned records the end and the duration of a deprovisioning, with the mode of its last delete.
func (m *Metrics) Deprovisioned(last Mode, took time.Duration) {
	m.deprovisioning.WithLabelValues(bounded(last, modes(), Soft)).Observe(took.Seconds())
	m.Left(0, 0)
}

// Left records the number of service instances and bindings that a deprovisioning has found.
func (m *Metrics) Left(instances, bindings int) {
	m.instances.Set(float64(instances))
	m.bindings.Set(float64(bindings))
}

// NotReady records the kinds of the objects that are not ready, one entry per object.
func (m *Metrics) NotReady(kind ...string) {
	count := map[string]int{}
	for _, k := range kind {
		count[bounded(k, kinds(), other)]++
	}
	for _, k := range kinds() {
		m.notReady.WithLabelValues(k).Set(float64(count[k]))
	}
}

// Drift counts an object of a kind that was corrected after another client had changed or deleted it.
func (m *Metrics) Drift(kind string) { m.drift.WithLabelValues(bounded(kind, kinds(), other)).Inc() }

// Removed counts objects that were deleted because the chart no longer contains them.
func (m *Metrics) Removed(objects int) {
	if objects > 0 {
		m.removed.Add(float64(objects))
	}
}

// Regenerated counts a new certificate, CertificateCA or CertificateServing.
func (m *Metrics) Regenerated(certificate string) {
	if slices.Contains(certificates(), certificate) {
		m.regenerations.WithLabelValues(certificate).Inc()
	}
}

// Expires records when a certificate expires. The zero time means unknown.
func (m *Metrics) Expires(certificate string, at time.Time) {
	if slices.Contains(certificates(), certificate) {
		m.expiry.WithLabelValues(certificate).Set(seconds(at))
	}
}

// CustomConfig records whether the settings of the ConfigMap are in force.
func (m *Metrics) CustomConfig(applied bool) { m.customConfig.Set(flag(applied)) }

// ConfigRejected records whether the ConfigMap contains rejected settings.
func (m *Metrics) ConfigRejected(yes bool) { m.refused.Set(flag(yes)) }
