package stepworkers_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Clients of our own clusters keep idle connections.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

const (
	// canary is part of every secret in the tests.
	canary = "CANARY-7f3b9c"
	// takes is the duration of cluster operations and reconciliations.
	takes = 10 * time.Second
)

// The steps of the operations in the order of the process files.
var (
	provisioning     = stepsOf(event.Provision)
	updating         = stepsOf(event.Update)
	upgradingKyma    = stepsOf(event.UpgradeKyma)
	upgradingCluster = stepsOf(event.UpgradeCluster)
	deprovisioning   = stepsOf(event.Deprovision)
)

// stepsOf returns the steps of an operation that step workers run. It panics if the process file is not readable.
func stepsOf(operation event.OperationType) (names []string) {
	text, err := os.ReadFile("../orchestrator/processes/" + string(operation) + ".yaml")
	type steps []struct{ Name, Worker string }
	var process struct {
		Stages  []struct{ Steps steps }
		Finally steps
	}
	if err = errors.Join(err, yaml.Unmarshal(text, &process)); err != nil {
		panic(err)
	}
	for _, stage := range append(process.Stages, struct{ Steps steps }{process.Finally}) {
		for _, step := range stage.Steps {
			if step.Worker != "orchestrator" && step.Worker != "broker" {
				names = append(names, step.Name)
			}
		}
	}
	return names
}

// upTo returns the steps up to and including last.
func upTo(last string, steps []string) []string { return steps[:slices.Index(steps, last)+1] }

// without returns the steps except one.
func without(steps []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return s == name })
}

// world is the landscape and all workers.
type world struct {
	t       testing.TB
	url     string
	steps   map[string]worker.Step
	workers map[string]string
	texts   []string // all output of the steps
	door    *door
	// environment holds the variables of the workers.
	environment map[string]string
	// named are ids from a system, with their replacements in golden files.
	named map[string]string
	// hidden are texts that differ in each run; golden files contain TIME instead.
	hidden *regexp.Regexp
	// rewritten, unless nil, replaces other texts that differ in each run.
	rewritten func(string) string
	// questions are the questions of the workers by subject.
	questions map[string]func(context.Context, []byte) (any, error)

	mu  sync.Mutex
	now time.Time
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldWith(t, landscape.Config{}, nil)
}

// newWorldWith starts another landscape, and workers with additional variables. By default AvS gets the additional tags.
func newWorldWith(t testing.TB, cfg landscape.Config, environment map[string]string) *world {
	t.Helper()
	w := &world{
		t: t, now: time.Now(),
		steps: map[string]worker.Step{}, workers: map[string]string{},
		named:       map[string]string{},
		questions:   map[string]func(context.Context, []byte) (any, error){},
		environment: map[string]string{"KEB_AVS_TAGS_ENABLED": "true"},
	}
	maps.Copy(w.environment, environment)
	cfg.ClusterTime, cfg.ReconcileTime, cfg.Bindings = takes, takes, 5
	l, err := landscape.New(cfg, landscape.Deps{Now: w.clock})
	require.NoError(t, err)
	w.door = &door{next: l.Handler(), landscape: l.Handler()}
	server := httptest.NewServer(w.door)
	t.Cleanup(func() {
		if broken := l.Violations(); len(broken) > 0 {
			t.Errorf("requests broke the contract of their system:\n%s", strings.Join(broken, "\n"))
		}
		server.CloseClientConnections()
		server.Close()
		_ = l.Close()
	})
	w.url = server.URL
	w.build(server.URL)
	return w
}

