package worker

import (
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// progressEvery is the shortest time between two notices of the progress of an execution.
const progressEvery = time.Second

// Progress reports how far the step is, for example "3 of 7 nodes", and optionally a percentage from 0 to 100. Operators see the last report
// while the step runs. It returns at once, is sent at most once per second, and may be lost. A message of more than event.MaxProgress bytes
// is cut; it must not contain secrets.
func (op Operation) Progress(message string, percent ...int) {
	s := op.session
	if s == nil || s.x.Progress == nil {
		return
	}
	n := event.ProgressNotice{
		CommandRef: event.CommandRef{OperationID: op.ID, Cursor: s.x.Command.Cursor}, Message: cut(s.censored(message), event.MaxProgress),
	}
	if len(percent) > 0 {
		n.Percent = new(min(max(percent[0], 0), 100))
	}
	s.x.Progress(n)
}

// progress sends the newest report of an execution, at most one per progressEvery.
type progress struct {
	send  func(event.ProgressNotice)
	every time.Duration

	mu   sync.Mutex
	last *event.ProgressNotice // not sent yet
	// timer runs after a notice until the next one may be sent; otherwise it is nil.
	timer  *time.Timer
	closed bool
}

func (p *progress) report(n event.ProgressNotice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = &n
	if p.timer == nil {
		p.sendLast()
	}
}

// sendLast sends what was not sent yet. The caller holds mu.
func (p *progress) sendLast() {
	p.timer = nil
	if p.last == nil || p.closed {
		return
	}
	p.send(*p.last)
	p.last = nil
	p.timer = time.AfterFunc(p.every, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sendLast()
	})
}

// close drops what was not sent: the result says more.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
