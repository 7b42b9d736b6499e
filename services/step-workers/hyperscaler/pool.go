package hyperscaler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// ErrEmptyPool tells that no account is free. It is worth another try: accounts are added and cleaned all the time.
var ErrEmptyPool = errors.New("no free account in the pool")

// errChanged tells that another process was faster. The pool has to be looked at again.
var errChanged = errors.New("the account was changed by another process")

// rounds is how often one execution of a step looks at the pool. Each round that another process has spoilt is one in
// which that process went on.
const rounds = 20

// pool is the account pool of a Gardener project.
type pool struct {
	kube      *kube.Client
	namespace string
	// claimTime is how long a claim keeps an account that no cluster refers to yet.
	claimTime time.Duration
	now       func() time.Time
	turns     turns
	shelf     shelf
}

// want is what an account is looked for.
type want struct {
	provider string
	tenant   string
	instance string
	eu       bool
	shared   bool
}

// String describes the accounts that are looked for.
func (w want) String() string {
	kind := "without EU access"
	switch {
	case w.shared:
		kind = "shared"
	case w.eu:
		kind = "with EU access"
	}
	return fmt.Sprintf("hyperscaler type %s, %s", w.provider, kind)
}

// owned selects the accounts that the tenant has (docs/contracts/gardener.md#account-pool).
func (w want) owned() string {
	return fmt.Sprintf("%s=%s,%s=%s,!%s%s", labelTenant, w.tenant, labelType, w.provider, labelDirty, w.regions())
}

// free selects the accounts that a tenant can claim.
func (w want) free() string {
	return fmt.Sprintf("%s!=true,!%s,!%s,%s=%s%s", labelShared, labelTenant, labelDirty, labelType, w.provider, w.regions())
}

func (w want) regions() string {
	if w.eu {
		return "," + labelEU + "=true"
	}
	return ",!" + labelEU
}

// again tries until nobody else comes in between.
func again(ctx context.Context, try func() (done bool, err error)) error {
	for range rounds {
		done, err := try()
		if done || (err != nil && !errors.Is(err, errChanged)) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return &busyError{}
}

// busyError is worth another try.
type busyError struct{}

func (*busyError) Error() string { return "other processes change the account all the time" }

func (*busyError) Temporary() bool { return true }

// patch changes a binding. One that was changed first, or is gone, is errChanged.
func (p *pool) patch(ctx context.Context, b binding, c change) (binding, error) {
	body, err := json.Marshal(c.body())
	if err != nil {
		return binding{}, fmt.Errorf("encode the change of %s: %w", b.GetName(), err)
	}
	got, err := p.kube.Merge(ctx, kube.SecretBindings, p.namespace, b.GetName(), body)
	if kube.IsConflict(err) || kube.IsNotFound(err) {
		return binding{}, errChanged
	}
	if err != nil {
		return binding{}, err
	}
	return binding{*got}, nil
}

// expired is the time before which claims do not count any more.
func (p *pool) expired() time.Time { return p.now().Add(-p.claimTime) }

// leastUsed is the shared account with the fewest clusters (docs/contracts/gardener.md#account-pool).
func (p *pool) leastUsed(ctx context.Context, w want) (string, error) {
	shared, err := p.list(ctx, fmt.Sprintf("%s=true,%s=%s", labelShared, labelType, w.provider))
	if err != nil {
		return "", err
	}
	shared = slices.DeleteFunc(shared, func(b binding) bool { return b.deleting() || b.secret() == "" })
	if len(shared) == 0 {
		return "", fmt.Errorf("%w: %s", ErrEmptyPool, w)
	}
	used, err := p.uses(ctx)
	if err != nil {
		return "", err
	}
	// Of those that are used alike each instance takes another one: the clusters of a burst of orders are not there yet.
	return slices.MinFunc(shared, func(a, b binding) int {
		return cmp.Or(cmp.Compare(used.of(a), used.of(b)), preference(w.instance)(a, b))
	}).secret(), nil
}

// release marks the tenant's accounts that nothing uses for cleaning, and returns how many it marked. What keeps an account
// is a cluster, and an instance that has claimed it and has no cluster yet.
func (p *pool) release(ctx context.Context, w want) (marked int, err error) {
	selector := fmt.Sprintf("%s=%s,%s=%s", labelTenant, w.tenant, labelType, w.provider)
	err = again(ctx, func() (bool, error) {
		// The bindings come first: a claim that is made after they were read spoils the change below.
		list, err := p.list(ctx, selector)
		if err != nil {
			return true, err
		}
		list = slices.DeleteFunc(list, binding.kept)
		if len(list) == 0 {
			return true, nil
		}
		used, err := p.uses(ctx)
		if err != nil {
			return true, err
		}
		for _, b := range list {
			dirty, err := p.releaseOne(ctx, w, b, used.of(b))
			if err != nil {
				return false, err
			}
			if dirty {
				marked++
			}
		}
		return true, nil
	})
	return marked, err
}

func (p *pool) releaseOne(ctx context.Context, w want, b binding, clusters int) (dirty bool, err error) {
	if clusters > 0 || b.claimedByOthers(w.instance, p.expired()) {
		if _, ok := b.GetAnnotations()[claimOf(w.instance)]; ok {
			_, err = p.patch(ctx, b, change{annotations: map[string]any{claimOf(w.instance): nil}})
		}
		return false, err
	}
	_, err = p.patch(ctx, b, b.change(p.expired()).ifUnchanged(b).unclaimed(b).label(labelDirty, "true"))
	return err == nil, err
}

// uses counts the clusters by what they name as their secret binding.
type uses map[string]int

// of counts the clusters of b. The Runtime Provisioner puts the name of the secret there, which is also the binding's.
func (u uses) of(b binding) int {
	if b.secret() == b.GetName() {
		return u[b.GetName()]
	}
	return u[b.GetName()] + u[b.secret()]
}

func (p *pool) uses(ctx context.Context) (uses, error) {
	shoots, err := p.kube.List(ctx, kube.Shoots, p.namespace, "")
	if err != nil {
		return nil, err
	}
	used := uses{}
	for _, shoot := range shoots {
		name, _, _ := unstructured.NestedString(shoot.Object, "spec", "secretBindingName")
		used[name]++
	}
	return used, nil
}

// list is ordered by name, so that all processes agree on which account of a tenant is the first.
func (p *pool) list(ctx context.Context, selector string) ([]binding, error) {
	list, err := p.kube.List(ctx, kube.SecretBindings, p.namespace, selector)
	return bindings(list), err
}

func bindings(list []unstructured.Unstructured) []binding {
	all := make([]binding, len(list))
	for i, item := range list {
		all[i] = binding{item}
	}
	slices.SortFunc(all, func(a, b binding) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// preference orders bindings in another way for each key, the same in every process.
func preference(key string) func(a, b binding) int {
	return func(a, b binding) int {
		return cmp.Or(cmp.Compare(sum(key, a.GetName()), sum(key, b.GetName())), cmp.Compare(a.GetName(), b.GetName()))
	}
}
