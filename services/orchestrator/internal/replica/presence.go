package replica

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Lease is the rank of this orchestrator.
type Lease interface {
	// Rank returns the rank; 0 means none.
	Rank() int
	// Renew acquires the rank again after it was lost.
	Renew(ctx context.Context) error
}

// PresenceConfig contains the settings of a Presence.
type PresenceConfig struct {
	// Pause is the time after which something that failed is tried again, and Timeout limits each try.
	Pause, Timeout time.Duration
}

// Presence notices that an orchestrator has ended, because its rank is free, and makes the bus deliver again what it has received. Otherwise
// the bus would do so only after AckWait. An orchestrator that freezes keeps its rank, and so does a lost machine until Postgres notices: then it
// is AckWait. Presence also renews the own rank.
type Presence struct {
	cfg       PresenceConfig
	redeliver func(ctx context.Context) (messages int, err error)
	log       *slog.Logger
	wake      chan struct{}

	mu sync.Mutex
	// ranks are those of all orchestrators. owed means that messages must be redelivered.
	ranks []int
	owed  bool
}

// NewPresence returns a Presence. The caller must call Run.
func NewPresence(cfg PresenceConfig, redeliver func(ctx context.Context) (messages int, err error), log *slog.Logger) *Presence {
	// An orchestrator that starts may replace one that was killed, and whose end no other has seen.
	return &Presence{cfg: cfg, redeliver: redeliver, log: log, wake: make(chan struct{}, 1), owed: true}
}

// Seen receives the ranks of all orchestrators that live, with the own one, whenever they are read; nil means that they were not. It does not block.
func (p *Presence) Seen(ranks []int) {
	if ranks == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed = p.owed || slices.ContainsFunc(p.ranks, func(rank int) bool { return !slices.Contains(ranks, rank) })
	p.ranks = ranks
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (p *Presence) Run(ctx context.Context, lease Lease) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-pause.C:
		}
		if !p.act(ctx, lease) {
			pause.Reset(p.cfg.Pause)
		}
	}
}

// act reports whether there is nothing left to do.
func (p *Presence) act(ctx context.Context, lease Lease) bool {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	p.mu.Lock()
	owed, lost := p.owed, p.ranks != nil && lease.Rank() > 0 && !slices.Contains(p.ranks, lease.Rank())
	p.owed = false
	if lost {
		p.ranks = nil // until they are read again
	}
	p.mu.Unlock()
	if lost {
		if err := lease.Renew(ctx); err != nil {
			p.log.Debug("rank not renewed", "rank", lease.Rank(), "err", err) // the ranks that are read next lack it again
		}
	}
	if !owed {
		return true
	}
	n, err := p.redeliver(ctx)
	if err != nil {
		p.log.Debug("messages of an ended orchestrator not redelivered", "err", err)
		p.mu.Lock()
		p.owed = true
		p.mu.Unlock()
		return false
	}
	if n > 0 {
		p.log.Info("messages of an ended orchestrator are redelivered", "messages", n)
	}
	return true
}
