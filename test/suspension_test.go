package test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/test/internal/harness"
)

// trialFootprint is that of a provisioned trial: it is not watched from outside, and the account of the hyperscaler is not its own.
func trialFootprint() harness.Footprint {
	f := harness.Complete()
	f["avs/evaluation"] = 1
	return f.WithoutAccount()
}

func active(yes bool) osbclient.Change {
	return osbclient.Change{Context: map[string]any{"active": yes}}
}

// checkFootprint wants an order to have left exactly that.
func checkFootprint(t *testing.T, sys *harness.System, o *harness.Order, want harness.Footprint) {
	t.Helper()
	if diff := cmp.Diff(want, sys.Footprints([]*harness.Order{o})[0]); diff != "" {
		t.Errorf("in the landscape (-want +got):\n%s", diff)
	}
}

// checkStatus wants an instance to be shown in that state, by the platform (label Status, "" for none) and in the list of runtimes.
func checkStatus(t *testing.T, sys *harness.System, o *harness.Order, label, state string) broker.Runtime {
	t.Helper()
	i, err := sys.Platform().GetInstance(t.Context(), o.InstanceID)
	require.NoError(t, err)
	if got := i.Metadata.Labels["Status"]; got != label {
		t.Errorf("the instance has the status %q, want %q", got, label)
	}
	found := sys.Runtimes(o, state)
	if len(found) != 1 || string(found[0].Status.State) != state {
		t.Fatalf("the runtimes are %+v, want one %s", found, state)
	}
	return found[0]
}

// shootOf is the name and the domain of the shoot of a trial, and the id of its runtime.
func shootOf(t *testing.T, sys *harness.System, o *harness.Order) (name, domain, runtimeID string) {
	t.Helper()
	clusters := sys.Objects("provisioner", "runtime", o.InstanceID)
	if len(clusters) != 1 {
		t.Fatalf("%d clusters, want 1", len(clusters))
	}
	var cluster struct {
		GardenerConfig struct{ Name string }
	}
	clusters[0].Into(sys, &cluster)
	var evaluation struct{ URL, Status string }
	for _, object := range sys.Objects("avs", "evaluation", o.InstanceID) {
		object.Into(sys, &evaluation)
		if evaluation.Status != "ACTIVE" {
			t.Errorf("evaluation %s is %s", object.ID, evaluation.Status)
		}
	}
	known := sys.Objects("director", "runtime", o.InstanceID)
	if len(known) != 1 || known[0].ID != clusters[0].ID {
		t.Errorf("the Director knows %d runtimes, want that of the cluster", len(known))
	}
	return cluster.GardenerConfig.Name, evaluation.URL, clusters[0].ID
}

func TestTrial_SuspendUnsuspend_KeepsName(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	o := harness.Trial()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	checkFootprint(t, sys, o, trialFootprint())
	name, domain, first := shootOf(t, sys, o)
	created := sys.Created()
	dashboard := checkStatusOfPlatform(t, sys, o)

	suspension := sys.Update(o, active(false))
	sys.PollEnd(o, suspension, osb.StateSucceeded, limit)
	checkFootprint(t, sys, o, harness.Footprint{})
	if found := checkStatus(t, sys, o, "suspended", "suspended"); found.ShootName != name {
		t.Errorf("the suspended runtime is %+v, want shoot %s", found, name)
	}
	if hidden := sys.Runtimes(o, ""); len(hidden) != 0 {
		t.Errorf("a suspended runtime is listed without being asked for: %+v", hidden)
	}
	// A second suspension does nothing, and an update applies after the unsuspension.
	sys.UpdateAtOnce(o, active(false))
	sys.UpdateAtOnce(o, parameters(map[string]any{"administrators": []string{"later@example.com"}}))
	if calls, again := sys.OperationCount(), 2; calls != again {
		t.Errorf("%d operations, want %d", calls, again)
	}

	sys.PollEnd(o, sys.Update(o, active(true)), osb.StateSucceeded, limit)
	checkFootprint(t, sys, o, trialFootprint())
	nameAgain, domainAgain, second := shootOf(t, sys, o)
	if nameAgain != name || domainAgain != domain || second == first {
		t.Errorf("shoot %s at %s (runtime %s) came back as %s at %s (runtime %s)", name, domain, first, nameAgain, domainAgain, second)
	}
	if found := checkStatus(t, sys, o, "", "succeeded"); found.RuntimeID != second {
		t.Errorf("the runtime is %+v, want the new cluster %s", found, second)
	}
	if got := clusterOf(t, sys, o).Administrators; !cmp.Equal(got, []string{"later@example.com"}) {
		t.Errorf("the administrators are %v, want those of the update meanwhile", got)
	}
	if again := checkStatusOfPlatform(t, sys, o); again != dashboard {
		t.Errorf("the dashboard was %s and is %s", dashboard, again)
	}
	after := sys.Created()
	for key, want := range trialFootprint().Created(1) {
		if got := after[key] - created[key]; got != want {
			t.Errorf("the unsuspension has made %d of %s, want %d", got, key, want)
		}
	}
	sys.UpdateAtOnce(o, active(true))
	sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
	checkFootprint(t, sys, o, harness.Footprint{})
}

