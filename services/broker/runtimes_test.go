package broker_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	brokerapi "github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// runtimeList is the response of GET /runtimes.
type runtimeList struct{ brokerapi.RuntimeList }

func (b *bench) runtimes(query string) runtimeList {
	b.t.Helper()
	a := b.send(http.MethodGet, "/runtimes"+query, nil)
	if a.status != http.StatusOK {
		b.t.Fatalf("GET /runtimes%s: status %d %s", query, a.status, a.raw)
	}
	var l runtimeList
	require.NoError(b.t, json.Unmarshal([]byte(a.raw), &l))
	if l.Count != len(l.Data) {
		b.t.Errorf("count is %d for %d runtimes", l.Count, len(l.Data))
	}
	return l
}

func (l runtimeList) ids() []string {
	out := []string{}
	for _, r := range l.Data {
		out = append(out, r.InstanceID)
	}
	slices.Sort(out)
	return out
}

func TestRuntimes_Provisioned_IsShown(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.orch.set(func() {
		b.orch.details = json.RawMessage(`{"provisioner":{"runtimeId":"rt-1"},"avs":{"internalId":42},"kyma":{"version":"2.21.3"},"hyperscaler":{"targetSecret":"azure-7"}}`)
	})
	operation := b.accepted(b.put("i", order(azure)))
	b.ended("i", operation, "succeeded")
	l := b.runtimes("?kyma_config=true&cluster_config=true")
	if l.Count != 1 || l.TotalCount != 1 {
		t.Fatalf("%d of %d runtimes", l.Count, l.TotalCount)
	}
	got := l.Data[0]
	if s := got.Status; s.CreatedAt.IsZero() || s.ModifiedAt.Before(s.CreatedAt) || got.ShootName == "" || len(got.ClusterConfig.OIDC) == 0 {
		t.Errorf("listed is %+v", got)
	}
	want := brokerapi.Runtime{
		InstanceID: "i", RuntimeID: "rt-1", GlobalAccountID: "ga-1", SubscriptionAccountID: "ga-1", SubAccountID: "sa-1", Region: "eastus",
		PlatformRegion: "cf-eu10", ShootName: got.ShootName, ServiceID: serviceID, ServiceName: "kymaruntime", ServicePlanID: azure,
		ServicePlanName: "azure", Provider: "azure", UserID: "user@example.org", InternalAVS: 42, KymaVersion: "2.21.3",
		Status: brokerapi.Status{State: brokerapi.RuntimeSucceeded, Provisioning: &brokerapi.Operation{
			State: "succeeded", Type: event.Provision, OperationID: operation,
		}},
		KymaConfig: &brokerapi.KymaConfig{Version: "2.21.3"},
		ClusterConfig: &brokerapi.ClusterConfig{
			Name: got.ShootName, Provider: "azure", Region: "eastus", TargetSecret: "azure-7", MachineType: "Standard_D4_v3",
			VolumeSizeGB: 50, AutoScalerMin: 3, AutoScalerMax: 20, Administrators: []string{"user@example.org"},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(time.Time{}), cmpopts.IgnoreFields(brokerapi.Operation{}, "Description"),
		cmpopts.IgnoreFields(brokerapi.ClusterConfig{}, "OIDC")); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if r := b.runtimes("").Data[0]; r.KymaConfig != nil || r.ClusterConfig != nil {
		t.Error("configurations are shown unasked")
	}
	if raw := b.send(http.MethodGet, "/runtimes?kyma_config=true&gardener_config=true&state=all", nil).raw; strings.Contains(raw, canary) {
		t.Error("a secret is shown")
	}
}

func TestRuntimes_Filter_SelectsRuntimes(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	put := func(id, plan, account, subaccount string) {
		body := order(plan)
		context := accountContext()
		context["globalaccount_id"], context["subaccount_id"] = account, subaccount
		body["context"] = context
		b.ended(id, b.accepted(b.put(id, body)), "succeeded")
	}
	put("a", azure, "ga-1", "sa-1")
	put("b", aws, "ga-1", "sa-2")
	put("c", aws, "ga-2", "sa-3")
	put("gone", azure, "ga-2", "sa-3")
	b.ended("gone", b.accepted(b.delete("gone")), "succeeded")
	put("left", azure, "ga-1", "sa-1")
	b.orch.set(func() { b.orch.exhausted = true })
	b.ended("left", b.accepted(b.delete("left")), "succeeded")
	b.fail(event.Provision, true)
	b.ended("broken", b.accepted(b.put("broken", order(azure))), "failed")
	b.exec(`UPDATE broker.instances SET expired_at = now() WHERE id = 'b'`)
	b.exec(`SELECT broker.refresh_runtimes(ARRAY['b'])`)
	shoot := b.runtimes("?instance_id=c").Data[0].ShootName
	for query, want := range map[string][]string{
		"":                             {"a", "b", "broken", "c"},
		"?state=all":                   {"a", "b", "broken", "c", "gone", "left"},
		"?state=succeeded":             {"a", "b", "c"},
		"?state=failed":                {"broken"},
		"?state=deprovisioned":         {"gone"},
		"?state=deprovisionincomplete": {"left"},
		"?state=failed&state=deprovisionincomplete": {"broken", "left"},
		"?account=ga-1":                        {"a", "b", "broken"},
		"?account=ga-1&account=ga-2":           {"a", "b", "broken", "c"},
		"?account=ga-1&plan=aws":               {"b"},
		"?plan=aws&plan=azure&subaccount=sa-3": {"c"},
		"?subaccount=sa-3&state=all":           {"c", "gone"},
		"?instance_id=a&instance_id=c":         {"a", "c"},
		"?region=eu-central-1":                 {"b", "c"},
		"?shoot=" + shoot:                      {"c"},
		"?runtime_id=unknown":                  {},
		"?expired=true":                        {"b"},
		"?expired=false&op_detail=last":        {"a", "b", "broken", "c"},
	} {
		l := b.runtimes(query)
		if got := l.ids(); !slices.Equal(got, want) || l.TotalCount != len(want) {
			t.Errorf("%q: %v of %d, want %v", query, got, l.TotalCount, want)
		}
	}
	first, second := b.runtimes("?page_size=3"), b.runtimes("?page_size=3&page=2")
	if got := append(first.ids(), second.ids()...); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b", "broken", "c"}) || second.TotalCount != 4 {
		t.Errorf("pages hold %v, of %d", got, second.TotalCount)
	}
	if l := b.runtimes("?page=9"); l.Count != 0 || l.TotalCount != 4 {
		t.Errorf("page 9 holds %d of %d", l.Count, l.TotalCount)
	}
	left := b.runtimes("?instance_id=left&state=all").Data[0]
	if d := left.Status.Deprovisioning; d == nil || !slices.Equal(d.NotCompleted, []string{"EDP_Deregistration"}) || left.Status.DeletedAt.IsZero() {
		t.Errorf("what is left: %+v", left.Status)
	}
	gone := b.runtimes("?instance_id=gone&state=all&cluster_config=true&kyma_config=true").Data[0]
	if gone.UserID != "" || gone.Status.Provisioning == nil || gone.Status.Deprovisioning == nil || gone.Status.DeletedAt.IsZero() || gone.ClusterConfig != nil {
		t.Errorf("what is gone: %+v", gone)
	}
}

