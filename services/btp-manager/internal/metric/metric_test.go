package metric_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
)

func setup(t *testing.T) (*metric.Metrics, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	m, err := metric.New(metric.Config{Version: "1.2.3", ChartVersion: "0.1.0"}, r)
	require.NoError(t, err)
	return m, r
}

// values returns the content of a registry as "name{label values}"; for a histogram the number of observations.
func values(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "btpmanager_") + "{" + strings.Join(labels, ",") + "}"
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// changed returns the values that differ from those at the start.
func changed(t *testing.T, r *prometheus.Registry, f func()) map[string]float64 {
	t.Helper()
	before := values(t, r)
	f()
	after := values(t, r)
	maps.DeleteFunc(after, func(name string, v float64) bool {
		was, existed := before[name]
		return existed && was == v
	})
	return after
}

func btpOperator(state v1alpha1.State, reason v1alpha1.Reason, since, deleted int64) v1alpha1.BtpOperator {
	b := v1alpha1.BtpOperator{Status: v1alpha1.BtpOperatorStatus{State: state}}
	b.CreationTimestamp = metav1.Unix(100, 0)
	if reason != "" {
		b.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Reason: string(reason), LastTransitionTime: metav1.Unix(since, 0),
		}}
	}
	if deleted > 0 {
		at := metav1.Unix(deleted, 0)
		b.DeletionTimestamp = &at
	}
	return b
}

