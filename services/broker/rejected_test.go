package broker_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/broker"
)

// A rejected request names the member and the allowed values, and stores nothing.
func TestRequest_Invalid_IsRejectedAndNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.EUAccounts = []string{"ga-eu"} })
	b.provisioned("there")
	const (
		largest = "parameters must be at most 65536 bytes, with defaults and with all digits of each number"
		label   = " must be 1 to 63 characters of A-Z, a-z, 0-9, '-', '_' and '.', and begin and end with a letter or a digit"
	)
	named := func(more map[string]any) map[string]any {
		p := map[string]any{"name": "n"}
		maps.Copy(p, more)
		return parameters(p)
	}
	const (
		onlyOrder = 1 << iota
		both
	)
	numbers := json.RawMessage(`{"name":"n","x":[` + strings.TrimSuffix(strings.Repeat("1e308,", 10_000), ",") + `]}`)
	for name, tc := range map[string]struct {
		requests int
		plan     string
		members  map[string]any
		want     string
	}{
		"machine type":    {onlyOrder, azure, named(map[string]any{"machineType": "huge"}), "parameters/machineType must be one of Standard_D4_v3"},
		"unknown plan":    {onlyOrder, "unknown", nil, "plan"},
		"context":         {onlyOrder, azure, map[string]any{"context": map[string]any{"subaccount_id": "s", "user_id": "u"}}, "context/globalaccount_id is required"},
		"kubeconfig":      {onlyOrder, own, named(map[string]any{"shootName": "s", "shootDomain": "d", "kubeconfig": "x"}), "parameters/kubeconfig must be base64-encoded"},
		"component":       {onlyOrder, azure, named(map[string]any{"components": []any{""}}), "parameters/components"},
		"components":      {onlyOrder, azure, named(map[string]any{"components": "all"}), "parameters/components"},
		"numbers":         {onlyOrder, azure, map[string]any{"parameters": numbers}, largest},
		"text":            {onlyOrder, azure, named(map[string]any{"x": strings.Repeat("x", 64<<10)}), largest},
		"digits":          {both, azure, named(map[string]any{"x": json.Number("1e-20000")}), "parameters/x must be a number that fits into 64 bits"},
		"large secret":    {both, azure, smContext(strings.Repeat("x", 8<<10)), "context/sm_operator_credentials must be at most 8192 bytes"},
		"large context":   {both, azure, contextOf(map[string]any{"x": strings.Repeat("x", 64<<10)}), "context must be at most 65536 bytes"},
		"global account":  {both, azure, contextOf(map[string]any{"globalaccount_id": "a b"}), "context/globalaccount_id" + label},
		"subaccount":      {both, azure, contextOf(map[string]any{"subaccount_id": strings.Repeat("x", 64)}), "context/subaccount_id" + label},
		"NUL in a value":  {both, azure, named(map[string]any{"administrators": []string{"x", "\x00"}}), "U+0000"}, // Postgres cannot store it in jsonb
		"NUL in a name":   {both, azure, named(map[string]any{"a\x00": 1}), "U+0000"},
		"NUL in the user": {onlyOrder, azure, contextOf(map[string]any{"user_id": "a\x00"}), ""},
	} {
		body := order(tc.plan)
		maps.Copy(body, tc.members)
		b.refused("order, "+name, b.put("new", body), http.StatusBadRequest, tc.want)
		if tc.requests == both {
			b.refused("update, "+name, b.patch("there", tc.members), http.StatusBadRequest, tc.want)
		}
	}
	for _, id := range []string{"a%2Fb%20c~d", strings.Repeat("x", 64), "ab:cd@ef", "-lead"} {
		b.refused("instance "+id, b.put(id, order(azure)), http.StatusBadRequest, "instance_id"+label)
	}
	european := func(account string) answer {
		body := with(order(aws), "context", contextOf(map[string]any{"globalaccount_id": account})["context"])
		return b.send(http.MethodPut, "/oauth/cf-eu11/v2/service_instances/i?accepts_incomplete=true", body)
	}
	b.refused("EU access", european("ga-1"), http.StatusUnprocessableEntity, "not allowed to order in a region with EU access")
	b.rows("instances and operations", 2, `SELECT (SELECT count(*) FROM broker.instances) + (SELECT count(*) FROM broker.operations)`)
	b.ended("i", b.accepted(european("ga-eu")), "succeeded")
	if n := len(b.orch.deliveries()); n != 2 {
		t.Errorf("%d requests were published", n)
	}
	// The text of the escape sequence is allowed.
	b.accepted(b.put("text", with(order(azure), "parameters", map[string]any{"name": "n", "administrators": []string{`\u0000@example.org`}, "components": []string{"serverless"}})))
}
