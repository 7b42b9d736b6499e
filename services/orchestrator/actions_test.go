package orchestrator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// action is an audit record in the form that a client reads.
type action struct{ Name, Role, Authentication, Action, Target, Detail, Outcome, Reason string }

func (g *guarded) record(query string) []action {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.api.URL+"/actions?"+query, nil)
	require.NoError(g.t, err)
	bearer(veraToken)(r)
	response, err := g.api.Client().Do(r)
	require.NoError(g.t, err)
	defer response.Body.Close()
	var page struct {
		Data       []action
		Count      int
		TotalCount int
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil || response.StatusCode != http.StatusOK || page.Count != len(page.Data) {
		g.t.Fatalf("%s: %v, %+v", response.Status, err, page)
	}
	return page.Data
}

func TestActions_Operator_IsRecordedByName(t *testing.T) {
	g := newGuarded(t)
	g.orchestrator()
	g.worker("alpha")
	g.worker("beta")
	op := g.failed()
	id := "/operations/" + op.ID
	jane := bearer(g.issuer.Token(map[string]any{"groups": "operators", "email": "jane@example.com"}))
	expect := func(want int, pattern, target, body string, c caller) {
		t.Helper()
		kind := jsonBody
		if strings.HasPrefix(target, "/orchestrations/") {
			kind = formBody
		}
		if got, _, text := g.send(route{pattern: pattern, target: target, body: body, contentType: kind}, c); got != want {
			t.Fatalf("%s: %d %s, want %d", target, got, text, want)
		}
	}
	g.script.set("Second", done)
	g.script.set("Poll", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Wait(op, time.Hour, "creating")
	})
	expect(403, "POST", id+"/retry", "", bearer(veraToken))
	// An authenticated caller cannot claim another name.
	expect(204, "POST", id+"/retry", `{"by":"somebody else"}`, bearer(ottoToken))
	testkit.Eventually(t, patience, "the operation waits in Poll", func() bool {
		var shown struct{ Step string }
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.api.URL+id, nil)
		require.NoError(t, err)
		bearer(ottoToken)(r)
		response, err := g.api.Client().Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(&shown) == nil && shown.Step == "Poll"
	})
	expect(409, "POST", id+"/skip", `{"step":"First"}`, jane)
	expect(204, "POST", id+"/skip", `{"step":"Poll"}`, jane)
	g.await(op, event.Succeeded)
	expect(202, "POST", "/upgrade/kyma", `{"targets":{"include":[{"target":"all"}]},"strategy":{"schedule":"2999-01-01T00:00:00Z"}}`, jane)
	orchestration := g.record("action=upgrade_kyma")[0].Target
	expect(200, "PUT", "/orchestrations/"+orchestration+"/cancel", "", bearer(ottoToken))
	expect(400, "POST", "/orchestrations/"+orchestration+"/retry", "x=y", bearer(ottoToken))
	expect(401, "POST", id+"/cancel", "", bearer("wrong"))
	expect(403, "POST", "/facts/replay", `{"since":"2026-01-02T03:04:05Z"}`, bearer(veraToken))
	expect(200, "POST", "/facts/replay", `{"since":"2026-01-02T03:04:05Z"}`, jane)

	var got []string
	for _, a := range slices.Backward(g.record("")) {
		got = append(got, strings.Join([]string{a.Name, a.Role, a.Authentication, a.Action, a.Target, a.Detail, a.Outcome, a.Reason}, "|"))
	}
	want := []string{
		"vera|viewer|token|retry|" + op.ID + "||refused|vera has the role viewer, and this needs the role operator",
		"otto|operator|token|retry|" + op.ID + "||done|",
		"jane@example.com|operator|oidc|skip|" + op.ID + "|First|refused|operation " + op.ID + ": not possible: the operation is at step Poll, not First",
		"jane@example.com|operator|oidc|skip|" + op.ID + "|Poll|done|",
		"jane@example.com|operator|oidc|upgrade_kyma|" + orchestration + "||done|",
		"otto|operator|token|cancel_orchestration|" + orchestration + "||done|",
		`otto|operator|token|retry_orchestration|` + orchestration + `||refused|body: unknown field "x"; allowed are operation-id, immediate`,
		"vera|viewer|token|replay_facts|||refused|vera has the role viewer, and this needs the role operator",
		"jane@example.com|operator|oidc|replay_facts||since 2026-01-02T03:04:05Z|done|",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got)\n%s", diff)
	}
	if one := g.record("page=2&page_size=2&target=" + op.ID); len(one) != 2 || one[0].Name != "otto" {
		t.Errorf("second page: %+v", one)
	}
	if refused := g.record("outcome=refused&name=otto"); len(refused) != 1 {
		t.Errorf("rejected actions of otto: %+v", refused)
	}
	if got, _, text := g.send(route{pattern: "GET /actions?outcome=maybe"}, bearer(veraToken)); got != http.StatusBadRequest || !strings.Contains(text, "allowed are") {
		t.Errorf("a bad outcome: %d %s", got, text)
	}
	var lines []string
	require.NoError(t, g.db.Select(&lines, `SELECT message FROM orchestrator.history WHERE operation_id = $1 AND message LIKE '% by %'`, op.ID))
	slices.Sort(lines)
	if diff := cmp.Diff([]string{"retried by otto", "skipped by jane@example.com"}, lines); diff != "" {
		t.Errorf("history of the operation (-want +got)\n%s", diff)
	}
}