func conflict() error {
	return fmt.Errorf("write the status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "btpoperators"}, "a", nil))
}

func TestMetrics_Events_AreRecorded(t *testing.T) {
	t.Parallel()
	m, r := setup(t)
	ready, failed, deleting := v1alpha1.StateReady, v1alpha1.StateError, v1alpha1.StateDeleting
	for _, c := range []struct {
		name string
		do   func()
		want map[string]float64
	}{
		{"leads", func() { m.Leads(true) }, map[string]float64{"leader{}": 1}},
		{"leads no longer", func() { m.Leads(false) }, map[string]float64{"leader{}": 0}},
		{"a new one", func() { m.BtpOperators([]v1alpha1.BtpOperator{btpOperator("", "", 0, 0)}) }, map[string]float64{
			"btpoperators{reason=none,state=none}": 1, "btpoperator_since_timestamp_seconds{reason=none,state=none}": 100,
		}},
		{"several, of which the oldest time counts", func() {
			m.BtpOperators([]v1alpha1.BtpOperator{
				btpOperator(ready, v1alpha1.ReasonReconcileSucceeded, 300, 0),
				btpOperator(failed, v1alpha1.ReasonOlderCRExists, 500, 0),
				btpOperator(failed, v1alpha1.ReasonOlderCRExists, 400, 0),
			})
		}, map[string]float64{
			"btpoperators{reason=none,state=none}":                                       0,
			"btpoperator_since_timestamp_seconds{reason=none,state=none}":                0,
			"btpoperators{reason=ReconcileSucceeded,state=Ready}":                        1,
			"btpoperator_since_timestamp_seconds{reason=ReconcileSucceeded,state=Ready}": 300,
			"btpoperators{reason=OlderCRExists,state=Error}":                             2,
			"btpoperator_since_timestamp_seconds{reason=OlderCRExists,state=Error}":      400,
		}},
		{"deleting counts from the deletion request, an unknown reason is other", func() {
			m.BtpOperators([]v1alpha1.BtpOperator{
				btpOperator(deleting, v1alpha1.ReasonHardDeleting, 300, 700),
				btpOperator(ready, "SomethingNew", 600, 0),
				btpOperator(failed, "", 0, 0),
			})
		}, map[string]float64{
			"btpoperators{reason=ReconcileSucceeded,state=Ready}":                        0,
			"btpoperator_since_timestamp_seconds{reason=ReconcileSucceeded,state=Ready}": 0,
			"btpoperators{reason=OlderCRExists,state=Error}":                             0,
			"btpoperator_since_timestamp_seconds{reason=OlderCRExists,state=Error}":      0,
			"btpoperators{reason=HardDeleting,state=Deleting}":                           1,
			"btpoperator_since_timestamp_seconds{reason=HardDeleting,state=Deleting}":    700,
			"btpoperators{reason=other,state=other}":                                     2,
			"btpoperator_since_timestamp_seconds{reason=other,state=other}":              100,
		}},
		{"what is being deprovisioned counts from there", func() {
			b := btpOperator(deleting, v1alpha1.ReasonHardDeleting, 300, 700)
			b.Status.Deprovisioning = &v1alpha1.Deprovisioning{StartedAt: metav1.Unix(800, 0)}
			m.BtpOperators([]v1alpha1.BtpOperator{b})
		}, map[string]float64{
			"btpoperators{reason=other,state=other}":                                  0,
			"btpoperator_since_timestamp_seconds{reason=other,state=other}":           0,
			"btpoperator_since_timestamp_seconds{reason=HardDeleting,state=Deleting}": 800,
		}},
		{"a pass over a new one", func() { m.Reconciled("", time.Second, nil) }, map[string]float64{
			"reconciles_total{outcome=done}": 1, "reconcile_duration_seconds{state=none}": 1,
		}},
		{"a failed pass over a broken one", func() { m.Reconciled(failed, time.Second, errors.New("no answer")) }, map[string]float64{
			"reconciles_total{outcome=failed}": 1, "reconcile_duration_seconds{state=Error}": 1,
		}},
		{"a pass in an unknown state", func() { m.Reconciled("Odd", time.Second, conflict()) }, map[string]float64{
			"reconciles_total{outcome=conflict}": 1, "reconcile_duration_seconds{state=other}": 1,
		}},
		{"provisioned", func() { m.Provisioned(time.Minute) }, map[string]float64{"provisioning_duration_seconds{}": 1}},
		{"some are left", func() { m.Left(3, 2) }, map[string]float64{"service_instances_left{}": 3, "service_bindings_left{}": 2}},
		{"a hard delete out of time", func() { m.Deleted(metric.Hard, metric.TimedOut) }, map[string]float64{
			"deletes_total{mode=hard,outcome=timed_out}": 1,
		}},
		{"deprovisioned", func() { m.Deprovisioned(metric.Soft, time.Hour) }, map[string]float64{
			"deprovisioning_duration_seconds{mode=soft}": 1, "service_instances_left{}": 0, "service_bindings_left{}": 0,
		}},
		{"some are not ready", func() { m.NotReady("Deployment", "Secret", "Secret", "Gadget") }, map[string]float64{
			"resources_not_ready{kind=Deployment}": 1, "resources_not_ready{kind=Secret}": 2, "resources_not_ready{kind=other}": 1,
		}},
		{"one is left", func() { m.NotReady("Deployment") }, map[string]float64{
			"resources_not_ready{kind=Secret}": 0, "resources_not_ready{kind=other}": 0,
		}},
		{"drift", func() { m.Drift("Deployment"); m.Drift("Gadget") }, map[string]float64{
			"drift_corrections_total{kind=Deployment}": 1, "drift_corrections_total{kind=other}": 1,
		}},
		{"removed", func() { m.Removed(4); m.Removed(0) }, map[string]float64{"objects_removed_total{}": 4}},
		{"regenerated", func() { m.Regenerated(metric.CertificateCA); m.Regenerated("odd") }, map[string]float64{
			"certs_regenerations_total{certificate=ca}": 1,
		}},
		{
			"a certificate with an end", func() { m.Expires(metric.CertificateServing, time.Unix(900, 0)); m.Expires("odd", time.Unix(1, 0)) },
			map[string]float64{"certificate_expiry_timestamp_seconds{certificate=serving}": 900},
		},
		{
			"a certificate without one", func() { m.Expires(metric.CertificateServing, time.Time{}) },
			map[string]float64{"certificate_expiry_timestamp_seconds{certificate=serving}": 0},
		},
		{"settings applied", func() { m.CustomConfig(true) }, map[string]float64{"custom_config_applied{}": 1}},
		{"settings refused", func() { m.ConfigRejected(true) }, map[string]float64{"config_rejected{}": 1}},
		{"settings mended", func() { m.ConfigRejected(false) }, map[string]float64{"config_rejected{}": 0}},
	} {
		if diff := cmp.Diff(c.want, changed(t, r, c.do)); diff != "" {
			t.Errorf("%s: diff (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestNew_EachCombination_Exists(t *testing.T) {
	t.Parallel()
	m, r := setup(t)
	got := changed(t, r, func() {
		for _, meaning := range v1alpha1.Reasons() {
			m.BtpOperators([]v1alpha1.BtpOperator{btpOperator(meaning.State, meaning.Reason, 300, 0)})
			for _, err := range []error{nil, conflict(), errors.New("no answer")} {
				m.Reconciled(meaning.State, 0, err)
			}
		}
		m.BtpOperators(nil)
		for _, mode := range []metric.Mode{metric.Hard, metric.Soft, "odd"} {
			m.Deprovisioned(mode, 0)
			for _, end := range []metric.End{metric.Done, metric.Refused, metric.TimedOut, metric.Broken, "odd"} {
				m.Deleted(mode, end)
			}
		}
	})
	for name, v := range got {
		if strings.HasPrefix(name, "btpoperator") {
			t.Errorf("%s is %v after the last one is gone", name, v)
		}
	}
	_, fresh := setup(t)
	want := slices.Sorted(maps.Keys(values(t, fresh)))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(values(t, r)))); diff != "" {
		t.Errorf("series that were not there at the start (-start +now)\n%s", diff)
	}
}

func TestMetrics_Lint_Passes(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "btpmanager_") {
			t.Errorf("the name %s does not begin with btpmanager_", f.GetName())
		}
		if !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("the help of %s is no sentence: %s", f.GetName(), f.GetHelp())
		}
	}
}

func TestNew_SharedRegisterer_SharesMetrics(t *testing.T) {
	t.Parallel()
	first, r := setup(t)
	second, err := metric.New(metric.Config{Version: "1.2.3", ChartVersion: "0.1.0"}, r)
	require.NoError(t, err)
	first.Removed(1)
	second.Removed(2)
	if got := values(t, r)["objects_removed_total{}"]; got != 3 {
		t.Errorf("%v objects removed, want 3", got)
	}
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "btpmanager_build_info", Help: "Not ours."}))
	if _, err := metric.New(metric.Config{}, taken); err == nil {
		t.Error("no error though another metric has the name")
	}
	if _, err := metric.New(metric.Config{}, nil); err != nil {
		t.Errorf("without a registerer: %v", err)
	}
}

func TestBuildInfo_Versions_AreLabels(t *testing.T) {
	t.Parallel()
	_, r := setup(t)
	found := false
	for name, v := range values(t, r) {
		if strings.HasPrefix(name, "build_info{chart_version=0.1.0,go_version=go1.") && strings.HasSuffix(name, ",version=1.2.3}") {
			found = v == 1
		}
	}
	if !found {
		t.Errorf("no build_info with the versions in %v", slices.Sorted(maps.Keys(values(t, r))))
	}
}
