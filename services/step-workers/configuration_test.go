package stepworkers_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

// recorded is a request to the Reconciler.
type recorded struct {
	KymaConfig struct {
		Components []struct {
			Component     string
			Namespace     string
			Configuration []struct {
				Key    string
				Value  any
				Secret bool
			}
		}
	}
	Kubeconfig string
}

// record returns the bodies of the Reconciler's clusters while f runs.
func (w *world) record(f func()) []recorded {
	w.t.Helper()
	var mu sync.Mutex
	var got []recorded
	next := w.door.next
	w.door.next = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/reconciler/v1/clusters" {
			body, _ := io.ReadAll(r.Body)
			var c recorded
			if err := json.Unmarshal(body, &c); err != nil {
				w.t.Error(err)
			}
			mu.Lock()
			got = append(got, c)
			mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(body)))
		}
		next.ServeHTTP(rw, r)
	})
	f()
	w.door.next = next
	mu.Lock()
	defer mu.Unlock()
	return got
}

func TestConfiguration_Overrides_AreFromAllSteps(t *testing.T) {
	w := newWorld(t)
	got := w.record(func() { w.all(provisioning, w.order()) })
	if len(got) != 1 {
		t.Fatalf("%d clusters were applied, want 1", len(got))
	}
	if !strings.Contains(got[0].Kubeconfig, "clusters") {
		t.Error("the kubeconfig is missing")
	}
	have := map[string]any{}
	for _, c := range got[0].KymaConfig.Components {
		for _, entry := range c.Configuration {
			have[c.Component+" "+entry.Key] = entry.Value
			if entry.Key == "manager.secret.clientsecret" && !entry.Secret {
				t.Error("a secret override is not marked as secret")
			}
		}
	}
	for key, want := range map[string]any{
		"btp-operator manager.secret.clientsecret": canary + "-secret",
		"btp-operator global.domainName":           "c-1a2b3c4.kyma.example.com",
		"istio global.tracing.enabled":             true,
		"istio global.registry.token":              "simulated-registry-token",
	} {
		if have[key] != want {
			t.Errorf("%s is %v, want %v", key, have[key], want)
		}
	}
	if _, ok := have["cluster-essentials manager.secret.clientsecret"]; ok {
		t.Error("a component got the overrides of another")
	}
}

func TestOverrides_PlanWithoutAny_Fails(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Details, op.Parameters = nil, map[string]any{"kymaVersion": "9.9.9"}
	r := w.run("Overrides_From_Secrets_And_Config_Step", op)
	if r.Outcome != failed || !strings.Contains(r.Error.Message, "overrides-version-9.9.9=true") {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
	op.Parameters = map[string]any{"kymaVersion": "1=true,x"}
	if r := w.run("Overrides_From_Secrets_And_Config_Step", op); r.Outcome != failed || !strings.Contains(r.Error.Message, "kymaVersion") {
		t.Errorf("a version that is not a valid label: %s, %+v", r.Outcome, r.Error)
	}
}

func TestConfiguration_MissingCredentials_IsNotApplied(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	got := w.record(func() {
		op = w.all([]string{"Provision_Initialization", resolve, "Create_Runtime_Without_Kyma", "Check_Runtime", "Get_Kubeconfig"}, op)
		r := w.run("Create_Cluster_Configuration", op)
		if r.Outcome != failed || !strings.Contains(r.Error.Message, "manager.secret.clientid") {
			t.Errorf("%s, %+v", r.Outcome, r.Error)
		}
	})
	if len(got) != 0 {
		t.Error("it was applied")
	}
}

func TestStageMemory_Lost_RepeatsStage(t *testing.T) {
	w := newWorld(t)
	op := w.all(upTo("Get_Kubeconfig", provisioning), w.order())
	lost := op
	lost.LostMemory = true
	for _, name := range []string{"Inject_BTP_Operator_Credentials", "Create_Cluster_Configuration"} {
		if r := w.run(name, lost); r.Outcome != event.OutcomeStageLost {
			t.Errorf("%s: %s, %+v", name, r.Outcome, r.Error)
		}
	}
}

func TestSteps_MissingInput_ErrorNamesIt(t *testing.T) {
	w := newWorld(t)
	for name, want := range map[string]string{
		"Create_Runtime_Without_Kyma":     "Resolve_Target_Secret",
		"Check_Runtime":                   "Create_Runtime_Without_Kyma",
		"Get_Kubeconfig":                  "id is not saved",
		"Inject_BTP_Operator_Credentials": "Get_Kubeconfig",
		"Create_Cluster_Configuration":    "runtime",
		"Check_Cluster_Configuration":     "Create_Cluster_Configuration",
		"Apply_Kyma":                      "runtime",
	} {
		if r := w.run(name, w.order()); r.Outcome != failed || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: %s, %+v, want %q", name, r.Outcome, r.Error, want)
		}
	}
}

