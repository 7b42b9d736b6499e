package broker_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// patch sends an update with the service id and these members.
func (b *bench) patch(id string, members map[string]any) answer {
	b.t.Helper()
	return b.send(http.MethodPatch, "/v2/service_instances/"+id+"?accepts_incomplete=true", change(members))
}

func change(members map[string]any) map[string]any {
	body := map[string]any{"service_id": serviceID}
	maps.Copy(body, members)
	return body
}

func parameters(p map[string]any) map[string]any { return map[string]any{"parameters": p} }

// contextOf returns the context of an order with these members replaced.
func contextOf(members map[string]any) map[string]any {
	c := accountContext()
	maps.Copy(c, members)
	return map[string]any{"context": c}
}

func (b *bench) get(id string) answer {
	b.t.Helper()
	return b.send(http.MethodGet, "/v2/service_instances/"+id, nil)
}

func (b *bench) labels(id string) map[string]any {
	b.t.Helper()
	a := b.get(id)
	if a.status != http.StatusOK {
		b.t.Fatalf("GET %s: status %d %s", id, a.status, a.raw)
	}
	m, _ := a.body["metadata"].(map[string]any)
	labels, _ := m["labels"].(map[string]any)
	return labels
}

// newest returns the last operation of an instance that the orchestrator has received.
func (b *bench) newest(id string) event.Operation {
	b.t.Helper()
	all := b.orch.received(id)
	if len(all) == 0 {
		b.t.Fatalf("nothing was requested for %s", id)
	}
	return all[len(all)-1]
}

func (b *bench) updated(id string, members map[string]any) event.Operation {
	b.t.Helper()
	operation := b.accepted(b.patch(id, members))
	b.ended(id, operation, "succeeded")
	got := b.newest(id)
	if got.ID != operation || got.Type != event.Update || got.Update == nil {
		b.t.Fatalf("requested was %+v", got)
	}
	return got
}

// bare provisions an instance without credentials.
func (b *bench) bare(id string) {
	b.t.Helper()
	b.ended(id, b.accepted(b.put(id, with(order(azure), "context", bareContext()))), "succeeded")
}

func bareContext() map[string]any {
	bare := accountContext()
	delete(bare, "sm_operator_credentials")
	return bare
}

func members(t testing.TB, raw json.RawMessage) map[string]any {
	t.Helper()
	m := map[string]any{}
	if len(raw) == 0 {
		return nil
	}
	require.NoError(t, json.Unmarshal(raw, &m))
	return m
}

func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func TestUpdate_Parameters_SendsChangesOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	first := order(azure)
	first["parameters"] = map[string]any{
		"name": "sample", "administrators": []string{"a@example.org"}, "autoScalerMin": 4,
		"oidc": map[string]any{"clientID": "c1", "issuerURL": "https://issuer.example.org", "usernamePrefix": "p"},
	}
	b.ended("i", b.accepted(b.put("i", first)), "succeeded")
	before := members(t, b.newest("i").Parameters)

	got := b.updated("i", parameters(map[string]any{"machineType": "Standard_D8_v3"}))
	equal(t, "changes", map[string]any{"machineType": "Standard_D8_v3"}, members(t, got.Update.Parameters))
	before["machineType"] = "Standard_D8_v3"
	equal(t, "parameters", before, members(t, got.Parameters))

	got = b.updated("i", parameters(map[string]any{
		"oidc": map[string]any{"clientID": "c2", "issuerURL": ""}, "autoScalerMax": 30.0, "future": true,
	}))
	oidc, _ := before["oidc"].(map[string]any)
	oidc["clientID"], before["autoScalerMax"] = "c2", 30.0
	equal(t, "changes", map[string]any{"oidc": oidc, "autoScalerMax": 30.0}, members(t, got.Update.Parameters))
	equal(t, "parameters", before, members(t, got.Parameters))

	got = b.updated("i", parameters(map[string]any{"administrators": []string{"b@example.org"}}))
	before["administrators"] = []any{"b@example.org"}
	equal(t, "parameters", before, members(t, got.Parameters))
	equal(t, "what is shown", map[string]any{
		"name": "sample", "administrators": []any{"b@example.org"}, "machineType": "Standard_D8_v3", "autoScalerMin": 4.0,
		"autoScalerMax": 30.0, "oidc": map[string]any{"clientID": "c2", "issuerURL": "https://issuer.example.org", "usernamePrefix": "p"},
	}, b.get("i").body["parameters"])
}

