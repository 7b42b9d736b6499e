package btpmanager_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/testkit"
)

// server is one of the two.
type server struct {
	url    string
	client *http.Client
	token  string
}

// reply is what both must have in common: the status, and the reason of an error.
type reply struct {
	status int
	reason string
	body   map[string]any
}

func (s server) send(t *testing.T, r request) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, s.url+r.path, strings.NewReader(r.body))
	require.NoError(t, err)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	got := reply{status: resp.StatusCode}
	// A path that is not served at all is answered with text.
	_ = json.Unmarshal(raw, &got.body)
	if got.body["kind"] == "Status" {
		got.reason, _ = got.body["reason"].(string)
	}
	return got
}

type request struct {
	name, method, path, contentType, body string
	// same is a member of the answer that both must have, or must not have, with the same value.
	same []string
}

const (
	secrets    = "/api/v1/namespaces/kcp-system/secrets"
	configMaps = "/api/v1/namespaces/kcp-system/configmaps"
	kymas      = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas"
	jsonType   = "application/json"
	mergeType  = "application/merge-patch+json"
)

// object is one in JSON; more are its further members.
func object(kind, name, meta, more string) string {
	version := "v1"
	if kind == "Kyma" {
		version = "operator.kyma-project.io/v1beta2"
	}
	if meta != "" {
		meta = "," + meta
	}
	if more != "" {
		more = "," + more
	}
	return `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"` + name + `"` + meta + `}` + more + `}`
}

func secret(name, meta, more string) string { return object("Secret", name, meta, more) }

func kyma(name, spec string) string { return object("Kyma", name, "", `"spec":`+spec) }

