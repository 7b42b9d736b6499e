package landscape_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestFault_SetAndCleared_AffectsRequests(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const edp, company = "/admin/systems/ias", "/ias/service/company/global"
	user := basic("keb", "keb")

	w.must(200, "PUT", edp, map[string]any{"outage": true})
	w.must(503, "GET", company, nil, user)
	w.must(404, "GET", evaluations+"/1", nil, w.avsToken()) // others are well
	w.must(200, "PUT", edp, map[string]any{"errorRate": 0.25, "errorStatus": 418})
	failed := 0
	for range 20 {
		if status, _ := w.call("GET", company, nil, user); status == 418 {
			failed++
		}
	}
	if failed != 5 {
		t.Errorf("%d of 20 failed at a rate of 0.25, want exactly 5", failed)
	}
	w.must(200, "DELETE", edp+"/settings", nil)
	w.must(200, "GET", company, nil, user)
}

func TestFault_ErrorAfter_DoesTheWork(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.avsToken()
	w.must(200, "PUT", "/admin/systems/avs", map[string]any{"errorRate": 1, "errorStatus": 502, "errorAfter": true})
	w.must(502, "POST", evaluations, newEvaluation("K8S-AZR-Kyma-int-n"), token)
	if now, ever := w.held("avs", "evaluation"); now != 1 || ever != 1 {
		t.Errorf("AvS holds %d evaluations of %d ever created, want 1 of 1", now, ever)
	}
}

func TestFault_Timeout_BlocksUntilSettingsChange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "PUT", "/admin/systems/reconciler", map[string]any{"timeout": true})

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", w.url+clusters, strings.NewReader("{}"))
	require.NoError(t, err)
	if resp, err := w.http.Do(r); err == nil {
		_ = resp.Body.Close()
		t.Fatalf("a request during a timeout was answered %d", resp.StatusCode)
	}

	held := make(chan error, 1)
	go func() {
		resp, err := w.http.Get(w.url + clusters + "/r-1/status")
		if err == nil {
			_ = resp.Body.Close()
		}
		held <- err
	}()
	select {
	case err := <-held:
		t.Fatalf("a request during a timeout ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.must(200, "DELETE", "/admin/systems/reconciler/settings", nil)
	// The blocked request is released; a client may have repeated it and received the real answer.
	<-held
	w.must(404, "GET", clusters+"/r-1/status", nil)
}

func TestFault_Latency_DelaysAnswers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "PUT", "/admin/systems/ias", map[string]any{"latencyMs": 30})
	start := time.Now()
	w.must(200, "GET", "/ias/service/company/global", nil, basic("keb", "keb"))
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Errorf("the answer took %s, want 30ms or more", took)
	}
}

func TestAdmin_InvalidSettings_AreRejected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for body, want := range map[string]string{
		`{"latencyMs":-1}`:     "0 to 600000",
		`{"errorRate":1.5}`:    "0 to 1",
		`{"errorStatus":200}`:  "400 to 599",
		`{"outrage":true}`:     "outage",
		`{"outage":"perhaps"}`: "true or false",
		`{`:                    "allowed are",
	} {
		got := w.must(400, "PUT", "/admin/systems/edp", body)
		if !strings.Contains(text(t, got, "error"), want) {
			t.Errorf("%s is answered with %v, want %q in it", body, got, want)
		}
	}
	got := w.must(400, "PUT", "/admin/systems/nobody", `{}`)
	for _, name := range []string{"avs", "edp", "ias", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
		if !strings.Contains(text(t, got, "error"), name) {
			t.Errorf("an unknown system is answered with %v, which does not name %s", got, name)
		}
	}
	w.must(400, "GET", "/admin/systems/avs/objects?colour=red", nil)
	w.must(400, "GET", "/admin/systems/avs/objects?limit=few", nil)
	if got := w.must(200, "GET", "/admin/systems/edp", nil); at(t, got, "settings", "outage") != false {
		t.Errorf("bad settings left %v", got)
	}
}

func TestAdmin_Calls_AreCountedByRouteAndCode(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.avsToken()
	for _, id := range []string{"1", "2"} {
		w.must(404, "GET", evaluations+"/"+id, nil, token)
	}
	w.must(200, "PUT", "/admin/systems/avs", map[string]any{"outage": true})
	w.must(503, "GET", evaluations+"/1", nil, token)
	got := w.must(200, "GET", "/admin/systems/avs", nil)
	counts := map[string]any{}
	for _, c := range at(t, got, "calls").([]any) {
		counts[text(t, c, "route")] = at(t, c, "count")
	}
	if counts[evaluations+"/{id}"] != 2.0 || counts["(not reached)"] != 1.0 || counts["/avs/oauth2/token"] != 1.0 {
		t.Errorf("calls are %v", counts)
	}
	w.ask(`mutation { result: deprovisionRuntime(id: "x") }`, nil)
	got = w.must(200, "GET", "/admin/systems/provisioner", nil)
	if route := text(t, got, "calls", 0, "route"); route != "/provisioner/graphql deprovisionRuntime" {
		t.Errorf("route of a GraphQL call is %s", route)
	}
}

func TestAdmin_Secrets_AreMasked(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(200, "POST", clusters, w.cluster("2.20.0"))
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.clock.Advance(clusterTime)
	w.operation(text(t, op, "id"))
	w.must(201, "POST", "/k8s/control-plane/api/v1/namespaces/kcp-system/secrets",
		map[string]any{"metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"k": "canary-data"}}, bearer("keb"))
	for _, system := range []string{"reconciler", "provisioner", "control-plane", "runtimes"} {
		_, raw := w.call("GET", "/admin/systems/"+system+"/objects", nil)
		for _, canary := range []string{"canary-", "Y2FuYXJ5LWRhdGE="} {
			if strings.Contains(string(raw), canary) {
				t.Errorf("objects of %s show %q: %s", system, canary, raw)
			}
		}
		if !strings.Contains(string(raw), "***") {
			t.Errorf("objects of %s mask nothing: %s", system, raw)
		}
	}
}

func TestAdmin_Objects_AreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	got := w.must(200, "GET", "/admin/systems/gardener/objects?kind=SecretBinding&contains=sb-azure&limit=2&offset=1", nil)
	if at(t, got, "count") != 2.0 || at(t, got, "totalCount") != 9.0 { // 5 in the pool, 1 for EU, 3 shared
		t.Errorf("count is %v of %v, want 2 of 9", got["count"], got["totalCount"])
	}
	if got := text(t, got, "data", 0, "kind"); got != "SecretBinding" {
		t.Errorf("kind is %s", got)
	}
}

func TestViolations_UnknownRoute_SurvivesARestart(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), newClock()
	w := open(t, dir, c)
	w.must(404, "GET", "/edp/namespaces/kyma-dev/tenants?a=b", nil)
	want := map[string]any{"count": 1.0, "last": []any{map[string]any{
		"time": "2026-01-02T03:04:05Z", "request": "GET /edp/namespaces/kyma-dev/tenants?a=b", "problem": "no such route",
	}}}
	check := func(want map[string]any) {
		t.Helper()
		got := w.must(200, "GET", "/admin/systems/edp", nil)["violations"]
		if diff := cmp.Diff(any(want), got); diff != "" {
			t.Errorf("the violations differ (-want +got):\n%s", diff)
		}
	}
	check(want)
	w.close()
	w = open(t, dir, c)
	check(want)
	w.must(200, "DELETE", "/admin/systems/edp/violations", nil)
	check(map[string]any{"count": 0.0, "last": []any{}})
}