// The original loses an update of the machine type alone (docs/contracts/defects.md, number 10).
func TestUpdate_MachineTypeOnly_IsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.updated("i", parameters(map[string]any{"machineType": "Standard_D16_v3"}))
	shown, _ := b.get("i").body["parameters"].(map[string]any)
	equal(t, "machine type", any("Standard_D16_v3"), shown["machineType"])
	b.accepted(b.delete("i"))
	testkit.Eventually(t, waitTimeout, "deprovisioning", func() bool { return b.newest("i").Type == event.Deprovision })
	equal(t, "machine type", any("Standard_D16_v3"), members(t, b.newest("i").Parameters)["machineType"])
}

func TestUpdate_Invalid_IsRejectedAndChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.ended("t", b.accepted(b.put("t", order(trial))), "succeeded")
	before := b.get("i").raw
	for _, tc := range []struct {
		name, id string
		body     map[string]any
		status   int
		want     string
	}{
		{"region", "i", parameters(map[string]any{"region": "westeurope"}), 400, "parameters/region is settled when the instance is ordered"},
		{"name", "i", parameters(map[string]any{"name": "other"}), 400, "parameters/name is settled"},
		{"disk", "i", parameters(map[string]any{"volumeSizeGb": 100}), 400, "parameters/volumeSizeGb is settled"},
		{"machine", "i", parameters(map[string]any{"machineType": "huge"}), 400, "parameters/machineType must be one of"},
		{"type of a member that is not published", "i", parameters(map[string]any{"maxSurge": "x"}), 400, "parameters/maxSurge must be of type integer"},
		{"autoscaler with what is stored", "i", parameters(map[string]any{"autoScalerMin": 21}), 400, "/autoScalerMin (21) must not be greater than /autoScalerMax (20, the current value)"},
		{"administrators", "i", parameters(map[string]any{"administrators": []string{}}), 400, "parameters/administrators must have at least 1 items"},
		{"OIDC", "i", parameters(map[string]any{"oidc": map[string]any{"issuerURL": "http://x"}}), 400, "parameters/oidc/issuerURL must be an absolute https URL"},
		{"context", "i", map[string]any{"context": map[string]any{"license_type": 7}}, 400, "context/license_type must be a string"},
		{"active", "t", map[string]any{"context": map[string]any{"active": "no"}}, 400, "context/active must be true or false"},
		{"credentials", "i", map[string]any{"context": map[string]any{"sm_operator_credentials": map[string]any{"clientid": "x"}}}, 400, "context/sm_operator_credentials: missing clientsecret, sm_url, url"},
		{"expired of another plan", "i", parameters(map[string]any{"expired": true}), 400, "for instances of plan trial"},
		{"expired but active", "t", parameters(map[string]any{"expired": true}), 400, "needs context/active false"},
		{"expired", "t", parameters(map[string]any{"expired": "yes"}), 400, "parameters/expired must be true or false"},
		{"plan", "i", map[string]any{"plan_id": aws}, 422, "cannot be changed"},
		{"maintenance", "i", map[string]any{"maintenance_info": map[string]any{"version": "1.0.0"}}, 422, "maintenance_info was sent"},
		{"unknown instance", "x", parameters(map[string]any{}), 404, "no such service instance"},
	} {
		b.refused(tc.name, b.patch(tc.id, tc.body), tc.status, tc.want)
	}
	equal(t, "instance", before, b.get("i").raw)
	b.rows("operations", 2, `SELECT count(*) FROM broker.operations`)
	// Values that only the order can set may be repeated: some platforms always send all parameters.
	b.expect("repeated", b.patch("i", parameters(map[string]any{"name": "sample", "region": "eastus"})), 200)
	b.fail(event.Provision, true)
	b.ended("f", b.accepted(b.put("f", order(azure))), "failed")
	b.refused("failed instance", b.patch("f", parameters(map[string]any{"autoScalerMax": 9})), 422, "failed")
}

