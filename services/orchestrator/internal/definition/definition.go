// Package definition provides process definitions: the current ones by operation
// type, and pinned ones by hash. An operation keeps the definition of its request
// when the files change.
package definition

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Store keeps definitions by hash.
type Store interface {
	SaveDefinition(ctx context.Context, p *process.Process, now time.Time) error
	Definition(ctx context.Context, hash string) (*process.Process, error)
	DefinitionHashes(ctx context.Context) ([]string, error)
}

// Definitions provides process definitions. It is safe for concurrent use.
type Definitions struct {
	store   Store
	current process.Set

	mu     sync.RWMutex
	pinned map[string]*process.Process
}

// New stores the current definitions, so that operations can be pinned to them.
func New(ctx context.Context, store Store, current process.Set, now time.Time) (*Definitions, error) {
	d := &Definitions{store: store, current: current, pinned: map[string]*process.Process{}}
	for t, p := range current {
		if err := store.SaveDefinition(ctx, p, now); err != nil {
			return nil, fmt.Errorf("pin the definition of %s: %w", t, err)
		}
		d.pinned[p.Hash()] = p
	}
	return d, nil
}

// Current returns the definition for a new operation of a type; nil if there is none.
func (d *Definitions) Current(t event.OperationType) *process.Process { return d.current[t] }

// Set returns the current definitions by operation type.
func (d *Definitions) Set() process.Set { return d.current }

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
	d.mu.RLock()
	p, ok := d.pinned[hash]
	d.mu.RUnlock()
	if ok {
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
