package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

type operation = worker.Operation

type avsDetails struct {
	Internal int    `json:"internal,omitempty"`
	External int    `json:"external,omitempty"`
	Note     string `json:"note,omitempty"`
}

func TestDetails_Worker_SelectsPart(t *testing.T) {
	t.Parallel()
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		var avs avsDetails
		if err := op.Details("avs", &avs); err != nil {
			return op, 0, err
		}
		other := avsDetails{Note: "untouched"}
		if err := op.Details("other", &other); err != nil {
			return op, 0, err
		}
		if avs.Internal != 7 || other.Note != "untouched" {
			t.Errorf("avs %+v, other %+v", avs, other)
		}
		return op, 0, nil
	}), workertest.Operation{Details: map[string]any{"avs": avsDetails{Internal: 7}}})
	if r.Outcome != event.OutcomeSucceeded || r.Details != nil {
		t.Errorf("outcome %q, error %+v, details %v", r.Outcome, r.Error, r.Details)
	}
}

func TestSaveDetails_Members_AreMerged(t *testing.T) {
	t.Parallel()
	save := step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		if err := op.SaveDetails(avsDetails{External: 2}); err != nil {
			return op, 0, err
		}
		if err := op.SaveDetails(map[string]any{"note": nil}); err != nil {
			return op, 0, err
		}
		var now avsDetails
		if err := op.Details("avs", &now); err != nil {
			return op, 0, err
		}
		if want := (avsDetails{Internal: 1, External: 2}); now != want {
			t.Errorf("own details in the step: %+v, want %+v", now, want)
		}
		return worker.Retry(op, time.Second, nil)
	})
	before := workertest.Operation{
		Worker:  "avs",
		Details: map[string]any{"avs": avsDetails{Internal: 1, Note: "old"}, "edp": map[string]any{"x": true}},
	}
	r := workertest.Run(t, save, before)
	if diff := cmp.Diff(map[string]any{"external": 2.0, "note": nil}, r.Details); diff != "" {
		t.Errorf("patch with a retry (-want +got):\n%s", diff)
	}
	after, err := json.Marshal(r.Then().Details)
	if want := `{"avs":{"external":2,"internal":1},"edp":{"x":true}}`; err != nil || string(after) != want {
		t.Errorf("details after the step: %s (%v), want %s", after, err, want)
	}
}

func TestSaveDetails_Invalid_FailsStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		save any
		want string
	}{
		"a list":                {[]int{1}, "a list, a JSON object is needed"},
		"a text":                {"x", "a text, a JSON object is needed"},
		"a number":              {1, "a number, a JSON object is needed"},
		"a boolean":             {true, "a boolean, a JSON object is needed"},
		"nothing":               {nil, "null, a JSON object is needed"},
		"a nil pointer":         {(*avsDetails)(nil), "null, a JSON object is needed"},
		"not encodable":         {map[string]any{"f": func() {}}, "unsupported type"},
		"too much":              {map[string]string{"x": strings.Repeat("y", 256<<10)}, "at most 262144 are allowed"},
		"a NUL":                 {map[string]string{"x": "a\x00b"}, "NUL character"},
		"a NUL after backslash": {map[string]string{"x": "\\\x00"}, "NUL character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
				if err := op.SaveDetails(map[string]int{"good": 1}); err != nil {
					t.Error(err)
				}
				if err := op.SaveDetails(c.save); err == nil {
					t.Error("SaveDetails returned no error")
				}
				return op, 0, nil
			}), workertest.Operation{})
			if r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, c.want) || r.Details != nil {
				t.Errorf("outcome %q, error %+v, details %v: want a failure with %q", r.Outcome, r.Error, r.Details, c.want)
			}
		})
	}
}

func TestSaveDetails_EscapedBackslashU0000_IsValid(t *testing.T) {
	t.Parallel()
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		return op, 0, op.SaveDetails(map[string]string{"x": `\u0000`})
	}), workertest.Operation{})
	if r.Outcome != event.OutcomeSucceeded {
		t.Errorf("outcome %q, error %+v", r.Outcome, r.Error)
	}
}

func TestSaveDetails_SeveralSaves_SumIsLimited(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("y", 150<<10)
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		for range 3 { // replacing a member does not add its size
			if err := op.SaveDetails(map[string]string{"a": half}); err != nil {
				t.Errorf("the same member again: %v", err)
			}
		}
		return op, 0, op.SaveDetails(map[string]string{"b": half})
	}), workertest.Operation{})
	if r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, "at most 262144") {
		t.Errorf("outcome %q, error %+v: want a failure that names the limit", r.Outcome, r.Error)
	}
}

func TestParameters_JSON_IsDecoded(t *testing.T) {
	t.Parallel()
	workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		var p struct {
			Region string `json:"region"`
		}
		if err := op.Parameters(&p); err != nil || p.Region != "eu-central-1" {
			t.Errorf("parameters %+v: %v", p, err)
		}
		var wrong struct {
			Region int `json:"region"`
		}
		if err := op.Parameters(&wrong); err == nil || !strings.Contains(err.Error(), "parameters:") {
			t.Errorf("parameters of the wrong type: error %v", err)
		}
		return op, 0, nil
	}), workertest.Operation{Parameters: map[string]string{"region": "eu-central-1"}})
}

func TestOperation_NotFromSDK_ErrorNamesWorkertest(t *testing.T) {
	t.Parallel()
	var op worker.Operation
	var into any
	_, recallErr := op.Recall(t.Context(), "x")
	_, overridesErr := op.Overrides(t.Context())
	for name, err := range map[string]error{
		"SaveDetails": op.SaveDetails(1), "Details": op.Details("x", &into), "Parameters": op.Parameters(&into),
		"ClaimCredentials": op.ClaimCredentials(t.Context(), "x", &into), "Recall": recallErr, "Overrides": overridesErr,
	} {
		if err == nil || !strings.Contains(err.Error(), "workertest.Run") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestDetails_TooLargeOnceStored_FailTheStep(t *testing.T) {
	t.Parallel()
	numbers := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1e308,", 10_000), ",") + "]")
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		return op, 0, op.SaveDetails(map[string]any{"numbers": numbers})
	}), workertest.Operation{})
	if r.Outcome != event.OutcomeFailed || r.Error == nil || !strings.Contains(r.Error.Message, "at most 524288 are allowed") || len(r.Details) > 0 {
		t.Errorf("outcome %q, error %+v, %d details; want a failure for their size", r.Outcome, r.Error, len(r.Details))
	}
}
