package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
)

// api is an operator API that answers with what a test says, and records requests that change something.
type api struct {
	mu      sync.Mutex
	answers map[string]string // by path
	queries []string
	changes []string
	// lost makes the answers to changes get lost.
	lost bool
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body) // GET has none
	isChange := r.Method != http.MethodGet && body["dryRun"] != true
	if isChange {
		a.changes = append(a.changes, r.Method+" "+r.URL.Path)
	}
	a.queries = append(a.queries, r.URL.RequestURI())
	if isChange && a.lost {
		panic(http.ErrAbortHandler)
	}
	answer, ok := a.answers[r.Method+" "+r.URL.Path]
	switch {
	case !ok && r.Method != http.MethodGet, isChange && strings.HasPrefix(r.URL.Path, "/operations/"):
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		http.Error(w, `{"error": "not found"}`, http.StatusNotFound)
	default:
		_, _ = w.Write([]byte(answer))
	}
}

// session is a client of a server.
type session struct {
	*mcp.ClientSession
	t   *testing.T
	api *api
	now time.Time
}

func start(t *testing.T, cfg Config, options *mcp.ClientOptions) *session {
	t.Helper()
	s := &session{t: t, api: &api{answers: map[string]string{}}, now: time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)}
	web := httptest.NewServer(s.api)
	t.Cleanup(web.Close)
	client, err := operator.New(web.URL, "")
	require.NoError(t, err)
	server := New(cfg, Deps{Reader: client, Operations: client, Holds: client, Batches: client, Orchestrations: client, Now: func() time.Time { return s.now }})
	here, there := mcp.NewInMemoryTransports()
	running, err := server.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	s.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Close()
		_ = running.Wait()
	})
	return s
}

// call calls a tool, and returns its text, and whether it is an error.
func (s *session) call(name string, arguments map[string]any) (text string, isError bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	require.NoErrorf(s.t, err, "%s %v", name, arguments)
	require.Len(s.t, result.Content, 1)
	content, ok := result.Content[0].(*mcp.TextContent)
	require.True(s.t, ok, "content of %s is no text", name)
	return content.Text, result.IsError
}

func (s *session) changes() []string {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	return slices.Clone(s.api.changes)
}

func names(t *testing.T, s *session) (all []string) {
	t.Helper()
	for tool, err := range s.Tools(t.Context(), nil) {
		require.NoError(t, err)
		all = append(all, tool.Name)
	}
	slices.Sort(all)
	return all
}

var changing = []string{
	"apply_limits", "cancel_operation", "change_batch", "change_orchestration", "create_hold", "order_batch", "release_hold", "retry_operation", "skip_step",
}

func TestServer_WithoutWrites_ListsNoToolThatChanges(t *testing.T) {
	t.Parallel()
	readOnly, all := names(t, start(t, Config{}, nil)), names(t, start(t, Config{AllowWrites: true}, nil))
	for _, name := range changing {
		if slices.Contains(readOnly, name) || !slices.Contains(all, name) {
			t.Errorf("%s: listed without writes: %v, with writes: %v", name, slices.Contains(readOnly, name), slices.Contains(all, name))
		}
	}
	if len(all) != len(readOnly)+len(changing) {
		t.Errorf("with writes %d tools, without %d, of which %d change something", len(all), len(readOnly), len(changing))
	}
	s := start(t, Config{}, nil)
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "cancel_operation", Arguments: map[string]any{"id": "op-1"}}); err == nil {
		t.Error("a tool that is not listed was called")
	}
}

// TestTools_Descriptions_AreComplete wants what an agent needs to use the tools without a manual.
func TestTools_Descriptions_AreComplete(t *testing.T) {
	t.Parallel()
	size := 0
	for tool, err := range start(t, Config{AllowWrites: true}, nil).Tools(t.Context(), nil) {
		require.NoError(t, err)
		raw, err := json.Marshal(tool)
		require.NoError(t, err)
		size += len(raw)
		if tool.Title == "" || len(tool.Description) < 40 || !strings.HasSuffix(tool.Description, ".") {
			t.Errorf("%s: title %q, description %q", tool.Name, tool.Title, tool.Description)
		}
		if tool.Annotations.ReadOnlyHint == slices.Contains(changing, tool.Name) {
			t.Errorf("%s: read-only is %v", tool.Name, tool.Annotations.ReadOnlyHint)
		}
		var schema struct {
			Type                 string
			AdditionalProperties any
			Properties           map[string]struct {
				Type        string
				Description string
				Items       struct{ Enum []string }
			}
		}
		raw, err = json.Marshal(tool.InputSchema)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &schema))
		if schema.Type != "object" || schema.AdditionalProperties == nil {
			t.Errorf("%s: the schema of its arguments is %s", tool.Name, raw)
		}
		for name, p := range schema.Properties {
			if p.Type == "" || len(p.Description) < 10 {
				t.Errorf("%s.%s: type %q, description %q", tool.Name, name, p.Type, p.Description)
			}
		}
		if tool.Name == "operations" && !slices.Contains(schema.Properties["waiting"].Items.Enum, "no_answer") {
			t.Errorf("operations.waiting allows %v", schema.Properties["waiting"].Items.Enum)
		}
	}
	t.Logf("the list of tools has %d bytes", size)
	if size > 40_000 {
		t.Errorf("the list of tools has %d bytes, which each session of an agent reads", size)
	}
}

