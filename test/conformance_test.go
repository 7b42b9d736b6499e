package test

import (
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/osb/osbtest"
	"github.com/kyma-project/keb/test/internal/harness"
)

// The cases of the suite that depend on the orchestrator, against the whole system. The broker alone passes all of them.
func TestConformance_RunningBroker_Passes(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Race: true})
	o := harness.Azure()
	order := o.Body()
	osbtest.Run(t, osbtest.Config{
		BaseURL: sys.OSBURL(), Client: sys.HTTP, User: "keb", Password: "keb",
		BadTokens: map[string]string{"no token at all": "x", "unsigned": "eyJhbGciOiJub25lIn0.e30."},
		Fixtures: osbtest.Fixtures{
			ServiceID: harness.ServiceID, PlanA: harness.PlanAzure, PlanB: harness.PlanAWS,
			PlanFixed: harness.PlanAzure, PlanUnbindable: harness.PlanOwnCluster,
			ChangedParameters: map[string]any{"name": "sample", "autoScalerMax": 30},
			InvalidParameters: map[string]any{"name": "sample", "machineType": "huge"}, InvalidPointer: "/machineType",
			AccountMembers: []string{"globalaccount_id", "subaccount_id"}, RequiredMembers: []string{"globalaccount_id", "subaccount_id"},
			DisplayContext: map[string]any{"instance_name": "another name"}, LongestOperation: 24 * time.Hour,
			Bindings: true, PlanBindsAtOnce: harness.PlanAzure, BindingLimit: 10, Rotation: true,
			ChangedBindingParameters:  map[string]any{"expiration_seconds": 900},
			RejectedBindingParameters: map[string]any{"expiration_seconds": 7201},
		},
		Parameters:       func(string) map[string]any { return map[string]any{"name": "sample"} },
		Context:          func(string) map[string]any { return order.Context.(map[string]any) },
		OperationTimeout: limit, Rounds: 5, Groups: "PLFDOB",
	})
}
