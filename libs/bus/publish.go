package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is an event to publish.
type Message struct {
	Subject string
	// ID is the Nats-Msg-Id: a stream drops a second message with the same id within the duplicate window. "" means none.
	ID    string
	Event cloudevents.Event
	// Quiet allows the stream to send one acknowledgement for this message and those that follow it to the same stream, at most 64. The
	// acknowledgement means that all of them have arrived, but a rejection of a single one is not detected. Quiet is for messages that
	// may be lost.
	Quiet bool
}

// Failure is an unpublished message of a batch.
type Failure struct {
	// Index is the index of the message in the arguments of Publish.
	Index   int
	Subject string
	EventID string
	Err     error
}

// PublishError lists the unpublished messages of a batch; all others were published.
type PublishError struct {
	// Total is the size of the batch.
	Total int
	// Failures are in the order of the batch.
	Failures []Failure
}

// Error returns the number of failures and the first of them.
func (e *PublishError) Error() string {
	f := e.Failures[0]
	return fmt.Sprintf("publish: %d of %d messages failed, first event %q to %s: %v", len(e.Failures), e.Total, f.EventID, f.Subject, f.Err)
}

// Unwrap returns the cause of each failure.
func (e *PublishError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

// TooLargeError means that a message exceeds the server's maximum size. A retry cannot succeed.
type TooLargeError struct {
	// Size is the size of the message with its headers, and Limit the server's maximum, both in bytes.
	Size, Limit int64
}

// Error returns both sizes.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the message has %d bytes, at most %d are allowed", e.Size, e.Limit)
}

// Unwrap returns nats.ErrMaxPayload.
func (e *TooLargeError) Unwrap() error { return nats.ErrMaxPayload }

// Away reports whether no message was published because the connection is lost or no stream answers. Publishing other messages would
// fail, too.
func (e *PublishError) Away() bool {
	if len(e.Failures) < e.Total {
		return false
	}
	for _, f := range e.Failures {
		if !isDisconnected(f.Err) && !errors.Is(f.Err, errUnanswered) && !errors.Is(f.Err, context.DeadlineExceeded) {
			return false
		}
	}
	return true
}

// Unpublished returns the errors of the unpublished messages in a batch of n, by index; empty if err is nil. An error other than a
// PublishError applies to all of them.
func Unpublished(err error, n int) map[int]error {
	failed := map[int]error{}
	if err == nil {
		return failed
	}
	if partly, ok := errors.AsType[*PublishError](err); ok {
		for _, f := range partly.Failures {
			failed[f.Index] = f.Err
		}
		return failed
	}
	for i := range n {
		failed[i] = err
	}
	return failed
}

// errUnanswered is the cause of an attempt that ended without an answer of a stream.
var errUnanswered = errors.New("no stream has answered")

