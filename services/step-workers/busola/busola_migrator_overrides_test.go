package busola_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/busola"
)

func TestBusolaGetsToKnowTheRuntimeAndTheDashboard(t *testing.T) {
	t.Parallel()
	const id, domain, url = "22222222-2222-4222-8222-222222222222", "c-1a2b3c4.kyma.example.com", "https://dashboard.example.com"
	for plan, want := range map[string]map[string]string{
		"azure": {
			"deployment.env.instanceID": id, "deployment.env.domain": domain, "global.domainName": domain,
			"deployment.env.busolaURL": url, "deployment.env.kubeconfigID": id,
		},
		"own_cluster": {
			"deployment.env.instanceID": id, "deployment.env.domain": domain, "global.domainName": domain, "deployment.env.busolaURL": url,
		},
	} {
		steps, err := busola.Steps(busola.Config{URL: url}, busola.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		r := workertest.Run(t, steps[0], workertest.Operation{
			Worker: busola.Name, InstanceID: id, Plan: event.Plan{Name: plan}, Runtime: event.Runtime{ShootDomain: domain},
		})
		got := map[string]string{}
		for _, c := range r.Overrides {
			if c.Component != busola.Component {
				t.Errorf("overrides for %q", c.Component)
			}
			for _, o := range c.Entries {
				got[o.Key] = o.Value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || r.Outcome != event.OutcomeSucceeded {
			t.Errorf("%s: %s, overrides (-want +got):\n%s", plan, r.Outcome, diff)
		}
	}
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := busola.Steps(busola.Config{URL: "dashboard"}, busola.Deps{}); err == nil || !strings.Contains(err.Error(), "KEB_LANDSCAPE_DASHBOARD_URL") {
		t.Errorf("got %v", err)
	}
}
