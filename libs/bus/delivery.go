package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
)

// Headers of a dead letter, besides those of the message it copies.
const (
	// HeaderDeadReason says why the message could not be read; percent-encoded like the CloudEvents headers.
	HeaderDeadReason = "Keb-Dead-Reason"
	// HeaderDeadSubject is the subject that the message was published on.
	HeaderDeadSubject = "Keb-Dead-Subject"
	// HeaderDeadConsumer is the consumer that gave up on it.
	HeaderDeadConsumer = "Keb-Dead-Consumer"
	// HeaderDeadSize is set when the copy is not complete, because the message was as large as the server allows: the bytes that the
	// copy would have had with its headers.
	HeaderDeadSize = "Keb-Dead-Size"

	headerDeadPrefix = "Keb-Dead-"
)

// maxReason bounds the reason of a dead letter, in bytes.
const maxReason = 1000

// Delivery is a message that waits for an answer: Ack, Nak or Dead, once. Without one it is delivered again after the
// consumer's AckWait.
type Delivery struct {
	Event   cloudevents.Event
	Subject string

	bus     *Bus
	msg     jetstream.Msg
	spec    *event.ConsumerSpec
	arrived time.Time
	meter   *consumerMetrics
	acks    *acks
	back    *givenBack
	// delivered is what NumDelivered tells.
	delivered uint64
}

// Ack says that the message is dealt with. It does not wait for the server, which may hear of it up to ackHold later; when that
// fails, the message comes again.
func (d *Delivery) Ack() error {
	if err := d.acks.ack(d.msg); err != nil {
		return fmt.Errorf("acknowledge %s: %w", d.Subject, err)
	}
	d.meter.ackTime.Observe(time.Since(d.arrived).Seconds())
	return nil
}

// Nak asks for the message again after a time; 0 is at once, and while Consume stops as soon as the server sends it nothing more. While
// it waits it counts against MaxAckPending, so this is for seconds, not for hours.
func (d *Delivery) Nak(after time.Duration) error {
	var err error
	if after > 0 {
		err = d.msg.NakWithDelay(after)
	} else {
		err = d.back.add(d.msg)
	}
	if err != nil {
		return fmt.Errorf("give back %s: %w", d.Subject, err)
	}
	return nil
}

// InProgress starts the consumer's AckWait anew.
func (d *Delivery) InProgress() error {
	if err := d.msg.InProgress(); err != nil {
		return fmt.Errorf("report progress of %s: %w", d.Subject, err)
	}
	return nil
}

// NumDelivered counts the deliveries of the message, from 1; 0 when the server's metadata is not readable.
func (d *Delivery) NumDelivered() uint64 { return d.delivered }

func numDelivered(m jetstream.Msg) uint64 {
	meta, err := m.Metadata()
	if err != nil {
		return 0
	}
	return meta.NumDelivered
}

// Dead moves the message to the dead letters of its stream, and counts it. One that would be too large with what a dead letter says
// besides is cut short, and says so in HeaderDeadSize. When the stream does not take it now, the message stays and is delivered again;
// when it never will, the message is dropped and the error wraps ErrDropped.
func (d *Delivery) Dead(ctx context.Context, reason string) error {
	m := d.deadLetter(reason)
	fit(m, d.bus.MaxPayload())
	published := d.bus.publishRaw(ctx, m)
	if published != nil && !isRefusal(published) {
		return fmt.Errorf("move %s to dead letters: %w", d.Subject, published)
	}
	d.bus.metrics.dead.WithLabelValues(string(d.spec.Stream)).Inc()
	why := "moved to dead letters"
	if published != nil {
		why = "dead letter refused"
	}
	if err := d.msg.TermWithReason(why); err != nil {
		return fmt.Errorf("terminate %s: %w", d.Subject, err)
	}
	if published != nil {
		return fmt.Errorf("move %s to dead letters: %w: %w", d.Subject, ErrDropped, published)
	}
	d.bus.deadLog.Do(func() {
		d.bus.log.Warn("message moved to dead letters", "stream", d.spec.Stream, "consumer", d.spec.Name,
			"subject", d.Subject, "reason", reason)
	})
	return nil
}

// ErrDropped is wrapped by the error about a message that could not be read and whose dead letter was refused for good.
var ErrDropped = errors.New("the message is dropped")

// isRefusal reports whether a stream will never take a message: it is too large for the server, or for the stream.
func isRefusal(err error) bool {
	const tooLargeForStream, headersTooLarge = 10054, 10097
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || ok && (api.ErrorCode == tooLargeForStream || api.ErrorCode == headersTooLarge)
}

// deadLetter is a copy of the message with what a dead letter says besides.
func (d *Delivery) deadLetter(reason string) *nats.Msg {
	m := &nats.Msg{Subject: event.DeadSubject(d.spec.Stream), Data: d.msg.Data(), Header: make(nats.Header)}
	for name, v := range d.msg.Headers() {
		// The server's own headers would be obeyed a second time.
		if !strings.HasPrefix(name, "Nats-") {
			m.Header[name] = v
		}
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	m.Header.Set(HeaderDeadReason, escape(reason))
	m.Header.Set(HeaderDeadSubject, d.Subject)
	m.Header.Set(HeaderDeadConsumer, d.spec.Name)
	if meta, err := d.msg.Metadata(); err == nil {
		// A redelivery of the same message is the same dead letter.
		m.Header.Set(jetstream.MsgIDHeader, "dead/"+d.spec.Name+"/"+strconv.FormatUint(meta.Sequence.Stream, 10)+
			"/"+strconv.FormatInt(meta.Timestamp.UnixNano(), 10))
	}
	return m
}

// maxHeaders is what a stream takes of headers, in bytes.
const maxHeaders = 1<<16 - 1

// fit cuts a dead letter to a size: the headers of the message go if they leave no room for those of a dead letter, and the end of the
// data.
func fit(m *nats.Msg, limit int64) {
	size := func() int64 { return int64(headerSize(m.Header) + len(m.Data)) }
	if size() <= limit && headerSize(m.Header) <= maxHeaders {
		return
	}
	m.Header.Set(HeaderDeadSize, strconv.FormatInt(size(), 10))
	if headerSize(m.Header) > maxHeaders {
		maps.DeleteFunc(m.Header, func(name string, _ []string) bool {
			return !strings.HasPrefix(name, headerDeadPrefix) && name != jetstream.MsgIDHeader
		})
	}
	if over := size() - limit; over > 0 {
		m.Data = m.Data[:max(int64(len(m.Data))-over, 0)]
	}
}

func (b *Bus) publishRaw(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	errs := make([]error, 1)
	b.publish(ctx, []outgoing{{Msg: *m}}, errs, []int{0})
	return errs[0]
}
