// A worker: its connection, its registration, and its life from the start of the process to SIGTERM.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, headers, nuid } from "@nats-io/transport-node";
import { Registry } from "prom-client";
import { maskText } from "./mask.js";
import { stageMemory } from "./memory.js";
import { createMetrics, logger, serve, traced } from "./monitoring.js";
import { createPool } from "./pool.js";
import { readSettings } from "./settings.js";
import { encodeJSON, isStepName, isWorkerName, names, serviceVersion } from "./wire.js";

const ANSWER = 10_000; // for a question to another service
const WAIT = 5000; // for the answer to a question without Keb-Wait
const MAX_QUESTIONS = 64; // that are answered at once

/** Creates a worker. See index.d.ts. */
export function worker(name, steps, /** @type {any} */ { version = "", questions = {}, registry = new Registry() } = {}) {
  const stepNames = Object.keys(steps).sort();
  const isStep = (step) => isStepName(step) && typeof steps[step] === "function";
  const wrongStep = stepNames.find((step) => !isStep(step));
  const wrongQuestion = Object.keys(questions).find((subject) => !subject.startsWith("keb.ask."));
  const problem = !isWorkerName(name) ? `worker name ${JSON.stringify(name)}: use lower-case letters, digits and "-", at most 32 of them`
    : stepNames.length + Object.keys(questions).length === 0 ? "it has no steps"
    : wrongStep !== undefined ? `step ${JSON.stringify(wrongStep)}: want a function, and a name of at most 64 letters, digits, "_" and "-"`
    : wrongQuestion !== undefined ? `question ${JSON.stringify(wrongQuestion)}: the subject must begin with keb.ask` : "";
  if (problem) throw new Error(`new worker: ${problem}`);
  const given = { name, version, steps, stepNames, questions, registry };
  return { run: (how) => (how ? serveUntil(given, how.env ?? process.env, how.signal) : main(given)) };
}

/** Runs the worker until SIGTERM or SIGINT, and ends the process. */
async function main(given) {
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (stop.signal.aborted ? process.exit(1) : stop.abort()));
  const log = logger(process.stderr.isTTY ? "text" : "json", "error");
  process.on("unhandledRejection", (/** @type {any} */ error) => // of a step that forgot an await; it would end the process
    log.error("unhandled rejection", { err: maskText(String(error?.stack ?? error)) }));
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
  const bus = { since: Infinity, refusal: "" }; // since when it is connected, and why the last result was not stored
  let pool;
  const metrics = createMetrics(registry, name, stepNames, {
    running: () => pool?.running(false).length ?? 0, abandoned: () => pool?.running(true).length ?? 0,
    concurrency: () => settings.concurrency, connected: () => Number(bus.since < Infinity),
  });
  const monitoring = settings.address ? await serve(settings, registry, bus) : undefined;
  let nc;
  try {
    nc = await connectBus(name, settings, log, bus, signal);
    if (!nc) return; // the worker stops
    const ask = (kind, request, wait = ANSWER) => question(nc, names.askSubject(name, kind), request, wait);
    const memory = settings.keyring && stageMemory(nc, settings.keyring);
    pool = createPool({ name, version, steps, settings, log, metrics, memory, ask, bus, nc, signal });
    nc.subscribe(names.workerSubject(name, "cancel"), { callback: (error, m) => !error && pool.cancel(m) });
    const asked = Object.entries(questions).map(([subject, answer]) => answerQuestions(nc, name, subject, answer, log));
    const withdraw = announce(nc, name, version, stepNames, settings.ramped, pool.commands);
    log.info("worker started", { worker: name, version, steps: stepNames.join(",") });
    if (stepNames.length) await pool.consume();
    else if (!signal.aborted) await once(signal, "abort");
    for (const subscription of asked) subscription.unsubscribe();
    if (!settings.ramped) withdraw(); // a draining worker must not be discovered, but a ramped one reports its commands
    const stuck = await pool.drain();
    await Promise.race([nc.drain(), nc.closed()]).catch(() => {}); // while the bus is away: it delivers the commands again
    log.info("worker stopped", { worker: name });
    if (stuck.length) throw new Error(`steps did not stop when their signal was aborted: ${stuck.join(", ")}`);
  } finally {
    await nc?.close();
    monitoring?.close().closeAllConnections();
  }
}

