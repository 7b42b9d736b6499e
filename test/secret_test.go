package test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestSecrets_AtRest_AreEncrypted(t *testing.T) {
	t.Parallel()
	id, secret, token := harness.NewCanary(), harness.NewCanary(), harness.NewCanary()
	canaries := harness.NewCanaries(map[string]harness.Canary{"client id": id, "client secret": secret, "kubeconfig": token})
	sys := harness.Start(t, harness.Options{})

	azure, own := harness.Azure(), harness.Azure()
	azure.ClientID, azure.ClientSecret = id.String(), secret.String()
	// There is no cluster that could receive credentials.
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
		"clusters": []any{map[string]any{"name": "own", "cluster": harness.AnyCluster(t)}},
		"contexts": []any{map[string]any{"name": "own", "context": map[string]any{"cluster": "own", "user": "own"}}},
		"users":    []any{map[string]any{"name": "own", "user": map[string]any{"token": token.String()}}},
	})
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(raw)
}

// told returns the secrets that the simulated systems have created for a runtime, by the overrides of the order at the Provisioner.
func told(t *testing.T, sys *harness.System) map[string]string {
	t.Helper()
	journal, err := os.ReadFile(filepath.Join(sys.DataDir, "landscape", "provisioner.jsonl"))
	require.NoError(t, err)
	found := map[string]string{}
	// A value is random from where on.
	for name, entry := range map[string]struct{ key, from string }{
		"secret of IAS":     {"grafana.env.GF_AUTH_GENERIC_OAUTH_CLIENT_SECRET", ""},
		"key of Event Hubs": {"kafka.password", "SharedAccessKey="},
		"key of Fluent Bit": {"fluent-bit.backend.forward.tls.key", ""},
	} {
		match := regexp.MustCompile(`"key":"` + regexp.QuoteMeta(entry.key) + `"(?:,"secret":[a-z]+)?,"value":"([^"]+)"`).FindSubmatch(journal)
		if match == nil {
			t.Fatalf("the Provisioner was not given the %s", name)
		}
		_, random, _ := strings.Cut(string(match[1]), entry.from)
		found[name] = random
	}
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindSubmatch(journal)
	if token == nil {
		t.Fatal("the runtime has no token")
	}
	found["kubeconfig of the runtime"] = string(token[1])
	found["key of Fluent Bit"] = scalar(t, found["key of Fluent Bit"])
	return found
}

// scalar returns a part of the private exponent of an RSA key in PEM in base64. The modulus before it is public. It is cut where the
// base64 within the PEM begins a new group.
func scalar(t *testing.T, encoded string) string {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	_, body, ok := strings.Cut(string(text), "-----\n")
	// The private exponent of an RSA key of 2048 bits begins at byte 277 and has 256 bytes: this is inside, at the begin of a line.
	const from = 10 * (64 + 1)
	if !ok || len(body) < 2*from {
		t.Fatal("the key is no PEM of an RSA key")
	}
	return body[from : from+40]
}

// findable reports whether a secret is found in the landscape.
func findable(t *testing.T, sys *harness.System, name, text string) bool {
	t.Helper()
	canaries := harness.Canaries{}
	canaries.Add(name, text)
	there, _ := canaries.Under(t, filepath.Join(sys.DataDir, "landscape"))
	return len(there) > 0
}

func TestSecrets_FromOtherSystems_AreEncryptedAtRest(t *testing.T) {
	t.Parallel()
	id, secret, newID, newSecret := harness.NewCanary(), harness.NewCanary(), harness.NewCanary(), harness.NewCanary()
	canaries := harness.NewCanaries(map[string]harness.Canary{
		"client id": id, "client secret": secret, "new client id": newID, "new client secret": newSecret,
	})
	sys := harness.Start(t, harness.Options{Overlays: []string{kyma1}})
	o := harness.Azure()
	o.ClientID, o.ClientSecret = id.String(), secret.String()

	// The Provisioner has everything, but its answer is lost: the worker knows it, too, and will need it again.
	sys.Fault("provisioner", `{"errorRate": 1, "errorAfter": true}`)
	provision := sys.Provision(o)
	sys.Await(provision, limit, "a retry of Create_Runtime", func(op *harness.Operation) bool {
		return op.At(t, "Create_Runtime").Attempts > 1
	})
	sys.Kill()
	for name, text := range told(t, sys) {
		canaries.Add(name, text)
		// Or this test could not fail.
		if !findable(t, sys, name, text) {
			t.Errorf("the %s is not found where it must be", name)
		}
	}
	look(t, sys, canaries)

	sys.Start()
	sys.Fault("provisioner", healthy)
	sys.PollEnd(o, provision, osb.StateSucceeded, limit)
	binding, err := sys.Platform().Bind(t.Context(), o.InstanceID, "one", osbclient.Bind{ServiceID: harness.ServiceID, PlanID: o.PlanID})
	require.NoError(t, err)
	_, token := userOf(t, binding)
	// The text before it names its owner.
	canaries.Add("token of a binding", token[strings.LastIndex(token, ".")+1:])

	// An update with new credentials is killed on its way.
	sys.Fault("provisioner", outage)
	o.ClientID, o.ClientSecret = newID.String(), newSecret.String()
	update := sys.Update(o, osbclient.Change{Context: o.Body().Context, Parameters: map[string]any{"machineType": "Standard_D8_v3"}})
	sys.Await(update, limit, "a retry of the update", func(op *harness.Operation) bool {
		return op.At(t, "Upgrade_Shoot").Attempts > 1
	})
	sys.Kill()
	look(t, sys, canaries)

	sys.Start()
	sys.Fault("provisioner", healthy)
	sys.PollEnd(o, update, osb.StateSucceeded, limit)
	for _, address := range []string{
		"http://" + sys.OperatorAddr + "/operations/" + provision, "http://" + sys.OperatorAddr + "/operations/" + update,
		"http://" + sys.OperatorAddr + "/events?instance_ids=" + o.InstanceID, "http://" + sys.OperatorAddr + "/metrics",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		require.NoError(t, err)
		status, body := answered(t, sys, request)
		if names := canaries.In([]byte(body)); len(names) > 0 || status != http.StatusOK {
			t.Errorf("GET %s: %d, shows the %v", address, status, names)
		}
	}
	sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
	sys.Stop()
	look(t, sys, canaries)
	for _, p := range sys.Processes() {
		if names := canaries.In([]byte(p.Output())); len(names) > 0 {
			t.Errorf("process %d has printed the %v", p.PID(), names)
		}
	}
}