// build creates the workers again, as after a restart: without tokens and open breakers.
func (w *world) build(url string) {
	w.t.Helper()
	services, err := stepworkers.All(url, stepworkers.Options{
		Environment: w.environment, Fast: true, Now: w.clock, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(w.t, err)
	for _, s := range services {
		for _, q := range s.Questions {
			w.questions[q.Subject] = q.Answer
		}
		for _, step := range s.Steps {
			w.steps[step.Name()], w.workers[step.Name()] = step, s.Name
		}
	}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// order returns a provisioning of an azure instance with Service Manager credentials.
func (w *world) order() workertest.Operation {
	return workertest.Operation{
		Plan:    event.Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: "azure"},
		Context: event.Context{GlobalAccountID: "ga-1", SubaccountID: "SA-1", UserID: "a@example.com", PlatformRegion: "cf-eu10"},
		Runtime: event.Runtime{Name: "demo", ShootName: "c-1a2b3c4", ShootDomain: "c-1a2b3c4.kyma.example.com", Provider: "azure", Region: "eastus"},
		Parameters: map[string]any{
			"name": "demo", "region": "eastus", "machineType": "Standard_D4_v3", "autoScalerMin": 3, "autoScalerMax": 5,
			"administrators": []string{"a@example.com"},
			"oidc": map[string]any{
				"clientID": "c", "issuerURL": "https://issuer.example.com", "groupsClaim": "groups", "signingAlgs": []string{"RS256"},
				"usernameClaim": "sub", "usernamePrefix": "-",
			},
		},
		Credentials: map[string]any{event.CredentialsServiceManager: map[string]any{
			"clientid": canary + "-id", "clientsecret": canary + "-secret", "sm_url": "https://sm.example.com",
			"url": "https://" + canary + ".example.com", "xsappname": "x",
		}},
		Kept: map[string]json.RawMessage{},
	}
}

// run runs a step once, at the world's time.
func (w *world) run(name string, op workertest.Operation) workertest.Result {
	w.t.Helper()
	step, ok := w.steps[name]
	if !ok {
		w.t.Fatalf("no worker has the step %s", name)
	}
	op.Worker, op.Now = w.workers[name], w.clock()
	r := workertest.Run(w.t, step, op)
	details, err := json.Marshal(r.Details)
	require.NoError(w.t, err)
	w.texts = append(w.texts, string(details), r.Message)
	if r.Error != nil {
		w.texts = append(w.texts, r.Error.Message, r.Error.Reason, r.Error.Component)
	}
	return r
}

// waiting is a retry without an error.
const waiting event.Outcome = "waiting"

// expect runs a step once, and expects an outcome and texts in its message or error. A retry must have an error.
func (w *world) expect(name string, op workertest.Operation, want event.Outcome, texts ...string) {
	w.t.Helper()
	r := w.run(name, op)
	got, said := r.Outcome, r.Message
	switch {
	case r.Error != nil:
		said = r.Error.Component + " (" + r.Error.Reason + "): " + r.Error.Message
	case got == retry:
		got = waiting
	}
	if got != want || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(said, text) }) {
		w.t.Errorf("%s: %s, %q, want %s and %q", name, got, said, want, texts)
	}
}

// during runs a step once while a system fails.
func (w *world) during(f fault, name string, op workertest.Operation) workertest.Result {
	w.t.Helper()
	w.door.fault.Store(&f)
	defer w.door.fault.Store(nil)
	return w.run(name, op)
}

// finish repeats a step until it is done, as the orchestrator does with retry.scope step, and keeps the stage memory
// between its retries.
func (w *world) finish(name string, op workertest.Operation) (workertest.Result, workertest.Operation) {
	w.t.Helper()
	for range 10 {
		r := w.run(name, op)
		next := r.Then()
		if r.Outcome != event.OutcomeRetry {
			return r, next
		}
		op.Details = next.Details
		w.advance(takes)
	}
	w.t.Fatalf("%s does not end", name)
	return workertest.Result{}, op
}

// all runs steps one after the other; each must succeed or be skipped.
func (w *world) all(names []string, op workertest.Operation) workertest.Operation {
	w.t.Helper()
	for _, name := range names {
		var r workertest.Result
		r, op = w.finish(name, op)
		if r.Outcome != event.OutcomeSucceeded && r.Outcome != event.OutcomeSkipped {
			w.t.Fatalf("%s: %s, %+v", name, r.Outcome, r.Error)
		}
	}
	return op
}

