package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
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

// failedUpdates runs updates that fail.
func (s *system) failedUpdates(n int) []event.Operation {
	s.t.Helper()
	s.script.set("Change", failing)
	ops := make([]event.Operation, n)
	for i := range ops {
		ops[i] = operation(event.Update, fmt.Sprintf("i-%d", i), "azure")
	}
	s.request(ops...)
	s.count("state = 'failed'", n)
	return ops
}

// count waits until n operations fulfil a condition.
func (s *system) count(condition string, n int) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, fmt.Sprintf("%d operations with %s", n, condition), func() bool {
		var got int
		require.NoError(s.t, s.db.Get(&got, `SELECT count(*) FROM orchestrator.operations WHERE `+condition))
		return got == n
	})
}

// order orders a batch through the operator API.
func (s *system) order(request operator.BatchRequest) (b operator.Batch) {
	s.t.Helper()
	if request.Reason == "" {
		request.Reason = "ext works again"
	}
	s.must(http.StatusAccepted, http.MethodPost, "/batches", request, &b)
	return b
}

// preview previews a batch. With an error status it returns the error.
func (s *system) preview(request operator.BatchRequest) (p operator.BatchPreview, problem string) {
	s.t.Helper()
	request.DryRun = true
	code, answer := s.do(http.MethodPost, "/batches", request)
	if code != http.StatusOK {
		return p, answer
	}
	require.NoError(s.t, json.Unmarshal([]byte(answer), &p))
	return p, ""
}

func (s *system) batch(id string) (b operator.Batch) {
	s.t.Helper()
	s.get("/batches/"+id, &b)
	return b
}

func (s *system) batchEnds(id string, want operator.BatchState) operator.Batch {
	s.t.Helper()
	testkit.Eventually(s.t, patience, "the batch is "+string(want), func() bool { return s.batch(id).State == want })
	return s.batch(id)
}

// progress waits until a batch has at least n results.
func (s *system) progress(id string, n int) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, fmt.Sprintf("the batch has %d results", n), func() bool {
		var done int
		require.NoError(s.t, s.db.Get(&done, `SELECT done + failed + skipped FROM orchestrator.batches WHERE id = $1`, id))
		return done >= n
	})
}

func TestBatches_Retry_RunsOperationsAgain(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.failedUpdates(25)
	p, problem := s.preview(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed&plan=azure"})
	if problem != "" || p.Count != 25 || len(p.Sample) != 10 {
		t.Fatalf("preview of %d operations with a sample of %d %s, want 25 and 10", p.Count, len(p.Sample), problem)
	}
	if diff := cmp.Diff([]operator.PlannedStep{{Stage: "change", Step: "Change", Plan: "again"}}, p.Sample[0].Steps); diff != "" {
		t.Errorf("steps that run again (-want +got):\n%s", diff)
	}
	s.script.set("Change", done)
	b := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: "plan=azure&state=failed", Expected: p.Count, By: "jane"})
	if b.Total != 25 || b.Rate != 50 || b.CreatedBy != "jane" {
		t.Errorf("ordered %+v", b)
	}
	if got := s.batchEnds(b.ID, operator.BatchFinished); got.Done != 25 || got.Waiting+got.Failed+got.Skipped != 0 {
		t.Errorf("finished with %+v", got)
	}
	s.count("state = 'succeeded'", 25)
	var results operator.List[operator.BatchResult]
	s.get("/batches/"+b.ID+"/operations?state=done&page_size=10&page=3", &results)
	if results.TotalCount != 25 || len(results.Data) != 5 || results.Data[0].At == nil || results.Data[0].Error != "" {
		t.Errorf("results %+v", results)
	}
	var detail operator.OperationDetail
	s.get("/operations/"+results.Data[0].OperationID, &detail)
	said := ""
	for _, line := range detail.History {
		if line.Outcome == "retried by operator" {
			said = line.Message
		}
	}
	if want := "retried by jane (batch " + b.ID + ")"; said != want {
		t.Errorf("the history says %q, want %q", said, want)
	}
	var actions operator.List[operator.Action]
	s.get("/actions?action=order_batch", &actions)
	var details []string
	for _, a := range actions.Data {
		details = append(details, a.Name+": "+a.Detail+": "+a.Outcome)
	}
	want := []string{"jane: retry of plan=azure&state=failed: ext works again: done", "an operator: preview: retry of state=failed&plan=azure: done"}
	if diff := cmp.Diff(want, details); diff != "" || actions.Data[0].Target != b.ID {
		t.Errorf("recorded actions (-want +got):\n%s", diff)
	}
}