/** Connects to the bus, and reconnects for ever. It waits for the server, and returns nothing if the signal is aborted meanwhile. */
async function connectBus(worker, { servers, user, password, ...settings }, log, bus, signal) {
  const { caFile, certFile, keyFile, handshakeFirst } = settings;
  const tls = caFile || certFile || keyFile || handshakeFirst ? { caFile, certFile, keyFile, handshakeFirst } : undefined;
  const login = user && { user, pass: password, inboxPrefix: names.inboxPrefix(user) };
  const forEver = { maxReconnectAttempts: -1, reconnectTimeWait: 200, ignoreAuthErrorAbort: true, pingInterval: 2000 };
  for (let level = "warn"; !signal.aborted; level = "debug") {
    try {
      const nc = await connect({ servers, name: names.service(worker), tls, ...login, ...forEver });
      bus.since = Date.now();
      watch(nc, log, bus);
      return nc;
    } catch (error) {
      const isSlow = /timeout/i.test(error.message); // the credentials did not reach the server in time
      if (error.name === "AuthorizationError" && !isSlow) throw new Error(`connect to the bus: ${error.message}`);
      log[level]("bus is not available", { servers: servers.join(","), err: error });
      await sleep(200, undefined, { signal }).catch(() => {});
    }
  }
}

async function watch(nc, log, bus) {
  for await (const { type } of nc.status()) {
    if (type !== "disconnect" && type !== "reconnect") continue;
    bus.since = type === "reconnect" ? Date.now() : Infinity;
    log.warn(`bus: ${type}`);
  }
}

/** Asks another service. An answer with the member error is an error. */
function question(nc, subject, request, timeout) {
  return traced("request", subject, undefined, "CLIENT", {}, async (_, traceparent) => {
    const h = headers();
    h.set("Keb-Wait", String(timeout));
    h.set("traceparent", traceparent ?? "");
    const answer = await nc.request(subject, encodeJSON(request), { timeout, headers: h }).catch((cause) => {
      throw new Error(`ask ${subject}: no answer`, { cause });
    });
    const { error, ...members } = answer.json();
    if (error) throw new Error(`ask ${subject}: ${error}`);
    return members;
  });
}

/** Answers the questions on a subject, and returns the subscription. Tests use it. */
export function answerQuestions(nc, worker, subject, answer, log) {
  const running = new Set();
  const callback = async (error, m) => {
    if (error) return; // of a subscription that was denied there is no message
    while (running.size >= MAX_QUESTIONS) await Promise.race(running);
    const answered = answerQuestion(nc, worker, m, answer).catch((err) => log.warn("question not answered", { subject, err }));
    running.add(answered);
    answered.finally(() => running.delete(answered));
  };
  return nc.subscribe(subject, { queue: names.service(worker), callback });
}

/** Answers a question. Tests use it. */
export async function answerQuestion(nc, worker, m, answer) {
  const parent = m.headers?.get("traceparent");
  const wait = m.headers?.get("Keb-Wait");
  const signal = AbortSignal.timeout(Math.min(/^\d+$/.test(wait) && Number(wait) || WAIT, 60_000));
  let body;
  try {
    body = encodeJSON(await traced("answer", m.subject, parent, "SERVER", { "keb.worker": worker }, () => answer(m.json(), { signal }))) ?? "{}";
    if (Buffer.byteLength(body) > nc.info.max_payload) throw new Error("the answer is too large");
  } catch (error) {
    body = encodeJSON({ error: maskText(String(error?.message || error || "the question failed")) });
  }
  m.respond(body);
}

/** Registers the worker as a NATS micro service, by which the orchestrator discovers its steps. Returns a function that ends it. */
function announce(nc, worker, version, steps, isRamped, commands) {
  const service = { name: names.service(worker), id: nuid.next(), version: serviceVersion(version),
    metadata: { worker, version, steps: steps.join(","), ...(isRamped && { ramped: "true" }) } };
  const ping = { name: "ping", subject: names.workerSubject(worker, "ping"), queue_group: "q" };
  const idle = { num_requests: 0, num_errors: 0, last_error: "", processing_time: 0, average_processing_time: 0 };
  const started = new Date().toISOString();
  const answers = {
    PING: () => ({ type: "io.nats.micro.v1.ping_response" }),
    INFO: () => ({ type: "io.nats.micro.v1.info_response", description: `KEB step worker ${worker}`, endpoints: [ping] }),
    STATS: () => ({ type: "io.nats.micro.v1.stats_response", started, endpoints: [{ ...ping, ...idle, data: { commands: commands() } }] }),
  };
  const answer = (subject, body, queue) => nc.subscribe(subject, { queue, callback: (error, m) => !error && m.respond(JSON.stringify(body())) });
  const scopes = ["", `.${service.name}`, `.${service.name}.${service.id}`];
  const subscriptions = Object.entries(answers).flatMap(([verb, more]) =>
    scopes.map((scope) => answer(`$SRV.${verb}${scope}`, () => ({ ...service, ...more() }))));
  subscriptions.push(answer(ping.subject, () => ({ worker, version, steps }), "q"));
  return () => subscriptions.forEach((subscription) => subscription.unsubscribe());
}
