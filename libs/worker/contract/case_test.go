package contract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/worker/contract"
)

const someCases = `
cases:
  - name: says hello
    step: Hello_World
    operation: update
    plan: trial
    parameters: {region: westeurope, nested: {list: [1, two]}}
    details: {hello-world: {helloWorlds: hi}}
    credentials: {kubeconfig: {kubeconfig: a-secret-of-the-team}}
    remembered: {token: abc}
    takes: 12s
    expect: {outcome: retry, retryAfter: 1s, component: hello-world, reason: err_http_status_code, details: {helloWorlds: hi}}
`

func TestCasesAreRead(t *testing.T) {
	t.Parallel()
	cases, err := contract.ReadCases(strings.NewReader(someCases))
	require.NoError(t, err)
	c := cases[0]
	if c.Name != "says hello" || time.Duration(c.Takes) != 12*time.Second || time.Duration(c.Expect.RetryAfter) != time.Second || c.Remembered["token"] != "abc" {
		t.Errorf("%+v", c)
	}
}

func TestBadCasesAreRefusedWithTheirField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "empty",
		"cases: []":                             "there is none",
		"case: []":                              "field case not found",
		"cases: [{step: A}]":                    "name is missing",
		"cases: [{name: a, step: 'A.B'}]":       `step "A.B"`,
		"cases: [{name: a, step: A, plans: x}]": "field plans not found",
		"cases: [{name: a, step: A, operation: order}]":                          `operation "order"`,
		"cases: [{name: a, step: A, takes: long}]":                               `"long" is no time`,
		"cases: [{name: a, step: A, expect: {outcome: fine}}]":                   `expect.outcome "fine"`,
		"cases: [{name: a, step: A, context: {globalAccount: x}}]":               `context: json: unknown field "globalAccount"`,
		"cases: [{name: a, step: A, expect: {outcome: failed, retryAfter: 1s}}]": "expect.retryAfter",
		"cases: [{name: a, step: A, expect: {outcome: failed, event: k}}]":       "expect.event",
		"cases: [{name: a, step: A, event: {key: 'a b'}}]":                       "event.key",
		"cases: [{name: a, step: A, upgrade: {orchestrationId: 'a.b'}}]":         "upgrade.orchestrationId",
		"cases: [{name: a, step: A, parameters: {x: .nan}}]":                     "parameters",
		"cases: [{name: a, step: A, details: [1]}]":                              "cannot unmarshal",
		strings.Repeat("#", 2<<20):                                               "more than",
		"cases: [" + strings.Repeat("{name: a, step: A},", 201) + "]":            "at most 200",
	} {
		if _, err := contract.ReadCases(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func FuzzReadCases(f *testing.F) {
	f.Add(someCases)
	f.Add("cases: [{name: a, step: A, parameters: {x: .inf}}]")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = contract.ReadCases(strings.NewReader(text)) // it must not panic
	})
}

func TestBadConfigurationIsRefusedWithItsFields(t *testing.T) {
	t.Parallel()
	_, err := contract.Run(t.Context(), contract.Config{
		Worker: "Hello World", Steps: []string{"A.B"}, Checks: []string{"everything"}, Concurrency: -1, Commands: 1 << 20, Port: 1 << 20, Patience: -1,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"worker name", `step "A.B"`, `check "everything"`, "concurrency -1", "commands 1048576", "port 1048576", "patience", "not started"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %s", err, want)
		}
	}
}