func requests() []request {
	long := strings.Repeat("x", 64)
	return []request{
		{"secret", "POST", secrets, jsonType, secret("s", `"labels":{"a":"b"}`, `"stringData":{"config":"x"}`), []string{"data", "type"}},
		{"secret twice", "POST", secrets, jsonType, secret("s", "", ""), nil},
		{"without a content type", "POST", secrets, "", secret("untyped", "", ""), nil},
		{"another content type", "POST", secrets, "text/plain", secret("t", "", ""), nil},
		{"name with capitals", "POST", secrets, jsonType, secret("Secret", "", ""), nil},
		{"name with an underscore", "POST", configMaps, jsonType, object("ConfigMap", "a_b", "", ""), nil},
		{"no name", "POST", secrets, jsonType, `{"apiVersion":"v1","kind":"Secret","metadata":{}}`, nil},
		{"long label", "POST", secrets, jsonType, secret("l", `"labels":{"a":"`+long+`"}`, ""), nil},
		{"label with a blank", "POST", secrets, jsonType, secret("l", `"labels":{"a":"b c"}`, ""), nil},
		{"label with a slash", "POST", secrets, jsonType, secret("l", `"labels":{"a":"b/c"}`, ""), nil},
		{"empty label", "POST", secrets, jsonType, secret("empty", `"labels":{"a":""}`, ""), nil},
		{"bad label key", "POST", secrets, jsonType, secret("l", `"labels":{"a b":"c"}`, ""), nil},
		{"label that is a number", "POST", secrets, jsonType, secret("l", `"labels":{"a":1}`, ""), nil},
		{"bad annotation key", "POST", secrets, jsonType, secret("l", `"annotations":{"a/b/c":"d"}`, ""), nil},
		{"bad finalizer", "POST", secrets, jsonType, secret("l", `"finalizers":["a b"]`, ""), nil},
		{"resource version of a new object", "POST", secrets, jsonType, secret("l", `"resourceVersion":"7"`, ""), nil},
		{"another kind", "POST", secrets, jsonType, object("ConfigMap", "l", "", ""), nil},
		{"another namespace", "POST", secrets, jsonType, secret("l", `"namespace":"default"`, ""), nil},
		{"no such namespace", "POST", "/api/v1/namespaces/none/secrets", jsonType, secret("l", "", ""), nil},
		{"not JSON", "POST", secrets, jsonType, "{", nil},
		{"not base64", "POST", secrets, jsonType, secret("l", "", `"data":{"a":"%"}`), nil},
		{"bad data key", "POST", secrets, jsonType, secret("l", "", `"stringData":{"a b":"c"}`), nil},
		{"data that is a number", "POST", configMaps, jsonType, object("ConfigMap", "l", "", `"data":{"a":1}`), nil},
		{"another type of a secret", "PATCH", secrets + "/s", mergeType, `{"type":"other"}`, nil},
		{"stringData by patch", "PATCH", secrets + "/s", mergeType, `{"stringData":{"config":"y"}}`, []string{"data"}},
		{"bad label by patch", "PATCH", secrets + "/s", mergeType, `{"metadata":{"labels":{"a":"b c"}}}`, nil},
		{"patch of another type", "PATCH", secrets + "/s", jsonType, `{}`, nil},
		{"patch of nothing", "PATCH", secrets + "/none", mergeType, `{}`, nil},
		{"freeze", "PATCH", secrets + "/s", mergeType, `{"immutable":true}`, nil},
		{"change what is frozen", "PATCH", secrets + "/s", mergeType, `{"stringData":{"config":"z"}}`, nil},
		{"thaw", "PATCH", secrets + "/s", mergeType, `{"immutable":false}`, nil},
		{"label what is frozen", "PATCH", secrets + "/s", mergeType, `{"metadata":{"labels":{"a":"c"}}}`, nil},
		{"delete another one", "DELETE", secrets + "/s", jsonType, `{"preconditions":{"uid":"0"}}`, nil},
		{"delete", "DELETE", secrets + "/s", jsonType, `{"apiVersion":"v1","kind":"DeleteOptions"}`, nil},
		{"delete twice", "DELETE", secrets + "/s", "", "", nil},
		{"get nothing", "GET", secrets + "/s", "", "", nil},
		{"list", "GET", secrets + "?labelSelector=a%3Db,c%21%3Dd,%21e,f+in+(g,h)", "", "", nil},
		{"list by a bad value", "GET", secrets + "?labelSelector=a%3Db+c", "", "", nil},
		{"list by a long value", "GET", secrets + "?labelSelector=a%3D" + long, "", "", nil},
		{"list by a bad key", "GET", secrets + "?labelSelector=%2Fa%3Db", "", "", nil},
		{"list by nonsense", "GET", secrets + "?labelSelector=a+in+(b", "", "", nil},
		{"no such resource", "GET", "/api/v1/namespaces/kcp-system/nothings", "", "", nil},
		{"no such version", "GET", "/apis/operator.kyma-project.io/v9/namespaces/kcp-system/kymas", "", "", nil},

		{"finalizer", "POST", configMaps, jsonType, object("ConfigMap", "f", `"finalizers":["x.io/y"]`, ""), nil},
		{"delete with a finalizer", "DELETE", configMaps + "/f", "", "", nil},
		{"it is still there", "GET", configMaps + "/f", "", "", nil},
		{"one more finalizer", "PATCH", configMaps + "/f", mergeType, `{"metadata":{"finalizers":["x.io/y","x.io/z"]}}`, nil},
		{"no finalizer", "PATCH", configMaps + "/f", mergeType, `{"metadata":{"finalizers":null}}`, nil},
		{"it is gone", "GET", configMaps + "/f", "", "", nil},

		{"kyma", "POST", kymas, jsonType, kyma("k", `{"channel":"regular","modules":[{"name":"m","customResourcePolicy":"Ignore"}]}`), []string{"spec"}},
		{"kyma without a channel", "POST", kymas, jsonType, kyma("l", `{}`), nil},
		{"kyma with a channel of another form", "POST", kymas, jsonType, kyma("l", `{"channel":"Fast"}`), nil},
		{"kyma with a short channel", "POST", kymas, jsonType, kyma("l", `{"channel":"ab"}`), nil},
		{"kyma with a number", "POST", kymas, jsonType, kyma("l", `{"channel":7}`), nil},
		{"kyma with another policy", "POST", kymas, jsonType, kyma("l", `{"channel":"fast","modules":[{"name":"m","customResourcePolicy":"Never"}]}`), nil},
		{"kyma with a module without a name", "POST", kymas, jsonType, kyma("l", `{"channel":"fast","modules":[{}]}`), nil},
		{"kyma with unknown members", "POST", kymas, jsonType, kyma("u", `{"channel":"fast","sync":{"enabled":true},"modules":[{"name":"m","x":1}]}`), []string{"spec"}},
		{"kyma with capitals", "POST", kymas, jsonType, kyma("K", `{"channel":"fast"}`), nil},
		{"kyma of another version", "POST", kymas, jsonType, strings.Replace(kyma("v", `{"channel":"fast"}`), "v1beta2", "v1beta9", 1), nil},
		{"update without a resource version", "PUT", kymas + "/k", jsonType, kyma("k", `{"channel":"fast"}`), nil},
		{"update of an old version", "PUT", kymas + "/k", jsonType, object("Kyma", "k", `"resourceVersion":"1"`, `"spec":{"channel":"fast"}`), nil},
		{"update of another name", "PUT", kymas + "/k", jsonType, object("Kyma", "l", `"resourceVersion":"1"`, `"spec":{"channel":"fast"}`), nil},
		{"strategic patch", "PATCH", kymas + "/k", "application/strategic-merge-patch+json", `{}`, nil},
		{"apply without a manager", "PATCH", kymas + "/k", "application/apply-patch+yaml", kyma("k", `{"channel":"fast"}`), nil},
		{"labels by patch", "PATCH", kymas + "/k", mergeType, `{"metadata":{"labels":{"kyma-project.io/region":"eastus"},"annotations":{"skr-domain":"d"}}}`, []string{"spec"}},
		{"bad channel by patch", "PATCH", kymas + "/k", mergeType, `{"spec":{"channel":"-"}}`, nil},
	}
}

