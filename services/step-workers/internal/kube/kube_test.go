package kube_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "CANARY-5d1e"

// serve starts an API server with the handler h, and returns its client.
func serve(t *testing.T, h http.HandlerFunc) *kube.Client {
	t.Helper()
	server := httptest.NewServer(h)
	client, err := kube.Open("cluster", kube.Config{URL: server.URL, Token: canary}, extclient.Deps{})
	require.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

func TestError_Answer_IsClassifiedWithoutItsText(t *testing.T) {
	t.Parallel()
	status := func(code int, reason string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"%s"}`, code, reason, canary)
	}
	for _, test := range []struct {
		name      string
		code      int
		body      string
		temporary bool
		reason    string
	}{
		{"not found", 404, status(404, "NotFound"), false, "NotFound"},
		{"conflict", 409, status(409, "Conflict"), true, "Conflict"},
		{"forbidden", 403, status(403, "Forbidden"), false, "Forbidden"},
		{"invalid", 422, status(422, "Invalid"), false, "Invalid"},
		{"too many", 429, status(429, "TooManyRequests"), true, "TooManyRequests"},
		{"forbidden, with its text as the reason", 403, status(403, canary+strings.Repeat(" no", 1000)), false, "[redacted]"},
		{"failing", 500, canary, true, "InternalError"},
		{"unavailable", 503, canary, true, "ServiceUnavailable"},
		{"expired page", 410, status(410, "Expired"), true, "Expired"},
		{"garbage", 200, "<html>" + canary, true, "err_k8s_unexpected_server_error"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := c.Get(t.Context(), kube.Secrets, "ns", "name")
			if err == nil || strings.Contains(err.Error(), canary) || !strings.HasPrefix(err.Error(), "cluster: get secrets name: ") {
				t.Fatalf("error %v", err)
			}
			own, ok := err.(interface{ ErrorReason() string })
			if extclient.IsTemporary(err) != test.temporary || !ok || own.ErrorReason() != test.reason {
				t.Errorf("temporary %v, reason %s: want %v, %s", extclient.IsTemporary(err), own.ErrorReason(), test.temporary, test.reason)
			}
			if kube.IsNotFound(err) != (test.code == 404) || kube.IsConflict(err) != (test.code == 409) {
				t.Errorf("not found %v, conflict %v", kube.IsNotFound(err), kube.IsConflict(err))
			}
		})
	}
}

func TestError_LostAnswer_HasReasonOfTheNetwork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want   string
		answer func(w http.ResponseWriter)
	}{
		"half an answer": {worker.ReasonNetwork, func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}},
		"closed connection": {worker.ReasonNetwork, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"reset connection": {worker.ReasonNetwork, func(w http.ResponseWriter) {
			connection, _, _ := w.(http.Hijacker).Hijack()
			_ = connection.(*net.TCPConn).SetLinger(0)
			_ = connection.Close()
		}},
		"no HTTP": {worker.ReasonNetwork, func(w http.ResponseWriter) {
			connection, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(connection, canary+"\r\n\r\n")
			_ = connection.Close()
		}},
		"bad gateway":     {worker.ReasonNetwork, func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }},
		"gateway timeout": {worker.ReasonNetworkTimeout, func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) }},
	} {
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			c.answer(w)
		})
		err := client.Create(t.Context(), kube.Secrets, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}})
		if got := worker.ErrorOf("cluster", err).Reason; got != c.want {
			t.Errorf("%s: reason %s of %v, want %s", name, got, err, c.want)
		}
	}
}

func TestError_UnreachableCluster_IsTemporary(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.URL
	server.Close()
	c, err := kube.Open("cluster", kube.Config{URL: address}, extclient.Deps{})
	require.NoError(t, err)
	defer c.Close()
	if _, err := c.List(t.Context(), kube.Kymas, "", ""); !extclient.IsTemporary(err) {
		t.Errorf("got %v", err)
	}
}

func TestGet_LongAnswer_IsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bytes.Repeat([]byte(" "), 33<<20))
	})
	_, err := c.Get(t.Context(), kube.Secrets, "ns", "name")
	if err == nil || !strings.Contains(err.Error(), "answer is longer than 33554432 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestEach_ManyObjects_AreReadInPages(t *testing.T) {
	t.Parallel()
	var queries []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		page := len(queries)
		queries = append(queries, r.URL.Query().Get("limit")+" "+r.URL.Query().Get("continue"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"SecretList","metadata":{"continue":%q},"items":[{"metadata":{"name":"s-%d"}}]}`,
			[]string{"next", ""}[page], page)
	})
	var names []string
	err := c.Each(t.Context(), kube.Secrets, "ns", "", func(o unstructured.Unstructured) { names = append(names, o.GetName()) })
	require.NoError(t, err)
	require.Equal(t, []string{"s-0", "s-1"}, names)
	require.Equal(t, []string{"250 ", "250 next"}, queries)
}

