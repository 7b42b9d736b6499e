package test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/test/internal/harness"
)

// shape is what an update changes about a cluster.
type shape struct {
	MachineType                  string
	AutoScalerMin, AutoScalerMax int
	OIDCConfig                   struct{ ClientID, IssuerURL, UsernameClaim string }
}

// built is a cluster as it is at the Provisioner.
type built struct {
	ID             string
	Administrators []string
	GardenerConfig shape
}

func clusterOf(t *testing.T, sys *harness.System, o *harness.Order) built {
	t.Helper()
	clusters := sys.Objects("provisioner", "runtime", o.InstanceID)
	if len(clusters) != 1 {
		t.Fatalf("%d clusters, want 1", len(clusters))
	}
	b := built{ID: clusters[0].ID}
	clusters[0].Into(sys, &b)
	return b
}

// shown are the parameters of an instance, as the platform may read them.
func shown(t *testing.T, sys *harness.System, o *harness.Order) map[string]any {
	t.Helper()
	i, err := sys.Platform().GetInstance(t.Context(), o.InstanceID)
	require.NoError(t, err)
	var parameters map[string]any
	require.NoError(t, json.Unmarshal(i.Parameters, &parameters))
	return parameters
}

// plain is a value as JSON has it.
func plain(t *testing.T, v any) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(encode(t, v)), &out))
	return out
}

func parameters(of map[string]any) osbclient.Change { return osbclient.Change{Parameters: of} }