func TestUpdate_FiftyEqualInParallel_CreateOneOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	bodies := []map[string]any{
		change(parameters(map[string]any{"autoScalerMax": 30})), change(parameters(map[string]any{"autoScalerMax": 30.0, "future": 1})),
	}
	answers := b.atOnce(50, func(n int) map[string]any { return bodies[n%2] })
	operations := map[string]bool{}
	for _, a := range answers {
		operations[b.accepted(a)] = true
	}
	if len(operations) != 1 {
		t.Errorf("operations %v", operations)
	}
	b.hold(false)
	for id := range operations {
		b.ended("i", id, "succeeded")
	}
	b.rows("updates", 1, `SELECT count(*) FROM broker.operations WHERE type = 'update'`)
	equal(t, "requests", 2, b.orch.requests("i"))
}

func TestUpdate_FiftyDifferentInParallel_AcceptsOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	accepted, busy := "", 0
	for _, a := range b.atOnce(50, func(n int) map[string]any { return change(parameters(map[string]any{"autoScalerMax": 21 + n})) }) {
		switch {
		case a.status == 202 && accepted == "":
			accepted = a.text("operation")
		case a.status == 422 && a.text("error") == "ConcurrencyError":
			busy++
		default:
			t.Errorf("status %d %s", a.status, a.raw)
		}
	}
	if accepted == "" || busy != 49 {
		t.Errorf("accepted %q, %d had to wait", accepted, busy)
	}
}

func (b *bench) atOnce(n int, body func(n int) map[string]any) []answer {
	b.t.Helper()
	answers, errs := make([]answer, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			answers[i], errs[i] = b.try(http.MethodPatch, "/v2/service_instances/i?accepts_incomplete=true", body(i))
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(b.t, err)
	}
	return answers
}

// The first GET after last_operation succeeded shows the new values, however the broker learned of the success.
func TestUpdate_Succeeded_ShowsNewValues(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"facts": false, "repair": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *broker.Config) {
				if silent {
					c.RepairSilence = 20 * time.Millisecond
				}
			})
			b.provisioned("i")
			b.orch.set(func() { b.orch.silent = silent })
			for n := range 30 {
				b.hold(true)
				operation := b.accepted(b.patch("i", parameters(map[string]any{"autoScalerMax": 21 + n})))
				b.expect("GET while it runs", b.get("i"), 422)
				b.hold(false)
				b.ended("i", operation, "succeeded")
				shown, _ := b.get("i").body["parameters"].(map[string]any)
				if shown["autoScalerMax"] != float64(21+n) {
					t.Fatalf("after update %d: %v", n, shown)
				}
			}
			b.rows("updates are left", 0, `SELECT count(*) FROM broker.updates`)
		})
	}
}

func TestUpdate_Failed_KeepsOldValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	before := b.get("i").raw
	b.fail(event.Update, true)
	wanted := parameters(map[string]any{"autoScalerMax": 30})
	b.ended("i", b.accepted(b.patch("i", wanted)), "failed")
	equal(t, "instance", before, b.get("i").raw)
	last := b.last("i", "")
	equal(t, "instance_usable", any(true), last.body["instance_usable"])
	equal(t, "update_repeatable", any(true), last.body["update_repeatable"])
	b.fail(event.Update, false)
	got := b.updated("i", wanted)
	equal(t, "changes", map[string]any{"autoScalerMax": 30.0}, members(t, got.Update.Parameters))
}

