package app_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/app"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	kymaSystem = "kyma-system"
	operandPod = "sap-btp-operator-controller-manager"
	// waitTimeout is the timeout for short operations on a busy machine.
	waitTimeout = 90 * time.Second
)

// shared logs the calls of a BTP Manager with the rights of its ServiceAccount.
var shared = kubetest.Shared{Options: []kubetest.Option{kubetest.Audit(accountUser), kubetest.NoWebhooks}}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// system is a cluster with a BTP Manager, once that is started. Its tests run sequentially, because one BtpOperator leads in a
// cluster.
type system struct {
	client.Client
	t           *testing.T
	cluster     *kubetest.Cluster
	deployments *kubetest.Deployments
	// The configuration for start. A test may change it before.
	settings config.Config
	chart    fs.FS
	image    string
	now      func() time.Time
	between  func(client.Client) client.Client
	rest     *rest.Config

	registry *prometheus.Registry
	log      *testkit.Log
	halt     func() // stops BTP Manager and waits for its end
}

// newSystem returns a clean cluster with the namespace kyma-system.
func newSystem(t *testing.T) *system {
	t.Helper()
	cluster := shared.Cluster(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	s := &system{
		t: t, cluster: cluster, Client: cluster.Client(t, client.Options{Scheme: scheme}),
		settings: config.Default(), chart: operand.Chart(), rest: cluster.Config, log: new(testkit.Log),
	}
	s.settings.MetricsBindAddress, s.settings.HealthProbeBindAddress, s.settings.LeaderElect = "0", "0", false
	s.settings.ReadyCheckInterval, s.settings.HardDeleteCheckInterval = 100*time.Millisecond, 100*time.Millisecond
	s.namespace(kymaSystem)
	t.Cleanup(s.clean)
	s.deployments = cluster.Deployments(t, kymaSystem)
	return s
}

// copyFS copies a chart with changed files.
func copyFS(t *testing.T, of fs.FS, change func(path, content string) string) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	err := fs.WalkDir(of, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(of, path)
		if err == nil {
			out[path] = &fstest.MapFile{Data: []byte(change(path, string(content)))}
		}
		return err
	})
	require.NoError(t, err)
	return out
}

// clock gives BTP Manager a running clock, and returns the function that advances it.
func (s *system) clock() (forward func(time.Duration)) {
	var ahead atomic.Int64
	s.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return func(by time.Duration) { ahead.Add(int64(by)) }
}

// start starts BTP Manager. It stops at the end of the test, or when stop is called.
func (s *system) start() {
	s.t.Helper()
	if s.halt != nil {
		s.t.Fatal("BTP Manager runs already")
	}
	s.registry = prometheus.NewRegistry()
	a, err := app.New(app.Config{Settings: s.settings, Version: "test", Image: s.image}, app.Deps{
		REST: s.rest, Log: logr.FromSlogHandler(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Chart: s.chart, Metrics: s.registry, Now: s.now, Client: s.between,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	s.halt = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("BTP Manager ended with %v", err)
		}
		s.halt = nil
	})
	s.t.Cleanup(func() {
		if s.halt != nil {
			s.halt()
		}
		if s.t.Failed() {
			s.t.Logf("log of BTP Manager:\n%s", s.log)
		}
	})
}

// stop stops BTP Manager like a SIGTERM.
func (s *system) stop() {
	s.t.Helper()
	s.halt()
}

// clean removes the objects of a test regardless of their finalizers. It keeps the definitions: the kube-apiserver takes a second of CPU for each
// that is added or removed.
func (s *system) clean() {
	ctx := context.Background()
	operators := new(v1alpha1.BtpOperatorList)
	if err := s.List(ctx, operators); err != nil {
		s.t.Fatal(err)
	}
	for i := range operators.Items {
		s.wipe(ctx, &operators.Items[i])
	}
	for _, kind := range []string{"ServiceBinding", "ServiceInstance"} {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(serviceKind(kind + "List"))
		if err := s.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			s.t.Fatal(err)
		}
		for i := range list.Items {
			s.wipe(ctx, &list.Items[i])
		}
	}
	rest := func() (left []client.Object) {
		for _, o := range s.labelled(ctx) {
			if o.GetObjectKind().GroupVersionKind().Kind != "CustomResourceDefinition" {
				left = append(left, o)
			}
		}
		return left
	}
	for _, o := range rest() {
		s.wipe(ctx, o)
	}
	for _, o := range []client.Object{new(corev1.Secret), new(corev1.ConfigMap), new(appsv1.Deployment)} {
		if err := s.DeleteAllOf(ctx, o, client.InNamespace(kymaSystem)); err != nil {
			s.t.Fatal(err)
		}
	}
	testkit.Eventually(s.t, waitTimeout, "the cluster is empty", func() bool { return len(rest()) == 0 })
}

