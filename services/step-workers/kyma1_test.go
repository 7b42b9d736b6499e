package stepworkers_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/eventhubs"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/lms"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
	"github.com/kyma-project/keb/services/step-workers/servicemanager"
)

// kyma1Provisioning and kyma1Deprovisioning are the steps in the order of the overlay kyma-1, without the steps for Kyma 2 that are
// skipped. The result of the worker kyma is in the details, see kyma1Order.
var (
	kyma1Provisioning = []string{
		"Resolve_Target_Secret", "AVS_Create_Internal_Eval_Step", "Create_LMS_Tenant", "IAS_Registration", "EDP_Registration",
		"Provision_Azure_Event_Hubs", "Overrides_From_Secrets_And_Config_Step", "ServiceManagerOverrides",
		"Request_LMS_Certificates", "Create_Runtime", "Check_Runtime", "AVS_Create_External_Eval_Step", "AVS_Tags",
	}
	kyma1Deprovisioning = []string{
		"Deprovision_Azure_Event_Hubs", "De-provision_AVS_Evaluations", "IAS_Deregistration", "EDP_Deregistration",
		"Remove_Runtime", "Check_Runtime_Removal", "Release_Subscription",
	}
)

// kyma1Order returns an order for which Provision_Initialization has selected the version.
func (w *world) kyma1Order() workertest.Operation {
	op := w.order()
	op.Details = map[string]any{kyma.Name: kyma.Details{Version: "1.24.11", Origin: "defaults"}}
	op.Parameters.(map[string]any)["overridesVersion"] = "2.20.0"
	op.Credentials[event.CredentialsPlatform] = map[string]any{
		"url": "https://sm.example.com", "credentials": map[string]any{
			"basic": map[string]any{"username": canary + "-id", "password": canary + "-secret"},
		},
	}
	return op
}

// until runs the steps of a list before the given one.
func (w *world) until(name string, op workertest.Operation) workertest.Operation {
	w.t.Helper()
	return w.all(kyma1Provisioning[:slices.Index(kyma1Provisioning, name)], op)
}

// installed is the Kyma in an order to the Runtime Provisioner.
type installed struct {
	Version    string
	Components []struct {
		Component, Namespace string
		Configuration        []worker.Override
	}
	Configuration []worker.Override
}

// entries returns the values of all components by "component key".
func (i installed) entries() map[string]worker.Override {
	all := map[string]worker.Override{}
	for _, c := range i.Components {
		for _, e := range c.Configuration {
			all[c.Component+" "+e.Key] = e
		}
	}
	for _, e := range i.Configuration {
		all[" "+e.Key] = e
	}
	return all
}

// orders returns the orders of runtimes while f runs.
func (w *world) orders(f func()) []installed {
	w.t.Helper()
	var got []installed
	for _, c := range asked(w.calls(f), "provisionRuntime") {
		var config struct{ KymaConfig installed }
		require.NoError(w.t, json.Unmarshal([]byte(c.variable("config")), &config))
		got = append(got, config.KymaConfig)
	}
	return got
}