// deprovision returns the deprovisioning of op's instance, with its details and without stage memory.
func deprovision(op workertest.Operation) workertest.Operation {
	op.Type, op.Stage = event.Deprovision, "deprovision"
	op.Overrides, op.Remembered = nil, nil
	op.StageAttempt, op.StepAttempt, op.FirstTried = 0, 0, 0
	return op
}

// later returns another operation on op's instance, with its details and without stage memory.
func (w *world) later(op workertest.Operation, kind event.OperationType, id string) workertest.Operation {
	next := w.order()
	next.Type, next.ID, next.Stage = kind, id, string(kind)
	next.Plan, next.InstanceID = op.Plan, op.InstanceID
	next.Details, next.Kept = maps.Clone(op.Details), op.Kept
	return next
}

// update returns an update that changes the size of the cluster and the credentials.
func (w *world) update(op workertest.Operation, id string) workertest.Operation {
	next := w.later(op, event.Update, id)
	next.Update = &event.Changes{
		Parameters: json.RawMessage(`{"autoScalerMax":9}`), Credentials: []string{event.CredentialsServiceManager},
	}
	next.Credentials = map[string]any{event.CredentialsServiceManager: map[string]any{
		"clientid": canary + "-id", "clientsecret": canary + "-new", "sm_url": "https://sm.example.com", "url": "https://" + canary + ".example.com",
	}}
	return next
}

// upgrade returns an upgrade by the orchestration o-1, with a notification.
func (w *world) upgrade(op workertest.Operation, kind event.OperationType, id string) workertest.Operation {
	next := w.later(op, kind, id)
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	next.Upgrade = &event.Upgrade{
		OrchestrationID: "o-1", KubernetesVersion: "1.34.1", Notification: true,
		MaintenanceWindowBegin: &begin, MaintenanceWindowEnd: new(begin.Add(3 * time.Hour)),
	}
	if kind == event.UpgradeKyma {
		next.Upgrade.KymaVersion = "2.21.0"
	}
	w.announce(next)
	return next
}

// announce notifies SPC of the orchestration of an upgrade, as the orchestrator does before its operations start.
func (w *world) announce(op workertest.Operation) {
	w.t.Helper()
	instance := event.NotifiedInstance{InstanceID: cmp.Or(op.InstanceID, "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20"), Begin: w.clock()}
	if begin := op.Upgrade.MaintenanceWindowBegin; begin != nil {
		instance.Begin, instance.End = *begin, op.Upgrade.MaintenanceWindowEnd
	}
	w.notify(event.NotifyRequest{OrchestrationID: op.Upgrade.OrchestrationID, Type: op.Type, Instances: []event.NotifiedInstance{instance}})
}

// notify sends a question to the worker spc.
func (w *world) notify(q event.NotifyRequest) {
	w.t.Helper()
	question, err := json.Marshal(q)
	require.NoError(w.t, err)
	_, err = w.questions[event.AskNotify](w.t.Context(), question)
	require.NoError(w.t, err)
}

// system is a simulated system in the admin API.
type system struct {
	Objects map[string]int64 `json:"objects"`
	Created map[string]int64 `json:"created"`
	Calls   []struct {
		Method string `json:"method"`
		Route  string `json:"route"`
		Code   int    `json:"code"`
		Count  int64  `json:"count"`
	} `json:"calls"`
}

func (w *world) admin(method, path string, body any, into any) {
	w.t.Helper()
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		require.NoError(w.t, err)
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+"/admin/systems"+path, payload)
	require.NoError(w.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	if resp.StatusCode >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
}

func (w *world) system(name string) system {
	w.t.Helper()
	var s system
	w.admin(http.MethodGet, "/"+name, nil, &s)
	return s
}

// systems are the systems of the landscape with objects of instances.
var systems = []string{"avs", "edp", "ias", "lms", "azure", "provisioner", "director", "reconciler", "spc", "control-plane", "gardener", "runtimes"}

