// The commands of a worker, from their delivery to their acknowledgement.
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { SpanKind } from "@opentelemetry/api";
import { maskText } from "./mask.js";
import { createOperation, timeUntil } from "./operation.js";
import { StepEnded } from "./outcome.js";
import { note, traced, traceparent } from "./tracing.js";
import { deadLetter, decodeCommand, encodeJSON, encodeResult, names, STREAM } from "./wire.js";

const PULL = 1000; // how long one pull waits: also how long a worker without commands takes to stop
const AGAIN = 1000; // until a command comes again that this process must not execute now
const UNPUBLISHED = 5000; // until a command comes again whose result could not be published
const MAX_UNPUBLISHED = 300_000;
const ANSWER = 1000; // for the question whether a command is still current
const OVERDUE = 3000; // for a step to return after its time limit
const STOPPED = 2000; // for steps to return after their signal was aborted because the worker stops
const EXTENDED = 600_000; // for which a late command is kept without an answer whether it was extended
const PROGRESS = 1000; // between two reports of the progress of a step

/** Returns the state of a command between its delivery and its acknowledgement. */
function take(m) {
  const { command, traceparent } = decodeCommand(m);
  const { operation: o, cursor, dispatch, stage, step, stepAttempt } = command;
  const dispatchId = names.dispatchId(o.id, cursor, dispatch);
  return {
    m, command, traceparent, id: names.commandId(o.id, cursor), dispatchId, deadline: Date.parse(command.executeBefore), since: new Date(),
    end: new AbortController(), isRunning: false, isAbandoned: false, progress: undefined,
    attributes: { operation_id: o.id, instance_id: o.instanceId, stage, step, attempt: stepAttempt, event_id: dispatchId },
  };
}

/** Why a command must not be executed here and now, and what settles its message. */
class Ignored {
  constructor(reason, settle) {
    Object.assign(this, { reason, settle });
  }
}

const isOverdue = (t) => Date.now() >= t.deadline;

const spanAttributes = (worker, { m, command: c, dispatchId }) => ({
  "messaging.system": "nats", "messaging.operation.type": "process", "messaging.operation.name": "process",
  "messaging.destination.name": m.subject, "messaging.consumer.group.name": worker, "messaging.message.id": dispatchId,
  "keb.operation.id": c.operation.id, "keb.operation.type": c.operation.type, "keb.instance.id": c.operation.instanceId,
  "keb.plan": c.operation.plan?.name, "keb.stage": c.stage, "keb.step": c.step, "keb.stage.attempt": c.stageAttempt,
  "keb.step.attempt": c.stepAttempt, "keb.dispatch": c.dispatch, "keb.deliveries": m.info.deliveryCount, "keb.worker": worker,
});

