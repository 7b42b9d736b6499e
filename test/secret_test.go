package test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestNoSecretIsAtRestInTheClear(t *testing.T) {
	t.Parallel()
	id, secret, token := harness.NewCanary(), harness.NewCanary(), harness.NewCanary()
	canaries := harness.NewCanaries(map[string]harness.Canary{"client id": id, "client secret": secret, "kubeconfig": token})
	sys := harness.Start(t, harness.Options{})

	azure, own := harness.Azure(), harness.Azure()
	azure.ClientID, azure.ClientSecret = id.String(), secret.String()
	// Nobody could bring credentials into a cluster that is not there.
	own.PlanID, own.ClientID = harness.PlanOwnCluster, ""
	own.Parameters = map[string]any{
		"name": "own", "shootName": "own-cluster", "shootDomain": "own-cluster.example.com", "kubeconfig": kubeconfig(t, token),
	}
	// Killed in the middle, with retries and errors on their way, so that nothing has been tidied up.
	sys.Fault("reconciler", outage)
	ids := []string{sys.Provision(azure), sys.Provision(own)}
	for _, id := range ids {
		sys.Await(id, limit, "a retry of Create_Cluster_Configuration", func(op *harness.Operation) bool {
			return op.At(t, "Create_Cluster_Configuration").Attempts > 1
		})
	}
	sys.Kill()
	look(t, sys, canaries)

	sys.Start()
	watch := sys.Run("watch", "-o", "json", ids[1])
	sys.Fault("reconciler", healthy)
	sys.PollEnd(azure, ids[0], osb.StateSucceeded, limit)
	sys.PollEnd(own, ids[1], osb.StateSucceeded, limit)
	watch.ExitCode(limit)
	sys.Stop()
	look(t, sys, canaries)
	for _, p := range sys.Processes() {
		if names := canaries.In([]byte(p.Output())); len(names) > 0 {
			t.Errorf("process %d has printed the %v", p.PID(), names)
		}
	}
	if names := canaries.In([]byte(watch.Output())); len(names) > 0 {
		t.Errorf("watch has printed the %v", names)
	}
}

// look wants no canary in the data folder, except in the landscape: that is where they were to be brought, which
// also shows that they can be found.
func look(t *testing.T, sys *harness.System, canaries harness.Canaries) {
	t.Helper()
	found, read := canaries.Under(t, sys.DataDir, "landscape")
	for file, names := range found {
		t.Errorf("%s holds the %v in the clear", file, names)
	}
	for _, part := range []string{"postgres/base", "postgres/pg_wal", "nats", "keb.log"} {
		if _, err := os.Stat(filepath.Join(sys.DataDir, part)); err != nil {
			t.Errorf("there is no %s to look into: %v", part, err)
		}
	}
	if there, _ := canaries.Under(t, filepath.Join(sys.DataDir, "landscape")); len(there) == 0 {
		t.Error("the canaries are not even in the landscape: this test could not fail")
	}
	t.Logf("%d MB read", read>>20)
}

func kubeconfig(t *testing.T, token harness.Canary) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "own",
		"clusters": []any{map[string]any{"name": "own", "cluster": map[string]any{"server": "https://api.own-cluster.example.com"}}},
		"contexts": []any{map[string]any{"name": "own", "context": map[string]any{"cluster": "own", "user": "own"}}},
		"users":    []any{map[string]any{"name": "own", "user": map[string]any{"token": token.String()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}