// checkStatusOfPlatform returns the dashboard of an instance with a runtime.
func checkStatusOfPlatform(t *testing.T, sys *harness.System, o *harness.Order) string {
	t.Helper()
	i, err := sys.Platform().GetInstance(t.Context(), o.InstanceID)
	require.NoError(t, err)
	if i.DashboardURL == "" {
		t.Error("there is no dashboard")
	}
	return i.DashboardURL
}

// expire asks for the expiry of an instance, and returns the status of the answer.
func expire(t *testing.T, sys *harness.System, o *harness.Order) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+sys.OSBAddr+"/expire/service_instance/"+o.InstanceID, http.NoBody)
	require.NoError(t, err)
	request.SetBasicAuth("keb", "keb")
	return answered(t, sys, request)
}

func TestTrial_Expired_StaysSuspended(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t, nil)
	sys := harness.Start(t, harness.Options{Env: []string{"KEB_DATABASE_URL=" + database}})
	old, declared := harness.Trial(), harness.Trial()
	for _, o := range []*harness.Order{old, declared} {
		sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	}
	if status, answer := expire(t, sys, old); status != http.StatusBadRequest || !strings.Contains(answer, "not old enough") {
		t.Errorf("a new trial expires with %d %s, want 400", status, answer)
	}
	age(t, database, old)
	if got := job(t, sys, "trial-expiry", "--wait"); got.Found != 1 || got.Completed != 1 {
		t.Errorf("the job has done %+v, want one of two trials", got)
	}
	// The older request needs no age.
	sys.PollEnd(declared, sys.Update(declared, osbclient.Change{
		Context: map[string]any{"active": false}, Parameters: map[string]any{"expired": true},
	}), osb.StateSucceeded, limit)

	n := sys.OperationCount()
	for _, o := range []*harness.Order{old, declared} {
		checkFootprint(t, sys, o, harness.Footprint{})
		checkStatus(t, sys, o, "suspended", "suspended")
		sys.UpdateAtOnce(o, active(true))
		sys.UpdateAtOnce(o, parameters(map[string]any{"administrators": []string{"later@example.com"}}))
		if _, changed := shown(t, sys, o)["administrators"]; changed {
			t.Error("an expired instance was changed")
		}
		// A second expiry changes nothing.
		if status, answer := expire(t, sys, o); status != http.StatusAccepted {
			t.Errorf("the second expiry is answered %d %s", status, answer)
		}
		checkStatus(t, sys, o, "suspended", "suspended")
		checkFootprint(t, sys, o, harness.Footprint{})
	}
	if got := sys.OperationCount(); got != n {
		t.Errorf("%d operations began for expired instances", got-n)
	}
	for _, o := range []*harness.Order{old, declared} {
		sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
		checkFootprint(t, sys, o, harness.Footprint{})
		if _, err := sys.Platform().GetInstance(t.Context(), o.InstanceID); harness.StatusOf(err) != http.StatusNotFound {
			t.Errorf("fetch answers %v, want 404", err)
		}
	}
}

// age makes an instance 15 days old.
func age(t *testing.T, database string, o *harness.Order) {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database, MaxOpen: 1, ApplicationName: "test"})
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range []string{
		`UPDATE broker.instances SET created_at = created_at - interval '15 days' WHERE id = $1`,
		`UPDATE broker.runtimes SET created_at = created_at - interval '15 days' WHERE instance_id = $1`,
	} {
		_, err := db.ExecContext(t.Context(), statement, o.InstanceID)
		require.NoError(t, err)
	}
}