func TestRead_Filters_ReachTheAPI(t *testing.T) {
	t.Parallel()
	s := start(t, Config{}, nil)
	s.api.answers["GET /operations"] = `{"data": [{"id": "op-1", "cursor": 7, "state": "in progress", "message": "", "waitingFor": "step A, failing"}], "count": 1, "totalCount": 1}`
	text, isError := s.call("operations", map[string]any{"state": []string{"failed", "in progress"}, "waiting": []string{"failing"}, "since": "2h", "worker": "edp", "filter": "plan:aws", "page_size": 1000})
	if want := `{"count":1,"data":[{"id":"op-1","state":"in progress","waitingFor":"step A, failing"}],"totalCount":1}`; text != want || isError {
		t.Errorf("got %s (error: %v), want %s", text, isError, want)
	}
	if want := "/operations?filter=plan%3Aaws&page_size=100&since=2026-11-23T01%3A00%3A00Z&state=failed%2Cin+progress&waiting=failing&worker=edp"; s.api.queries[0] != want {
		t.Errorf("the request is %s, want %s", s.api.queries[0], want)
	}
}

func TestRead_InvalidCalls_SayWhatToDo(t *testing.T) {
	t.Parallel()
	s := start(t, Config{AllowWrites: true}, nil)
	s.api.answers["GET /workers"] = `{"data": [{"name": "edp"}, {"name": "avs"}]}`
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		{"operations", map[string]any{"waiting": []string{"lazy"}}, "no_worker"},
		{"operations", map[string]any{"stat": []string{"failed"}}, "stat"},
		{"operations", map[string]any{"since": "yesterday"}, "must be a time such as 2026-11-21T22:00:00Z, or a duration such as 2h"},
		{"operation", map[string]any{"id": "op-9"}, `there is no operation "op-9"; the tool "operations" with search`},
		{"operation", map[string]any{}, "id"},
		{"workers", map[string]any{"worker": "epd"}, `there is no worker "epd"; known: avs, edp`},
		{"events", map[string]any{}, "set either instance or operation"},
		{"create_hold", map[string]any{"reason": "x"}, "a hold needs a scope"},
		{"order_batch", map[string]any{"action": "retry", "reason": "x", "expected": 1, "filter": map[string]any{"since": "2h"}}, "filter.since"},
		{"order_batch", map[string]any{"action": "retry", "reason": "x", "expected": 1, "filter": map[string]any{"finished_since": "2h"}}, "filter.finished_since"},
	} {
		if text, isError := s.call(c.tool, c.arguments); !isError || !strings.Contains(text, c.want) {
			t.Errorf("%s %v: %q (error: %v), want %q", c.tool, c.arguments, text, isError, c.want)
		}
	}
	if changes := s.changes(); len(changes) > 0 {
		t.Errorf("invalid calls changed something: %v", changes)
	}
}

func TestAnswers_OfAnySize_AreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, Config{}, nil)
	var rows []string
	for i := range 1000 {
		rows = append(rows, fmt.Sprintf(`{"id": "op-%d", "error": {"message": "%sthe useful end"}}`, i, strings.Repeat("x", 5000)))
	}
	s.api.answers["GET /operations"] = `{"data": [` + strings.Join(rows, ",") + `], "count": 1000, "totalCount": 1000}`
	text, _ := s.call("operations", nil)
	var answer struct {
		Data []struct {
			Error struct{ Message string }
		}
		TotalCount int
		Shortened  string
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	if len(text) > maxAnswer || len(answer.Data) < 10 || answer.TotalCount != 1000 || answer.Shortened == "" {
		t.Errorf("%d bytes, %d rows of %d, note %q", len(text), len(answer.Data), answer.TotalCount, answer.Shortened)
	}
	if m := answer.Data[0].Error.Message; len(m) > maxText+100 || !strings.HasSuffix(m, "the useful end") {
		t.Errorf("message of %d characters: %s", len(m), m)
	}
}

