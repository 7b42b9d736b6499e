package hyperscaler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// ErrEmptyPool tells that no account is free. It is worth another try: accounts are added and cleaned all the time.
var ErrEmptyPool = errors.New("no free account in the pool")

// Labels of secret bindings.
const (
	labelType   = "hyperscalerType"
	labelTenant = "tenantName"
	labelShared = "shared"
	labelDirty  = "dirty"
	labelIntern = "internal"
	labelEU     = "euAccess"
)

// pool is the account pool of a Gardener project.
type pool struct {
	kube      *kube.Client
	namespace string

	// claiming (one slot) keeps the steps of one process from taking two accounts for one tenant; between processes
	// the order of the candidates and the conflict of the update do.
	claiming chan struct{}
}

// want is what an account is looked for.
type want struct {
	provider string
	tenant   string
	eu       bool
	shared   bool
}

// resolve returns the secret of an account for w. A tenant keeps the account that it has.
func (p *pool) resolve(ctx context.Context, w want) (string, error) {
	if w.shared {
		return p.leastUsed(ctx, w)
	}
	secret, err := p.owned(ctx, w)
	if err != nil || secret != "" {
		return secret, err
	}
	select {
	case p.claiming <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-p.claiming }()
	secret, err = p.owned(ctx, w)
	if err != nil || secret != "" {
		return secret, err
	}
	// The API server orders by name, so that two processes try the same account first. A pool may be large.
	free, err := p.kube.First(ctx, kube.SecretBindings, p.namespace,
		fmt.Sprintf("%s=%s,%s!=true,!%s,!%s%s", labelType, w.provider, labelShared, labelTenant, labelDirty, euClause(w)), 1)
	if err != nil {
		return "", err
	}
	if len(free) == 0 {
		return "", fmt.Errorf("%w of %s", ErrEmptyPool, w.provider)
	}
	binding := &free[0]
	labels := binding.GetLabels()
	labels[labelTenant] = w.tenant
	binding.SetLabels(labels)
	if err := p.kube.Update(ctx, kube.SecretBindings, binding); err != nil {
		return "", err
	}
	return p.settle(ctx, w, binding.GetName())
}

// settle makes two processes that have claimed an account for one tenant at once agree on the first: the other
// account goes back.
func (p *pool) settle(ctx context.Context, w want, mine string) (string, error) {
	all, err := p.list(ctx, p.ownedSelector(w))
	if err != nil {
		return "", err
	}
	if len(all) > 1 && all[0].GetName() != mine {
		patch := []byte(`{"metadata":{"labels":{"` + labelTenant + `":null}}}`)
		if err := p.kube.Patch(ctx, kube.SecretBindings, p.namespace, mine, patch); err != nil {
			return "", err
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("%w of %s: the claimed one was taken away", ErrEmptyPool, w.provider)
	}
	return secretOf(all[0])
}

func (p *pool) owned(ctx context.Context, w want) (string, error) {
	list, err := p.list(ctx, p.ownedSelector(w))
	if err != nil || len(list) == 0 {
		return "", err
	}
	return secretOf(list[0])
}

func (p *pool) ownedSelector(w want) string {
	return fmt.Sprintf("%s=%s,%s=%s,!%s%s", labelType, w.provider, labelTenant, w.tenant, labelDirty, euClause(w))
}

func euClause(w want) string {
	if w.eu {
		return "," + labelEU + "=true"
	}
	return ",!" + labelEU
}

// leastUsed is the shared account with the fewest clusters.
func (p *pool) leastUsed(ctx context.Context, w want) (string, error) {
	shared, err := p.list(ctx, fmt.Sprintf("%s=%s,%s=true", labelType, w.provider, labelShared))
	if err != nil {
		return "", err
	}
	if len(shared) == 0 {
		return "", fmt.Errorf("%w of shared %s accounts", ErrEmptyPool, w.provider)
	}
	used, err := p.uses(ctx)
	if err != nil {
		return "", err
	}
	return secretOf(slices.MinFunc(shared, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(used[a.GetName()], used[b.GetName()])
	}))
}

// release marks the tenant's accounts that no cluster uses for cleaning, and returns how many it marked.
func (p *pool) release(ctx context.Context, w want) (int, error) {
	list, err := p.list(ctx, fmt.Sprintf("%s=%s,%s=%s,!%s", labelType, w.provider, labelTenant, w.tenant, labelDirty))
	if err != nil || len(list) == 0 {
		return 0, err
	}
	used, err := p.uses(ctx)
	if err != nil {
		return 0, err
	}
	marked := 0
	for _, binding := range list {
		labels := binding.GetLabels()
		if labels[labelIntern] == "true" || labels[labelShared] == "true" || used[binding.GetName()] > 0 {
			continue
		}
		labels[labelDirty] = "true"
		binding.SetLabels(labels)
		// The resource version makes a claim that came in between win.
		if err := p.kube.Update(ctx, kube.SecretBindings, &binding); err != nil {
			return marked, err
		}
		marked++
	}
	return marked, nil
}

// uses counts the clusters of each secret binding.
func (p *pool) uses(ctx context.Context) (map[string]int, error) {
	shoots, err := p.kube.List(ctx, kube.Shoots, p.namespace, "")
	if err != nil {
		return nil, err
	}
	used := map[string]int{}
	for _, shoot := range shoots {
		name, _, _ := unstructured.NestedString(shoot.Object, "spec", "secretBindingName")
		used[name]++
	}
	return used, nil
}

// list is ordered by name, so that two processes agree on which account of a tenant is the first.
func (p *pool) list(ctx context.Context, selector string) ([]unstructured.Unstructured, error) {
	list, err := p.kube.List(ctx, kube.SecretBindings, p.namespace, selector)
	slices.SortFunc(list, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list, err
}

func secretOf(binding unstructured.Unstructured) (string, error) {
	name, _, _ := unstructured.NestedString(binding.Object, "secretRef", "name")
	if name == "" {
		shown, _ := json.Marshal(binding.GetName())
		return "", fmt.Errorf("secret binding %s names no secret", shown)
	}
	return name, nil
}
