package dispatch

import (
	"context"
	"log/slog"
)

// purgeQueue is how many purges wait at most; more are left to the time to live of the stage memory.
const purgeQueue = 4096

// Purger empties the stage memory of ended stages beside the transitions, which must not wait for it.
type Purger struct {
	memory Memory
	log    *slog.Logger
	queue  chan purge
}

type purge struct{ operationID, stage string }

// NewPurger returns a Purger; Run does the work.
func NewPurger(memory Memory, log *slog.Logger) *Purger {
	return &Purger{memory: memory, log: log, queue: make(chan purge, purgeQueue)}
}

// Purge lets the memory of a stage be emptied soon; an empty stage means the whole operation.
func (p *Purger) Purge(operationID, stage string) {
	select {
	case p.queue <- purge{operationID: operationID, stage: stage}:
	default:
		p.log.Warn("stage memory is left to its time to live", "operation_id", operationID, "stage", stage)
	}
}

// Run purges until ctx ends.
func (p *Purger) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-p.queue:
			if err := p.memory.Purge(ctx, next.operationID, next.stage); err != nil && ctx.Err() == nil {
				p.log.Warn("stage memory not purged", "operation_id", next.operationID, "stage", next.stage, "err", err)
			}
		}
	}
}