func TestMetrics_Names_SelectSeries(t *testing.T) {
	t.Parallel()
	s := start(t, Config{}, nil)
	s.api.answers["GET /metrics"] = `# HELP keb_external_requests_total Calls.
# TYPE keb_external_requests_total counter
keb_external_requests_total{code="503",system="edp"} 7
keb_external_requests_total{code="200",system="avs"} 9
keb_external_requests_total{code="500",system="edp"} 0
# HELP keb_other Other.
keb_other 1
`
	text, _ := s.call("metrics", map[string]any{"name": "external_requests", "labels": map[string]any{"system": "edp"}})
	if want := `{"meaning":{"keb_external_requests_total":"Calls."},"series":["keb_external_requests_total{code=\"503\",system=\"edp\"} 7"],"totalCount":1}`; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

// preview is the answer to a call without approval.
type preview struct {
	Done     bool
	Approval string
	Preview  map[string]any
}

func (s *session) preview(name string, arguments map[string]any) preview {
	s.t.Helper()
	text, isError := s.call(name, arguments)
	var p preview
	require.NoError(s.t, json.Unmarshal([]byte(text), &p), text)
	if isError || p.Done || p.Approval == "" || p.Preview == nil {
		s.t.Fatalf("%s %v: %s, want a preview", name, arguments, text)
	}
	return p
}

func TestWrite_Approval_FitsOnePreviewOnce(t *testing.T) {
	t.Parallel()
	s := start(t, Config{AllowWrites: true}, nil)
	s.api.answers["GET /operations/op-1"] = `{"id": "op-1", "state": "in progress", "step": "A"}`
	s.api.answers["GET /operations/op-2"] = `{"id": "op-2", "state": "in progress", "step": "A"}`
	skip := func(id, approval string) map[string]any {
		a := map[string]any{"id": id, "step": "A"}
		if approval != "" {
			a["approval"] = approval
		}
		return a
	}
	refused := func(what, name string, arguments map[string]any, want string) {
		t.Helper()
		if text, isError := s.call(name, arguments); !isError || !strings.Contains(text, want) || len(s.changes()) > 0 {
			t.Errorf("%s: %s (error: %v), changes %v", what, text, isError, s.changes())
		}
	}
	p := s.preview("skip_step", skip("op-1", ""))
	if p.Preview["operation"].(map[string]any)["id"] != "op-1" || len(s.changes()) > 0 {
		t.Errorf("preview %v, changes %v", p.Preview, s.changes())
	}
	refused("an invented approval", "skip_step", skip("op-1", "YES"), "unknown, used or older")
	refused("the approval of other arguments", "skip_step", skip("op-2", p.Approval), "belongs to other arguments")
	refused("an approval after a wrong use", "skip_step", skip("op-1", p.Approval), "unknown, used or older")
	p = s.preview("skip_step", skip("op-1", ""))
	refused("the approval of another tool", "cancel_operation", map[string]any{"id": "op-1", "approval": p.Approval}, "belongs to other arguments")
	p = s.preview("skip_step", skip("op-1", ""))
	s.now = s.now.Add(approvalLasts)
	refused("an old approval", "skip_step", skip("op-1", p.Approval), "unknown, used or older")

	p = s.preview("skip_step", skip("op-1", ""))
	if text, isError := s.call("skip_step", skip("op-1", p.Approval)); isError || !strings.Contains(text, `"done":true`) {
		t.Errorf("approved: %s", text)
	}
	if got := s.changes(); !slices.Equal(got, []string{"POST /operations/op-1/skip"}) {
		t.Errorf("changes %v", got)
	}
	if text, isError := s.call("skip_step", skip("op-1", p.Approval)); !isError || len(s.changes()) != 1 {
		t.Errorf("second use: %s, changes %v", text, s.changes())
	}
}

func TestWrite_AnswerLost_EffectIsNotKnown(t *testing.T) {
	t.Parallel()
	s := start(t, Config{AllowWrites: true}, nil)
	s.api.answers["GET /operations/op-1"] = `{"id": "op-1", "state": "in progress"}`
	p := s.preview("cancel_operation", map[string]any{"id": "op-1"})
	s.api.mu.Lock()
	s.api.lost = true
	s.api.mu.Unlock()
	text, isError := s.call("cancel_operation", map[string]any{"id": "op-1", "approval": p.Approval})
	if !isError || !strings.Contains(text, "it is not known whether the change was made") || strings.Contains(text, "nothing was changed") {
		t.Errorf("%s (error: %v)", text, isError)
	}
}

func TestExplainChange_NotSent_ReportsNoChange(t *testing.T) {
	t.Parallel()
	dial := &operator.UnreachableError{Address: "keb:8081", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}
	if text := explainChange(dial).Error(); strings.Contains(text, "not known") || !strings.Contains(text, "nothing was changed") {
		t.Error(text)
	}
	if text := explainChange(&operator.StatusError{Status: http.StatusTooManyRequests}).Error(); strings.Contains(text, "not known") {
		t.Error(text)
	}
}

func TestWrite_EachTool_PreviewsAndActs(t *testing.T) {
	t.Parallel()
	s := start(t, Config{AllowWrites: true}, nil)
	maps.Copy(s.api.answers, map[string]string{
		"GET /operations/op-1": `{"id": "op-1", "state": "failed"}`, "GET /operations": `{"data": [{"id": "op-1"}], "totalCount": 1}`,
		"GET /holds":              `{"data": [{"id": "h-1", "reason": "EDP"}]}`,
		"GET /orchestrations/o-1": `{"orchestrationID": "o-1"}`, "GET /batches/b-1": `{"id": "b-1", "state": "running"}`,
	})
	post := map[string]string{ // answers to both the preview and the change
		"retry_operation": `{"steps": [{"stage": "s", "step": "A", "plan": "again"}]}`, "create_hold": `{"id": "h-2"}`,
		"order_batch": `{"id": "b-2", "count": 1, "sample": [{"operation": {"id": "op-1"}}]}`, "apply_limits": `{"version": 2, "changes": ["+ a"]}`,
		"change_batch": `{"id": "b-1", "state": "paused"}`, "change_orchestration": `{"orchestrationID": "o-1"}`,
	}
	for name, c := range map[string]struct {
		path      string
		arguments map[string]any
	}{
		"retry_operation":      {"POST /operations/op-1/retry", map[string]any{"id": "op-1"}},
		"skip_step":            {"POST /operations/op-1/skip", map[string]any{"id": "op-1", "step": "A"}},
		"cancel_operation":     {"POST /operations/op-1/cancel", map[string]any{"id": "op-1"}},
		"order_batch":          {"POST /batches", map[string]any{"action": "retry", "filter": map[string]any{"state": []string{"failed"}}, "reason": "EDP works again", "expected": 1}},
		"change_batch":         {"POST /batches/b-1/pause", map[string]any{"id": "b-1", "change": "pause"}},
		"change_orchestration": {"PUT /orchestrations/o-1/pause", map[string]any{"id": "o-1", "change": "pause"}},
		"create_hold":          {"POST /holds", map[string]any{"worker": "edp", "reason": "EDP is moved"}},
		"release_hold":         {"DELETE /holds/h-1", map[string]any{"id": "h-1"}},
		"apply_limits":         {"PUT /limits", map[string]any{"document": "limits: []\n"}},
	} {
		if answer, ok := post[name]; ok {
			s.api.answers[c.path] = answer
		}
		before := len(s.changes())
		p := s.preview(name, c.arguments)
		if got := s.changes(); len(got) != before {
			t.Errorf("the preview of %s changed something: %v", name, got)
		}
		c.arguments["approval"] = p.Approval
		if text, isError := s.call(name, c.arguments); isError {
			t.Errorf("%s: %s", name, text)
		}
		if got := s.changes(); len(got) != before+1 || got[before] != c.path {
			t.Errorf("%s: changes %v, want %s", name, got, c.path)
		}
	}
	if got := s.changes(); len(got) != len(changing) {
		t.Errorf("%d tools have changed something, want %d", len(got), len(changing))
	}
}

func TestWrite_MoreOperationsThanExpected_AreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, Config{AllowWrites: true}, nil)
	s.api.answers["POST /batches"] = `{"count": 12, "sample": []}`
	text, isError := s.call("order_batch", map[string]any{"action": "cancel", "filter": map[string]any{"plan": []string{"azure"}}, "reason": "x", "expected": 3})
	if !isError || !strings.Contains(text, "12 operations match, more than 3") || len(s.changes()) > 0 {
		t.Errorf("%s (error: %v), changes %v", text, isError, s.changes())
	}
}

// TestWrite_ClientAsksTheUser_NeedsNoSecondCall uses a client that can show the preview to its user.
func TestWrite_ClientAsksTheUser_NeedsNoSecondCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer mcp.ElicitResult
		acts   bool
	}{
		{"agrees", mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}, true},
		{"submits no", mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": false}}, false},
		{"declines", mcp.ElicitResult{Action: "decline"}, false},
		{"closes the question", mcp.ElicitResult{Action: "cancel"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked string
			s := start(t, Config{AllowWrites: true}, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked = r.Params.Message
					return &c.answer, nil
				},
			})
			s.api.answers["GET /operations/op-1"] = `{"id": "op-1", "state": "in progress"}`
			text, isError := s.call("cancel_operation", map[string]any{"id": "op-1"})
			if !strings.Contains(asked, `"id":"op-1"`) || isError == c.acts || (len(s.changes()) == 1) != c.acts {
				t.Errorf("the user was asked %q; answer %s (error: %v), changes %v", asked, text, isError, s.changes())
			}
			if strings.Contains(text, `"approval"`) {
				t.Errorf("the agent got an approval: %s", text)
			}
		})
	}
}
