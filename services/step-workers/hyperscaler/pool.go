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

// ErrEmptyPool means that no account is free. A retry may succeed, because accounts are added and cleaned continuously.
var ErrEmptyPool = errors.New("no free account in the pool")

// errChanged means that another process was faster. The caller must read the pool again.
var errChanged = errors.New("the account was changed by another process")

// rounds is the maximum number of attempts in one execution of a step. In each failed round, another process made progress.
const rounds = 20

// pool is the account pool of a Gardener project.
type pool struct {
	kube      *kube.Client
	namespace string
	// claimTime is how long a claim keeps an account without a cluster.
	claimTime    time.Duration
	now          func() time.Time
	locks        locks
	freeAccounts freeAccounts
}

// want describes the wanted account.
type want struct {
	provider string
	tenant   string
	instance string
	eu       bool
	shared   bool
}

// String describes the wanted accounts.
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

// owned returns the selector of the tenant's accounts (docs/contracts/gardener.md#account-pool).
func (w want) owned() string {
	return fmt.Sprintf("%s=%s,%s=%s,!%s%s", labelTenant, w.tenant, labelType, w.provider, labelDirty, w.regions())
}

// free returns the selector of the accounts that a tenant can claim.
func (w want) free() string {
	return fmt.Sprintf("%s!=true,!%s,!%s,%s=%s%s", labelShared, labelTenant, labelDirty, labelType, w.provider, w.regions())
}

func (w want) regions() string {
	if w.eu {
		return "," + labelEU + "=true"
	}
	return ",!" + labelEU
}

// retryConflicts calls try until it is done, or until rounds are used up by conflicts.
func retryConflicts(ctx context.Context, try func() (done bool, err error)) error {
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

// busyError means that rounds are used up by conflicts. It is temporary.
type busyError struct{}

func (*busyError) Error() string { return "other processes keep changing the account" }

func (*busyError) Temporary() bool { return true }

// patch changes a binding. It returns errChanged if the binding has changed or no longer exists.
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

// expired returns the time before which claims are expired.
func (p *pool) expired() time.Time { return p.now().Add(-p.claimTime) }

// leastUsed returns the shared account with the fewest clusters (docs/contracts/gardener.md#account-pool).
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
	// Break ties differently for each instance, because the clusters of a burst of orders do not exist yet.
	return slices.MinFunc(shared, func(a, b binding) int {
		return cmp.Or(cmp.Compare(used.of(a), used.of(b)), preference(w.instance)(a, b))
	}).secret(), nil
}

// release marks the tenant's unused accounts for cleaning and returns their number. An account is in use if it has a cluster, or the claim
// of an instance without a cluster.
func (p *pool) release(ctx context.Context, w want) (marked int, err error) {
	selector := fmt.Sprintf("%s=%s,%s=%s", labelTenant, w.tenant, labelType, w.provider)
	err = retryConflicts(ctx, func() (bool, error) {
		// List the bindings first: a later claim then conflicts with the change below.
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

// uses is the number of clusters by the name of their secret binding.
type uses map[string]int

// of returns the number of clusters of b. The Runtime Provisioner uses the name of the secret, which is also the binding's.
func (u uses) of(b binding) int {
	if b.secret() == b.GetName() {
		return u[b.GetName()]
	}
	return u[b.GetName()] + u[b.secret()]
}

func (p *pool) uses(ctx context.Context) (uses, error) {
	used := uses{}
	err := p.kube.Each(ctx, kube.Shoots, p.namespace, "", func(shoot unstructured.Unstructured) {
		name, _, _ := unstructured.NestedString(shoot.Object, "spec", "secretBindingName")
		used[name]++
	})
	return used, err
}

// list returns bindings in the order of their names, so that all processes agree on the first account of a tenant.
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

// preference returns an order of bindings that depends on the key. It is the same in every process.
func preference(key string) func(a, b binding) int {
	return func(a, b binding) int {
		return cmp.Or(cmp.Compare(sum(key, a.GetName()), sum(key, b.GetName())), cmp.Compare(a.GetName(), b.GetName()))
	}
}
