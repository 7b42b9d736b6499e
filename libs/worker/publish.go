package worker

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/bus"
)

const (
	maxPublishBatch = 512
	publishTimeout  = 10 * time.Second
	// unpublishedDelay is the redelivery delay of a command whose result could not be published.
	unpublishedDelay = 5 * time.Second
)

// finished is an executed command with its result.
type finished struct {
	taken   *taken
	message bus.Message
}

// publish publishes results in natural batches: while one batch is being published, the next one is collected. Only commands whose
// results the bus has stored are acknowledged; the others are executed again, which steps must tolerate anyway.
func (p *pool) publish() {
	batch := make([]finished, 0, maxPublishBatch)
	for {
		select {
		case f := <-p.results:
			batch = p.gather(append(batch[:0], f))
		case <-p.closed:
			if batch = p.gather(batch[:0]); len(batch) == 0 {
				return
			}
		}
		p.publishBatch(batch)
		clear(batch) // do not keep the events of the largest batch alive
	}
}

// gather adds the waiting results to the batch.
func (p *pool) gather(batch []finished) []finished {
	for len(batch) < maxPublishBatch {
		select {
		case f := <-p.results:
			batch = append(batch, f)
		default:
			return batch
		}
	}
	return batch
}

// publishBatch retries until the bus has stored every result. It gives up on results that the bus rejects, and, while the
// worker drains, on an unavailable bus.
func (p *pool) publishBatch(batch []finished) {
	for {
		failed, err := p.send(batch)
		if len(failed) == 0 {
			return
		}
		if p.w.deps.Bus.NATS().IsConnected() || p.draining() {
			for _, f := range failed {
				p.w.metrics.unpublished.Inc()
				p.w.log.Error("result not published, the step will be executed again", append(f.taken.logArgs(), "err", err)...)
				p.giveBack(f.taken, unpublishedDelay)
			}
			return
		}
		batch = failed
	}
}

// send publishes a batch, acknowledges the commands whose results were stored, and returns the others.
func (p *pool) send(batch []finished) (failed []finished, err error) {
	messages := make([]bus.Message, len(batch))
	for i := range batch {
		messages[i] = batch[i].message
	}
	ctx, cancel := context.WithTimeout(p.publishCtx, publishTimeout)
	defer cancel()
	err = p.w.deps.Bus.Publish(ctx, messages...)
	unpublished := bus.Unpublished(err, len(batch))
	for i, f := range batch {
		if unpublished[i] == nil {
			p.acknowledge(f)
		} else {
			failed = append(failed, f)
		}
	}
	return failed, err
}

func (p *pool) draining() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

func (p *pool) acknowledge(f finished) {
	// Acknowledge before forget: a redelivery in between is still recognized as a duplicate.
	p.settle(f.taken, f.taken.delivery.Ack())
	p.forget(f.taken)
}