func TestUpdate_Credentials_OnlyUpdateClaimsThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.expect("same credentials", b.patch("i", contextOf(nil)), 200)
	const secret = "CANARY-second"
	b.hold(true)
	operation := b.accepted(b.patch("i", smContext(secret)))
	testkit.Eventually(t, waitTimeout, "update", func() bool { return len(b.orch.received("i")) == 2 })
	got := b.newest("i")
	equal(t, "changes", &event.Changes{Credentials: []string{event.CredentialsServiceManager}}, got.Update)
	claimed, err := b.claim("i", operation, event.CredentialsServiceManager)
	if err != nil || !strings.Contains(string(claimed.Credentials), secret) {
		t.Errorf("claimed %s, %v", claimed.Credentials, err)
	}
	for _, table := range []string{"instances", "operations", "updates", "credentials", "runtimes"} {
		b.rows("secrets in "+table, 0, `SELECT count(*) FROM broker.`+table+` t WHERE t::text LIKE '%CANARY%'`)
	}
	b.hold(false)
	b.ended("i", operation, "succeeded")
	b.hold(true)
	deletion := b.accepted(b.delete("i"))
	claimed, err = b.claim("i", deletion, event.CredentialsServiceManager)
	if err != nil || !strings.Contains(string(claimed.Credentials), secret) {
		t.Errorf("afterwards claimed %s, %v", claimed.Credentials, err)
	}
	if strings.Contains(b.log.String(), "CANARY") {
		t.Error("a secret is in the log")
	}
}

func TestUpdate_LicenseType_IsAnOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	got := b.updated("i", map[string]any{"context": map[string]any{"license_type": "CUSTOMER", "globalaccount_id": "elsewhere"}})
	equal(t, "changes", &event.Changes{LicenseType: true}, got.Update)
	equal(t, "context", event.Context{
		GlobalAccountID: "ga-1", SubaccountID: "sa-1", UserID: "user@example.org", PlatformRegion: "cf-eu10", Platform: "cloudfoundry",
		LicenseType: "CUSTOMER",
	}, got.Context)
	b.expect("again", b.patch("i", map[string]any{"context": map[string]any{"license_type": "CUSTOMER"}}), 200)
}

func TestUpdate_MovedSubaccount_KeepsSubscription(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.SubaccountMovement = true })
	b.provisioned("i")
	move := func(to string) {
		t.Helper()
		b.withoutOperation("to "+to, b.patch("i", map[string]any{"context": map[string]any{"globalaccount_id": to}}))
	}
	move("ga-2")
	move("ga-3")
	got := b.updated("i", parameters(map[string]any{"autoScalerMax": 9}))
	equal(t, "account", "ga-3", got.Context.GlobalAccountID)
	equal(t, "subscription", "ga-1", got.Context.SubscriptionGlobalAccountID)
	move("ga-1")
	got = b.updated("i", parameters(map[string]any{"autoScalerMax": 10}))
	equal(t, "account", "ga-1", got.Context.GlobalAccountID)
	equal(t, "subscription", "", got.Context.SubscriptionGlobalAccountID)
}

