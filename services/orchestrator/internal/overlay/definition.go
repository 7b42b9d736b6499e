package overlay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// DefinitionStore keeps definitions by hash.
type DefinitionStore interface {
	SaveDefinition(ctx context.Context, p *process.Process, now time.Time) error
	Definition(ctx context.Context, hash string) (*process.Process, error)
	DefinitionHashes(ctx context.Context) ([]string, error)
}

// Definitions provides process definitions. It is safe for concurrent use.
type Definitions struct {
	store   DefinitionStore
	current atomic.Pointer[process.Set]

	mu     sync.RWMutex
	pinned map[string]*process.Process
}

// NewDefinitions stores the current definitions, so that operations can be pinned to them.
func NewDefinitions(ctx context.Context, store DefinitionStore, current process.Set, now time.Time) (*Definitions, error) {
	d := &Definitions{store: store, pinned: map[string]*process.Process{}}
	if err := d.Replace(ctx, current, now); err != nil {
		return nil, err
	}
	return d, nil
}

// Replace replaces the current definitions. It stores them first, so that other orchestrators find those that an operation is pinned to. After
// an error the previous ones remain.
func (d *Definitions) Replace(ctx context.Context, current process.Set, now time.Time) error {
	set := make(process.Set, len(current))
	for t, p := range current {
		set[t] = d.known(p.Hash())
		if set[t] != nil {
			continue
		}
		if err := d.store.SaveDefinition(ctx, p, now); err != nil {
			return fmt.Errorf("pin the definition of %s: %w", t, err)
		}
		set[t] = p
		d.mu.Lock()
		d.pinned[p.Hash()] = p
		d.mu.Unlock()
	}
	d.current.Store(&set)
	return nil
}

func (d *Definitions) known(hash string) *process.Process {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.pinned[hash]
}

// Current returns the definition for a new operation of a type; nil if there is none.
func (d *Definitions) Current(t event.OperationType) *process.Process { return d.Set()[t] }

// Set returns the current definitions by operation type. The caller must not modify it.
func (d *Definitions) Set() process.Set { return *d.current.Load() }

// All returns all stored definitions.
func (d *Definitions) All(ctx context.Context) ([]*process.Process, error) {
	hashes, err := d.store.DefinitionHashes(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*process.Process, len(hashes))
	for i, hash := range hashes {
		if all[i], err = d.Pinned(ctx, hash); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Pinned returns the definition with a hash. Definitions are few and never change, so each is read once.
func (d *Definitions) Pinned(ctx context.Context, hash string) (*process.Process, error) {
	if p := d.known(hash); p != nil {
		return p, nil
	}
	p, err := d.store.Definition(ctx, hash)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pinned[hash] = p
	return p, nil
}
