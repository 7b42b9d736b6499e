package test

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// reach returns the status with which a runtime answers the user of a kubeconfig who lists secrets.
func reach(t *testing.T, sys *harness.System, server, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/api/v1/secrets", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := sys.HTTP.Do(request)
	require.NoError(t, err)
	return errorFree(t, response)
}

func errorFree(t *testing.T, response *http.Response) int {
	t.Helper()
	_, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// userConfig is the tested part of a kubeconfig.
type userConfig struct {
	Clusters []struct {
		Cluster struct{ Server string }
	}
	Users []struct {
		User struct {
			Token string
			Exec  *struct{ Args []string }
		}
	}
}

func readKubeconfig(t *testing.T, raw []byte) userConfig {
	t.Helper()
	var k userConfig
	if err := yaml.Unmarshal(raw, &k); err != nil || len(k.Clusters) != 1 || len(k.Users) != 1 {
		t.Fatalf("a kubeconfig with %d clusters and %d users: %v", len(k.Clusters), len(k.Users), err)
	}
	return k
}

// userOf returns the server and the token in the kubeconfig of a binding.
func userOf(t *testing.T, b *osbclient.Binding) (server, token string) {
	t.Helper()
	var credentials struct{ Kubeconfig string }
	require.NoError(t, json.Unmarshal(b.Credentials, &credentials))
	k := readKubeconfig(t, []byte(credentials.Kubeconfig))
	return k.Clusters[0].Cluster.Server, k.Users[0].User.Token
}

// access counts the objects in runtimes that give bindings access. The Runtime Provisioner creates a ClusterRoleBinding for each
// administrator, and two for the groups of operators.
func access(sys *harness.System) int {
	held := sys.Holds()
	const operators = 3
	return held["runtimes/ServiceAccount"] + held["runtimes/ClusterRole"] + held["runtimes/ClusterRoleBinding"] - operators*held["runtimes/cluster"]
}

func TestBinding_Lifecycle_GrantsAndRevokesAccess(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	platform := sys.Platform()
	o := harness.Azure()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	order := osbclient.Bind{ServiceID: harness.ServiceID, PlanID: o.PlanID, Parameters: map[string]any{"expiration_seconds": 600}}
	bind := func(id string) *osbclient.Binding {
		t.Helper()
		b, err := platform.Bind(t.Context(), o.InstanceID, id, order)
		require.NoError(t, err)
		return b
	}
	first := bind("first")
	server, token := userOf(t, first)
	if got := reach(t, sys, server, token); got != http.StatusOK || access(sys) != 3 {
		t.Errorf("the runtime answers the binding's user %d, with %d objects", got, access(sys))
	}
	if again := bind("first"); !again.Existed || string(again.Credentials) != string(first.Credentials) {
		t.Errorf("the same again: %v, existed %t", again, again.Existed)
	}
	if _, err := platform.Unbind(t.Context(), o.InstanceID, "first", harness.ServiceID, o.PlanID); err != nil {
		t.Errorf("unbind: %v", err)
	}
	if got := reach(t, sys, server, token); got != http.StatusUnauthorized || access(sys) != 0 {
		t.Errorf("after the unbinding the runtime answers %d, with %d objects", got, access(sys))
	}

	// A binding survives a crash, and is revoked when a deprovisioning starts.
	second := bind("second")
	sys.Kill()
	sys.Start()
	read, err := platform.GetBinding(t.Context(), o.InstanceID, "second")
	if err != nil || string(read.Credentials) != string(second.Credentials) {
		t.Fatalf("after a crash: %v, %v", read, err)
	}
	server, token = userOf(t, second)
	noSecret(t, sys, token)
	deprovision := sys.Deprovision(o)
	if _, err := platform.GetBinding(t.Context(), o.InstanceID, "second"); harness.StatusOf(err) != http.StatusNotFound {
		t.Errorf("a binding of an instance that is being deprovisioned: %v, want 404", err)
	}
	if _, err := platform.Unbind(t.Context(), o.InstanceID, "second", harness.ServiceID, o.PlanID); harness.StatusOf(err) != harness.Gone {
		t.Errorf("its unbinding: %v, want 410", err)
	}
	sys.PollEnd(o, deprovision, osb.StateSucceeded, limit)
	if got := reach(t, sys, server, token); got == http.StatusOK {
		t.Error("the runtime still answers")
	}
	testkit.Eventually(t, limit, "the end of all access", func() bool { return access(sys) == 0 })
}

// noSecret looks for a token in everything that the services have written; the landscape keeps what it likes.
func noSecret(t *testing.T, sys *harness.System, token string) {
	t.Helper()
	err := filepath.WalkDir(sys.DataDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && entry.Name() == "landscape" {
				return fs.SkipDir
			}
			return nil // Postgres removes files while it runs
		}
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), token) {
			t.Errorf("a token is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestKubeconfig_Runtime_NamesClusterAndProvider(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	address := "http://" + sys.OSBAddr + "/kubeconfig/" + o.InstanceID
	provision := sys.Provision(o)
	sys.PollEnd(o, provision, osb.StateSucceeded, limit)
	response, err := sys.HTTP.Get(address)
	require.NoError(t, err)
	raw, err := io.ReadAll(response.Body)
	if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.StatusCode, err, raw)
	}
	k := readKubeconfig(t, raw)
	if got := k.Clusters[0].Cluster.Server; !strings.HasPrefix(got, "http://"+sys.LandscapeAddr+"/k8s/runtimes/") {
		t.Errorf("the server is %s", got)
	}
	user := k.Users[0].User
	if user.Token != "" || user.Exec == nil || !strings.Contains(strings.Join(user.Exec.Args, " "), "--oidc-issuer-url=https://kyma.accounts.example.com") {
		t.Errorf("the user is %+v", user)
	}
	sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
	if response, err = sys.HTTP.Get(address); err != nil || errorFree(t, response) != http.StatusNotFound {
		t.Errorf("after the deprovisioning: %v", err)
	}
}
