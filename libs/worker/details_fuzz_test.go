package worker

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Saved details are merged into earlier ones, and no input crashes the worker.
func FuzzMergeDetails(f *testing.F) {
	for _, seed := range [][2]string{
		{``, `{"a":1}`}, {`{"a":{"b":1}}`, `{"a":null}`}, {`null`, `{"a":1}`}, {`[1]`, `{"a":1}`}, {`{}`, `null`}, {`{"a":1`, `{}`}, {`{"a":1,"a":2}`, `{"b":"\u0000"}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, part, patch []byte) {
		var changes map[string]json.RawMessage
		_ = json.Unmarshal(patch, &changes)
		merged, err := MergeDetails(part, changes)
		if err != nil {
			if merged != nil {
				t.Fatalf("both a value and an error: %s, %v", merged, err)
			}
			return
		}
		var is map[string]json.RawMessage
		if len(merged) > 0 {
			require.NoErrorf(t, json.Unmarshal(merged, &is), "%s is not a JSON object", merged)
		}
		for name, value := range changes {
			if _, there := is[name]; there == (string(value) == "null") {
				t.Fatalf("%s is %s after the patch %s", name, is[name], patch)
			}
		}
	})
}