func TestCheckConfiguration_Timeout_DeregistersCluster(t *testing.T) {
	w := newWorld(t)
	op := w.all(upTo("Create_Cluster_Configuration", provisioning), w.order())
	op.FirstTried = 2 * time.Hour
	r := w.run("Check_Cluster_Configuration", op)
	if r.Outcome != failed || r.Error.Reason != "err_keb_timeout" {
		t.Fatalf("%s, %+v", r.Outcome, r.Error)
	}
	w.advance(takes)
	if n := w.objects()["reconciler/cluster"]; n != 0 {
		t.Errorf("%d clusters remain registered", n)
	}
}

func TestCheckConfiguration_Failure_NamesComponent(t *testing.T) {
	w := newWorld(t)
	w.admin(http.MethodPut, "/reconciler/failures", map[string]any{"instanceId": "*", "component": "istio", "reason": "image not found"}, nil)
	op := w.all(upTo("Create_Cluster_Configuration", provisioning), w.order())
	r, _ := w.finish("Check_Cluster_Configuration", op)
	if r.Outcome != failed || !strings.Contains(r.Error.Message, "istio: image not found") {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

// The other statuses of the Reconciler, from a server that returns nothing else.
func TestCheckConfiguration_Statuses_DecideOutcome(t *testing.T) {
	status := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": <-status, "failures": []map[string]string{{"component": "c", "reason": "r"}}})
	}))
	defer server.Close()
	steps := reconcilerSteps(t, server.URL)
	now := time.Now()
	op := workertest.Operation{Worker: reconciler.Name, Now: now, Details: map[string]any{reconciler.Name: map[string]any{
		"runtimeId": "r", "clusterConfigurationVersion": 1, "deregisteredAt": now,
	}}}
	for _, test := range []struct {
		step, status string
		want         event.Outcome
		after        time.Duration
	}{
		{"Check_Cluster_Configuration", "ready", succeeded, 0},
		{"Check_Cluster_Configuration", "reconcile_pending", retry, 30 * time.Second},
		{"Check_Cluster_Configuration", "reconciling", retry, 30 * time.Second},
		{"Check_Cluster_Configuration", "reconcile_error_retryable", retry, 10 * time.Minute},
		{"Check_Cluster_Configuration", "error", failed, 0},
		{"Check_Cluster_Configuration", "reconcile_disabled", failed, 0},
		{"CheckReconcilerState", "reconcile_error_retryable", retry, 10 * time.Minute},
		{"Check_Cluster_Deregistration", "deleted", succeeded, 0},
		{"Check_Cluster_Deregistration", "delete_pending", retry, 30 * time.Second},
		{"Check_Cluster_Deregistration", "deleting", retry, 30 * time.Second},
		{"Check_Cluster_Deregistration", "delete_error_retryable", retry, 30 * time.Second},
		{"Check_Cluster_Deregistration", "ready", retry, time.Minute},
		{"Check_Cluster_Deregistration", "delete_error", failed, 0},
		{"Check_Cluster_Deregistration", "error", failed, 0},
	} {
		status <- test.status
		r := workertest.Run(t, steps[test.step], op)
		if r.Outcome != test.want || r.RetryAfter != test.after {
			t.Errorf("%s, %s: %s after %s, want %s after %s", test.step, test.status, r.Outcome, r.RetryAfter, test.want, test.after)
		}
	}
}

