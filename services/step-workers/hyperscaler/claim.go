package hyperscaler

import (
	"context"
	"errors"
	"fmt"
)

// resolve returns the secret of an account for w. A tenant keeps the account that it has.
//
// Two processes may look for an account of one tenant at the same time, and neither sees the other's claim before its own is
// written. So a claim is made in two steps: the binding gets the tenant and the annotation "claiming", and when the tenant's
// bindings were read again, the annotation is taken away, which settles it. Before a process settles a claim it takes back
// all others of the tenant that it sees; each change counts only if the binding is as it was read. Of any two claims one
// process at least sees both, because each reads after it wrote, so at most one is ever settled, and only a settled one is
// given out. A claim whose process died is settled by the next that looks.
func (p *pool) resolve(ctx context.Context, w want) (string, error) {
	if w.shared {
		return p.leastUsed(ctx, w)
	}
	// Processes settle their claims as said; the steps of one process would only spoil each other's.
	done, err := p.turns.take(ctx, w.owned())
	if err != nil {
		return "", err
	}
	defer done()
	var secret string
	err = again(ctx, func() (bool, error) {
		var err error
		secret, err = p.look(ctx, w)
		return secret != "", err
	})
	return secret, err
}

// look goes one step further: an empty secret without an error means that it has to look again.
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
		// The rest of a process that died, or that loses against the settled one.
		for _, b := range claiming {
			if err := p.giveBack(ctx, b); err != nil {
				return "", err
			}
		}
		return p.use(ctx, w, settled[0])
	case len(claiming) > 0:
		for _, b := range claiming[1:] {
			if err := p.giveBack(ctx, b); err != nil {
				return "", err
			}
		}
		return p.settle(ctx, w, claiming[0])
	default:
		return "", p.claim(ctx, w)
	}
}

// use notes that the instance uses the tenant's account, so that it is not released before the instance has a cluster.
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
	// It was released in between.
	if _, err := p.patch(ctx, b, change{annotations: map[string]any{claimOf(w.instance): nil}}); err != nil {
		return "", err
	}
	return "", errChanged
}

func (p *pool) settle(ctx context.Context, w want, b binding) (string, error) {
	got, err := p.patch(ctx, b, b.change(p.expired()).ifUnchanged(b).annotation(annotationClaiming, nil).claimed(w.instance, p.now()))
	return got.secret(), err
}

func (p *pool) giveBack(ctx context.Context, b binding) error {
	_, err := p.patch(ctx, b, b.change(p.expired()).ifUnchanged(b).unclaimed(b).label(labelTenant, nil))
	return err
}

// claim writes the tenant to a free account.
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
