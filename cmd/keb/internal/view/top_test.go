package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

func sampleTop() *view.Top {
	now := time.Date(2026, 11, 21, 22, 1, 30, 0, time.UTC)
	down := &event.Error{Component: "edp", Reason: "err_http", Message: "POST /namespaces: " + strings.Repeat("retried ", 20) + "503 from the gateway"}
	return &view.Top{
		Overview: &operator.Overview{
			Time: now, LastHour: operator.OperationCounts{Started: 400, Succeeded: 380, Failed: 3, Cancelled: 1},
			Waiting:    map[operator.WaitingReason]int{operator.Failing: 12, operator.Executing: 30, operator.NoWorker: 0},
			Operations: []operator.StateCount{{Type: event.Provision, State: event.InProgress, Count: 42}, {Type: event.Update, State: event.Pending, Count: 7}, {Type: event.Update, State: event.Failed, Count: 99}},
		},
		Throughput: &operator.Throughput{List: operator.List[*operator.Bucket]{Data: []*operator.Bucket{
			{Time: now.Add(-90 * time.Second), Types: map[event.OperationType]operator.OperationCounts{event.Provision: {Started: 50, Succeeded: 3}}},
			{Time: now.Add(-30 * time.Second), Types: map[event.OperationType]operator.OperationCounts{event.Provision: {Started: 40, Failed: 1}}},
		}}},
		Errors: &operator.Errors{
			Time: now,
			Now: operator.ErrorGroups{Groups: []operator.ErrorGroup{
				{Reason: "failing", Steps: []operator.StepErrors{{Step: "EDP_Registration", Count: 12}}, Count: 12, First: now.Add(-2 * time.Minute), Error: down},
				{Reason: "no_worker", Steps: []operator.StepErrors{{Step: "AVS_Tags", Count: 2}}, Count: 2, First: now.Add(-time.Minute), Text: "no live worker avs"},
			}},
			Calm: []operator.CalmGroup{{Reason: operator.Polling, Step: "Check_Runtime", Count: 500, Since: now}},
		},
		Workers: []*operator.Worker{
			{LiveWorker: operator.LiveWorker{Name: "edp", Alive: true, Replicas: 2}, StepsPerMinute: 30, FailuresPerMinute: 0.5, OperationsWaiting: 12},
			{LiveWorker: operator.LiveWorker{Name: "avs"}},
			{LiveWorker: operator.LiveWorker{Name: "btp", Alive: true, Replicas: 1}, StepsPerMinute: 120},
		},
		Holds:  []operator.Hold{{Scope: operator.HoldScope{Plan: "azure"}, CreatedBy: "jane", Reason: "no capacity", Operations: 7}},
		Limits: &operator.Limits{Limits: []operator.Limit{{Name: "ias", Commands: 10, Rate: "5/s", Each: "plan"}}},
	}
}

func TestRenderTop_FitsEightyColumns(t *testing.T) {
	t.Parallel()
	const want = `2026-11-21T22:01:30Z
last hour: 400 started, 380 succeeded, 3 failed, 1 cancelled
waiting: 30 executing, 12 failing

TYPE            PENDING  RUNNING  STARTED/MIN  SUCCEEDED/MIN  FAILED/MIN
provision       0        42       60           2.0            0.7
deprovision     0        0        0            0              0
update          7        0        0            0              0
upgradeKyma     0        0        0            0              0
upgradeCluster  0        0        0            0              0

OPERATIONS  REASON     FOR    STEP
    ERROR
12          failing    2m00s  EDP_Registration
    edp: err_http: POST /name…tried retried retried retried 503 from the gateway
2           no worker  1m00s  AVS_Tags
    no live worker avs

WORKER  REPLICAS  STEPS/MIN  FAILED/MIN  RUNNING  WAITING
avs     0         0          0           0        0
    no live replica
edp     2         30         0.5         0        12
btp     1         120        0           0        0

HELD  BY    SCOPE AND REASON
7     jane  plan azure: no capacity

LIMIT  COMMANDS  RATE  OPERATIONS
ias    10        5/s   -           for each plan`
	got := strings.Join(view.RenderTop(sampleTop(), view.Size{Width: 80}), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRenderTop_SmallTerminal_IsNotExceeded(t *testing.T) {
	t.Parallel()
	for _, size := range []view.Size{{Width: 80, Height: 24}, {Width: 40, Height: 10}, {Width: 200, Height: 50}, {Width: 20, Height: 2}} {
		lines := view.RenderTop(sampleTop(), size)
		if len(lines) > size.Height {
			t.Errorf("%d lines at height %d", len(lines), size.Height)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > size.Width {
				t.Errorf("%d characters at width %d: %s", n, size.Width, line)
			}
		}
	}
}
