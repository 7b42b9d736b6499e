package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

func TestDetails_Patch_ChangesMembersOfItsWorker(t *testing.T) {
	for _, c := range []struct{ name, before, patch, want string }{
		{"nothing", "", "", ""},
		{"an empty patch", "", "{}", ""},
		{"the first value", "", `{"id":1}`, `{"alpha":{"id":1}}`},
		{"another member", `{"alpha":{"id":1}}`, `{"name":"x"}`, `{"alpha":{"id":1,"name":"x"}}`},
		{"a replaced member", `{"alpha":{"id":1}}`, `{"id":2}`, `{"alpha":{"id":2}}`},
		{"a removed member", `{"alpha":{"id":1,"name":"x"}}`, `{"id":null}`, `{"alpha":{"name":"x"}}`},
		{"the last member removed", `{"alpha":{"id":1}}`, `{"id": null}`, ``},
		{"beside others", `{"beta":{"id":7}}`, `{"id":1}`, `{"alpha":{"id":1},"beta":{"id":7}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRun(t, load(t, provision))
			r.must(engine.Start{Details: json.RawMessage(c.before)})
			r.result(engine.Result{Outcome: event.OutcomeSucceeded, Details: json.RawMessage(c.patch)})
			if got := string(r.s.Details); got != c.want {
				t.Errorf("details are %s, want %s", got, c.want)
			}
		})
	}
}

func TestDetails_InvalidPatch_FailsTheStep(t *testing.T) {
	for _, c := range []struct{ name, before, patch, want string }{
		{"no object", "", `[1]`, "must be a JSON object"},
		{"no JSON", "", `{"id":`, "must be a JSON object"},
		{"too large", "", `{"x":"` + strings.Repeat("x", event.MaxDetails) + `"}`, "too large"},
		{"broken before", `[`, `{"id":1}`, "read the saved details"},
		{"broken part before", `{"alpha":[]}`, `{"id":1}`, "read the saved details of alpha"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRun(t, load(t, provision))
			r.must(engine.Start{Details: json.RawMessage(c.before)})
			r.result(engine.Result{Outcome: event.OutcomeSucceeded, Details: json.RawMessage(c.patch)})
			r.wantStatus(event.Failed)
			if !strings.Contains(r.s.Error.Message, c.want) || r.s.Error.Reason != "err_keb_details" {
				t.Errorf("error is %+v", r.s.Error)
			}
		})
	}
}

func TestVectors_Details_AreMerged(t *testing.T) {
	t.Parallel()
	type in struct{ Saved, Patch json.RawMessage }
	testkit.Vectors(t, "details.json", func(in in) json.RawMessage {
		r := newRun(t, load(t, provision))
		if string(in.Saved) == "null" {
			in.Saved = json.RawMessage(`{}`)
		}
		r.must(engine.Start{Details: json.RawMessage(`{"alpha":` + string(in.Saved) + `}`)})
		r.result(engine.Result{Outcome: event.OutcomeSucceeded, Details: in.Patch})
		all := map[string]json.RawMessage{}
		if len(r.s.Details) > 0 {
			require.NoError(t, json.Unmarshal(r.s.Details, &all))
		}
		if all["alpha"] == nil {
			return json.RawMessage(`{}`) // a part without members is removed
		}
		return all["alpha"]
	})
}
