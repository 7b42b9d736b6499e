package hyperscaler

import (
	"context"
	"sync"
)

// locks is a set of locks by key. The zero value is ready.
type locks struct {
	mu    sync.Mutex
	taken map[string]*keyLock
}

type keyLock struct {
	slot  chan struct{}
	users int
}

// lock waits for the lock of a key; unlock releases it.
func (t *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	own := t.join(key)
	select {
	case own.slot <- struct{}{}:
		return func() {
			<-own.slot
			t.leave(key, own)
		}, nil
	case <-ctx.Done():
		t.leave(key, own)
		return nil, ctx.Err()
	}
}

func (t *locks) join(key string) *keyLock {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken == nil {
		t.taken = map[string]*keyLock{}
	}
	own := t.taken[key]
	if own == nil {
		own = &keyLock{slot: make(chan struct{}, 1)}
		t.taken[key] = own
	}
	own.users++
	return own
}

func (t *locks) leave(key string, own *keyLock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.taken, key)
	}
}
