package operand

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// How is what Apply did with an object.
type How string

// What Apply does with an object that is not as it should be.
const (
	// Created means that it was not there.
	Created How = "created"
	// Altered means that it was there with other contents: by another chart, or because somebody changed it.
	Altered How = "altered"
	// Recreated means that it was deleted and created again, because a field had to change that cannot.
	Recreated How = "recreated"
)

// Change is an object that Apply created or altered.
type Change struct {
	Ref
	How How
}

// String is the Change as a user reads it: "Deployment kyma-system/x altered".
func (c Change) String() string { return c.Ref.String() + " " + string(c.How) }

// Applied is what one call of Apply did.
type Applied struct {
	// Changed are the objects that this call created or altered, in the order of the chart. It is empty when all was well.
	Changed []Change
	// Removed are the objects of an earlier chart whose deletion this call asked for.
	Removed []Ref
	// Held are the objects that could not be applied yet and are the next call's work: their kind is not served yet, or an
	// object of their name is still being deleted. Unready lists them too.
	Held []NotReady
	// Kept are the definitions of an earlier chart that stay, because custom resources of their kind exist.
	Kept []*InUseError
}

// conflicts is how often an object is tried again that changed while it was being applied.
const conflicts = 4

// Apply makes the cluster hold objs as they are, in their order, and deletes what earlier calls applied and objs no longer
// hold. Fields that objs do not name keep their defaults, and what others set in them goes, except status, finalizers and the
// mark of a rollout restart. A second call with the same objs writes nothing.
//
// An object that fails does not keep the others from being applied; the errors are joined and name their objects. Nothing is
// deleted as obsolete in a call that could not apply everything.
func (o *Operand) Apply(ctx context.Context, objs []*unstructured.Unstructured) (Applied, error) {
	if err := check(objs); err != nil {
		return Applied{}, fmt.Errorf("apply the operand: %w", err)
	}
	inv, err := o.inventory(ctx, objs)
	if err != nil {
		return Applied{}, err
	}
	want := refs(objs)
	// Before anything is applied: whatever happens next, a later call knows of it.
	if err := o.store(ctx, inv, union(want, inv.refs), objs); err != nil {
		return Applied{}, err
	}

	var done Applied
	var errs []error
	uids := map[types.UID]bool{}
	defined := definedKinds(objs)
	for _, obj := range objs {
		ref := RefOf(obj)
		if crd, ok := defined[ref.GroupVersionKind().GroupKind()]; ok {
			established, err := o.established(ctx, crd)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if !established {
				done.Held = append(done.Held, NotReady{ref, "its kind is not established yet"})
				continue
			}
		}
		got, err := o.applyOne(ctx, obj)
		switch {
		case err == nil:
			uids[got.uid] = true
			if got.how != "" {
				done.Changed = append(done.Changed, Change{ref, got.how})
			}
			if got.held != "" {
				done.Held = append(done.Held, NotReady{ref, got.held})
			}
		case ctx.Err() != nil:
			return done, errors.Join(append(errs, fmt.Errorf("apply %s: %w", ref, err))...)
		default:
			errs = append(errs, fmt.Errorf("apply %s: %w", ref, err))
		}
	}
	if len(errs) > 0 || len(done.Held) > 0 {
		return done, errors.Join(errs...)
	}

	remaining, err := o.prune(ctx, without(inv.refs, want), uids, &done)
	if err := o.store(ctx, inv, union(want, remaining), objs); err != nil {
		errs = append(errs, err)
	}
	return done, errors.Join(append(errs, err)...)
}

// outcome is what became of an object. how is empty when it was as it should be; held says why it could not be applied yet.
type outcome struct {
	how  How
	uid  types.UID
	held string
}

func (o *Operand) applyOne(ctx context.Context, want *unstructured.Unstructured) (outcome, error) {
	for attempt := 1; ; attempt++ {
		got, err := o.applyOnce(ctx, want)
		if !apierrors.IsConflict(err) || attempt == conflicts {
			return got, err
		}
	}
}

func (o *Operand) applyOnce(ctx context.Context, want *unstructured.Unstructured) (outcome, error) {
	ref := RefOf(want)
	live, err := o.get(ctx, ref)
	if err != nil {
		return outcome{}, err
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		return outcome{uid: live.GetUID(), held: deleting(live)}, nil
	}
	if live != nil {
		if err := o.takeOver(ctx, live); err != nil {
			return outcome{}, err
		}
	}
	got, err := o.serverSideApply(ctx, want)
	if err == nil {
		return outcome{how: compare(live, got), uid: got.GetUID()}, nil
	}
	if live == nil || !ours(live) || !immutable(err) {
		return outcome{}, err
	}
	log.FromContext(ctx).Info("replacing an object, a field of it cannot be changed", "object", ref.String(), "cause", err.Error())
	return o.recreate(ctx, want, live)
}

func (o *Operand) serverSideApply(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	got := want.DeepCopy()
	// An applied configuration must not name who applied it before.
	got.SetManagedFields(nil)
	got.SetResourceVersion("")
	err := o.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(got), client.ForceOwnership, client.FieldOwner(o.cfg.FieldOwner))
	return got, err
}

// recreate deletes the object and applies it anew. Killed in between, the next Apply creates it.
func (o *Operand) recreate(ctx context.Context, want, live *unstructured.Unstructured) (outcome, error) {
	ref := RefOf(want)
	if err := o.unused(ctx, ref); err != nil {
		return outcome{}, err
	}
	if err := o.delete(ctx, ref, live); err != nil {
		return outcome{}, err
	}
	rest, err := o.get(ctx, ref)
	if err != nil {
		return outcome{}, err
	}
	if rest != nil {
		return outcome{uid: rest.GetUID(), held: deleting(rest)}, nil
	}
	got, err := o.serverSideApply(ctx, want)
	if err != nil {
		return outcome{}, err
	}
	return outcome{how: Recreated, uid: got.GetUID()}, nil
}

// compare tells what became of live by what it is now, leaving out what the API server and status writers change by themselves.
func compare(live, got *unstructured.Unstructured) How {
	if live == nil {
		return Created
	}
	if live.GetResourceVersion() == got.GetResourceVersion() || equality.Semantic.DeepEqual(contents(live), contents(got)) {
		return ""
	}
	return Altered
}

func contents(obj *unstructured.Unstructured) map[string]any {
	c := maps.Clone(obj.Object)
	delete(c, "status")
	if m, ok := c["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		for _, key := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(m, key)
		}
		c["metadata"] = m
	}
	return c
}

// refs names objs, in their order.
func refs(objs []*unstructured.Unstructured) []Ref {
	out := make([]Ref, 0, len(objs))
	for _, obj := range objs {
		out = append(out, RefOf(obj))
	}
	return out
}

// union is a, then what b has besides.
func union(a, b []Ref) []Ref {
	out := append([]Ref(nil), a...)
	return append(out, without(b, a)...)
}

// without is a less b, each object once.
func without(a, b []Ref) []Ref {
	seen := map[Ref]bool{}
	for _, r := range b {
		seen[r.identity()] = true
	}
	var out []Ref
	for _, r := range a {
		if !seen[r.identity()] {
			out = append(out, r)
		}
		seen[r.identity()] = true
	}
	return out
}