func TestKyma1_ProvisionAndDeprovision_Succeed(t *testing.T) {
	w := newWorld(t)
	before := w.objects()
	var op workertest.Operation
	orders := w.orders(func() { op = w.all(kyma1Provisioning, w.kyma1Order()) })
	held := w.objects()
	for kind, want := range map[string]int64{
		"avs/evaluation": 2, "edp/dataTenant": 1, "ias/serviceProvider": 2, "lms/tenant": 1, "lms/certificate": 1,
		"azure/resourceGroup": 1, "azure/namespace": 1, "provisioner/runtime": 1, "director/runtime": 1, "gardener/Shoot": 1,
		"reconciler/cluster": 0, "control-plane/Kyma": 0,
	} {
		if held[kind] != want {
			t.Errorf("%s: %d, want %d; all: %v", kind, held[kind], want, held)
		}
	}
	if len(orders) != 1 {
		t.Fatalf("%d runtimes were ordered, want 1", len(orders))
	}
	if got := orders[0]; got.Version != "1.24.11" {
		t.Errorf("Kyma %s was ordered", got.Version)
	}
	entries := orders[0].entries()
	host := "k" + "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20.servicebus.example.com"
	for key, want := range map[string]string{
		" global.disableLegacyConnectivity":                      "true",
		"istio global.tracing.enabled":                           "true",
		"service-manager-proxy config.sm.url":                    "https://sm.example.com",
		"service-manager-proxy sm.user":                          canary + "-id",
		"service-manager-proxy sm.password":                      canary + "-secret",
		"logging fluent-bit.backend.forward.port":                "8443",
		"logging fluent-bit.backend.forward.host":                "forward.t1.us.lms.example.com",
		"knative-eventing-kafka kafka.brokers.hostname":          host,
		"knative-eventing-kafka kafka.brokers.port":              "9093",
		"knative-eventing knative-eventing.channel.default.kind": "KafkaChannel",
	} {
		if got := entries[key].Value; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{
		"service-manager-proxy sm.password",
		"knative-eventing-kafka kafka.password", "monitoring grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_ID",
		"monitoring grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_SECRET",
	} {
		if e := entries[key]; e.Value == "" || !e.Secret {
			t.Errorf("%s is missing, or not marked as a secret", key)
		}
	}
	for _, text := range w.texts {
		for _, secret := range []string{"PRIVATE KEY", "SharedAccessKey=", "SECRET"} {
			if strings.Contains(text, secret) {
				t.Errorf("a secret is in the output: %s", text)
			}
		}
	}

	op = w.all(kyma1Deprovisioning, deprovision(op))
	after := w.objects()
	// The Provisioner keeps its history, and other runtimes use the LMS tenant.
	for _, kind := range []string{"provisioner/operation", "lms/tenant", "lms/certificate"} {
		delete(after, kind)
	}
	equal(t, "objects are left", before, after)
	if d := saved[eventhubs.Details](t, op, eventhubs.Name); d != (eventhubs.Details{}) {
		t.Errorf("still saved: %+v", d)
	}
	w.noSecrets()
}

func TestKyma1_Errors_RetryOrFail(t *testing.T) {
	w := newWorld(t)
	through := func(names []string, op workertest.Operation) workertest.Operation {
		for _, name := range names {
			for _, talk := range []talk{
				// LMS does not indicate which errors are temporary.
				{"Create_LMS_Tenant", "/lms", retry, retry, retry},
				{"Request_LMS_Certificates", "/lms/tenants", retry, retry, retry},
				{"IAS_Registration", "/ias", failed, failed, retry},
				{"Provision_Azure_Event_Hubs", "/azure/subscriptions", failed, failed, retry},
				{"Provision_Azure_Event_Hubs", "/azure/keb/oauth2", retry, retry, retry},
				{"Create_Runtime", "/provisioner", retry, retry, retry},
				{"Deprovision_Azure_Event_Hubs", "/azure/subscriptions", failed, failed, retry},
			} {
				if talk.step == name {
					w.disturb(talk, op)
				}
			}
			w.build(w.url)
			op = w.all([]string{name}, op)
		}
		return op
	}
	through(kyma1Deprovisioning, deprovision(through(kyma1Provisioning, w.kyma1Order())))
	w.noSecrets()
}

// The system does its work, but the answer is lost.
func TestKyma1_LostAnswers_CreateOnce(t *testing.T) {
	w := newWorld(t)
	op := w.kyma1Order()
	lose := func(names []string) {
		for _, name := range names {
			for _, prefix := range []string{"/lms", "/ias", "/azure/subscriptions", "/provisioner"} {
				for range 3 {
					w.build(w.url)
					r := w.during(fault{prefix: prefix, status: http.StatusInternalServerError, after: true}, name, op)
					op.Details = r.Then().Details
				}
			}
			w.build(w.url)
			op = w.all([]string{name}, op)
		}
	}
	lose(kyma1Provisioning)
	made := w.created()
	for kind, want := range map[string]int64{
		"ias/serviceProvider": 2, "lms/tenant": 1, "lms/certificate": 1, "azure/resourceGroup": 1, "azure/namespace": 1, "provisioner/runtime": 1,
	} {
		if made[kind] != want {
			t.Errorf("%s: %d were created, want %d", kind, made[kind], want)
		}
	}
	op = deprovision(op)
	lose(kyma1Deprovisioning)
	for kind, n := range w.objects() {
		switch kind {
		case "ias/serviceProvider", "azure/resourceGroup", "azure/namespace", "provisioner/runtime":
			t.Errorf("%s: %d left", kind, n)
		}
	}
}

// provider is a service provider of IAS.
type provider struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Secrets []json.RawMessage `json:"clientSecrets"`
}

