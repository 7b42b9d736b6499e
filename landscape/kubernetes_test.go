package landscape_test

import (
	"maps"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/keb/landscape"
)

var (
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	kymas      = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "kymas"}
	bindings   = schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "secretbindings"}
	shootsGVR  = schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}
	instances  = schema.GroupVersionResource{Group: "services.cloud.sap.com", Version: "v1", Resource: "serviceinstances"}
)

func object(gvr schema.GroupVersionResource, kind, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, content)
	o.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
	o.SetName(name)
	return o
}

func authorized(w *world, path string) dynamic.Interface {
	w.t.Helper()
	return client(w, &rest.Config{Host: w.url + path, BearerToken: "keb"})
}

// client has its own connections, which are closed before the server.
func client(w *world, config *rest.Config) dynamic.Interface {
	w.t.Helper()
	config.QPS = -1
	h, err := rest.HTTPClientFor(config)
	require.NoError(w.t, err)
	w.t.Cleanup(h.CloseIdleConnections)
	c, err := dynamic.NewForConfigAndClient(config, h)
	require.NoError(w.t, err)
	return c
}

func TestKubernetes_DynamicClient_ManagesSecrets(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	c := authorized(w, "/k8s/control-plane").Resource(secrets).Namespace("kcp-system")

	made, err := c.Create(ctx, object(secrets, "Secret", "s", map[string]any{"stringData": map[string]any{"k": "v"}}), metav1.CreateOptions{})
	require.NoError(t, err)
	if data, _, _ := unstructured.NestedString(made.Object, "data", "k"); data != "dg==" {
		t.Errorf("data is %q, want the base64 of v", data)
	}
	if made.GetUID() == "" || made.GetResourceVersion() == "" || made.GetCreationTimestamp().Unix() != w.clock.Now().Unix() {
		t.Errorf("the server did not fill in the metadata: %v", made.Object["metadata"])
	}
	if _, err := c.Create(ctx, object(secrets, "Secret", "s", nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it twice: %v", err)
	}

	changed := made.DeepCopy()
	changed.SetLabels(map[string]string{"a": "b"})
	newer, err := c.Update(ctx, changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	if newer.GetResourceVersion() == made.GetResourceVersion() {
		t.Error("an update kept the resource version")
	}
	if _, err := c.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update from an old version: %v", err)
	}
	same, err := c.Update(ctx, newer, metav1.UpdateOptions{})
	if err != nil || same.GetResourceVersion() != newer.GetResourceVersion() {
		t.Errorf("an update of nothing: version %s to %s, %v", newer.GetResourceVersion(), same.GetResourceVersion(), err)
	}

	patched, err := c.Patch(ctx, "s", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":null,"c":"d"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	if labels := patched.GetLabels(); len(labels) != 1 || labels["c"] != "d" {
		t.Errorf("labels after the patch are %v", labels)
	}
	if _, err := c.Patch(ctx, "s", types.JSONPatchType, []byte(`[]`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a JSON patch: %v", err)
	}
	require.NoError(t, c.Delete(ctx, "s", metav1.DeleteOptions{}))
	if _, err := c.Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("getting a deleted one: %v", err)
	}
	if err := c.Delete(ctx, "s", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleting it twice: %v", err)
	}
}

func TestKubernetes_Apply_CreatesAndMerges(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	c := authorized(w, "/k8s/control-plane").Resource(configMaps).Namespace("kcp-system")
	options := metav1.ApplyOptions{FieldManager: "keb", Force: true}
	for _, value := range []string{"1", "2"} {
		got, err := c.Apply(ctx, "m", object(configMaps, "ConfigMap", "m", map[string]any{"data": map[string]any{"k": value}}), options)
		require.NoError(t, err)
		if k, _, _ := unstructured.NestedString(got.Object, "data", "k"); k != value {
			t.Errorf("data is %q, want %q", k, value)
		}
	}
	if _, ever := w.held("control-plane", "ConfigMap"); ever != 8 { // seven are there from the start
		t.Errorf("%d ConfigMaps were ever made, want 8", ever)
	}
}

func TestKubernetes_MissingNamespace_Returns404(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	c := authorized(w, "/k8s/control-plane")
	nowhere := c.Resource(configMaps).Namespace("nowhere")
	if _, err := nowhere.Create(ctx, object(configMaps, "ConfigMap", "m", nil), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("creating in a missing namespace: %v", err)
	}
	_, err := c.Resource(namespaces).Create(ctx, object(namespaces, "Namespace", "nowhere", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	if _, err := nowhere.Create(ctx, object(configMaps, "ConfigMap", "m", nil), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	require.NoError(t, c.Resource(namespaces).Delete(ctx, "nowhere", metav1.DeleteOptions{}))
	if _, err := nowhere.Get(ctx, "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object outlived its namespace: %v", err)
	}
	if _, err := c.Resource(configMaps).Namespace("kcp-system").Create(ctx, object(configMaps, "ConfigMap", "Not_Valid", nil), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v", err)
	}
}

func TestKubernetes_Selectors_FilterBindings(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	c := authorized(w, "/k8s/gardener").Resource(bindings).Namespace("garden-kyma")
	count := func(selector string) int {
		t.Helper()
		list, err := c.List(ctx, metav1.ListOptions{LabelSelector: selector})
		require.NoError(t, err)
		return len(list.Items)
	}
	const free = "hyperscalerType=azure,shared!=true,!tenantName,!dirty,!euAccess"
	if got := count(free); got != 5 {
		t.Errorf("%d free bindings, want 5", got)
	}
	list, err := c.List(ctx, metav1.ListOptions{LabelSelector: free})
	require.NoError(t, err)
	claimed := list.Items[0]
	labels := claimed.GetLabels()
	labels["tenantName"] = "ga-1"
	claimed.SetLabels(labels)
	_, err = c.Update(ctx, &claimed, metav1.UpdateOptions{})
	require.NoError(t, err)
	if got := count(free); got != 4 {
		t.Errorf("%d free bindings after a claim, want 4", got)
	}
	for selector, want := range map[string]int{
		"tenantName=ga-1":                           1,
		"hyperscalerType in (azure,gcp),shared":     6,
		"hyperscalerType notin (azure, gcp, aws)":   9,
		"hyperscalerType==openstack,euAccess==true": 1,
	} {
		if got := count(selector); got != want {
			t.Errorf("%s chooses %d, want %d", selector, got, want)
		}
	}
	if _, err := c.List(ctx, metav1.ListOptions{LabelSelector: "a in (b"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a broken selector: %v", err)
	}
}

func TestKubernetes_List_IsPaged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := authorized(w, "/k8s/gardener").Resource(bindings).Namespace("garden-kyma")
	seen := map[string]bool{}
	options := metav1.ListOptions{Limit: 10}
	for pages := 0; ; pages++ {
		list, err := c.List(t.Context(), options)
		if err != nil || pages > 4 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, item := range list.Items {
			seen[item.GetName()] = true
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			break
		}
	}
	if len(seen) != 36 {
		t.Errorf("the pages have %d bindings, want 36", len(seen))
	}
}

func TestKubernetes_Finalizer_KeepsDeletedObject(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.clock.Advance(clusterTime)
	status, _ := w.ask(runtimeQuery, map[string]any{"id": text(t, op, "runtimeID")})
	config, err := clientcmd.Load([]byte(text(t, status, "runtimeConfiguration", "kubeconfig")))
	require.NoError(t, err)
	// client-go omits the token of a kubeconfig if there is no TLS.
	current := config.Contexts[config.CurrentContext]
	runtime := client(w, &rest.Config{Host: config.Clusters[current.Cluster].Server, BearerToken: config.AuthInfos[current.AuthInfo].Token})
	c := runtime.Resource(instances).Namespace("default")
	o := object(instances, "ServiceInstance", "db", map[string]any{"spec": map[string]any{"serviceOfferingName": "x"}})
	o.SetFinalizers([]string{"services.cloud.sap.com/sap-btp-finalizer"})
	_, err = c.Create(ctx, o, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	left, err := c.Get(ctx, "db", metav1.GetOptions{})
	if err != nil || left.GetDeletionTimestamp() == nil {
		t.Fatalf("the object with a finalizer after its deletion: %v, %v", left, err)
	}
	left.SetFinalizers(nil)
	_, err = c.Update(ctx, left, metav1.UpdateOptions{})
	require.NoError(t, err)
	all, err := runtime.Resource(instances).List(ctx, metav1.ListOptions{}) // of all namespaces
	if err != nil || len(all.Items) != 0 {
		t.Errorf("without its finalizer it is still there: %v, %v", all, err)
	}
}

func TestKyma_NoDelay_IsRemovedImmediately(t *testing.T) {
	t.Parallel()
	l, err := landscape.New(landscape.Config{}, landscape.Deps{})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	send := func(method, path, body string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "/k8s/control-plane/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas"+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer keb")
		w := httptest.NewRecorder()
		l.Handler().ServeHTTP(w, r)
		return w.Code
	}
	if code := send("POST", "", `{"metadata":{"name":"k"},"spec":{"channel":"fast"}}`); code != 201 {
		t.Fatalf("create: %d", code)
	}
	if code := send("DELETE", "/k", ""); code != 200 {
		t.Errorf("delete: %d", code)
	}
	if code := send("GET", "/k", ""); code != 404 {
		t.Errorf("right after its deletion: %d", code)
	}
}

func TestKyma_Clock_MakesItReadyAndRemovesIt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	c := authorized(w, "/k8s/control-plane").Resource(kymas).Namespace("kyma-system")
	_, err := c.Create(ctx, object(kymas, "Kyma", "k", map[string]any{"spec": map[string]any{"channel": "regular"}}), metav1.CreateOptions{})
	require.NoError(t, err)
	state := func() string {
		t.Helper()
		got, err := c.Get(ctx, "k", metav1.GetOptions{})
		require.NoError(t, err)
		s, _, _ := unstructured.NestedString(got.Object, "status", "state")
		return s
	}
	if got := state(); got != "Processing" {
		t.Errorf("state at first is %q", got)
	}
	w.clock.Advance(reconcileTime)
	if got := state(); got != "Processing" {
		t.Errorf("state without a kubeconfig is %q", got)
	}
	secret := object(secrets, "Secret", "kubeconfig-k", map[string]any{"stringData": map[string]any{"config": "x"}})
	secret.SetLabels(map[string]string{"operator.kyma-project.io/kyma-name": "k"})
	_, err = authorized(w, "/k8s/control-plane").Resource(secrets).Namespace("kyma-system").Create(ctx, secret, metav1.CreateOptions{})
	require.NoError(t, err)
	w.clock.Advance(reconcileTime)
	if got := state(); got != "Ready" {
		t.Errorf("state with its kubeconfig is %q", got)
	}
	require.NoError(t, c.Delete(ctx, "k", metav1.DeleteOptions{}))
	if got, err := c.Get(ctx, "k", metav1.GetOptions{}); err != nil || got.GetDeletionTimestamp() == nil {
		t.Errorf("right after its deletion: %v", err)
	}
	w.clock.Advance(reconcileTime)
	if _, err := c.Get(ctx, "k", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("long after its deletion: %v", err)
	}
}

func TestShoot_DeletionWithoutConfirmation_IsRejected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ctx := t.Context()
	w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	c := authorized(w, "/k8s/gardener").Resource(shootsGVR).Namespace("garden-kyma")
	if err := c.Delete(ctx, "c-1", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting without confirmation: %v", err)
	}
	_, err := c.Patch(ctx, "c-1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"confirmation.gardener.cloud/deletion":"true"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	if err := c.Delete(ctx, "c-1", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestKubernetes_Discovery_ListsResources(t *testing.T) {
	t.Parallel()
	w := setup(t)
	d, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: w.url + "/k8s/control-plane", BearerToken: "keb"})
	require.NoError(t, err)
	got, err := d.ServerResourcesForGroupVersion("operator.kyma-project.io/v1beta2")
	if err != nil || len(got.APIResources) != 1 || got.APIResources[0].Kind != "Kyma" {
		t.Errorf("resources are %v, %v", got, err)
	}
	w.must(404, "GET", "/k8s/control-plane/apis/apps/v1/deployments", nil, bearer("keb"))
	w.must(405, "GET", "/k8s/control-plane/api/v1/namespaces?watch=true", nil, bearer("keb"))
}

func TestSeed_EachPlan_HasOverrides(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := authorized(w, "/k8s/control-plane")
	for _, plan := range []string{"azure", "azure_lite", "aws", "gcp", "openstack", "trial", "free"} {
		list, err := c.Resource(configMaps).Namespace("kcp-system").List(t.Context(), metav1.ListOptions{LabelSelector: "overrides-plan-" + plan + "=true,overrides-version-2.20.0=true,!component"})
		if err != nil || len(list.Items) == 0 {
			t.Errorf("plan %s has no global overrides: %v", plan, err)
		}
	}
	list, err := c.Resource(secrets).Namespace("kcp-system").List(t.Context(), metav1.ListOptions{LabelSelector: "runtime-override=true"})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("override secrets: %v, %v", list, err)
	}
	list, err = c.Resource(configMaps).Namespace("kcp-system").List(t.Context(), metav1.ListOptions{LabelSelector: "keb-config=true,runtime-version-2.20.0=true"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("Kyma templates: %v, %v", list, err)
	}
}
