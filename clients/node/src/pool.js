// The commands of a worker, from their delivery to their acknowledgement.
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { maskText } from "./mask.js";
import { note, traced } from "./monitoring.js";
import { createOperation } from "./operation.js";
import { StepEnded } from "./outcome.js";
import { deadLetter, decodeCommand, encodeJSON, encodeResult, names, STREAM } from "./wire.js";

const SECOND = 1000;
const UNPUBLISHED = 5 * SECOND; // until a command comes again whose result could not be published
const ABANDONED = 3 * SECOND; // for a step to return after its time limit
const STOPPED = 2 * SECOND; // for steps to return after their signal was aborted because the worker stops
const FROZEN = 3 * SECOND; // age of a pull whose commands another replica may have executed meanwhile
const REFUSED = [10054, 10097]; // codes of a stream for which a message or its headers are too large: it will never accept it
const EXTENDED = 600 * SECOND; // for which a late command is kept without an answer whether it was extended

/** An error that says why a command must not be executed here and now. settle settles its message. */
const ignored = (reason, settle) => Object.assign(new Error(`ignored: ${reason}`), { reason, settle });

const isOverdue = (t, ms = 0) => Date.now() >= t.deadline + ms;

// Reports whether a command may have been delivered before. A server that has lost its power counts the deliveries of what it stored before
// the connection from 1 again.
export const isAgain = (m, connectedAt) => m.info.deliveryCount > 1 || m.time.getTime() < connectedAt;

const spanAttributes = (worker, { m, command: c, dispatchId }) => ({
  "messaging.operation.type": "process", "messaging.operation.name": "process", "messaging.consumer.group.name": worker,
  "messaging.message.id": dispatchId,
  "keb.operation.id": c.operation.id, "keb.operation.type": c.operation.type, "keb.instance.id": c.operation.instanceId,
  "keb.plan": c.operation.plan?.name, "keb.stage": c.stage, "keb.step": c.step, "keb.stage.attempt": c.stageAttempt,
  "keb.step.attempt": c.stepAttempt, "keb.dispatch": c.dispatch, "keb.deliveries": m.info.deliveryCount, "keb.worker": worker,
});