func TestRuntimes_OneLeavesBetweenPages_MissesNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	want := []string{"a", "b", "c", "d", "e"}
	for _, id := range want {
		b.provisioned(id)
	}
	after := func(l runtimeList) string {
		last := l.Data[len(l.Data)-1]
		return "&after=" + last.Status.CreatedAt.Format(time.RFC3339Nano) + "," + last.InstanceID
	}
	first := b.runtimes("?page_size=2")
	b.ended("a", b.accepted(b.delete("a")), "succeeded")
	second := b.runtimes("?page_size=2" + after(first))
	last := b.runtimes("?page_size=2" + after(second))
	if got := slices.Concat(first.ids(), second.ids(), last.ids()); !slices.Equal(got, want) || last.TotalCount != 4 {
		t.Errorf("pages hold %v, of %d; want %v", got, last.TotalCount, want)
	}
}

func TestRuntimes_InvalidParameter_IsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for query, want := range map[string]string{
		"page=0": "page", "page=x": "page", "page=1&page=2": "page", "page_size=101": "page_size", "page_size=-1": "page_size",
		"after=": "after", "after=2026-11-21,i": "after", "after=2026-11-21T22:00:00Z": "after", "after=2026-11-21T22:00:00Z,%00": "after",
		"after=2026-11-21T22:00:00Z,i&page=2": "page", "page_size=": "page_size", "state=dead": "state", "expired=yes": "expired", "op_detail=first": "op_detail",
		"kyma_config=1": "kyma_config", "cluster_config=": "cluster_config", "account=": "account", "account=%00": "account",
		"shoot=%ff": "shoot", "accounts=ga-1": `"accounts"`, "account=" + strings.Repeat("x", 600): "account", "%zz": "query",
	} {
		a := b.send(http.MethodGet, "/runtimes?"+query, nil)
		if a.status != http.StatusBadRequest || !strings.Contains(a.text("error"), want) || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%q: status %d %s, want 400 that names %s", query, a.status, a.raw, want)
		}
	}
	if a := b.send(http.MethodPost, "/runtimes", nil); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != http.MethodGet {
		t.Errorf("POST: status %d, Allow %q", a.status, a.header.Get("Allow"))
	}
}

