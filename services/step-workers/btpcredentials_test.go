package stepworkers_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const inject = "Inject_BTP_Operator_Credentials"

// reached returns a provisioning that has just received the kubeconfig of its runtime.
func (w *world) reached() workertest.Operation {
	w.t.Helper()
	return w.all([]string{"Resolve_Target_Secret", "Create_Runtime_Without_Kyma", "Check_Runtime", "Get_Kubeconfig"}, w.order())
}

// btpSecret returns the Secret of the BTP manager in op's runtime, with its data decoded.
func (w *world) btpSecret(op workertest.Operation) (labels, annotations, data map[string]string) {
	w.t.Helper()
	s, err := w.runtime(op).Get(w.t.Context(), kube.Secrets, "kyma-system", "sap-btp-manager")
	require.NoError(w.t, err)
	encoded, _, err := unstructured.NestedStringMap(s.Object, "data")
	require.NoError(w.t, err)
	data = map[string]string{}
	for key, value := range encoded {
		text, err := base64.StdEncoding.DecodeString(value)
		require.NoError(w.t, err)
		data[key] = string(text)
	}
	return s.GetLabels(), s.GetAnnotations(), data
}

// putBTPSecret creates or replaces a Secret of that name as a customer would.
func (w *world) putBTPSecret(op workertest.Operation, labels map[string]any, more map[string]any) {
	w.t.Helper()
	runtime := w.runtime(op)
	for _, o := range []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kyma-system"}}},
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata": map[string]any{"name": "sap-btp-manager", "namespace": "kyma-system", "labels": labels},
			"data":     map[string]any{"clientid": "bWluZQ==", "other": "b3RoZXI="},
		}},
	} {
		resource := kube.Namespaces
		if o.GetKind() == "Secret" {
			resource = kube.Secrets
			maps.Copy(o.Object, more)
			require.NoError(w.t, runtime.Delete(w.t.Context(), resource, "kyma-system", o.GetName()))
		}
		if err := runtime.Create(w.t.Context(), resource, o); err != nil && !kube.IsConflict(err) {
			w.t.Fatal(err)
		}
	}
}

// logged runs a step and returns its log.
func (w *world) logged(name string, op workertest.Operation) (workertest.Result, string) {
	w.t.Helper()
	var text bytes.Buffer
	step := w.steps[name]
	w.steps[name] = heard{step, slog.New(slog.NewTextHandler(&text, nil))}
	defer func() { w.steps[name] = step }()
	r := w.run(name, op)
	w.texts = append(w.texts, text.String())
	return r, text.String()
}

// heard is a step whose log is kept.
type heard struct {
	worker.Step

	log *slog.Logger
}

func (h heard) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return h.Step.Run(ctx, op, h.log)
}

var brokerLabels = map[string]string{
	"app.kubernetes.io/managed-by": "kcp-kyma-environment-broker", "app.kubernetes.io/watched-by": "kcp-kyma-environment-broker",
}

func TestInject_Credentials_HaveBTPManagerFormat(t *testing.T) {
	w := newWorld(t)
	op := w.reached()
	r, log := w.logged(inject, op)
	if r.Outcome != succeeded || strings.Contains(log, "WARN") {
		t.Fatalf("%s, %+v, log %q", r.Outcome, r.Error, log)
	}
	labels, annotations, data := w.btpSecret(op)
	id, _ := r.Details["smClusterId"].(string)
	want := map[string]string{
		"clientid": canary + "-id", "clientsecret": canary + "-secret", "sm_url": "https://sm.example.com",
		"tokenurl": "https://" + canary + ".example.com", "cluster_id": id,
	}
	if diff := cmp.Diff(want, data); diff != "" || id == "" {
		t.Errorf("data with the cluster id %q (-want +got):\n%s", id, diff)
	}
	equal(t, "labels", brokerLabels, labels)
	if annotations["Warning"] == "" {
		t.Errorf("annotations %v do not warn", annotations)
	}
	// The repeated step has nothing to do.
	calls := w.calls(func() { r = w.run(inject, op) })
	if r.Outcome != succeeded || len(calls) != 1 || calls[0].method != http.MethodGet {
		t.Errorf("repeated: %s, %+v, %d calls", r.Outcome, r.Error, len(calls))
	}
	w.noSecrets()
}

func TestInject_NoRuntime_IsSkipped(t *testing.T) {
	w := newWorld(t)
	w.expect(inject, w.order(), failed, "no kubeconfig")
}

