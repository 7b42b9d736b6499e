package orchestration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// instances contains the instances that the targets of the tests select from.
var instances = []event.InstanceSummary{
	{
		InstanceID: "i-1", Plan: event.Plan{Name: "azure"}, GlobalAccountID: "ga-1", SubaccountID: "sa-1", RuntimeID: "r-1",
		Runtime: event.Runtime{ShootName: "c-1", Region: "westeurope"},
	},
	{
		InstanceID: "i-2", Plan: event.Plan{Name: "aws"}, GlobalAccountID: "ga-1", SubaccountID: "sa-2", RuntimeID: "r-2",
		Runtime: event.Runtime{ShootName: "c-2", Region: "eu-central-1"},
	},
	{
		InstanceID: "i-3", Plan: event.Plan{Name: "aws"}, GlobalAccountID: "ga-10", SubaccountID: "sa-3", RuntimeID: "r-3",
		Runtime: event.Runtime{ShootName: "c-3", Region: "us-east-1"},
	},
	{InstanceID: "i-4", Plan: event.Plan{Name: "own_cluster"}, GlobalAccountID: "ga-2", SubaccountID: "sa-4"},
}

func TestMatcher_SelectsInstances(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		targets Targets
		want    string
	}{
		"all":                            {Targets{Include: []Target{{Target: "all"}}}, "i-1 i-2 i-3 i-4"},
		"a global account":               {Targets{Include: []Target{{GlobalAccount: "^ga-1$"}}}, "i-1 i-2"},
		"an expression matches anywhere": {Targets{Include: []Target{{GlobalAccount: "ga-1"}}}, "i-1 i-2 i-3"},
		"a subaccount":                   {Targets{Include: []Target{{SubAccount: "sa-[13]"}}}, "i-1 i-3"},
		"regions":                        {Targets{Include: []Target{{Region: "europe|^eu-"}}}, "i-1 i-2"},
		"a plan":                         {Targets{Include: []Target{{PlanName: "aws"}}}, "i-2 i-3"},
		"a plan is not an expression":    {Targets{Include: []Target{{PlanName: "a.s"}}}, ""},
		"a runtime":                      {Targets{Include: []Target{{RuntimeID: "r-3"}}}, "i-3"},
		"a shoot":                        {Targets{Include: []Target{{Shoot: "c-1"}}}, "i-1"},
		"an instance":                    {Targets{Include: []Target{{InstanceID: "i-4"}}}, "i-4"},
		"all conditions of one target":   {Targets{Include: []Target{{PlanName: "aws", GlobalAccount: "^ga-1$"}}}, "i-2"},
		"conditions that contradict":     {Targets{Include: []Target{{PlanName: "aws", Shoot: "c-1"}}}, ""},
		"any of several":                 {Targets{Include: []Target{{PlanName: "azure"}, {Shoot: "c-3"}}}, "i-1 i-3"},
		"without some":                   {Targets{Include: []Target{{Target: "all"}}, Exclude: []Target{{PlanName: "aws"}, {InstanceID: "i-4"}}}, "i-1"},
		"excludes only with all conditions of one target": {Targets{Include: []Target{{PlanName: "aws"}}, Exclude: []Target{{PlanName: "aws", Region: "^us"}}}, "i-2"},
		"exclude wins": {Targets{Include: []Target{{Shoot: "c-1"}}, Exclude: []Target{{Shoot: "c-1"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := NewMatcher(c.targets)
			require.NoError(t, err)
			var got []string
			for i := range instances {
				if m.Match(&instances[i]) {
					got = append(got, instances[i].InstanceID)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
}