// provider returns the service provider of Grafana; each instance also has one of Dex.
func (w *world) provider() provider {
	w.t.Helper()
	var list struct {
		Data []provider `json:"data"`
	}
	w.admin(http.MethodGet, "/ias/objects", nil, &list)
	list.Data = slices.DeleteFunc(list.Data, func(p provider) bool { return !strings.HasPrefix(p.Name, "SKR Grafana ") })
	if len(list.Data) != 1 {
		w.t.Fatalf("%d service providers of Grafana, want 1", len(list.Data))
	}
	return list.Data[0]
}

func TestIASRegistration_Repeated_KeepsOneSecret(t *testing.T) {
	w := newWorld(t)
	op := w.kyma1Order()
	values := map[string]bool{}
	for range 5 {
		r := w.run("IAS_Registration", op)
		if r.Outcome != succeeded || len(r.Overrides) != 1 || r.Overrides[0].Component != "monitoring" {
			t.Fatalf("%s, %+v, overrides %d", r.Outcome, r.Error, len(r.Overrides))
		}
		values[r.Overrides[0].Entries[1].Value] = true
	}
	got := w.provider()
	if got.Name != "SKR Grafana (instanceID: 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20)" || len(got.Secrets) != 1 || len(values) != 5 {
		t.Errorf("%q has %d secrets after %d were created", got.Name, len(got.Secrets), len(values))
	}
	// The provider of another instance stays.
	other := w.kyma1Order()
	other.InstanceID = "22222222-2222-4222-8222-222222222222"
	w.all([]string{"IAS_Registration"}, other)
	w.all([]string{"IAS_Deregistration"}, deprovision(op))
	if left := w.provider(); !strings.Contains(left.Name, other.InstanceID) {
		t.Errorf("%s is left", left.Name)
	}
}

func TestIASRegistration_UnknownIdP_IsNamed(t *testing.T) {
	w := newWorld(t)
	w.door.fault.Store(&fault{prefix: "/ias", status: http.StatusOK, body: `{"service_providers":[],"identity_providers":[{"id":"1","name":"another"}]}`})
	w.expect("IAS_Registration", w.kyma1Order(), failed, "KEB_IAS_IDENTITY_PROVIDER", `"SAP"`)
}

func TestIAS_LargeAccount_IsRead(t *testing.T) {
	w := newWorld(t)
	body := `{"service_providers":[],"identity_providers":[],"padding":"` + strings.Repeat("x", 9<<20) + `"}`
	w.door.fault.Store(&fault{prefix: "/ias", status: http.StatusOK, body: body})
	w.expect("IAS_Deregistration", deprovision(w.kyma1Order()), skipped)
}

// A stage may be repeated after the order of the runtime: its secrets must stay valid.
func TestKyma1_RuntimeOrdered_KeepsSecrets(t *testing.T) {
	w := newWorld(t)
	op := w.until("Check_Runtime", w.kyma1Order())
	before := w.provider()
	repeated := op
	repeated.Overrides, repeated.Remembered = nil, nil
	calls := w.calls(func() {
		for _, name := range []string{"Create_LMS_Tenant", "IAS_Registration", "Provision_Azure_Event_Hubs", "Request_LMS_Certificates"} {
			w.expect(name, repeated, skipped)
		}
	})
	if len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
	equal(t, "the service provider has changed", before, w.provider())
	w.expect("Create_Runtime", repeated, succeeded)
	w.all([]string{"Check_Runtime", "Remove_Runtime", "Check_Runtime_Removal"}, deprovision(op))
	w.expect("Create_Runtime", repeated, failed, "does not exist any more")
}

