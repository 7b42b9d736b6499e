package hyperscaler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

const (
	// freeBatch is the number of free accounts that are read in one call; freeLifetime is how long they are used. If another process has
	// claimed an account in the meantime, the claim is rejected, which costs one call.
	freeBatch    = 500
	freeLifetime = 5 * time.Second
)

// freeAccounts caches free accounts of one kind. Each claim of the process takes one, without another read of the pool. Every process has
// a different order.
type freeAccounts struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	free   []binding
	readAt time.Time
}

func (s *freeAccounts) of(selector string) *kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[string]*kind{}
	}
	if s.kinds[selector] == nil {
		s.kinds[selector] = &kind{}
	}
	return s.kinds[selector]
}

// candidate returns a free account that no other claim of this process tries. It returns ErrEmptyPool if the pool is empty.
func (p *pool) candidate(ctx context.Context, w want) (binding, error) {
	unlock, err := p.locks.lock(ctx, w.free())
	if err != nil {
		return binding{}, err
	}
	defer unlock()
	k := p.freeAccounts.of(w.free())
	if len(k.free) == 0 || p.now().Sub(k.readAt) > freeLifetime {
		readAt := p.now()
		list, err := p.kube.First(ctx, kube.SecretBindings, p.namespace, w.free(), freeBatch)
		if err != nil {
			return binding{}, err
		}
		k.free = slices.DeleteFunc(bindings(list), func(b binding) bool { return b.deleting() || b.secret() == "" })
		k.readAt = readAt
		rand.Shuffle(len(k.free), func(i, j int) { k.free[i], k.free[j] = k.free[j], k.free[i] })
	}
	if len(k.free) == 0 {
		return binding{}, fmt.Errorf("%w: %s", ErrEmptyPool, w)
	}
	b := k.free[0]
	k.free = k.free[1:]
	return b, nil
}
