package broker_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A rejected request names the member and the allowed values, and stores nothing.
func TestOrder_TooLargeOrInvalid_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("there")
	numbers := json.RawMessage(`{"name":"n","x":[` + strings.TrimSuffix(strings.Repeat("1e308,", 10_000), ",") + `]}`)
	const (
		largest = "parameters must be at most 65536 bytes, with defaults and with all digits of each number"
		label   = " must be 1 to 63 characters of A-Z, a-z, 0-9, '-', '_' and '.', and begin and end with a letter or a digit"
	)
	credentials := func(size int) map[string]any {
		return contextOf(map[string]any{"sm_operator_credentials": map[string]any{
			"clientid": "id", "clientsecret": strings.Repeat("x", size), "sm_url": "https://sm.example.org", "url": "https://uaa.example.org",
		}})
	}
	for name, tc := range map[string]struct {
		id      string
		members map[string]any
		want    string
		// only limits the case to one method; empty means both.
		only string
	}{
		"numbers":                     {members: map[string]any{"parameters": numbers}, want: largest, only: http.MethodPut},
		"number of many digits":       {members: parameters(map[string]any{"name": "n", "x": json.Number("1e-20000")}), want: "parameters/x must be a number that fits into 64 bits"},
		"text":                        {members: parameters(map[string]any{"name": "n", "x": strings.Repeat("x", 64<<10)}), want: largest, only: http.MethodPut},
		"credentials":                 {members: credentials(8 << 10), want: "context/sm_operator_credentials must be at most 8192 bytes"},
		"context":                     {members: contextOf(map[string]any{"x": strings.Repeat("x", 64<<10)}), want: "context must be at most 65536 bytes"},
		"global account":              {members: contextOf(map[string]any{"globalaccount_id": "a b"}), want: "context/globalaccount_id" + label},
		"subaccount":                  {members: contextOf(map[string]any{"subaccount_id": strings.Repeat("x", 64)}), want: "context/subaccount_id" + label},
		"instance with a slash":       {id: "a%2Fb%20c~d", want: "instance_id" + label, only: http.MethodPut},
		"instance with 64 letters":    {id: strings.Repeat("x", 64), want: "instance_id" + label, only: http.MethodPut},
		"instance with a colon":       {id: "ab:cd@ef", want: "instance_id" + label, only: http.MethodPut},
		"instance that begins with -": {id: "-lead", want: "instance_id" + label, only: http.MethodPut},
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch} {
			if tc.only != "" && tc.only != method {
				continue
			}
			id, body := tc.id, change(tc.members)
			switch {
			case method == http.MethodPatch:
				id = "there"
			case id == "":
				id = "new"
			}
			if method == http.MethodPut {
				body = order(azure)
				maps.Copy(body, tc.members)
			}
			a := b.send(method, "/v2/service_instances/"+id+"?accepts_incomplete=true", body)
			if a.status != http.StatusBadRequest || !strings.Contains(a.text("description"), tc.want) {
				t.Errorf("%s of %s: status %d %.300s, want 400 and %q", method, name, a.status, a.raw, tc.want)
			}
		}
	}
	if n := b.count(`SELECT count(*) FROM broker.operations`); n != 1 {
		t.Errorf("%d operations are there, want the one of the instance that is", n)
	}
}

func TestBody_GarbageAfterObject_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	for _, tail := range []string{"x", "}", "{}", "]", "null", "\x00"} {
		for what, request := range map[string]struct {
			method, path string
			body         any
		}{
			"order":  {http.MethodPut, "/v2/service_instances/j?accepts_incomplete=true", order(azure)},
			"update": {http.MethodPatch, "/v2/service_instances/i?accepts_incomplete=true", change(parameters(map[string]any{"autoScalerMax": 30}))},
			"bind":   {http.MethodPut, "/v2/service_instances/i/service_bindings/b", map[string]any{"service_id": serviceID, "plan_id": azure}},
		} {
			raw, err := json.Marshal(request.body)
			require.NoError(t, err)
			if a := b.send(request.method, request.path, append(raw, tail...)); a.status != http.StatusBadRequest {
				t.Errorf("%s with %q behind it: status %d %s, want 400", what, tail, a.status, a.raw)
			}
		}
	}
	if n := b.count(`SELECT count(*) FROM broker.operations`); n != 1 {
		t.Errorf("%d operations are there, want the one of the instance that is", n)
	}
}
