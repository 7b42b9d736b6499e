package services_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

func TestHardDelete_NoFinalizers_NeedsOnePass(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db")
	s := b.secret(ns, "access", b.order(binding, ns, "access"))

	left, err := b.services.HardDelete(t.Context())

	want(t, left, err, 0, 0)
	if b.exists(s) {
		t.Error("the Secret of the binding is still there")
	}
}

// Only the binding has the name of its Secret.
func TestHardDelete_SecretUndeletable_KeepsBinding(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	s := b.secret(ns, "access", b.order(binding, ns, "access"))
	b.order(binding, ns, "another", held)
	b.requests.reset(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/secrets/") {
			return nil, errors.New("connection lost")
		}
		return nil, nil
	})
	left, err := b.services.HardDelete(t.Context())
	want(t, left, err, 0, 2)

	b.requests.reset(nil)
	left, err = b.services.HardDelete(t.Context())

	want(t, left, err, 0, 1)
	if b.exists(s) {
		t.Error("the Secret of the binding is still there")
	}
	if !b.marked(binding, ns, "another") {
		t.Error("the other binding is not being deleted")
	}
}

func TestHardDelete_BindingLeft_KeepsInstances(t *testing.T) {
	b := setup(t, instance, binding)
	ns, other := b.namespace(), b.namespace()
	b.order(instance, ns, "db", held)
	b.order(binding, ns, "access", held)
	b.order(binding, other, "access", held)

	left, err := b.services.HardDelete(t.Context())
	want(t, left, err, 1, 2)
	for _, n := range []string{ns, other} {
		if !b.marked(binding, n, "access") {
			t.Errorf("the binding in %s is not being deleted", n)
		}
	}

	b.release(t.Context(), binding, ns, "access")
	left, err = b.services.HardDelete(t.Context())
	want(t, left, err, 1, 1)
	if b.marked(instance, ns, "db") {
		t.Fatal("the instance is being deleted though a binding is left")
	}

	b.release(t.Context(), binding, other, "access")
	left, err = b.services.HardDelete(t.Context())
	want(t, left, err, 1, 0)
	if !b.marked(instance, ns, "db") {
		t.Fatal("the instance is not being deleted though no binding is left")
	}

	b.release(t.Context(), instance, ns, "db")
	left, err = b.services.HardDelete(t.Context())
	want(t, left, err, 0, 0)
}

func TestHardDelete_AlreadyDeleting_IsLeftToOperand(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db", held)
	s := b.secret(ns, "access", b.order(binding, ns, "access", held))
	left, err := b.services.HardDelete(t.Context())
	want(t, left, err, 1, 1)
	b.requests.reset(nil)

	left, err = b.services.HardDelete(t.Context())

	want(t, left, err, 1, 1)
	if n := b.requests.count()[http.MethodDelete]; n != 0 {
		t.Errorf("%d requests to delete what is being deleted", n)
	}
	if !b.exists(s) {
		t.Error("the Secret of a binding that the operand holds is gone")
	}
}

func TestHardDelete_NewObjects_AreDeleted(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	for range 2 {
		b.order(instance, ns, "db")
		b.order(binding, ns, "access")
		left, err := b.services.HardDelete(t.Context())
		want(t, left, err, 0, 0)
	}
}

func TestDelete_TerminatingNamespace_Continues(t *testing.T) {
	deletions := map[string]func(*services.Services, context.Context) (services.Left, error){
		"hard": (*services.Services).HardDelete,
		"soft": (*services.Services).SoftDelete,
	}
	for name, del := range deletions {
		t.Run(name, func(t *testing.T) {
			b := setup(t, instance, binding)
			ns := b.namespace()
			b.order(instance, ns, "db")
			s := b.secret(ns, "access", b.order(binding, ns, "access"))
			require.NoError(t, b.admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: meta("", "", ns).ObjectMeta}))

			left, err := del(b.services, t.Context())

			want(t, left, err, 0, 0)
			if b.exists(s) {
				t.Error("the Secret of the binding is still there")
			}
		})
	}
}

