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

// Handler continues the trace of a request, and creates a span for each request with its method, path and status. The span has no other
// data, because queries, headers and bodies may contain secrets. Without a provider it only propagates the trace. The span has the name
// of the route if next is an http.ServeMux or calls SetRoute.
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
			if !returned { // a panic, which the server handles
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

// namedKey is the context key that records whether SetRoute was called, which takes precedence over the mux.
type namedKey struct{}

// SetRoute sets the name of a request's span to its route, and adds attributes. It must be called in the goroutine of the request.
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

// pathOf returns the path of a pattern of http.ServeMux.
func pathOf(pattern string) string {
	if method, path, ok := strings.Cut(pattern, " "); ok && KnownMethod(method) == method {
		return path
	}
	return pattern
}

// KnownMethod limits the names of spans, because a client can send any word as a method.
func KnownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost, http.MethodHead, http.MethodOptions:
		return method
	}
	return "_OTHER"
}

// statusWriter records the status of an answer.
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

// Flush implements http.Flusher, which streams need.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap gives http.ResponseController access to the underlying writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
