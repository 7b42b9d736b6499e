package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler continues the trace that a request brings along, and makes a span of each request: its method, path and status, and
// nothing else of it, for queries, headers and bodies may hold secrets. Without a provider it only hands the trace on. The
// name of the span is that of the route, when next is an http.ServeMux or tells it with SetRoute.
func Handler(p trace.TracerProvider, next http.Handler) http.Handler {
	t := TracerOf(p, "libs/tracing")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if r.Header.Get(TraceParent) != "" {
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
		}
		if t == nil {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		method := KnownMethod(r.Method)
		ctx, span := t.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", method), attribute.String("url.path", r.URL.Path),
		))
		status := &statusWriter{ResponseWriter: w}
		named, returned := new(bool), false
		r = r.WithContext(context.WithValue(ctx, namedKey{}, named))
		defer func() {
			defer span.End()
			if !returned { // A panic, which is on its way to the server.
				span.SetStatus(codes.Error, "the request panicked")
				return
			}
			if r.Pattern != "" && !*named {
				SetRoute(ctx, method, pathOf(r.Pattern))
			}
			code := status.code
			if code == 0 {
				code = http.StatusOK
			}
			span.SetAttributes(attribute.Int("http.response.status_code", code))
			if code >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, http.StatusText(code))
			}
		}()
		next.ServeHTTP(status, r)
		returned = true
	})
}

// namedKey finds whether somebody has called SetRoute, who knows better than the mux.
type namedKey struct{}

// SetRoute names the span of a request by its route, and adds what the route knows. It is called in the goroutine of the request.
func SetRoute(ctx context.Context, method, route string, more ...attribute.KeyValue) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if named, ok := ctx.Value(namedKey{}).(*bool); ok {
		*named = true
	}
	span.SetName(KnownMethod(method) + " " + route)
	span.SetAttributes(append(more, attribute.String("http.route", route))...)
}

// pathOf is the path of a pattern of http.ServeMux.
func pathOf(pattern string) string {
	if method, path, ok := strings.Cut(pattern, " "); ok && KnownMethod(method) == method {
		return path
	}
	return pattern
}

// KnownMethod bounds the names of spans: a caller may send any word as a method.
func KnownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost, http.MethodHead, http.MethodOptions:
		return method
	}
	return "_OTHER"
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which streams ask for.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the writer below.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