// objects returns the number of existing objects by "system/kind".
func (w *world) objects() map[string]int64 {
	w.t.Helper()
	held := map[string]int64{}
	for _, name := range systems {
		for kind, n := range w.system(name).Objects {
			if n > 0 {
				held[name+"/"+kind] = n
			}
		}
	}
	return held
}

// created returns the number of objects that were ever created, by "system/kind".
func (w *world) created() map[string]int64 {
	w.t.Helper()
	ever := map[string]int64{}
	for _, name := range systems {
		for kind, n := range w.system(name).Created {
			ever[name+"/"+kind] = n
		}
	}
	return ever
}

// holds expects a number of existing objects of a "system/kind".
func (w *world) holds(kind string, want int64) {
	w.t.Helper()
	if n := w.objects()[kind]; n != want {
		w.t.Errorf("%s: %d exist, want %d", kind, n, want)
	}
}

// made expects a number of objects of a "system/kind" that were ever created.
func (w *world) made(kind string, want int64) {
	w.t.Helper()
	if n := w.created()[kind]; n != want {
		w.t.Errorf("%s: %d were created, want %d", kind, n, want)
	}
}

func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// noSecrets fails the test if a step returned or saved a secret.
func (w *world) noSecrets() {
	w.t.Helper()
	for _, text := range w.texts {
		if strings.Contains(text, canary) {
			w.t.Errorf("a secret is in the output: %s", text)
		}
	}
}

// fault is the failure of a system.
type fault struct {
	prefix string
	status int
	body   string
	// after loses only the answer; the call has its effect.
	after bool
}

// door is a proxy in front of the landscape. It records every request, and injects faults.
type door struct {
	next http.Handler
	// landscape receives the requests of the Reconciler to the runtimes.
	landscape http.Handler
	fault     atomic.Pointer[fault]

	mu       sync.Mutex
	requests []testkit.Request
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.UserAgent() == landscape.ReconcilerUserAgent {
		d.landscape.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.record(r, body)
	f := d.fault.Load()
	if f == nil || !strings.HasPrefix(r.URL.Path, f.prefix) {
		d.next.ServeHTTP(w, r)
		return
	}
	if f.after {
		d.next.ServeHTTP(httptest.NewRecorder(), r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	// A careless system repeats its request in the answer.
	_, _ = io.WriteString(w, strings.ReplaceAll(f.body, "$BODY", strconv.Quote(string(body)+r.Header.Get("Authorization"))))
}

func (d *door) record(r *http.Request, body []byte) {
	seen := testkit.NewRequest(r, body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, seen)
}

// golden compares all requests since the last call of golden, or since the start, with testdata/golden/<name>.json. It selects requests by the
// prefixes of their paths. It replaces the address of the landscape by http://landscape, and the texts in w.named.
func (w *world) golden(name string, prefixes ...string) {
	w.t.Helper()
	w.door.mu.Lock()
	defer w.door.mu.Unlock()
	shown := slices.DeleteFunc(w.door.requests, func(r testkit.Request) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(r.Path, prefix) })
	})
	w.door.requests = nil
	testkit.GoldenRequests(w.t, filepath.Join("testdata", "golden", name+".json"), shown, func(text string) string {
		text = strings.ReplaceAll(text, w.url, "http://landscape")
		if w.hidden != nil {
			text = w.hidden.ReplaceAllString(text, `"TIME"`)
		}
		if w.rewritten != nil {
			text = w.rewritten(text)
		}
		for id, name := range w.named {
			text = strings.ReplaceAll(text, id, name)
		}
		return text
	})
}

// goldenOf compares only the requests that are sent while f runs.
func (w *world) goldenOf(name, prefix string, f func()) {
	w.t.Helper()
	w.door.mu.Lock()
	w.door.requests = nil
	w.door.mu.Unlock()
	f()
	w.golden(name, prefix)
}

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
	err := w.controlPlane().Create(w.t.Context(), kube.ConfigMaps, &unstructured.Unstructured{Object: map[string]any{
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
