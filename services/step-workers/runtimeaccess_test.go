package stepworkers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// put sends a question to the worker runtime, as the bus does.
func put[A any](w *world, subject string, question any) (A, error) {
	w.t.Helper()
	raw, err := json.Marshal(question)
	require.NoError(w.t, err)
	given, err := w.questions[subject](w.t.Context(), raw)
	out, _ := given.(A)
	return out, err
}

func (w *world) bind(at event.RuntimeAccess, binding string, seconds int64) (event.BindAnswer, error) {
	return put[event.BindAnswer](w, event.AskBind, event.BindRequest{Runtime: at, BindingID: binding, ExpirationSeconds: seconds})
}

func (w *world) unbind(at event.RuntimeAccess, binding string) error {
	_, err := put[event.UnbindAnswer](w, event.AskUnbind, event.UnbindRequest{Runtime: at, BindingID: binding})
	return err
}

// accessOf returns the access of op's runtime.
func (w *world) accessOf(op workertest.Operation) event.RuntimeAccess {
	w.t.Helper()
	return event.RuntimeAccess{
		InstanceID: op.InstanceID, Account: op.Context.GlobalAccountID,
		RuntimeID: saved[provisioner.Details](w.t, op, provisioner.Name).RuntimeID,
	}
}

// reach uses a kubeconfig; it returns nil if the kubeconfig permits reading all secrets.
func (w *world) reach(kubeconfig string) error {
	w.t.Helper()
	c, err := kube.FromKubeconfig("runtime", []byte(kubeconfig), 0, extclient.Deps{})
	require.NoError(w.t, err)
	defer c.Close()
	_, err = c.List(w.t.Context(), kube.Secrets, "", "")
	return err
}

// operators is the number of ClusterRoleBindings of the Runtime Provisioner in a runtime with one administrator.
const operators = 3

func (w *world) access() int64 {
	held := w.objects()
	return held["runtimes/ServiceAccount"] + held["runtimes/ClusterRole"] + held["runtimes/ClusterRoleBinding"] - operators
}

