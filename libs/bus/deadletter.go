package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// ErrNoDeadLetter means that a dead letter does not exist, or no longer.
var ErrNoDeadLetter = errors.New("there is no such dead letter")

// ErrNotRedrivable is wrapped by the reason why a dead letter cannot be published again.
var ErrNotRedrivable = errors.New("the message cannot be published again")

// DeadLetter is a message that could not be handled.
type DeadLetter struct {
	// Seq is its number in the stream of dead letters.
	Seq uint64
	// Time is when the message was moved to the dead letters.
	Time time.Time
	// Stream, Subject and Consumer are those of the message; Reason is why the consumer could not handle it. Except for Stream, they are what
	// the consumer, which may be a worker of another team, has written.
	Stream                    event.Stream
	Subject, Consumer, Reason string
	// Event has the attributes of the message, without data. It is empty if the message is not a CloudEvent.
	Event cloudevents.Event
	// Size is the size of the data of the message in bytes. Truncated reports whether the dead letter has only a part of the message.
	Size      int
	Truncated bool
	// Header and Data are those of the message. A list has no Data.
	Header nats.Header
	Data   []byte
}

// DeadLetters are a page of dead letters.
type DeadLetters struct {
	// Letters are ordered from the newest to the oldest.
	Letters []DeadLetter
	// Next is the number before which the next page starts; 0 at the end.
	Next uint64
	// Total is the number of all dead letters.
	Total uint64
}

// maxDeadReads limits the reads for one page: after each the range is larger, so that a few reads pass a gap of dropped letters.
const maxDeadReads = 24

// DeadLetters returns at most limit dead letters with numbers less than before, without their data, the newest first. A before of 0 means the
// newest ones. It reads only headers.
func (b *Bus) DeadLetters(ctx context.Context, before uint64, limit int) (page DeadLetters, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	s, err := b.js.Stream(ctx, string(event.StreamDead))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return page, nil
	}
	if err != nil {
		return page, fmt.Errorf("list dead letters: %w", err)
	}
	state := s.CachedInfo().State
	page.Total = state.Msgs
	if before == 0 || before > state.LastSeq {
		before = state.LastSeq + 1
	}
	for span, reads := uint64(limit), 0; state.Msgs > 0 && before > state.FirstSeq && len(page.Letters) < limit && reads < maxDeadReads; span, reads = span*4, reads+1 {
		from := state.FirstSeq
		if before-state.FirstSeq > span {
			from = before - span
		}
		found, err := readHeaders(ctx, s, from, before)
		if err != nil {
			return page, fmt.Errorf("list dead letters: %w", err)
		}
		slices.Reverse(found)
		if room := limit - len(page.Letters); len(found) > room {
			found = found[:room]
			from = found[room-1].Seq
		}
		page.Letters = append(page.Letters, found...)
		before = from
	}
	if state.Msgs > 0 && before > state.FirstSeq {
		page.Next = before
	}
	return page, nil
}

// headerBatch limits the headers of one request.
const headerBatch = 256

// readHeaders reads the dead letters from one number to before another one, without their data.
func readHeaders(ctx context.Context, s jetstream.Stream, from, before uint64) (found []DeadLetter, err error) {
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		// The server removes a consumer that is not used, so an error here has no consequence.
		_ = s.DeleteConsumer(context.WithoutCancel(ctx), c.CachedInfo().Name)
	}()
	for {
		batch, err := c.FetchNoWait(headerBatch)
		if err != nil {
			return nil, err
		}
		read := 0
		for m := range batch.Messages() {
			read++
			meta, err := m.Metadata()
			if err != nil {
				return nil, err
			}
			if meta.Sequence.Stream < before {
				size, _ := strconv.Atoi(m.Headers().Get(nats.MsgSize))
				found = append(found, newDeadLetter(m.Subject(), meta.Sequence.Stream, meta.Timestamp, m.Headers(), nil, size))
			}
			if meta.Sequence.Stream+1 >= before {
				return found, batch.Error()
			}
		}
		if err := batch.Error(); err != nil || read == 0 {
			return found, err
		}
	}
}

// DeadLetter returns a dead letter with its data. The error wraps ErrNoDeadLetter if it does not exist.
func (b *Bus) DeadLetter(ctx context.Context, seq uint64) (*DeadLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	m, err := b.deadMessage(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("dead letter %d: %w", seq, err)
	}
	letter := newDeadLetter(m.Subject, m.Sequence, m.Time, m.Header, m.Data, len(m.Data))
	return &letter, nil
}