func TestUpdate_PlanChange_KeepsChosenValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.PlanChanges = map[string]string{"azure_lite": "azure", "free": "aws|azure"} })
	b.ended("i", b.accepted(b.put("i", order(azureLite))), "succeeded")
	got := b.updated("i", map[string]any{"plan_id": azure})
	equal(t, "plan", event.Plan{ID: azure, Name: "azure"}, got.Plan)
	equal(t, "plan changes", true, got.Update.Plan)
	// autoScalerMin 2 and autoScalerMax 10 were the defaults of azure_lite.
	for name, want := range map[string]any{"autoScalerMin": 3.0, "autoScalerMax": 20.0, "machineType": "Standard_D4_v3"} {
		equal(t, name, want, members(t, got.Parameters)[name])
	}
	equal(t, "plan_id", azure, b.get("i").text("plan_id"))
	if a := b.patch("i", map[string]any{"plan_id": azureLite}); a.status != 422 || a.body["update_repeatable"] != false {
		t.Errorf("back: status %d %s", a.status, a.raw)
	}

	small := with(order(azureLite), "parameters", map[string]any{"name": "sample", "autoScalerMin": 2})
	b.ended("j", b.accepted(b.put("j", small)), "succeeded")
	b.refused("too small", b.patch("j", map[string]any{"plan_id": azure}), 400, "parameters/autoScalerMin must be at least 3")
	b.updated("j", map[string]any{"plan_id": azure, "parameters": map[string]any{"autoScalerMin": 5}})

	b.ended("f", b.accepted(b.put("f", order(free))), "succeeded")
	b.expect("another provider", b.patch("f", map[string]any{"plan_id": azure}), 422)
	b.updated("f", map[string]any{"plan_id": aws})
}

func TestRequests_PlanIsWithdrawn_InstanceCanBeUsedAndRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.PlanChanges = map[string]string{"azure_lite": "azure"} })
	b.provisioned("i")
	b.ended("lite", b.accepted(b.put("lite", order(azureLite))), "succeeded")
	b.cfg.Plans, b.cfg.PlanChanges = []string{"azure_lite", "aws"}, nil
	b.restart()
	ids := "service_id=" + serviceID + "&plan_id=" + azure
	b.refused("new order", b.put("new", order(azure)), 400, "plan_id")
	b.expect("change to the plan", b.patch("lite", map[string]any{"plan_id": azure}), 422)
	b.expect("read", b.send(http.MethodGet, "/v2/service_instances/i?"+ids, nil), 200)
	b.updated("i", map[string]any{"plan_id": azure, "parameters": map[string]any{"administrators": []string{"a"}}})
	operation := b.accepted(b.delete("i"))
	b.endedBy(func(id, operation string) answer {
		return b.send(http.MethodGet, "/v2/service_instances/"+id+"/last_operation?operation="+operation+"&"+ids, nil)
	}, "i", operation, "succeeded")
}

