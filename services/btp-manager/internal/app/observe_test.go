package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// in returns the same system for a subtest, which neither starts nor stops BTP Manager.
func (s *system) in(t *testing.T) *system {
	sub := *s
	sub.t = t
	return &sub
}

// calls records BTP Manager's calls of the API server, and can make some of them fail.
type calls struct {
	client.Client
	mu     sync.Mutex
	looks  int
	all    int
	open   int // calls without an answer
	writes []string
	// failing returns the error for a call, or nil.
	failing func(verb string, o any) error
}

// observe records the calls between BTP Manager and the API server, from the next start on.
func (s *system) observe() *calls {
	c := new(calls)
	s.between = func(inner client.Client) client.Client {
		c.Client = inner
		return c
	}
	return c
}

// fail makes calls end with the error that failing returns for them.
func (c *calls) fail(failing func(verb string, o any) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = failing
}

// passes returns the number of BTP Manager's passes.
func (c *calls) passes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

// written lists the writes since the last call, without server-side apply, which may change nothing.
func (c *calls) written() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.writes
	c.writes = nil
	return out
}

// settle waits until all events are handled: events wait 200 ms for further ones.
func (c *calls) settle(t *testing.T) {
	t.Helper()
	c.rest(t, 400*time.Millisecond)
}

// longestLook is the maximum time between two checks that counts as rest: after a longer time this process, and BTP Manager with it, was suspended.
const longestLook = 100 * time.Millisecond

// rest waits until BTP Manager has made no call for some time, and waits for no answer.
func (c *calls) rest(t *testing.T, quiet time.Duration) {
	t.Helper()
	last, rested, looked := -1, time.Duration(0), time.Now()
	testkit.Eventually(t, waitTimeout, "BTP Manager comes to rest", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := time.Now()
		rested += min(now.Sub(looked), longestLook)
		if looked = now; c.all != last || c.open > 0 {
			last, rested = c.all, 0
		}
		return rested > quiet
	})
}

// more waits for another pass of BTP Manager.
func (c *calls) more(t *testing.T, than int) {
	t.Helper()
	testkit.Eventually(t, waitTimeout, "BTP Manager looks again", func() bool { return c.passes() > than })
}

// do makes a call, unless it must fail.
func (c *calls) do(verb string, o any, call func() error) error {
	if err := c.begin(verb, o); err != nil {
		return err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open--
	}()
	return call()
}

// begin records a call, and returns the error for it; without an error the call is open.
func (c *calls) begin(verb string, o any) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if err == nil {
			c.open++
		}
	}()
	c.all++
	if named, ok := o.(client.Object); ok && verb != "get" && verb != "apply" {
		c.writes = append(c.writes, fmt.Sprintf("%s %T %s", verb, o, client.ObjectKeyFromObject(named)))
	}
	if c.failing == nil {
		return nil
	}
	return c.failing(verb, o)
}

func (c *calls) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.BtpOperatorList); ok {
		c.mu.Lock()
		c.looks++
		c.mu.Unlock()
	}
	return c.do("list", list, func() error { return c.Client.List(ctx, list, opts...) })
}

func (c *calls) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.do("get", o, func() error { return c.Client.Get(ctx, key, o, opts...) })
}

func (c *calls) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.do("create", o, func() error { return c.Client.Create(ctx, o, opts...) })
}

func (c *calls) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.do("update", o, func() error { return c.Client.Update(ctx, o, opts...) })
}

func (c *calls) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.do("patch", o, func() error { return c.Client.Patch(ctx, o, patch, opts...) })
}

func (c *calls) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.do("delete", o, func() error { return c.Client.Delete(ctx, o, opts...) })
}

func (c *calls) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.do("apply", o, func() error { return c.Client.Apply(ctx, o, opts...) })
}

func (c *calls) Status() client.SubResourceWriter { return statusCalls{c.Client.Status(), c} }

