// A worker: its connection, its registration, and its life from the start of the process to SIGTERM.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, headers, nuid } from "@nats-io/transport-node";
import { SpanKind } from "@opentelemetry/api";
import { Registry } from "prom-client";
import { stageMemory } from "./memory.js";
import { logger, createMetrics, serve } from "./monitoring.js";
import { createPool } from "./pool.js";
import { readSettings } from "./settings.js";
import { traced, traceparent } from "./tracing.js";
import { encodeJSON, isStepName, isWorkerName, names, serviceVersion } from "./wire.js";

const ANSWER = 10_000; // for a question to another service

/** Creates a worker. See index.d.ts. */
export function worker(name, steps, /** @type {any} */ { version = "", questions = {}, registry = new Registry() } = {}) {
  const stepNames = Object.keys(steps).sort();
  const subjects = Object.keys(questions);
  const problems = [
    !isWorkerName(name) && `worker name ${JSON.stringify(name)}: use lower-case letters, digits and "-", at most 32 of them`,
    stepNames.length + subjects.length === 0 && "it has no steps",
    ...stepNames.map((step) => !isStepName(step) && `step name ${JSON.stringify(step)}: use letters, digits, "_" and "-", at most 64 of them`),
    ...stepNames.map((step) => typeof steps[step] !== "function" && `step ${step}: want a function`),
    ...subjects.map((subject) => !subject.startsWith("keb.ask.") && `question ${JSON.stringify(subject)}: the subject must begin with keb.ask`),
  ].filter(Boolean);
  if (problems.length) throw new Error(`new worker: ${problems.join("; ")}`);
  const given = { name, version, steps, stepNames, questions, registry };
  return { run: (how) => (how ? serveUntil(given, how.env ?? process.env, how.signal) : main(given)) };
}

/** Runs the worker until SIGTERM or SIGINT, and ends the process. */
async function main(given) {
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => stop.abort());
  try {
    await serveUntil(given, process.env, stop.signal);
  } catch (error) {
    process.stderr.write(`${names.service(given.name)}: ${error.message}\n`);
    process.exit(1);
  }
  process.exit(0); // timers and connections of steps would keep the process alive
}

async function serveUntil({ name, version, steps, stepNames, questions, registry }, env, signal) {
  const settings = readSettings(env);
  const log = logger(settings.logFormat, settings.logLevel);
  const bus = { isConnected: false, refusal: "" };
  let pool;
  const metrics = createMetrics(registry, name, stepNames, {
    running: () => pool?.running(false).length ?? 0, abandoned: () => pool?.running(true).length ?? 0,
    concurrency: () => settings.concurrency, connected: () => Number(bus.isConnected),
  });
  const monitoring = settings.address && (await serve(settings.address, settings.addressTLS, registry, bus));
  const nc = await connectBus(name, settings, log, bus, signal);
  try {
    const ask = (kind, request, wait = ANSWER) => question(nc, names.askSubject(name, kind), request, wait);
    const memory = settings.keyring && stageMemory(nc, settings.keyring);
    pool = createPool({ name, version, steps, settings, log, metrics, memory, ask, bus, nc });
    nc.subscribe(names.workerSubject(name, "cancel"), { callback: (_, m) => pool.cancel(m) });
    for (const [subject, answer] of Object.entries(questions)) {
      nc.subscribe(subject, { queue: names.service(name), callback: (_, m) => void answerQuestion(nc, name, m, answer) });
    }
    const withdraw = announce(nc, name, version, stepNames, pool.commands);
    log.info("worker started", { worker: name, version, steps: stepNames.join(",") });
    const stopped = signal.aborted ? Promise.resolve() : once(signal, "abort");
    stopped.then(pool.stop);
    await (stepNames.length ? pool.consume() : stopped);
    withdraw(); // a draining worker must not be discovered
    const stuck = await pool.drain();
    await Promise.race([nc.drain(), nc.closed()]);
    log.info("worker stopped", { worker: name });
    if (stuck.length) throw new Error(`steps did not stop when their signal was aborted: ${stuck.join(", ")}`);
  } finally {
    await nc.close();
    monitoring?.close().closeAllConnections();
  }
}