func TestUpdate_OwnCluster_ReplacesKubeconfig(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	encoded := func(token string) string {
		return base64.StdEncoding.EncodeToString([]byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"clusters":[{"name":"k","cluster":{"server":"https://k.example.org"}}],
			"users":[{"name":"u","user":{"token":"` + token + `"}}]}`))
	}
	first := with(order(own), "parameters", map[string]any{
		"name": "n", "shootName": "s", "shootDomain": "d.example.org", "kubeconfig": encoded("CANARY-1"),
	})
	b.ended("i", b.accepted(b.put("i", first)), "succeeded")
	b.expect("the same", b.patch("i", parameters(map[string]any{"kubeconfig": encoded("CANARY-1"), "shootName": "s"})), 200)
	b.expect("shoot name", b.patch("i", parameters(map[string]any{"shootName": "other"})), 400)
	got := b.updated("i", parameters(map[string]any{"kubeconfig": encoded("CANARY-2")}))
	equal(t, "changes", &event.Changes{Credentials: []string{event.CredentialsKubeconfig}}, got.Update)
	if a := b.get("i"); strings.Contains(a.raw, "kubeconfig\":") {
		t.Errorf("shown is %s", a.raw)
	}
}

// An operator can retry a failed operation from its failed stage.
func TestUpdate_RetriedSuccessfully_AppliesValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.ended("i", b.accepted(b.put("i", order(trial))), "succeeded")
	administrators := func() any {
		shown, _ := b.get("i").body["parameters"].(map[string]any)
		return shown["administrators"]
	}
	b.fail(event.Update, true)
	fail := func(name string) *operation {
		t.Helper()
		id := b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{name}})))
		b.ended("i", id, "failed")
		b.orch.mu.Lock()
		defer b.orch.mu.Unlock()
		return b.orch.operations[id]
	}
	succeed := func(o *operation) {
		t.Helper()
		b.orch.succeed(o)
		testkit.Eventually(t, waitTimeout, "success", func() bool { return b.last("i", o.ID).text("state") == "succeeded" })
	}
	retried := fail("first")
	succeed(retried)
	equal(t, "administrators", any([]any{"first"}), administrators())

	// A later request takes precedence over the retried update.
	retried = fail("second")
	b.ended("i", b.accepted(b.patch("i", active(false))), "succeeded")
	b.expect("update of a suspended instance", b.patch("i", parameters(map[string]any{"administrators": []string{"third"}})), 200)
	succeed(retried)
	equal(t, "administrators", any([]any{"third"}), administrators())
}

func TestUpdate_BrokerRestarts_Succeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.hold(true)
	body := parameters(map[string]any{"autoScalerMax": 30})
	operation := b.accepted(b.patch("i", body))
	b.restart()
	equal(t, "again", operation, b.accepted(b.patch("i", body)))
	b.stop()
	b.hold(false)
	b.start()
	b.ended("i", operation, "succeeded")
	shown, _ := b.get("i").body["parameters"].(map[string]any)
	equal(t, "autoScalerMax", any(30.0), shown["autoScalerMax"])
}

// The runtime may have the values of a failed update. Each later update therefore sends those parameters again, even an update
// back to the old values.
func TestUpdate_AfterFailedUpdate_SendsUnsettledValuesAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	before := b.get("i").raw
	failed := func(members map[string]any) event.Operation {
		t.Helper()
		b.fail(event.Update, true)
		b.ended("i", b.accepted(b.patch("i", members)), "failed")
		equal(t, "what is shown after a failed update", before, b.get("i").raw)
		b.fail(event.Update, false)
		return b.newest("i")
	}
	wanted := smContext("CANARY-second")
	wanted["context"].(map[string]any)["license_type"] = "CUSTOMER"
	maps.Copy(wanted, parameters(map[string]any{"machineType": "Standard_D8_v3"}))
	failed(wanted)

	back := failed(parameters(map[string]any{"machineType": "Standard_D4_v3"}))
	credentials := []string{event.CredentialsServiceManager}
	equal(t, "changes back", &event.Changes{
		Parameters: json.RawMessage(`{"machineType":"Standard_D4_v3"}`), LicenseType: true, Credentials: credentials,
	}, back.Update)
	equal(t, "machine type of the operation", any("Standard_D4_v3"), members(t, back.Parameters)["machineType"])

	larger := failed(parameters(map[string]any{"autoScalerMax": 30}))
	equal(t, "changes of the next update", map[string]any{"machineType": "Standard_D4_v3", "autoScalerMax": 30.0}, members(t, larger.Update.Parameters))
	equal(t, "autoScalerMax of the operation", any(30.0), members(t, larger.Parameters)["autoScalerMax"])

	b.hold(true)
	operation := b.accepted(b.patch("i", nil))
	equal(t, "the same update again", operation, b.accepted(b.patch("i", nil)))
	claimed, err := b.claim("i", operation, event.CredentialsServiceManager)
	if err != nil || strings.Contains(string(claimed.Credentials), "CANARY-second") {
		t.Errorf("claimed %s, %v; want the credentials of the order", claimed.Credentials, err)
	}
	b.hold(false)
	b.ended("i", operation, "succeeded")
	empty := b.newest("i")
	equal(t, "changes of an update without values", map[string]any{"machineType": "Standard_D4_v3", "autoScalerMax": 20.0}, members(t, empty.Update.Parameters))
	equal(t, "what is shown in the end", before, b.get("i").raw)
	b.expect("an update without values after one that succeeded", b.patch("i", nil), http.StatusOK)
}

// The instance does not have credentials that only a failed update had: a step could not claim them.
func TestUpdate_AfterFailedFirstCredentials_OmitsThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.bare("i")
	b.fail(event.Update, true)
	b.ended("i", b.accepted(b.patch("i", contextOf(nil))), "failed")
	b.fail(event.Update, false)
	got := b.updated("i", parameters(map[string]any{"autoScalerMax": 9}))
	equal(t, "changes", &event.Changes{Parameters: json.RawMessage(`{"autoScalerMax":9}`)}, got.Update)
	equal(t, "credentials of the operation", []string(nil), got.Credentials)
}

// The runtime may have the Secret of an update that failed, also after later updates.
func TestDeprovision_AfterFailedFirstCredentials_NamesThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.bare("i")
	b.fail(event.Update, true)
	b.ended("i", b.accepted(b.patch("i", contextOf(nil))), "failed")
	b.ended("i", b.accepted(b.patch("i", parameters(map[string]any{"autoScalerMax": 9}))), "failed")
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	equal(t, "credentials of the deprovisioning", []string{event.CredentialsServiceManager}, b.newest("i").Credentials)

	b.ended("t", b.accepted(b.put("t", with(order(trial), "context", bareContext()))), "succeeded")
	b.ended("t", b.accepted(b.patch("t", contextOf(nil))), "failed")
	b.ended("t", b.accepted(b.patch("t", active(false))), "succeeded")
	equal(t, "credentials of the suspension", []string{event.CredentialsServiceManager}, b.newest("t").Credentials)
	b.ended("t", b.accepted(b.patch("t", active(true))), "succeeded")
	equal(t, "credentials of the unsuspension", []string(nil), b.newest("t").Credentials)
}

// A retry of the failed update must not restore the old account.
func TestUpdate_MoveOfExpiredAfterFailure_IsOperation(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.SubaccountMovement = true })
	b.trial("i")
	b.fail(event.Update, true)
	b.ended("i", b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"new"}}))), "failed")
	b.fail(event.Update, false)
	b.exec(`UPDATE broker.instances SET expired_at = now()`)
	got := b.updated("i", map[string]any{"context": map[string]any{"globalaccount_id": "ga-2"}})
	equal(t, "account", "ga-2", got.Context.GlobalAccountID)
	b.rows("runtimes of the new global account", 1, `SELECT count(*) FROM broker.runtimes WHERE global_account_id = 'ga-2'`)
}

// The license type in the context belongs to the customer. It determines the network filter for any plan
// (docs/contracts/runtime-provisioner.md#licence-type-and-network-filter).
func TestOrder_PlanWithLicenceType_KeepsTheContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for id, plan := range map[string]string{"lite": azureLite, "trial": trial} {
		body := with(order(plan), "parameters", map[string]any{"name": "n", "licence_type": "mine"})
		body["context"].(map[string]any)["license_type"] = "TRIAL"
		b.ended(id, b.accepted(b.put(id, body)), "succeeded")
		equal(t, "license type of the order", "TRIAL", b.newest(id).Context.LicenseType)
		got := b.updated(id, map[string]any{"context": map[string]any{"license_type": "CUSTOMER"}})
		equal(t, "license type of the update", "CUSTOMER", got.Context.LicenseType)
		equal(t, "changes", &event.Changes{LicenseType: true}, got.Update)
		equal(t, "licence_type of the parameters", nil, members(t, got.Parameters)["licence_type"])
	}
}

func TestMaintenanceInfo_EmptyObject_IsNone(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]any{"": nil, "2.20.0": map[string]any{"version": "2.20.0"}} {
		b := newBench(t, func(c *broker.Config) { c.MaintenanceVersion = version })
		empty := map[string]any{"maintenance_info": map[string]any{}}
		b.ended("i", b.accepted(b.put("i", with(order(azure), "maintenance_info", empty["maintenance_info"]))), "succeeded")
		b.expect("update with version "+version, b.patch("i", empty), http.StatusOK)
		got, _ := b.get("i").body["maintenance_info"].(map[string]any)
		if version == "" && got != nil || version != "" && got["version"] != version {
			t.Errorf("with version %q: maintenance_info is %v, want %v", version, got, want)
		}
	}
}