// Every operation fails again after its retry, so a second retry of one would be possible. One of two orchestrators is killed again and again.
func TestBatches_OrchestratorKilledRepeatedly_ActsOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	ops := s.failedUpdates(400)
	direct, err := url.Parse(s.database)
	require.NoError(t, err)
	way := testkit.Proxy(t, direct.Host)
	direct.Host = way.Addr()
	s.cfg.Database.URL = direct.String()
	o := s.orchestrator()
	b := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed", Rate: new(500.0)})
	for kill := 1; kill <= 3; kill++ {
		s.progress(b.ID, kill*80)
		way.Cut() // like a killed process, it cannot commit any more
		o.stop()
		way.Restore()
		o = s.orchestrator()
	}
	if got := s.batchEnds(b.ID, operator.BatchFinished); got.Done != len(ops) {
		t.Errorf("finished with %+v", got)
	}
	s.count("state = 'failed'", len(ops))
	var retried []int
	require.NoError(t, s.db.Select(&retried, `SELECT count(*) FROM orchestrator.history WHERE kind = 'retried by operator' GROUP BY operation_id`))
	if len(retried) != len(ops) || slices.Max(retried) != 1 {
		t.Errorf("%d operations were retried, want %d, each once: %v", len(retried), len(ops), retried)
	}
}

func TestBatches_Paused_StaysPausedOverRestart(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	first := s.start()
	s.failedUpdates(60)
	b := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed", Rate: new(50.0)})
	s.progress(b.ID, 10)
	code, answer := s.post("/batches/"+b.ID+"/pause", "")
	require.Equal(t, http.StatusOK, code, answer)
	var paused operator.Batch
	require.NoError(t, json.Unmarshal([]byte(answer), &paused))
	if paused.State != operator.BatchPaused || paused.Waiting == 0 {
		t.Fatalf("after the pause %+v", paused)
	}
	first.stop()
	s.orchestrator()
	// A second batch shows that the new orchestrator works on batches.
	other := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed", Rate: new(0.0)})
	s.batchEnds(other.ID, operator.BatchFinished)
	if got := s.batch(b.ID); got.State != operator.BatchPaused || got.Waiting != paused.Waiting || got.Done != paused.Done {
		t.Errorf("after the restart %+v, want %+v", got, paused)
	}
	s.count("state = 'failed'", 60)
	if code, answer := s.post("/batches/"+b.ID+"/resume", ""); code != http.StatusOK {
		t.Errorf("resume: %d %s", code, answer)
	}
	if got := s.batchEnds(b.ID, operator.BatchFinished); got.Done+got.Skipped != 60 {
		t.Errorf("after the end %+v", got)
	}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		if code, answer := s.post("/batches/"+b.ID+"/"+verb, ""); code != http.StatusConflict || !strings.Contains(answer, "finished") {
			t.Errorf("%s of a finished batch: %d %s", verb, code, answer)
		}
	}
}

func TestBatches_Cancelled_LeavesTheOthers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.failedUpdates(30)
	s.script.set("Change", done)
	b := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed", Rate: new(20.0)})
	s.progress(b.ID, 4)
	if code, answer := s.post("/batches/"+b.ID+"/cancel", ""); code != http.StatusOK {
		t.Fatalf("cancel: %d %s", code, answer)
	}
	got := s.batch(b.ID)
	if got.State != operator.BatchCancelled || got.Waiting == 0 {
		t.Errorf("after the cancellation %+v", got)
	}
	s.count("state = 'succeeded'", got.Done)
	s.count("state = 'failed'", got.Waiting)
	var list operator.List[operator.Batch]
	s.get("/batches?state=cancelled", &list)
	if list.TotalCount != 1 || list.Data[0].ID != b.ID {
		t.Errorf("cancelled batches %+v", list)
	}
}

