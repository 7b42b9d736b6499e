package engine

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// A patch changes only the details of its worker, or it is rejected and changes nothing.
func FuzzMergeDetails(f *testing.F) {
	for _, seed := range [][2]string{
		{``, `{"a":1}`},
		{`{"avs":{"a":1},"edp":{"b":2}}`, `{"a":null}`},
		{`{"avs":[]}`, `{"a":1}`},
		{`[]`, `{"a":1}`},
		{`{"edp":1}`, `{}`},
		{`{"edp":1}`, `null`},
		{`{"edp":1}`, `[1]`},
		{`{"avs":{"a":{"b":1}}}`, `{"a":{"c":null}, "d":"\u0000"}`},
		{`{"avs":null}`, `{"a":1,"a":2}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, details, patch []byte) {
		before := bytes.Clone(details)
		merged, _, err := mergeDetails(details, "avs", patch)
		if !bytes.Equal(before, details) {
			t.Fatalf("the details were modified: %s", details)
		}
		if err != nil {
			if merged != nil {
				t.Fatalf("both a value and an error: %s, %v", merged, err)
			}
			return
		}
		var was, is, changes map[string]json.RawMessage
		if json.Unmarshal(patch, &changes) != nil || len(changes) == 0 {
			if !bytes.Equal(merged, details) {
				t.Fatalf("an empty patch changed %s to %s", details, merged)
			}
			return
		}
		if event.StoredSize(merged) > event.MaxDetails {
			t.Fatalf("details have %d bytes, which exceeds the limit", len(merged))
		}
		_ = json.Unmarshal(details, &was)
		if len(merged) > 0 {
			require.NoErrorf(t, json.Unmarshal(merged, &is), "%s is no JSON object", merged)
		}
		for name, value := range was {
			if name != "avs" && !sameJSON(value, is[name]) {
				t.Fatalf("details of another worker changed from %s to %s", value, is[name])
			}
		}
		var own map[string]json.RawMessage
		_ = json.Unmarshal(is["avs"], &own)
		for name, value := range changes {
			got, there := own[name]
			if null := string(bytes.TrimSpace(value)) == "null"; null == there || there && !sameJSON(got, value) {
				t.Fatalf("%s is %s after the patch %s", name, got, patch)
			}
		}
		again, _, err := mergeDetails(merged, "avs", patch)
		if err != nil || !bytes.Equal(again, merged) {
			t.Fatalf("applying the patch twice gives %s, want %s; error %v", again, merged, err)
		}
	})
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return false
	}
	var left, right bytes.Buffer
	json.HTMLEscape(&left, x.Bytes())
	json.HTMLEscape(&right, y.Bytes())
	return bytes.Equal(left.Bytes(), right.Bytes())
}
