package extclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/tracing"
)

// callSpan is the span of one call to an external system. The zero value is no span.
type callSpan struct{ span trace.Span }

// startCall starts the span of a call as a child of the span in ctx. It starts none if that span is not recorded. The span provides the
// tracer provider. route is the path with {names} in place of ids, or another name for calls of the same kind; repeated counts the
// earlier attempts. Of the URL, the span contains only scheme, host and path, because a query or a user may be a secret.
func startCall(ctx context.Context, system, method, route string, target *url.URL, repeated int) (context.Context, callSpan) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, callSpan{}
	}
	bare := url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path, RawPath: target.RawPath}
	name := tracing.KnownMethod(method)
	attributes := []attribute.KeyValue{
		attribute.String("http.request.method", name),
		attribute.String("url.full", bare.String()),
		attribute.String("server.address", target.Hostname()),
	}
	if system != "" {
		attributes = append(attributes, attribute.String("keb.system", system))
	}
	switch {
	case route != "":
		name += " " + route
		attributes = append(attributes, attribute.String("url.template", route))
	case system != "":
		name += " " + system
	}
	if repeated > 0 {
		attributes = append(attributes, attribute.Int("http.request.resend_count", repeated))
	}
	ctx, span := tracing.TracerOf(parent.TracerProvider(), "libs/extclient").Start(ctx, name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return ctx, callSpan{span: span}
}

// answered ends the span with the status or the kind of the error. The error's text may contain the URL.
func (c callSpan) answered(status int, err error) {
	if c.span == nil {
		return
	}
	defer c.span.End()
	if status > 0 {
		c.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	switch {
	case err != nil:
		kind := errorKind(err)
		c.span.SetAttributes(attribute.String("error.type", kind))
		c.span.SetStatus(codes.Error, kind)
	case status >= http.StatusBadRequest:
		c.span.SetStatus(codes.Error, http.StatusText(status))
	}
}

func errorKind(err error) string {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	if errors.Is(err, context.Canceled) {
		return "cancelled"
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return "no connection"
	}
	return "no answer"
}

// paused records in the caller's span that the call was not made.
func paused(ctx context.Context, system string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("call paused: the system keeps failing", trace.WithAttributes(attribute.String("keb.system", system)))
	}
}

// Trace creates a span for each request through next below a recorded span, and propagates the trace, for clients that this package did
// not create. route returns the name of the span for the request's path; nil means only the method. A nil next is
// http.DefaultTransport.
func Trace(system string, route func(*http.Request) string, next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return &traced{system: system, route: route, next: next}
}

type traced struct {
	system string
	route  func(*http.Request) string
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper. The span ends with the header of the answer.
func (t *traced) RoundTrip(req *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(req.Context()).IsValid() {
		return t.next.RoundTrip(req)
	}
	route := ""
	if t.route != nil {
		route = t.route(req)
	}
	ctx, c := startCall(req.Context(), t.system, req.Method, route, req.URL, 0)
	req = req.Clone(ctx) // a transport must not change the request
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	resp, err := t.next.RoundTrip(req)
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	c.answered(status, err)
	return resp, err
}