// statusCalls are the calls that write a status.
type statusCalls struct {
	client.SubResourceWriter
	calls *calls
}

func (s statusCalls) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.calls.do("status", o, func() error { return s.SubResourceWriter.Patch(ctx, o, patch, opts...) })
}

// poke triggers a pass over a BtpOperator.
func (s *system) poke(o *v1alpha1.BtpOperator) {
	s.t.Helper()
	s.annotate(o, "example.com/poked", time.Now().String())
}

// annotate sets an annotation of an object; an empty value removes it.
func (s *system) annotate(o client.Object, key, value string) {
	s.t.Helper()
	text := "null"
	if value != "" {
		text = fmt.Sprintf("%q", value)
	}
	s.patch(o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, text))
}

// patch changes an object like a user with kubectl.
func (s *system) patch(o client.Object, merge string) {
	s.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(merge))
	if err := s.Patch(s.t.Context(), o, patch, client.FieldOwner("kubectl-patch")); err != nil {
		s.t.Fatal(err)
	}
}

// change changes the broker's Secret.
func (s *system) change(keysAndValues ...string) {
	s.t.Helper()
	o := secret()
	if !s.exists(o) {
		s.t.Fatal("no Secret to change")
	}
	for i := 0; i < len(keysAndValues); i += 2 {
		if o.Data[keysAndValues[i]] = []byte(keysAndValues[i+1]); keysAndValues[i+1] == "-" {
			delete(o.Data, keysAndValues[i])
		}
	}
	if err := s.Update(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// made reads the objects of BTP Manager, by kind, namespace and name.
func (s *system) made() map[string]*unstructured.Unstructured {
	s.t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for _, o := range s.labelled(s.t.Context()) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			s.t.Fatalf("a %T", o)
		}
		out[title(u)] = u
	}
	return out
}

// title returns the name of an object for a test's messages.
func title(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
}

// operandSecret and operandConfig are the operand's copies of the credentials, for reading them.
func operandSecret(namespace string) *corev1.Secret {
	o := new(corev1.Secret)
	o.Namespace, o.Name = namespace, "sap-btp-service-operator"
	return o
}

func (s *system) operandConfig() map[string]string {
	s.t.Helper()
	o := new(corev1.ConfigMap)
	o.Namespace, o.Name = kymaSystem, "sap-btp-operator-config"
	if !s.exists(o) {
		return nil
	}
	return o.Data
}

// metric returns the value of a metric of BTP Manager; for a histogram the number of observations. Labels are given as name, value, name, value.
func (s *system) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "btpmanager_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName(), l.GetValue())
			}
			if !slices.Equal(has, labels) {
				continue
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount())
			}
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	s.t.Fatalf("no metric %s with %v", name, labels)
	return 0
}

// awaitMetric waits until a metric has a value.
func (s *system) awaitMetric(want float64, name string, labels ...string) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, fmt.Sprintf("%s%v becomes %v", name, labels, want), func() bool { return s.metric(name, labels...) == want })
}

// events returns the Kubernetes Events about an object.
func (s *system) events(o client.Object) []eventsv1.Event {
	s.t.Helper()
	list := new(eventsv1.EventList)
	if err := s.List(s.t.Context(), list, client.InNamespace(o.GetNamespace())); err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != o.GetUID() })
}

// awaitEvent waits for a Kubernetes Event about an object, and returns its note.
func (s *system) awaitEvent(o client.Object, kind, reason string) string {
	s.t.Helper()
	var note string
	testkit.Eventually(s.t, waitTimeout, "the "+kind+" event "+reason, func() bool {
		return slices.ContainsFunc(s.events(o), func(e eventsv1.Event) bool {
			note = e.Note
			return e.Type == kind && e.Reason == reason
		})
	})
	return note
}

// background returns a context that remains valid after the test, for its clean-up.
func (s *system) background() context.Context { return context.WithoutCancel(s.t.Context()) }

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}
