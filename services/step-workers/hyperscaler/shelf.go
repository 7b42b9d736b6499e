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
	// shelfSize is how many free accounts are read at once, shelfTime for how long they are tried. What others have claimed
	// meanwhile costs a call that is refused.
	shelfSize = 500
	shelfTime = 5 * time.Second
)

// shelf holds free accounts of one kind that were read together: the claims of a process take one each, and do not read the
// pool for each of them. Every process has its own order.
type shelf struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	free   []binding
	readAt time.Time
}

func (s *shelf) of(selector string) *kind {
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

// candidate is a free account that no other claim of this process tries. When there is none the pool was empty just now.
func (p *pool) candidate(ctx context.Context, w want) (binding, error) {
	done, err := p.turns.take(ctx, w.free())
	if err != nil {
		return binding{}, err
	}
	defer done()
	k := p.shelf.of(w.free())
	if len(k.free) == 0 || p.now().Sub(k.readAt) > shelfTime {
		readAt := p.now()
		list, err := p.kube.First(ctx, kube.SecretBindings, p.namespace, w.free(), shelfSize)
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
