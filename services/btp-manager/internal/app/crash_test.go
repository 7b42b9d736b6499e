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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

var errDead = errors.New("killed")

// life is that of a BTP Manager which is killed right after a write that changes something.
type life struct {
	client.Client            // that of the test
	mu            sync.Mutex // held by the current write
	writes        int        // the number of remaining writes
	dead          atomic.Bool
}

// writesOfALife returns the number of writes before a kill: one in the suite btpmanager, and four otherwise, which takes a quarter of the time.
func writesOfALife() int {
	if os.Getenv("KEB_SUITE") == "btpmanager" {
		return 1
	}
	return 4
}

// around makes a call, unless the BTP Manager is dead. It kills the BTP Manager if the call was its last write that changed the object.
func (l *life) around(verb string, o any, call func() error) error {
	named, ok := o.(client.Object)
	if l.dead.Load() {
		return errDead
	}
	if !ok || verb == "get" {
		return call()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead.Load() {
		return errDead
	}
	before, err := l.version(named)
	if err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	after, err := l.version(named)
	// The objects that "delete all" deletes have no name here, so it counts as a change.
	if err != nil || before == after && verb != "delete all" {
		return err
	}
	if l.writes--; l.writes > 0 {
		return nil
	}
	l.dead.Store(true)
	return errDead
}

// version returns the resource version of an object, or "" if it does not exist.
func (l *life) version(o client.Object) (string, error) {
	gvk := o.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		var err error
		if gvk, err = apiutil.GVKForObject(o, l.Scheme()); err != nil {
			return "", err
		}
	}
	now := new(metav1.PartialObjectMetadata)
	now.SetGroupVersionKind(gvk)
	err := l.Get(context.Background(), client.ObjectKeyFromObject(o), now)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return string(now.UID) + now.ResourceVersion, err
}

// lives restarts BTP Manager, which is killed after a few writes each time, until it has reached the goal. It returns the number of starts.
func (s *system) lives(goal func() bool) int {
	s.t.Helper()
	defer func() { s.between = nil }()
	for count := 1; ; count++ {
		if count > 200 {
			s.t.Fatal("it does not reach the goal")
		}
		now := &life{Client: s.Client, writes: writesOfALife()}
		s.observe().around = now.around
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

// names lists the objects with our label.
func (s *system) names() []string {
	s.t.Helper()
	var names []string
	for _, o := range s.labelled(s.t.Context()) {
		names = append(names, fmt.Sprintf("%s %s/%s", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName()))
	}
	slices.Sort(names)
	return names
}
