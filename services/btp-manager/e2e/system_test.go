package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	operandPod = "sap-btp-operator-controller-manager"
	// operandFinalizer is the finalizer of the operand (docs/contracts/btp-manager.md#operand).
	operandFinalizer = "services.cloud.sap.com/sap-btp-finalizer"
	users            = "users"
)

// system is the shared cluster with the objects of the manager's chart, except the Deployment: there are no controllers for pods. Its tests
// run sequentially, because one BtpOperator leads in a cluster.
type system struct {
	client.Client
	t           *testing.T
	cluster     *kubetest.Cluster
	deployments *kubetest.Deployments
	inventory   *inventory
	kubeconfig  string // of the manager's ServiceAccount
}

func newSystem(t *testing.T) *system {
	t.Helper()
	cluster := shared.Cluster(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	s := &system{t: t, cluster: cluster, Client: cluster.Client(t, client.Options{Scheme: scheme}), inventory: newInventory(t, cluster)}
	for _, o := range renderManager(t, "").objects {
		if o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Deployment" {
			continue
		}
		err := s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm"), client.ForceOwnership)
		require.NoError(t, err)
	}
	err := s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: users}})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	s.kubeconfig = cluster.Kubeconfig(t, cluster.ServiceAccountConfig(t, kymaSystem, "btp-manager"))
	s.clean()
	t.Cleanup(s.clean)
	s.deployments = cluster.Deployments(t, kymaSystem)
	return s
}

// in returns the system for a subtest that continues after the previous one.
func (s *system) in(t *testing.T) *system {
	t.Helper()
	sub := *s
	sub.t, sub.inventory = t, s.inventory.in(t)
	return &sub
}

// anew returns the system for an independent subtest.
func (s *system) anew(t *testing.T) *system {
	t.Helper()
	sub := s.in(t)
	t.Cleanup(func() {
		sub.deployments.Release()
		sub.clean()
	})
	return sub
}

// start starts a BTP Manager that leads immediately and has short intervals.
func (s *system) start(flags ...string) *process {
	s.t.Helper()
	p := launch(s.t, s.kubeconfig, append([]string{
		"--leader-elect=false", "--log-format=text", "--ready-check-interval=200ms", "--hard-delete-check-interval=200ms",
		"--ready-timeout=10m", "--hard-delete-timeout=10m",
	}, flags...)...)
	return p
}

// grant gives users the rights of the manager's ServiceAccount.
func (s *system) grant(names ...string) {
	s.t.Helper()
	var subjects []rbacv1.Subject
	for _, name := range names {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name})
	}
	meta := metav1.ObjectMeta{Name: "e2e-replicas"}
	inAll := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "btp-manager"},
	}
	meta.Namespace = kymaSystem
	inOne := &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "btp-manager"},
	}
	for _, o := range []client.Object{inAll, inOne} {
		s.create(o)
		s.t.Cleanup(func() { _ = s.Delete(context.WithoutCancel(s.t.Context()), o) })
	}
}

// clean removes the objects of a test regardless of their finalizers.
func (s *system) clean() {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	for _, list := range []schema.GroupVersionKind{v1alpha1.GroupVersion().WithKind("BtpOperator"), serviceKind("ServiceBinding"), serviceKind("ServiceInstance")} {
		found := new(unstructured.UnstructuredList)
		found.SetGroupVersionKind(list)
		if err := s.List(ctx, found); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			s.t.Fatal(err)
		}
		for i := range found.Items {
			o := &found.Items[i]
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			for _, err := range []error{s.Delete(ctx, o), s.Patch(ctx, o, patch)} {
				if client.IgnoreNotFound(err) != nil {
					s.t.Fatal(err)
				}
			}
		}
	}
	for _, o := range []client.Object{new(corev1.Secret), new(corev1.ConfigMap), new(appsv1.Deployment)} {
		if err := s.DeleteAllOf(ctx, o, client.InNamespace(kymaSystem)); err != nil {
			s.t.Fatal(err)
		}
	}
	testkit.Eventually(s.t, waitTimeout, "the cluster is empty", func() bool {
		left := s.inventory.ours(ctx)
		for _, o := range left {
			s.inventory.remove(ctx, o)
		}
		return len(left) == 0
	})
}

