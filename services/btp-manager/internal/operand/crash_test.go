package operand_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

var errKilled = errors.New("killed")

// mortal is a client whose process is killed after some writes: the last write reaches the cluster, but its answer is lost, and nothing works
// afterwards.
type mortal struct{ writes, limit int }

func (m *mortal) read(call func() error) error {
	if m.writes >= m.limit {
		return errKilled
	}
	return call()
}

func (m *mortal) write(call func() error) error {
	return m.read(func() error {
		err := call()
		if m.writes++; m.writes == m.limit {
			return errKilled
		}
		return err
	})
}

func (m *mortal) client(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return m.read(func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return m.read(func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return m.write(func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return m.write(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return m.write(func() error { return c.Apply(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return m.write(func() error { return c.Delete(ctx, o, opts...) })
		},
	})
}

// die runs a call with a client that is killed after n writes. It returns false if the call completed before.
func (b *bundle) die(n int, call func(*operand.Operand) error) bool {
	b.t.Helper()
	m := &mortal{limit: n}
	err := call(operand.New(operand.Config{}, operand.Deps{Client: m.client(b.client)}))
	if m.writes < n {
		if err != nil {
			b.t.Fatal(err)
		}
		return false
	}
	if !errors.Is(err, errKilled) {
		b.t.Fatalf("it was killed after %d writes and answered %v", n, err)
	}
	return true
}

// settle applies until a call that finds no object being deleted writes nothing. The call after the end of an obsolete object removes it from
// the inventory, and a definition is removed shortly after its deletion.
func (b *bundle) settle(objs []*unstructured.Unstructured) {
	b.t.Helper()
	before := ""
	testkit.Eventually(b.t, waitTimeout, "a settled operand", func() bool {
		deleting := b.deleting()
		done := b.apply(objs)
		after := fmt.Sprint(b.versions())
		settled := before == after && !deleting && len(done.Changed)+len(done.Removed)+len(done.Held) == 0
		before = after
		return settled
	})
}

// deleting reports whether an object is still being deleted.
func (b *bundle) deleting() bool {
	b.t.Helper()
	return slices.ContainsFunc(b.all(b.t.Context()), func(item unstructured.Unstructured) bool { return item.GetDeletionTimestamp() != nil })
}

// upgrade returns a chart and its successor with changed, new, renamed, replaced and missing objects.
func upgrade(t *testing.T) (old, next []*unstructured.Unstructured) {
	old = []*unstructured.Unstructured{
		definition(t, "1", "Widget"), configMap(t, "1", "config", "one"), configMap(t, "1", "gone", "x"),
		secret(t, "1", "credentials"), clusterRole(t, "1", "operand"), service(t, "1", "hooks"),
		deployment(t, "1", "operand", "one"), webhook(t, "1", "ValidatingWebhookConfiguration", "operand"),
	}
	next = []*unstructured.Unstructured{
		configMap(t, "2", "config", "two"), configMap(t, "2", "new", "x"), secret(t, "2", "newcredentials"),
		clusterRole(t, "2", "newoperand"), service(t, "2", "hooks"), deployment(t, "2", "operand", "two"),
		webhook(t, "2", "ValidatingWebhookConfiguration", "operand"),
	}
	return old, next
}

// stride is the distance between the writes after which the tests kill: the suite btpmanager takes each, make test every third.
func stride() int {
	if os.Getenv("KEB_SUITE") == "btpmanager" {
		return 1
	}
	return 3
}

func TestUpgrade_KilledAfterEachWrite_NextCompletes(t *testing.T) {
	b := setup(t)
	old, next := upgrade(t)
	// The change of another client makes the upgrade take over fields, too.
	begin := func() {
		b.empty(t.Context())
		b.settle(old)
		b.patch(old[1], `{"data":{"more":"x"},"metadata":{"labels":{"team":"x"}}}`)
	}
	begin()
	b.settle(next)
	want := b.contents()
	n := 1
	for ; ; n += stride() {
		begin()
		killed := b.die(n, func(o *operand.Operand) error { _, err := o.Apply(t.Context(), next); return err })
		b.settle(next)
		equal(t, fmt.Sprintf("objects after a death at write %d", n), b.contents(), want)
		if !killed {
			break
		}
	}
	// The writes are: two of the inventory, seven objects, a taken over field, a replaced Deployment, five obsolete objects.
	if n < 15 {
		t.Errorf("the upgrade had only %d writes", n-1)
	}
}

func TestApply_KilledAfterEachWrite_NextCompletes(t *testing.T) {
	b := setup(t)
	old, _ := upgrade(t)
	b.settle(old)
	want := b.contents()
	for n := 1; ; n += stride() {
		install := func() bool {
			b.empty(t.Context())
			return b.die(n, func(o *operand.Operand) error { _, err := o.Apply(t.Context(), old); return err })
		}
		killed := install()
		b.settle(old)
		equal(t, fmt.Sprintf("objects after a death at write %d", n), b.contents(), want)
		install()
		b.remove(nil)
		equal(t, fmt.Sprintf("objects after a death at write %d, and removal", n), len(b.all(t.Context())), 0)
		if !killed {
			break
		}
	}
}

func TestRemove_KilledAfterEachWrite_NextCompletes(t *testing.T) {
	b := setup(t)
	objs, _ := upgrade(t)
	odd := object(t, "1", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: operand}, value: 1}")
	begin := func() {
		b.empty(t.Context())
		b.settle(append(objs, odd))
		b.make(bare(secret(t, "1", "sap-btp-operator-clusterid")))
	}
	for n := 1; ; n += stride() {
		begin()
		killed := b.die(n, func(o *operand.Operand) error {
			// Only the inventory contains the PriorityClass.
			for {
				left, err := o.Remove(t.Context(), objs, nil)
				if err != nil || len(left) == 0 {
					return err
				}
			}
		})
		b.remove(objs)
		equal(t, fmt.Sprintf("objects after a death at write %d", n), len(b.all(t.Context())), 0)
		if !killed {
			if want := len(objs) + 4; n < want || n >= want+stride() {
				t.Errorf("the removal had less than %d writes, want %d", n, want-1)
			}
			break
		}
	}
}