func TestBind_Access_WorksUntilExpiryOrUnbind(t *testing.T) {
	w := newWorld(t)
	at := w.accessOf(w.all(provisioning, w.order()))
	short, err := w.bind(at, "b-short", 600)
	require.NoError(t, err)
	long, err := w.bind(at, "b-long", 7200)
	require.NoError(t, err)
	if got := long.ExpiresAt.Sub(w.clock()); got < 7190*time.Second || got > 7200*time.Second {
		t.Errorf("the token ends in %s, want 2 h", got)
	}
	config, err := clientcmd.Load([]byte(short.Kubeconfig))
	if err != nil || config.CurrentContext != "kyma-binding-b-short" {
		t.Errorf("kubeconfig with the context %v: %v", config.CurrentContext, err)
	}
	for name, k := range map[string]string{"short": short.Kubeconfig, "long": long.Kubeconfig} {
		if err := w.reach(k); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.access(); n != 6 {
		t.Errorf("%d objects for two bindings, want 6", n)
	}
	w.advance(601 * time.Second)
	if err := w.reach(short.Kubeconfig); err == nil {
		t.Error("an expired token is accepted")
	}
	if err := w.reach(long.Kubeconfig); err != nil {
		t.Errorf("the other binding: %v", err)
	}
	for range 2 {
		if err := w.unbind(at, "b-long"); err != nil {
			t.Errorf("unbind: %v", err)
		}
	}
	if err := w.reach(long.Kubeconfig); err == nil {
		t.Error("the token of a removed binding is accepted")
	}
	if n := w.access(); n != 3 {
		t.Errorf("%d objects are left of one binding, want 3", n)
	}
}

func TestBind_Repeated_CreatesAccessOnce(t *testing.T) {
	w := newWorld(t)
	at := w.accessOf(w.all(provisioning, w.order()))
	var asked sync.WaitGroup
	for range 8 {
		asked.Go(func() {
			if _, err := w.bind(at, "Any text / at all", 600); err != nil {
				t.Errorf("bind: %v", err)
			}
		})
	}
	asked.Wait()
	created := w.created()
	for kind, want := range map[string]int64{"ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1 + operators} {
		if n := created["runtimes/"+kind]; n != want {
			t.Errorf("%d objects of the kind %s were created, want %d", n, kind, want)
		}
	}
	if err := w.unbind(at, "Any text / at all"); err != nil || w.access() != 0 {
		t.Errorf("unbind: %v, and %d objects are left", err, w.access())
	}
}

func TestBind_AfterFailure_CompletesAccess(t *testing.T) {
	w := newWorld(t)
	at := w.accessOf(w.all(provisioning, w.order()))
	// The role is created, but the answer is lost.
	w.door.fault.Store(&fault{
		prefix: "/k8s/runtimes/" + at.RuntimeID + "/apis/rbac.authorization.k8s.io/v1/clusterroles", status: 500, after: true,
		body: `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":$BODY}`,
	})
	_, err := w.bind(at, "b", 600)
	if err == nil || strings.Contains(err.Error(), "Bearer") || !strings.HasPrefix(err.Error(), "runtime (") {
		t.Errorf("the error is %v, want one with component and reason and without the token", err)
	}
	w.door.fault.Store(nil)
	got, err := w.bind(at, "b", 600)
	if err != nil || w.reach(got.Kubeconfig) != nil || w.access() != 3 {
		t.Errorf("again: %v, and %d objects", err, w.access())
	}
}

func TestCluster_Answer_HasNoCredentials(t *testing.T) {
	w := newWorld(t)
	at := w.accessOf(w.all(provisioning, w.order()))
	got, err := put[event.ClusterAnswer](w, event.AskCluster, at)
	if err != nil || got.Server != w.url+"/k8s/runtimes/"+at.RuntimeID {
		t.Errorf("the cluster is at %q: %v", got.Server, err)
	}
	own := event.RuntimeAccess{InstanceID: "i", Kubeconfig: `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://own.example.com", certificate-authority-data: Q0E=}}]
users: [{name: u, user: {token: ` + canary + `}}]
`}
	got, err = put[event.ClusterAnswer](w, event.AskCluster, own)
	if err != nil || got != (event.ClusterAnswer{Server: "https://own.example.com", CAData: "Q0E="}) {
		t.Errorf("an own cluster is %+v: %v", got, err)
	}
}

func TestQuestions_Invalid_ReturnReason(t *testing.T) {
	w := newWorld(t)
	at := event.RuntimeAccess{InstanceID: "i", Account: "ga-1", RuntimeID: "unknown"}
	for name, c := range map[string]struct {
		question any
		want     string
	}{
		"no runtime":         {event.BindRequest{Runtime: at, BindingID: "b", ExpirationSeconds: 600}, "runtime (err_runtime_not_found)"},
		"no binding":         {event.BindRequest{Runtime: at, ExpirationSeconds: 600}, "bindingId must not be empty"},
		"no expiration":      {event.BindRequest{Runtime: at, BindingID: "b"}, "expirationSeconds must be positive"},
		"nothing to find by": {event.BindRequest{BindingID: "b", ExpirationSeconds: 600}, "runtimeId and subscription"},
		"no JSON":            {"text " + canary, "not the JSON object"},
		"no kubeconfig": {
			event.BindRequest{Runtime: event.RuntimeAccess{Kubeconfig: canary}, BindingID: "b", ExpirationSeconds: 600},
			"runtime (err_kubeconfig)",
		},
		"a kubeconfig that runs programs": {
			event.BindRequest{BindingID: "b", ExpirationSeconds: 600, Runtime: event.RuntimeAccess{Kubeconfig: `
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://own.example.com"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ` + canary + `}}}]
`}}, "exec",
		},
	} {
		_, err := put[event.BindAnswer](w, event.AskBind, c.question)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error is %v, want one with %q and without the secret", name, err, c.want)
		}
	}
	// The objects were removed with the runtime.
	if err := w.unbind(at, "b"); err != nil {
		t.Errorf("unbind in a missing runtime: %v", err)
	}
	w.door.fault.Store(&fault{prefix: "/provisioner", status: http.StatusBadGateway, body: "$BODY"})
	if err := w.unbind(at, "b"); err == nil || !strings.HasPrefix(err.Error(), "provisioner (") {
		t.Errorf("unbind without the Provisioner: %v", err)
	}
}