func (b *Bus) deadMessage(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	s, err := b.js.Stream(ctx, string(event.StreamDead))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNoDeadLetter
	}
	if err != nil {
		return nil, err
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, ErrNoDeadLetter
	}
	return m, err
}

// DropDeadLetter deletes a dead letter. The error wraps ErrNoDeadLetter if it does not exist.
func (b *Bus) DropDeadLetter(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	s, err := b.js.Stream(ctx, string(event.StreamDead))
	if err == nil {
		err = s.DeleteMsg(ctx, seq)
	}
	const noMessage, notDeleted = 10037, 10057
	api, ok := errors.AsType[*jetstream.APIError](err)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) || ok && (api.ErrorCode == noMessage || api.ErrorCode == notDeleted && api.Code != 503) {
		err = ErrNoDeadLetter
	}
	if err != nil {
		return fmt.Errorf("drop dead letter %d: %w", seq, err)
	}
	return nil
}

// Redrivable returns an error that wraps ErrNotRedrivable if Redrive would reject the message.
func (d *DeadLetter) Redrivable() error {
	switch {
	case d.Truncated:
		return fmt.Errorf("%w: only a part of it was kept, because it has the maximum size", ErrNotRedrivable)
	case !isSubjectOf(d.Stream, d.Subject):
		return fmt.Errorf("%w: %q is not a subject of the stream %s", ErrNotRedrivable, clip(d.Subject), d.Stream)
	}
	return nil
}

// isSubjectOf reports whether messages with a subject belong to a stream of the contract. Consumers write the subject of a dead letter, so it may
// have any value.
func isSubjectOf(stream event.Stream, subject string) bool {
	tokens := strings.Split(subject, ".")
	if slices.Contains(tokens, "") || strings.ContainsAny(subject, "*> \t\r\n") {
		return false
	}
	for _, spec := range event.Streams() {
		if spec.Name != stream || spec.Name == event.StreamDead {
			continue
		}
		for _, filter := range spec.Subjects {
			if matchesSubject(strings.Split(filter, "."), tokens) {
				return true
			}
		}
	}
	return false
}

func matchesSubject(filter, subject []string) bool {
	for i, token := range filter {
		switch {
		case i >= len(subject):
			return false
		case token == ">":
			return true
		case token != "*" && token != subject[i]:
			return false
		}
	}
	return len(filter) == len(subject)
}

// Redrive publishes the message of a dead letter again, on its subject and with a new message id, and drops the dead letter. Redrive is idempotent:
// after an error, call it again. The message may then be published twice, which every reader of the contract survives.
func (b *Bus) Redrive(ctx context.Context, d *DeadLetter) error {
	if err := d.Redrivable(); err != nil {
		return fmt.Errorf("redrive dead letter %d: %w", d.Seq, err)
	}
	m := &nats.Msg{Subject: d.Subject, Data: d.Data, Header: make(nats.Header, len(d.Header)+1)}
	maps.Copy(m.Header, d.Header)
	m.Header.Set(jetstream.MsgIDHeader, "redrive/"+strconv.FormatUint(d.Seq, 10)+"/"+strconv.FormatInt(d.Time.UnixNano(), 10))
	if err := b.publishRaw(ctx, m); err != nil {
		return fmt.Errorf("redrive dead letter %d: %w", d.Seq, err)
	}
	if err := b.DropDeadLetter(ctx, d.Seq); err != nil && !errors.Is(err, ErrNoDeadLetter) {
		return fmt.Errorf("the message is published again, but %w", err)
	}
	return nil
}

// newDeadLetter returns the dead letter in a message.
func newDeadLetter(subject string, seq uint64, at time.Time, h nats.Header, data []byte, size int) DeadLetter {
	d := DeadLetter{
		Seq: seq, Time: at.UTC(), Stream: event.Stream(strings.TrimPrefix(subject, event.DeadSubject(""))), Subject: h.Get(HeaderDeadSubject),
		Consumer: h.Get(HeaderDeadConsumer), Reason: h.Get(HeaderDeadReason), Size: size, Truncated: h.Get(HeaderDeadSize) != "",
		Header: nats.Header{}, Data: data,
	}
	if reason, err := unescape(d.Reason); err == nil {
		d.Reason = reason
	}
	if full, err := strconv.Atoi(h.Get(HeaderDeadSize)); err == nil {
		d.Size = full
	}
	for name, v := range h {
		if !strings.HasPrefix(name, headerDeadPrefix) && !strings.HasPrefix(name, "Nats-") {
			d.Header[name] = v
		}
	}
	if e, err := Decode(d.Header, nil); err == nil {
		d.Event = e
	}
	return d
}
