package landscape_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

// runtimeAPI provisions a runtime and returns the path of its API and its administrator's token.
func runtimeAPI(w *world, instance string) (path, token string) {
	w.t.Helper()
	op, failure := w.ask(provisionQuery, map[string]any{"config": runtimeInput(instance, "c-"+instance)})
	if failure != nil {
		w.t.Fatal(failure)
	}
	w.clock.Advance(2 * clusterTime)
	status, _ := w.ask(runtimeQuery, map[string]any{"id": text(w.t, op, "runtimeID")})
	config, err := clientcmd.Load([]byte(text(w.t, status, "runtimeConfiguration", "kubeconfig")))
	require.NoError(w.t, err)
	for _, user := range config.AuthInfos {
		token = user.Token
	}
	return "/k8s/runtimes/" + text(w.t, op, "runtimeID"), token
}

const (
	accountsPath = "/api/v1/namespaces/default/serviceaccounts"
	rbacPath     = "/apis/rbac.authorization.k8s.io/v1/"
	secretsPath  = "/api/v1/namespaces/default/secrets"
)

func tokenRequest(seconds any) map[string]any {
	return map[string]any{
		"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": map[string]any{"expirationSeconds": seconds},
	}
}

func named(name string, more map[string]any) map[string]any {
	body := map[string]any{"metadata": map[string]any{"name": name}}
	maps.Copy(body, more)
	return body
}

func TestServiceAccountToken_Expired_IsRejected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	api, admin := runtimeAPI(w, "i-1")
	other, _ := runtimeAPI(w, "i-2")
	w.must(404, "POST", api+accountsPath+"/sa/token", tokenRequest(600), bearer(admin))
	w.must(201, "POST", api+accountsPath, named("sa", nil), bearer(admin))
	w.must(422, "POST", api+accountsPath+"/sa/token", tokenRequest(599), bearer(admin))
	w.must(405, "GET", api+accountsPath+"/sa/token", nil, bearer(admin))
	made := w.must(201, "POST", api+accountsPath+"/sa/token", tokenRequest(600), bearer(admin))
	token := text(t, made, "status", "token")
	until, err := time.Parse(time.RFC3339, text(t, made, "status", "expirationTimestamp"))
	if err != nil || until.Sub(w.clock.Now()) != 10*time.Minute {
		t.Errorf("the token ends at %s (%v), want in ten minutes", until, err)
	}

	w.must(403, "GET", api+secretsPath, nil, bearer(token))
	w.must(201, "POST", api+rbacPath+"clusterroles", named("all", map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{"*"}, "resources": []any{"secrets", "serviceaccounts"}, "verbs": []any{"get", "list"},
	}}}), bearer(admin))
	w.must(201, "POST", api+rbacPath+"clusterrolebindings", named("all", map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}},
	}), bearer(admin))
	w.must(200, "GET", api+secretsPath, nil, bearer(token))
	w.must(403, "POST", api+secretsPath, named("s", nil), bearer(token))
	w.must(403, "POST", api+accountsPath+"/sa/token", tokenRequest(600), bearer(token))
	w.must(401, "GET", other+secretsPath, nil, bearer(token))
	w.must(401, "GET", api+secretsPath, nil, bearer(token+"x"))

	w.clock.Advance(10*time.Minute - time.Second)
	w.must(200, "GET", api+secretsPath, nil, bearer(token))
	w.clock.Advance(time.Second)
	w.must(401, "GET", api+secretsPath, nil, bearer(token))
}

func TestServiceAccountToken_AccountDeleted_IsRejected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	api, admin := runtimeAPI(w, "i-1")
	w.must(201, "POST", api+accountsPath, named("sa", nil), bearer(admin))
	token := text(t, w.must(201, "POST", api+accountsPath+"/sa/token", tokenRequest(600), bearer(admin)), "status", "token")
	w.must(403, "GET", api+secretsPath, nil, bearer(token))
	w.must(200, "DELETE", api+accountsPath+"/sa", nil, bearer(admin))
	w.must(401, "GET", api+secretsPath, nil, bearer(token))
	// A new ServiceAccount with the same name is a different one.
	w.must(201, "POST", api+accountsPath, named("sa", nil), bearer(admin))
	w.must(401, "GET", api+secretsPath, nil, bearer(token))
}
