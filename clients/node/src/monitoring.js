// Logs, metrics and health, with the names and labels of the workers in Go.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTLSServer } from "node:https";
import { Counter, Gauge, Histogram } from "prom-client";
import { OUTCOMES, STREAM } from "./wire.js";

const LEVELS = ["debug", "info", "warn", "error"];
const BUCKETS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const REASONS = ["late", "duplicate", "unknown_step", "unreadable", "outdated", "unchecked", "overdue", "quarantined"];

/** Returns a log that writes lines of JSON or text to standard error. */
export function logger(format, level, attributes = {}) {
  const write = (severity, msg, more) => {
    const line = Object.entries({ time: new Date().toISOString(), level: severity.toUpperCase(), msg, ...attributes, ...more })
      .filter(([, v]) => v !== undefined).map(([name, v]) => [name, v instanceof Error ? v.message : v]);
    const text = line.map(([name, v]) => `${name}=${/^[^\s"=]+$/.test(v) ? v : JSON.stringify(v)}`).join(" ");
    process.stderr.write(`${format === "json" ? JSON.stringify(Object.fromEntries(line)) : text}\n`);
  };
  const isOff = (name) => LEVELS.indexOf(name) < LEVELS.indexOf(level);
  const methods = LEVELS.map((name) => [name, isOff(name) ? () => {} : (msg, more) => write(name, msg, more)]);
  return { ...Object.fromEntries(methods), with: (more) => logger(format, level, { ...attributes, ...more }) };
}

/**
 * Creates the metrics of a worker. All series exist from the start, so that a rate includes the first event.
 * now has functions that return the current values of the gauges.
 */
export function createMetrics(registry, worker, steps, now) {
  const make = (Kind, name, help, labelNames, more) => new Kind({ name, help, labelNames, registers: [registry], ...more });
  const gauge = (name, help, labels, value) => make(Gauge, name, help, Object.keys(labels), { collect() { this.set(labels, value()); } });
  const counter = (name, help, labels, series = [{}]) => {
    const metric = make(Counter, name, help, Object.keys({ ...labels, ...series[0] }));
    for (const more of series) metric.inc({ ...labels, ...more }, 0);
    return (more) => metric.inc({ ...labels, ...more });
  };
  const outcomes = steps.flatMap((step) => OUTCOMES.map((outcome) => ({ step, outcome })));
  const seconds = make(Histogram, "keb_worker_step_duration_seconds", "Time of one execution.", ["worker", "step"], { buckets: BUCKETS });
  for (const step of steps) seconds.zero({ worker, step });
  gauge("keb_worker_steps_running", "Steps that run now.", { worker }, now.running);
  gauge("keb_worker_steps_abandoned", "Steps that have not returned after their time limit.", { worker }, now.abandoned);
  gauge("keb_worker_concurrency", "The most steps that run at once.", { worker }, now.concurrency);
  gauge("keb_bus_connected", "1 while the process is connected to NATS.", {}, now.connected);
  const consumer = { stream: STREAM, consumer: worker };
  const reasons = REASONS.map((reason) => ({ reason }));
  return {
    ended: counter("keb_worker_steps_total", "Executions of a step, by how they ended.", { worker }, outcomes),
    took: (step, ms) => seconds.observe({ worker, step }, ms / 1000),
    panicked: counter("keb_worker_panics_total", "Executions of a step that ended in a panic.", { worker }),
    unpublished: counter("keb_worker_results_unpublished_total", "Results that could not be published.", { worker }),
    ignored: counter("keb_worker_commands_ignored_total", "Commands that were not executed.", { worker }, reasons),
    published: counter("keb_bus_published_total", "Messages that a stream has taken.", { stream: "KEB_RESULTS" }),
    failed: counter("keb_bus_publish_failures_total", "Messages that could not be published.", { stream: "KEB_RESULTS" }),
    consumed: counter("keb_bus_consumed_total", "Received messages.", consumer),
    redelivered: counter("keb_bus_redelivered_total", "Received messages that were delivered before.", consumer),
    dead: counter("keb_bus_dead_letters_total", "Messages moved to the dead letters.", { stream: STREAM }),
  };
}

/** Serves /metrics, /healthz and /readyz. bus knows whether it is connected, and why the last result was not stored. */
export async function serve({ host, port }, tlsFiles, registry, bus) {
  const [cert, key, ca] = tlsFiles.map((file) => file && readFileSync(file));
  const health = (why, checks) => [why ? 503 : 200, JSON.stringify({ status: why ? "unavailable" : "ok", checks }), "application/json"];
  const problem = () => (bus.isConnected ? bus.refusal : "not connected");
  const routes = {
    "/healthz": () => health(""),
    "/readyz": () => health(problem(), { nats: problem() || "ok" }),
    "/metrics": async ({ socket }) => {
      if (ca && !socket.authorized) return [401, "a client certificate is needed"];
      return [200, await registry.metrics(), registry.contentType];
    },
  };
  const answer = async (request, response) => {
    const route = request.method === "GET" && routes[request.url.split("?")[0]];
    const [status, body, type = "text/plain"] = route ? await route(request) : [404, "not found"];
    response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
  };
  const tls = { cert, key, ca, requestCert: Boolean(ca), rejectUnauthorized: false };
  const server = cert ? createTLSServer(tls, answer) : createServer(answer);
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, host, () => resolve(undefined)));
  return server;
}
