package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/controller"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

// system is a Reconciler with a BtpOperator, in a simulated cluster. Package app tests it in a real one; these tests need a clock or a failure at
// the right moment.
type system struct {
	client.Client
	t          *testing.T
	reconciler *controller.Reconciler
	cr         *v1alpha1.BtpOperator
	now        time.Time
	settings   config.Config
	registry   *prometheus.Registry
	recorder   *events.FakeRecorder
	// chartVersion is the version of the chart.
	chartVersion string

	// The answers of the cluster. A test may change them.
	applied    func() error
	changed    []operand.Change
	counted    services.Left
	hardDelete func() (services.Left, error)
	softDelete func() (services.Left, error)
	unready    []operand.NotReady
	removed    func() ([]operand.NotReady, error)
	rendered   func(values map[string]any) error
	// statusWrite returns the error of a write to the status, secretRead that of a read of a Secret; nil means none.
	statusWrite func() error
	secretRead  func(name string) error
}

func newSystem(t *testing.T) *system {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	none := func() (services.Left, error) { return services.Left{}, nil }
	s := &system{
		t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), settings: config.Default(), chartVersion: "1.0.0",
		registry: prometheus.NewRegistry(), recorder: events.NewFakeRecorder(100),
		applied: func() error { return nil }, hardDelete: none, softDelete: none,
		removed:     func() ([]operand.NotReady, error) { return nil, nil },
		rendered:    func(map[string]any) error { return nil },
		statusWrite: func() error { return nil },
		secretRead:  func(string) error { return nil },
	}
	s.cr = &v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: "kyma-system", Name: "btpoperator", UID: "a"}}
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kyma-system", Name: "sap-btp-manager"}, Data: map[string][]byte{
		"clientid": []byte("a-client"), "clientsecret": []byte("a-secret"), "sm_url": []byte("https://sm.example.com"),
		"tokenurl": []byte("https://auth.example.com"), "cluster_id": []byte("a-cluster"),
	}}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(s.cr).WithObjects(s.cr, credentials).Build()
	metrics, err := metric.New(metric.Config{}, s.registry)
	require.NoError(t, err)
	reading := interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, secret := o.(*corev1.Secret); secret {
				if err := s.secretRead(key.Name); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := s.statusWrite(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	s.reconciler = controller.New(controller.Deps{
		Client: reading, Chart: emptyChart{s}, Objects: objects{s}, Recorder: s.recorder, Metrics: metrics,
		Settings:     controller.NewSettings(s.settings, reading, s.recorder, metrics),
		Services:     func(config.Config) controller.Services { return ordered{s} },
		Certificates: func(config.Config) controller.Certificates { return certificates{s} },
		Now:          func() time.Time { return s.now },
	})
	return s
}

// pass runs one pass over the BtpOperator, and reads the result.
func (s *system) pass() (reconcile.Result, error) {
	s.t.Helper()
	result, err := s.reconciler.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.cr)})
	if getErr := client.IgnoreNotFound(s.Get(s.t.Context(), client.ObjectKeyFromObject(s.cr), s.cr)); getErr != nil {
		s.t.Fatal(getErr)
	}
	return result, err
}

// provisioned brings the BtpOperator to Ready.
func (s *system) provisioned() {
	s.t.Helper()
	if _, err := s.pass(); err != nil {
		s.t.Fatal(err)
	}
	s.want(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
}

// delete requests the deletion of the BtpOperator.
func (s *system) delete() {
	s.t.Helper()
	if err := s.Delete(s.t.Context(), s.cr); err != nil {
		s.t.Fatal(err)
	}
}

// want checks the position of the BtpOperator, and returns the message of its condition.
func (s *system) want(state v1alpha1.State, reason v1alpha1.Reason) string {
	s.t.Helper()
	if len(s.cr.Status.Conditions) != 1 || s.cr.Status.State != state || s.cr.Status.Conditions[0].Reason != string(reason) {
		s.t.Fatalf("status %+v, want %s/%s", s.cr.Status, state, reason)
	}
	return s.cr.Status.Conditions[0].Message
}

type emptyChart struct{ *system }

func (c emptyChart) Version() string { return c.chartVersion }

func (c emptyChart) Render(_ render.Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	return nil, c.rendered(values)
}

type objects struct{ *system }

func (o objects) Apply(context.Context, []*unstructured.Unstructured) (operand.Applied, error) {
	return operand.Applied{Changed: o.changed}, o.applied()
}

func (o objects) Unready(context.Context, []*unstructured.Unstructured) ([]operand.NotReady, error) {
	return o.unready, nil
}

func (o objects) Remove(context.Context, []*unstructured.Unstructured, func(operand.Ref) bool) ([]operand.NotReady, error) {
	return o.removed()
}

func (objects) RemoveWorkload(context.Context) error { return nil }

type ordered struct{ *system }

func (o ordered) Count(context.Context) (services.Left, error)      { return o.counted, nil }
func (o ordered) HardDelete(context.Context) (services.Left, error) { return o.hardDelete() }
func (o ordered) SoftDelete(context.Context) (services.Left, error) { return o.softDelete() }

type certificates struct{ *system }

func (c certificates) Ensure(context.Context) (certs.Result, error) {
	return certs.Result{RenewAt: c.now.AddDate(1, 0, 0)}, nil
}
