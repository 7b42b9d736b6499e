package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/libs/tracing"
)

// ErrNoAnswer is wrapped by the error of Ask if no service answers on the subject.
var ErrNoAnswer = errors.New("no service answers")

// AskError is the error of Ask if the answering service returned an error.
type AskError struct {
	Subject string
	// Message is the error text of the answering service, for people.
	Message string
}

// Error returns the subject and the message.
func (e *AskError) Error() string { return fmt.Sprintf("ask %s: %s", e.Subject, e.Message) }

// maxAnswers is the maximum number of concurrent answers per subject.
const maxAnswers = 64

// headerWait is the header with the client's timeout in milliseconds.
const headerWait = "Keb-Wait"

// maxWait limits the timeout of AskWithTimeout, and with it the time for an answer.
const maxWait = time.Minute

// Ask sends request as JSON and decodes the answer into answer. It waits until ctx ends, at most for Config.Timeout. The error is an
// *AskError if the answering service returned an error, and wraps ErrNoAnswer if no service answers.
func (b *Bus) Ask(ctx context.Context, subject string, request, answer any) error {
	return b.AskWithTimeout(ctx, b.cfg.Timeout, subject, request, answer)
}

// Notify publishes notice as JSON outside of any stream. It reaches all current subscribers of the subject, and may be lost.
func (b *Bus) Notify(subject string, notice any) error {
	body, err := json.Marshal(notice)
	if err == nil {
		err = b.nc.Publish(subject, body)
	}
	if err != nil {
		return fmt.Errorf("notify %s: %w", subject, err)
	}
	return nil
}

// AskWithTimeout is like Ask with a timeout other than Config.Timeout, at most a minute.
func (b *Bus) AskWithTimeout(ctx context.Context, wait time.Duration, subject string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	wait = min(wait, maxWait)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	question := nats.NewMsg(subject)
	question.Data = body
	question.Header.Set(headerWait, strconv.FormatInt(wait.Milliseconds(), 10))
	if parent := traceparent(ctx); parent != "" {
		question.Header.Set(TraceParent, parent)
	}
	m, err := b.nc.RequestMsgWithContext(ctx, question)
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("ask %s: %w", subject, ErrNoAnswer)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	var refusal event.AskError
	if err := json.Unmarshal(m.Data, &refusal); err == nil && refusal.Error != "" {
		return &AskError{Subject: subject, Message: refusal.Error}
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("ask %s: read answer: %w", subject, err)
	}
	return nil
}

// Answer answers the requests on a subject. Services with the same queue share the requests. Answer returns an error of handle to the
// client as event.AskError, so its text must contain no secret. An answer that does not fit into a message becomes such an error;
// see Page for lists. At most 64 requests are handled concurrently. The context of handle ends when the client's timeout has passed
// (Config.Timeout if the request names none), or when stop is called. stop waits for running handlers.
func (b *Bus) Answer(subject, queue string, handle func(ctx context.Context, data []byte) (any, error)) (stop func(), err error) {
	return b.AnswerAll(subject, queue, func(ctx context.Context, _ string, data []byte) (any, error) { return handle(ctx, data) })
}

// AnswerAll is like Answer for a filter of subjects; handle receives the subject of each request.
func (b *Bus) AnswerAll(filter, queue string, handle func(ctx context.Context, subject string, data []byte) (any, error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var mu sync.Mutex // Go must not be called after Wait
	slots := make(chan struct{}, maxAnswers)
	sub, err := b.nc.QueueSubscribe(filter, queue, func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		running.Go(func() {
			defer func() { <-slots }()
			b.answer(ctx, m, handle)
		})
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("answer %s: %w", filter, err)
	}
	return func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			b.log.Warn("unsubscribe failed", "subject", filter, "err", err)
		}
		mu.Lock()
		cancel()
		mu.Unlock()
		running.Wait()
	}, nil
}

func (b *Bus) answer(ctx context.Context, m *nats.Msg, handle func(context.Context, string, []byte) (any, error)) {
	ctx, cancel := context.WithTimeout(ctx, b.waitOf(m))
	defer cancel()
	ctx = tracing.Continue(ctx, m.Header.Get(TraceParent))
	v, err := guarded(ctx, m, handle)
	if err != nil {
		v = event.AskError{Error: mask.Text(err.Error())}
	}
	body, err := json.Marshal(v)
	if err != nil {
		b.log.Error("answer could not be encoded", "subject", m.Subject, "err", err)
		body = []byte(`{"error":"the answer could not be encoded"}`)
	}
	if limit := b.MaxPayload(); int64(len(body)) > limit {
		b.log.Error("answer is too large", "subject", m.Subject, "bytes", len(body), "limit", limit)
		// An AskError can always be encoded.
		body, _ = json.Marshal(event.AskError{Error: fmt.Sprintf("the answer has %d bytes, at most %d are possible: ask for less", len(body), limit)})
	}
	if err := m.Respond(body); err != nil {
		b.log.Warn("answer could not be sent", "subject", m.Subject, "err", err)
	}
}

// maxList limits the size of a list in a message, in bytes. The rest is for the other members.
const maxList = event.MaxPayload - 128<<10

// Page returns how many of the first items fit into one message as JSON, at least one.
func Page[T any](items []T) (int, error) {
	size := 0
	for i := range items {
		raw, err := json.Marshal(items[i])
		if err != nil {
			return 0, fmt.Errorf("encode item %d: %w", i, err)
		}
		if size += len(raw) + 1; size > maxList && i > 0 {
			return i, nil
		}
	}
	return len(items), nil
}

// waitOf returns the timeout of a request's client.
func (b *Bus) waitOf(m *nats.Msg) time.Duration {
	ms, err := strconv.ParseInt(m.Header.Get(headerWait), 10, 64)
	if err != nil || ms <= 0 {
		return b.cfg.Timeout
	}
	return time.Duration(min(ms, maxWait.Milliseconds())) * time.Millisecond
}

// guarded converts a panic to an error: one bad request must not end the service.
func guarded(ctx context.Context, m *nats.Msg, handle func(context.Context, string, []byte) (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("internal error: %v", p)
		}
	}()
	return handle(ctx, m.Subject, m.Data)
}
