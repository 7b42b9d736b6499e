package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// maxInFlight is the maximum number of unacknowledged messages: a server drops messages for a stream whose queue of 10,000
// is full.
const maxInFlight = 4000

// maxQuiet is the maximum number of messages with a shared acknowledgement.
const maxQuiet = 64

// outgoing is a message to send. A quiet message shares the acknowledgement of the following one.
type outgoing struct {
	nats.Msg
	quiet bool
}

// publisher sends batches and collects their acknowledgements. Unlike jetstream's PublishMsgAsync, it has one subscription for all
// batches, and no future, channel or timer per message, which would take half of the time.
type publisher struct {
	nc     *nats.Conn
	prefix string // of the reply subjects: "<prefix><batch>.<index>"
	slots  *semaphore.Weighted

	mu      sync.Mutex
	last    uint64
	batches map[uint64]*batch
}

// batch is the state of one call of send.
type batch struct {
	mu      sync.Mutex
	errs    []error
	waiting []bool // by index: sent, and not yet acknowledged
	// todo are the indexes in the order of sending. shares[i] is the position in todo of the first message that the acknowledgement of
	// message i covers; message i is the last one. shares is nil if each message has its own acknowledgement.
	todo   []int
	shares map[int][2]int
	left   int
	done   chan struct{}
}

func newPublisher(nc *nats.Conn) (*publisher, error) {
	p := &publisher{
		nc: nc, prefix: nc.NewInbox() + ".", slots: semaphore.NewWeighted(maxInFlight), batches: make(map[uint64]*batch),
	}
	// The subscription ends with the connection.
	if _, err := nc.Subscribe(p.prefix+"*.*", p.answer); err != nil {
		return nil, fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	return p, nil
}

// send publishes the messages whose indexes are in todo and waits for their acknowledgements. errs[i] is the result of message i.
func (p *publisher) send(ctx context.Context, out []outgoing, errs []error, todo []int) {
	id, bt := p.open(errs, todo)
	defer p.close(id)
	reply := p.prefix + strconv.FormatUint(id, 36) + "."
	for first := 0; first < len(todo); {
		last := sharing(out, todo, first)
		// A server drops messages for a stream with a full queue.
		if err := p.slots.Acquire(ctx, int64(last-first+1)); err != nil {
			bt.giveUp(todo[first:], context.Cause(ctx))
			break
		}
		bt.sent(first, last)
		for _, i := range todo[first : last+1] {
			m := &out[i].Msg
			m.Reply = ""
			if i == todo[last] {
				m.Reply = reply + strconv.Itoa(i)
			}
			if err := p.nc.PublishMsg(m); err != nil {
				p.settle(bt, i, err)
			}
		}
		first = last + 1
	}
	select {
	case <-bt.done:
	case <-ctx.Done():
		p.fail(bt, fmt.Errorf("no acknowledgement: %w", context.Cause(ctx)))
	}
}

// sharing returns the position in todo of the last message that shares an acknowledgement with the message at first.
func sharing(out []outgoing, todo []int, first int) int {
	last := first
	for out[todo[last]].quiet && last+1 < len(todo) && last+1 < first+maxQuiet &&
		streamOf(out[todo[last+1]].Subject) == streamOf(out[todo[first]].Subject) {
		last++
	}
	return last
}

func (p *publisher) open(errs []error, todo []int) (uint64, *batch) {
	bt := &batch{errs: errs, waiting: make([]bool, len(errs)), todo: todo, left: len(todo), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.batches[p.last] = bt
	return p.last, bt
}

func (p *publisher) close(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.batches, id)
}

// sent records that the messages from first to last in todo are sent, with one acknowledgement for all of them.
func (b *batch) sent(first, last int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range b.todo[first : last+1] {
		b.waiting[i] = true
	}
	if first < last {
		if b.shares == nil {
			b.shares = map[int][2]int{}
		}
		b.shares[b.todo[last]] = [2]int{first, last}
	}
}

// settle records the acknowledgement of message i and of those that share it. It ignores a second one.
func (p *publisher) settle(b *batch, i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i < 0 || i >= len(b.waiting) || !b.waiting[i] {
		return
	}
	n := b.answered(i, err)
	if share, ok := b.shares[i]; ok {
		for _, j := range b.todo[share[0]:share[1]] {
			n += b.answered(j, err)
		}
	}
	p.slots.Release(int64(n))
	b.finish(n)
}

// answered records a result and returns the number of messages that were waiting: one or none. The caller must hold the lock.
func (b *batch) answered(i int, err error) int {
	if !b.waiting[i] {
		return 0
	}
	b.waiting[i] = false
	b.errs[i] = err
	return 1
}

// finish counts n messages as done. The caller must hold the lock.
func (b *batch) finish(n int) {
	b.left -= n
	if b.left == 0 {
		close(b.done)
	}
}

// giveUp records the cause for messages that were never sent.
func (b *batch) giveUp(todo []int, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range todo {
		b.errs[i] = fmt.Errorf("not sent: %w", cause)
	}
	b.finish(len(todo))
}

// fail records an error for all unacknowledged messages.
func (p *publisher) fail(b *batch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i, w := range b.waiting {
		if w {
			b.waiting[i] = false
			b.errs[i] = err
			n++
		}
	}
	if n > 0 {
		p.slots.Release(int64(n))
		b.finish(n)
	}
}

// failAll ends the wait for all messages in flight: their acknowledgements do not arrive on a new connection.
func (p *publisher) failAll(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.batches {
		p.fail(b, err)
	}
}

// answer handles one acknowledgement.
func (p *publisher) answer(m *nats.Msg) {
	rest, ok := strings.CutPrefix(m.Subject, p.prefix)
	if !ok {
		return
	}
	id, index, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(id, 36, 64)
	if err != nil {
		return
	}
	i, err := strconv.Atoi(index)
	if err != nil {
		return
	}
	p.mu.Lock()
	b := p.batches[n]
	p.mu.Unlock()
	if b != nil {
		p.settle(b, i, ackError(m))
	}
}

var (
	ackStart      = []byte(`{"stream":`)
	ackErrorField = []byte(`"error"`)
)

// ackError returns nil if a stream has stored the message.
func ackError(m *nats.Msg) error {
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return nats.ErrNoResponders
		}
		return jetstream.ErrInvalidJSAck
	}
	// Nearly every acknowledgement is {"stream":"...","seq":1}; only an error needs decoding.
	if bytes.HasPrefix(m.Data, ackStart) && !bytes.Contains(m.Data, ackErrorField) {
		return nil
	}
	var ack struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return errors.Join(jetstream.ErrInvalidJSAck, err)
	}
	switch {
	case ack.Error != nil:
		return ack.Error
	case ack.Stream == "":
		return jetstream.ErrInvalidJSAck
	}
	return nil
}
