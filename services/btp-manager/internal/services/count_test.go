package services_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

func TestCount_First_HaveOperandMessages(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	condition := func(kind, status, reason, message string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
	}
	for _, o := range []struct {
		kind, name string
		conditions []any
	}{
		{binding, "a-failed", []any{
			condition("Succeeded", "False", "DeleteInProgress", "deletion is under way"),
			condition("Failed", "True", "DeleteFailed", "the broker\n  answered: 502"),
		}},
		{binding, "b-running", []any{condition("Succeeded", "False", "DeleteInProgress", ""), condition("Failed", "False", "", "no")}},
		{instance, "c-fine", []any{condition("Succeeded", "True", "Created", "created"), condition("Ready", "True", "Provisioned", "")}},
		{instance, "d-long", []any{condition("Ready", "False", "NotProvisioned", strings.Repeat("ä", 300))}},
		{instance, "e-without", nil},
		{instance, "f-not-named", nil},
	} {
		obj := b.order(o.kind, ns, o.name)
		obj.Object["status"] = map[string]any{"conditions": o.conditions}
		require.NoError(t, b.admin.Status().Update(t.Context(), obj))
	}

	left, err := b.services.Count(t.Context())
	require.NoError(t, err)

	wanted := services.Left{Instances: 4, Bindings: 2, First: []string{
		"ServiceBinding " + ns + "/a-failed: the broker answered: 502",
		"ServiceBinding " + ns + "/b-running: DeleteInProgress",
		"ServiceInstance " + ns + "/c-fine",
		"ServiceInstance " + ns + "/d-long: " + strings.Repeat("ä", 199) + "…",
		"ServiceInstance " + ns + "/e-without",
	}}
	if diff := cmp.Diff(wanted, left); diff != "" {
		t.Error(diff)
	}
}

func TestCount_UnknownKinds_ReturnsZero(t *testing.T) {
	calls := map[string]func(*services.Services, context.Context) (services.Left, error){
		"count": (*services.Services).Count,
		"hard":  (*services.Services).HardDelete,
		"soft":  (*services.Services).SoftDelete,
	}
	t.Run("both", func(t *testing.T) {
		b := setup(t)
		for name, call := range calls {
			t.Run(name, func(t *testing.T) {
				left, err := call(b.services, t.Context())
				want(t, left, err, 0, 0)
			})
		}
	})
	for _, only := range []string{instance, binding} {
		t.Run("all but "+only, func(t *testing.T) {
			b := setup(t, only)
			for _, name := range []string{"hard", "soft"} {
				t.Run(name, func(t *testing.T) {
					b.order(only, b.namespace(), "one")
					left, err := b.services.Count(t.Context())
					if err != nil || left.Instances+left.Bindings != 1 {
						t.Fatalf("count: %+v, %v", left, err)
					}
					left, err = calls[name](b.services, t.Context())
					want(t, left, err, 0, 0)
				})
			}
		})
	}
}

func TestDelete_KindsVanish_Continues(t *testing.T) {
	b := setup(t, instance, binding)
	left, err := b.services.Count(t.Context())
	want(t, left, err, 0, 0)

	b.uninstall(instance)
	left, err = b.services.HardDelete(t.Context())
	want(t, left, err, 0, 0)

	b.install(instance)
	b.order(instance, b.namespace(), "db")
	left, err = b.services.Count(t.Context())
	want(t, left, err, 1, 0)
}

func TestCount_ContinueTokenExpired_Restarts(t *testing.T) {
	b := setup(t, instance, binding)
	b.order(instance, b.namespace(), "db")
	expired := 0
	s := b.with(interceptor.NewClient(b.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if expired++; expired == 1 {
				return apierrors.NewResourceExpired("too old")
			}
			return c.List(ctx, list, opts...)
		},
	}), services.Config{})

	left, err := s.Count(t.Context())

	want(t, left, err, 1, 0)
}

func TestCount_ManyObjects_ReadsPages(t *testing.T) {
	b := setup(t, instance, binding)
	ns := b.namespace()
	for i := range 501 {
		b.order(instance, ns, numbered("db", i))
	}
	pages := 0
	b.requests.reset(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/serviceinstances") {
			if r.URL.Query().Get("limit") != "500" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
				t.Errorf("a list of whole objects or without a limit: %s, %s", r.URL, r.Header.Get("Accept"))
			}
			pages++
		}
		return nil, nil
	})

	left, err := b.services.Count(t.Context())

	want(t, left, err, 501, 0)
	if pages != 2 {
		t.Errorf("%d pages, want 2", pages)
	}
}
