package broker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// runtimeList is the response of GET /runtimes.
type runtimeList struct {
	Data       []runtimeItem `json:"data"`
	Count      int           `json:"count"`
	TotalCount int           `json:"totalCount"`
}

type runtimeItem struct {
	InstanceID       string         `json:"instanceID"`
	RuntimeID        string         `json:"runtimeID"`
	GlobalAccountID  string         `json:"globalAccountID"`
	SubscriptionID   string         `json:"subscriptionGlobalAccountID"`
	SubAccountID     string         `json:"subAccountID"`
	Region           string         `json:"region"`
	SubAccountRegion string         `json:"subAccountRegion"`
	ShootName        string         `json:"shootName"`
	ServiceClassID   string         `json:"serviceClassID"`
	ServiceClassName string         `json:"serviceClassName"`
	ServicePlanID    string         `json:"servicePlanID"`
	ServicePlanName  string         `json:"servicePlanName"`
	Provider         string         `json:"provider"`
	UserID           string         `json:"userID"`
	AVS              int            `json:"avsInternalEvaluationID"`
	KymaVersion      string         `json:"kymaVersion"`
	KymaConfig       map[string]any `json:"kymaConfig"`
	ClusterConfig    map[string]any `json:"clusterConfig"`
	Status           struct {
		CreatedAt      time.Time     `json:"createdAt"`
		ModifiedAt     time.Time     `json:"modifiedAt"`
		ExpiredAt      *time.Time    `json:"expiredAt"`
		DeletedAt      *time.Time    `json:"deletedAt"`
		State          string        `json:"state"`
		Provisioning   *operationDTO `json:"provisioning"`
		Deprovisioning *operationDTO `json:"deprovisioning"`
		UpgradingKyma  *struct {
			Data              []operationDTO `json:"data"`
			TotalCount, Count int
		} `json:"upgradingKyma"`
	} `json:"status"`
}

type operationDTO struct {
	DryRun          bool     `json:"dryRun"`
	State           string   `json:"state"`
	Type            string   `json:"type"`
	Description     string   `json:"description"`
	OperationID     string   `json:"operationID"`
	OrchestrationID string   `json:"orchestrationID"`
	RuntimeVersion  string   `json:"runtimeVersion"`
	NotCompleted    []string `json:"executedButNotCompletedSteps"`
}

