// A step worker of KEB that uses only the contract of the bus (docs/wire-contract.md), and no code of KEB.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, headers } from "nats";
import { count, duration } from "./settings.mjs";

const WORKER = "node-greeter"; // as in overlay/node-greeting.yaml
const VERSION = "1.0.0";
const ACK_WAIT = 10_000; // of the consumer, in milliseconds
const GRACE = 3000; // for a step to end after its deadline, in milliseconds
const DEAD_HEADERS = 8192; // space for the headers of a dead letter, in bytes

const env = process.env;
let CONCURRENCY, DRAIN;
try {
  CONCURRENCY = count("KEB_WORKER_CONCURRENCY", env.KEB_WORKER_CONCURRENCY, 8);
  DRAIN = duration("KEB_WORKER_DRAIN_TIMEOUT", env.KEB_WORKER_DRAIN_TIMEOUT, 20_000);
} catch (error) {
  console.error(`${WORKER}: ${error.message}`);
  process.exit(1);
}

// A step receives its command and a signal that aborts at its deadline and when the command is cancelled. It returns an outcome (succeeded, retry, failed or skipped) with its
// data. A step may run again at any time, so it first checks the saved details.
const steps = {
  async Node_Greeting({ operation, details }, signal) {
    const saved = details?.[WORKER]?.greeting;
    if (saved) return { outcome: "succeeded", message: "greeted before", details: { greeting: saved } };
    const { delaySeconds = 0 } = operation.parameters ?? {};
    await sleep(delaySeconds * 1000, undefined, { signal });
    if (delaySeconds < 0) return failed("delaySeconds must not be negative");
    return { outcome: "succeeded", details: { greeting: `Hello, ${operation.runtime.name}!` } };
  },
};

const failed = (message, reason = "err_internal") => ({ outcome: "failed", error: { component: WORKER, reason, message } });

const nc = await connect({
  servers: (env.KEB_NATS_URL || "nats://127.0.0.1:4222").split(","),
  name: `keb-worker-${WORKER}`,
  ...(env.KEB_NATS_USER && {
    user: env.KEB_NATS_USER,
    pass: env.KEB_NATS_PASSWORD ?? readFileSync(env.KEB_NATS_PASSWORD_FILE, "utf8").trim(),
    inboxPrefix: `_INBOX_${env.KEB_NATS_USER}`,
  }),
  maxReconnectAttempts: -1,
  reconnectTimeWait: 200,
  waitOnFirstConnect: true,
});
const js = nc.jetstream({ timeout: 5000 });

// By operation and cursor: the dispatch, its deadline and abort controller, a promise of its end, and whether it holds no slot any more.
const running = new Map();
const inSlots = () => [...running.values()].filter(({ abandoned }) => !abandoned);
let stopping = false;

// The orchestrator identifies a worker by this service. The statistics list the running commands (docs/decisions/0028-lost-streams.md).
const service = await nc.services.add({
  name: `keb-worker-${WORKER}`,
  version: VERSION,
  metadata: { worker: WORKER, version: VERSION, steps: Object.keys(steps).join(",") },
  statsHandler: async () => ({ commands: [...running].filter(([, { abandoned }]) => !abandoned).map(([id]) => id) }),
});
service.addEndpoint("ping", {
  subject: `keb.worker.${WORKER}.ping`,
  handler: (_, m) => m?.respond(JSON.stringify({ worker: WORKER, version: VERSION, steps: Object.keys(steps) })),
});

// All replicas hear of a cancelled command. Its step ends, and its result is published as usual.
nc.subscribe(`keb.worker.${WORKER}.cancel`, {
  callback: (_, m) => {
    try {
      const { operationId, cursor, reason } = m.json();
      running.get(`${operationId}/${cursor}`)?.end.abort(new Error(`the command was cancelled: ${reason}`));
    } catch (error) {
      console.error(`notice not understood: ${error.message}`);
    }
  },
});

function accept(m) {
  let command;
  try {
    if (m.headers?.get("ce-type") !== "io.kyma-project.keb.step.execute.v1") throw new Error("it is not of the type step.execute");
    command = m.json();
    if (!command?.operation?.id || !command.cursor || !command.dispatch) throw new Error("operation.id, cursor or dispatch is missing");
  } catch (error) {
    return dead(m, error.message);
  }
  const { operation, cursor, dispatch, step } = command;
  if (stopping) return m.nak();
  if (!steps[step]) return m.nak(1000); // another version of the worker may have it
  const deadline = Date.parse(command.executeBefore);
  const left = deadline - Date.now();
  if (!(left > 0)) return m.ack(); // the orchestrator sends it again if it still needs the result
  const id = `${operation.id}/${cursor}`;
  const other = running.get(id);
  if (other && other.deadline <= Date.now()) return m.nak(1000); // it should have ended: another replica may execute the command
  if (other) return other.dispatch === dispatch ? undefined : m.ack(); // the running execution answers for both
  const run = { dispatch, deadline, end: new AbortController(), abandoned: false };
  running.set(id, run);
  run.done = new Promise((resolve) => {
    // A step that ignores its signal cannot be stopped, but it must not keep its slot.
    const timer = setTimeout(() => {
      run.abandoned = true;
      console.error(`${id}: ${step} has not ended ${GRACE} ms after its deadline, and is abandoned`);
      resolve();
    }, left + GRACE);
    execute(m, command, run, left).finally(() => {
      clearTimeout(timer);
      running.delete(id);
      resolve();
    });
  });
}

