package batch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

const (
	// idle is the longest time between two checks for batches. It covers a batch whose orchestrator was killed.
	idle = 5 * time.Second
	// parallel is the number of batches that one controller works on in parallel.
	parallel = 2
)

// Store stores batches.
type Store interface {
	replica.Orders
	Get(ctx context.Context, id string) (*Batch, error)
	// Next returns the next operations without a result, and reserves nothing.
	Next(ctx context.Context, id string, limit int) ([]Member, error)
}

// Actor applies the action of a batch.
type Actor interface {
	// RunBatch applies the action to some operations of the batch and commits each result with its action. An operation whose row is locked
	// gets no result. The error wraps ErrChanged if nothing was committed because the batch has changed.
	RunBatch(ctx context.Context, b *Batch, members []Member, due time.Time) error
}

// Config contains the settings of a Controller.
type Config struct {
	// Every is the pause after an error, and after a round without a result.
	Every time.Duration
	// Timeout limits one round.
	Timeout time.Duration
}

// Controller applies batches. Any number of controllers may run, in any number of processes.
type Controller struct {
	*replica.Rounds

	cfg   Config
	store Store
	actor Actor
	now   func() time.Time
	log   *slog.Logger
}

// NewController returns a Controller. Run starts it.
func NewController(cfg Config, s Store, actor Actor, now func() time.Time, log *slog.Logger) *Controller {
	c := &Controller{cfg: cfg, store: s, actor: actor, now: now, log: log}
	c.Rounds = replica.NewRounds(replica.RoundsConfig{
		What: "batch", Every: cfg.Every, Idle: idle, Parallel: parallel, Timeout: cfg.Timeout, RoundTimeout: 2 * cfg.Timeout,
	}, s, c.round, now, log)
	return c
}

// round applies the action to the next operations of a batch, and returns when the others are due.
func (c *Controller) round(ctx context.Context, id string) (time.Time, error) {
	b, err := c.store.Get(ctx, id)
	if err != nil {
		return time.Time{}, err
	}
	now := c.now()
	if b.State != Running {
		return now.Add(idle), nil
	}
	if b.DueAt.After(now) {
		return b.DueAt, nil
	}
	members, err := c.store.Next(ctx, id, b.chunk())
	if err != nil {
		return time.Time{}, err
	}
	due := now.Add(b.pause(len(members)))
	switch err := c.actor.RunBatch(ctx, b, members, due); {
	case errors.Is(err, ErrChanged):
		return now, nil
	case err != nil:
		return time.Time{}, err
	}
	return due, nil
}
