// Spans of executions and questions. Without an OpenTelemetry SDK that the team installs, they do nothing.
import { context, isSpanContextValid, ROOT_CONTEXT, SpanStatusCode, trace } from "@opentelemetry/api";

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Returns a context with the remote parent, or the current context without one. */
function below(traceparent = "") {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent) ?? [];
  if (!traceId) return context.active();
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true });
}

/** Runs f in a span with options below the remote parent, or below the current span. */
export function traced(name, parent, options, f) {
  const tracer = trace.getTracer("@kyma-project/keb-worker");
  return tracer.startActiveSpan(name, options, below(parent), async (span) => {
    try {
      return await f(span);
    } finally {
      span.end();
    }
  });
}

/** Returns the trace of a span, or of the current one, as a W3C header. */
export function traceparent(span = trace.getActiveSpan()) {
  const c = span?.spanContext();
  if (!c || !isSpanContextValid(c)) return undefined;
  return `00-${c.traceId}-${c.spanId}-${c.traceFlags.toString(16).padStart(2, "0")}`;
}

/** Adds a result, or that there is none, to the span of its execution. */
export function note(span, /** @type {any} */ result = { outcome: "abandoned" }) {
  const { outcome, interrupted, retryAfter, error } = result;
  span.setAttributes({ "keb.outcome": interrupted ? "interrupted" : outcome, ...(retryAfter && { "keb.retry_after": retryAfter }) });
  if (!error) return;
  span.setAttributes({ "error.type": error.reason, "keb.component": error.component });
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}
