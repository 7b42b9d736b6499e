// Logs, metrics, spans and health, with the names and labels of the workers in Go.
import { createServer } from "node:http";
import { createServer as createTLSServer } from "node:https";
import { context, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { Counter, Gauge, Histogram } from "prom-client";
import { maskText } from "./mask.js";
import { readIfSet } from "./settings.js";
import { OUTCOMES, STREAM } from "./wire.js";

const LEVELS = ["debug", "info", "warn", "error"];
const BUCKETS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const REASONS = ["late", "duplicate", "unknown_step", "unreadable", "outdated", "unchecked", "overdue", "quarantined"];

/** Returns a log that writes lines of JSON or text to standard error. */
export function logger(format, level, attributes = {}) {
  const textOf = (value) => JSON.stringify(value, (_, v) => (v instanceof Error ? v.message : v));
  const write = (severity) => (msg, more) => {
    if (LEVELS.indexOf(severity) < LEVELS.indexOf(level)) return;
    const [time, name] = [new Date().toISOString(), severity.toUpperCase()];
    const text = `${time} ${name} ${msg} ${textOf({ ...attributes, ...more })}`;
    process.stderr.write(`${format === "json" ? textOf({ time, level: name, msg, ...attributes, ...more }) : text}\n`);
  };
  /** @type {any} */ const methods = Object.fromEntries(LEVELS.map((severity) => [severity, write(severity)]));
  return { ...methods, with: (more) => logger(format, level, { ...attributes, ...more }) };
}

/**
 * Creates the metrics of a worker. All series exist from the start, so that a rate includes the first event.
 * now has functions that return the current values of the gauges.
 */
export function createMetrics(registry, worker, steps, now) {
  const registers = [registry];
  const gauge = (name, help, labels, value) =>
    new Gauge({ name, help, registers, labelNames: Object.keys(labels), collect() { this.set(labels, value()); } });
  const counter = (name, help, labels, series = [{}]) => {
    const metric = new Counter({ name, help, registers, labelNames: Object.keys({ ...labels, ...series[0] }) });
    for (const more of series) metric.inc({ ...labels, ...more }, 0);
    return (more) => metric.inc({ ...labels, ...more });
  };
  const seconds = new Histogram({ name: "keb_worker_step_duration_seconds", help: "Time of one execution.", registers,
    labelNames: ["worker", "step"], buckets: BUCKETS });
  for (const step of steps) seconds.zero({ worker, step });
  gauge("keb_worker_steps_running", "Steps that run now.", { worker }, now.running);
  gauge("keb_worker_steps_abandoned", "Steps that have not returned after their time limit.", { worker }, now.abandoned);
  gauge("keb_worker_concurrency", "The most steps that run at once.", { worker }, now.concurrency);
  gauge("keb_bus_connected", "1 while the process is connected to NATS.", {}, now.connected);
  const consumer = { stream: STREAM, consumer: worker };
  const results = { stream: "KEB_RESULTS" };
  const outcomes = steps.flatMap((step) => OUTCOMES.map((outcome) => ({ step, outcome })));
  const reasons = REASONS.map((reason) => ({ reason }));
  return {
    ended: counter("keb_worker_steps_total", "Executions of a step, by how they ended.", { worker }, outcomes),
    took: (step, ms) => seconds.observe({ worker, step }, ms / 1000),
    panicked: counter("keb_worker_panics_total", "Executions of a step that ended in a panic.", { worker }),
    unpublished: counter("keb_worker_results_unpublished_total", "Results that could not be published.", { worker }),
    ignored: counter("keb_worker_commands_ignored_total", "Commands that were not executed.", { worker }, reasons),
    published: counter("keb_bus_published_total", "Messages that a stream has taken.", results),
    failed: counter("keb_bus_publish_failures_total", "Messages that could not be published.", results),
    consumed: counter("keb_bus_consumed_total", "Received messages.", consumer),
    redelivered: counter("keb_bus_redelivered_total", "Received messages that were delivered before.", consumer),
    dead: counter("keb_bus_dead_letters_total", "Messages moved to the dead letters.", { stream: STREAM }),
  };
}

/**
 * Runs f in a span about a message, below the remote parent, or below the current span. f gets the span and its W3C header.
 * Without an OpenTelemetry SDK that the team installs there is no span, and the header is that of the parent.
 */
export function traced(verb, subject, parent, /** @type {keyof typeof SpanKind} */ kind, more, f) {
  const attributes = { "messaging.system": "nats", "messaging.destination.name": subject, ...more };
  const options = { kind: SpanKind[kind], attributes };
  const remote = parent ? propagation.extract(ROOT_CONTEXT, { traceparent: parent }) : context.active();
  return trace.getTracer("@kyma-project/keb-worker").startActiveSpan(`${verb} ${subject}`, options, remote, async (span) => {
    const carrier = { traceparent: parent };
    propagation.inject(trace.setSpan(remote, span), carrier);
    try {
      return await f(span, carrier.traceparent);
    } finally {
      span.end();
    }
  });
}

/** Adds a result, or that there is none, to the span of its execution. */
export function note(span, /** @type {any} */ { outcome, interrupted, retryAfter, error } = { outcome: "abandoned" }) {
  span.setAttributes({ "keb.outcome": interrupted ? "interrupted" : outcome, ...(retryAfter && { "keb.retry_after": retryAfter }) });
  if (!error) return;
  span.setAttributes({ "error.type": error.reason, "keb.component": error.component });
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}

/** Serves /metrics, /healthz and /readyz. bus knows whether it is connected, and why the last result was not stored. */
export async function serve({ address, ...tls }, registry, bus) {
  const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(address);
  const files = () => ({ ca: readIfSet(tls.clientCA), cert: readIfSet(tls.serverCert), key: readIfSet(tls.serverKey) });
  const health = (problem, checks) =>
    [problem ? 503 : 200, JSON.stringify({ status: problem ? "unavailable" : "ok", checks }), "application/json"];
  const routes = {
    "/healthz": () => health(""),
    "/readyz": (problem) => health(problem, { nats: problem || "ok" }),
    "/metrics": async (_, { socket }) =>
      (tls.clientCA && !socket.authorized ? [401, "a client certificate is needed"] : [200, await registry.metrics(), registry.contentType]),
  };
  const answer = async (request, response) => {
    const route = request.method === "GET" && routes[request.url.split("?")[0]];
    const problem = bus.since < Infinity ? bus.refusal : "not connected";
    const [status, body, type = "text/plain"] = route ? await route(problem, request) : [404, "not found"];
    response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
  };
  // A metric of the team can reject.
  const handle = (request, response) => answer(request, response).catch((error) => response.writeHead(500).end(maskText(String(error?.message))));
  const options = { ...files(), requestCert: Boolean(tls.clientCA), rejectUnauthorized: false };
  const server = tls.serverCert ? createTLSServer(options, handle) : createServer(handle);
  const renew = () => {
    try {
      /** @type {any} */ (server).setSecureContext(files());
    } catch {} // while the files are replaced
  };
  if (tls.serverCert) server.prependListener("connection", renew);
  await new Promise((resolve, reject) => server.once("error", reject).listen(Number(port), host || undefined, () => resolve(undefined)))
    .catch((error) => {
      throw new Error(`KEB_METRICS_ADDR: ${error.message}`);
    });
  return server;
}