func TestLMSTenant_SameAccountAndRegion_IsShared(t *testing.T) {
	w := newWorld(t)
	tenants := map[string]int{}
	for _, change := range []func(*workertest.Operation){
		func(*workertest.Operation) {},
		func(op *workertest.Operation) { op.InstanceID = "22222222-2222-4222-8222-222222222222" },
		func(op *workertest.Operation) { op.Runtime.Region = "centralus" },
		func(op *workertest.Operation) { op.Runtime.Region = "westeurope" },
		func(op *workertest.Operation) { op.Runtime.Region = "japaneast" },
		func(op *workertest.Operation) { op.Context.GlobalAccountID = "ga-2" },
		// A moved subaccount keeps its tenant.
		func(op *workertest.Operation) {
			op.Context.GlobalAccountID, op.Context.SubscriptionGlobalAccountID = "ga-3", "ga-1"
		},
	} {
		op := w.kyma1Order()
		change(&op)
		_, op = w.finish("Create_LMS_Tenant", op)
		tenants[saved[lms.Details](t, op, lms.Name).TenantID]++
	}
	if len(tenants) != 4 {
		t.Errorf("%d tenants, want those of ga-1 in us, eu and aus, and of ga-2 in us: %v", len(tenants), tenants)
	}
	nameless := w.kyma1Order()
	nameless.Context.GlobalAccountID = "---"
	w.expect("Create_LMS_Tenant", nameless, failed, "context.globalAccountId")
}

func TestLMSCertificate_RepeatedStage_MatchesNewKey(t *testing.T) {
	w := newWorld(t)
	op := w.until("Request_LMS_Certificates", w.kyma1Order())
	overrides := func(op workertest.Operation) map[string]string {
		r, _ := w.finish("Request_LMS_Certificates", op)
		if r.Outcome != succeeded {
			t.Fatalf("%s, %+v", r.Outcome, r.Error)
		}
		values := map[string]string{}
		for _, c := range r.Overrides {
			if c.Component == lms.Component {
				for _, e := range c.Entries {
					plain, err := base64.StdEncoding.DecodeString(e.Value)
					if values[e.Key] = e.Value; err == nil {
						values[e.Key] = string(plain)
					}
				}
			}
		}
		return values
	}
	first := overrides(op)
	for key, want := range map[string]string{"tls.key": "RSA PRIVATE KEY", "tls.cert": "BEGIN CERTIFICATE", "tls.ca": "BEGIN CERTIFICATE"} {
		if !strings.Contains(first["fluent-bit.backend.forward."+key], want) {
			t.Errorf("%s is %q", key, first["fluent-bit.backend.forward."+key])
		}
	}
	// The repeated stage has another key, so it needs another certificate, although the previous one is saved.
	_, saved := w.finish("Request_LMS_Certificates", op)
	repeated := w.kyma1Order()
	repeated.Details = saved.Details
	_, repeated = w.finish("Create_LMS_Tenant", repeated)
	second := overrides(repeated)
	for _, key := range []string{"tls.key", "tls.cert"} {
		if first["fluent-bit.backend.forward."+key] == second["fluent-bit.backend.forward."+key] {
			t.Errorf("%s is the same in a repeated stage", key)
		}
	}
	w.made("lms/tenant", 1)
}

