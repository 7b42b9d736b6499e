package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// measured is a system with metrics.
func measured(t *testing.T) *system {
	t.Helper()
	s := newSystem(t)
	s.registry = prometheus.NewRegistry()
	return s
}

// metric returns the value of a counter or gauge, or the count of a histogram; -1 if the series does not exist.
func (s *system) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() { // sorted by name
				values = append(values, l.GetValue())
			}
			switch {
			case !slices.Equal(values, labels):
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			default:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// staleness exceeds the half minute for which values may be cached after a slow read.
const staleness = time.Minute

// shows waits until series have values, which are given by "name|label values". If they never do, it reports the last values.
func (s *system) shows(want map[string]float64) {
	s.t.Helper()
	got := map[string]float64{}
	ok := func() bool {
		for series := range want {
			parts := strings.Split(series, "|")
			got[series] = s.metric(parts[0], parts[1:]...)
		}
		return maps.Equal(got, want)
	}
	defer func() {
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Errorf("metrics (-want +got):\n%s", diff)
		}
	}()
	testkit.Eventually(s.t, staleness, "the metrics have the wanted values", ok)
}

func TestMetrics_StuckOperations_ReportReasons(t *testing.T) {
	s := measured(t)
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		if op.InstanceID == "retries" {
			return op, time.Hour, nil
		}
		return op, 0, nil
	})
	hold := make(chan struct{})
	s.script.set("Change", gate(hold).step)
	s.orchestrator()
	s.applied("limits: [{name: updates, scope: {type: update}, operations: 1}]")
	s.worker("alpha") // and no beta
	stuck, next := operation(event.Provision, "stuck", "aws"), operation(event.Update, "stuck", "aws")
	running, queued := operation(event.Update, "runs", "azure"), operation(event.Update, "queues", "azure")
	s.request(stuck, next, operation(event.Provision, "retries", "azure"))
	s.shows(map[string]float64{"keb_operations_unfinished|aws|pending|update": 1})
	s.request(running, queued)
	s.shows(map[string]float64{
		"keb_operations_unfinished|aws|in progress|provision":   1,
		"keb_operations_unfinished|azure|in progress|provision": 1,
		"keb_operations_unfinished|aws|pending|update":          1,
		"keb_operations_unfinished|azure|pending|update":        1,
		"keb_operations_unfinished|azure|in progress|update":    1,
		"keb_operations_waiting|no_worker|provision":            1,
		"keb_operations_waiting|polling|provision":              1,
		"keb_operations_waiting|executing|provision":            0,
		"keb_operations_waiting|executing|update":               1,
		"keb_operations_waiting|instance_busy|update":           1,
		"keb_operations_waiting|limited|update":                 1,
		"keb_limit|updates|operations":                          1,
		"keb_limit_in_use|updates|operations":                   1,
		"keb_limit_waiting|updates|operations":                  1,
		"keb_operations_waiting|admission|update":               0,
		"keb_step_operations|no_worker|Second|beta":             1,
		"keb_step_operations|polling|First|alpha":               1,
		"keb_step_operations|executing|Change|alpha":            1,
		"keb_step_operations|executing|Second|beta":             0,
		"keb_worker_replicas|alpha":                             1,
		"keb_worker_replicas|beta":                              0,
		"keb_worker_step_served|First|alpha":                    1,
		"keb_worker_step_served|Second|beta":                    0,
		"keb_bus_consumer_pending|beta|KEB_COMMANDS":            1,
		"keb_bus_consumer_ack_pending|alpha|KEB_COMMANDS":       1,
		"keb_operations_created_total|azure|update":             2,
		"keb_operations_started_total|azure|update":             1,
		"keb_operation_waiting_seconds|update":                  1,
	})
	for _, series := range []string{
		"keb_step_oldest_seconds|no_worker|Second|beta", "keb_step_oldest_seconds|polling|First|alpha",
		"keb_operations_oldest_seconds|pending|update", "keb_operations_oldest_seconds|in progress|provision",
	} {
		parts := strings.Split(series, "|")
		if age := s.metric(parts[0], parts[1:]...); age <= 0 || age > time.Hour.Seconds() {
			t.Errorf("%s is %g, want some seconds", series, age)
		}
	}

	s.worker("beta")
	close(hold)
	for _, op := range []event.Operation{stuck, next, running, queued} {
		s.await(op, event.Succeeded)
	}
	s.shows(map[string]float64{
		"keb_operations_unfinished|aws|in progress|provision":                 0,
		"keb_operations_unfinished|azure|pending|update":                      0,
		"keb_operations_waiting|no_worker|provision":                          0,
		"keb_operations_waiting|instance_busy|update":                         0,
		"keb_operations_waiting|limited|update":                               0,
		"keb_limit_in_use|updates|operations":                                 0,
		"keb_limit_waiting|updates|operations":                                0,
		"keb_step_operations|no_worker|Second|beta":                           0,
		"keb_step_oldest_seconds|no_worker|Second|beta":                       0,
		"keb_worker_replicas|beta":                                            1,
		"keb_worker_step_served|Second|beta":                                  1,
		"keb_operations_started_total|azure|update":                           2,
		"keb_operations_finished_total|aws|succeeded|provision":               1,
		"keb_operations_finished_total|azure|succeeded|update":                2,
		"keb_operations_finished_total|azure|failed|update":                   0,
		"keb_operation_duration_seconds|azure|succeeded|update":               2,
		"keb_operation_waiting_seconds|update":                                3,
		"keb_stage_duration_seconds|change|update":                            3,
		"keb_stage_duration_seconds|create|provision":                         1,
		"keb_step_duration_seconds|Change|update|alpha":                       3,
		"keb_step_attempts|Change|update":                                     3,
		"keb_step_attempts|First|provision":                                   1,
		"keb_steps_finished_total|retry||First|provision|alpha":               1,
		"keb_steps_finished_total|succeeded||First|provision|alpha":           1,
		"keb_steps_finished_total|succeeded||Starting|provision|orchestrator": 2,
		"keb_bus_consumer_pending|beta|KEB_COMMANDS":                          0,
		"keb_gauges_fresh|operations":                                         1,
		"keb_gauges_fresh|bus":                                                1,
	})
	if problems, err := testutil.GatherAndLint(s.registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// Workers of other teams report reasons of errors, so a reason may be any text.
func TestMetrics_ManyErrorReasons_AreBounded(t *testing.T) {
	s := measured(t)
	s.cfg.Processes = fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
timeout: 1h
stages:
  - name: change
    steps:
      - {name: Change, worker: alpha}
`)}}
	s.script.set("Change", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return op, 0, &worker.Error{Component: "alpha", Reason: op.InstanceID, Err: errors.New("as the test wants")}
	})
	s.orchestrator()
	s.worker("alpha")
	reasons := []string{"NotFound", "01a20086-6a14-78fb-bb5d-60d9d249cff5", "two\nlines"}
	for i := range 30 {
		reasons = append(reasons, fmt.Sprintf("reason_%d", i))
	}
	for _, reason := range reasons {
		op := operation(event.Update, reason, "aws")
		s.request(op)
		s.await(op, event.Failed)
	}
	s.shows(map[string]float64{
		"keb_operations_finished_total|aws|failed|update":               33,
		"keb_steps_finished_total|failed|NotFound|Change|update|alpha":  1,
		"keb_steps_finished_total|failed|reason_0|Change|update|alpha":  1,
		"keb_steps_finished_total|failed|reason_14|Change|update|alpha": 1,
		"keb_steps_finished_total|failed|reason_15|Change|update|alpha": -1,
		"keb_steps_finished_total|failed|other|Change|update|alpha":     17,
		"keb_steps_finished_total|failed||Change|update|alpha":          0,
		"keb_steps_finished_total|succeeded||Change|update|alpha":       0,
	})
}

func TestMetrics_OperationNeverStarted_HasNoDuration(t *testing.T) {
	s := measured(t)
	s.orchestrator()
	s.hold(operator.HoldScope{Type: event.Update}, nil)
	op := operation(event.Update, "i-1", "aws")
	s.request(op)
	s.await(op, event.Pending)
	if code, body := s.post("/operations/"+op.ID+"/cancel", `{}`); code != http.StatusNoContent {
		t.Fatal(code, body)
	}
	if code, _ := s.post("/operations/"+op.ID+"/cancel", `{}`); code != http.StatusConflict {
		t.Errorf("a second request is answered %d, want 409", code)
	}
	if response, err := http.Get(s.api.URL + "/nowhere/" + op.ID); err != nil || response.Body.Close() != nil {
		t.Fatal(err)
	}
	s.shows(map[string]float64{
		"keb_operations_finished_total|aws|cancelled|update":                 1,
		"keb_operation_duration_seconds|aws|cancelled|update":                0,
		"keb_operation_waiting_seconds|update":                               0,
		"keb_operator_actions_total|cancel|done":                             1,
		"keb_operator_actions_total|cancel|refused":                          1,
		"keb_operator_actions_total|skip|done":                               0,
		"keb_operator_requests_total|204|POST /operations/{id}/cancel":       1,
		"keb_operator_requests_total|409|POST /operations/{id}/cancel":       1,
		"keb_operator_requests_total|404|other":                              1,
		"keb_operator_request_duration_seconds|POST /operations/{id}/cancel": 2,
	})
}

// A scrape must succeed while the database hangs, and must report what it could not read. Package scrape tests how long it takes.
func TestMetrics_DatabaseAway_ScrapeSucceeds(t *testing.T) {
	s := measured(t)
	direct, err := url.Parse(s.database)
	require.NoError(t, err)
	proxy := testkit.Proxy(t, direct.Host)
	direct.Host = proxy.Addr()
	s.cfg.Database.URL = direct.String()
	s.orchestrator()
	s.shows(map[string]float64{"keb_gauges_fresh|operations": 1})
	proxy.Stall()
	testkit.Eventually(t, staleness, "a scrape without the operations", func() bool {
		return s.metric("keb_gauges_fresh", "operations") == 0
	})
	s.shows(map[string]float64{"keb_gauges_fresh|operations": 0, "keb_operations_waiting|failing|update": -1, "keb_gauges_fresh|workers": 1})
	proxy.Restore()
	// A failed read is repeated after four times its duration, which was at least one second.
	s.shows(map[string]float64{"keb_gauges_fresh|operations": 1, "keb_operations_waiting|failing|update": 0})
}
