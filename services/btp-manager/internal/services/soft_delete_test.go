package services_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

func TestSoftDelete_ForeignFinalizers_AreRemoved(t *testing.T) {
	b := setup(t, instance, binding)
	ns, other := b.namespace(), b.namespace()
	b.order(instance, ns, "db", held, "example.com/backup")
	b.order(instance, other, "queue")
	s := b.secret(ns, "access", b.order(binding, ns, "access", held, "example.com/backup"))
	b.order(binding, other, "access", held)

	left, err := b.services.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
	if b.exists(s) {
		t.Error("the Secret of the binding is still there")
	}
}

func TestSoftDelete_AfterHardDelete_RemovesRest(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db", "example.com/backup")
	b.order(binding, ns, "access", "example.com/backup")
	left, err := b.services.HardDelete(t.Context())
	want(t, left, err, 1, 1)

	left, err = b.services.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
}

func TestDelete_BindingSecret_IsDeleted(t *testing.T) {
	for _, c := range []struct {
		name string
		// secretName is the name in the binding, secret the name of the Secret.
		secretName, secret string
		owner              string
		labels             map[string]string
		survives           bool
	}{
		{name: "of the binding's name", secret: "access", owner: "the binding"},
		{name: "of a name that the binding gives", secretName: "credentials", secret: "credentials", owner: "the binding"},
		{name: "of the binding's name when it gives another", secretName: "credentials", secret: "access", survives: true},
		{name: "without an owner", secret: "access"},
		{name: "owned by another", secret: "access", owner: "another binding", survives: true},
		{name: "looked after by another", secret: "access", labels: map[string]string{"app.kubernetes.io/managed-by": "helm"}, survives: true},
		{name: "looked after by another and owned by the binding", secret: "access", owner: "the binding", labels: map[string]string{"app.kubernetes.io/managed-by": "helm"}},
	} {
		for kind, del := range map[string]func(*services.Services, context.Context) (services.Left, error){
			"hard": (*services.Services).HardDelete,
			"soft": (*services.Services).SoftDelete,
		} {
			t.Run(kind+" "+c.name, func(t *testing.T) {
				b := setup(t, instance, binding)
				ns := b.namespace()
				access := object(binding, ns, "access")
				if c.secretName != "" {
					require.NoError(t, unstructured.SetNestedField(access.Object, c.secretName, "spec", "secretName"))
				}
				b.create(access)
				var owners []*unstructured.Unstructured
				switch c.owner {
				case "the binding":
					owners = append(owners, access)
				case "another binding":
					owners = append(owners, b.order(binding, b.namespace(), "access"))
				}
				s := b.secret(ns, c.secret, owners...)
				s.Labels = c.labels
				require.NoError(t, b.admin.Update(t.Context(), s))

				left, err := del(b.services, t.Context())

				want(t, left, err, 0, 0)
				if b.exists(s) != c.survives {
					t.Errorf("the Secret survives: %v, want %v", !c.survives, c.survives)
				}
			})
		}
	}
}

func TestSoftDelete_SecretUndeletable_KeepsBinding(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	s := b.secret(ns, "access", b.order(binding, ns, "access", held))
	b.requests.reset(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/secrets/") {
			return nil, errors.New("connection lost")
		}
		return nil, nil
	})
	left, err := b.services.SoftDelete(t.Context())
	want(t, left, err, 0, 1)

	b.requests.reset(nil)
	left, err = b.services.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
	if b.exists(s) {
		t.Error("the Secret of the binding is still there")
	}
}

func TestSoftDelete_ReplacedSecret_IsKept(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	old := b.secret(ns, "access", b.order(binding, ns, "access", held))
	another := b.order(instance, ns, "db", held)
	// Between the read and the deletion of the Secret, another one gets its name.
	replaced := false
	s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "Secret" && !replaced {
				replaced = true
				if err := b.admin.Delete(ctx, old); err != nil {
					t.Error(err)
				}
				b.secret(ns, "access", another)
			}
			return c.Delete(ctx, o, opts...)
		},
	}), services.Config{})

	if _, err := s.SoftDelete(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := s.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
	if !b.exists(old) {
		t.Error("the Secret that took the name is gone")
	}
}

func TestSoftDelete_ObjectVanishes_Continues(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db", held)
	b.order(binding, ns, "access", held)
	s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			b.release(ctx, o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName())
			return c.Patch(ctx, o, patch, opts...)
		},
	}), services.Config{})

	left, err := s.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
}

func TestSoftDelete_RecreatedObject_IsReturned(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db", held)
	b.order(binding, ns, "access", held)
	again := true
	s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, o, patch, opts...)
			if kind := o.GetObjectKind().GroupVersionKind().Kind; again && kind == binding {
				again = false
				b.order(kind, o.GetNamespace(), o.GetName(), held)
			}
			return err
		},
	}), services.Config{})
	left, err := s.SoftDelete(t.Context())
	want(t, left, err, 0, 1)

	left, err = s.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
}

// The operand's webhook rejects the deletion of an instance with the annotation preventDeletion; here a policy does.
func TestDelete_RefusalRemoved_Completes(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	lift := b.preventDeletion()
	protected := object(instance, ns, "db", held)
	protected.SetAnnotations(map[string]string{prevent: "true"})
	b.create(protected)
	b.eventually("the enforcement of the policy", func() bool {
		return apierrors.IsInvalid(b.admin.Delete(t.Context(), object(instance, ns, "db"), client.DryRunAll))
	})

	_, err := b.services.HardDelete(t.Context())
	if _, ok := errors.AsType[*services.RefusedError](err); !ok || !strings.Contains(err.Error(), ns) || !strings.Contains(err.Error(), "must not be deleted") {
		t.Fatalf("error: %v, want a refusal with the namespace and the reason", err)
	}

	// While the instance cannot be deleted, the soft delete reports that, and removes the finalizers, which would block the removal of the CRDs.
	left, err := b.services.SoftDelete(t.Context())
	if _, ok := errors.AsType[*services.RefusedError](err); !ok || left.Instances != 1 {
		t.Fatalf("left %+v, error %v, want the instance and a refusal", left, err)
	}
	if b.marked(instance, ns, "db") {
		t.Fatal("the instance is being deleted in spite of the policy")
	}
	if o := meta(instance, ns, "db"); b.exists(o) && len(o.Finalizers) > 0 {
		t.Fatalf("the instance still has the finalizers %v", o.Finalizers)
	}

	lift()
	b.eventually("the end of the policy", func() bool {
		return b.admin.Delete(t.Context(), object(instance, ns, "db"), client.DryRunAll) == nil
	})
	left, err = b.services.SoftDelete(t.Context())
	want(t, left, err, 0, 0)
}

func TestSoftDelete_ManyInstances_NeedsOnePass(t *testing.T) {
	b := setup(t, instance, binding)
	const count = 60
	ns := b.namespace()
	for i := range count {
		b.order(instance, ns, numbered("db", i), held)
	}
	b.requests.reset(nil)

	left, err := b.services.SoftDelete(t.Context())

	want(t, left, err, 0, 0)
	counts := b.requests.count()
	if counts[http.MethodDelete] != 1 || counts[http.MethodPatch] != count {
		t.Errorf("requests: %v, want one to delete and one for the finalizers of each", counts)
	}
}
