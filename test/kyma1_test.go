package test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/test/internal/harness"
)

// kyma1 is the overlay that comes with the orchestrator.
const kyma1 = "../services/orchestrator/processes/overlays"

// What is made in the landscape for Kyma 1 only, and for Kyma 2 only.
var (
	kyma1Kinds = []string{"lms/tenant", "lms/certificate", "ias/serviceProvider", "azure/resourceGroup", "azure/namespace"}
	kyma2Kinds = []string{"reconciler/cluster", "control-plane/Kyma", "control-plane/Secret", "runtimes/Secret"}
)

// counts are those of the kinds that have changed since before.
func counts(counted, before map[string]int, kinds ...[]string) map[string]int {
	out := map[string]int{}
	for _, kind := range slices.Concat(kinds...) {
		if n := counted[kind] - before[kind]; n != 0 {
			out[kind] = n
		}
	}
	return out
}

// overrides are those that the runtime was ordered with, by component and key.
func overrides(t *testing.T, sys *harness.System, o *harness.Order) map[string]map[string]string {
	t.Helper()
	clusters := sys.Objects("provisioner", "runtime", o.InstanceID)
	if len(clusters) != 1 {
		t.Fatalf("%d clusters, want 1", len(clusters))
	}
	var cluster struct {
		KymaConfig struct {
			Version    string
			Components []struct {
				Component     string
				Configuration []struct{ Key, Value string }
			}
		}
	}
	clusters[0].Into(sys, &cluster)
	if cluster.KymaConfig.Version == "" {
		t.Fatalf("the Provisioner was not asked for Kyma: %s", clusters[0].Raw)
	}
	all := map[string]map[string]string{}
	for _, c := range cluster.KymaConfig.Components {
		all[c.Component] = map[string]string{}
		for _, entry := range c.Configuration {
			all[c.Component][entry.Key] = entry.Value
		}
	}
	return all
}

func TestKyma1_ProvisionDeprovision_Succeeds(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Overlays: []string{kyma1}})
	o := harness.Azure()
	made, there := sys.Created(), sys.Holds()
	provision := sys.Provision(o)
	sys.PollEnd(o, provision, osb.StateSucceeded, limit)
	if op := sys.Operation(provision); len(op.NotCompleted) > 0 || len(op.RanAgain()) > 0 {
		t.Errorf("not completed: %v, ran again: %v", op.NotCompleted, op.RanAgain())
	}
	once := map[string]int{"lms/tenant": 1, "lms/certificate": 1, "ias/serviceProvider": 2, "azure/resourceGroup": 1, "azure/namespace": 1}
	for name, counted := range map[string]map[string]int{
		"made": counts(sys.Created(), made, kyma1Kinds, kyma2Kinds), "there": counts(sys.Holds(), there, kyma1Kinds, kyma2Kinds),
	} {
		if diff := cmp.Diff(once, counted); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	with := harness.Complete()
	for _, kind := range kyma2Kinds {
		delete(with, kind)
	}
	checkFootprint(t, sys, o, with)
	// IAS has one provider for Grafana and one for Dex.
	for _, named := range []struct {
		system, kind string
		count        int
	}{{"ias", "serviceProvider", 2}, {"azure", "resourceGroup", 1}} {
		if n := len(sys.Objects(named.system, named.kind, o.InstanceID)); n != named.count {
			t.Errorf("%s has %d objects %s that name the instance, want %d", named.system, n, named.kind, named.count)
		}
	}
	checkKyma1(t, sys, o)

	// A second runtime of the same account shares the tenant, and nothing else.
	second := harness.Azure()
	second.GlobalAccount = o.GlobalAccount
	sys.PollEnd(second, sys.Provision(second), osb.StateSucceeded, limit)
	twice := map[string]int{"lms/tenant": 1, "lms/certificate": 2, "ias/serviceProvider": 4, "azure/resourceGroup": 2, "azure/namespace": 2}
	if diff := cmp.Diff(twice, counts(sys.Holds(), there, kyma1Kinds, kyma2Kinds)); diff != "" {
		t.Errorf("with two runtimes (-want +got):\n%s", diff)
	}

	for _, o := range []*harness.Order{o, second} {
		end := sys.Deprovision(o)
		sys.PollEnd(o, end, osb.StateSucceeded, limit)
		if left := sys.AwaitEnd(end, "succeeded", limit).NotCompleted; len(left) > 0 {
			t.Errorf("not completed: %v", left)
		}
	}
	// They are of one account, so each is what is left of the other.
	checkNothingLeft(t, sys, o)
	left := counts(sys.Holds(), there, kyma1Kinds, kyma2Kinds)
	// LMS has no way to remove something: the tenant stays for the account, the certificates until they are over.
	if diff := cmp.Diff(map[string]int{"lms/tenant": 1, "lms/certificate": 2}, left); diff != "" {
		t.Errorf("left after the deprovisioning (-want +got):\n%s", diff)
	}
}

// checkKyma1 wants the runtime to have been ordered with what the systems of Kyma 1 gave.
func checkKyma1(t *testing.T, sys *harness.System, o *harness.Order) {
	t.Helper()
	with := overrides(t, sys, o)
	// What is marked as a secret is masked.
	const secret = "***"
	for component, keys := range map[string]map[string]bool{
		"monitoring": {
			"grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_ID": true, "grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_SECRET": true,
		},
		"knative-eventing-kafka": {"kafka.brokers.hostname": true, "kafka.password": true},
		"logging":                {"fluent-bit.backend.forward.tls.cert": false, "fluent-bit.backend.forward.tls.key": false},
		"service-manager-proxy":  {"config.sm.url": false, "sm.password": true},
	} {
		for key, isSecret := range keys {
			if value := with[component][key]; value == "" || (value == secret) != isSecret {
				t.Errorf("component %s has %s=%q, a secret: %t; it has %v", component, key, value, isSecret, with[component])
			}
		}
	}
}