func TestSimulatedControlPlane_SameRequests_GetAnswersOfRealServer(t *testing.T) {
	cluster := shared.Cluster(t)
	client, err := rest.HTTPClientFor(cluster.Config)
	require.NoError(t, err)
	prepare(t, cluster.Config)
	l, err := landscape.New(landscape.Config{}, landscape.Deps{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	served := httptest.NewServer(l.Handler())
	t.Cleanup(served.Close)
	real := server{url: strings.TrimRight(cluster.Config.Host, "/"), client: client}
	simulated := server{url: served.URL + "/k8s/control-plane", client: served.Client(), token: "keb"}
	for _, r := range requests() {
		want, got := real.send(t, r), simulated.send(t, r)
		if got.status != want.status || got.reason != want.reason {
			t.Errorf("%s: the real server answers %d %s (%v), the simulated one %d %s (%v)",
				r.name, want.status, want.reason, want.body["message"], got.status, got.reason, got.body["message"])
		}
		for _, member := range r.same {
			a, b := mustJSON(t, want.body[member]), mustJSON(t, got.body[member])
			if a != b {
				t.Errorf("%s: %s is %s at the real server, %s at the simulated one", r.name, member, a, b)
			}
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

// prepare makes the namespace and the definition of Kyma, with the schema of the simulator.
func prepare(t *testing.T, config *rest.Config) {
	t.Helper()
	dyn, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	create := func(resource schema.GroupVersionResource, content map[string]any) {
		t.Helper()
		_, err := dyn.Resource(resource).Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kcp-system"},
	})
	raw, err := os.ReadFile("../../landscape/kyma.schema.json")
	require.NoError(t, err)
	var definition map[string]any
	require.NoError(t, json.Unmarshal(raw, &definition))
	create(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "kymas.operator.kyma-project.io"},
		"spec": map[string]any{
			"group": "operator.kyma-project.io", "scope": "Namespaced",
			"names": map[string]any{"plural": "kymas", "singular": "kyma", "kind": "Kyma", "listKind": "KymaList"},
			"versions": []any{map[string]any{
				"name": "v1beta2", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": definition},
				"subresources": map[string]any{"status": map[string]any{}},
			}},
		},
	})
	resource := schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "kymas"}
	testkit.Eventually(t, time.Minute, "the definition of Kyma is served", func() bool {
		_, err := dyn.Resource(resource).Namespace("kcp-system").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}
