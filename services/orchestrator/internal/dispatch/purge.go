package dispatch

import (
	"context"
	"log/slog"
)

// purgeQueue is the maximum number of queued purges. Memory that does not fit into the queue expires by its time to live.
const purgeQueue = 4096

// Purger purges the stage memory of ended stages in the background, because transitions must not wait for it.
type Purger struct {
	memory Memory
	log    *slog.Logger
	queue  chan purge
}

type purge struct{ operationID, stage string }

// NewPurger returns a Purger. The caller must call Run.
func NewPurger(memory Memory, log *slog.Logger) *Purger {
	return &Purger{memory: memory, log: log, queue: make(chan purge, purgeQueue)}
}

// Purge queues the memory of a stage for deletion; an empty stage means the whole operation.
func (p *Purger) Purge(operationID, stage string) {
	select {
	case p.queue <- purge{operationID: operationID, stage: stage}:
	default:
		p.log.Warn("stage memory is left to its time to live", "operation_id", operationID, "stage", stage)
	}
}

// Run executes queued purges until ctx ends.
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
