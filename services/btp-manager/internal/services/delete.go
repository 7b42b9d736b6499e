package services

import (
	"context"
	"math/rand/v2"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parallel is how many requests a pass makes at the same time.
const parallel = 8

// noFinalizers has no resourceVersion: whatever changed meanwhile, the finalizers go.
var noFinalizers = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))

// HardDelete makes one pass of a deletion that leaves the remote side to the operand: it asks for the deletion of all bindings,
// and once no binding is left, of all instances. Objects whose deletion has been asked for are left to the operand. It also
// deletes the Secrets of bindings that have no finalizers, which the operand knows nothing of.
//
// It answers what is left. A request that did not get through (timeout, conflict, throttling, no connection) is no error: what
// it would have deleted is left. The error is, or wraps, a *RefusedError when the API said no. After any other error a later
// pass may succeed; then what is left is not always known.
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
	secrets := s.secretsOf(ctx, bindings, t)
	bindings = s.deleteAll(ctx, binding, bindings, t)
	s.deleteSecrets(ctx, secrets, bindings, t)
	if len(bindings) == 0 {
		instances = s.deleteAll(ctx, instance, instances, t)
	}
	return s.left(ctx, bindings, instances), t.result(ctx)
}

// SoftDelete makes one pass of a deletion without the operand: it asks for the deletion of what is not being deleted yet and
// takes all finalizers off, bindings first, then instances. Nobody cleans up the remote side. With each binding goes its
// Secret, when that belongs to the binding or to nobody.
//
// The operand's Deployment and webhook configurations must be gone before: the operand would put its finalizers back, and a
// webhook whose server does not answer refuses every change. An object that cannot be deleted loses its finalizers all the
// same, because the removal of the CRDs must not hang on it.
//
// It answers what is left, and errors as HardDelete does.
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
	// Most of many instances go with few requests. What is refused here is tried, and reported, one by one.
	instances = s.deleteAll(ctx, instance, instances, new(tally))
	instances = s.relist(ctx, instance, instances, s.releaseAll(ctx, instance, instances, t), t)
	return s.left(ctx, bindings, instances), t.result(ctx)
}

// deleteAll asks for the deletion of all items, with one request for each namespace that has some, and answers what is left.
func (s *Services) deleteAll(ctx context.Context, k kind, items []item, t *tally) []item {
	var namespaces []string
	known := make(map[string]bool)
	for _, it := range items {
		if !it.marked && !known[it.namespace] {
			known[it.namespace] = true
			namespaces = append(namespaces, it.namespace)
		}
	}
	// The time of a pass is limited: in a fixed order a slow namespace could keep others from ever having their turn.
	rand.Shuffle(len(namespaces), func(i, j int) { namespaces[i], namespaces[j] = namespaces[j], namespaces[i] })
	asked := s.each(ctx, len(namespaces), func(ctx context.Context, i int) {
		err := s.call(ctx, func(ctx context.Context) error {
			return s.deps.Client.DeleteAllOf(ctx, k.object("", ""), client.InNamespace(namespaces[i]))
		})
		t.add("delete "+k.resource+" in namespace "+namespaces[i], err)
	})
	return s.relist(ctx, k, items, asked, t)
}

// releaseAll deletes items one by one without the operand. It answers how many it came to.
func (s *Services) releaseAll(ctx context.Context, k kind, items []item, t *tally) int {
	return s.each(ctx, len(items), func(ctx context.Context, i int) {
		it := items[i]
		what := k.name + " " + it.namespace + "/" + it.name
		if k == binding {
			// Before the binding goes, which alone tells the Secret's name. A Secret that may not be deleted does not keep it.
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

// relist answers what is left of a kind after requests for it. When that cannot be read, it is all that was there before.
func (s *Services) relist(ctx context.Context, k kind, before []item, requests int, t *tally) []item {
	if requests == 0 {
		return before
	}
	after, err := s.list(ctx, k)
	if err != nil {
		t.add("look for what is left", err)
		return before
	}
	return after
}

// each calls do with 0 to n-1, several at a time, and waits for them. Together they have the time of one request; what does not
// begin in it is left for the next pass. It answers how many began.
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
