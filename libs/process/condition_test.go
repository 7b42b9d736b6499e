package process_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// conditional returns a step with a condition.
func conditional(t testing.TB, when string) (*process.Step, error) {
	t.Helper()
	source, err := json.Marshal(when)
	require.NoError(t, err)
	set, err := process.Load(fstest.MapFS{"provision.yaml": {Data: fmt.Appendf(nil,
		"operation: provision\nstages:\n  - name: s\n    steps:\n      - {name: A, worker: a, when: %s}\n", source)}})
	if err != nil {
		return nil, err
	}
	return &set[event.Provision].Stages[0].Steps[0], nil
}

func input() *process.Input {
	return &process.Input{
		Operation: &event.Operation{
			ID: "op-1", Type: event.Provision, InstanceID: "inst-1",
			Plan:        event.Plan{ID: "plan-1", Name: "azure"},
			Context:     event.Context{GlobalAccountID: "ga", SubaccountID: "sa", PlatformRegion: "cf-eu20", Platform: "cloudfoundry"},
			Runtime:     event.Runtime{Name: "demo", ShootName: "c-1", ShootDomain: "c-1.example.com", Provider: "azure", Region: "westeurope"},
			Parameters:  json.RawMessage(`{"machineType":"Standard_D4_v3","autoScalerMin":3,"ratio":0.5,"zones":["1","2"],"monitored":true}`),
			Credentials: []string{event.CredentialsServiceManager},
		},
		Details: json.RawMessage(`{"avs":{"internalId":7}}`),
	}
}

func TestRuns_Conditions(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		``:                              true,
		`plan.name == "azure"`:          true,
		`plan.id == "plan-1"`:           true,
		`plan.name in ["trial","free"]`: false,
		`operation.type == "provision" && operation.id == "op-1" && operation.instanceId == "inst-1"`: true,
		`context.globalAccountId == "ga" && context.subaccountId == "sa" && context.platform != ""`:   true,
		`context.platformRegion.startsWith("cf-eu")`:                                                  true,
		`has(context.userId)`:                                          false,
		`has(context.platformRegion)`:                                  true,
		`context.licenseType == ""`:                                    true,
		`runtime.provider == "azure" && runtime.region.matches("^w")`:  true,
		`runtime.name + runtime.shootName == "democ-1"`:                true,
		`"sm_operator_credentials" in credentials`:                     true,
		`"kubeconfig" in credentials`:                                  false,
		`size(credentials) == 1`:                                       true,
		`has(parameters.machineType)`:                                  true,
		`has(parameters.region)`:                                       false,
		`parameters.autoScalerMin >= 3`:                                true,
		`parameters.autoScalerMin == 3`:                                true,
		`parameters.ratio < 1`:                                         true,
		`parameters.monitored == true`:                                 true,
		`parameters.zones.exists(z, z == "2")`:                         true,
		`parameters.?region.orValue("westeurope") == "westeurope"`:     true,
		`has(details.avs) && details.avs.internalId == 7`:              true,
		`has(details.edp)`:                                             false,
		`has(parameters.absent) && parameters.absent.deep == "unseen"`: false,
	}
	for when, want := range tests {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s, err := conditional(t, when+" ")
			if when == "" {
				s, err = &process.Step{}, nil
			}
			require.NoError(t, err)
			got, err := s.Runs(input())
			if err != nil || got != want {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestRuns_EvaluationFails_ReturnsErrCondition(t *testing.T) {
	t.Parallel()
	broken := input()
	broken.Operation.Parameters = json.RawMessage(`{"a":`)
	list := input()
	list.Details = json.RawMessage(`[]`)
	huge := input()
	huge.Operation.Parameters = json.RawMessage(`{"zones":["` + strings.Repeat(`1","`, 50_000) + `1"]}`)
	tests := map[string]struct {
		when string
		in   *process.Input
		want string
	}{
		"a missing parameter":            {`parameters.region == "x"`, input(), "no such key: region"},
		"parameters that are not JSON":   {`has(parameters.a)`, broken, "parameters: unexpected EOF"},
		"details that are not an object": {`has(details.avs)`, list, "details: not a JSON object"},
		"a value of the wrong type":      {`parameters.machineType > 3`, input(), "no such overload"},
		"a loop that is too long":        {`parameters.zones.all(a, parameters.zones.exists(b, b != a))`, huge, "cost limit exceeded"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := conditional(t, tc.when)
			require.NoError(t, err)
			ran, err := s.Runs(tc.in)
			if ran || !errors.Is(err, process.ErrCondition) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, %v; want an ErrCondition with %q", ran, err, tc.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "condition of step A: ") {
				t.Errorf("%v does not name the step", err)
			}
		})
	}
}

func TestLoad_ExpensiveCondition_IsRejected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ when, want string }{
		"too long":      {strings.Repeat(`plan.name == "" || `, 200) + "true", "too long for a condition; at most 2000"},
		"nested loops":  {`parameters.a.all(a, parameters.a.all(b, parameters.a.all(c, a == b)))`, "comprehension exceeds nesting limit"},
		"deeply nested": {strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200), "recursion"},
		"bad regexp":    {`plan.name.matches("(")`, "invalid matches argument"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := conditional(t, tc.when)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestRuns_UnusedParameters_AreNotDecoded(t *testing.T) {
	t.Parallel()
	in := input()
	in.Operation.Parameters, in.Details = json.RawMessage("not JSON"), json.RawMessage("not JSON")
	for _, when := range []string{`plan.name == "azure"`, `plan.name == "azure" || has(parameters.a)`, `runtime.name != "" && context.platform != ""`} {
		s, err := conditional(t, when)
		require.NoError(t, err)
		if ok, err := s.Runs(in); !ok || err != nil {
			t.Errorf("%s: %v, %v; want true", when, ok, err)
		}
	}
}

func TestRuns_Parameters_AreDecodedOnce(t *testing.T) {
	t.Parallel()
	s, err := conditional(t, `parameters.autoScalerMin == 3`)
	require.NoError(t, err)
	in := input()
	for range 2 {
		if ok, err := s.Runs(in); !ok || err != nil {
			t.Fatalf("%v, %v; want true", ok, err)
		}
		in.Operation.Parameters = json.RawMessage("changed")
	}
}

func TestRuns_AbsentParameters_AreEmpty(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "null", "{}", " "} {
		s, err := conditional(t, `!has(parameters.a) && !has(details.a) && size(credentials) == 0`)
		require.NoError(t, err)
		in := &process.Input{Operation: &event.Operation{Parameters: json.RawMessage(raw)}, Details: json.RawMessage(raw)}
		if ok, err := s.Runs(in); !ok || err != nil {
			t.Errorf("%q: %v, %v; want true", raw, ok, err)
		}
	}
}

func BenchmarkRuns(b *testing.B) {
	for name, when := range map[string]string{
		"plan":       `plan.name != "own_cluster"`,
		"plans":      `!(plan.name in ["trial", "free"])`,
		"both":       `plan.name != "preview" && "sm_operator_credentials" in credentials`,
		"parameters": `has(parameters.machineType)`,
	} {
		b.Run(name, func(b *testing.B) {
			s, err := conditional(b, when)
			require.NoError(b, err)
			in := input()
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := s.Runs(in); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
