package stepworkers_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/eventhubs"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/lms"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// kyma1OrderOf returns an order of a plan with Kyma 1 that contains only what the broker always stores.
func (w *world) kyma1OrderOf(plan, provider, region string) workertest.Operation {
	op := w.orderOf(planOnProvider{plan, provider, region})
	op.Details, op.Credentials = w.kyma1Order().Details, w.kyma1Order().Credentials
	op.Parameters.(map[string]any)["overridesVersion"] = "2.20.0"
	return op
}

func TestKyma1Order_EveryPlan_SendsItsGoldenRequests(t *testing.T) {
	for _, p := range []planOnProvider{
		{"azure", "azure", ""}, {"azure_lite", "azure", ""}, {"trial", "azure", ""}, {"gcp", "gcp", ""}, {"trial", "gcp", ""},
	} {
		t.Run(p.String(), func(t *testing.T) {
			w := newWorld(t)
			op := w.all([]string{
				"Resolve_Target_Secret", "Overrides_From_Secrets_And_Config_Step", "ServiceManagerOverrides",
			}, w.kyma1OrderOf(p.plan, p.provider, p.region))
			w.named[saved[map[string]any](t, op, "hyperscaler")["targetSecret"].(string)] = "SECRET"
			if p.plan != "trial" {
				op.Details[lms.Name] = lms.Details{TenantID: "t1", DNS: "t1.us.lms.example.com"}
			}
			op = w.all([]string{"Create_Runtime"}, op)
			d := saved[provisioner.Details](t, op, provisioner.Name)
			w.named[d.RuntimeID], w.named[d.OperationID] = "RUNTIME", "OPERATION"
			op = w.all([]string{"Check_Runtime"}, op)
			w.golden("kyma1_"+p.String()+"_provision", "/provisioner")
			w.all([]string{"Remove_Runtime"}, deprovision(op))
			w.golden("kyma1_"+p.String()+"_deprovision", "/provisioner")
		})
	}
}

// Each plan that the contract of 2020 lacks is rejected before the order.
func TestKyma1Order_UnknownPlan_FailsWithoutACall(t *testing.T) {
	w := newWorld(t)
	for _, p := range []planOnProvider{{"aws", "aws", "eu-central-1"}, {"free", "azure", "eastus"}, {"openstack", "openstack", "eu-de-2"}} {
		op := w.all([]string{"Resolve_Target_Secret"}, w.kyma1OrderOf(p.plan, p.provider, p.region))
		calls := w.calls(func() {
			if r := w.run("Create_Runtime", op); r.Outcome != failed || !strings.Contains(r.Error.Message, "Kyma 1: runtime.provider: plan "+p.plan) {
				t.Errorf("%s: %s, %+v", p, r.Outcome, r.Error)
			}
		})
		if n := len(asked(calls, "provisionRuntime")); n != 0 {
			t.Errorf("%s: %d orders", p, n)
		}
	}
}

// The order of 2020 has no last error, only the message of the operation.
func TestKyma1Runtime_FailedCreation_HasTheMessage(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"Resolve_Target_Secret"}, w.kyma1OrderOf("azure", "azure", "eastus"))
	w.admin("PUT", "/provisioner/failures", map[string]any{"instanceId": "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20", "message": "quota exceeded"}, nil)
	op = w.all([]string{"Create_Runtime"}, op)
	w.advance(takes)
	if r := w.run("Check_Runtime", op); r.Outcome != failed || r.Error.Message != "quota exceeded" {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

func TestLMS_EveryRequest_IsGolden(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"Create_LMS_Tenant", "Request_LMS_Certificates"}, w.kyma1Order())
	for _, r := range w.door.requests {
		body, _ := r.Body.(map[string]any)
		if csr, ok := body["csr"].(string); ok {
			shown, err := json.Marshal(csr)
			require.NoError(t, err)
			w.named[strings.Trim(string(shown), `"`)] = "CSR"
		}
	}
	d := saved[lms.Details](t, op, lms.Name)
	w.named[d.TenantID], w.named[path.Base(d.CallbackURL)] = "TENANT", "CALLBACK"
	w.golden("lms_azure_provision", "/lms")
}

func TestEventHubs_EveryRequest_IsGolden(t *testing.T) {
	for _, p := range []planOnProvider{{"azure", "azure", "eastus"}, {"gcp", "gcp", "us-central1"}} {
		t.Run(p.plan, func(t *testing.T) {
			w := newWorld(t)
			order := w.kyma1Order()
			order.Plan, order.Details = event.Plan{ID: "id of " + p.plan, Name: p.plan}, map[string]any{kyma.Name: order.Details[kyma.Name]}
			order.Runtime.Provider, order.Runtime.Region = p.provider, p.region
			op := w.all([]string{"Provision_Azure_Event_Hubs"}, order)
			w.golden("eventhubs_"+p.plan+"_provision", "/azure")
			w.all([]string{"Deprovision_Azure_Event_Hubs"}, deprovision(op))
			w.golden("eventhubs_"+p.plan+"_deprovision", "/azure")
		})
	}
}

func TestLMSAndEventHubs_WithoutURL_AreSkippedVisibly(t *testing.T) {
	for name, want := range map[string]string{
		"Create_LMS_Tenant": "lms has no URL (KEB_LMS_URL): skipped", "Request_LMS_Certificates": "lms has no URL (KEB_LMS_URL): skipped",
		"Provision_Azure_Event_Hubs":   "azure has no URL (KEB_AZURE_URL): skipped",
		"Deprovision_Azure_Event_Hubs": "azure has no URL (KEB_AZURE_URL): skipped",
	} {
		w := newWorld(t)
		lmsSteps, err := lms.Steps(lms.Config{}, extclient.Deps{})
		require.NoError(t, err)
		hubs, err := eventhubs.Steps(eventhubs.Config{}, extclient.Deps{})
		require.NoError(t, err)
		for _, step := range slices.Concat(lmsSteps, hubs) {
			if described, _ := worker.Describe(step); described.Summary == "" {
				t.Errorf("%s is not described", step.Name())
			}
			w.steps[step.Name()] = step
		}
		if r := w.run(name, w.kyma1Order()); r.Outcome != skipped || r.Message != want {
			t.Errorf("%s: %s, %q", name, r.Outcome, r.Message)
		}
		trial := w.kyma1Order()
		trial.Plan.Name = "trial"
		if r := w.run("Provision_Azure_Event_Hubs", trial); r.Outcome != succeeded || len(r.Overrides) != 1 {
			t.Errorf("a trial without Event Hubs: %s, %+v", r.Outcome, r)
		}
	}
}
