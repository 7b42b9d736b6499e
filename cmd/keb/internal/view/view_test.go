package view_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

var t0 = time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)

func at(d time.Duration) *time.Time {
	t := t0.Add(d)
	return &t
}

// running is a provisioning whose second stage is repeated because of EDP.
func running() *operator.OperationDetail {
	return &operator.OperationDetail{
		Operation: operator.Operation{
			ID: "op-1", Type: "provision", State: "in progress", InstanceID: "inst-1", Plan: "azure",
			Stage: "create_runtime", Step: "EDP_Registration", StageAttempt: 2, StepAttempt: 2, CreatedAt: t0, StartedAt: at(time.Second),
			WaitingFor: "step EDP_Registration, failing since 10:00:03", DueAt: at(80 * time.Second),
			Waiting: &operator.Waiting{Reason: operator.Failing, Step: "EDP_Registration"},
			Budget:  &operator.Budget{Attempts: 2, Limit: "retry", EndsAt: t0.Add(30 * time.Minute), OnTimeout: "skip"},
		},
		Stages: []operator.Stage{
			{Name: "start", State: operator.StateFinished, Attempt: 1, Steps: []operator.Step{
				{Name: "Starting", Worker: "orchestrator", State: operator.StateSucceeded, Attempts: 1},
			}},
			{Name: "create_runtime", State: operator.StateCurrent, Attempt: 2, Steps: []operator.Step{
				{
					Name: "Resolve_Target_Secret", Worker: "hyperscaler", State: operator.StateSucceeded, Attempts: 1, DurationMS: new(int64(120)),
					FirstTriedAt: at(time.Second), FinishedAt: at(40 * time.Second),
				},
				{
					Name: "EDP_Registration", Worker: "edp", State: string(operator.Failing), Attempts: 2, FirstTriedAt: at(3 * time.Second),
					FinishedAt: at(13 * time.Second),
					Error:      &event.Error{Component: "edp", Reason: "err_http_status_code", Message: "create tenant:\n\x1b[2J503 Service Unavailable"},
				},
				{Name: "BTPOperatorOverrides", Worker: "btp", State: operator.StateSkipped, Message: "the condition is false"},
				{Name: "Check_Runtime", Worker: "provisioner", State: operator.StateWaiting},
			}},
			{Name: "post_actions", State: operator.StateWaiting, Steps: []operator.Step{
				{Name: "AVS_Tags", Worker: "avs", State: operator.StateWaiting},
			}},
		},
	}
}

func pending() *operator.OperationDetail {
	return &operator.OperationDetail{
		Operation: operator.Operation{
			ID: "op-2", Type: "update", State: "pending", InstanceID: "inst-1", Plan: "azure", CreatedAt: t0,
			WaitingFor: "instance busy with operation op-1",
		},
		Stages: []operator.Stage{{Name: "cluster", State: operator.StateWaiting, Steps: []operator.Step{
			{Name: "Upgrade_Shoot", Worker: "provisioner", State: operator.StateWaiting},
		}}},
	}
}

func failed() *operator.OperationDetail {
	op := running()
	op.State, op.WaitingFor, op.Waiting, op.Budget, op.DueAt, op.FinishedAt = "failed", "", nil, nil, nil, at(31*time.Minute)
	op.Error = op.Stages[1].Steps[1].Error
	op.Stages[1].Steps[1].State = operator.StateFailed
	op.Stages[1].Steps[1].Attempts = 180
	op.Stages[1].Steps[1].FinishedAt = at(31 * time.Minute)
	return op
}

func incomplete() *operator.OperationDetail {
	return &operator.OperationDetail{
		Operation: operator.Operation{
			ID: "op-3", Type: "deprovision", State: "succeeded", InstanceID: "inst-1", Plan: "aws", CreatedAt: t0, StartedAt: at(0),
			FinishedAt: at(2*time.Hour + 5*time.Minute), NotCompleted: []string{"De-provision_AVS_Evaluations"},
		},
		Stages: []operator.Stage{{Name: "de_provision_avs_evaluations", State: operator.StateFinished, Attempt: 1, Steps: []operator.Step{
			{
				Name: "De-provision_AVS_Evaluations", Worker: "avs", State: operator.StateNotCompleted, Attempts: 6,
				FirstTriedAt: at(0), FinishedAt: at(65 * time.Second), Error: &event.Error{Message: "unreachable"},
			},
		}}},
	}
}

func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	got := strings.Join(lines, "\n") + "\n"
	testkit.Golden(t, filepath.Join("testdata", name+".golden"), []byte(got))
}

