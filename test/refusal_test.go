package test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestRequest_Invalid_IsRejectedWithoutTraces(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t, nil)
	sys := harness.Start(t, harness.Options{Env: []string{"KEB_DATABASE_URL=" + database}})
	good := harness.Azure()
	sys.PollEnd(good, sys.Provision(good), osb.StateSucceeded, limit)
	var before map[string]int
	testkit.Eventually(t, limit, "the broker to save the rejections that it asks for at its start", func() bool {
		before = traces(t, sys, database)
		return before["table broker.rejections"] == 1
	})

	o := harness.Azure()
	body := encode(t, o.Body())
	changed := func(old, new string) string {
		if !strings.Contains(body, old) {
			t.Fatalf("the request has no %s", old)
		}
		return strings.Replace(body, old, new, 1)
	}
	for _, c := range []struct {
		name, body string
		change     func(*http.Request)
		status     int
		texts      []string
	}{
		{name: "unknown plan", body: changed(harness.PlanAzure, "00000000-0000-0000-0000-000000000000"), status: 400, texts: []string{"plan_id"}},
		{name: "truncated JSON", body: body[:len(body)/2], status: 400, texts: []string{"JSON"}},
		{
			name: "missing version header", body: body, change: func(r *http.Request) { r.Header.Del("X-Broker-API-Version") },
			status: 412, texts: []string{"X-Broker-API-Version"},
		},
		{name: "wrong password", body: body, change: func(r *http.Request) { r.SetBasicAuth("keb", "wrong") }, status: 401},
		{name: "synchronous only", body: body, change: func(r *http.Request) { r.URL.RawQuery = "" }, status: 422, texts: []string{"asynchronous"}},
	} {
		status, answer := put(t, sys, o.InstanceID, c.body, c.change)
		var problem struct{ Description string }
		if err := json.Unmarshal([]byte(answer), &problem); err != nil || problem.Description == "" || status != c.status {
			t.Errorf("%s: answered %d %s (%v), want %d with a description", c.name, status, answer, err, c.status)
		}
		for _, text := range c.texts {
			if !strings.Contains(problem.Description, text) {
				t.Errorf("%s: %q does not say %q", c.name, problem.Description, text)
			}
		}
	}

	if diff := cmp.Diff(before, traces(t, sys, database)); diff != "" {
		t.Errorf("the bad requests have left something (-before +after):\n%s", diff)
	}
	if _, err := sys.Platform().GetInstance(t.Context(), o.InstanceID); harness.StatusOf(err) != 404 {
		t.Errorf("the instance is answered %v, want 404", err)
	}
	// The valid request is accepted, so each rejection had the expected cause.
	sys.AwaitEnd(sys.Provision(o), "succeeded", limit)
	if cmp.Equal(before, traces(t, sys, database)) {
		t.Error("a good request leaves no trace either: this test could not fail")
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

func put(t *testing.T, sys *harness.System, instance, body string, change func(*http.Request)) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		sys.OSBURL()+"/v2/service_instances/"+instance+"?accepts_incomplete=true", strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("X-Broker-API-Version", "2.17")
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth("keb", "keb")
	if change != nil {
		change(request)
	}
	response, err := sys.HTTP.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(raw)
}

// traces counts the possible effects of a request: rows by table, published messages by stream, operations, objects in the landscape, and
// requests to it.
func traces(t *testing.T, sys *harness.System, database string) map[string]int {
	t.Helper()
	counts := map[string]int{"operations": sys.OperationCount()}
	maps.Copy(counts, sys.Holds())
	maps.Copy(counts, sys.Calls())
	maps.Copy(counts, rows(t, database))
	b, err := bus.Connect(t.Context(), bus.Config{URL: sys.NATS(), Name: "test"}, bus.Deps{})
	require.NoError(t, err)
	defer b.Close()
	for _, stream := range event.Streams() {
		s, err := b.JetStream().Stream(t.Context(), string(stream.Name))
		require.NoError(t, err)
		counts["stream "+string(stream.Name)] = int(s.CachedInfo().State.LastSeq)
	}
	return counts
}

func rows(t *testing.T, database string) map[string]int {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database, MaxOpen: 1, ApplicationName: "test"})
	require.NoError(t, err)
	defer db.Close()
	var tables []string
	if err := db.SelectContext(t.Context(), &tables, `SELECT quote_ident(table_schema) || '.' || quote_ident(table_name)
		FROM information_schema.tables WHERE table_schema IN ('broker', 'orchestrator') AND table_type = 'BASE TABLE'`); err != nil {
		t.Fatal(err)
	}
	if len(tables) < 4 {
		t.Fatalf("tables %v, want those of the broker and of the orchestrator", tables)
	}
	counts := map[string]int{}
	for _, table := range tables {
		var n int
		require.NoError(t, db.GetContext(t.Context(), &n, `SELECT count(*) FROM `+table))
		counts["table "+table] = n
	}
	return counts
}