// An error of the API causes a soft delete, a retry, or only a delay.
func TestHardDelete_Refusal_ReturnsRefusedError(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db", held)
	b.order(binding, ns, "access", held)
	resource := schema.GroupResource{Group: "services.cloud.sap.com", Resource: "servicebindings"}
	type outcome int
	const (
		late outcome = iota
		refused
		failed
	)
	for _, c := range []struct {
		name string
		err  error
		want outcome
	}{
		{"forbidden", apierrors.NewForbidden(resource, "", errors.New("admission webhook denied the request")), refused},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Group: resource.Group, Kind: binding}, "access", nil), refused},
		{"bad request", apierrors.NewBadRequest("no"), refused},
		{"method not supported", apierrors.NewMethodNotSupported(resource, "deletecollection"), refused},
		{"not logged in", apierrors.NewUnauthorized("who"), failed},
		{"internal error", apierrors.NewInternalError(errors.New("failed calling webhook")), failed},
		{"not an answer of the API", errors.New("broken"), failed},
		{"deadline", context.DeadlineExceeded, late},
		{"timeout of the server", apierrors.NewTimeoutError("slow", 1), late},
		{"server busy", apierrors.NewServerTimeout(resource, "delete", 1), late},
		{"too many requests", apierrors.NewTooManyRequests("slow down", 1), late},
		{"conflict", apierrors.NewConflict(resource, "access", errors.New("changed")), late},
		{"unavailable", apierrors.NewServiceUnavailable("starting"), late},
		{"gone meanwhile", apierrors.NewNotFound(resource, "access"), late},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
				DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
					return c.err
				},
			}), services.Config{})

			left, err := s.HardDelete(t.Context())

			if left.Instances != 1 || left.Bindings != 1 {
				t.Errorf("left: %+v, want the instance and the binding", left)
			}
			_, isRefused := errors.AsType[*services.RefusedError](err)
			if isRefused != (c.want == refused) || (err != nil) != (c.want != late) {
				t.Errorf("error: %v", err)
			}
			if err != nil && !errors.Is(err, c.err) {
				t.Errorf("the error %v does not wrap its cause", err)
			}
		})
	}
}

// Only a rejected deletion may end the hard delete before its deadline.
func TestHardDelete_RejectedRead_IsRetried(t *testing.T) {
	for name, cause := range map[string]*apierrors.StatusError{
		"forbidden": apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right")),
		"expired":   apierrors.NewResourceExpired("too old"),
	} {
		for read, fails := range map[string]func(o client.Object, lists int) bool{
			"list after a request": func(o client.Object, lists int) bool { return o == nil && lists > 1 },
			"read of the Secret": func(o client.Object, _ int) bool {
				return o != nil && o.GetObjectKind().GroupVersionKind().Kind == "Secret"
			},
			"read of the binding": func(o client.Object, _ int) bool {
				return o != nil && o.GetObjectKind().GroupVersionKind().Kind == binding
			},
		} {
			t.Run(name+" "+read, func(t *testing.T) {
				b := setup(t, instance, binding)
				ns := b.namespace()
				b.order(binding, ns, "access")
				lists := map[string]int{}
				s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
					List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						kind := list.GetObjectKind().GroupVersionKind().Kind
						if lists[kind]++; fails(nil, lists[kind]) {
							return cause
						}
						return c.List(ctx, list, opts...)
					},
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if fails(o, 0) {
							return cause
						}
						return c.Get(ctx, key, o, opts...)
					},
				}), services.Config{})

				_, err := s.HardDelete(t.Context())

				if _, refused := errors.AsType[*services.RefusedError](err); refused || !errors.Is(err, cause) {
					t.Errorf("error: %v, want one that wraps %v and is no refusal", err, cause)
				}
				if read != "list after a request" && (!b.exists(meta(binding, ns, "access")) || b.marked(binding, ns, "access")) {
					t.Error("the binding is deleted before its Secret")
				}
			})
		}
	}
}

