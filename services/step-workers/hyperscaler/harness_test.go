package hyperscaler_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
)

// Clients of our own clusters keep idle connections.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

const (
	resolve   = "Resolve_Target_Secret"
	release   = "Release_Subscription"
	claimTime = time.Hour
	bindings  = "/k8s/gardener/apis/core.gardener.cloud/v1beta1/namespaces/garden-kyma/secretbindings"
	shoots    = "/k8s/gardener/apis/core.gardener.cloud/v1beta1/namespaces/garden-kyma/shoots"
)

// garden is a Gardener project with accounts.
type garden struct {
	t       testing.TB
	url     string
	handler http.Handler
	latency time.Duration
	calls   atomic.Int64

	mu  sync.Mutex
	now time.Time
}

func newGarden(t testing.TB, accounts int) *garden {
	t.Helper()
	g := &garden{t: t, now: time.Now()}
	l, err := landscape.New(landscape.Config{Bindings: accounts}, landscape.Deps{Now: g.clock})
	require.NoError(t, err)
	g.handler = l.Handler()
	server := httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		_ = l.Close()
	})
	g.url = server.URL
	return g
}

func (g *garden) clock() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *garden) advance(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
}

// serve delays the answers like a real Gardener.
func (g *garden) serve(w http.ResponseWriter, r *http.Request) {
	g.calls.Add(1)
	if g.latency > 0 {
		select {
		case <-time.After(g.latency):
		case <-r.Context().Done():
			return
		}
	}
	g.handler.ServeHTTP(w, r)
}

// api calls Gardener as another client.
func (g *garden) api(method, path string, body any, into any) {
	g.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(g.t, err)
	req := httptest.NewRequestWithContext(g.t.Context(), method, path, bytes.NewReader(data))
	req.Header.Set("Authorization", "Bearer "+landscape.DefaultCredential)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	rec := httptest.NewRecorder()
	g.handler.ServeHTTP(rec, req)
	if rec.Code >= 300 {
		g.t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
	if into != nil {
		require.NoError(g.t, json.Unmarshal(rec.Body.Bytes(), into))
	}
}

type object struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// accounts returns the bindings of azure by name.
func (g *garden) accounts() map[string]object {
	g.t.Helper()
	var list struct{ Items []object }
	g.api(http.MethodGet, bindings, nil, &list)
	found := map[string]object{}
	for _, o := range list.Items {
		if o.Metadata.Labels["hyperscalerType"] == "azure" {
			found[o.Metadata.Name] = o
		}
	}
	return found
}

// owners returns the names of the accounts of each tenant, without dirty ones. It fails the test if a claim is open.
func (g *garden) owners() map[string][]string {
	g.t.Helper()
	owners := map[string][]string{}
	for name, o := range g.accounts() {
		tenant, claimed := o.Metadata.Labels["tenantName"]
		if !claimed || o.Metadata.Labels["dirty"] != "" {
			continue
		}
		if o.Metadata.Annotations["keb.kyma-project.io/claiming"] != "" {
			g.t.Errorf("the claim of %s by %s is not settled", name, tenant)
		}
		owners[tenant] = append(owners[tenant], name)
	}
	return owners
}

// label sets labels of an account.
func (g *garden) label(name string, labels map[string]any) {
	g.t.Helper()
	g.api(http.MethodPatch, bindings+"/"+name, map[string]any{"metadata": map[string]any{"labels": labels}}, nil)
}

// shoot adds a cluster to an account.
func (g *garden) shoot(name, account string) {
	g.t.Helper()
	g.api(http.MethodPost, shoots, map[string]any{
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"confirmation.gardener.cloud/deletion": "true"}},
		"spec":     map[string]any{"secretBindingName": account},
	}, nil)
}

// process is one process of the worker, with its own clients.
type process struct {
	g         *garden
	steps     map[string]worker.Step
	questions []worker.Question
	// around intercepts the calls of the process; nil means none.
	around func(*http.Request, http.RoundTripper) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.around != nil {
		return p.around(r, http.DefaultTransport)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// process starts a process. Its calls go through around, unless it is nil.
func (g *garden) process(around func(*http.Request, http.RoundTripper) (*http.Response, error)) *process {
	g.t.Helper()
	p := &process{g: g, steps: map[string]worker.Step{}, around: around}
	url := g.url
	if around != nil {
		url = p.listen()
	}
	cfg := hyperscaler.Config{RetryInterval: time.Second, ClaimTime: claimTime}
	cfg.GardenerURL, cfg.GardenerToken = url+"/k8s/gardener", landscape.DefaultCredential
	cfg.GardenerTimeout, cfg.Project = 30*time.Second, "kyma"
	deps := extclient.Deps{Now: g.clock}
	list, err := hyperscaler.Steps(cfg, deps)
	require.NoError(g.t, err)
	for _, s := range list {
		p.steps[s.Name()] = s
	}
	p.questions, err = hyperscaler.Questions(cfg, deps)
	require.NoError(g.t, err)
	return p
}

// listen returns the address of a proxy between the process and Gardener.
func (p *process) listen() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", strings.TrimPrefix(p.g.url, "http://")
		resp, err := p.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	p.g.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// order returns an order of a tenant.
func order(instance int, tenant string) workertest.Operation {
	return workertest.Operation{
		Worker: hyperscaler.Name, InstanceID: fmt.Sprintf("5b7e1d0c-3f54-4b8e-8a46-%012d", instance),
		Plan:    event.Plan{Name: "azure"},
		Context: event.Context{GlobalAccountID: tenant, PlatformRegion: "cf-eu10"},
		Runtime: event.Runtime{Provider: "azure"},
	}
}

// run repeats a step as the orchestrator would, unless the pool is empty.
func (p *process) run(step string, op workertest.Operation) workertest.Result {
	var r workertest.Result
	op.Now = p.g.clock()
	for range 50 {
		r = workertest.Run(p.g.t, p.steps[step], op)
		if r.Outcome != event.OutcomeRetry || (r.Error != nil && strings.Contains(r.Error.Message, "no free account")) {
			break
		}
	}
	return r
}

// claim returns the account of an order; "" if it gets none.
func (p *process) claim(op workertest.Operation) string {
	p.g.t.Helper()
	r := p.run(resolve, op)
	if r.Outcome != event.OutcomeSucceeded {
		p.g.t.Errorf("%s: %s, %+v", resolve, r.Outcome, r.Error)
		return ""
	}
	return secretOf(r)
}

func secretOf(r workertest.Result) string {
	secret, _ := r.Details["targetSecret"].(string)
	return secret
}

// release runs the deprovisioning of an order.
func (p *process) release(op workertest.Operation) {
	p.g.t.Helper()
	op.Type = event.Deprovision
	if r := p.run(release, op); r.Outcome != event.OutcomeSucceeded {
		p.g.t.Errorf("%s: %s, %+v", release, r.Outcome, r.Error)
	}
}