/** Creates the pool of a worker, which stops with the signal. ask sends a question, and bus knows since when it is connected. */
export function createPool({ name, version, steps, settings, log, metrics, memory, ask, bus, nc, signal }) {
  const js = jetstream(nc, { timeout: 5 * SECOND });
  const worker = { name, version: version || undefined };
  const consumerName = settings.ramped ? `${name}_ramped` : name;
  const taken = new Map(); // commands between their delivery and their acknowledgement, by id
  const kept = []; // messages to give back when the pulls have ended: earlier, they would come back to this process
  const changes = new EventEmitter();
  let isClosed = false;
  let nextStart = 0;
  signal.addEventListener("abort", () => changes.emit("change"));

  const slots = () => [...taken.values()].filter((t) => !t.isAbandoned);
  const running = (isAbandoned) => [...taken.values()].filter((t) => t.isRunning && t.isAbandoned === isAbandoned);

  /** Pulls commands, as many as can run now, until the worker stops. */
  async function consume() {
    let consumer;
    while (!signal.aborted) {
      const free = settings.concurrency - slots().length;
      if (free <= 0) {
        await once(changes, "change");
        continue;
      }
      try {
        consumer ??= await js.consumers.get(STREAM, consumerName); // the orchestrator creates it
        let received = 0;
        const asked = Date.now();
        for await (const m of await consumer.fetch({ max_messages: free, expires: SECOND })) {
          received++;
          if (Date.now() - asked > FROZEN) bus.since = Math.max(bus.since, Date.now());
          handle(m);
        }
        if (!received) consumer = undefined; // it may be gone
      } catch (error) {
        log[consumer ? "warn" : "debug"]("consumer is not available", { stream: STREAM, consumer: consumerName, err: error });
        consumer = undefined;
        await sleep(500, undefined, { signal }).catch(() => {});
      }
    }
    for (const m of kept) settle(() => m.nak());
  }

  /** Executes a command, or settles one that must not be executed here and now. */
  async function handle(m) {
    /** @type {any} */ let t;
    metrics.consumed();
    if (m.info.deliveryCount > 1) metrics.redelivered();
    try {
      t = admit(m);
      await check(t);
      await execute(t);
    } catch (error) {
      if (error.reason) metrics.ignored({ reason: error.reason });
      if (!error.settle) log.error("command is given back", { ...t?.attributes, err: error });
      await settle(error.settle ?? (() => m.nak(UNPUBLISHED)));
    } finally {
      clearInterval(t?.ticking);
      if (t) taken.delete(t.id);
      changes.emit("change");
    }
  }

  // A message that cannot be settled comes again after the ack wait.
  async function settle(f) {
    try {
      await f();
    } catch (error) {
      log.warn("command not settled", { err: error });
    }
  }

  function admit(m) {
    let decoded;
    try {
      decoded = decodeCommand(m);
    } catch (error) {
      throw ignored("unreadable", () => bury(m, maskText(error.message)));
    }
    const { operation: o, cursor, dispatch, stage, step, stepAttempt: attempt, executeBefore } = decoded.command;
    const dispatchId = names.dispatchId(o.id, cursor, dispatch);
    const t = {
      ...decoded, m, id: names.commandId(o.id, cursor), dispatchId, deadline: Date.parse(executeBefore),
      end: new AbortController(), isAbandoned: false,
      attributes: { operation_id: o.id, instance_id: o.instanceId, stage, step, attempt, event_id: dispatchId },
    };
    const other = taken.get(t.id);
    if (!Object.hasOwn(steps, step)) throw ignored("unknown_step", () => m.nak(SECOND)); // another version may have it
    // The orchestrator sends a late command again if it still needs the result. One that was delivered before may have been extended.
    if (isOverdue(t) && !isAgain(t.m, bus.since)) throw ignored("late", () => m.ack());
    if (other && isOverdue(other)) throw ignored("overdue", () => m.nak(SECOND)); // another replica may execute it
    // The running execution answers for both. A redelivery of the same message stays open until then.
    if (other) throw ignored("duplicate", () => other.command.dispatch !== dispatch && m.ack());
    if (signal.aborted) throw ignored("", () => kept.push(m));
    taken.set(t.id, Object.assign(t, { ticking: setInterval(() => settle(() => tick(t)), SECOND) }));
    return t;
  }

  // Sends what the step has reported last, and keeps the command from being delivered again. A step that ignores its signal cannot be
  // ended, but it must not keep its slot: it is abandoned.
  function tick(t) {
    if (t.progress) nc.publish(names.workerSubject(name, "progress"), encodeJSON(t.progress));
    t.progress = undefined;
    if (!isOverdue(t)) t.m.working();
    const left = t.deadline + ABANDONED - Date.now();
    if (left < SECOND) setTimeout(abandon, left + 1, t).unref();
  }

  function abandon(t) {
    if (!t.isRunning || t.isAbandoned || !isOverdue(t, ABANDONED)) return;
    t.isAbandoned = true;
    log.error("step did not return after its time limit and is abandoned", t.attributes);
    changes.emit("change");
  }

  /** Ignores a command whose result is published, or not wanted in time. It waits until the rate limit allows a start. */
  async function check(t) {
    const isWanted = !isAgain(t.m, bus.since) || (await isCurrent(t));
    if (isWanted === undefined && !isOverdue(t, EXTENDED)) throw ignored("unchecked", () => t.m.nak(SECOND));
    if (isWanted === false) throw ignored("outdated", () => t.m.ack());
    const wait = Math.max(nextStart - Date.now(), 0);
    if (settings.rateLimit) nextStart = Date.now() + wait + SECOND / settings.rateLimit;
    if (wait) await sleep(wait, undefined, { signal }).catch(() => {});
    if (signal.aborted) throw ignored("", () => t.m.nak());
    if (isOverdue(t)) throw ignored("late", () => t.m.ack());
  }

  /** Reports whether the orchestrator still waits for the result of a command, and extends it; undefined without an answer. */
  async function isCurrent(t) {
    const wanted = { operationId: t.command.operation.id, cursor: t.command.cursor };
    const isWanted = (ref) => names.commandId(ref.operationId, ref.cursor) === t.id;
    try {
      const { current, extended = [] } = await ask("current", { commands: [wanted] }, SECOND);
      const more = extended.find((e) => isWanted(e) && e.dispatch === t.command.dispatch);
      if (more) t.deadline = Date.parse(more.executeBefore);
      return current.some(isWanted);
    } catch (error) {
      log.warn("no answer whether a command is current", { err: error });
    }
  }

  async function execute(t) {
    const { m, command: c } = t;
    const [result, parent] = await traced("process", m.subject, t.traceparent, "CONSUMER", spanAttributes(name, t), async (span, traceparent) => {
      const trace_id = span.isRecording() ? span.spanContext().traceId : undefined;
      const report = (notice) => (t.progress = notice);
      Object.assign(t, { worker, memory: memory?.(c), log: log.with({ ...t.attributes, trace_id }), ask, report, isRunning: true });
      const r = await createOperation(t).execute(steps[c.step], () => hasReturned(t));
      note(span, r);
      return [r, traceparent];
    });
    if (!result) return;
    if (result.interrupted) throw ignored("", () => m.nak());
    metrics.ended({ step: c.step, outcome: result.outcome });
    metrics.took(c.step, Date.parse(result.finishedAt) - Date.parse(result.startedAt));
    if (result.panicked) metrics.panicked();
    const level = result.outcome === "failed" ? "error" : result.error ? "warn" : "debug";
    log[level]("step ended", { ...t.attributes, outcome: result.outcome, text: result.message, ...result.error });
    await publish(t, encodeResult(result, c.dispatch, parent));
  }

  /** Reports whether the result of a step that has returned is still wanted. */
  async function hasReturned(t) {
    t.isRunning = false;
    let isWanted = t.isAbandoned || isOverdue(t, ABANDONED) ? undefined : true; // a blocked event loop abandons nothing
    while (isWanted === undefined && !isClosed) {
      isWanted = await isCurrent(t);
      if (isWanted === undefined) await sleep(SECOND);
    }
    return isWanted;
  }

  /** Publishes a result, and acknowledges the command when the stream has stored it. */
  async function publish(t, message) {
    const { since } = bus;
    try {
      await js.publish(message.subject, message.body, { msgID: message.id, headers: message.headers });
    } catch (error) {
      const isLost = bus.since === Infinity || bus.since !== since; // the connection, and with it perhaps the answer
      if (isLost && !isClosed) return sleep(500).then(() => publish(t, message));
      bus.refusal = "the last result was not stored";
      metrics.unpublished();
      metrics.failed();
      log.error("result not published, the step will be executed again", { ...t.attributes, err: error });
      throw ignored("", () => t.m.nak(UNPUBLISHED));
    }
    metrics.published();
    bus.refusal = "";
    t.m.ack();
  }

  /** Copies an unreadable message to the dead letters. */
  async function bury(m, reason) {
    const { subject, headers, body } = deadLetter(m, name, reason, nc.info.max_payload);
    try {
      await js.publish(subject, body, { headers });
    } catch (error) {
      log.error("unreadable message not moved to the dead letters", { subject: m.subject, err: error });
      if (REFUSED.includes(error.code)) return m.term("dead letter refused");
      return m.nak(Math.min(UNPUBLISHED * 2 ** (m.info.deliveryCount - 1), 300 * SECOND));
    }
    metrics.dead();
    m.term("moved to dead letters");
    log.warn("message moved to dead letters", { subject: m.subject, reason });
  }

  /** Ends the step that a notice names. */
  function cancel(notice) {
    const { operationId, cursor, reason } = notice.json();
    const t = taken.get(names.commandId(operationId, cursor));
    if (t?.isRunning) t.end.abort(new StepEnded("cancelled", `the command was cancelled: ${reason}`));
  }

  /** Waits for running steps, aborts their signals after a time, and returns the names of the steps that still run. */
  async function drain() {
    const waitUntilIdle = async (/** @type {number} */ ms) => {
      const timeout = AbortSignal.timeout(ms);
      while (slots().length && !timeout.aborted) await once(changes, "change", { signal: timeout }).catch(() => {});
    };
    await waitUntilIdle(settings.drainTimeout);
    for (const t of taken.values()) t.end.abort(new StepEnded("stopping", "the worker stops"));
    await waitUntilIdle(STOPPED);
    isClosed = true;
    return [...running(false), ...running(true)].map((t) => t.command.step);
  }

  return { consume, handle, cancel: (notice) => settle(() => cancel(notice)), drain, running, commands: () => slots().map(({ id }) => id) };
}
