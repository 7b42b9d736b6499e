package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
)

// Headers of a dead letter, in addition to those of the original message.
const (
	// HeaderDeadReason is the reason why the message could not be handled, percent-encoded like the CloudEvents headers.
	HeaderDeadReason = "Keb-Dead-Reason"
	// HeaderDeadSubject is the subject of the original message.
	HeaderDeadSubject = "Keb-Dead-Subject"
	// HeaderDeadConsumer is the consumer that moved the message.
	HeaderDeadConsumer = "Keb-Dead-Consumer"
	// HeaderDeadSize is set if the copy is truncated, because the original has the maximum size: it is the full size of the copy with
	// its headers, in bytes.
	HeaderDeadSize = "Keb-Dead-Size"

	headerDeadPrefix = "Keb-Dead-"
)

// maxReason limits the reason of a dead letter, in bytes.
const maxReason = 1000

// Delivery is a delivered message. The handler must call Ack, Nak or Dead once. Otherwise the message is redelivered after the
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
	back    *deferredNaks
	// delivered is the result of NumDelivered, older that of OlderThanConnection.
	delivered uint64
	older     bool
}

// Ack marks the message as handled. It does not wait for the server, and may be sent up to ackHold later. If it fails, the message is
// redelivered.
func (d *Delivery) Ack() error {
	if err := d.acks.ack(d.msg); err != nil {
		return fmt.Errorf("acknowledge %s: %w", d.Subject, err)
	}
	d.meter.ackTime.Observe(time.Since(d.arrived).Seconds())
	return nil
}

// Nak requests a redelivery after a delay. With 0 it is immediate, or, while Consume is stopping, once the server sends no more
// messages. A delayed message counts against MaxAckPending, so the delay should be seconds, not hours.
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

// Message returns the event and the subject that it was published on.
func (d *Delivery) Message() (e cloudevents.Event, subject string) { return d.Event, d.Subject }

// InProgress restarts the consumer's AckWait.
func (d *Delivery) InProgress() error {
	if err := d.msg.InProgress(); err != nil {
		return fmt.Errorf("report progress of %s: %w", d.Subject, err)
	}
	return nil
}

// NumDelivered returns the number of deliveries of the message, from 1. It is 0 if the server's metadata is not readable.
func (d *Delivery) NumDelivered() uint64 { return d.delivered }

// OlderThanConnection reports whether the server stored the message before this process connected, reconnected, or continued after it was
// stopped for some seconds. Even if NumDelivered is 1, another process may have the message, too: a server loses its latest acknowledgements
// and counts in a power cut, and it redelivers what it sent to a stopped process. If the server's clock is ahead by d, messages
// that it stored up to d before the connection are not recognized.
func (d *Delivery) OlderThanConnection() bool { return d.older }

// deliveryState returns the number of deliveries of a message, and whether it is older than the connection.
func deliveryState(m jetstream.Msg, connected time.Time) (delivered uint64, older bool) {
	meta, err := m.Metadata()
	if err != nil {
		return 0, false
	}
	return meta.NumDelivered, meta.Timestamp.Before(connected)
}

const (
	// A process that consumes looks at the clock every pulse. If it has not looked for stoppedAfter, which is less than the AckWait of all
	// consumers of KEB, it was stopped, or is so slow that it cannot tell.
	pulse        = time.Second
	stoppedAfter = 3 * pulse
)

// connection is the current connection to a server.
type connection struct {
	mu            sync.Mutex
	reconnects    uint64
	looked, begun time.Time
}

// since returns the time at which the current connection was noticed, or at which the process continued after it was stopped. This is now for
// a new connection, and if the last call was long ago. It does not rely on the callback about reconnections, because messages may arrive
// before that.
func (c *connection) since(reconnects uint64, now time.Time) time.Time {
	now = now.Round(0) // the monotonic clock stands still while a machine is suspended
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.IsZero() || reconnects != c.reconnects || now.Sub(c.looked) > stoppedAfter {
		c.reconnects, c.begun = reconnects, now
	}
	c.looked = now
	return c.begun
}

// connectedSince is since for the connection of the bus.
func (b *Bus) connectedSince() time.Time {
	return b.connection.since(b.nc.Stats().Reconnects, time.Now())
}

// Dead moves the message to the dead letters of its stream, and counts it. It truncates a message that would be too large with the
// additional headers, and sets HeaderDeadSize. If the stream does not accept the dead letter now, the message is redelivered. If the
// stream will never accept it, the message is dropped and the error wraps ErrDropped.
func (d *Delivery) Dead(ctx context.Context, reason string) error {
	reason = mask.Text(reason)
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

// ErrDropped is wrapped by the error about an unreadable message whose dead letter was finally rejected.
var ErrDropped = errors.New("the message is dropped")

// isRefusal reports whether the stream will never accept a message, because it is too large for the server or the stream.
func isRefusal(err error) bool {
	const tooLargeForStream, headersTooLarge = 10054, 10097
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || ok && (api.ErrorCode == tooLargeForStream || api.ErrorCode == headersTooLarge)
}

// deadLetter returns a copy of the message with the headers of a dead letter.
func (d *Delivery) deadLetter(reason string) *nats.Msg {
	m := &nats.Msg{Subject: event.DeadSubject(d.spec.Stream), Data: d.msg.Data(), Header: make(nats.Header)}
	for name, v := range d.msg.Headers() {
		// The server would interpret its own headers again.
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
		// A redelivery of the same message results in the same dead letter.
		m.Header.Set(jetstream.MsgIDHeader, "dead/"+d.spec.Name+"/"+strconv.FormatUint(meta.Sequence.Stream, 10)+
			"/"+strconv.FormatInt(meta.Timestamp.UnixNano(), 10))
	}
	return m
}

// maxHeaders is the maximum size of a message's headers, in bytes.
const maxHeaders = 1<<16 - 1

// fit truncates a dead letter to a size: it removes the end of the data, and the message's own headers if they leave no room for those
// of a dead letter.
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
