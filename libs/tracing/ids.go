package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

// chosen holds the ids of the next span of a context, if they are set.
type chosen struct {
	trace trace.TraceID
	span  trace.SpanID
}

type chosenKey struct{}

// ids generates the ids that the context contains, and random ids otherwise.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c, _ := ctx.Value(chosenKey{}).(chosen)
	for !c.trace.IsValid() {
		binary.BigEndian.PutUint64(c.trace[:8], rand.Uint64())
		binary.BigEndian.PutUint64(c.trace[8:], rand.Uint64())
	}
	return c.trace, random(c.span)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	c, _ := ctx.Value(chosenKey{}).(chosen)
	return random(c.span)
}

func random(id trace.SpanID) trace.SpanID {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// SpanID returns the id of the span for a subject. It is always the same for equal arguments, and never zero.
func SpanID(kind, operationID string, numbers ...int64) trace.SpanID {
	text := make([]byte, 0, 128)
	text = append(text, kind...)
	text = append(text, '/')
	text = append(text, operationID...)
	for _, n := range numbers {
		text = append(text, '/')
		text = strconv.AppendInt(text, n, 10)
	}
	sum := sha256.Sum256(text)
	id := trace.SpanID(sum[:8])
	if !id.IsValid() {
		id[7] = 1
	}
	return id
}

// WithTraceID makes the next span that starts with the context, and has no parent, the root of that trace. Only one span may be started
// with the context.
func WithTraceID(ctx context.Context, id trace.TraceID) context.Context {
	return context.WithValue(ctx, chosenKey{}, chosen{trace: id})
}
