package osb_test

import (
	"encoding/json"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
)

func TestCanonical_EquivalentValues_AreEqual(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		a, b string
		same bool
	}{
		"key order and white space": {`{"a":1,"b":[1,2]}`, "{ \"b\": [1,\n2], \"a\": 1 }", true},
		"nested key order":          {`{"a":{"x":1,"y":2}}`, `{"a":{"y":2,"x":1}}`, true},
		"absent and empty":          {``, `{}`, true},
		"null and empty":            {`null`, `{}`, true},
		"escapes":                   {`{"a":"\u0061<"}`, `{"a":"a\u003c"}`, true},
		"number forms":              {`[1,10,0.5,-0.0,100,12e-1]`, `[1.0,1e1,5E-1,0,1e2,1.2]`, true},
		"big integers":              {`[12345678901234567890]`, `[12345678901234567891]`, false},
		"huge exponents":            {`[1e999999999]`, `[1e999999998]`, false},
		"array order":               {`[1,2]`, `[2,1]`, false},
		"value":                     {`{"a":1}`, `{"a":"1"}`, false},
		"null member":               {`{"a":null}`, `{}`, false},
		"sign":                      {`[-1]`, `[1]`, false},
		"no json":                   {`{"a"`, `{"a"`, false},
		"two values":                {`{} {}`, `{}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := osb.SameJSON(json.RawMessage(tt.a), json.RawMessage(tt.b)); got != tt.same {
				t.Errorf("SameJSON(%s, %s) = %t", tt.a, tt.b, got)
			}
		})
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b":1.50,"a":[1e3,-0]}`, `"x"`, `1E-400`, `{"a":{"a":"\ud800"}}`, `null`, `[0.000]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := osb.Canonical(raw)
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("%q became %q, which is no JSON", raw, once)
		}
		twice, err := osb.Canonical(once)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%q became %q and then %q, %v", raw, once, twice, err)
		}
		var a, b any
		if json.Unmarshal(raw, &a) == nil && (json.Unmarshal(once, &b) != nil || !json.Valid(once)) {
			t.Fatalf("%q lost its meaning in %q", raw, once)
		}
	})
}
