package operatorapi

import (
	"strings"
	"testing"
)

func TestParseRetry(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		operations string
		immediate  bool
		err        string
	}{
		"":                                 {},
		"immediate=true":                   {immediate: true},
		"immediate=false&operation-id=a":   {operations: "a"},
		"operation-id=a&operation-id=b%20": {operations: "a,b "},
		"immediate=":                       {err: `immediate: ""`},
		"immediate=true&immediate=false":   {err: "must be true or false, once"},
		"operations=a":                     {err: `unknown field "operations"`},
		"%zz":                              {err: "body: is not a form"},
		strings.Repeat("operation-id=a&", maxRetried+1): {err: "got 5001 values"},
	} {
		operations, immediate, err := parseRetry([]byte(body))
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%.50s: error %v, want %q", body, err, want.err)
			}
			continue
		}
		if err != nil || strings.Join(operations, ",") != want.operations || immediate != want.immediate {
			t.Errorf("%s: %q, %t, %v", body, operations, immediate, err)
		}
	}
}

func FuzzParseRetry(f *testing.F) {
	f.Add([]byte("operation-id=a&operation-id=b&immediate=true"))
	f.Add([]byte("immediate"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if operations, _, err := parseRetry(body); err == nil && len(operations) > maxRetried {
			t.Errorf("%d operations are accepted", len(operations))
		}
	})
}