func TestApply_ExistingObject_UpdatesOnlyDifferences(t *testing.T) {
	t.Parallel()
	have := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "c", "namespace": "ns", "resourceVersion": "7", "labels": map[string]any{"theirs": "1", "ours": "old"}},
		"data":     map[string]any{"k": "v"},
	}
	var written map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			data, _ := io.ReadAll(r.Body)
			written = nil
			if err := json.Unmarshal(data, &written); err != nil {
				t.Error(err)
			}
			have = written
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(have)
	})
	want := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "c", "namespace": "ns", "labels": map[string]any{"ours": "new"}},
		"data":     map[string]any{"k": "v"},
	}}
	require.NoError(t, c.Apply(t.Context(), kube.ConfigMaps, want))
	got := unstructured.Unstructured{Object: written}
	if labels := got.GetLabels(); labels["theirs"] != "1" || labels["ours"] != "new" || got.GetResourceVersion() != "7" {
		t.Errorf("wrote %v", written)
	}
	written = nil
	if err := c.Apply(t.Context(), kube.ConfigMaps, want); err != nil || written != nil {
		t.Errorf("the second call wrote %v, error %v", written, err)
	}
}

func kubeconfig(server, more string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "` + server + `"` + more + `}}]
users: [{name: u, user: {token: ` + canary + `}}]
`
}

func TestFromKubeconfig_TokenAndAuthority_AreUsed(t *testing.T) {
	t.Parallel()
	var authorization string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)
	})
	secure, plain := httptest.NewTLSServer(h), httptest.NewServer(h)
	defer secure.Close()
	defer plain.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	for _, text := range []string{kubeconfig(secure.URL, ", certificate-authority-data: "+ca), kubeconfig(plain.URL, "")} {
		c, err := kube.FromKubeconfig("runtime", []byte(text), 0, extclient.Deps{})
		require.NoError(t, err)
		_, err = c.Get(t.Context(), kube.Namespaces, "", "n")
		c.Close()
		if err != nil || authorization != "Bearer "+canary {
			t.Errorf("authorization %q, error %v", authorization, err)
		}
	}
	c, err := kube.FromKubeconfig("runtime", []byte(kubeconfig(secure.URL, "")), 0, extclient.Deps{})
	require.NoError(t, err)
	defer c.Close()
	if _, err := c.Get(t.Context(), kube.Namespaces, "", "n"); err == nil {
		t.Error("a server with an unknown authority was accepted")
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add("")
	f.Add("{" + canary)
	f.Add(kubeconfig("https://h", ""))
	f.Add(kubeconfig("http://h", ", certificate-authority: /x"))
	f.Add(kubeconfig("%zz", ", certificate-authority-data: !!"))
	f.Add(strings.Replace(kubeconfig("https://h", ""), "token: ", "client-key: ", 1))
	f.Add("users: [{name: u, user: {exec: {command: " + canary + "}}}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := kube.FromKubeconfig("runtime", []byte(text), 0, extclient.Deps{})
		if err == nil {
			c.Close()
			return
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("the error contains the kubeconfig: %v", err)
		}
	})
}
