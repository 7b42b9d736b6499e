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

// How is the action of Apply on an object.
type How string

// The actions of Apply on an object that differs from the chart.
const (
	// Created means that the object did not exist.
	Created How = "created"
	// Altered means that the object had other contents, from another chart or another client.
	Altered How = "altered"
	// Recreated means that the object was deleted and created again, because an immutable field had to change.
	Recreated How = "recreated"
)

// Change is an object that Apply created or altered.
type Change struct {
	Ref
	How How
}

// String returns the Change for users: "Deployment kyma-system/x altered".
func (c Change) String() string { return c.Ref.String() + " " + string(c.How) }

// Applied is the result of a call of Apply.
type Applied struct {
	// Changed are the objects that this call created or altered, in the order of the chart. It is empty if all were up to date.
	Changed []Change
	// Removed are the objects of an earlier chart whose deletion this call requested.
	Removed []Ref
	// Held are the objects that could not be applied yet: their kind is not served yet, or an object with their name is still being deleted.
	// The next call applies them. Unready lists them too.
	Held []NotReady
	// Kept are the definitions of an earlier chart that stay, because custom resources of their kind exist.
	Kept []*InUseError
}

// conflicts is the number of attempts for an object that changes while it is applied.
const conflicts = 4

// Apply applies objs in their order, and deletes objects that earlier calls applied and that objs no longer contains. Fields that objs does
// not set get their defaults; values that other clients set in them are removed, except status, finalizers and the annotation of a rollout
// restart. A second call with the same objs writes nothing.
//
// Apply continues after an error; the errors are joined and contain the names of their objects. It deletes no obsolete object in a call
// that could not apply everything.
func (o *Operand) Apply(ctx context.Context, objs []*unstructured.Unstructured) (Applied, error) {
	if err := check(objs); err != nil {
		return Applied{}, fmt.Errorf("apply the operand: %w", err)
	}
	inv, err := o.inventory(ctx, objs)
	if err != nil {
		return Applied{}, err
	}
	want := refs(objs)
	// Store the inventory first, so that a later call has it even after a crash.
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

// outcome is the result for an object. how is empty if it was up to date; held is the reason why it could not be applied yet.
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
	log.FromContext(ctx).Info("replacing an object because of an immutable field", "object", ref.String(), "cause", err.Error())
	return o.recreate(ctx, want, live)
}

func (o *Operand) serverSideApply(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	got := want.DeepCopy()
	// An applied configuration must not contain managed fields.
	got.SetManagedFields(nil)
	got.SetResourceVersion("")
	err := o.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(got), client.ForceOwnership, client.FieldOwner(fieldOwner))
	return got, err
}

// recreate deletes the object and applies it again. After a crash in between, the next Apply creates it.
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

// compare determines the action from the object before and after, without the changes of the API server and of status writers.
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

// refs returns the Refs of objs, in their order.
func refs(objs []*unstructured.Unstructured) []Ref {
	out := make([]Ref, 0, len(objs))
	for _, obj := range objs {
		out = append(out, RefOf(obj))
	}
	return out
}

// union returns a, followed by the elements of b that a does not contain.
func union(a, b []Ref) []Ref {
	out := append([]Ref(nil), a...)
	return append(out, without(b, a)...)
}

// without returns the elements of a that b does not contain, each once.
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