func (b *bench) runtimes(query string) runtimeList {
	b.t.Helper()
	a := b.send(http.MethodGet, "/runtimes"+query, nil)
	if a.status != http.StatusOK {
		b.t.Fatalf("GET /runtimes%s: status %d %s", query, a.status, a.raw)
	}
	var l runtimeList
	if err := json.Unmarshal([]byte(a.raw), &l); err != nil {
		b.t.Fatal(err)
	}
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
	r := l.Data[0]
	for what, got := range map[string][2]string{
		"instance": {r.InstanceID, "i"}, "runtime": {r.RuntimeID, "rt-1"}, "account": {r.GlobalAccountID, "ga-1"},
		"subscription": {r.SubscriptionID, "ga-1"}, "subaccount": {r.SubAccountID, "sa-1"}, "region": {r.Region, "eastus"},
		"platform region": {r.SubAccountRegion, "cf-eu10"}, "service id": {r.ServiceClassID, serviceID},
		"service": {r.ServiceClassName, "kymaruntime"}, "plan id": {r.ServicePlanID, azure}, "plan": {r.ServicePlanName, "azure"},
		"provider": {r.Provider, "azure"}, "user": {r.UserID, "user@example.org"}, "version": {r.KymaVersion, "2.21.3"},
		"state": {r.Status.State, "succeeded"}, "operation": {r.Status.Provisioning.OperationID, operation},
		"operation state": {r.Status.Provisioning.State, "succeeded"}, "type": {r.Status.Provisioning.Type, "provision"},
		"kyma config":    {fmt.Sprint(r.KymaConfig["version"]), "2.21.3"},
		"cluster config": {fmt.Sprintf("%v %v %v", r.ClusterConfig["name"], r.ClusterConfig["autoScalerMin"], r.ClusterConfig["targetSecret"]), r.ShootName + " 3 azure-7"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", what, got[0], got[1])
		}
	}
	if r.AVS != 42 || r.Status.CreatedAt.IsZero() || r.Status.ModifiedAt.Before(r.Status.CreatedAt) || r.Status.DeletedAt != nil {
		t.Errorf("evaluation %d, status %+v", r.AVS, r.Status)
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
	b.orch.set(func() { b.orch.failing[event.Provision] = true })
	b.ended("broken", b.accepted(b.put("broken", order(azure))), "failed")
	for _, statement := range []string{
		`UPDATE broker.instances SET expired_at = now() WHERE id = 'b'`, `SELECT broker.refresh_runtimes(ARRAY['b'])`,
	} {
		if _, err := b.db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
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
	if d := left.Status.Deprovisioning; d == nil || !slices.Equal(d.NotCompleted, []string{"EDP_Deregistration"}) || left.Status.DeletedAt == nil {
		t.Errorf("what is left: %+v", left.Status)
	}
	gone := b.runtimes("?instance_id=gone&state=all&cluster_config=true&kyma_config=true").Data[0]
	if gone.UserID != "" || gone.Status.Provisioning == nil || gone.Status.Deprovisioning == nil || gone.Status.DeletedAt == nil || gone.ClusterConfig != nil {
		t.Errorf("what is gone: %+v", gone)
	}
}

func TestRuntimes_InvalidParameter_IsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for query, want := range map[string]string{
		"page=0": "page", "page=x": "page", "page=1&page=2": "page", "page_size=101": "page_size", "page_size=-1": "page_size",
		"page_size=": "page_size", "state=dead": "state", "expired=yes": "expired", "op_detail=first": "op_detail",
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

func TestRuntimes_NoCredentials_Returns401(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for path, method := range map[string]string{
		"/runtimes": http.MethodGet, "/info/runtimes": http.MethodGet, "/runtimes/i/deprovision-retrigger": http.MethodPost,
	} {
		for _, header := range []string{"", "Basic a2ViOndyb25n", "Bearer x"} {
			a := b.send(method, path, nil, "Authorization", header)
			if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %q: status %d %s", path, header, a.status, a.raw)
			}
		}
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
	if _, err := b.db.Exec(`INSERT INTO broker.instances (id, service_id, plan_id, plan_name, context, runtime, parameters,
			effective_parameters, dashboard_url, request_hash, operation_id, created_at)
		SELECT 'x' || n, service_id, plan_id, plan_name, context, runtime, parameters, effective_parameters, dashboard_url,
			request_hash, operation_id, '2026-01-01' FROM broker.instances, generate_series(1, $1) AS n WHERE id = 'i'`, many); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.Exec(`SELECT broker.refresh_runtimes(ARRAY(SELECT id FROM broker.instances))`); err != nil {
		t.Fatal(err)
	}
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
	b.orch.set(func() { b.orch.held = true })
	operation := b.accepted(retrigger("i", ""))
	if again := b.accepted(retrigger("i", "")); again != operation {
		t.Errorf("a second one, %s, runs beside %s", again, operation)
	}
	// For the platform the instance stays deleted.
	for what, got := range map[string][2]int{
		"GET": {b.send("GET", "/v2/service_instances/i", nil).status, 404}, "DELETE": {b.delete("i").status, 410},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: status %d, want %d", what, got[0], got[1])
		}
	}
	b.orch.set(func() { b.orch.held = false })
	b.ended("i", operation, "succeeded")
	received := b.orch.received("i")
	if last := received[len(received)-1]; len(received) != 3 || last.Type != event.Deprovision || last.UserAgent != "accountcleanup-job" {
		t.Errorf("%d operations, the last by %q", len(received), last.UserAgent)
	}
	if n := b.count(`SELECT count(*) FROM broker.instances WHERE id = 'i'`); n != 0 {
		t.Error("the instance is still there")
	}
	if a := retrigger("i", ""); a.status != http.StatusConflict {
		t.Errorf("once it is done: status %d %s", a.status, a.raw)
	}
	testkit.Eventually(t, waitTimeout, "the state in the list", func() bool {
		return b.runtimes("?instance_id=i&state=deprovisioned").TotalCount == 1
	})
}
