package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

const document = `
limits:
  - name: tenant        # first, so that one account does not fill the queue of ias
    each: globalAccount
    commands: 5
  - name: ias
    scope: {worker: ias, type: [provision, update]}
    commands: 10
    rate: 300/m
  - name: fleet
    scope:
      type: [upgradeKyma]
      plan: azure
    each: region
    operations: 100
weights: {ga-1: 3, ga-2: 0.5}
`

func TestParse_Document_HasLimitsInItsOrder(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(document))
	require.NoError(t, err)
	want := &Set{
		Limits: []Limit{
			{Name: "tenant", Each: GlobalAccount, Commands: 5},
			{Name: "ias", Scope: Scope{Worker: {"ias"}, Type: {"provision", "update"}}, Commands: 10, Rate: Rate{300, time.Minute}},
			{Name: "fleet", Scope: Scope{Type: {"upgradeKyma"}, Plan: {"azure"}}, Each: Region, Operations: 100},
		},
		Weights: map[string]float64{"ga-1": 3, "ga-2": 0.5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("set differs (-want +got):\n%s", diff)
	}
	for _, empty := range []string{"", "limits: []\n", "# nothing\n", "weights: {}"} {
		if got, err := Parse([]byte(empty)); err != nil || len(got.Limits)+len(got.Weights) > 0 {
			t.Errorf("%q: %+v, %v, want no limits", empty, got, err)
		}
	}
}

func TestParse_Problem_NamesLineAndField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"limits: {}":                                                  "line 1: limits: must be a list of at most 200 limits",
		"- a":                                                         "line 1: must be a mapping",
		"a: b: c":                                                     "not YAML: mapping values are not allowed in this context",
		"limits: []\n---\nlimits: []":                                 "must be exactly one YAML document",
		"limit: []":                                                   "line 1: limit: unknown; allowed are limits, weights",
		"limits: []\nlimits: []":                                      `line 2: the key "limits" is duplicated`,
		"limits: [1]":                                                 "line 1: limits[0]: must be a mapping",
		"limits: [{commands: 1}]":                                     "line 1: limits[0]: must have a name",
		"limits: [{name: A, commands: 1}]":                            `line 1: limits[0].name: "A": must have 1 to 63 lower-case letters, digits and hyphens`,
		"limits: [{name: a}]":                                         "line 1: limits[0]: must have at least one of commands, rate and operations",
		"limits: [{name: a, commands: 0}]":                            "line 1: limits[0].commands: must be a whole number from 1 to 1000000; a hold stops everything in a scope",
		"limits: [{name: a, operations: 1.5}]":                        "line 1: limits[0].operations: must be a whole number from 1 to 1000000; a hold stops everything in a scope",
		"limits: [{name: a, rate: 5}]":                                "line 1: limits[0].rate: must be 1 to 10000 commands per second or minute, for example 5/s or 300/m",
		"limits: [{name: a, rate: 0/s}]":                              "line 1: limits[0].rate: must be 1 to 10000 commands per second or minute, for example 5/s or 300/m",
		"limits: [{name: a, rate: 5/h}]":                              "line 1: limits[0].rate: must be 1 to 10000 commands per second or minute, for example 5/s or 300/m",
		"limits: [{name: a, rate: 1/s, comands: 1}]":                  "line 1: limits[0].comands: unknown; allowed are name, scope, each, commands, rate, operations",
		"limits: [{name: a, commands: 1, each: x}]":                   `line 1: limits[0].each: "x": allowed are globalAccount, plan, region, type, step, worker, system`,
		"limits:\n- name: a\n  commands: 1\n  scope: {user: x}":       "line 4: limits[0].scope.user: unknown; allowed are globalAccount, plan, region, type, step, worker, system",
		"limits:\n- name: a\n  commands: 1\n  scope: {plan: []}":      "line 4: limits[0].scope.plan: must have 1 to 1000 values",
		"limits:\n- name: a\n  commands: 1\n  scope: {plan: ''}":      "line 4: limits[0].scope.plan: must be a text of 1 to 200 printable bytes",
		"limits:\n- name: a\n  commands: 1\n  scope: {plan: [b, b]}":  `line 4: limits[0].scope.plan[1]: "b" is duplicated`,
		"limits:\n- name: a\n  commands: 1\n  scope: {type: delete}":  `line 4: limits[0].scope.type: "delete": allowed are [provision deprovision update upgradeKyma upgradeCluster]`,
		"limits:\n- {name: a, commands: 1}\n- {name: a, commands: 1}": `line 3: limits[1]: the name "a" is duplicated`,
		"limits:\n- {name: a, operations: 1, scope: {worker: ias}}":   "line 2: limits[0].operations: not allowed together with the member worker, which only commands have",
		"limits:\n- {name: a, operations: 1, each: step}":             "line 2: limits[0].operations: not allowed together with the member step, which only commands have",
		"weights: {ga: 0}":                                            "line 1: weights.ga: must be a number from 0.001 to 1000",
		"weights: {ga: NaN}":                                          "line 1: weights.ga: must be a number from 0.001 to 1000",
		"weights: [ga]":                                               "line 1: weights: must be a mapping",
		"limits: [{name: a, rate: x, commands: many}]":                "line 1: limits[0].commands: must be a whole number from 1 to 1000000; a hold stops everything in a scope\nline 1: limits[0].rate: must be 1 to 10000 commands per second or minute, for example 5/s or 300/m",
		strings.Repeat(" ", MaxDocument+1):                            "the document has 262145 bytes: at most 262144 are allowed",
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.60q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestSet_Keys_AreThoseOfMatchingLimits(t *testing.T) {
	t.Parallel()
	set, err := Parse([]byte(document))
	require.NoError(t, err)
	op := event.Operation{
		Type: event.Provision, Context: event.Context{GlobalAccountID: "ga-1"}, Plan: event.Plan{ID: "p-1", Name: "azure"},
		Runtime: event.Runtime{Region: "westeurope"},
	}
	upgrade := op
	upgrade.Type, upgrade.Plan = event.UpgradeKyma, event.Plan{ID: "azure", Name: "renamed"}
	for _, tt := range []struct {
		keys []Key
		want string
	}{
		{set.OfCommand(&op, &process.Step{Worker: "ias", Name: "IAS_Registration"}), "tenant/ga-1 ias"},
		{set.OfCommand(&op, &process.Step{Worker: "edp", Name: "EDP_Registration"}), "tenant/ga-1"},
		{set.OfCommand(&upgrade, &process.Step{Worker: "ias", Name: "IAS_Registration"}), "tenant/ga-1"},
		{set.OfOperation(&op), ""},
		{set.OfOperation(&upgrade), "fleet/westeurope"},
		{set.OfCommand(&event.Operation{}, nil), "tenant/"},
	} {
		texts := make([]string, len(tt.keys))
		for i, k := range tt.keys {
			if texts[i] = k.String(); NameOf(texts[i]) != k.Limit.Name {
				t.Errorf("the name of key %q is %q", texts[i], NameOf(texts[i]))
			}
		}
		if got := strings.Join(texts, " "); got != tt.want {
			t.Errorf("keys %q, want %q", got, tt.want)
		}
	}
	systems, err := Parse([]byte("limits: [{name: system, scope: {system: [x, avs, b]}, each: system, commands: 1}, {name: avs, scope: {system: avs}, commands: 1}]"))
	require.NoError(t, err)
	keys := systems.OfCommand(&op, &process.Step{Worker: "w", Name: "Step", Systems: []string{"avs", "b"}})
	if len(keys) != 3 || keys[0].String() != "system/avs" || keys[1].String() != "system/b" || keys[2].String() != "avs" {
		t.Errorf("keys %+v of a step that calls two systems", keys)
	}
	if a, b := set.Weight("ga-2"), set.Weight("ga-3"); a != 0.5 || b != 1 {
		t.Errorf("weights %g and %g, want 0.5 and 1", a, b)
	}
}

