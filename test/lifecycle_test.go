package test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestRuntime_ProvisionDeprovision_LeavesNothing(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Accounts: 20, FromNothing: true, Race: true})
	orders := []*harness.Order{harness.Azure()}
	o := orders[0]
	// For each of four hyperscalers, with a tenth as many for EU access and three shared ones.
	if got := sys.Holds()["gardener/SecretBinding"]; got != 4*(20+2+3) {
		t.Errorf("%d accounts, want those of four hyperscalers with 20 each", got)
	}

	provision := sys.Provision(o)
	sys.PollEnd(o, provision, osb.StateSucceeded, limit)
	if diff := cmp.Diff([]harness.Footprint{harness.Complete()}, sys.Footprints(orders)); diff != "" {
		t.Errorf("after the provisioning (-want +got):\n%s", diff)
	}
	checkEvaluations(t, sys, o)
	checkCluster(t, sys, o)
	op := sys.Operation(provision)
	if problems := op.RanAgain(); len(problems) > 0 || len(op.NotCompleted) > 0 || len(op.History) != 21 {
		t.Errorf("history of %d entries, want 19 steps, the start and the end; ran again: %v, not completed: %v", len(op.History), problems, op.NotCompleted)
	}

	deprovision := sys.Deprovision(o)
	sys.PollEnd(o, deprovision, osb.StateSucceeded, limit)
	if left := sys.Footprints(orders)[0].WithoutAccount(); len(left) > 0 {
		t.Errorf("left after the deprovisioning: %v", left)
	}
	if op := sys.Operation(deprovision); len(op.NotCompleted) > 0 {
		t.Errorf("not completed: %v", op.NotCompleted)
	}
	if _, err := sys.Platform().GetInstance(t.Context(), o.InstanceID); harness.StatusOf(err) != 404 {
		t.Errorf("fetch answers %v, want 404", err)
	}
	if _, err := sys.Platform().Deprovision(t.Context(), o.InstanceID, harness.ServiceID, o.PlanID); harness.StatusOf(err) != harness.Gone {
		t.Errorf("a second deprovisioning is answered %v, want 410", err)
	}
}

// checkEvaluations checks that there is an internal and an external evaluation, without tags by default.
func checkEvaluations(t *testing.T, sys *harness.System, o *harness.Order) {
	t.Helper()
	checks := map[string]int{}
	for _, object := range sys.Objects("avs", "evaluation", o.InstanceID) {
		var evaluation struct {
			CheckType string `json:"check_type"`
			Tags      []struct {
				Content string `json:"content"`
			} `json:"tags"`
		}
		object.Into(sys, &evaluation)
		checks[evaluation.CheckType] = len(evaluation.Tags)
	}
	if diff := cmp.Diff(map[string]int{"": 0, "HTTPSGET": 0}, checks); diff != "" {
		t.Errorf("number of tags by check type (-want +got):\n%s", diff)
	}
}

// checkCluster compares the cluster with the order, and checks its Secret.
func checkCluster(t *testing.T, sys *harness.System, o *harness.Order) {
	t.Helper()
	type oidc struct{ ClientID, IssuerURL, GroupsClaim, UsernameClaim, UsernamePrefix string }
	type config struct {
		Provider, Region, MachineType string
		AutoScalerMin, AutoScalerMax  int
		OIDCConfig                    oidc
	}
	var cluster struct {
		Administrators []string
		GardenerConfig config
	}
	clusters := sys.Objects("provisioner", "runtime", o.InstanceID)
	if len(clusters) != 1 {
		t.Fatalf("%d clusters, want 1", len(clusters))
	}
	clusters[0].Into(sys, &cluster)
	want := config{
		Provider: "azure", Region: "westeurope", MachineType: "Standard_D4_v3", AutoScalerMin: 3, AutoScalerMax: 10,
		OIDCConfig: oidc{
			ClientID: "9bd05ed7-a930-44e6-8c79-e6defeb7dec9", IssuerURL: "https://kyma.accounts.example.com", GroupsClaim: "groups",
			UsernameClaim: "sub", UsernamePrefix: "-",
		},
	}
	if diff := cmp.Diff(want, cluster.GardenerConfig); diff != "" {
		t.Errorf("the cluster (-ordered +built):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"jane.doe@example.com"}, cluster.Administrators); diff != "" {
		t.Errorf("its administrators (-ordered +built):\n%s", diff)
	}
	var secret struct {
		Metadata struct{ Name, Namespace string }
		Data     map[string]string
	}
	secrets := sys.Objects("runtimes", "Secret", clusters[0].ID)
	if len(secrets) != 1 {
		t.Fatalf("%d secrets in the runtime, want 1", len(secrets))
	}
	secrets[0].Into(sys, &secret)
	keys := map[string]string{"clientid": "***", "clientsecret": "***", "cluster_id": "***", "sm_url": "***", "tokenurl": "***"}
	if diff := cmp.Diff(keys, secret.Data); diff != "" || secret.Metadata.Name != "sap-btp-manager" || secret.Metadata.Namespace != "kyma-system" {
		t.Errorf("the secret %+v (-want +got):\n%s", secret.Metadata, diff)
	}
}
