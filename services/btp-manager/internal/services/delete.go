package services

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parallel is the number of concurrent requests of a pass.
const parallel = 8

// noFinalizers has no resourceVersion, so that it removes the finalizers even after a concurrent change.
var noFinalizers = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))

// HardDelete makes one pass of a deletion in which the operand cleans up the remote side. It requests the deletion of all bindings, and
// once no binding is left, of all instances. The operand handles objects whose deletion is requested. It does not know bindings without
// finalizers: HardDelete deletes their Secrets before them.
//
// It returns what is left. A request without success (timeout, conflict, throttling, no connection) is not an error: its objects are left.
// The error is, or wraps, a *RefusedError if the API rejected a change, but not for a failed read. After any other error a later pass may
// succeed; the number of remaining objects may then be unknown.
func (s *Services) HardDelete(ctx context.Context) (Left, error) {
	bindings, err := s.list(ctx, binding)
	if err != nil {
		return Left{}, err
	}
	instances, err := s.list(ctx, instance)
	if err != nil {
		return Left{}, err
	}
	t := new(tally)
	free := slices.DeleteFunc(slices.Clone(bindings), func(it item) bool { return it.held })
	bindings = s.relist(ctx, binding, bindings, s.releaseAll(ctx, binding, free, t), t)
	bindings = s.deleteAll(ctx, binding, bindings, t)
	if len(bindings) == 0 {
		instances = s.deleteAll(ctx, instance, instances, t)
	}
	return s.left(ctx, bindings, instances), t.result(ctx)
}

// SoftDelete makes one pass of a deletion without the operand. It requests the deletion of the remaining objects and removes all finalizers,
// first from bindings, then from instances. The remote side is not cleaned up. With each binding it deletes the binding's Secret, if that
// belongs to the binding or has no owner.
//
// The operand's Deployment and webhook configurations must be removed first: the operand would restore its finalizers, and an unavailable
// webhook rejects every change. SoftDelete removes the finalizers even of an object that cannot be deleted, because they would block the
// removal of the CRDs.
//
// It returns what is left, and errors like HardDelete.
func (s *Services) SoftDelete(ctx context.Context) (Left, error) {
	bindings, err := s.list(ctx, binding)
	if err != nil {
		return Left{}, err
	}
	t := new(tally)
	bindings = s.relist(ctx, binding, bindings, s.releaseAll(ctx, binding, bindings, t), t)
	instances, err := s.list(ctx, instance)
	if err != nil {
		return Left{}, err
	}
	// A few requests delete most instances. Rejected ones are deleted, and reported, individually.
	instances = s.deleteAll(ctx, instance, instances, new(tally))
	instances = s.relist(ctx, instance, instances, s.releaseAll(ctx, instance, instances, t), t)
	return s.left(ctx, bindings, instances), t.result(ctx)
}

// deleteAll requests the deletion of all items, with one request per namespace, and returns what is left. A namespace with a binding without
// finalizers waits for the next pass, because the binding's Secret must be deleted first.
func (s *Services) deleteAll(ctx context.Context, k kind, items []item, t *tally) []item {
	var namespaces []string
	known := make(map[string]bool)
	for _, it := range items {
		if k == binding && !it.held {
			known[it.namespace] = true
		}
	}
	for _, it := range items {
		if !it.marked && !known[it.namespace] {
			known[it.namespace] = true
			namespaces = append(namespaces, it.namespace)
		}
	}
	// The time of a pass is limited: in a fixed order, a slow namespace could block the others forever.
	rand.Shuffle(len(namespaces), func(i, j int) { namespaces[i], namespaces[j] = namespaces[j], namespaces[i] })
	asked := s.each(ctx, len(namespaces), func(ctx context.Context, i int) {
		err := s.call(ctx, func(ctx context.Context) error {
			return s.deps.Client.DeleteAllOf(ctx, k.object("", ""), client.InNamespace(namespaces[i]))
		})
		t.add("delete "+k.resource+" in namespace "+namespaces[i], err)
	})
	return s.relist(ctx, k, items, asked, t)
}

// releaseAll deletes items one by one without the operand. It returns the number of handled items.
func (s *Services) releaseAll(ctx context.Context, k kind, items []item, t *tally) int {
	return s.each(ctx, len(items), func(ctx context.Context, i int) {
		it := items[i]
		what := k.name + " " + it.namespace + "/" + it.name
		if k == binding {
			// Delete the Secret before the binding, which contains its name. Keep the binding until then, unless the API rejects the deletion of
			// the Secret.
			err := s.deleteSecretOf(ctx, it)
			t.add("delete the Secret of "+what, err)
			if err != nil && !refused(err) {
				return
			}
		}
		if !it.marked {
			t.add("delete "+what, s.call(ctx, func(ctx context.Context) error {
				return s.deps.Client.Delete(ctx, k.object(it.namespace, it.name))
			}))
		}
		if it.held {
			t.add("take the finalizers off "+what, s.call(ctx, func(ctx context.Context) error {
				return s.deps.Client.Patch(ctx, k.meta(it.namespace, it.name), noFinalizers)
			}))
		}
	})
}

// relist returns what is left of a kind after requests. If that cannot be read, it returns all previous items.
func (s *Services) relist(ctx context.Context, k kind, before []item, requests int, t *tally) []item {
	if requests == 0 {
		return before
	}
	after, err := s.list(ctx, k)
	if err != nil {
		t.add("look for what is left", readError{err})
		return before
	}
	return after
}

// each calls do concurrently with 0 to n-1, and waits for the calls. Together they have the timeout of one request; the next pass handles
// the rest. It returns the number of started calls.
func (s *Services) each(ctx context.Context, n int, do func(ctx context.Context, i int)) int {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	var (
		workers sync.WaitGroup
		next    = make(chan int)
		began   int
	)
	for range min(parallel, n) {
		workers.Go(func() {
			for i := range next {
				do(ctx, i)
			}
		})
	}
	for ; began < n && ctx.Err() == nil; began++ {
		next <- began
	}
	close(next)
	workers.Wait()
	return began
}