// Publish publishes a batch and returns when the streams have acknowledged every message. A message without a trace gets the trace of
// ctx. If a stream is missing or does not answer, or the connection is lost, Publish ensures the streams once and retries until ctx ends
// or Config.Timeout has passed. A message can therefore be published twice; with an ID the stream drops the second. The error is a
// *PublishError if messages were not published.
func (b *Bus) Publish(ctx context.Context, msgs ...Message) error {
	if len(msgs) == 0 {
		return nil
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()

	out := make([]outgoing, len(msgs))
	errs := make([]error, len(msgs))
	todo := make([]int, 0, len(msgs))
	trace := traceparent(ctx)
	for i := range msgs {
		out[i].quiet = msgs[i].Quiet
		if errs[i] = encodeMessage(&out[i].Msg, &msgs[i], trace); errs[i] == nil {
			errs[i] = b.checkSize(&out[i].Msg)
		}
		if errs[i] == nil {
			todo = append(todo, i)
		}
	}
	b.publish(ctx, out, errs, todo)
	b.metrics.publishTime.Observe(time.Since(start).Seconds())
	return b.published(msgs, errs)
}

// MaxPayload returns the maximum size of a message in bytes, including its headers.
func (b *Bus) MaxPayload() int64 { return b.nc.MaxPayload() }

// headerRoom is an upper bound for the size of the headers of an event.
const headerRoom = 16 << 10

// checkSize returns a TooLargeError for a message that exceeds the maximum size. It counts the headers only near the limit, because
// counting is expensive.
func (b *Bus) checkSize(m *nats.Msg) error {
	limit := b.MaxPayload()
	if limit <= 0 || int64(len(m.Data)+headerRoom) <= limit {
		return nil
	}
	if size := int64(len(m.Data) + headerSize(m.Header)); size > limit {
		return &TooLargeError{Size: size, Limit: limit}
	}
	return nil
}

// headerSize returns the size of headers on the wire, in bytes.
func headerSize(h nats.Header) int {
	if len(h) == 0 {
		return 0
	}
	size := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		for _, v := range values {
			size += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return size
}

func encodeMessage(out *nats.Msg, m *Message, trace string) error {
	if m.Subject == "" {
		return errors.New("subject is empty")
	}
	h, data, err := Encode(&m.Event)
	if err != nil {
		return err
	}
	if m.ID != "" {
		h[jetstream.MsgIDHeader] = []string{escape(m.ID)}
	}
	if _, has := h[headerTrace]; trace != "" && !has {
		h[headerTrace] = []string{trace}
	}
	out.Subject, out.Header, out.Data = m.Subject, h, data
	return nil
}

// publish sends the messages whose indexes are in todo until they are acknowledged or a retry is pointless. The entries that remain
// in errs are final.
func (b *Bus) publish(ctx context.Context, out []outgoing, errs []error, todo []int) {
	ensured := false
	for len(todo) > 0 {
		// A stream that is being deleted accepts a message without an answer.
		attempt, cancel := context.WithTimeoutCause(ctx, b.cfg.Timeout*2/5, errUnanswered)
		b.pub.send(attempt, out, errs, todo)
		cancel()
		missing, again := false, todo[:0]
		for _, i := range todo {
			switch {
			case errs[i] == nil:
			case isStreamMissing(errs[i]) && !ensured:
				missing = true
				again = append(again, i)
			case isDisconnected(errs[i]), errors.Is(errs[i], errUnanswered) && ctx.Err() == nil:
				again = append(again, i)
			}
		}
		todo = again
		if len(todo) == 0 {
			return
		}
		if !b.awaitConnection(ctx) {
			for _, i := range todo {
				if ctx.Err() != nil {
					errs[i] = fmt.Errorf("%w: %w", errs[i], context.Cause(ctx))
				}
			}
			return
		}
		if missing && b.cfg.Guest {
			_ = pause(ctx, guestWait) // the next attempt checks ctx
			continue
		}
		if missing {
			b.log.Warn("a stream is missing and is created", "subject", out[todo[0]].Subject)
			if err := b.EnsureStreams(ctx); err != nil {
				if isDisconnected(err) && ctx.Err() == nil {
					continue
				}
				for _, i := range todo {
					errs[i] = fmt.Errorf("%w: %w", errs[i], err)
				}
				return
			}
			ensured = true
		}
	}
}

func (b *Bus) published(msgs []Message, errs []error) error {
	// Count consecutive messages of one stream together: most batches contain only one stream.
	var perr *PublishError
	run, stream := 0, ""
	for i := range msgs {
		if errs[i] != nil {
			if perr == nil {
				perr = &PublishError{Total: len(msgs)}
			}
			id := ""
			if msgs[i].Event.Context != nil {
				id = msgs[i].Event.ID()
			}
			perr.Failures = append(perr.Failures, Failure{Index: i, Subject: msgs[i].Subject, EventID: id, Err: errs[i]})
			b.metrics.publishFailed.WithLabelValues(streamOf(msgs[i].Subject)).Inc()
			b.refusals.note(streamOf(msgs[i].Subject), errs[i], time.Now())
			continue
		}
		if s := streamOf(msgs[i].Subject); s != stream {
			if !msgs[i].Quiet {
				b.refusals.note(s, nil, time.Time{})
				b.isolation.works()
			}
			if run > 0 {
				b.metrics.published.WithLabelValues(stream).Add(float64(run))
			}
			run, stream = 0, s
		}
		run++
	}
	if run > 0 {
		b.metrics.published.WithLabelValues(stream).Add(float64(run))
	}
	if perr != nil {
		return perr
	}
	return nil
}

// awaitConnection waits for the connection. It returns false if ctx ended or the connection was closed for good.
func (b *Bus) awaitConnection(ctx context.Context) bool {
	for {
		reconnected := b.reconnects.next()
		switch {
		case b.nc.IsClosed() || ctx.Err() != nil:
			return false
		case b.nc.IsConnected():
			return true
		}
		select {
		case <-reconnected:
		case <-b.closed:
		case <-ctx.Done():
		}
	}
}

func isStreamMissing(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrStreamNotFound)
}

func isDisconnected(err error) bool {
	return errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrReconnectBufExceeded)
}