func TestRequestLMSCertificates_SpentBudget_Fails(t *testing.T) {
	w := newWorld(t)
	const name = "Request_LMS_Certificates"
	w.expect(name, w.kyma1Order(), skipped)
	op := w.until(name, w.kyma1Order())
	lost := op
	lost.LostMemory = true
	w.expect(name, lost, event.OutcomeStageLost)
	w.door.fault.Store(&fault{prefix: "/lms", status: http.StatusOK, body: `{"kibanaDNSResolves":true,"elasticsearchDNSResolves":false}`})
	w.expect(name, op, waiting, "not ready")
	late := op
	late.FirstTried = 31 * time.Minute
	w.expect(name, late, failed, "err_keb_timeout")
	w.door.fault.Store(nil)

	w.advance(takes)
	r := w.run(name, op)
	if r.Outcome != retry || !strings.Contains(r.Message, "not signed") {
		t.Fatalf("a certificate that is not signed: %s, %q, %+v", r.Outcome, r.Message, r.Error)
	}
	op.Details = r.Then().Details
	for what, body := range map[string]string{"no certificate": `{"cert":"garbage"}`, "nothing": `{}`} {
		w.door.fault.Store(&fault{prefix: "/lms/cert-", status: http.StatusOK, body: body})
		if r := w.run(name, op); r.Outcome != retry || r.Error == nil {
			t.Errorf("%s for a certificate: %s, %+v", what, r.Outcome, r.Error)
		}
	}
	w.door.fault.Store(&fault{prefix: "/lms/cert-", status: http.StatusNotFound})
	w.advance(31 * time.Minute)
	w.expect(name, op, failed)
}

func TestLMSToken_OtherHost_IsNotSent(t *testing.T) {
	w := newWorld(t)
	op := w.until("Request_LMS_Certificates", w.kyma1Order())
	w.advance(takes)
	// All calls get the same answer: the tenant is ready, and the certificate is on another host.
	w.door.fault.Store(&fault{
		prefix: "/lms", status: http.StatusOK,
		body: `{"kibanaDNSResolves":true,"elasticsearchDNSResolves":true,"callbackUrl":"http://evil.example.com/x"}`,
	})
	w.expect("Request_LMS_Certificates", op, retry, "not its own")
}

// The system repeats a secret of the order; the message is cut within the secret.
func TestKyma1_RejectedOrder_ErrorHasNoSecret(t *testing.T) {
	w := newWorld(t)
	op := w.until("Create_Runtime", w.kyma1Order())
	body := `{"errors":[{"message":"` + strings.Repeat("x ", 92) + canary + `-secret","extensions":{"error_code":400,"error_reason":"err_bad"}}]}`
	w.door.fault.Store(&fault{prefix: "/provisioner", status: http.StatusOK, body: body})
	w.expect("Create_Runtime", op, failed, "err_bad")
	w.noSecrets()
}

func TestEventHubs_ResourceGroup_MatchesInstance(t *testing.T) {
	w := newWorld(t)
	const name = "Provision_Azure_Event_Hubs"
	op := w.kyma1Order()
	if r := w.during(fault{prefix: "/azure/subscriptions", status: http.StatusConflict}, name, op); r.Outcome != retry || r.Error == nil {
		t.Errorf("a resource with the name exists: %s, %+v", r.Outcome, r.Error)
	}
	w.expect(name, op, waiting, "being created")
	w.all([]string{name}, op)
	aws := w.kyma1Order()
	aws.InstanceID, aws.Plan.Name, aws.Runtime.Provider, aws.Runtime.Region = "22222222-2222-4222-8222-22222222222A", "aws", "aws", "us-east-1"
	w.all([]string{name}, aws)
	var list struct {
		Data []struct {
			Name, Location string
			Tags           map[string]string
		} `json:"data"`
	}
	w.admin(http.MethodGet, "/azure/objects?kind=resourceGroup", nil, &list)
	got := map[string]string{}
	for _, g := range list.Data {
		got[g.Name] = g.Location + " " + g.Tags["InstanceID"] + " " + g.Tags["SubAccountID"]
	}
	want := map[string]string{
		"k5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20": "eastus 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20 SA-1",
		"k22222222-2222-4222-8222-22222222222a": "westeurope 22222222-2222-4222-8222-22222222222A SA-1",
	}
	equal(t, "resource groups", want, got)
	long := w.kyma1Order()
	long.InstanceID = strings.Repeat("i", 60)
	w.expect(name, long, failed, "instance id")
}