func TestInfo_SeveralPages_ListsEveryRuntime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if a := b.send(http.MethodGet, "/info/runtimes", nil); a.status != http.StatusOK || a.raw != "[]" {
		t.Errorf("without any: status %d %s", a.status, a.raw)
	}
	b.provisioned("i")
	b.provisioned("gone")
	b.ended("gone", b.accepted(b.delete("gone")), "succeeded")
	// The instances need several pages, and all have the same creation time.
	const many = 1203
	b.exec(`INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime, parameters,
			effective_parameters, dashboard_url, request_hash, operation_id, created_at)
		SELECT 'x' || n, service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters, dashboard_url,
			request_hash, operation_id, '2026-01-01' FROM broker.instances, generate_series(1, $1) AS n WHERE id = 'i'`, many)
	b.exec(`SELECT broker.refresh_runtimes(ARRAY(SELECT id FROM broker.instances))`)
	var items []struct {
		InstanceID string `json:"serviceInstanceId"`
		PlanName   string `json:"servicePlanName"`
		Account    string `json:"globalAccountId"`
		Status     struct {
			Provisioning struct{ State, Description string }
		}
	}
	a := b.send(http.MethodGet, "/info/runtimes", nil)
	require.NoErrorf(t, json.Unmarshal([]byte(a.raw), &items), "status %d", a.status)
	seen := make(map[string]bool)
	for _, i := range items {
		seen[i.InstanceID] = true
	}
	last := items[len(items)-1]
	if len(items) != many+1 || len(seen) != many+1 || seen["gone"] {
		t.Errorf("%d items of %d instances, gone %t", len(items), len(seen), seen["gone"])
	}
	if last.InstanceID != "i" || last.PlanName != "azure" || last.Account != "ga-1" || last.Status.Provisioning.State != "succeeded" {
		t.Errorf("the newest is %+v", last)
	}
}

func TestRuntimes_DatabaseIsDown_Returns503(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.database.Cut()
	for _, path := range []string{"/runtimes", "/info/runtimes"} {
		if a := b.send(http.MethodGet, path, nil); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d %s", path, a.status, a.raw)
		}
	}
}

// instances queries the instances of the broker.
func (b *bench) instances(q event.InstancesRequest) (event.InstancesAnswer, error) {
	var a event.InstancesAnswer
	err := b.ask(event.AskInstances, q, &a)
	return a, err
}

func TestAskInstances_SeveralPages_ReturnsAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.orch.set(func() {
		b.orch.details = json.RawMessage(`{"provisioner":{"runtimeId":"rt-1","kubernetesVersion":"1.33.2"},"kyma":{"version":"2.20.0"}}`)
	})
	for _, id := range []string{"b", "a", "c", "gone", "left"} {
		b.provisioned(id)
	}
	b.ended("gone", b.accepted(b.delete("gone")), "succeeded")
	b.orch.set(func() { b.orch.exhausted, b.orch.failing[event.Provision] = true, true })
	b.ended("left", b.accepted(b.delete("left")), "succeeded")
	b.ended("failed", b.accepted(b.put("failed", order(aws))), "failed")
	var got []string
	after := ""
	for {
		page, err := b.instances(event.InstancesRequest{After: after, Limit: 2})
		if isFirst := after == ""; slices.Contains(page.Plans, "own_cluster") != isFirst {
			t.Errorf("plans after %q: %v", after, page.Plans)
		}
		require.NoError(t, err)
		for _, i := range page.Instances {
			got = append(got, i.InstanceID+" "+string(i.State))
		}
		if after = page.Next; after == "" {
			break
		}
	}
	want := []string{"a provisioned", "b provisioned", "c provisioned", "failed failed", "left deleted"}
	if !slices.Equal(got, want) {
		t.Errorf("instances are %v, want %v", got, want)
	}
	page, err := b.instances(event.InstancesRequest{IDs: []string{"c", "unknown", "a"}, Limit: 1000})
	if err != nil || len(page.Instances) != 2 || page.Next != "" || !page.Versions {
		t.Fatalf("of two: %+v, %v", page, err)
	}
	i := page.Instances[0]
	if i.InstanceID != "a" || i.RuntimeID != "rt-1" || i.Plan.Name != "azure" || i.GlobalAccountID != "ga-1" || i.SubaccountID != "sa-1" || i.Runtime.ShootName == "" ||
		i.KymaVersion != "2.20.0" || i.KubernetesVersion != "1.33.2" || i.Failed {
		t.Errorf("instance is %+v", i)
	}
	for want, q := range map[string]event.InstancesRequest{
		"limit": {Limit: 1001}, "limit 0": {}, "ids": {Limit: 1, IDs: make([]string, 1001)}, "ids[0]": {Limit: 1, IDs: []string{""}},
		"after": {Limit: 1, After: "\x00"},
	} {
		if _, err := b.instances(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error is %v, want one that names %s", q.Limit, err, want)
		}
	}
}