func TestBatches_NoLongerPossible_IsSkipped(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, time.Hour, &worker.Error{Component: "ext", Reason: "down", Message: "ext is down"})
	})
	failed := s.failedUpdates(3)
	ops := make([]event.Operation, 5)
	for i := range ops {
		ops[i] = operation(event.Provision, fmt.Sprintf("p-%d", i), "azure")
	}
	s.request(ops...)
	s.count("due_at IS NOT NULL", 5)
	p, problem := s.preview(operator.BatchRequest{Action: operator.BatchSkip, Step: "First", Filter: "plan=azure"})
	problems := 0
	for _, o := range p.Sample {
		if o.Problem != "" {
			problems++
		}
	}
	if problem != "" || p.Count != 8 || problems != len(failed) {
		t.Errorf("preview of %d operations, %d of them impossible, %s; want 8 and 3", p.Count, problems, problem)
	}
	skip := s.order(operator.BatchRequest{Action: operator.BatchSkip, Step: "First", Filter: "plan=azure"})
	if got := s.batchEnds(skip.ID, operator.BatchFinished); got.Done != 5 || got.Skipped != 3 {
		t.Errorf("skip: %+v, want 5 done and 3 skipped", got)
	}
	var results operator.List[operator.BatchResult]
	s.get("/batches/"+skip.ID+"/operations?state=skipped", &results)
	if len(results.Data) != 3 || !strings.Contains(results.Data[0].Error, "failed") {
		t.Errorf("skipped operations %+v", results.Data)
	}
	s.count("state = 'succeeded'", 5)
	more := operation(event.Provision, "p-more", "azure")
	s.request(more)
	s.count("due_at IS NOT NULL", 1)
	stop := s.order(operator.BatchRequest{Action: operator.BatchCancel, Filter: "step=First", Rate: new(0.0), By: "jane"})
	if got := s.batchEnds(stop.ID, operator.BatchFinished); got.Done != 1 || got.Total != 1 {
		t.Errorf("cancel: %+v, want 1 done", got)
	}
	s.await(more, event.Cancelled)
}

// The systems are idle, so this measures what the orchestrator does for the batch and for the operations that it starts again.
func TestBatches_TenThousand_Scale(t *testing.T) {
	if os.Getenv("KEB_SCALE") == "" {
		t.Skip("make bench SCENARIO=api runs this test: it takes minutes and measures time")
	}
	s := newSystem(t)
	s.start()
	const n = 10_000
	var hash string
	require.NoError(t, s.db.Get(&hash, `SELECT hash FROM orchestrator.definitions WHERE operation_type = 'update'`))
	for _, query := range []string{`
INSERT INTO orchestrator.operations (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt,
    dispatch, stage_memory, started_at, finished_at, deadline, error, details)
SELECT gen_random_uuid(), 'update', 'i-' || n, 'azure', now() - n * interval '1 second', 'failed', 9, 20, 0, 0, 1, 0, 0, false, now(), now(),
    now() + interval '1 day', '{"component": "ext", "message": "ext is broken", "reason": "broken"}'::jsonb, '{}'
FROM generate_series(1, $1::int) AS n WHERE $2 <> ''`, `
INSERT INTO orchestrator.instances (instance_id, waiting) SELECT 'i-' || n, 0 FROM generate_series(1, $1::int) AS n WHERE $2 <> ''`, `
INSERT INTO orchestrator.requests (operation_id, body, definition)
SELECT o.id, jsonb_build_object('id', o.id, 'type', o.type, 'instanceId', o.instance_id, 'plan', jsonb_build_object('id', o.plan, 'name', o.plan),
    'context', jsonb_build_object('globalAccountId', 'ga-' || o.arrived % 50, 'subaccountId', 'sa-' || o.arrived),
    'runtime', jsonb_build_object('name', 'demo', 'shootName', 'c-' || o.arrived, 'region', 'westeurope')), $2
FROM orchestrator.operations o WHERE $1::int > 0`} {
		_, err := s.db.Exec(query, n, hash)
		require.NoError(t, err)
	}
	_, err := s.db.Exec(`VACUUM ANALYZE`)
	require.NoError(t, err)
	begun := time.Now()
	p, problem := s.preview(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed"})
	require.Empty(t, problem)
	previewed := time.Since(begun)
	begun = time.Now()
	b := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: "state=failed", Rate: new(0.0), Expected: p.Count})
	ordered := time.Since(begun)
	until := func(what, condition string) time.Duration {
		testkit.Eventually(t, 5*time.Minute, what, func() bool {
			var ok bool
			require.NoError(t, s.db.Get(&ok, `SELECT `+condition))
			return ok
		})
		return time.Since(begun)
	}
	acted := until("the batch ends", `state = 'finished' FROM orchestrator.batches`)
	succeeded := until("the operations succeed", `count(*) = 0 FROM orchestrator.operations WHERE state <> 'succeeded'`)
	if got := s.batch(b.ID); got.Done != n {
		t.Errorf("ended with %+v", got)
	}
	t.Logf("%d operations: previewed in %s, ordered in %s, all retried after %s, all succeeded after %s", n, previewed.Round(time.Millisecond),
		ordered.Round(time.Millisecond), acted.Round(time.Millisecond), succeeded.Round(time.Millisecond))
	if acted > time.Minute {
		t.Errorf("the batch took %s, want at most a minute", acted)
	}
}

