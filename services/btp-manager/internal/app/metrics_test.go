package app_test

import (
	"runtime"
	"testing"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// The test follows the life of a BtpOperator, with a second one, in Kubernetes Events and metrics.
func TestEventsAndMetrics_Lifecycle_AreRecorded(t *testing.T) {
	s := newSystem(t)
	forward := s.clock()
	s.start()
	s.awaitMetric(1, "leader")
	s.awaitMetric(1, "build_info", "chart_version", "0.11.10-keb", "go_version", runtime.Version(), "version", "test")
	o := s.operator("btpoperator")
	states := s.history(o)
	at := func(n float64, m v1alpha1.Reason) {
		t.Helper()
		meaning, _ := m.Meaning()
		s.awaitMetric(n, "btpoperators", "reason", string(m), "state", string(meaning.State))
	}

	s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
	at(1, v1alpha1.ReasonMissingSecret)
	if since := s.metric("btpoperator_since_timestamp_seconds", "reason", "MissingSecret", "state", "Error"); since < float64(o.CreationTimestamp.Unix()) {
		t.Errorf("without a Secret since %v, before the BtpOperator was there", since)
	}
	s.create(secret("cluster_id", "-"))
	s.await(o, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret)
	s.change("cluster_id", "a-cluster")
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	at(1, v1alpha1.ReasonReconcileSucceeded)
	at(0, v1alpha1.ReasonMissingSecret)
	s.awaitMetric(1, "provisioning_duration_seconds")
	s.awaitMetric(1, "reconcile_duration_seconds", "state", "none")
	for _, kind := range []string{"Deployment", "Secret", "ConfigMap", "CustomResourceDefinition"} {
		if n := s.metric("drift_corrections_total", "kind", kind); n != 0 {
			t.Errorf("%v %ss corrected while they were made", n, kind)
		}
	}

	s.younger(o)
	second := s.operator("a-second")
	s.follows(second, o)
	at(1, v1alpha1.ReasonOlderCRExists)
	s.awaitEvent(second, "Warning", string(v1alpha1.ReasonOlderCRExists))
	s.delete(second)
	at(0, v1alpha1.ReasonOlderCRExists)

	s.change("cluster_id", "another-cluster")
	s.awaitEvent(o, "Normal", string(v1alpha1.ReasonClusterIDChanged))
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.awaitMetric(2, "provisioning_duration_seconds")
	s.delete(deployment())
	s.awaitMetric(1, "drift_corrections_total", "kind", "Deployment")
	s.awaitEvent(o, "Normal", "DriftCorrected")
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)

	s.namespace("users")
	s.serviceInstance("users", "an-instance", foreign)
	s.serviceBinding("users", "a-binding", foreign)
	s.delete(o)
	s.awaitMetric(1, "service_instances_left")
	s.awaitMetric(1, "service_bindings_left")
	forward(s.settings.HardDeleteTimeout)
	s.awaitGone(o)
	s.awaitMetric(1, "deletes_total", "mode", "hard", "outcome", "timed_out")
	s.awaitMetric(1, "deletes_total", "mode", "soft", "outcome", "done")
	s.awaitMetric(0, "deletes_total", "mode", "hard", "outcome", "done")
	s.awaitMetric(1, "deprovisioning_duration_seconds", "mode", "soft")
	s.awaitMetric(0, "service_instances_left")
	s.awaitMetric(0, "service_bindings_left")
	for _, m := range v1alpha1.Reasons() {
		at(0, m.Reason)
	}
	if n := s.metric("reconciles_total", "outcome", "failed"); n > 0 {
		t.Errorf("%v passes failed", n)
	}
	if n := s.metric("reconciles_total", "outcome", "done"); n < 10 {
		t.Errorf("%v passes done", n)
	}

	seen := states()
	if len(seen) < 8 {
		t.Errorf("only the states %q", seen)
	}
	for _, m := range v1alpha1.Reasons() {
		for _, state := range seen {
			if state == string(m.State)+"/"+string(m.Reason) {
				kind := "Normal"
				if m.State == v1alpha1.StateError || m.Reason == v1alpha1.ReasonSoftDeleting {
					kind = "Warning"
				}
				s.awaitEvent(o, kind, string(m.Reason))
			}
		}
	}
	s.stop()
	s.awaitMetric(0, "leader")
}
