package busola_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/busola"
)

func TestBusolaMigratorOverrides_AnyPlan_SetsKubeconfigAndGateway(t *testing.T) {
	t.Parallel()
	const id = "22222222-2222-4222-8222-222222222222"
	for _, plan := range []string{"azure", "own_cluster"} {
		steps, err := busola.Steps(busola.Config{}, extclient.Deps{})
		require.NoError(t, err)
		r := workertest.Run(t, steps[0], workertest.Operation{Worker: busola.Name, InstanceID: id, Plan: event.Plan{Name: plan}})
		want := []worker.ComponentOverrides{{Component: busola.Component, Entries: []worker.Override{
			{Key: "deployment.env.kubeconfigID", Value: id}, {Key: "global.istio.gateway.name", Value: "kyma-gateway"},
		}}}
		if diff := cmp.Diff(want, r.Overrides); diff != "" || r.Outcome != event.OutcomeSucceeded {
			t.Errorf("%s: %s, overrides (-want +got):\n%s", plan, r.Outcome, diff)
		}
	}
}
