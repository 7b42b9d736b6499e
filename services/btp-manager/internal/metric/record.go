package metric

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// Leads says whether this replica reconciles.
func (m *Metrics) Leads(yes bool) { m.leader.Set(flag(yes)) }

// BtpOperators says which BtpOperators exist, all of them, and where they stand.
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

// stands tells where a BtpOperator stands, and since when: since its deprovisioning began, since its deletion was asked for, or
// since it became ready or ceased to be, the first of these that there is.
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

// Reconciled counts a pass over a BtpOperator that was in a state when the pass began, and how long it took. It is told by
// err whether the pass did what it was to do, or was overtaken by a change of somebody else's, or failed.
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

// Provisioned says that everything is ready, and how long that took from the start of the provisioning.
func (m *Metrics) Provisioned(took time.Duration) { m.provisioning.Observe(took.Seconds()) }

// Deleted says that a hard or a soft delete has ended, not that one of its passes has.
func (m *Metrics) Deleted(mode Mode, how End) {
	m.deletes.WithLabelValues(bounded(mode, modes(), Soft), bounded(how, ends(), Broken)).Inc()
}

// Deprovisioned says that a deprovisioning has ended, with the mode of its last delete, and how long it took from its start.
func (m *Metrics) Deprovisioned(last Mode, took time.Duration) {
	m.deprovisioning.WithLabelValues(bounded(last, modes(), Soft)).Observe(took.Seconds())
	m.Left(0, 0)
}

// Left says how many service instances and service bindings a deprovisioning has found.
func (m *Metrics) Left(instances, bindings int) {
	m.instances.Set(float64(instances))
	m.bindings.Set(float64(bindings))
}

// NotReady says of which kinds the objects are that are not ready, one entry for each object; none when all are.
func (m *Metrics) NotReady(kind ...string) {
	count := map[string]int{}
	for _, k := range kind {
		count[bounded(k, kinds(), other)]++
	}
	for _, k := range kinds() {
		m.notReady.WithLabelValues(k).Set(float64(count[k]))
	}
}

// Drift counts an object of a kind that was put right after somebody had changed or deleted it.
func (m *Metrics) Drift(kind string) { m.drift.WithLabelValues(bounded(kind, kinds(), other)).Inc() }

// Removed counts objects that were deleted because the chart no longer has them.
func (m *Metrics) Removed(objects int) {
	if objects > 0 {
		m.removed.Add(float64(objects))
	}
}

// Regenerated counts a certificate that was made anew, CertificateCA or CertificateServing.
func (m *Metrics) Regenerated(certificate string) {
	if slices.Contains(certificates(), certificate) {
		m.regenerations.WithLabelValues(certificate).Inc()
	}
}

// Expires says when a certificate ends. The zero time means that it is not known.
func (m *Metrics) Expires(certificate string, at time.Time) {
	if slices.Contains(certificates(), certificate) {
		m.expiry.WithLabelValues(certificate).Set(seconds(at))
	}
}

// CustomConfig says whether the settings of the ConfigMap are in force.
func (m *Metrics) CustomConfig(applied bool) { m.customConfig.Set(flag(applied)) }

// ConfigRejected says whether the ConfigMap holds settings that were refused.
func (m *Metrics) ConfigRejected(yes bool) { m.refused.Set(flag(yes)) }
