package btpmanager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	namespace = "kyma-system"
	managedBy = "app.kubernetes.io/managed-by"
	keb       = "kcp-kyma-environment-broker"
	finalizer = "services.cloud.sap.com/sap-btp-finalizer"
)

// given is the Secret that KEB writes, used and settings are what the operand gets of it.
var (
	given    = client.ObjectKey{Namespace: namespace, Name: "sap-btp-manager"}
	used     = client.ObjectKey{Namespace: namespace, Name: "sap-btp-service-operator"}
	settings = client.ObjectKey{Namespace: namespace, Name: "sap-btp-operator-config"}
)

// cluster is the runtime, with the BTP manager in it.
type cluster struct {
	client.Client

	t          *testing.T
	discovery  *discovery.DiscoveryClient
	kubeconfig []byte
	manager    *harness.Process
}

// start starts the BTP manager in the cluster that the tests share.
func start(t *testing.T) *cluster {
	t.Helper()
	k := shared.Cluster(t)
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	d, err := discovery.NewDiscoveryClientForConfig(k.Config)
	require.NoError(t, err)
	// The list of all kinds asks for deprecated ones, too.
	quiet := rest.CopyConfig(k.Config)
	quiet.WarningHandlerWithContext = rest.NoWarnings{}
	cl, err := client.New(quiet, client.Options{Scheme: scheme})
	require.NoError(t, err)
	c := &cluster{Client: cl, t: t, discovery: d, kubeconfig: k.Environment.KubeConfig}
	t.Cleanup(c.clear)
	c.run(k)
	return c
}

// run starts the BTP manager, as its Deployment does but for the addresses.
func (c *cluster) run(k *kubetest.Cluster) {
	c.t.Helper()
	k.Deployments(c.t, namespace)
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, os.WriteFile(file, c.kubeconfig, 0o600))
	c.manager = harness.Spawn(c.t, harness.BTPManager(c.t), nil, "--kubeconfig", file, "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--ready-check-interval=100ms", "--hard-delete-check-interval=200ms")
}

// clear takes out of the cluster what a test that has failed may have left there for the next one. The BTP manager has ended.
func (c *cluster) clear() {
	ctx := context.WithoutCancel(c.t.Context())
	var crs v1alpha1.BtpOperatorList
	if err := c.List(ctx, &crs); err != nil {
		c.t.Error(err)
	}
	for _, cr := range crs.Items {
		cr.Finalizers = nil
		if err := errors.Join(c.Update(ctx, &cr), client.IgnoreNotFound(c.Delete(ctx, &cr))); err != nil {
			c.t.Error(err)
		}
	}
	if err := c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: given.Namespace, Name: given.Name}}); client.IgnoreNotFound(err) != nil {
		c.t.Error(err)
	}
}

// order asks for the operand with a BtpOperator.
func (c *cluster) order() {
	c.t.Helper()
	require.NoError(c.t, c.Create(c.t.Context(), &v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "btpoperator"}}))
}

func (c *cluster) btpOperator() (*v1alpha1.BtpOperator, error) {
	var cr v1alpha1.BtpOperator
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: "btpoperator"}, &cr)
	return &cr, err
}

// await waits until the BtpOperator is in that state for that reason.
func (c *cluster) await(state v1alpha1.State, reason v1alpha1.Reason) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("state %s for reason %s", state, reason), func() (bool, string) {
		cr, err := c.btpOperator()
		ok := err == nil && cr.Status.State == state && len(cr.Status.Conditions) == 1 && cr.Status.Conditions[0].Reason == string(reason)
		return ok, fmt.Sprintf("%v, %+v", err, cr.Status)
	})
}

// eventually waits for a condition that says what it has seen last.
func (c *cluster) eventually(what string, ok func() (bool, string)) {
	c.t.Helper()
	var last string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("waiting for %s, last seen: %s", what, last)
		}
	}()
	testkit.Eventually(c.t, limit, what, func() bool {
		if c.manager.Ended() {
			c.t.Fatalf("the BTP manager has ended:\n%s", c.manager.Output())
		}
		var done bool
		done, last = ok()
		return done
	})
}