func TestInject_OtherManager_IsOverwrittenAndLogged(t *testing.T) {
	for name, more := range map[string]map[string]any{
		"as usual": nil, "of another type": {"type": "kubernetes.io/tls"}, "immutable": {"immutable": true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			op := w.reached()
			w.putBTPSecret(op, map[string]any{"app.kubernetes.io/managed-by": "helm"}, more)
			var r workertest.Result
			var log string
			calls := w.calls(func() { r, log = w.logged(inject, op) })
			if r.Outcome != succeeded || !strings.Contains(log, "WARN") || !strings.Contains(log, "managed_by=helm") {
				t.Fatalf("%s, %+v, log %q", r.Outcome, r.Error, log)
			}
			// A real server rejects a change of the type, and any change of an immutable Secret.
			if want := map[bool]string{true: "PUT", false: "DELETE"}[more == nil]; calls[1].method != want {
				t.Errorf("the second call is %s %s, want %s", calls[1].method, calls[1].path, want)
			}
			labels, _, data := w.btpSecret(op)
			if _, left := data["other"]; left || len(data) != 5 || data["clientid"] != canary+"-id" {
				t.Errorf("it has %d keys, the customer's among them %t", len(data), left)
			}
			equal(t, "labels", brokerLabels, labels)
			w.noSecrets()
		})
	}
}

func TestInject_CustomerSecret_IsNotChanged(t *testing.T) {
	w := newWorld(t)
	op := w.reached()
	const label = "kyma-project.io/skip-reconciliation"
	w.putBTPSecret(op, map[string]any{label: "true"}, nil)
	for name, run := range map[string]workertest.Operation{"provisioning": op, "update": w.update(op, "u-1")} {
		run.Remembered = map[string][]byte{provisioner.KubeconfigKey: []byte(w.runtimeKubeconfig(op))}
		w.expect(inject, run, skipped, label)
		if _, _, data := w.btpSecret(op); data["clientid"] != "mine" || len(data) != 2 {
			t.Errorf("%s: the Secret has %d keys and client id %q", name, len(data), data["clientid"])
		}
	}
	// Any other value of the label has no effect.
	w.putBTPSecret(op, map[string]any{label: "false"}, nil)
	w.expect(inject, op, succeeded)
	if _, _, data := w.btpSecret(op); data["clientid"] != canary+"-id" {
		t.Errorf("client id %q", data["clientid"])
	}
}

func TestCredentials_Invalid_ErrorNamesMembers(t *testing.T) {
	w := newWorld(t)
	reached := w.reached()
	const (
		space   = " has white space around it or control characters"
		address = " is not an http or https URL without credentials, query and fragment"
	)
	for name, test := range map[string]struct {
		changes map[string]string
		want    string
	}{
		"no client id": {map[string]string{"clientid": ""}, "missing clientid"},
		"no secret":    {map[string]string{"clientsecret": ""}, "missing clientsecret"},
		"no sm_url":    {map[string]string{"sm_url": ""}, "missing sm_url"},
		"no url":       {map[string]string{"url": ""}, "missing url"},
		"nothing":      {map[string]string{"clientid": "", "clientsecret": "", "sm_url": "", "url": ""}, "missing clientid, clientsecret, sm_url, url"},
		"white space":  {map[string]string{"clientid": " \n", "clientsecret": canary + "\n"}, "missing clientid; clientsecret" + space},
		"text as URL":  {map[string]string{"sm_url": canary, "url": "ftp://" + canary}, "sm_url" + address + "; url" + address},
		"no host":      {map[string]string{"clientid": "", "url": "https:///" + canary}, "missing clientid; url" + address},
		"more of URL":  {map[string]string{"sm_url": "https://u:" + canary + "@h", "url": "https://h/?" + canary}, "sm_url" + address + "; url" + address},
	} {
		t.Run(name, func(t *testing.T) {
			given := map[string]string{
				"clientid": canary, "clientsecret": canary, "sm_url": "https://sm.example.com", "url": "https://token.example.com",
			}
			maps.Copy(given, test.changes)
			for _, step := range []string{"BTPOperatorOverrides", inject} {
				op := reached
				op.Credentials = map[string]any{event.CredentialsServiceManager: given}
				r := w.run(step, op)
				if r.Outcome != failed || r.Error.Message != "sm_operator_credentials: "+test.want {
					t.Errorf("%s: %s, %+v, want %q", step, r.Outcome, r.Error, test.want)
				}
			}
		})
	}
	w.holds("runtimes/Secret", 0)
	w.noSecrets()
}

