package dispatch

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// The alert about failing steps adds the reasons up, so that the first failure for a reason increases a series that exists.
func TestMetrics_FailuresOfStep_ExistBeforeFirst(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	NewMetrics(r).of(&process.Process{
		Operation: event.Provision, Stages: []process.Stage{{Name: "create", Steps: []process.Step{{Name: "Register", Worker: "edp"}}}},
	})
	families, err := r.Gather()
	require.NoError(t, err)
	zero := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "keb_steps_finished_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["step"] == "Register" && labels["worker"] == "edp" && labels["reason"] == "" {
				zero[labels["outcome"]] = m.GetCounter().GetValue() == 0
			}
		}
	}
	for _, outcome := range []event.Outcome{event.OutcomeFailed, event.OutcomeNotCompleted} {
		if !zero[string(outcome)] {
			t.Errorf("no series has the value 0 for the outcome %s: %v", outcome, zero)
		}
	}
}