func reconcilerSteps(t *testing.T, url string) map[string]worker.Step {
	t.Helper()
	list, err := reconciler.Steps(reconciler.Config{
		URL: url, RetryInterval: time.Second, PollInterval: 30 * time.Second,
		ErrorInterval: time.Minute, ProblemInterval: 10 * time.Minute, CheckTimeout: time.Hour,
	}, extclient.Deps{Transport: http.DefaultTransport})
	require.NoError(t, err)
	steps := map[string]worker.Step{}
	for _, s := range list {
		steps[s.Name()] = s
	}
	return steps
}

const ownKubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: ` + canary + `}}]
`

func TestGetKubeconfig_OwnCluster_UsesOrder(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Plan.Name = "own_cluster"
	op.Credentials = map[string]any{event.CredentialsKubeconfig: map[string]any{"kubeconfig": ownKubeconfig}}
	r := w.run("Get_Kubeconfig", op)
	if r.Outcome != succeeded || string(r.Remembered[provisioner.KubeconfigKey]) != ownKubeconfig {
		t.Fatalf("%s, %+v", r.Outcome, r.Error)
	}
	want := map[string]any{"runtimeId": provisioner.OwnRuntimeID("5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20")}
	if diff := cmp.Diff(want, r.Details); diff != "" {
		t.Errorf("saved (-want +got):\n%s", diff)
	}
	for _, name := range []string{"Remove_Runtime", "Check_Runtime_Removal", "Release_Subscription"} {
		if r := w.run(name, deprovision(op)); r.Outcome != skipped {
			t.Errorf("%s: %s", name, r.Outcome)
		}
	}
	w.noSecrets()
}

func TestGetKubeconfig_ExecOrFiles_IsRejected(t *testing.T) {
	w := newWorld(t)
	for what, user := range map[string]string{
		"exec":       "{exec: {command: sh, args: [" + canary + "], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}",
		"file names": "{tokenFile: /etc/passwd}",
	} {
		op := w.order()
		op.Plan.Name = "own_cluster"
		op.Credentials = map[string]any{event.CredentialsKubeconfig: map[string]any{
			"kubeconfig": strings.Replace(ownKubeconfig, "{token: "+canary+"}", user, 1),
		}}
		if r := w.run("Get_Kubeconfig", op); r.Outcome != failed || !strings.Contains(r.Error.Message, what) {
			t.Errorf("%s: %s, %+v", what, r.Outcome, r.Error)
		}
	}
	op := w.order()
	op.Plan.Name = "own_cluster"
	op.Credentials = map[string]any{event.CredentialsKubeconfig: map[string]any{"kubeconfig": "{" + canary}}
	if r := w.run("Get_Kubeconfig", op); r.Outcome != failed {
		t.Errorf("garbage: %s", r.Outcome)
	}
	w.noSecrets()
}

// The process files are those of the orchestrator, with its overlays.
func TestProcesses_EveryStep_HasOneWorker(t *testing.T) {
	w := newWorld(t)
	want := map[string]string{}
	err := filepath.WalkDir("../orchestrator/processes", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range processStep.FindAllStringSubmatch(string(text), -1) {
			if step, worker := found[1], found[2]; worker != "orchestrator" && worker != "broker" {
				want[step] = worker
			}
		}
		return err
	})
	if err != nil || len(want) == 0 {
		t.Fatalf("%d steps are in the process files, %v", len(want), err)
	}
	if diff := cmp.Diff(want, w.workers); diff != "" {
		t.Errorf("workers of steps (-want +got):\n%s", diff)
	}
}

var processStep = regexp.MustCompile(`(?m)name: *(\S+)\s+worker: *(\S+)`)