func TestBatches_Filter_AcceptsEveryParameterOfTheList(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	c, err := theDocument()
	require.NoError(t, err)
	list := c.Root["paths"].(map[string]any)["/operations"].(map[string]any)["get"].(map[string]any)["parameters"].([]any)
	checked := 0
	for _, p := range list {
		p := p.(map[string]any)
		if ref, ok := p["$ref"].(string); ok {
			p = c.Root["components"].(map[string]any)["parameters"].(map[string]any)[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
		}
		name := p["name"].(string)
		_, problem := s.preview(operator.BatchRequest{Action: operator.BatchRetry, Filter: name + "=abc"})
		ofPages := slices.Contains([]string{"page", "page_size", "cursor", "sort"}, name)
		if strings.Contains(problem, "unknown parameter") != ofPages {
			t.Errorf("%s: %s", name, problem)
		}
		checked++
	}
	if checked < 14 {
		t.Errorf("%d parameters are documented", checked)
	}
}

func TestBatches_FilterExpression_SelectsOperations(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.failedUpdates(3)
	for expression, want := range map[string]int{
		"state = failed AND step = Change":                             3,
		"worker = alpha AND stage = change":                            3,
		"worker = beta OR system = ias OR stage = finish":              0,
		"NOT worker = beta AND type = update AND duration < 1h":        3,
		"state = failed AND NOT step = Change":                         0,
		"error.message:* AND instance = up-1":                          0,
		"created >= 1h AND (state = succeeded OR plan:(aws OR azure))": 3,
	} {
		filter := operator.Filter{Filter: expression}.Query()
		var list operator.OperationList
		s.get("/operations?"+filter, &list)
		p, problem := s.preview(operator.BatchRequest{Action: operator.BatchRetry, Filter: filter})
		if list.TotalCount != want || p.Count != want || problem != "" {
			t.Errorf("%s: %d operations, %d in the preview %s, want %d", expression, list.TotalCount, p.Count, problem, want)
		}
	}
	s.script.set("Change", done)
	filter := operator.Filter{Filter: "state = failed AND step = Change"}.Query()
	b := s.order(operator.BatchRequest{Action: operator.BatchRetry, Filter: filter, By: "jane"})
	if b.Filter != filter || b.Total != 3 {
		t.Errorf("ordered %+v", b)
	}
	s.batchEnds(b.ID, operator.BatchFinished)
	s.count("state = 'succeeded'", 3)
	for request, want := range map[operator.BatchAction]string{
		operator.BatchHold:  "a hold has no scope for filter",
		operator.BatchRetry: `filter: at character 1: unknown field \"plann\"`,
	} {
		_, problem := s.preview(operator.BatchRequest{Action: request, Filter: operator.Filter{Filter: map[operator.BatchAction]string{
			operator.BatchHold: "plan = azure", operator.BatchRetry: "plann = azure",
		}[request]}.Query()})
		if !strings.Contains(problem, want) {
			t.Errorf("%s: %s, want %q", request, problem, want)
		}
	}
}

func TestBatches_HoldAndResume_HaveTheScopeOfAHold(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	filter := "plan=azure&type=update&step=Change"
	want := operator.HoldScope{Plan: "azure", Type: event.Update, Step: "Change"}
	p, problem := s.preview(operator.BatchRequest{Action: operator.BatchHold, Filter: filter})
	if problem != "" || p.Scope == nil || *p.Scope != want {
		t.Fatalf("scope %v %s, want %v", p.Scope, problem, want)
	}
	h := s.hold(*p.Scope, nil)
	p, problem = s.preview(operator.BatchRequest{Action: operator.BatchResume, Filter: filter})
	if problem != "" || len(p.Holds) != 1 || p.Holds[0].ID != h.ID {
		t.Errorf("holds to release %v %s, want %s", p.Holds, problem, h.ID)
	}
}
