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
	"github.com/kyma-project/keb/libs/tracing"
)

// ErrNoAnswer is wrapped by the error of Ask when nobody is there to answer.
var ErrNoAnswer = errors.New("nobody answers")

// AskError is the error of Ask when the other side answered that it cannot say.
type AskError struct {
	Subject string
	// Message is the other side's, for people.
	Message string
}

// Error has the subject and the message.
func (e *AskError) Error() string { return fmt.Sprintf("ask %s: %s", e.Subject, e.Message) }

// maxAnswers bounds the questions on one subject that are answered at the same time.
const maxAnswers = 64

// headerWait tells, in milliseconds, how long the asker waits for the answer.
const headerWait = "Keb-Wait"

// maxWait bounds the wait of AskWithin, and with it the time that an answer may take.
const maxWait = time.Minute

// Ask sends request as JSON and reads the answer into answer. It waits until ctx ends, but no longer than
// Config.Timeout. The error is an *AskError when the other side refused, and wraps ErrNoAnswer when there is none.
func (b *Bus) Ask(ctx context.Context, subject string, request, answer any) error {
	return b.AskWithin(ctx, b.cfg.Timeout, subject, request, answer)
}

// AskWithin is Ask for a question whose answer takes longer than Config.Timeout: it waits for so long, at most a minute.
func (b *Bus) AskWithin(ctx context.Context, wait time.Duration, subject string, request, answer any) error {
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

// Answer answers the questions on a subject, sharing them with everybody who answers in the same queue. An error of
// handle is sent back as event.AskError, so its text must hold no secret, and so is an answer that does not fit into a message; see Page for
// lists. Up to 64 questions are answered at the same
// time; ctx ends when the asker no longer waits, for one who does not say after Config.Timeout, or when stop is called.
// stop waits for the answers under way.
func (b *Bus) Answer(subject, queue string, handle func(ctx context.Context, data []byte) (any, error)) (stop func(), err error) {
	return b.AnswerAll(subject, queue, func(ctx context.Context, _ string, data []byte) (any, error) { return handle(ctx, data) })
}

// AnswerAll is Answer for a filter of subjects; handle is told the subject of each question.
func (b *Bus) AnswerAll(filter, queue string, handle func(ctx context.Context, subject string, data []byte) (any, error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var mu sync.Mutex // orders the last Go before Wait
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
		v = event.AskError{Error: err.Error()}
	}
	body, err := json.Marshal(v)
	if err != nil {
		b.log.Error("answer could not be encoded", "subject", m.Subject, "err", err)
		body = []byte(`{"error":"the answer could not be encoded"}`)
	}
	if limit := b.MaxPayload(); int64(len(body)) > limit {
		b.log.Error("answer is too large", "subject", m.Subject, "bytes", len(body), "limit", limit)
		// A refusal always encodes.
		body, _ = json.Marshal(event.AskError{Error: fmt.Sprintf("the answer has %d bytes, at most %d are possible: ask for less", len(body), limit)})
	}
	if err := m.Respond(body); err != nil {
		b.log.Warn("answer could not be sent", "subject", m.Subject, "err", err)
	}
}

// maxList bounds the list in a question or an answer, in bytes: what is around it must fit into the message as well.
const maxList = event.MaxPayload - 128<<10

// Page returns how many of the first items fit into one question or answer as JSON: all, or as many as possible, and at least one.
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

// waitOf is how long the asker of a question waits.
func (b *Bus) waitOf(m *nats.Msg) time.Duration {
	ms, err := strconv.ParseInt(m.Header.Get(headerWait), 10, 64)
	if err != nil || ms <= 0 {
		return b.cfg.Timeout
	}
	return time.Duration(min(ms, maxWait.Milliseconds())) * time.Millisecond
}

// guarded turns a panic into an error: one bad question must not end the service.
func guarded(ctx context.Context, m *nats.Msg, handle func(context.Context, string, []byte) (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("internal error: %v", p)
		}
	}()
	return handle(ctx, m.Subject, m.Data)
}
