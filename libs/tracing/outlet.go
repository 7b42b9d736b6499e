package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// complainEvery is the minimum interval between log lines about rejected spans.
const complainEvery = time.Minute

// outlet is the exporter for the batch processor. It never returns an error, because the processor would pass it to a global handler.
// It logs errors once a minute.
type outlet struct {
	next sdk.SpanExporter
	log  *slog.Logger
	now  func() time.Time

	// quit cancels the exports in progress when Close stops waiting.
	quit context.Context
	stop context.CancelFunc
	// ended is closed when the processor has ended.
	ended chan struct{}
	once  sync.Once

	mu        sync.Mutex
	failing   bool
	lost      int
	complaint time.Time
}

func newOutlet(next sdk.SpanExporter, log *slog.Logger) *outlet {
	o := &outlet{next: next, log: log, now: time.Now, ended: make(chan struct{})}
	quit, cancel := context.WithCancel(context.Background())
	o.quit = quit
	o.stop = func() {
		cancel()
		<-o.ended
	}
	return o
}

// ExportSpans implements sdk.SpanExporter.
func (o *outlet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.quit, cancel)()
	o.note(len(spans), o.next.ExportSpans(ctx, spans))
	return nil
}

func (o *outlet) note(spans int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		if o.failing {
			o.log.Info("the collector takes spans again", "lost", o.lost)
		}
		o.failing, o.lost = false, 0
		return
	}
	o.lost += spans
	if now := o.now(); !o.failing || now.Sub(o.complaint) >= complainEvery {
		o.log.Warn("the collector does not take spans, they are dropped", "lost", o.lost, "err", cause(err))
		o.complaint = now
	}
	o.failing = true
}

// Shutdown implements sdk.SpanExporter. The processor calls it last.
func (o *outlet) Shutdown(ctx context.Context) error {
	defer o.once.Do(func() { close(o.ended) })
	return o.next.Shutdown(ctx)
}

var status = regexp.MustCompile(`: ([1-5][0-9][0-9] [A-Za-z -]+) \(body:`)

// cause removes the address, which may contain credentials, and the collector's message, which is long and may repeat the request.
func cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return errors.New("no answer in time")
	}
	if m := status.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("the answer is %s", m[1])
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return errors.New("no answer in time")
		}
	}
	return errors.New("the request to the collector failed")
}