func TestUpdate_Parameters_ReachCluster(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	before, created := clusterOf(t, sys, o), sys.Created()
	want, wantShown := before, plain(t, o.Parameters)
	update := func(change map[string]any) {
		t.Helper()
		sys.PollEnd(o, sys.Update(o, parameters(change)), osb.StateSucceeded, limit)
		if diff := cmp.Diff(want, clusterOf(t, sys, o)); diff != "" {
			t.Errorf("the cluster after %v (-want +got):\n%s", change, diff)
		}
		if diff := cmp.Diff(wantShown, shown(t, sys, o)); diff != "" {
			t.Errorf("what is shown after %v (-want +got):\n%s", change, diff)
		}
	}

	// The machine type alone, which is to stay (docs/contracts/defects.md, number 10).
	want.GardenerConfig.MachineType, wantShown["machineType"] = "Standard_D8_v3", "Standard_D8_v3"
	update(map[string]any{"machineType": "Standard_D8_v3"})
	want.GardenerConfig.AutoScalerMin, want.GardenerConfig.AutoScalerMax = 4, 12
	wantShown["autoScalerMin"], wantShown["autoScalerMax"] = 4.0, 12.0
	want.GardenerConfig.OIDCConfig.ClientID = "11111111-a930-44e6-8c79-e6defeb7dec9"
	wantShown["oidc"].(map[string]any)["clientID"] = "11111111-a930-44e6-8c79-e6defeb7dec9"
	want.Administrators = []string{"john.doe@example.com", "jane.doe@example.com"}
	wantShown["administrators"] = []any{"john.doe@example.com", "jane.doe@example.com"}
	all := map[string]any{
		"autoScalerMin": 4, "autoScalerMax": 12, "oidc": map[string]any{"clientID": "11111111-a930-44e6-8c79-e6defeb7dec9"},
		"administrators": want.Administrators,
	}
	update(all)

	// Updates without a change start no operation.
	n := sys.OperationCount()
	sys.UpdateAtOnce(o, parameters(all))
	sys.UpdateAtOnce(o, osbclient.Change{})
	if got := sys.OperationCount(); got != n || n != 3 {
		t.Errorf("%d operations after updates that change nothing, %d before, want 3", got, n)
	}
	sys.Kill()
	sys.Start()
	if diff := cmp.Diff(wantShown, shown(t, sys, o)); diff != "" {
		t.Errorf("what is shown after a crash (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]harness.Footprint{harness.Complete()}, sys.Footprints([]*harness.Order{o})); diff != "" {
		t.Errorf("after the updates (-want +got):\n%s", diff)
	}
	after := sys.Created()
	for key := range harness.Complete().Created(1) {
		if after[key] != created[key] {
			t.Errorf("the updates have made %d of %s", after[key]-created[key], key)
		}
	}
}

// managed returns the Secret of the BTP manager in a runtime, read with a binding.
func managed(t *testing.T, sys *harness.System, o *harness.Order, binding string) map[string]string {
	t.Helper()
	b, err := sys.Platform().Bind(t.Context(), o.InstanceID, binding, osbclient.Bind{ServiceID: harness.ServiceID, PlanID: o.PlanID})
	require.NoError(t, err)
	server, token := userOf(t, b)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/api/v1/namespaces/kyma-system/secrets/sap-btp-manager", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	status, raw := answered(t, sys, request)
	var secret struct{ Data map[string][]byte }
	if err := json.Unmarshal([]byte(raw), &secret); err != nil || status != http.StatusOK {
		t.Fatalf("the Secret is answered %d, %v", status, err)
	}
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data
}

// answered sends a request and returns status and body of the answer.
func answered(t *testing.T, sys *harness.System, request *http.Request) (status int, body string) {
	t.Helper()
	response, err := sys.HTTP.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(raw)
}

func TestUpdate_Credentials_ReachRuntimeAndNoFile(t *testing.T) {
	t.Parallel()
	id, secret := harness.NewCanary(), harness.NewCanary()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	before := managed(t, sys, o, "before")
	if before["clientid"] != o.ClientID || before["clientsecret"] != o.ClientSecret {
		t.Fatalf("the credentials before the update are %q", before["clientid"])
	}

	o.ClientID, o.ClientSecret = id.String(), secret.String()
	sys.PollEnd(o, sys.Update(o, osbclient.Change{Context: o.Body().Context}), osb.StateSucceeded, limit)
	want := before
	want["clientid"], want["clientsecret"] = o.ClientID, o.ClientSecret
	if diff := cmp.Diff(want, managed(t, sys, o, "after")); diff != "" {
		t.Errorf("the Secret of the runtime (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]harness.Footprint{harness.Complete()}, sys.Footprints([]*harness.Order{o})); diff != "" {
		t.Errorf("after the update (-want +got):\n%s", diff)
	}
	// The same credentials again are no change.
	sys.UpdateAtOnce(o, osbclient.Change{Context: o.Body().Context})
	sys.Kill()
	look(t, sys, harness.NewCanaries(map[string]harness.Canary{"new client id": id, "new client secret": secret}))
	// A later deprovisioning can still read them.
	sys.Start()
	sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
	checkNothingLeft(t, sys, o)
}

// part is a component of a configuration.
type part struct {
	Component, Namespace, URL, Version string
	Configuration                      []map[string]any
}

// configuration returns the last configuration of an instance in the Reconciler, with masked secrets.
func configuration(t *testing.T, sys *harness.System, o *harness.Order) (whole map[string]any, parts map[string]part) {
	t.Helper()
	clusters := sys.Objects("reconciler", "cluster", o.InstanceID)
	if len(clusters) != 1 {
		t.Fatalf("%d clusters, want 1", len(clusters))
	}
	var c struct {
		RuntimeInput, KymaConfig, Metadata map[string]any
		Kubeconfig                         string
	}
	clusters[0].Into(sys, &c)
	var k struct{ Components []part }
	require.NoError(t, json.Unmarshal([]byte(encode(t, c.KymaConfig)), &k))
	parts = map[string]part{}
	for _, p := range k.Components {
		parts[p.Component] = p
	}
	return plain(t, c), parts
}

// The seed has overrides in Secrets and ConfigMaps, for all components and for some.
func TestCredentialUpdate_Killed_ChangesOnlyBTPOperator(t *testing.T) {
	t.Parallel()
	id, secret := harness.NewCanary(), harness.NewCanary()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	before, was := configuration(t, sys, o)
	if len(was["istio"].Configuration) < 4 || len(was["serverless"].Configuration) < 4 {
		t.Fatalf("before there are hardly any overrides: %v", was)
	}

	o.ClientID, o.ClientSecret = id.String(), secret.String()
	sys.Fault("reconciler", outage)
	update := sys.Update(o, osbclient.Change{Context: o.Body().Context})
	sys.Await(update, limit, "a retry of Apply_Reconciler_Configuration", func(op *harness.Operation) bool {
		return op.At(t, "Apply_Reconciler_Configuration").Attempts > 1
	})
	sys.Kill() // the values are marked, and the call has failed
	sys.Start()
	sys.Fault("reconciler", healthy)
	sys.PollEnd(o, update, osb.StateSucceeded, limit)

	after, is := configuration(t, sys, o)
	btp := is["btp-operator"]
	if len(btp.Configuration) != 7 || btp.Namespace != was["btp-operator"].Namespace {
		t.Errorf("the BTP operator is %+v", btp)
	}
	for name := range is {
		if name == "btp-operator" {
			continue
		}
		if diff := cmp.Diff(was[name], is[name]); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
	for _, c := range []map[string]any{before, after} {
		c["KymaConfig"].(map[string]any)["components"] = nil
	}
	if diff := cmp.Diff(before, after); diff != "" || len(is) != len(was) {
		t.Errorf("besides the components, of which there are %d and were %d (-before +after):\n%s", len(is), len(was), diff)
	}
	sys.Kill()
	canaries := harness.NewCanaries(map[string]harness.Canary{"new client id": id, "new client secret": secret})
	journal, err := os.ReadFile(filepath.Join(sys.DataDir, "landscape", "reconciler.jsonl"))
	if err != nil || len(canaries.In(journal)) != 2 {
		t.Errorf("the Reconciler has got the %v, %v", canaries.In(journal), err)
	}
	look(t, sys, canaries)
}

func TestUpdate_Fails_CanBeRepeated(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	before := clusterOf(t, sys, o)
	change := parameters(map[string]any{"machineType": "Standard_D8_v3", "autoScalerMax": 12})

	sys.Fail("provisioner", o.InstanceID)
	failed := sys.Update(o, change)
	last := sys.PollEnd(o, failed, osb.StateFailed, limit)
	if last.InstanceUsable == nil || !*last.InstanceUsable || last.UpdateRepeatable == nil || !*last.UpdateRepeatable {
		t.Errorf("the failed update is told as %+v, want it usable and repeatable", last)
	}
	if !strings.Contains(last.Description, "a quota of the hyperscaler account is used up") || strings.Contains(last.Description, "Check_Runtime") {
		t.Errorf("the description is %q, want the cause without a step", last.Description)
	}
	if diff := cmp.Diff(plain(t, o.Parameters), shown(t, sys, o)); diff != "" {
		t.Errorf("what is shown after the failure (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, clusterOf(t, sys, o)); diff != "" {
		t.Errorf("the cluster after the failure (-want +got):\n%s", diff)
	}
	if found := sys.Runtimes(o, ""); len(found) != 1 || found[0].Status.State != "error" {
		t.Errorf("the runtimes are %+v, want one in error", found)
	}

	sys.Fail("provisioner", "")
	again := sys.Update(o, change)
	if again == failed {
		t.Error("the repeated update is the failed operation")
	}
	sys.PollEnd(o, again, osb.StateSucceeded, limit)
	if got := shown(t, sys, o); got["machineType"] != "Standard_D8_v3" || got["autoScalerMax"] != 12.0 {
		t.Errorf("what is shown after the second try: %v", got)
	}
	if got := clusterOf(t, sys, o).GardenerConfig; got.MachineType != "Standard_D8_v3" || got.AutoScalerMax != 12 {
		t.Errorf("the cluster after the second try: %+v", got)
	}
	if found := sys.Runtimes(o, ""); len(found) != 1 || found[0].Status.State != "succeeded" {
		t.Errorf("the runtimes are %+v, want one that succeeded", found)
	}
}

// An update that fails after it has changed the cluster: the runtime and what is shown agree again after an update back to the old values.
func TestUpdate_BackAfterFailedUpdate_RestoresTheCluster(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	before, secret, wanted := clusterOf(t, sys, o), managed(t, sys, o, "before"), plain(t, o.Parameters)

	sys.Fail("reconciler", o.InstanceID)
	other := *o
	other.ClientID, other.ClientSecret = harness.NewCanary().String(), harness.NewCanary().String()
	change := parameters(map[string]any{"machineType": "Standard_D8_v3"})
	change.Context = other.Body().Context
	failed := sys.Update(o, change)
	sys.PollEnd(o, failed, osb.StateFailed, limit)
	if got := clusterOf(t, sys, o).GardenerConfig.MachineType; got != "Standard_D8_v3" {
		t.Fatalf("the failed update has left machine type %s, want the new one", got)
	}
	if diff := cmp.Diff(wanted, shown(t, sys, o)); diff != "" {
		t.Errorf("what is shown after the failure (-want +got):\n%s", diff)
	}

	sys.Fail("reconciler", "")
	back := sys.Update(o, parameters(map[string]any{"machineType": before.GardenerConfig.MachineType}))
	sys.PollEnd(o, back, osb.StateSucceeded, limit)
	if diff := cmp.Diff(before, clusterOf(t, sys, o)); diff != "" {
		t.Errorf("the cluster after the update back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(secret, managed(t, sys, o, "after")); diff != "" {
		t.Errorf("the Secret of the runtime after the update back (-want +got):\n%s", diff)
	}
	shownBack := shown(t, sys, o)
	wanted["machineType"] = before.GardenerConfig.MachineType
	if diff := cmp.Diff(wanted, shownBack); diff != "" {
		t.Errorf("what is shown after the update back (-want +got):\n%s", diff)
	}
	said := keb(t, sys, nil, 1, "operation", failed, "retry")
	if want := "the instance has the newer operation " + back; !strings.Contains(said, want) {
		t.Errorf("keb says %q about a retry of the failed update, want %q", said, want)
	}
	sys.UpdateAtOnce(o, osbclient.Change{})
}