func TestRetrigger_StepNotCompleted_StartsAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	retrigger := func(id, query string) answer {
		return b.send(http.MethodPost, "/runtimes/"+id+"/deprovision-retrigger"+query, nil, "User-Agent", "retrigger-job")
	}
	b.provisioned("i")
	b.orch.set(func() { b.orch.exhausted = true })
	// The removal of the account's objects depends on the client that deleted the instance, even if the deprovisioning is repeated.
	b.ended("i", b.accepted(b.send(http.MethodDelete, "/v2/service_instances/i?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+azure,
		nil, "User-Agent", "accountcleanup-job")), "succeeded")
	b.provisioned("there")
	b.provisioned("gone")
	b.orch.set(func() { b.orch.exhausted = false })
	b.ended("gone", b.accepted(b.delete("gone")), "succeeded")
	for id, want := range map[string]int{"there": http.StatusConflict, "gone": http.StatusConflict, "unknown": http.StatusNotFound} {
		for _, query := range []string{"", "?dry_run=true"} {
			if a := retrigger(id, query); a.status != want || a.text("error") == "" {
				t.Errorf("%s%s: status %d %s, want %d with a reason", id, query, a.status, a.raw, want)
			}
		}
	}
	for _, query := range []string{"?dry_run=maybe", "?dryrun=true"} {
		if a := retrigger("i", query); a.status != http.StatusBadRequest || !strings.Contains(a.text("error"), "dry") {
			t.Errorf("%s: status %d %s", query, a.status, a.raw)
		}
	}
	if a := retrigger("i", "?dry_run=true"); a.status != http.StatusOK || !strings.Contains(a.raw, "EDP_Deregistration") {
		t.Errorf("dry run: status %d %s", a.status, a.raw)
	}
	if n := len(b.orch.received("i")); n != 2 {
		t.Fatalf("%d operations after the dry run", n)
	}
	b.hold(true)
	operation := b.accepted(retrigger("i", ""))
	if again := b.accepted(retrigger("i", "")); again != operation {
		t.Errorf("a second one, %s, runs beside %s", again, operation)
	}
	// For the platform the instance stays deleted.
	b.expect("GET", b.get("i"), 404)
	b.expect("DELETE", b.delete("i"), 410)
	b.hold(false)
	b.ended("i", operation, "succeeded")
	received := b.orch.received("i")
	if last := received[len(received)-1]; len(received) != 3 || last.Type != event.Deprovision || last.UserAgent != "accountcleanup-job" {
		t.Errorf("%d operations, the last by %q", len(received), last.UserAgent)
	}
	b.rows("instances in the end", 0, `SELECT count(*) FROM broker.instances WHERE id = 'i'`)
	b.expect("once it is done", retrigger("i", ""), http.StatusConflict)
	testkit.Eventually(t, waitTimeout, "the state in the list", func() bool {
		return b.runtimes("?instance_id=i&state=deprovisioned").TotalCount == 1
	})
}

// An earlier release accepted parameters of wrong types. Such an instance must not hide the others from operators.
func TestRuntimes_ParameterOfWrongType_ListsTheRest(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for id, odd := range map[string]string{
		"components": `{"components":"all"}`, "case": `{"MachineType":5,"ZONES":true}`, "number": `{"AUTOSCALERMIN":1.5}`,
	} {
		b.provisioned(id)
		b.exec(`UPDATE broker.instances SET effective_parameters = (effective_parameters::jsonb || $2::jsonb)::json WHERE id = $1`, id, odd)
	}
	list := b.runtimes("?kyma_config=true&cluster_config=true")
	if list.TotalCount != 3 {
		t.Fatalf("%d runtimes", list.TotalCount)
	}
	for _, r := range list.Data {
		if c := r.ClusterConfig; c.MachineType != "Standard_D4_v3" || c.AutoScalerMax != 20 {
			t.Errorf("%s: cluster is %v", r.InstanceID, c)
		}
	}
	b.expect("GET", b.send(http.MethodGet, "/info/runtimes", nil), http.StatusOK)
}