/** Connects to the bus. It waits for the server, and reconnects for ever. */
async function connectBus(worker, { servers, user, password, tls }, log, bus, signal) {
  const login = user && { user, pass: password, inboxPrefix: names.inboxPrefix(user) };
  const forEver = { maxReconnectAttempts: -1, reconnectTimeWait: 200, ignoreAuthErrorAbort: true };
  for (let level = "warn"; ; level = "debug") {
    try {
      const nc = await connect({ servers, name: names.service(worker), tls, ...login, ...forEver });
      bus.isConnected = true;
      watch(nc, log, bus);
      return nc;
    } catch (error) {
      if (error.name === "AuthorizationError") throw new Error(`connect to the bus: ${error.message}`);
      log[level]("bus is not available", { servers: servers.join(","), err: error });
      await sleep(500);
      if (signal.aborted) throw new Error("stopped before the bus was available", { cause: error });
    }
  }
}

async function watch(nc, log, bus) {
  for await (const { type } of nc.status()) {
    if (type !== "disconnect" && type !== "reconnect") continue;
    bus.isConnected = type === "reconnect";
    log.warn(`bus: ${type}`);
  }
}

const busAttributes = (subject) => ({ "messaging.system": "nats", "messaging.destination.name": subject });

/** Asks another service. An answer with the member error is an error. */
function question(nc, subject, request, timeout) {
  return traced(`request ${subject}`, undefined, { kind: SpanKind.CLIENT, attributes: busAttributes(subject) }, async () => {
    const h = headers();
    h.set("Keb-Wait", String(timeout));
    h.set("traceparent", traceparent() ?? "");
    const answer = await nc.request(subject, encodeJSON(request), { timeout, headers: h }).catch((cause) => {
      throw new Error(`ask ${subject}: no answer`, { cause });
    });
    const { error, ...members } = answer.json();
    if (error) throw new Error(`ask ${subject}: ${error}`);
    return members;
  });
}

async function answerQuestion(nc, worker, m, answer) {
  const options = { kind: SpanKind.SERVER, attributes: { ...busAttributes(m.subject), "keb.worker": worker } };
  const signal = AbortSignal.timeout(Math.min(Number(m.headers?.get("Keb-Wait")) || ANSWER, 60_000));
  let body;
  try {
    body = encodeJSON(await traced(`answer ${m.subject}`, m.headers?.get("traceparent"), options, () => answer(m.json(), { signal })));
    if (body?.length > nc.info.max_payload) throw new Error("the answer is too large");
  } catch (error) {
    body = encodeJSON({ error: error.message });
  }
  m.respond(body ?? "{}");
}

/** Registers the worker as a NATS micro service, by which the orchestrator discovers its steps. Returns a function that ends it. */
function announce(nc, worker, version, steps, commands) {
  const service = { name: names.service(worker), id: nuid.next(), version: serviceVersion(version),
    metadata: { worker, version, steps: steps.join(",") } };
  const ping = { name: "ping", subject: names.workerSubject(worker, "ping"), queue_group: "q" };
  const idle = { num_requests: 0, num_errors: 0, last_error: "", processing_time: 0, average_processing_time: 0 };
  const started = new Date().toISOString();
  const answers = {
    PING: () => ({ type: "io.nats.micro.v1.ping_response" }),
    INFO: () => ({ type: "io.nats.micro.v1.info_response", description: `KEB step worker ${worker}`, endpoints: [ping] }),
    STATS: () => ({ type: "io.nats.micro.v1.stats_response", started, endpoints: [{ ...ping, ...idle, data: { commands: commands() } }] }),
  };
  const answer = (subject, body, queue) => nc.subscribe(subject, { queue, callback: (_, m) => m?.respond(JSON.stringify(body())) });
  const scopes = ["", `.${service.name}`, `.${service.name}.${service.id}`];
  const subscriptions = Object.entries(answers).flatMap(([verb, more]) =>
    scopes.map((scope) => answer(`$SRV.${verb}${scope}`, () => ({ ...service, ...more() }))));
  subscriptions.push(answer(ping.subject, () => ({ worker, version, steps }), "q"));
  return () => subscriptions.forEach((subscription) => subscription.unsubscribe());
}
