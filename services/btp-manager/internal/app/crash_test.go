package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

var errDead = errors.New("killed")

// life is that of a BTP Manager which is killed right after a write that changes something.
type life struct {
	mu     sync.Mutex // held by the write under way
	writes int        // that are left
	dead   atomic.Bool
}

// writesOfALife is how many writes a life has: one in the suite btpmanager, and more in make test, where it takes a quarter of the time.
func writesOfALife() int {
	if os.Getenv("KEB_SUITE") == "btpmanager" {
		return 1
	}
	return 4
}

// mortal is a client of a life: nothing works after its end.
type mortal struct {
	client.Client
	*life
}

// write does a write and kills the owner when it changed the object.
func (m *mortal) write(ctx context.Context, o client.Object, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead.Load() {
		return errDead
	}
	before, err := m.version(ctx, o)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := m.version(ctx, o)
	if err != nil {
		return err
	}
	if before == after {
		return nil
	}
	return m.wrote()
}

// wrote ends the life with its last write.
func (m *mortal) wrote() error {
	if m.writes--; m.writes > 0 {
		return nil
	}
	m.dead.Store(true)
	return errDead
}

// version is the resource version of an object as it is, or empty.
func (m *mortal) version(ctx context.Context, o client.Object) (string, error) {
	gvk := o.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		var err error
		if gvk, err = apiutil.GVKForObject(o, m.Scheme()); err != nil {
			return "", err
		}
	}
	now := new(metav1.PartialObjectMetadata)
	now.SetGroupVersionKind(gvk)
	err := m.Client.Get(ctx, client.ObjectKeyFromObject(o), now)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return string(now.UID) + now.ResourceVersion, err
}

func (m *mortal) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Client.Get(ctx, key, o, opts...)
}

func (m *mortal) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Client.List(ctx, l, opts...)
}

func (m *mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.write(ctx, o, func() error { return m.Client.Create(ctx, o, opts...) })
}

func (m *mortal) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return m.write(ctx, o, func() error { return m.Client.Update(ctx, o, opts...) })
}

func (m *mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return m.write(ctx, o, func() error { return m.Client.Patch(ctx, o, p, opts...) })
}

func (m *mortal) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	named, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("apply %T: want something with a name", o)
	}
	return m.write(ctx, named, func() error { return m.Client.Apply(ctx, o, opts...) })
}

func (m *mortal) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return m.write(ctx, o, func() error { return m.Client.Delete(ctx, o, opts...) })
}

// DeleteAllOf counts as a write each time: what it deleted is not easily told.
func (m *mortal) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead.Load() {
		return errDead
	}
	if err := m.Client.DeleteAllOf(ctx, o, opts...); err != nil {
		return err
	}
	return m.wrote()
}

func (m *mortal) Status() client.SubResourceWriter { return mortalStatus{m.Client.Status(), m} }

type mortalStatus struct {
	client.SubResourceWriter
	m *mortal
}

func (s mortalStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.m.write(ctx, o, func() error { return s.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// lives starts BTP Manager again and again, each time to be killed after a few writes, until it has reached the goal. It answers how
// many lives that took.
func (s *system) lives(goal func() bool) int {
	s.t.Helper()
	defer func() { s.between = nil }()
	for count := 1; ; count++ {
		if count > 200 {
			s.t.Fatal("it writes and writes")
		}
		now := &life{writes: writesOfALife()}
		s.between = func(c client.Client) client.Client { return &mortal{c, now} }
		s.start()
		reached := false
		testkit.Eventually(s.t, waitTimeout, "the next write, or the goal", func() bool {
			reached = goal()
			return reached || now.dead.Load()
		})
		s.stop()
		if reached {
			return count
		}
	}
}

func TestManager_KilledAfterWrites_ReachesSameState(t *testing.T) {
	undisturbed := newSystem(t)
	undisturbed.start()
	undisturbed.provisioned()
	want := undisturbed.names()
	undisturbed.stop()
	undisturbed.clean()

	s := newSystem(t)
	s.settings.HardDeleteTimeout = 2 * time.Second
	s.create(secret())
	o := s.operator("btpoperator")
	lives := s.lives(func() bool { return s.exists(o) && o.Status.State == v1alpha1.StateReady })
	if lives < len(want)/writesOfALife() {
		t.Errorf("provisioned in %d runs, although there are %d objects to create", lives, len(want))
	}
	if diff := cmp.Diff(want, s.names()); diff != "" {
		t.Errorf("objects (-undisturbed +killed):\n%s", diff)
	}
	t.Logf("provisioned in %d runs", lives)

	s.namespace("users")
	s.serviceInstance("users", "an-instance")
	s.serviceInstance("users", "a-stuck-instance", foreign)
	s.bindingSecret("users", "a-binding", s.serviceBinding("users", "a-binding", foreign))
	s.delete(o)
	lives = s.lives(func() bool { return !s.exists(o) })
	s.nothingLeft()
	t.Logf("deprovisioned, finally by a soft delete, in %d runs", lives)
}

// names lists what has our label.
func (s *system) names() []string {
	s.t.Helper()
	var names []string
	for _, o := range s.labelled(s.t.Context()) {
		names = append(names, fmt.Sprintf("%s %s/%s", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName()))
	}
	slices.Sort(names)
	return names
}
