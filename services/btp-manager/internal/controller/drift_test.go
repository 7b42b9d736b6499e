package controller_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

// brings makes a pass recreate a Deployment, and returns the number of corrections in metrics and events since the last call.
func (s *system) brings() (counted float64, told int) {
	s.t.Helper()
	before := s.corrections()
	s.changed = []operand.Change{{Ref: operand.Ref{Group: "apps", Version: "v1", Kind: "Deployment", Name: "b"}, How: operand.Altered}}
	if _, err := s.pass(); err != nil {
		s.t.Fatal(err)
	}
	s.changed = nil
	for len(s.recorder.Events) > 0 {
		if strings.Contains(<-s.recorder.Events, "DriftCorrected") {
			told++
		}
	}
	return s.corrections() - before, told
}

// deletedWith brings the BtpOperator to a hard delete, and writes the operand's ConfigMap.
func (s *system) deletedWith(data map[string]string) {
	s.t.Helper()
	s.provisioned()
	s.delete()
	s.hardDelete = func() (services.Left, error) { return services.Left{Instances: 1}, nil }
	s.pass()
	s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting)
	has := &corev1.ConfigMap{Data: data}
	has.Namespace, has.Name = "kyma-system", "sap-btp-operator-config"
	require.NoError(s.t, s.Create(s.t.Context(), has))
}

func (s *system) corrections() (sum float64) {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "btpmanager_drift_corrections_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestReconcile_CorrectedDrift_IsReported(t *testing.T) {
	unready := []operand.NotReady{{Ref: operand.Ref{Kind: "Deployment", Name: "b"}, Reason: "it is gone"}}
	for _, tt := range []struct {
		name   string
		before func(s *system)
		drift  bool
	}{
		{name: "first pass", before: func(*system) {}},
		{name: "first passes, not ready", before: func(s *system) {
			s.unready = unready
			s.brings()
			s.want(v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
		}},
		{name: "ready", before: func(s *system) { s.provisioned() }, drift: true},
		{name: "an earlier pass has found it not ready", before: func(s *system) {
			s.provisioned()
			s.unready = unready
			s.pass()
			s.want(v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
		}, drift: true},
		{name: "hard delete", before: func(s *system) {
			s.provisioned()
			s.delete()
			s.hardDelete = func() (services.Left, error) { return services.Left{Instances: 1}, nil }
			s.pass()
			s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting)
		}, drift: true},
		{name: "hard delete, another cluster ID", before: func(s *system) { s.deletedWith(map[string]string{"CLUSTER_ID": "another"}) }},
		{name: "hard delete, another namespace", before: func(s *system) { s.deletedWith(map[string]string{"MANAGEMENT_NAMESPACE": "another"}) }},
		{name: "hard delete, equal credentials", before: func(s *system) {
			s.deletedWith(map[string]string{"CLUSTER_ID": "a-cluster", "MANAGEMENT_NAMESPACE": "kyma-system"})
		}, drift: true},
		{name: "another chart", before: func(s *system) {
			s.provisioned()
			s.chartVersion = "1.1.0"
		}},
		{name: "another chart, not ready", before: func(s *system) {
			s.provisioned()
			s.chartVersion, s.unready = "1.1.0", unready
			s.brings()
			s.want(v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			tt.before(s)
			want := 0
			if tt.drift {
				want = 1
			}
			if counted, told := s.brings(); counted != float64(want) || told != want {
				t.Errorf("%v corrections are counted and %d reported, want %d", counted, told, want)
			}
		})
	}
}