func TestRender(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		op   *operator.OperationDetail
		size view.Size
	}{
		"running":    {running(), view.Size{}},
		"narrow":     {running(), view.Size{Width: 60, Height: 40}},
		"low":        {running(), view.Size{Width: 120, Height: 9}},
		"pending":    {pending(), view.Size{}},
		"failed":     {failed(), view.Size{}},
		"incomplete": {incomplete(), view.Size{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := view.Render(tc.op, t0.Add(time.Minute), tc.size)
			golden(t, name, lines)
			if tc.size.Height > 0 && len(lines) > tc.size.Height {
				t.Errorf("%d lines, want at most %d", len(lines), tc.size.Height)
			}
			for _, line := range lines {
				if tc.size.Width > 0 && utf8.RuneCountInString(line) > tc.size.Width {
					t.Errorf("wider than %d: %s", tc.size.Width, line)
				}
				if strings.ContainsAny(line, "\n\r\x1b") {
					t.Errorf("control characters: %q", line)
				}
			}
		})
	}
}

func TestRender_TinyTerminal_Fits(t *testing.T) {
	t.Parallel()
	lines := view.Render(running(), t0.Add(time.Minute), view.Size{Width: 1, Height: 2})
	if diff := cmp.Diff([]string{"p", "i"}, lines); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func TestChanges_EachChange_IsListedOnce(t *testing.T) {
	t.Parallel()
	var c view.Changes
	var lines []string
	say := func(op *operator.OperationDetail, after time.Duration) {
		lines = append(lines, c.Next(op, t0.Add(after))...)
	}
	// The operation waits for another one, starts, and its first step runs.
	waiting := running()
	waiting.State, waiting.WaitingFor, waiting.Waiting, waiting.StartedAt = "pending", "instance busy with operation op-0", nil, nil
	waiting.Stages = []operator.Stage{{Name: "create_runtime", State: operator.StateWaiting, Steps: []operator.Step{
		{Name: "Resolve_Target_Secret", State: operator.StateWaiting}, {Name: "EDP_Registration", State: operator.StateWaiting},
	}}}
	say(waiting, 0)
	say(waiting, time.Second)
	first := running()
	first.Waiting = nil
	first.WaitingFor, first.Stages = "", []operator.Stage{{Name: "create_runtime", State: operator.StateCurrent, Attempt: 1, Steps: []operator.Step{
		{Name: "Resolve_Target_Secret", State: operator.StateCurrent, Attempts: 1, StartedAt: at(time.Second)},
		{Name: "EDP_Registration", State: operator.StateWaiting},
	}}}
	say(first, 2*time.Second)
	// EDP requests a retry and the stage is repeated: steps that succeeded before are not listed again.
	retry := running()
	retry.Stages = retry.Stages[1:2]
	retry.Stages[0].Attempt, retry.Stages[0].Steps[1].Attempts, retry.Stages[0].Steps[1].FinishedAt = 1, 1, at(4*time.Second)
	say(retry, 4*time.Second)
	say(retry, 5*time.Second)
	again := running()
	again.Stages = again.Stages[1:2]
	again.Stages[0].Steps[0].State = operator.StateCurrent
	again.Stages[0].Steps[1] = retry.Stages[0].Steps[1]
	say(again, 12*time.Second)
	again.Stages[0].Steps[1].Attempts, again.Stages[0].Steps[1].FinishedAt = 2, nil // the second try runs
	say(again, 13*time.Second)
	say(running(), 15*time.Second)
	// The next step has no live worker for a while.
	lost := running()
	lost.WaitingFor, lost.Waiting = "no live worker for provisioner", &operator.Waiting{Reason: operator.NoWorker}
	say(lost, 16*time.Second)
	say(failed(), 17*time.Second)
	say(failed(), 18*time.Second)
	golden(t, "changes", lines)
}

func TestChanges_NotCompleted_IsListed(t *testing.T) {
	t.Parallel()
	var c view.Changes
	golden(t, "changes-incomplete", c.Next(incomplete(), t0))
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 999 * time.Millisecond: "999ms", 1990 * time.Millisecond: "1.9s",
		59*time.Second + 990*time.Millisecond: "59.9s", time.Minute: "1m00s", 3*time.Minute + 5*time.Second: "3m05s",
		2*time.Hour + 10*time.Minute: "2h10m", 30 * time.Hour: "30h00m",
	} {
		if got := view.Duration(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
}