async function execute(m, command, run, left) {
  const signal = AbortSignal.any([run.end.signal, AbortSignal.timeout(left)]);
  const progress = setInterval(() => Date.now() < run.deadline && m.working(), ACK_WAIT / 4);
  const startedAt = new Date().toISOString();
  try {
    if (m.redelivered) {
      const current = await isCurrent(command);
      if (current === undefined) return m.nak(1000); // without an answer, do not execute
      if (!current) return m.ack();
    }
    let result;
    try {
      result = await steps[command.step](command, signal);
    } catch (error) {
      const ended = run.end.signal.aborted ? run.end.signal.reason : undefined;
      if (ended === STOP) return m.nak(); // for another worker
      const reason = ended ? "err_keb_cancelled" : "err_keb_timeout";
      result = signal.aborted
        ? { outcome: "retry", retryAfter: 0, error: { component: WORKER, reason, message: ended?.message ?? "the step exceeded its deadline" } }
        : failed(error.message);
    }
    while (run.abandoned) {
      const current = await isCurrent(command);
      if (current === false) return;
      if (current) break;
      await sleep(1000);
    }
    await publish(m, command, startedAt, result);
    m.ack(); // only after the result is in the stream
  } catch (error) {
    console.error(`${command.operation.id}: result not published: ${error.message}`);
    m.nak(5000); // the command will be executed again
  } finally {
    clearInterval(progress);
  }
}

// isCurrent reports whether the orchestrator still waits for a redelivered command. A worker that was killed before its acknowledgement may
// have published the result. It returns undefined without an answer.
async function isCurrent({ operation, cursor }) {
  try {
    const question = JSON.stringify({ commands: [{ operationId: operation.id, cursor }] });
    const answer = await nc.request(`keb.ask.orchestrator.current.${WORKER}`, question, { timeout: 1000 });
    const { error, current } = answer.json();
    if (error) throw new Error(error);
    return current.length > 0;
  } catch (error) {
    console.error(`${operation.id}: no answer whether the command is still current: ${error.message}`);
  }
}

function publish(m, command, startedAt, { outcome, ...rest }) {
  const { operation, cursor, dispatch, stage, step } = command;
  const id = `${operation.id}/${cursor}/${dispatch}`;
  const finishedAt = new Date().toISOString();
  const h = headers();
  h.set("ce-specversion", "1.0");
  h.set("ce-id", id);
  h.set("ce-type", `io.kyma-project.keb.step.${outcome}.v1`);
  h.set("ce-source", `/keb/worker/${WORKER}`);
  h.set("ce-subject", operation.id);
  h.set("ce-time", finishedAt);
  h.set("ce-datacontenttype", "application/json");
  if (m.headers.get("ce-traceparent")) h.set("ce-traceparent", m.headers.get("ce-traceparent"));
  const body = { operationId: operation.id, cursor, stage, step, worker: { name: WORKER, version: VERSION }, startedAt, finishedAt, ...rest };
  return js.publish(`keb.result.${WORKER}.${step}`, JSON.stringify(body), { msgID: id, headers: h });
}

// dead stores an invalid message for an operator. It shortens a copy that exceeds the bus's limit.
async function dead(m, reason) {
  try {
    const h = headers();
    h.set("Keb-Dead-Reason", encodeURIComponent(reason));
    h.set("Keb-Dead-Subject", m.subject);
    const room = nc.info.max_payload - DEAD_HEADERS;
    if (m.data.length > room) h.set("Keb-Dead-Size", String(m.data.length));
    await js.publish("keb.dead.KEB_COMMANDS", m.data.subarray(0, room), { headers: h });
    m.term();
  } catch (error) {
    console.error(`dead letter not published: ${error.message}`); // the message will be redelivered
  }
}

const STOP = new Error("the worker stops");
const stop = () => {
  stopping = true;
  setTimeout(() => running.forEach(({ end }) => end.abort(STOP)), DRAIN).unref();
};
process.once("SIGTERM", stop);
process.once("SIGINT", stop);
console.log(`${WORKER} ${VERSION} serves ${Object.keys(steps)}`);

// Fetch only as many commands as can run now, so that no command waits here. The fetch is short, so that the worker can stop quickly.
while (!stopping) {
  const free = CONCURRENCY - inSlots().length;
  if (free <= 0) {
    await Promise.race(inSlots().map(({ done }) => done));
    continue;
  }
  try {
    const consumer = await js.consumers.get("KEB_COMMANDS", WORKER); // the orchestrator creates it
    for await (const m of await consumer.fetch({ max_messages: free, expires: 1000 })) accept(m);
  } catch (error) {
    console.error(`no commands: ${error.message}`);
    await sleep(500);
  }
}
await service.stop();
await Promise.all(inSlots().map(({ done }) => done));
await nc.drain();
process.exit(0); // an abandoned step would keep the process alive
