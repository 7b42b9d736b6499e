package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// stuckStore is a database that does not answer the reads that begin background work.
type stuckStore struct{ Store }

func (stuckStore) AnyPending(ctx context.Context) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (stuckStore) AnyInFlight(ctx context.Context, _ time.Time) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (stuckStore) SignalledKeys(ctx context.Context, _ int) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (stuckStore) Bounded(ctx context.Context, _ string, _ int) ([]store.Bounded, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDispatcher_DatabaseDoesNotAnswer_GivesUp(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	b.limits(twoAlpha, o) // they are reviewed first
	o.deps.Store, o.cfg.BatchTimeout = stuckStore{o.deps.Store}, time.Millisecond
	for what, do := range map[string]func(ctx context.Context) error{
		"admission":          o.Admit,
		"delivery of events": o.DeliverSignals,
		"grants":             func(ctx context.Context) error { _, err := o.Grant(ctx); return err },
		"recovery": func(ctx context.Context) error {
			_, _, err := o.AfterLoss(ctx, b.clock.Now(), false, noneHeld)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Errorf("%s: error %v, want that it ends by itself", what, err)
		}
		cancel()
	}
}
