package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// errorGroups returns the groups of errors as text. A group that differs from the list with its query says so; the groups may be a second older.
func (s *system) errorGroups() (now, failed []string) {
	s.t.Helper()
	var e operator.Errors
	s.get("/errors", &e)
	texts := func(groups operator.ErrorGroups) []string {
		out := []string{}
		for i := range groups.Groups {
			g := &groups.Groups[i]
			text := g.Text
			if g.Error != nil {
				text = g.Error.String()
			}
			steps := []string{}
			for _, step := range g.Steps {
				steps = append(steps, fmt.Sprintf("%s/%s %d", step.Worker, step.Step, step.Count))
			}
			slices.Sort(steps)
			if ids := s.found(g.Query); len(ids) != g.Count || !slices.Contains(ids, g.Sample.Operation) {
				text += fmt.Sprintf(": the list of %s has %v, sample %s", g.Query, ids, g.Sample.Operation)
			}
			if g.Error != nil && g.Sample.Message == "" || g.First.IsZero() || g.Last.Before(g.First) {
				s.t.Errorf("group %+v", g)
			}
			out = append(out, fmt.Sprintf("%d %s %s [%s]", g.Count, g.Reason, text, strings.Join(steps, ", ")))
		}
		slices.Sort(out)
		return out
	}
	return texts(e.Now), texts(e.Failed)
}

func TestErrors_Outage_IsGroupedByError(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.cfg.AskWorkersEvery = 2 * time.Second // a short pause of the process must not make its workers appear missing
	s.start()
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		e := &worker.Error{Component: "ext", Reason: "err_http", Message: "POST /namespaces/" + op.InstanceID + ": status 503"}
		if strings.HasPrefix(op.InstanceID, "quota") {
			e = &worker.Error{Component: "ext", Reason: "err_quota", Message: "no quota for " + op.ID + " since " + time.Now().Format(time.RFC3339Nano)}
		}
		return worker.Retry(op, 50*time.Millisecond, e)
	})
	s.script.set("Change", failing)
	var ops []event.Operation
	for i := range 7 {
		ops = append(ops, operation(event.Provision, fmt.Sprintf("away-%d", i), "azure"))
	}
	for i := range 3 {
		ops = append(ops, operation(event.Provision, fmt.Sprintf("quota-%d", i), "azure"), operation(event.Update, fmt.Sprintf("broken-%d", i), "azure"))
	}
	s.post("/holds", `{"scope":{"plan":"gcp"},"reason":"no capacity"}`)
	ops = append(ops, operation(event.Update, "held-1", "gcp"), operation(event.Update, "held-2", "gcp"))
	s.request(ops...)
	s.count("condition = 'failing'", 10)
	s.count("state = 'failed'", 3)
	s.count("hold_id IS NOT NULL", 2)
	want := []string{
		"2 held held: no capacity []", "3 failing ext: err_quota: no quota for … since … [alpha/First 3]",
		"7 failing ext: err_http: POST /namespaces/…: status 503 [alpha/First 7]",
	}
	testkit.Eventually(t, patience, "the groups are complete", func() bool {
		now, failed := s.errorGroups()
		return cmp.Equal(want, now) && cmp.Equal([]string{"3 failed ext: broken: ext is broken [alpha/Change 3]"}, failed)
	})

	// The counts do not change while the next try executes.
	var e operator.Errors
	s.get("/errors", &e)
	tries := s.script.count("First")
	for look := 0; look < 20 || s.script.count("First") < tries+50; look++ {
		for i := range e.Now.Groups {
			if g := &e.Now.Groups[i]; len(s.found(g.Query)) != g.Count {
				t.Fatalf("look %d: the list of %s has %d operations, want %d", look, g.Query, len(s.found(g.Query)), g.Count)
			}
		}
	}

	// What failed in the last hour is counted as the list counts it, also after a retry has failed again.
	var overview operator.Overview
	s.get("/overview", &overview)
	query := "state=failed&finished_since=" + overview.LastHourSince.Format(time.RFC3339)
	if n := len(s.found(query)); n != 3 || int(overview.LastHour.Failed) != n {
		t.Errorf("%d operations have failed in the last hour, and the list has %d", overview.LastHour.Failed, n)
	}
}

// A stage that is repeated for a failing step stays in the group of that step, and in the list of its worker.
func TestErrors_RepeatedStage_StaysInItsGroup(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.cfg.AskWorkersEvery = 2 * time.Second
	s.start()
	inside := make(chan struct{}, 100)
	release := make(chan struct{})
	s.script.set("Second", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, time.Millisecond, &worker.Error{Component: "ext", Reason: "err_http", Message: "status 503"})
	})
	op := operation(event.Provision, "i-1", "azure")
	s.request(op)
	s.count("condition = 'failing'", 1)
	s.script.set("First", func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		inside <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return op, 0, nil
	})
	<-inside
	defer close(release)
	testkit.Eventually(t, patience, "the group", func() bool {
		now, _ := s.errorGroups()
		return cmp.Equal(now, []string{"1 failing ext: err_http: status 503 [beta/Second 1]"})
	})
	for query, want := range map[string]int{"worker=beta": 1, "step=Second&waiting=failing": 1, "worker=alpha": 0, "step=First": 0} {
		if got := len(s.found(query)); got != want {
			t.Errorf("%s: %d operations, want %d", query, got, want)
		}
	}
}

// With too many different errors, the rare ones are counted together.
func TestErrors_ManyDifferentErrors_AreBounded(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.failedUpdates(1)
	_, err := s.db.Exec(`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt, dispatch,
    stage_memory, finished_at, error, error_group)
SELECT gen_random_uuid(), type, 'x-' || n, plan, created_at, state, 1, 1, stage, step, 1, 1, 0, false, now(), error, to_char(n / 2, 'FM0000000000000000')
FROM orchestrator.operations, generate_series(1, 299) AS n`)
	require.NoError(t, err)
	_, err = s.db.Exec(`INSERT INTO orchestrator.requests (operation_id, body, definition)
SELECT o.id, r.body, r.definition FROM orchestrator.operations o, orchestrator.requests r WHERE o.instance_id LIKE 'x-%'`)
	require.NoError(t, err)
	var e operator.Errors
	testkit.Eventually(t, patience, "the errors are counted", func() bool {
		s.get("/errors", &e)
		return e.Failed.Operations == 300
	})
	if o := e.Failed.Others; len(e.Failed.Groups) != 100 || o == nil || o.Errors != 51 || o.Operations != 100 {
		t.Errorf("%d groups, others %+v", len(e.Failed.Groups), o)
	}
}
