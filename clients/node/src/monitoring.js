// Logs, metrics and health, with the names and labels of the workers in Go.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTLSServer } from "node:https";
import { Counter, Gauge, Histogram } from "prom-client";
import { RESULT_TYPES } from "./wire.js";

const LEVELS = ["debug", "info", "warn", "error"];
const BUCKETS = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const REASONS = ["late", "duplicate", "unknown_step", "unreadable", "outdated", "unchecked", "overdue", "quarantined"];

/** Returns a log that writes lines of JSON or text to standard error. */
export function logger(format, level, attributes = {}) {
  const value = (v) => (v instanceof Error ? v.message : v instanceof Date ? v.toISOString() : v);
  const line = (severity, msg, more) => {
    const entry = { time: new Date().toISOString(), level: severity.toUpperCase(), msg, ...attributes, ...more };
    const members = Object.entries(entry).filter(([, v]) => v !== undefined).map(([name, v]) => [name, value(v)]);
    const text = members.map(([name, v]) => `${name}=${/^[^\s"=]+$/.test(v) ? v : JSON.stringify(v)}`).join(" ");
    process.stderr.write(`${format === "json" ? JSON.stringify(Object.fromEntries(members)) : text}\n`);
  };
  const methods = LEVELS.map((name, i) => [name, i < LEVELS.indexOf(level) ? () => {} : (msg, more) => line(name, msg, more)]);
  return { ...Object.fromEntries(methods), with: (more) => logger(format, level, { ...attributes, ...more }) };
}

/** Creates the metrics of a worker. All label combinations exist from the start, so that a rate includes the first event. */
export function metrics(registry, worker, steps, concurrency) {
  const make = (Kind, name, help, labels = [], more = {}) =>
    new Kind({ name: `keb_worker_${name}`, help, labelNames: ["worker", ...labels], registers: [registry], ...more });
  const total = make(Counter, "steps_total", "Executions of a step, by how they ended.", ["step", "outcome"]);
  const seconds = make(Histogram, "step_duration_seconds", "Time that one execution of a step took.", ["step"], { buckets: BUCKETS });
  const ignored = make(Counter, "commands_ignored_total", "Commands that were not executed, by reason.", ["reason"]);
  const one = (metric) => { // a metric with the label worker only
    metric.inc({ worker }, 0);
    return { inc: () => metric.inc({ worker }), dec: () => metric.dec({ worker }) };
  };
  for (const step of steps) {
    seconds.zero({ worker, step });
    for (const outcome of Object.keys(RESULT_TYPES)) total.inc({ worker, step, outcome }, 0);
  }
  for (const reason of REASONS) ignored.inc({ worker, reason }, 0);
  make(Gauge, "concurrency", "The most steps that run at once.").set({ worker }, concurrency);
  return {
    running: one(make(Gauge, "steps_running", "Steps that run now.")),
    abandoned: one(make(Gauge, "steps_abandoned", "Steps that have not returned although their time limit has passed, and that no longer hold a slot.")),
    panics: one(make(Counter, "panics_total", "Executions of a step that ended in a panic.")),
    unpublished: one(make(Counter, "results_unpublished_total", "Results that could not be published; their commands come again.")),
    ignored: (reason) => ignored.inc({ worker, reason }),
    executed: (step, outcome, ms) => {
      total.inc({ worker, step, outcome });
      seconds.observe({ worker, step }, ms / 1000);
    },
  };
}

/** Serves /metrics, /healthz and /readyz; check returns why the worker is not ready. */
export async function serve({ host, port, certFile, keyFile }, registry, check) {
  const answer = async (request, response) => {
    const problem = check();
    const health = (status, checks) => [status === "ok" ? 200 : 503, "application/json", JSON.stringify({ status, checks })];
    const routes = {
      "/metrics": async () => [200, registry.contentType, await registry.metrics()],
      "/healthz": () => health("ok"),
      "/readyz": () => health(problem ? "unavailable" : "ok", { nats: problem || "ok" }),
    };
    const route = request.method === "GET" && routes[request.url.split("?")[0]];
    const [status, type, body] = route ? await route() : [404, "text/plain", "not found\n"];
    response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
  };
  const server = certFile ? createTLSServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, answer) : createServer(answer);
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, host, () => resolve(undefined)));
  return server;
}