// wipe deletes an object and its finalizers.
func (s *system) wipe(ctx context.Context, o client.Object) {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(s.Delete(ctx, o)); err != nil {
		s.t.Fatal(err)
	}
	if len(o.GetFinalizers()) > 0 {
		if err := client.IgnoreNotFound(s.Patch(ctx, o, patch)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// chartKinds are the kinds of the chart's objects.
var chartKinds = sync.OnceValues(func() ([]schema.GroupVersionKind, error) {
	c, err := render.Load(operand.Chart())
	if err != nil {
		return nil, err
	}
	objects, err := c.Render(render.Release{Name: "x", Namespace: kymaSystem}, nil)
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, o := range objects {
		if gvk := o.GroupVersionKind(); !slices.Contains(kinds, gvk) {
			kinds = append(kinds, gvk)
		}
	}
	return kinds, nil
})

// labelled lists the objects with our label, of every kind in the chart.
func (s *system) labelled(ctx context.Context) []client.Object {
	s.t.Helper()
	kinds, err := chartKinds()
	if err != nil {
		s.t.Fatal(err)
	}
	var found []client.Object
	for _, gvk := range kinds {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := s.List(ctx, list, client.MatchingLabels{render.ManagedByLabel: render.ManagedBy}); err != nil {
			s.t.Fatal(err)
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found
}

// The following functions act as users.

func serviceKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "services.cloud.sap.com", Version: "v1", Kind: kind}
}

// namespace creates a namespace, unless it exists.
func (s *system) namespace(name string) {
	s.t.Helper()
	err := s.Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

// create creates an object.
func (s *system) create(o client.Object) {
	s.t.Helper()
	if err := s.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// operator creates a BtpOperator in kyma-system.
func (s *system) operator(name string) *v1alpha1.BtpOperator {
	s.t.Helper()
	o := &v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: name}}
	s.create(o)
	return o
}

// secret returns a complete Secret sap-btp-manager with some changed keys; an empty value is kept, "-" removes the key.
func secret(change ...string) *corev1.Secret {
	data := map[string][]byte{
		"clientid": []byte("a-client"), "clientsecret": []byte("a-secret"), "sm_url": []byte("https://sm.example.com"),
		"tokenurl": []byte("https://auth.example.com"), "cluster_id": []byte("a-cluster"),
	}
	for i := 0; i < len(change); i += 2 {
		if change[i+1] == "-" {
			delete(data, change[i])
			continue
		}
		data[change[i]] = []byte(change[i+1])
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "sap-btp-manager"}, Data: data}
}

// serviceInstance and serviceBinding create objects of users.
func (s *system) serviceInstance(namespace, name string, finalizers ...string) *unstructured.Unstructured {
	return s.service("ServiceInstance", namespace, name, finalizers, map[string]any{"serviceOfferingName": "an-offering", "servicePlanName": "a-plan"})
}

func (s *system) serviceBinding(namespace, name string, finalizers ...string) *unstructured.Unstructured {
	return s.service("ServiceBinding", namespace, name, finalizers, map[string]any{"serviceInstanceName": "an-instance"})
}

func (s *system) service(kind, namespace, name string, finalizers []string, spec map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(serviceKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetFinalizers(finalizers)
	// The API server may report a definition as established shortly before it serves the kind.
	var err error
	defer func() {
		if s.t.Failed() {
			s.t.Logf("make a %s: %v", kind, err)
		}
	}()
	testkit.Eventually(s.t, waitTimeout, "the making of a "+kind, func() bool {
		err = s.Create(s.t.Context(), o)
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
	return o
}

// provisioned returns a cluster with a BtpOperator that is Ready.
func (s *system) provisioned() *v1alpha1.BtpOperator {
	s.t.Helper()
	s.create(secret())
	o := s.operator("btpoperator")
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	return o
}

// await waits until a BtpOperator has a state and a reason, and returns its condition's message.
func (s *system) await(o *v1alpha1.BtpOperator, state v1alpha1.State, reason v1alpha1.Reason) string {
	s.t.Helper()
	var message string
	s.until(o, fmt.Sprintf("BtpOperator %s gets %s/%s", o.Name, state, reason), func() bool {
		if len(o.Status.Conditions) > 1 {
			s.t.Fatalf("%d conditions: %+v", len(o.Status.Conditions), o.Status.Conditions)
		}
		if o.Status.State != state || len(o.Status.Conditions) == 0 || o.Status.Conditions[0].Reason != string(reason) {
			return false
		}
		message = o.Status.Conditions[0].Message
		return true
	})
	return message
}

// until waits until ok returns true for the current BtpOperator.
func (s *system) until(o *v1alpha1.BtpOperator, what string, ok func() bool) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, what, func() bool {
		if err := s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			if apierrors.IsNotFound(err) {
				return false
			}
			s.t.Fatal(err)
		}
		if ok() {
			return true
		}
		if s.t.Context().Err() != nil {
			s.t.Fatal(s.t.Context().Err())
		}
		return false
	})
}

// awaitGone waits until an object does not exist.
func (s *system) awaitGone(o client.Object) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, fmt.Sprintf("%T %s goes", o, o.GetName()), func() bool {
		err := s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
	})
}

// exists reads an object, and reports whether it exists.
func (s *system) exists(o client.Object) bool {
	s.t.Helper()
	err := s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

// delete deletes an object.
func (s *system) delete(o client.Object) {
	s.t.Helper()
	if err := s.Delete(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// deployment returns the operand's Deployment, for reading it.
func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: operandPod}}
}
