package stepworkers_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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

// record returns the configurations that the Reconciler receives while f runs.
func (w *world) record(f func()) []recorded { return configurations[recorded](w, f) }

// configurations returns the bodies of the Reconciler's clusters while f runs.
func configurations[T any](w *world, f func()) []T {
	w.t.Helper()
	var list []T
	for _, c := range w.calls(f) {
		if c.method == http.MethodPost && c.path == "/reconciler/v1/clusters" {
			var body T
			require.NoError(w.t, json.Unmarshal(c.body, &body))
			list = append(list, body)
		}
	}
	return list
}

func TestOverrides_PlanWithoutAny_Fails(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	op.Details, op.Parameters = nil, map[string]any{"kymaVersion": "9.9.9"}
	w.expect("Overrides_From_Secrets_And_Config_Step", op, failed, "overrides-version-9.9.9=true")
	op.Parameters = map[string]any{"kymaVersion": "1=true,x"}
	w.expect("Overrides_From_Secrets_And_Config_Step", op, failed, "kymaVersion")
}

func TestConfiguration_MissingCredentials_IsNotApplied(t *testing.T) {
	w := newWorld(t)
	op := w.order()
	got := w.record(func() {
		op = w.all([]string{"Provision_Initialization", resolve, "Create_Runtime_Without_Kyma", "Check_Runtime", "Get_Kubeconfig"}, op)
		w.expect("Create_Cluster_Configuration", op, failed, "manager.secret.clientid")
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
		w.expect(name, lost, event.OutcomeStageLost)
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
	w.expect("Check_Cluster_Configuration", op, failed, "err_keb_timeout")
	w.advance(takes)
	w.holds("reconciler/cluster", 0)
}

func TestCheckConfiguration_RetryAfterTimeout_AppliesAgain(t *testing.T) {
	w := newWorld(t)
	op := w.all(upTo("Create_Cluster_Configuration", provisioning), w.order())
	late := op
	late.FirstTried = 2 * time.Hour
	op.Details = w.run("Check_Cluster_Configuration", late).Then().Details
	w.all([]string{"Create_Cluster_Configuration", "Check_Cluster_Configuration"}, op)
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
	equal(t, "saved", want, r.Details)
	for _, name := range []string{"Remove_Runtime", "Check_Runtime_Removal", "Release_Subscription"} {
		w.expect(name, deprovision(op), skipped)
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
	w.expect("Get_Kubeconfig", op, failed)
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
	equal(t, "workers of steps", want, w.workers)
}

var processStep = regexp.MustCompile(`(?m)name: *(\S+)\s+worker: *(\S+)`)