// data are the values of a Secret, nil when there is none.
func (c *cluster) data(key client.ObjectKey) map[string]string {
	c.t.Helper()
	var s corev1.Secret
	err := c.Get(c.t.Context(), key, &s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	data := map[string]string{}
	for name, value := range s.Data {
		data[name] = string(value)
	}
	return data
}

// clusterID is what the operand takes for the id of its cluster, empty while it has none.
func (c *cluster) clusterID() string {
	c.t.Helper()
	var m corev1.ConfigMap
	if err := c.Get(c.t.Context(), settings, &m); client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return m.Data["CLUSTER_ID"]
}

// labelled lists every object of any kind that the BTP manager calls its own.
func (c *cluster) labelled() []string {
	c.t.Helper()
	var lists []*metav1.APIResourceList
	// The API server does not answer for all groups while one comes or goes.
	c.eventually("the list of all kinds", func() (bool, string) {
		var err error
		lists, err = c.discovery.ServerPreferredResources()
		return err == nil, fmt.Sprint(err)
	})
	var found []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(c.t, err)
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			var objects unstructured.UnstructuredList
			objects.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			// A kind that was removed meanwhile has no objects.
			err := c.List(c.t.Context(), &objects, client.MatchingLabels{managedBy: "btp-manager"})
			if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
				c.t.Fatalf("list %s: %v", r.Name, err)
			}
			for _, o := range objects.Items {
				found = append(found, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
			}
		}
	}
	return found
}

// services are the kinds of the operand, bindings first.
var services = []schema.GroupVersionKind{
	{Group: "services.cloud.sap.com", Version: "v1", Kind: "ServiceBinding"},
	{Group: "services.cloud.sap.com", Version: "v1", Kind: "ServiceInstance"},
}

// useServices makes a service instance with a binding, as a customer does. The operand has taken them in.
func (c *cluster) useServices() {
	c.t.Helper()
	specs := map[string]map[string]any{
		"ServiceInstance": {"serviceOfferingName": "postgresql-db", "servicePlanName": "standard"},
		"ServiceBinding":  {"serviceInstanceName": "db"},
	}
	for _, kind := range slices.Backward(services) {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": maps.Clone(specs[kind.Kind])}}
		o.SetGroupVersionKind(kind)
		o.SetNamespace("default")
		o.SetName("db")
		o.SetFinalizers([]string{finalizer})
		// The API server may say that a definition is established a moment before it serves the kind.
		c.eventually("the making of a "+kind.Kind, func() (bool, string) {
			err := c.Create(c.t.Context(), o)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// count is how many bindings and instances there are.
func (c *cluster) count() (n int) {
	c.t.Helper()
	for _, kind := range services {
		var objects unstructured.UnstructuredList
		objects.SetGroupVersionKind(kind)
		require.NoError(c.t, c.List(c.t.Context(), &objects))
		n += len(objects.Items)
	}
	return n
}

// operate lets go of what is being deleted, as the operand does, and tells how many bindings and instances are left and whether an
// instance was asked to go before its binding.
func (c *cluster) operate() (left int, early bool) {
	c.t.Helper()
	var marked []unstructured.Unstructured
	instances := 0
	// Instances first: one that is to go when a binding is found afterwards was asked too early.
	for _, kind := range slices.Backward(services) {
		var objects unstructured.UnstructuredList
		objects.SetGroupVersionKind(kind)
		require.NoError(c.t, c.List(c.t.Context(), &objects))
		left += len(objects.Items)
		early = early || kind.Kind == "ServiceBinding" && instances > 0 && len(objects.Items) > 0
		for _, o := range objects.Items {
			if o.GetDeletionTimestamp() == nil {
				continue
			}
			marked = append(marked, o)
			if kind.Kind == "ServiceInstance" {
				instances++
			}
		}
	}
	for i := range marked {
		marked[i].SetFinalizers(nil)
		if err := c.Update(c.t.Context(), &marked[i]); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			c.t.Fatal(err)
		}
	}
	return left, early
}