func TestHardDelete_Refusal_OtherNamespacesContinue(t *testing.T) {
	b := setup(t, instance, binding)
	protected, free := b.namespace(), b.namespace()
	b.order(binding, protected, "access", held)
	b.order(binding, free, "access", held)
	s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			if new(client.DeleteAllOfOptions).ApplyOptions(opts).Namespace == protected {
				return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("protected"))
			}
			return c.DeleteAllOf(ctx, o, opts...)
		},
	}), services.Config{})

	if _, err := s.HardDelete(t.Context()); err == nil {
		t.Error("no error of the refusal")
	}

	if b.marked(binding, protected, "access") || !b.marked(binding, free, "access") {
		t.Error("want the deletion of the binding in the free namespace only")
	}
}

func TestHardDelete_SlowAPI_IsRetried(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	b.order(instance, ns, "db")
	b.order(binding, ns, "access")
	// Only the deletions time out: on a busy machine a list may take as long.
	s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.List(context.WithoutCancel(ctx), list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return c.Get(context.WithoutCancel(ctx), key, o, opts...)
		},
	}), services.Config{RequestTimeout: time.Second})
	b.requests.reset(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodDelete {
			return nil, nil
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	})

	left, err := s.HardDelete(t.Context())
	want(t, left, err, 1, 1)

	b.requests.reset(nil)
	left, err = b.services.HardDelete(t.Context())
	want(t, left, err, 0, 0)
}

func TestDelete_ListFails_ReturnsError(t *testing.T) {
	b := setup(t, instance, binding)
	b.order(instance, b.namespace(), "db")
	b.requests.reset(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, errors.New("connection lost")
		}
		return nil, nil
	})
	for name, call := range map[string]func(*services.Services, context.Context) (services.Left, error){
		"count": (*services.Services).Count,
		"hard":  (*services.Services).HardDelete,
		"soft":  (*services.Services).SoftDelete,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := call(b.services, t.Context())
			if _, refused := errors.AsType[*services.RefusedError](err); err == nil || refused {
				t.Errorf("error: %v, want one that is no refusal", err)
			}
		})
	}
}

func TestHardDelete_ContextEnds_Returns(t *testing.T) {
	b := setup(t, instance, binding)
	b.order(binding, b.namespace(), "access")
	for _, c := range []struct {
		name  string
		limit time.Duration
		want  error
	}{
		{"canceled", time.Hour, context.Canceled},
		{"out of time", 2 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			b.requests.reset(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodDelete {
					return nil, nil
				}
				if errors.Is(c.want, context.Canceled) {
					cancel()
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			if _, err := b.services.HardDelete(ctx); !errors.Is(err, c.want) {
				t.Errorf("error: %v, want %v", err, c.want)
			}
		})
	}
}

func TestHardDelete_ManyInstances_NeedsFewRequests(t *testing.T) {
	b := setup(t, instance, binding)
	const namespaces, each = 30, 50
	var creators sync.WaitGroup
	for range namespaces {
		ns := b.namespace()
		creators.Go(func() {
			for i := range each {
				if err := b.admin.Create(t.Context(), object(instance, ns, numbered("db", i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	creators.Wait()
	if t.Failed() {
		return
	}
	b.requests.reset(nil)

	left, err := b.services.HardDelete(t.Context())

	want(t, left, err, 0, 0)
	counts := b.requests.count()
	if counts[http.MethodDelete] != namespaces {
		t.Errorf("%d requests to delete, want one for each of %d namespaces", counts[http.MethodDelete], namespaces)
	}
	// The requests are: bindings once, three pages of instances, instances again, and possibly the discovery of the API.
	if counts[http.MethodGet] > 12 {
		t.Errorf("%d requests to read, want a few pages", counts[http.MethodGet])
	}
	t.Logf("requests: %v", counts)
}
