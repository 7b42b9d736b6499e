package orchestration

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

const policyFile = `{
  "rules": [
    {"match": {"globalAccountID": "^vip-", "region": "^us-"}, "days": ["Sun"], "timeBegin": "010000+0000", "timeEnd": "020000+0000"},
    {"match": {"plan": "trial|free"}, "timeBegin": "100000+0000", "timeEnd": "180000+0000"},
    {"match": {"plan": "azure"}, "days": ["Mon", "Tue"]},
    {"match": {"globalAccountID": "."}, "days": ["Wed"]}
  ],
  "default": {"days": ["Sat"]}
}`

func TestPolicy_Window(t *testing.T) {
	t.Parallel()
	policy, err := ParsePolicy([]byte(policyFile))
	require.NoError(t, err)
	withTimes, err := ParsePolicy([]byte(`{"default": {"timeBegin": "030000+0000", "timeEnd": "040000+0000"}}`))
	require.NoError(t, err)
	const own = `"begin":"220000+0000","end":"230000+0000"`
	for name, c := range map[string]struct {
		policy                         *Policy
		account, plan, region, shooted string
		want                           string
	}{
		"all conditions of a rule":           {policy, "vip-1", "azure", "us-east-1", "c-1", `{"days":["Sun"],"begin":"010000+0000","end":"020000+0000"}`},
		"not all of them":                    {policy, "vip-1", "trial", "eu-central-1", "c-1", `{"days":["Sat"],"begin":"100000+0000","end":"180000+0000"}`},
		"days of a rule, times of the shoot": {policy, "ga", "azure", "eastus", "c-1", `{"days":["Mon","Tue"],` + own + `}`},
		"the first rule that matches":        {policy, "ga", "aws", "eu-central-1", "c-1", `{"days":["Wed"],` + own + `}`},
		"no rule, days of the default":       {policy, "", "aws", "eu-central-1", "c-1", `{"days":["Sat"],` + own + `}`},
		"no rule or default has times":       {policy, "ga", "azure", "eastus", "c-2", `null`},
		"a rule gives times":                 {policy, "ga", "free", "eastus", "c-2", `{"days":["Sat"],"begin":"100000+0000","end":"180000+0000"}`},
		"no policy":                          {nil, "ga", "azure", "eastus", "c-1", `{` + own + `}`},
		"no policy and no shoot window":      {nil, "ga", "azure", "eastus", "c-2", `null`},
		"the default comes before the shoot": {withTimes, "ga", "azure", "eastus", "c-1", `{"begin":"030000+0000","end":"040000+0000"}`},
		"an own cluster has a default":       {withTimes, "ga", "own_cluster", "", "", `{"begin":"030000+0000","end":"040000+0000"}`},
		"an own cluster without policy":      {nil, "ga", "own_cluster", "", "", `null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shoot, err := ShootWindow(event.MaintenanceWindow{Begin: "220000+0000", End: "230000+0000"})
			require.NoError(t, err)
			instance := event.InstanceSummary{
				GlobalAccountID: c.account, Plan: event.Plan{Name: c.plan}, Runtime: event.Runtime{Region: c.region, ShootName: c.shooted},
			}
			got, err := json.Marshal(c.policy.window(&instance, map[string]Window{"c-1": shoot}))
			if err != nil || string(got) != c.want {
				t.Errorf("window %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestParsePolicy_Invalid_NamesField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:             "body: is empty",
		`[]`:           "body: ",
		`{"rule": []}`: `unknown field "rule"`,
		`{"rules": [{"match": {}, "days": ["Mon"]}]}`:                                                 "rules[0].match: must have",
		`{"rules": [{"match": {"plan": "("}, "days": ["Mon"]}]}`:                                      "rules[0].match.plan: is not a regular expression",
		`{"rules": [{"match": {"plan": "a"}}]}`:                                                       "rules[0]: must have days",
		`{"rules": [{"match": {"plan": "a"}, "days": ["Monday"]}]}`:                                   `rules[0].days: "Monday" is not a day`,
		`{"rules": [{"match": {"plan": "a"}, "timeBegin": "220000+0000"}]}`:                           "rules[0]: must have both",
		`{"rules": [{"match": {"plan": "a"}, "timeBegin": "22:00", "timeEnd": "230000+0000"}]}`:       "rules[0].timeBegin: \"22:00\"",
		`{"default": {"timeBegin": "220000+0000", "timeEnd": "25"}}`:                                  "default.timeEnd: \"25\"",
		`{"rules": [{"match": {"plan": "a"}, "days": "Mon"}]}`:                                        "days: is a string, must be a list",
		`{"rules": [{"match": {"region": "a", "plan": "b", "globalaccount": "x"}, "days": ["Mon"]}]}`: `unknown field "globalaccount"`,
		`{"default": {}} {}`: "unexpected data after",
	} {
		if _, err := ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add(policyFile)
	f.Add(`{"default": {"timeBegin": "030000+0000", "timeEnd": "040000+0000"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy([]byte(text))
		if (p == nil) == (err == nil) {
			t.Errorf("policy %v, error %v", p, err)
		}
	})
}
