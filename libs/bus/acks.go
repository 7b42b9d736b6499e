package bus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// ackHold is the approximate delay of a consumption's last acknowledgement, at most twice that. It is far below every AckWait.
const ackHold = 100 * time.Millisecond

// acks delays the last acknowledgement of a consumption until another message is acknowledged, or until ackHold has passed. A work queue
// then rarely runs empty under load. Each time it does, the server replaces the file of its messages, which costs more than everything
// else that it does for a message. After a crash, an acknowledged message can therefore be redelivered, as after a crash right before
// an acknowledgement. For requests and results this is harmless: the orchestrator detects duplicates. Commands are acknowledged
// immediately: a command that is executed again later could undo a later step.
type acks struct {
	hold   bool
	log    *slog.Logger
	wake   chan struct{} // capacity one: a message is held
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

// ack acknowledges the held message, and holds this one. The error is about this message only.
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

// run acknowledges held messages after ackHold, until close.
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

// release acknowledges the held message if no other has arrived since count was last.
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

// acknowledge acknowledges a held message. Without a connection the message is redelivered, and detected as a duplicate.
func (a *acks) acknowledge(m jetstream.Msg) {
	if err := m.Ack(); err != nil {
		a.log.Debug("message not acknowledged, it will be redelivered", "subject", m.Subject(), "err", err)
	}
}

// close acknowledges the held message, and stops holding messages.
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