// nothingLeft fails the test if an object has the manager's label.
func (s *system) nothingLeft() {
	s.t.Helper()
	for _, o := range s.inventory.ours(s.t.Context()) {
		s.t.Errorf("%s is left", o)
	}
}

// The following functions act as users.

func serviceKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "services.cloud.sap.com", Version: "v1", Kind: kind}
}

func (s *system) create(o client.Object) {
	s.t.Helper()
	if err := s.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) delete(o client.Object) {
	s.t.Helper()
	if err := s.Delete(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) patch(o client.Object, patch string) {
	s.t.Helper()
	if err := s.Patch(s.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
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

// secret returns a Secret with credentials.
func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "sap-btp-manager"}, Data: map[string][]byte{
		"clientid": []byte("a-client"), "clientsecret": []byte("a-client-secret"), "sm_url": []byte("https://sm.example.com"),
		"tokenurl": []byte("https://auth.example.com"), "cluster_id": []byte("a-cluster"),
	}}
}

// operator creates a BtpOperator.
func (s *system) operator() *v1alpha1.BtpOperator {
	s.t.Helper()
	o := &v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "btpoperator"}}
	s.create(o)
	return o
}

// provisioned creates a BtpOperator and waits until it is Ready.
func (s *system) provisioned() *v1alpha1.BtpOperator {
	s.t.Helper()
	s.create(secret())
	o := s.operator()
	s.await(o, v1alpha1.ReasonReconcileSucceeded)
	return o
}

// instance creates a service instance with a finalizer, unless that is empty.
func (s *system) instance(finalizer string) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"serviceOfferingName": "an-offering", "servicePlanName": "a-plan"}}}
	o.SetGroupVersionKind(serviceKind("ServiceInstance"))
	o.SetNamespace(users)
	o.SetName("an-instance")
	if finalizer != "" {
		o.SetFinalizers([]string{finalizer})
	}
	// The API server may report a definition as established shortly before it serves the kind and calls its webhooks.
	var err error
	defer func() {
		if s.t.Failed() {
			s.t.Logf("make a service instance: %v", err)
		}
	}()
	testkit.Eventually(s.t, waitTimeout, "the making of a service instance", func() bool {
		err = s.Create(s.t.Context(), o)
		return err == nil
	})
	return o
}

// deployment returns the operand's Deployment, for reading it.
func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: operandPod}}
}

// reason returns the reason of a BtpOperator, which determines the state.
func (s *system) reason(o *v1alpha1.BtpOperator) v1alpha1.Reason {
	s.t.Helper()
	if !s.exists(o) || len(o.Status.Conditions) != 1 {
		return ""
	}
	reason := v1alpha1.Reason(o.Status.Conditions[0].Reason)
	if m, ok := reason.Meaning(); !ok || m.State != o.Status.State {
		s.t.Fatalf("the state %s has the reason %s", o.Status.State, reason)
	}
	return reason
}

// await waits until a BtpOperator has a reason.
func (s *system) await(o *v1alpha1.BtpOperator, want v1alpha1.Reason) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, fmt.Sprintf("BtpOperator %s gets the reason %s", o.Name, want), func() bool { return s.reason(o) == want })
}

// awaitGone waits until an object does not exist.
func (s *system) awaitGone(o client.Object) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, fmt.Sprintf("%T %s goes", o, o.GetName()), func() bool {
		err := s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
	})
}

// awaitEvent waits for an event with a reason about a BtpOperator.
func (s *system) awaitEvent(o *v1alpha1.BtpOperator, reason v1alpha1.Reason) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, "an event "+string(reason), func() bool {
		var events corev1.EventList
		if err := s.List(s.t.Context(), &events, client.InNamespace(o.Namespace)); err != nil {
			s.t.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID == o.UID && e.Reason == string(reason) })
	})
}
