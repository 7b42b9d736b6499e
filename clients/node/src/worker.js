// A worker: its connection, its registration, and its life from the start of the process to SIGTERM.
import { once } from "node:events";
import { connect, headers, nuid } from "@nats-io/transport-node";
import { Registry } from "prom-client";
import { BusMemory } from "./memory.js";
import { logger, metrics, serve } from "./monitoring.js";
import { Pool } from "./pool.js";
import { settings } from "./settings.js";
import { traced, traceparent } from "./tracing.js";
import { encodeJSON, names } from "./wire.js";

export const isWorkerName = (name) => /^[a-z0-9][a-z0-9-]{0,31}$/.test(name);
export const isStepName = (name) => /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(name);
/** Returns the version of a micro service, which must be a semantic one. */
export const serviceVersion = (version) => /^v?((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*))$/.exec(version)?.[1] ?? "0.0.0";
const ANSWER = 10_000; // for a question to another service

/** Creates a worker. See index.d.ts. */
export function worker(name, steps, /** @type {any} */ options = {}) {
  const problems = [];
  if (!isWorkerName(name)) problems.push(`worker name ${JSON.stringify(name)}: use lower-case letters, digits and "-", at most 32 of them`);
  if (!Object.keys(steps ?? {}).length && !Object.keys(options.questions ?? {}).length) problems.push("it has no steps");
  for (const [step, run] of Object.entries(steps ?? {})) {
    if (!isStepName(step)) problems.push(`step name ${JSON.stringify(step)}: use letters, digits, "_" and "-", at most 64 of them`);
    if (typeof run !== "function") problems.push(`step ${step}: want a function`);
  }
  for (const subject of Object.keys(options.questions ?? {})) {
    if (!subject.startsWith("keb.ask.")) problems.push(`question ${JSON.stringify(subject)}: the subject must begin with keb.ask`);
  }
  if (problems.length) throw new Error(`new worker: ${problems.join("; ")}`);
  return { run: (how) => (how?.signal ? serveUntil(name, steps, options, how.env ?? process.env, how.signal) : main(name, steps, options)) };
}

/** Runs the worker until SIGTERM or SIGINT, and ends the process. */
async function main(name, steps, options) {
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => stop.abort());
  try {
    await serveUntil(name, steps, options, process.env, stop.signal);
  } catch (error) {
    process.stderr.write(`${names.service(name)}: ${error.message}\n`);
    process.exit(1);
  }
  process.exit(0); // timers and connections of steps would keep the process alive
}

async function serveUntil(name, steps, options, env, signal) {
  const config = settings(env);
  const { version = "", registry = new Registry(), questions = {} } = options;
  const log = logger(config.logFormat, config.logLevel);
  const stepNames = Object.keys(steps).sort();
  const measured = metrics(registry, name, stepNames, config.concurrency);
  let bus;
  let pool;
  const why = () => (bus?.isConnected() ? pool.refusal : "not connected");
  const monitoring = config.metrics && (await serve(config.metrics, registry, why));
  try {
    bus = await connectBus(name, config, log, signal);
    const { nc, isConnected } = bus;
    const ask = (kind, request, wait = ANSWER) => question(nc, names[`${kind}Subject`](name), request, wait);
    const memory = config.keyring && new BusMemory(nc, config.keyring);
    pool = new Pool({ nc, isConnected, name, version, steps, settings: config, log, metrics: measured, ask, memory });
    nc.subscribe(names.cancelSubject(name), { callback: (_, m) => hearCancel(pool, log, m) });
    const withdraw = announce(nc, name, version, stepNames, () => pool.commands().map(({ id }) => id));
    for (const [subject, answer] of Object.entries(questions)) {
      nc.subscribe(subject, { queue: names.service(name), callback: (_, m) => void answerQuestion(nc, name, subject, m, answer) });
    }
    log.info("worker started", { worker: name, version, steps: stepNames.join(",") });
    const stopped = signal.aborted ? Promise.resolve() : once(signal, "abort");
    stopped.then(() => pool.stop());
    await (stepNames.length ? pool.consume() : stopped);
    withdraw(); // a draining worker must not be discovered
    const running = await pool.drain();
    await Promise.race([nc.drain(), nc.closed()]);
    log.info("worker stopped", { worker: name });
    if (running.length) throw new Error(`steps did not stop when their signal was aborted: ${running.join(", ")}`);
  } finally {
    await bus?.nc.close();
    monitoring?.close().closeAllConnections();
  }
}