func TestActions_RecordFails_ActionIsRejected(t *testing.T) {
	g := newGuarded(t)
	o := g.orchestrator()
	g.worker("alpha")
	g.worker("beta")
	op := g.failed()
	o.stop()
	before := g.snapshot()
	_, err := g.db.Exec(`ALTER TABLE orchestrator.actions RENAME TO elsewhere`)
	require.NoError(t, err)
	got, _, text := g.send(route{pattern: "POST /operations/" + op.ID + "/retry"}, bearer(ottoToken))
	if got != http.StatusServiceUnavailable || !strings.Contains(text, "not done") {
		t.Errorf("retry: %d %s", got, text)
	}
	_, err = g.db.Exec(`ALTER TABLE orchestrator.elsewhere RENAME TO actions`)
	require.NoError(t, err)
	if diff := cmp.Diff(before, g.snapshot()); diff != "" {
		t.Errorf("the action was done (-before +after)\n%s", diff)
	}
	if got, _, text := g.send(route{pattern: "POST /operations/" + op.ID + "/retry"}, bearer(ottoToken)); got != http.StatusNoContent {
		t.Errorf("afterwards: %d %s", got, text)
	}
}

func TestActions_AccessOff_BodyNamesTheOperator(t *testing.T) {
	s := newSystem(t)
	s.start()
	none := uuid.Must(uuid.NewV7()).String()
	for _, body := range []string{`{"by":"jane"}`, ``} {
		if code, text := s.post("/operations/"+none+"/cancel", body); code != http.StatusNotFound {
			t.Fatalf("cancel: %d %s", code, text)
		}
	}
	var page struct{ Data []action }
	s.get("/actions", &page)
	var names []string
	for _, a := range page.Data {
		names = append(names, a.Name+" "+a.Authentication+" "+a.Outcome)
	}
	if diff := cmp.Diff([]string{"an operator none refused", "jane none refused"}, names); diff != "" {
		t.Errorf("record (-want +got)\n%s", diff)
	}
	var me map[string]string
	s.get("/me", &me)
	if diff := cmp.Diff(map[string]string{"name": "an operator", "role": "operator", "authentication": "none"}, me); diff != "" {
		t.Errorf("me (-want +got)\n%s", diff)
	}
	for _, site := range []string{"cross-site", "same-site"} {
		if code, _ := s.do(http.MethodPost, "/operations/"+none+"/cancel", nil, "Sec-Fetch-Site", site); code != http.StatusForbidden {
			t.Errorf("a %s page can act: %d", site, code)
		}
	}
}
