package hyperscaler

import (
	"context"
	"errors"
	"fmt"
)

// resolve returns the secret of an account for w. A tenant keeps its account.
//
// Two processes may search for an account of one tenant at the same time, and neither sees the other's claim before its own is
// written. So a process claims in two steps. It first adds the tenant and the annotation "claiming" to a binding. It then reads the
// tenant's bindings again and removes the annotation, which settles the claim.
//
// Before a process settles a claim, it withdraws all other claims of the tenant that it sees. Each change is conditional on the version
// that was read. Of any two claims at least one process sees both, because each reads after it wrote. So at most one claim is
// settled, and only a settled claim is returned. The next process that searches settles the claim of a process that ended.
func (p *pool) resolve(ctx context.Context, w want) (string, error) {
	if w.shared {
		return p.leastUsed(ctx, w)
	}
	// Processes settle their claims as described; steps of one process use a lock, because they would only cause conflicts.
	unlock, err := p.locks.lock(ctx, w.owned())
	if err != nil {
		return "", err
	}
	defer unlock()
	var secret string
	err = retryConflicts(ctx, func() (bool, error) {
		var err error
		secret, err = p.look(ctx, w)
		return secret != "", err
	})
	return secret, err
}

// look makes one change. An empty secret without an error means that the caller must look again.
func (p *pool) look(ctx context.Context, w want) (string, error) {
	owned, err := p.list(ctx, w.owned())
	if err != nil {
		return "", err
	}
	var settled, claiming []binding
	for _, b := range owned {
		switch {
		case b.deleting():
		case b.settled():
			settled = append(settled, b)
		default:
			claiming = append(claiming, b)
		}
	}
	switch {
	case len(settled) > 0:
		// These claims are from a process that ended, or that loses against the settled claim.
		for _, b := range claiming {
			if err := p.withdraw(ctx, b); err != nil {
				return "", err
			}
		}
		return p.use(ctx, w, settled[0])
	case len(claiming) > 0:
		for _, b := range claiming[1:] {
			if err := p.withdraw(ctx, b); err != nil {
				return "", err
			}
		}
		return p.settle(ctx, w, claiming[0])
	default:
		return "", p.claim(ctx, w)
	}
}

// use adds the instance's claim to the tenant's account, so that the account is not released before the instance has a cluster.
func (p *pool) use(ctx context.Context, w want, b binding) (string, error) {
	if b.secret() == "" {
		return "", fmt.Errorf("secret binding %s of tenant %s names no secret", b.GetName(), w.tenant)
	}
	got, err := p.patch(ctx, b, b.change(p.expired()).claimed(w.instance, p.now()))
	if err != nil {
		return "", err
	}
	if got.tenant() == w.tenant && got.GetLabels()[labelDirty] == "" && got.settled() && !got.deleting() {
		return got.secret(), nil
	}
	// Another process has released the account in the meantime.
	if _, err := p.patch(ctx, b, change{annotations: map[string]any{claimOf(w.instance): nil}}); err != nil {
		return "", err
	}
	return "", errChanged
}

func (p *pool) settle(ctx context.Context, w want, b binding) (string, error) {
	got, err := p.patch(ctx, b, b.change(p.expired()).ifUnchanged(b).annotation(annotationClaiming, nil).claimed(w.instance, p.now()))
	return got.secret(), err
}

func (p *pool) withdraw(ctx context.Context, b binding) error {
	_, err := p.patch(ctx, b, b.change(p.expired()).ifUnchanged(b).unclaimed(b).label(labelTenant, nil))
	return err
}

// claim adds the tenant to a free account.
func (p *pool) claim(ctx context.Context, w want) error {
	for {
		b, err := p.candidate(ctx, w)
		if err != nil {
			return err
		}
		_, err = p.patch(ctx, b, b.change(p.expired()).ifUnchanged(b).unclaimed(b).
			label(labelTenant, w.tenant).annotation(annotationClaiming, w.tenant).claimed(w.instance, p.now()))
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}