func TestEventHubs_Deletion_HonorsRetryAfter(t *testing.T) {
	w := newWorld(t)
	const name = "Deprovision_Azure_Event_Hubs"
	w.expect(name, deprovision(w.kyma1Order()), skipped)
	op := deprovision(w.all([]string{"Provision_Azure_Event_Hubs"}, w.kyma1Order()))
	if r := w.during(fault{prefix: "/azure", status: http.StatusTooManyRequests}, name, op); r.Outcome != retry || r.RetryAfter != 100*time.Millisecond {
		t.Errorf("throttled: %s after %s, %+v", r.Outcome, r.RetryAfter, r.Error)
	}
	w.build(w.url)
	// The landscape requests half of its duration.
	r := w.run(name, op)
	if r.Outcome != retry || r.Error != nil || r.RetryAfter != takes/2 {
		t.Fatalf("the deletion is checked after %s, want %s: %s, %+v", r.RetryAfter, takes/2, r.Outcome, r.Error)
	}
	if r := w.run(name, op); r.Outcome != retry || r.RetryAfter != 100*time.Millisecond {
		t.Errorf("during the deletion: %s after %s, want the poll interval", r.Outcome, r.RetryAfter)
	}
	// The step gave up here, and the instance was ordered again: nothing may be created in a resource group in deletion.
	again := w.kyma1Order()
	again.Details = r.Then().Details
	if r := w.run("Provision_Azure_Event_Hubs", again); r.Outcome != retry || !strings.Contains(r.Message, "being deleted") {
		t.Errorf("provisioning during the deletion: %s, %q, %+v", r.Outcome, r.Message, r.Error)
	}
	// The next deprovisioning completes the deletion.
	w.advance(takes)
	op.Details = r.Then().Details
	r, op = w.finish(name, op)
	if held := w.objects(); r.Outcome != succeeded || held["azure/resourceGroup"]+held["azure/namespace"] != 0 {
		t.Errorf("%s, %+v, left %v", r.Outcome, r.Error, held)
	}
	w.expect(name, op, skipped)
}

func TestServiceManager_Modes_SelectCredentials(t *testing.T) {
	t.Parallel()
	sent := func(username string) map[string]any {
		return map[string]any{"url": "https://sent.example.com", "credentials": map[string]any{"basic": map[string]any{"username": username, "password": "s"}}}
	}
	order := sent("sent")
	for name, test := range map[string]struct {
		mode servicemanager.Mode
		sent any
		want string // the user, or the text of the error
	}{
		"always, sent":                   {servicemanager.Always, order, "configured"},
		"always, not sent":               {servicemanager.Always, nil, "configured"},
		"when not sent, sent":            {servicemanager.WhenNotSentInRequest, order, "sent"},
		"when not sent, not sent":        {servicemanager.WhenNotSentInRequest, nil, "configured"},
		"never, sent":                    {servicemanager.Never, order, "sent"},
		"never, not sent":                {servicemanager.Never, nil, "error: context.sm_platform_credentials is missing"},
		"sent, but not all of it":        {servicemanager.Never, sent(""), "error: sm_platform_credentials: missing credentials.basic.username"},
		"always, sent and not all of it": {servicemanager.Always, sent(""), "configured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, err := servicemanager.Steps(servicemanager.Config{
				Mode: test.mode, URL: "https://sm.example.com", Username: "configured", Password: canary, RetryInterval: time.Second,
			}, extclient.Deps{})
			require.NoError(t, err)
			op := workertest.Operation{}
			if test.sent != nil {
				op.Credentials = map[string]any{event.CredentialsPlatform: test.sent}
			}
			r := workertest.Run(t, steps[0], op)
			if want, isError := strings.CutPrefix(test.want, "error: "); isError {
				if r.Outcome != failed || !strings.Contains(r.Error.Message, want) {
					t.Errorf("%s, %+v, want %q", r.Outcome, r.Error, want)
				}
				return
			}
			if r.Outcome != succeeded || len(r.Overrides) != 1 || r.Overrides[0].Component != servicemanager.Component {
				t.Fatalf("%s, %+v", r.Outcome, r.Error)
			}
			got := map[string]string{}
			for _, e := range r.Overrides[0].Entries {
				got[e.Key] = e.Value
			}
			if got["sm.user"] != test.want || got["sm.password"] == "" || got["config.sm.url"] == "" {
				t.Errorf("user %q, want %q", got["sm.user"], test.want)
			}
		})
	}
}

