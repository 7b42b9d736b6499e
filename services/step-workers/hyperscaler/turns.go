package hyperscaler

import (
	"context"
	"sync"
)

// turns lets one at a time through for each key. The zero value is ready.
type turns struct {
	mu    sync.Mutex
	taken map[string]*turn
}

type turn struct {
	slot  chan struct{}
	users int
}

// take waits for the turn of a key; done ends it.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	mine := t.join(key)
	select {
	case mine.slot <- struct{}{}:
		return func() {
			<-mine.slot
			t.leave(key, mine)
		}, nil
	case <-ctx.Done():
		t.leave(key, mine)
		return nil, ctx.Err()
	}
}

func (t *turns) join(key string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken == nil {
		t.taken = map[string]*turn{}
	}
	mine := t.taken[key]
	if mine == nil {
		mine = &turn{slot: make(chan struct{}, 1)}
		t.taken[key] = mine
	}
	mine.users++
	return mine
}

func (t *turns) leave(key string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.users--; mine.users == 0 {
		delete(t.taken, key)
	}
}
