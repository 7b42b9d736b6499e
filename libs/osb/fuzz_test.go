package osb_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
)

func FuzzParseVersion(f *testing.F) {
	for _, seed := range []string{"", "2.17", "2", "2.x", "+2.1", "02.1", "2.1.1", "99999999999999999999.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		v, err := osb.ParseVersion(header)
		if err != nil {
			if err.Status != http.StatusPreconditionFailed || err.Description == "" {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		if again, err := osb.ParseVersion(v.String()); err != nil || again != v || v.Major != 2 {
			t.Fatalf("%q became %v and then %v, %v", header, v, again, err)
		}
	})
}

func FuzzParseOriginatingIdentity(f *testing.F) {
	for _, seed := range []string{"cloudfoundry eyJ1c2VyX2lkIjoidSJ9", "k e30=", "k e30", "k", "", "k bnVsbA==", "a b c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		id, err := osb.ParseOriginatingIdentity(header)
		if err != nil {
			if err.Status != http.StatusBadRequest || err.Description == "" {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		if id.Platform == "" || !json.Valid(id.Value) {
			t.Fatalf("%q became %+v", header, id)
		}
		again, err := osb.ParseOriginatingIdentity(osb.FormatOriginatingIdentity(*id))
		if err != nil || again.Platform != id.Platform || string(again.Value) != string(id.Value) {
			t.Fatalf("%q became %+v and then %+v, %v", header, id, again, err)
		}
	})
}

func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		validBody, "", "{", "[]", "null", `"x"`, `{"service_id":1}`, `{"context":null}`, `{"parameters":"\ud800"}`,
		`{"service_id":"s1","plan_id":"pa","maintenance_info":{"version":"1"}}`, "{\"a\":\"\x80\"}", `{"a":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := &stub{
			provision: func(_ context.Context, req *osb.ProvisionRequest) (osb.ProvisionResult, error) {
				for _, raw := range []json.RawMessage{req.Context, req.Parameters} {
					if raw != nil && (!json.Valid(raw) || raw[0] != '{') {
						t.Fatalf("%q let %q through as an object", body, raw)
					}
				}
				if req.Service == nil || req.Plan == nil {
					t.Fatalf("%q let unknown ids through", body)
				}
				return osb.Accepted{Operation: "op"}, nil
			},
			bind: func(*osb.BindRequest) (osb.BindResult, error) { return osb.Accepted{}, nil },
		}
		h := osb.NewHandler(b, auth)
		for _, target := range []string{instanceTarget, instanceTarget + "/service_bindings/b"} {
			w := call(t.Context(), h, http.MethodPut, target, string(body))
			if w.Code != http.StatusAccepted && w.Code != http.StatusBadRequest && w.Code != http.StatusUnprocessableEntity {
				t.Fatalf("%q: status %d %s", body, w.Code, w.Body)
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%q: the answer %q is no JSON", body, w.Body)
			}
		}
	})
}