func TestKyma1Config_Invalid_ErrorNamesField(t *testing.T) {
	t.Parallel()
	errLMS := lms.Config{URL: "here", ClusterType: "huge"}.Validate()
	errHubs := eventhubs.Config{URL: "http://x"}.Validate()
	errSM := servicemanager.Config{Mode: "Sometimes"}.Validate()
	errEmpty := servicemanager.Config{Mode: servicemanager.Always}.Validate()
	for what, err := range map[string]error{
		"KEB_LMS_URL": errLMS, "KEB_LMS_CLUSTER_TYPE": errLMS, "KEB_PACE": errLMS,
		"KEB_AZURE_LOGIN_URL": errHubs, "KEB_AZURE_SUBSCRIPTION_ID": errHubs,
		"KEB_SERVICE_MANAGER_OVERRIDE_MODE": errSM, "KEB_SERVICE_MANAGER_URL": errEmpty, "KEB_SERVICE_MANAGER_PASSWORD": errEmpty,
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v does not name %s", err, what)
		}
	}
}

func TestKyma1_OwnCluster_IsRejected(t *testing.T) {
	w := newWorld(t)
	op := w.kyma1Order()
	op.Plan.Name = "own_cluster"
	w.expect("Create_Runtime", op, failed, "own_cluster")
	trial := w.kyma1Order()
	trial.Plan.Name = "trial"
	trial.Details[kyma.Name] = kyma.Details{Version: "1.24.11"}
	orders := w.orders(func() {
		w.all([]string{"Resolve_Target_Secret", "Overrides_From_Secrets_And_Config_Step", "Create_Runtime"}, trial)
	})
	if len(orders) != 1 {
		t.Errorf("orders of a trial: %+v", orders)
	}
	for _, c := range orders[0].Components {
		if c.Component == eventhubs.ComponentKafka {
			t.Error("a trial gets Kafka channels although it has no Event Hubs")
		}
	}
}

// Every plan sends the same requests.
func TestServiceProviders_RequestsAreGolden(t *testing.T) {
	for _, plan := range plans {
		w := newWorld(t)
		order := w.kyma1Order()
		order.Plan.Name = plan
		op := w.all([]string{"IAS_Registration"}, order)
		w.goldenIAS("ias_provision")
		// Run it again: existing providers are configured again, attributes stay, and the secret is replaced.
		w.all([]string{"IAS_Registration"}, order)
		w.goldenIAS("ias_provision_again")
		w.all([]string{"IAS_Deregistration"}, deprovision(op))
		w.goldenIAS("ias_deprovision")
		w.all([]string{"IAS_Deregistration"}, deprovision(op))
		w.goldenIAS("ias_deprovision_absent")
	}
}

// goldenIAS is golden with names for the ids that IAS assigns.
func (w *world) goldenIAS(name string) {
	w.t.Helper()
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			Name    string `json:"name"`
			Secrets []struct {
				ID string `json:"id"`
			} `json:"clientSecrets"`
		} `json:"data"`
	}
	w.admin(http.MethodGet, "/ias/objects", nil, &list)
	for _, p := range list.Data {
		title := strings.Fields(p.Name)[1]
		w.named[p.ID] = "ID-" + title
		for i, s := range p.Secrets {
			w.named[s.ID] = fmt.Sprint("SECRET-", title, "-", i)
		}
	}
	w.golden(name, "/ias")
}

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
