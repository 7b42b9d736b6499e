// Spans of executions and questions. Without an OpenTelemetry SDK that the team installs, they do nothing.
const api = await import("@opentelemetry/api").catch(() => undefined); // an optional peer
const PARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Runs f in a span below the remote parent, or below the current span. */
export function traced(name, kind, parent, attributes, f) {
  if (!api) return f();
  const [, traceId, spanId, flags] = PARENT.exec(parent ?? "") ?? [];
  const context = traceId
    ? api.trace.setSpanContext(api.ROOT_CONTEXT, { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true }) : api.context.active();
  const span = api.trace.getTracer("@kyma-project/keb-worker").startSpan(name, { kind: api.SpanKind[kind], attributes }, context);
  return api.context.with(api.trace.setSpan(context, span), async () => {
    try {
      return await f(span);
    } finally {
      span.end();
    }
  });
}

/** Returns the trace of a span, or of the current one, as a W3C header. */
export function traceparent(span = api?.trace.getActiveSpan()) {
  const c = span?.spanContext();
  return c && api.isSpanContextValid(c) ? `00-${c.traceId}-${c.spanId}-${c.traceFlags.toString(16).padStart(2, "0")}` : undefined;
}

/** Adds a result to the span of its execution. */
export function note(span, r) {
  const outcome = r.interrupted ? "interrupted" : r.unwanted ? "abandoned" : r.outcome;
  span?.setAttributes({ "keb.outcome": outcome, ...(r.retryAfter && { "keb.retry_after": r.retryAfter }) });
  if (!span || !r.error) return;
  span.setAttributes({ "error.type": r.error.reason, "keb.component": r.error.component });
  span.setStatus({ code: api.SpanStatusCode.ERROR, message: r.error.message });
}
