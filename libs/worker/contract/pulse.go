package contract

import (
	"context"
	"sync"
	"time"
)

// beat is the interval of the pulse.
const beat = 10 * time.Millisecond

// pulse is a clock that stops while this process does not run, on a machine that is busy, paused or asleep. All messages of the worker pass
// through this process, which must not count its own pauses as silence of the worker.
type pulse struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	last  time.Time
	awake time.Duration
}

func newPulse() *pulse {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pulse{cancel: cancel, last: time.Now()}
	p.wg.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.take(time.Now())
			}
		}
	})
	return p
}

// take adds the time since its last call, without the excess if that is too long.
func (p *pulse) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awake += min(now.Sub(p.last), 4*beat)
	p.last = now
	return p.awake
}

func (p *pulse) close() {
	p.cancel()
	p.wg.Wait()
}

// now returns the time that this process has run.
func (p *pulse) now() time.Duration { return p.take(time.Now()) }

// wait waits until done is closed. It returns false if ctx or the time ends first.
func (p *pulse) wait(ctx context.Context, within time.Duration, done <-chan struct{}) bool {
	end := p.now() + within
	for {
		timer := time.NewTimer(max(beat, end-p.now()))
		select {
		case <-done:
			timer.Stop()
			return true
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		if p.now() >= end {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
	}
}
