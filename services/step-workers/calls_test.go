package stepworkers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// call is a request of a step.
type call struct {
	method, path string
	body         []byte
}

// graphQL returns the name of the GraphQL field; empty for other calls.
func (c call) graphQL() string {
	if found := graphQLField.FindSubmatch(c.body); found != nil {
		return string(found[1])
	}
	return ""
}

var graphQLField = regexp.MustCompile(`result: (\w+)\(`)

// variable returns the JSON of a variable of a GraphQL call.
func (c call) variable(name string) string {
	var body struct {
		Variables map[string]json.RawMessage `json:"variables"`
	}
	if json.Unmarshal(c.body, &body) != nil {
		return ""
	}
	return string(body.Variables[name])
}

// calls returns the requests of the steps while f runs, without tokens and the test's own requests.
func (w *world) calls(f func()) []call {
	w.t.Helper()
	var mu sync.Mutex
	var got []call
	next := w.door.next
	w.door.next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/admin") && !strings.HasSuffix(r.URL.Path, "/token") {
			c := w.peek(r)
			mu.Lock()
			got = append(got, c)
			mu.Unlock()
		}
		next.ServeHTTP(rw, r)
	})
	f()
	w.door.next = next
	mu.Lock()
	defer mu.Unlock()
	return got
}

// asked returns the calls of a GraphQL field.
func asked(calls []call, field string) []call {
	var found []call
	for _, c := range calls {
		if c.graphQL() == field {
			found = append(found, c)
		}
	}
	return found
}

// peek records a request that is forwarded to the landscape.
func (w *world) peek(r *http.Request) call {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return call{r.Method, r.URL.Path, body}
}

// discard is a response writer that drops the answer.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// foreign starts an operation of the runtime by another client.
func (w *world) foreign(op workertest.Operation, field string) {
	w.t.Helper()
	id := saved[provisioner.Details](w.t, op, provisioner.Name).RuntimeID
	body, err := json.Marshal(map[string]any{
		"query": `mutation($id: String!) { result: ` + field + ` { id } }`, "variables": map[string]any{"id": id},
	})
	require.NoError(w.t, err)
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/provisioner/graphql", bytes.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Tenant", op.Context.GlobalAccountID)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(answer), "errors") {
		w.t.Fatalf("%s: %s, %v", field, answer, err)
	}
}

// seedOverrides adds the overrides of a version of Kyma to the control plane.
func (w *world) seedOverrides(version string) {
	w.t.Helper()
	w.override("overrides-"+version, map[string]any{
		"overrides-version-" + version: "true", "overrides-plan-azure": "true",
	}, map[string]any{"global.disableLegacyConnectivity": "true"})
}

// override adds a ConfigMap with overrides to the control plane.
func (w *world) override(name string, labels, data map[string]any) {
	w.t.Helper()
	client, err := kube.Open("control-plane", kube.Config{URL: w.url + "/k8s/control-plane", Token: "keb"}, extclient.Deps{})
	require.NoError(w.t, err)
	defer client.Close()
	err = client.Create(w.t.Context(), kube.ConfigMaps, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{"name": name, "namespace": "kcp-system", "labels": labels},
	}})
	require.NoError(w.t, err)
}

// send sends a request of the test, and fails the test unless it succeeds.
func (w *world) send(req *http.Request, into any) {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		w.t.Fatalf("%s %s: %d %s, %v", req.Method, req.URL.Path, resp.StatusCode, data, err)
	}
	if into == nil {
		return
	}
	require.NoError(w.t, json.Unmarshal(data, into))
}