/** Creates the pool of a worker on a connection. ask sends a question, and bus knows whether it is connected. */
export function createPool({ name, version, steps, settings, log, metrics, memory, ask, bus, nc }) {
  const js = jetstream(nc, { timeout: 5000 });
  const taken = new Map(); // by id
  const kept = []; // messages to give back when the pulls have ended: earlier, they would come back to this process
  const changes = new EventEmitter();
  const stopping = new AbortController();
  let isClosed = false;
  let ackWait = 10_000;
  let nextStart = 0;

  const all = () => [...taken.values()];
  const slots = () => all().filter((t) => !t.isAbandoned);
  const running = (isAbandoned) => all().filter((t) => t.isRunning && t.isAbandoned === isAbandoned);

  // Settles a message. One that cannot be settled comes again after the ack wait.
  function settle(f) {
    try {
      f();
    } catch (error) {
      log.warn("command not settled", { err: error });
    }
  }

  /** Pulls commands, as many as can run now, until stop is called. */
  async function consume() {
    let consumer;
    for (let failures = 0; !stopping.signal.aborted; ) {
      const free = settings.concurrency - slots().length;
      if (free <= 0) {
        await once(changes, "change");
        continue;
      }
      try {
        consumer ??= await js.consumers.get(STREAM, name); // the orchestrator creates it
        ackWait = (await consumer.info(true)).config.ack_wait / 1e6;
        let received = 0;
        for await (const m of await consumer.fetch({ max_messages: free, expires: PULL })) {
          received++;
          handle(m);
        }
        if (!received) consumer = undefined; // it may be gone
        failures = 0;
      } catch (error) {
        consumer = undefined;
        log[failures++ ? "debug" : "warn"]("consumer is not available", { stream: STREAM, consumer: name, err: error });
        await sleep(500, undefined, { signal: stopping.signal }).catch(() => {});
      }
    }
    for (const m of kept) settle(() => m.nak());
  }

  /** Executes a command, or settles one that must not be executed here and now. */
  async function handle(m) {
    let t, beat;
    metrics.consumed();
    if (m.info.deliveryCount > 1) metrics.redelivered();
    try {
      t = admit(m);
      beat = setInterval(() => isOverdue(t) || settle(() => m.working()), ackWait / 3);
      await process(t);
    } catch (error) {
      if (!(error instanceof Ignored)) log.error("command is given back", { ...t?.attributes, err: error });
      if (error.reason) metrics.ignored({ reason: error.reason });
      settle(error.settle ?? (() => m.nak(UNPUBLISHED)));
    } finally {
      clearInterval(beat);
      if (t) taken.delete(t.id);
      changes.emit("change");
    }
  }

  function admit(m) {
    let t;
    try {
      t = take(m);
    } catch (error) {
      throw new Ignored("unreadable", () => bury(m, maskText(error.message)));
    }
    const other = taken.get(t.id);
    if (!Object.hasOwn(steps, t.command.step)) throw new Ignored("unknown_step", () => m.nak(AGAIN)); // another version may have it
    // The orchestrator sends a late command again if it still needs the result. One that was delivered before may have been extended.
    if (isOverdue(t) && m.info.deliveryCount === 1) throw new Ignored("late", () => m.ack());
    if (other && isOverdue(other)) throw new Ignored("overdue", () => m.nak(AGAIN)); // another replica may execute it
    // The running execution answers for both. A redelivery of the same message stays open until then.
    if (other) throw new Ignored("duplicate", () => other.command.dispatch !== t.command.dispatch && m.ack());
    if (stopping.signal.aborted) throw new Ignored("", () => kept.push(m));
    taken.set(t.id, t);
    return t;
  }

  async function process(t) {
    const { m, command: c } = t;
    // The result of a command that was delivered before may be published, or its time limit extended.
    const isWanted = m.info.deliveryCount === 1 || (await isCurrent(t));
    const isOver = Date.now() >= t.deadline + EXTENDED;
    if (isWanted === undefined && !isOver) throw new Ignored("unchecked", () => m.nak(AGAIN));
    if (isWanted === false) throw new Ignored("outdated", () => m.ack());
    await turn();
    if (stopping.signal.aborted) throw new Ignored("", () => m.nak());
    if (isOverdue(t)) throw new Ignored("late", () => m.ack());
    const options = { kind: SpanKind.CONSUMER, attributes: spanAttributes(name, t) };
    const [result, parent] = await traced(`process ${m.subject}`, t.traceparent, options, async (span) => {
      const r = await execute(t, span);
      note(span, r);
      return [r, traceparent(span) ?? t.traceparent];
    });
    if (!result) return;
    if (result.interrupted) throw new Ignored("", () => m.nak());
    metrics.ended({ step: c.step, outcome: result.outcome });
    metrics.took(c.step, Date.parse(result.finishedAt) - Date.parse(result.startedAt));
    if (result.panicked) metrics.panicked();
    const level = result.outcome === "failed" ? "error" : result.error ? "warn" : "debug";
    log[level]("step ended", { ...t.attributes, outcome: result.outcome, text: result.message, ...result.error });
    await publish(t, encodeResult(result, c.dispatch, parent));
  }

  /** Reports whether the orchestrator still waits for the result of a command, and extends it; undefined without an answer. */
  async function isCurrent(t) {
    const wanted = { operationId: t.command.operation.id, cursor: t.command.cursor };
    const isWanted = (ref) => names.commandId(ref.operationId, ref.cursor) === t.id;
    try {
      const { current, extended = [] } = await ask("current", { commands: [wanted] }, ANSWER);
      const more = extended.find((e) => isWanted(e) && e.dispatch === t.command.dispatch);
      if (more) t.deadline = Date.parse(more.executeBefore);
      return current.some(isWanted);
    } catch (error) {
      log.warn("no answer whether a command is current", { err: error });
      return undefined;
    }
  }

  /** Waits until the rate limit allows another start, or the worker stops. */
  async function turn() {
    const wait = Math.max(nextStart - Date.now(), 0);
    if (settings.rateLimit) nextStart = Date.now() + wait + 1000 / settings.rateLimit;
    if (wait) await sleep(wait, undefined, { signal: stopping.signal }).catch(() => {});
  }

  async function execute(t, span) {
    const command = { ...t.command, executeBefore: new Date(t.deadline).toISOString() };
    let abandoning = setTimeout(() => abandon(t), timeUntil(t.deadline + OVERDUE));
    const onExtended = (deadline) => {
      clearTimeout(abandoning);
      t.deadline = deadline;
      abandoning = setTimeout(() => abandon(t), timeUntil(deadline + OVERDUE));
    };
    const reporting = setInterval(() => sendProgress(t), PROGRESS);
    const trace_id = span.isRecording() ? span.spanContext().traceId : undefined;
    const operation = createOperation({
      command, worker: { name, version: version || undefined }, memory: memory?.(command), log: log.with({ ...t.attributes, trace_id }),
      ask, end: t.end, report: (notice) => (t.progress = notice), onExtended,
    });
    t.isRunning = true;
    return operation.execute(steps[command.step], async () => {
      t.isRunning = false;
      clearTimeout(abandoning);
      clearInterval(reporting);
      return !t.isAbandoned || isStillWanted(t);
    });
  }

  // Sends what the step has reported last. It may be lost.
  function sendProgress(t) {
    if (t.progress) settle(() => nc.publish(names.workerSubject(name, "progress"), encodeJSON(t.progress)));
    t.progress = undefined;
  }

  // A step that ignores its signal cannot be ended, but it must not keep its slot.
  function abandon(t) {
    t.isAbandoned = true;
    log.error("step did not return after its time limit and is abandoned", { ...t.attributes, worker: name, running_since: t.since });
    changes.emit("change");
  }

  async function isStillWanted(t) {
    let answer;
    while ((answer = await isCurrent(t)) === undefined && !isClosed) await sleep(AGAIN);
    log.warn("abandoned step returned", { ...t.attributes, running_since: t.since, result_counts: Boolean(answer) });
    return Boolean(answer);
  }

  /** Publishes a result, and acknowledges the command when the stream has stored it. */
  async function publish(t, { subject, id, headers, body }) {
    for (;;) {
      try {
        await js.publish(subject, body, { msgID: id, headers });
        metrics.published();
        bus.refusal = "";
        return settle(() => t.m.ack());
      } catch (error) {
        if (bus.isConnected || isClosed) {
          bus.refusal = "the last result was not stored";
          metrics.unpublished();
          metrics.failed();
          log.error("result not published, the step will be executed again", { ...t.attributes, err: error });
          return settle(() => t.m.nak(UNPUBLISHED));
        }
        await sleep(500); // until the connection is back
      }
    }
  }

  /** Copies an unreadable message to the dead letters. */
  async function bury(m, reason) {
    const { subject, headers, body } = deadLetter(m, name, reason, nc.info.max_payload);
    try {
      await js.publish(subject, body, { headers });
      metrics.dead();
      m.term("moved to dead letters");
      log.warn("message moved to dead letters", { subject: m.subject, reason });
    } catch (error) {
      log.error("unreadable message not moved to the dead letters", { subject: m.subject, err: error });
      settle(() => m.nak(Math.min(UNPUBLISHED * 2 ** (m.info.deliveryCount - 1), MAX_UNPUBLISHED)));
    }
  }

  /** Ends the step that a notice names. */
  function cancel(notice) {
    try {
      const { operationId, cursor, reason } = notice.json();
      const t = taken.get(names.commandId(operationId, cursor));
      if (!t?.isRunning) return;
      log.info("step cancelled", { ...t.attributes, text: reason });
      t.end.abort(new StepEnded("cancelled", `the command was cancelled: ${reason}`));
    } catch (error) {
      log.warn("notice of a cancelled command is unreadable", { err: error });
    }
  }

  function stop() {
    stopping.abort();
    changes.emit("change");
  }

  async function waitUntilIdle(ms) {
    const signal = AbortSignal.timeout(ms);
    while (slots().length && !signal.aborted) await once(changes, "change", { signal }).catch(() => {});
  }

  /** Waits for running steps, aborts their signals after a time, and returns the names of the steps that still run. */
  async function drain() {
    await waitUntilIdle(settings.drainTimeout);
    for (const t of all()) t.end.abort(new StepEnded("stopping", "the worker stops"));
    await waitUntilIdle(STOPPED);
    isClosed = true;
    return [...running(false), ...running(true)].map((t) => t.command.step);
  }

  return { consume, cancel, stop, drain, running, commands: () => slots().map(({ id }) => id) };
}
