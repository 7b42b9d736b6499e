package services_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/internal/services"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(shared.Main(m))
}

const (
	instance = "ServiceInstance"
	binding  = "ServiceBinding"
	// held is the finalizer of the operand.
	held = "services.cloud.sap.com/sap-btp-finalizer"
	// waitTimeout is the timeout of a wait.
	waitTimeout = 90 * time.Second
)

// bundle is a cluster with Services. The tests share the cluster and run sequentially.
type bundle struct {
	t testing.TB
	// admin is a client with all rights and without faults.
	admin client.WithWatch
	// cfg is the connection of the Services; its requests are recorded.
	cfg      *rest.Config
	requests *recorder
	client   client.WithWatch
	services *services.Services
}

// setup returns a cluster with the CRDs of these kinds.
func setup(t *testing.T, kinds ...string) *bundle {
	t.Helper()
	cluster := shared.Cluster(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	b := &bundle{t: t, requests: new(recorder), cfg: rest.CopyConfig(cluster.Config)}
	b.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) { return b.requests.do(r, next) })
	})
	var err error
	if b.admin, err = client.NewWithWatch(cluster.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if b.client, err = client.NewWithWatch(b.cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	b.services = b.with(b.client, services.Config{})
	for _, kind := range []string{instance, binding} {
		if slices.Contains(kinds, kind) {
			b.install(kind)
		} else {
			b.uninstall(kind)
		}
	}
	t.Cleanup(b.clean)
	return b
}

// with returns Services that use another client.
func (b *bundle) with(c client.Client, cfg services.Config) *services.Services {
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 5*time.Minute)
	return services.New(cfg, services.Deps{Client: c, REST: b.cfg})
}

var resources = map[string]string{instance: "serviceinstances", binding: "servicebindings"}

func (b *bundle) install(kind string) {
	b.t.Helper()
	_, err := envtest.InstallCRDs(b.cfg, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("testdata", resources[kind]+".yaml")}, MaxTime: waitTimeout,
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// uninstall removes a kind with all its objects.
func (b *bundle) uninstall(kind string) {
	ctx := context.WithoutCancel(b.t.Context())
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: resources[kind] + ".services.cloud.sap.com"}}
	if err := client.IgnoreNotFound(b.admin.Delete(ctx, crd)); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("the removal of the CRD of "+kind, func() bool {
		for _, o := range b.list(ctx, kind) {
			b.release(ctx, kind, o.GetNamespace(), o.GetName())
		}
		return apierrors.IsNotFound(b.admin.Get(ctx, client.ObjectKeyFromObject(crd), crd))
	})
}

// clean removes the objects of a test. The CRDs stay for the next one.
func (b *bundle) clean() {
	ctx := context.WithoutCancel(b.t.Context())
	b.eventually("the removal of all instances and bindings", func() bool {
		left := 0
		for _, kind := range []string{instance, binding} {
			items := b.list(ctx, kind)
			left += len(items)
			for _, o := range items {
				// A policy that rejects deletions is removed with its test, which takes a moment.
				_ = b.admin.Delete(ctx, object(kind, o.Namespace, o.Name))
				b.release(ctx, kind, o.Namespace, o.Name)
			}
		}
		return left == 0
	})
}

func (b *bundle) list(ctx context.Context, kind string) []metav1.PartialObjectMetadata {
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(gvk(kind + "List"))
	if err := b.admin.List(ctx, list); err != nil {
		return nil
	}
	return list.Items
}

// release removes the finalizers of an object, like the operand when the remote side is clean.
func (b *bundle) release(ctx context.Context, kind, namespace, name string) {
	b.t.Helper()
	o := meta(kind, namespace, name)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":[]}}`))
	if err := client.IgnoreNotFound(b.admin.Patch(ctx, o, patch)); err != nil {
		b.t.Fatal(err)
	}
}

// namespace creates a namespace that no other test uses.
func (b *bundle) namespace() string {
	b.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "user-"}}
	b.create(ns)
	return ns.Name
}

func (b *bundle) create(o client.Object) {
	b.t.Helper()
	if err := b.admin.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// order creates an instance or a binding.
func (b *bundle) order(kind, namespace, name string, finalizers ...string) *unstructured.Unstructured {
	b.t.Helper()
	o := object(kind, namespace, name, finalizers...)
	b.create(o)
	return o
}

// secret creates a Secret with these owners.
func (b *bundle) secret(namespace, name string, owners ...*unstructured.Unstructured) *corev1.Secret {
	b.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, o := range owners {
		s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(),
		})
	}
	b.create(s)
	return s
}

// exists reports whether an object exists, marked for deletion or not.
func (b *bundle) exists(o client.Object) bool {
	b.t.Helper()
	err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(o), o)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err == nil
}

// marked reports whether the deletion of an existing object is requested.
func (b *bundle) marked(kind, namespace, name string) bool {
	b.t.Helper()
	o := meta(kind, namespace, name)
	if !b.exists(o) {
		b.t.Fatalf("%s %s/%s does not exist", kind, namespace, name)
	}
	return o.DeletionTimestamp != nil
}

func (b *bundle) eventually(what string, ok func() bool) {
	b.t.Helper()
	err := wait.PollUntilContextTimeout(context.WithoutCancel(b.t.Context()), 20*time.Millisecond, waitTimeout, true,
		func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		b.t.Fatalf("%s did not happen within %s", what, waitTimeout)
	}
}

// want checks the numbers of remaining objects.
func want(t *testing.T, left services.Left, err error, instances, bindings int) {
	t.Helper()
	require.NoError(t, err)
	if left.Instances != instances || left.Bindings != bindings {
		t.Fatalf("%d instances and %d bindings are left, want %d and %d (%v)", left.Instances, left.Bindings, instances, bindings, left.First)
	}
}

func gvk(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "services.cloud.sap.com", Version: "v1", Kind: kind}
}

func object(kind, namespace, name string, finalizers ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(gvk(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetFinalizers(finalizers)
	return o
}

func meta(kind, namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.SetGroupVersionKind(gvk(kind))
	return o
}

// recorder counts requests, and can answer them in place of the server.
type recorder struct {
	mu     sync.Mutex
	counts map[string]int
	fault  func(*http.Request) (*http.Response, error)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *recorder) do(request *http.Request, next http.RoundTripper) (*http.Response, error) {
	r.mu.Lock()
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[request.Method]++
	fault := r.fault
	r.mu.Unlock()
	if fault != nil {
		if response, err := fault(request); response != nil || err != nil {
			return response, err
		}
	}
	return next.RoundTrip(request)
}

// reset restarts the count. Unless it is nil, fault receives each later request; nil from it passes the request to the server.
func (r *recorder) reset(fault func(*http.Request) (*http.Response, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts, r.fault = nil, fault
}

func (r *recorder) count() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s-%04d", prefix, i) }
