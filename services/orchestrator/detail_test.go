package orchestrator_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"maps"
	"net/http"
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

// copyOf is an operation as a client of the stream has it.
type copyOf struct {
	members map[string]json.RawMessage
	stages  []operator.Stage
	lines   []operator.HistoryLine
	sent    int
}

// take applies an event of a stream.
func (c *copyOf) take(t *testing.T, e told) {
	t.Helper()
	c.sent += len(e.data)
	switch e.event {
	case "detail":
		require.NoError(t, json.Unmarshal([]byte(e.data), &c.members))
		require.NoError(t, json.Unmarshal(c.members["stages"], &c.stages))
	case "change":
		var change operator.OperationChange
		require.NoError(t, json.Unmarshal([]byte(e.data), &change))
		maps.Copy(c.members, change.Set)
		for _, name := range change.Unset {
			delete(c.members, name)
		}
		for _, s := range change.Stages {
			c.stages[s.Stage].State, c.stages[s.Stage].Attempt = s.State, s.Attempt
		}
		for _, s := range change.Steps {
			c.stages[s.Stage].Steps[s.Step] = s.To
		}
	case "history":
		var h operator.HistoryLines
		require.NoError(t, json.Unmarshal([]byte(e.data), &h))
		for _, line := range h.Lines {
			c.lines = slices.DeleteFunc(c.lines, func(l operator.HistoryLine) bool { return first(l) == first(line) })
			c.lines = append(c.lines, line)
		}
	default:
		t.Errorf("unexpected event %q", e.event)
	}
}

func first(l operator.HistoryLine) int64 {
	if l.First != nil {
		return l.First.Cursor
	}
	return l.Cursor
}

// A client that applies the changes has what the API answers, after a retry loop, a retry by an operator and a cancel.
func TestDetailStream_Changes_MakeTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	s.script.set("First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return op, 0, op.SaveDetails(map[string]any{"id": "x", "apiToken": "canary-token"})
	})
	s.script.set("Second", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Retry(op, 20*time.Millisecond, &worker.Error{Component: "ext", Reason: "broken", Message: "ext is broken"})
	})
	op := operation(event.Provision, "i-1", "azure")
	op.Parameters = json.RawMessage(`{"name":"demo","password":"canary-parameter"}`)
	op.Purpose = event.PurposeUnsuspension
	s.request(op)
	testkit.Eventually(t, patience, "the operation is known", func() bool { return s.state(op.ID) == event.InProgress })
	events, _ := s.listen("?detail=true&operation="+op.ID, "")
	got := &copyOf{}
	tries := 0
	s.until(events, "some tries", func(e told) bool {
		if e.event != "" {
			got.take(t, e)
		}
		for _, l := range got.lines {
			if l.Step == "Second" {
				tries = l.Tries
			}
		}
		return tries > 5
	})
	if code, text := s.post("/operations/"+op.ID+"/cancel", `{"by":"me"}`); code != http.StatusNoContent {
		t.Fatalf("cancel: %d %s", code, text)
	}
	s.until(events, "the end", func(e told) bool {
		if e.event != "" {
			got.take(t, e)
		}
		// The history may be newer than the state, which the next event then has.
		isLast := len(got.lines) > 0 && got.lines[len(got.lines)-1].Outcome == "operation cancelled"
		return isLast && string(got.members["state"]) == `"cancelled"`
	})
	var want operator.OperationDetail
	s.get("/operations/"+op.ID, &want)
	if diff := cmp.Diff(want.Stages, got.stages); diff != "" {
		t.Errorf("stages (-answer +stream):\n%s", diff)
	}
	if diff := cmp.Diff(want.History, got.lines); diff != "" {
		t.Errorf("history (-answer +stream):\n%s", diff)
	}
	want.Stages, want.History = nil, []operator.HistoryLine{}
	delete(got.members, "stages")
	text, err := json.Marshal(got.members)
	require.NoError(t, err)
	var streamed operator.OperationDetail
	require.NoError(t, json.Unmarshal(text, &streamed))
	if diff := cmp.Diff(want, streamed); diff != "" {
		t.Errorf("operation (-answer +stream):\n%s", diff)
	}

	cause := want.Cause
	if cause == nil || cause.Step != "Second" || cause.Error.Message != "ext is broken" || cause.Attempts < 5 {
		t.Errorf("cause is %+v", cause)
	}
	if len(want.Runs) != 1 || want.Runs[0].State != event.Cancelled || want.Runs[0].EndedAt == nil || want.Purpose != event.PurposeUnsuspension || !want.ProcessCurrent {
		t.Errorf("runs %+v, purpose %q, current %t", want.Runs, want.Purpose, want.ProcessCurrent)
	}
	var states []string
	for _, stage := range got.stages {
		for _, step := range stage.Steps {
			states = append(states, step.Name+" "+step.State)
		}
	}
	if diff := cmp.Diff([]string{"Starting succeeded", "First succeeded", "Second cancelled", "Poll waiting", "Optional waiting", "Last waiting"}, states); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	for _, shown := range []string{string(want.Details), string(want.Parameters)} {
		if strings.Contains(shown, "canary") || !strings.Contains(shown, "[redacted]") {
			t.Errorf("secrets are not masked: %s", shown)
		}
	}
}

// After the header of an answer without a body, a client may send the next request on the same connection.
func TestStream_HeadRequest_IsRejected(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: patience}
	defer client.CloseIdleConnections()
	for range 2 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, s.api.URL+"/stream", nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != http.MethodGet {
			t.Errorf("HEAD /stream: %s, header %v", response.Status, response.Header)
		}
	}
}

func TestCompression_LongAnswers_AreCompressed(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	op := operation(event.Provision, "i-1", "trial")
	s.request(op)
	s.await(op, event.Succeeded)
	for path, want := range map[string]string{"/operations/" + op.ID: "gzip", "/me": "", "/operations?state=x": "", "/stream?detail=true&operation=" + op.ID: "gzip", "/stream": ""} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api.URL+path, nil)
		require.NoError(t, err)
		request.Header.Set("Accept-Encoding", "gzip") // the client does not decompress then
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		if got := response.Header.Get("Content-Encoding"); got != want || response.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: Content-Encoding %q, want %q; Vary %q", path, got, want, response.Header.Get("Vary"))
		}
		if want == "gzip" {
			text, err := gzip.NewReader(response.Body)
			require.NoErrorf(t, err, "%s", path)
			start := make([]byte, 1)
			if _, err := text.Read(start); err != nil || start[0] != '{' && start[0] != ':' {
				t.Errorf("%s: begins with %q, %v", path, start, err)
			}
		}
		require.NoError(t, response.Body.Close())
	}
}
