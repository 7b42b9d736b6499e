// Package backlog knows how many commands wait on the bus for each worker.
package backlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// age is how old an answer may be, and askLimit how long the bus may take.
	age      = 2 * time.Second
	askLimit = 2 * time.Second
)

// Depth is what waits for a worker.
type Depth struct {
	// Pending commands are not delivered yet; Unanswered ones are delivered and not acknowledged.
	Pending, Unanswered int64
}

// Backlog asks the bus, but not more often than needed. It is safe for concurrent use.
type Backlog struct {
	js  jetstream.JetStream
	now func() time.Time

	mu     sync.Mutex
	asked  time.Time
	depths map[string]Depth
	err    error
}

// New returns a Backlog.
func New(js jetstream.JetStream, now func() time.Time) *Backlog { return &Backlog{js: js, now: now} }

// Depths returns what waits, by worker. The map must not be modified.
func (b *Backlog) Depths(ctx context.Context) (map[string]Depth, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.now(); b.asked.IsZero() || now.Sub(b.asked) > age {
		b.depths, b.err = b.ask(ctx)
		b.asked = b.now()
	}
	return b.depths, b.err
}

func (b *Backlog) ask(ctx context.Context) (map[string]Depth, error) {
	// It is for others, too, who wait meanwhile: it does not end with the first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	stream, err := b.js.Stream(ctx, string(event.StreamCommands))
	if err != nil {
		return nil, fmt.Errorf("ask for the commands that wait: %w", err)
	}
	depths := map[string]Depth{}
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		depths[info.Name] = Depth{Pending: int64(info.NumPending), Unanswered: int64(info.NumAckPending)}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("ask for the commands that wait: %w", err)
	}
	return depths, nil
}