func TestChanges_Documents_AreCompared(t *testing.T) {
	t.Parallel()
	parse := func(text string) *Set {
		set, err := Parse([]byte(text))
		require.NoError(t, err)
		return set
	}
	before := parse(document)
	after := parse(`
limits:
  - {name: ias, scope: {type: [provision, update], worker: ias}, commands: 20, rate: 300/m}
  - {name: tenant, each: globalAccount, commands: 5}
  - {name: edp, scope: {worker: edp}, rate: 5/s}
weights: {ga-1: 3, ga-3: 2}
`)
	want := []string{
		"ias: changed: at most 20 commands in flight and a rate of 300/m of type provision or update, worker ias; was at most 10 commands in flight and a rate of 300/m of type provision or update, worker ias",
		"edp: added: at most a rate of 5/s of worker edp",
		"fleet: removed: at most 100 operations in progress for each region of plan azure, type upgradeKyma",
		"weight of ga-2: 1; was 0.5",
		"weight of ga-3: 2; was 1",
	}
	if diff := cmp.Diff(want, Changes(before, after)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
	if got := Changes(before, parse(document+"# more\n")); len(got) > 0 {
		t.Errorf("changes %q, want none", got)
	}
	swapped := &Set{Limits: []Limit{before.Limits[1], before.Limits[0], before.Limits[2]}, Weights: before.Weights}
	if diff := cmp.Diff([]string{"the order of the limits"}, Changes(before, swapped)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}