// ownCluster returns the deprovisioning of op with its runtime as a customer's own cluster.
func (w *world) ownCluster(op workertest.Operation) workertest.Operation {
	own := deprovision(op)
	own.Plan.Name = "own_cluster"
	own.Credentials = map[string]any{
		event.CredentialsKubeconfig:     map[string]any{"kubeconfig": w.runtimeKubeconfig(op)},
		event.CredentialsServiceManager: op.Credentials[event.CredentialsServiceManager],
	}
	return own
}

func TestWithdraw_OwnCluster_RemovesOnlyOurSecret(t *testing.T) {
	w := newWorld(t)
	op := w.reached()
	for name, test := range map[string]struct {
		labels map[string]any
		stays  bool
	}{
		"ours":                     {map[string]any{"app.kubernetes.io/managed-by": "kcp-kyma-environment-broker"}, false},
		"kept by the customer":     {map[string]any{"app.kubernetes.io/managed-by": "kcp-kyma-environment-broker", "kyma-project.io/skip-reconciliation": "true"}, true},
		"made by the customer":     {nil, true},
		"made by another operator": {map[string]any{"app.kubernetes.io/managed-by": "helm"}, true},
	} {
		w.putBTPSecret(op, test.labels, nil)
		for range 2 {
			w.expect("BTPOperator_Cleanup", w.ownCluster(op), succeeded)
		}
		if stays := w.objects()["runtimes/Secret"] == 1; stays != test.stays {
			t.Errorf("%s: it remains %t, want %t", name, stays, test.stays)
		}
	}
}

// runtimeIDs matches the ids of runtimes in paths.
var runtimeIDs = regexp.MustCompile(`/k8s/runtimes/[^/]+/`)

// goldenRuntime compares the requests to the runtime that are sent while f runs.
func (w *world) goldenRuntime(name string, f func()) {
	w.t.Helper()
	w.rewritten = func(text string) string {
		return assigned.ReplaceAllString(runtimeIDs.ReplaceAllString(text, "/k8s/runtimes/RUNTIME/"), `"$1": "ASSIGNED"`)
	}
	w.goldenOf("runtimes_"+name, "/k8s/runtimes", f)
}

func TestRuntimeCredentials_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	op := w.reached()
	kubeconfig := w.runtimeKubeconfig(op)
	w.goldenRuntime("azure_provision", func() { op = w.all([]string{inject}, op) })
	update := w.update(op, "u-1")
	update.Remembered = memoryWith(kubeconfig)
	w.goldenRuntime("azure_update", func() { w.all([]string{inject}, update) })
	w.putBTPSecret(op, map[string]any{"app.kubernetes.io/managed-by": "helm"}, map[string]any{"immutable": true})
	w.goldenRuntime("azure_update_immutable", func() { w.all([]string{inject}, update) })
	// Neither the details nor the runtime contain a cluster id.
	upgrade := w.upgrade(op, event.UpgradeKyma, "k-1")
	upgrade.Remembered = memoryWith(kubeconfig)
	delete(upgrade.Details, "btp")
	w.goldenRuntime("azure_upgradeKyma", func() { w.all([]string{"BTPOperatorOverrides"}, upgrade) })
}

func TestRuntimeCleanup_RequestsAreGolden(t *testing.T) {
	for name, change := range map[string]func(*workertest.Operation){
		"azure_deprovision":            func(*workertest.Operation) {},
		"trial_suspension":             func(op *workertest.Operation) { op.Plan.Name, op.Temporary = "trial", true },
		"azure_deprovision_finalizers": func(op *workertest.Operation) { op.FirstTried = 30 * time.Minute },
		"azure_deprovision_account":    func(op *workertest.Operation) { op.UserAgent = "accountcleanup-job" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			op := deprovision(w.reached())
			change(&op)
			w.customerHas(op, "db", "services.cloud.sap.com/sap-btp-finalizer")
			w.goldenRuntime(name, func() {
				r := w.run(btpCleanup, op)
				if op.FirstTried > 0 { // it counted the remaining objects
					next := r.Then()
					next.FirstTried = op.FirstTried
					w.run(btpCleanup, next)
				}
			})
		})
	}
}

func TestRuntimeCleanup_OwnCluster_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{inject}, w.reached())
	own := w.ownCluster(op)
	w.goldenRuntime("own_cluster_deprovision", func() { w.all([]string{btpCleanup}, own) })
}

func TestRuntimeAccess_RequestsAreGolden(t *testing.T) {
	w := newWorld(t)
	at := w.accessOf(w.reached())
	w.goldenRuntime("azure_bind", func() {
		_, err := w.bind(at, "b-1", 600)
		require.NoError(t, err)
	})
	w.goldenRuntime("azure_unbind", func() { require.NoError(t, w.unbind(at, "b-1")) })
}
