// Package usual tells how long operations usually take. It reads the durations of ended operations every few minutes, and not for each
// request.
package usual

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

// every is the interval of reads.
const every = 10 * time.Minute

// Store returns the usual durations of all kinds of operations that are known.
type Store interface {
	Usual(ctx context.Context) (map[instance.Kind]time.Duration, error)
}

// Durations holds the usual durations. It is safe for concurrent use.
type Durations struct {
	store Store
	log   *slog.Logger
	known atomic.Pointer[map[instance.Kind]time.Duration]
}

// New returns Durations that know nothing. Run reads them.
func New(store Store, log *slog.Logger) *Durations { return &Durations{store: store, log: log} }

// Of returns how long operations of a kind usually take; zero if that is not known.
func (d *Durations) Of(k instance.Kind) time.Duration {
	if known := d.known.Load(); known != nil {
		return (*known)[k]
	}
	return 0
}

// Known reports whether any duration is known.
func (d *Durations) Known() bool {
	known := d.known.Load()
	return known != nil && len(*known) > 0
}

// Refresh reads the durations.
func (d *Durations) Refresh(ctx context.Context) error {
	known, err := d.store.Usual(ctx)
	if err == nil {
		d.known.Store(&known)
	}
	return err
}

// Run reads the durations until ctx ends.
func (d *Durations) Run(ctx context.Context) error {
	if err := d.Refresh(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("usual durations not read, trying again", "err", err)
	}
	return service.Every(ctx, every, d.log, "usual durations", d.Refresh)
}