/** Connects to the bus. It waits for the server, and reconnects for ever. */
async function connectBus(name, { servers, user, password, tls }, log, signal) {
  const options = {
    servers, name: names.service(name), tls, maxReconnectAttempts: -1, reconnectTimeWait: 200, ignoreAuthErrorAbort: true,
    ...(user && { user, pass: password, inboxPrefix: names.inboxPrefix(user) }),
  };
  for (let tries = 0; ; tries++) {
    try {
      const nc = await connect(options);
      let isConnected = true;
      (async () => {
        for await (const { type } of nc.status()) {
          if (type === "disconnect" || type === "reconnect") {
            isConnected = type === "reconnect";
            log[isConnected ? "info" : "warn"](isConnected ? "reconnected to the bus" : "connection to the bus lost");
          }
        }
      })();
      return { nc, isConnected: () => isConnected };
    } catch (error) {
      if (error.name === "AuthorizationError") throw new Error(`connect to the bus: ${error.message}`);
      log[tries ? "debug" : "warn"]("bus is not available", { servers: servers.join(","), err: error });
      await new Promise((resolve) => setTimeout(resolve, 500));
      if (signal.aborted) throw new Error("stopped before the bus was available", { cause: error });
    }
  }
}

/** Asks another service. An answer with the member error is an error. */
function question(nc, subject, request, timeout) {
  return traced(`request ${subject}`, "CLIENT", undefined, { "messaging.system": "nats", "messaging.destination.name": subject }, async () => {
    const h = headers();
    h.set("Keb-Wait", String(timeout));
    const parent = traceparent();
    if (parent) h.set("traceparent", parent);
    let answer;
    try {
      answer = (await nc.request(subject, encodeJSON(request), { timeout, headers: h })).json();
    } catch (error) {
      throw new Error(`ask ${subject}: no answer`, { cause: error });
    }
    if (answer.error) throw new Error(`ask ${subject}: ${answer.error}`);
    return answer;
  });
}

async function answerQuestion(nc, name, subject, m, answer) {
  const attributes = { "messaging.system": "nats", "messaging.destination.name": subject, "keb.worker": name };
  const wait = Math.min(Number(m.headers?.get("Keb-Wait")) || ANSWER, 60_000);
  let body;
  try {
    const respond = () => answer(m.json(), { signal: AbortSignal.timeout(wait) });
    body = encodeJSON(await traced(`answer ${subject}`, "SERVER", m.headers?.get("traceparent"), attributes, respond));
    if (body?.length > nc.info.max_payload) throw new Error("the answer is too large");
  } catch (error) {
    body = encodeJSON({ error: error.message });
  }
  m.respond(body ?? "{}");
}

function hearCancel(pool, log, m) {
  try {
    pool.cancel(m.json());
  } catch (error) {
    log.warn("notice of a cancelled command is unreadable", { err: error });
  }
}

/** Registers the worker as a NATS micro service, by which the orchestrator discovers its steps. Returns a function that ends it. */
function announce(nc, name, version, steps, commands) {
  const metadata = { worker: name, version, steps: steps.join(",") };
  const service = { name: names.service(name), id: nuid.next(), version: serviceVersion(version), metadata };
  const endpoint = { name: "ping", subject: names.pingSubject(name), queue_group: "q" };
  const idle = { num_requests: 0, num_errors: 0, last_error: "", processing_time: 0, average_processing_time: 0 };
  const started = new Date().toISOString();
  const answers = {
    PING: () => ({ type: "io.nats.micro.v1.ping_response" }),
    INFO: () => ({ type: "io.nats.micro.v1.info_response", description: `KEB step worker ${name}`, endpoints: [endpoint] }),
    STATS: () => ({ type: "io.nats.micro.v1.stats_response", started, endpoints: [{ ...endpoint, ...idle, data: { commands: commands() } }] }),
  };
  const subscriptions = Object.entries(answers).flatMap(([verb, answer]) => ["", `.${service.name}`, `.${service.name}.${service.id}`].map((of) =>
    nc.subscribe(`$SRV.${verb}${of}`, { callback: (_, m) => m?.respond(JSON.stringify({ ...service, ...answer() })) })));
  subscriptions.push(nc.subscribe(endpoint.subject, { queue: "q", callback: (_, m) => m?.respond(JSON.stringify({ worker: name, version, steps })) }));
  return () => subscriptions.forEach((subscription) => subscription.unsubscribe());
}
