package bus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// ackHold is about how long the last acknowledgement of a consumption is kept back, twice that at most. It is far below every AckWait.
const ackHold = 100 * time.Millisecond

// acks keeps back the last acknowledgement of a consumption until another message is acknowledged, or a little while has passed.
// So a work queue hardly ever runs empty under load: each time it does, the server removes the file of its messages and creates
// another one, which costs more than all the rest that it does for a message. Whoever is killed in between gets a message again
// that was dealt with, as after a kill right before an acknowledgement. That is harmless for requests and results, which the orchestrator
// knows again. A command is acknowledged at once: executed again when its operation has gone on, it could undo what came after it.
type acks struct {
	hold   bool
	log    *slog.Logger
	wake   chan struct{} // has room for one: something is held
	closed chan struct{}

	mu    sync.Mutex
	held  jetstream.Msg
	count uint64
	done  bool
}

func newAcks(stream event.Stream, log *slog.Logger) *acks {
	return &acks{
		hold: stream == event.StreamRequests || stream == event.StreamResults, log: log, wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// ack acknowledges the message that was held, and holds this one. The error is about this one only.
func (a *acks) ack(m jetstream.Msg) error {
	a.mu.Lock()
	if !a.hold || a.done {
		a.mu.Unlock()
		return m.Ack()
	}
	before := a.held
	a.held = m
	a.count++
	a.mu.Unlock()
	if before != nil {
		a.acknowledge(before)
		return nil
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return nil
}

// run acknowledges what was held for a while, until close.
func (a *acks) run() {
	timer := time.NewTimer(ackHold)
	defer timer.Stop()
	for {
		select {
		case <-a.closed:
			return
		case <-a.wake:
		}
		for last := uint64(0); ; {
			timer.Reset(ackHold)
			select {
			case <-a.closed:
				return
			case <-timer.C:
			}
			var released bool
			if last, released = a.release(last); released {
				break
			}
		}
	}
}

// release acknowledges what is held if nothing has come since the count was last.
func (a *acks) release(last uint64) (count uint64, released bool) {
	a.mu.Lock()
	m := a.held
	if a.count != last {
		defer a.mu.Unlock()
		return a.count, false
	}
	a.held = nil
	a.mu.Unlock()
	if m != nil {
		a.acknowledge(m)
	}
	return last, true
}

// acknowledge acknowledges a message that was held. Without a connection it comes again, and is known.
func (a *acks) acknowledge(m jetstream.Msg) {
	if err := m.Ack(); err != nil {
		a.log.Debug("message not acknowledged, it comes again", "subject", m.Subject(), "err", err)
	}
}

// close acknowledges what is held; from now on nothing is.
func (a *acks) close() {
	a.mu.Lock()
	m := a.held
	a.held, a.done = nil, true
	a.mu.Unlock()
	if m != nil {
		a.acknowledge(m)
	}
	close(a.closed)
}
