// Package exchange exchanges operations with the orchestrator: it publishes accepted requests, updates the read model of operations
// from facts, queries the orchestrator when facts are missing, and keeps the holds that reject orders.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Reader is the name of the broker's consumer of facts.
const Reader = "broker"

// Consumption returns the consumer's configuration: one handler with batches, which grow while the database is slow.
func Consumption() bus.ConsumeConfig {
	return bus.ConsumeConfig{Consumer: event.FactsConsumer(Reader), MaxBatch: 1000, Handlers: 1}
}

// Applier applies changes to the read model, at most one per operation.
type Applier interface {
	Apply(ctx context.Context, changes []instance.Change, at time.Time) error
}

// Projection updates the read model of operations from the facts that the orchestrator publishes.
type Projection struct {
	store Applier
	log   *slog.Logger
	now   func() time.Time
}

// NewProjection creates a projection.
func NewProjection(store Applier, log *slog.Logger, now func() time.Time) *Projection {
	return &Projection{store: store, log: log, now: now}
}

// retryAfter is the delay of a redelivery after the database did not accept facts.
const retryAfter = time.Second

// Handle applies a batch of facts and acknowledges them. It moves a fact that it cannot decode, or that the database rejects, to
// the dead letters. If a batch is rejected, it applies each fact separately, so that one invalid fact does not block the others.
func (p *Projection) Handle(ctx context.Context, batch []*bus.Delivery) {
	var (
		changes []instance.Change
		at      = make(map[string]int, len(batch))
		read    = make([]*bus.Delivery, 0, len(batch))
		single  = make([]instance.Change, 0, len(batch))
	)
	for _, d := range batch {
		c, ok, err := Read(d.Event)
		if err != nil {
			p.dead(ctx, d, err)
			continue
		}
		if !ok {
			p.ack(d)
			continue
		}
		read, single = append(read, d), append(single, c)
		if i, known := at[c.OperationID]; known {
			changes[i].Merge(c)
			continue
		}
		at[c.OperationID] = len(changes)
		changes = append(changes, c)
	}
	if len(read) == 0 {
		return
	}
	err := p.store.Apply(ctx, changes, p.now())
	switch {
	case errors.Is(err, store.ErrUnavailable):
		// With an unavailable database, separate attempts would each time out.
		p.log.Warn("facts not applied, they will be redelivered", "count", len(read), "err", err)
		for _, d := range read {
			p.giveBack(d)
		}
		return
	case err != nil:
		p.log.Warn("facts not applied, trying one by one", "count", len(read), "err", err)
		p.oneByOne(ctx, read, single)
		return
	}
	for _, d := range read {
		p.ack(d)
	}
}

func (p *Projection) oneByOne(ctx context.Context, read []*bus.Delivery, single []instance.Change) {
	for i, d := range read {
		err := p.store.Apply(ctx, single[i:i+1], p.now())
		switch {
		case err == nil:
			p.ack(d)
		case errors.Is(err, store.ErrRefused):
			p.log.Error("fact rejected, it is moved to the dead letters", "event_id", d.Event.ID(), "operation_id", single[i].OperationID, "err", err)
			p.dead(ctx, d, err)
		default:
			p.log.Warn("fact not applied, it will be redelivered", "event_id", d.Event.ID(), "err", err)
			p.giveBack(d)
		}
	}
}

func (p *Projection) dead(ctx context.Context, d *bus.Delivery, cause error) {
	if err := d.Dead(ctx, cause.Error()); err != nil {
		p.log.Warn("fact not moved to the dead letters", "event_id", d.Event.ID(), "err", err)
	}
}

func (p *Projection) giveBack(d *bus.Delivery) {
	if err := d.Nak(retryAfter); err != nil {
		p.log.Warn("fact not given back", "event_id", d.Event.ID(), "err", err)
	}
}

func (p *Projection) ack(d *bus.Delivery) {
	if err := d.Ack(); err != nil {
		// The redelivered fact changes nothing.
		p.log.Warn("fact not acknowledged", "event_id", d.Event.ID(), "err", err)
	}
}

// Read returns the change of a fact. It returns false for a fact without a change, including facts of unknown types. The error
// means that the fact is invalid for its type.
func Read(e cloudevents.Event) (instance.Change, bool, error) {
	switch event.Type(e.Type()) {
	case event.TypeOperationStarted:
		return change(e, instance.Started)
	case event.TypeStepFinished:
		return change(e, instance.StepFinished)
	case event.TypeOperationSucceeded:
		return change(e, instance.Succeeded)
	case event.TypeOperationFailed:
		return change(e, instance.Failed)
	case event.TypeOperationCancelled:
		return change(e, instance.Cancelled)
	}
	return instance.Change{}, false, nil
}

func change[T any](e cloudevents.Event, of func(T) instance.Change) (instance.Change, bool, error) {
	f, err := bus.Data[T](e)
	if err != nil {
		return instance.Change{}, false, fmt.Errorf("read fact: %w", err)
	}
	c := of(f)
	if c.OperationID == "" {
		return instance.Change{}, false, fmt.Errorf("read fact: operationId is empty")
	}
	if c.Cursor < 0 {
		return instance.Change{}, false, fmt.Errorf("read fact: cursor %d is negative", c.Cursor)
	}
	return c, true, nil
}
