// The commands of a worker, from their delivery to their acknowledgement.
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { execute, MAX_TIMER } from "./execution.js";
import { maskText } from "./mask.js";
import { StepEnded } from "./outcome.js";
import { note, traced, traceparent } from "./tracing.js";
import { deadLetter, decodeCommand, encodeResult, names } from "./wire.js";

const STREAM = "KEB_COMMANDS";
const PULL = 1000; // how long one pull waits: also how long a worker without commands takes to stop
const AGAIN = 1000; // until a command comes again that this process must not execute now
const UNPUBLISHED = 5000; // until a command comes again whose result could not be published
const ANSWER = 1000; // for the question whether a command is still current
const OVERDUE = 3000; // for a step to return after its time limit
const STOPPED = 2000; // for steps to return after their signal was aborted because the worker stops
const MAX_UNPUBLISHED = 300_000;

const within = (promise, ms) => Promise.race([promise.then(() => true), sleep(ms, false, { ref: false })]);

export class Pool {
  nc; isConnected; name; version; steps; settings; log; metrics; memory; ask; // from worker.js
  taken = new Map(); // by operation and cursor
  kept = []; // messages to give back when the pulls have ended: earlier, they would come back to this process
  ackWait = 10_000;
  isStopping = false;
  isClosed = false;
  refusal = ""; // why the last result was not stored
  #stop = new AbortController();
  #waiting = [];
  #nextStart = 0;
  #unknown = new Set(); // logged once each

  constructor(deps) {
    Object.assign(this, deps);
    this.js = jetstream(this.nc, { timeout: 5000 });
  }

  /** Returns the commands in execution, or whose result is not yet published. */
  commands() {
    return [...this.taken.values()].filter((t) => !t.isAbandoned);
  }

  /** Ends the step of a command. */
  cancel({ operationId, cursor, reason }) {
    const t = this.taken.get(names.commandId(operationId, cursor));
    if (!t?.isRunning) return;
    this.log.info("step cancelled", { ...t.attributes, text: reason });
    t.end.abort(new StepEnded("cancelled", `the command was cancelled: ${reason}`));
  }

  /** Pulls commands, as many as can run now, until stop is called. */
  async consume() {
    let consumer;
    for (let failures = 0; !this.isStopping; ) {
      const free = this.settings.concurrency - this.commands().length;
      if (free <= 0) {
        await this.#change();
        continue;
      }
      try {
        if (!consumer) {
          consumer = await this.js.consumers.get(STREAM, this.name); // the orchestrator creates it
          this.ackWait = (await consumer.info(true)).config.ack_wait / 1e6;
        }
        let got = 0;
        for await (const m of await consumer.fetch({ max_messages: free, expires: PULL })) {
          got++;
          this.accept(m);
        }
        if (got === 0) consumer = undefined; // it may be gone
        failures = 0;
      } catch (error) {
        consumer = undefined;
        this.log[failures++ ? "debug" : "warn"]("consumer is not available", { stream: STREAM, consumer: this.name, err: error });
        await sleep(Math.min(500 * failures, 5000), undefined, { signal: this.#stop.signal }).catch(() => {});
      }
    }
    for (const m of this.kept) this.#settle(() => m.nak());
  }

  stop() {
    this.isStopping = true;
    this.#stop.abort();
    this.#changed();
  }

  /** Waits for running steps, aborts their signals after a time, and returns the names of the steps that still run. */
  async drain() {
    const idle = (async () => {
      while (this.commands().length) await this.#change();
    })();
    if (!(await within(idle, this.settings.drainTimeout))) {
      for (const { end } of this.taken.values()) end.abort(new StepEnded("stopping", "the worker stops"));
      await within(idle, STOPPED);
    }
    this.isClosed = true;
    return [...new Set([...this.taken.values()].filter((t) => t.isRunning).map((t) => t.command.step))];
  }

  #change() {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #changed() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  // A message that cannot be settled comes again after the ack wait.
  #settle(f) {
    try {
      f();
    } catch (error) {
      this.log.warn("command not settled", { err: error });
    }
  }

  #ignore(reason, f) {
    this.metrics.ignored(reason);
    this.#settle(f);
  }

  /** Takes a command, unless it must not be executed here and now. */
  accept(m) {
    let decoded;
    try {
      decoded = decodeCommand(m);
    } catch (error) {
      this.metrics.ignored("unreadable");
      return this.#dead(m, error.message);
    }
    const { command: c } = decoded;
    const o = c.operation;
    const t = {
      m, ...decoded, id: names.commandId(o.id, c.cursor), since: Date.now(), deadline: Date.parse(c.executeBefore),
      end: new AbortController(), isRunning: false, isAbandoned: false,
      attributes: {
        operation_id: o.id, instance_id: o.instanceId, stage: c.stage, step: c.step, attempt: c.stepAttempt,
        event_id: names.dispatchId(o.id, c.cursor, c.dispatch),
      },
    };
    if (!Object.hasOwn(this.steps, c.step)) {
      this.log[this.#unknown.has(c.step) ? "debug" : "warn"]("command for a step that this worker does not have", t.attributes);
      this.#unknown.add(c.step);
      return this.#ignore("unknown_step", () => m.nak(AGAIN)); // another version may have it
    }
    if (Date.now() >= t.deadline) return this.#ignore("late", () => m.ack()); // the orchestrator sends it again if it still needs the result
    const other = this.taken.get(t.id);
    if (other && Date.now() >= other.deadline) return this.#ignore("overdue", () => m.nak(AGAIN)); // it should have ended: another replica may execute it
    // The running execution answers for both. A redelivery of the same message stays open until then.
    if (other) return this.#ignore("duplicate", () => other.command.dispatch !== c.dispatch && m.ack());
    if (this.isStopping) return this.kept.push(m);
    this.taken.set(t.id, t);
    this.#run(t);
  }

  async #run(t) {
    const beat = setInterval(() => Date.now() < t.deadline && this.#settle(() => t.m.working()), this.ackWait / 3);
    try {
      await this.#process(t);
    } catch (error) {
      this.log[this.isStopping ? "info" : "error"]("command is given back", { ...t.attributes, err: error });
      this.#settle(() => t.m.nak(this.isStopping ? 0 : UNPUBLISHED));
    } finally {
      clearInterval(beat);
      this.taken.delete(t.id);
      this.#changed();
    }
  }

  async #process(t) {
    const { m, command: c } = t;
    if (m.info.deliveryCount > 1) {
      // A process that could not acknowledge it may have published its result.
      const isCurrent = await this.#isCurrent(t);
      if (isCurrent === undefined) return this.#ignore("unchecked", () => m.nak(AGAIN));
      if (!isCurrent) return this.#ignore("outdated", () => m.ack());
    }
    await this.#turn();
    if (Date.now() >= t.deadline) return this.#ignore("late", () => m.ack());
    const [result, parent] = await traced(`process ${m.subject}`, "CONSUMER", t.traceparent, this.#spanAttributes(t), async (span) => {
      const r = await this.#execute(t, span);
      note(span, r);
      return [r, traceparent(span) ?? t.traceparent];
    });
    if (result.unwanted) return undefined;
    if (result.interrupted) throw new Error("the step was interrupted");
    this.metrics.executed(c.step, result.outcome, Date.parse(result.finishedAt) - Date.parse(result.startedAt));
    if (result.panicked) this.metrics.panics.inc();
    this.#logOutcome(t, result);
    return this.#publish(t, result, parent);
  }

  async #execute(t, span) {
    const { command: c } = t;
    const timer = setTimeout(() => this.#abandon(t), Math.min(t.deadline + OVERDUE - Date.now(), MAX_TIMER));
    this.metrics.running.inc();
    t.isRunning = true;
    const hasReturned = () => {
      clearTimeout(timer);
      if (t.isRunning) this.metrics[t.isAbandoned ? "abandoned" : "running"].dec();
      t.isRunning = false;
    };
    try {
      return await execute(this.steps[c.step], {
        command: c, worker: { name: this.name, version: this.version || undefined }, end: t.end, ask: this.ask,
        memory: this.memory?.of(c.operation.id, c.stage, c.stageAttempt),
        log: this.log.with({ ...t.attributes, trace_id: span?.isRecording() ? span.spanContext().traceId : undefined }),
        isWanted: async () => {
          hasReturned();
          return !t.isAbandoned || this.#awaitWanted(t);
        },
      });
    } finally {
      hasReturned();
    }
  }

  // A step that ignores its signal cannot be ended, but it must not keep its slot.
  #abandon(t) {
    t.isAbandoned = true;
    this.metrics.running.dec();
    this.metrics.abandoned.inc();
    this.log.error("step did not return after its time limit and is abandoned",
      { ...t.attributes, worker: this.name, running_since: new Date(t.since), execute_before: t.command.executeBefore });
    this.#changed();
  }

  async #awaitWanted(t) {
    for (;;) {
      const isCurrent = await this.#isCurrent(t);
      if (isCurrent !== undefined || this.isClosed) {
        this.log.warn("abandoned step returned", { ...t.attributes, ran_for: `${Date.now() - t.since} ms`, result_counts: isCurrent === true });
        return isCurrent === true;
      }
      await sleep(AGAIN);
    }
  }

  /** Reports whether the orchestrator still waits for the result of a command; undefined without an answer. */
  async #isCurrent({ command: c }) {
    try {
      const answer = await this.ask("current", { commands: [{ operationId: c.operation.id, cursor: c.cursor }] }, ANSWER);
      return answer.current.some((ref) => ref.operationId === c.operation.id && ref.cursor === c.cursor);
    } catch (error) {
      this.log.warn("no answer whether a redelivered command is current; it is delayed", { err: error });
      return undefined;
    }
  }

  /** Waits until the rate limit allows another start. It rejects when the worker stops. */
  async #turn() {
    if (!this.settings.rateLimit) return this.#stop.signal.throwIfAborted();
    const now = Date.now();
    const start = Math.max(this.#nextStart, now);
    this.#nextStart = start + 1000 / this.settings.rateLimit;
    return sleep(start - now, undefined, { signal: this.#stop.signal });
  }

  /** Publishes a result, and acknowledges the command when the stream has stored it. */
  async #publish(t, result, parent) {
    const { subject, id, headers, body } = encodeResult(result, t.command.dispatch, parent);
    for (;;) {
      try {
        await this.js.publish(subject, body, { msgID: id, headers });
        this.refusal = "";
        return this.#settle(() => t.m.ack());
      } catch (error) {
        if (!this.isConnected() && !this.isClosed) {
          await sleep(500); // until the connection is back
          continue;
        }
        this.refusal = "the last result was not stored";
        this.metrics.unpublished.inc();
        this.log.error("result not published, the step will be executed again", { ...t.attributes, err: error });
        return this.#settle(() => t.m.nak(UNPUBLISHED));
      }
    }
  }

  /** Copies an unreadable message to the dead letters. */
  async #dead(m, problem) {
    const reason = maskText(problem);
    const { subject, headers, body } = deadLetter(m, this.name, reason, this.nc.info.max_payload);
    try {
      await this.js.publish(subject, body, { headers });
      m.term("moved to dead letters");
      this.log.warn("message moved to dead letters", { subject: m.subject, reason });
    } catch (error) {
      this.log.error("unreadable message not moved to the dead letters", { subject: m.subject, err: error });
      this.#settle(() => m.nak(Math.min(UNPUBLISHED * 2 ** (m.info.deliveryCount - 1), MAX_UNPUBLISHED)));
    }
  }

  #spanAttributes({ m, command: c, attributes }) {
    const { operation: o } = c;
    return {
      "messaging.system": "nats", "messaging.operation.type": "process", "messaging.operation.name": "process", "messaging.destination.name": m.subject,
      "messaging.consumer.group.name": this.name, "messaging.message.id": attributes.event_id, "keb.operation.id": o.id, "keb.operation.type": o.type,
      "keb.instance.id": o.instanceId, "keb.plan": o.plan?.name, "keb.stage": c.stage, "keb.step": c.step, "keb.stage.attempt": c.stageAttempt,
      "keb.step.attempt": c.stepAttempt, "keb.dispatch": c.dispatch, "keb.deliveries": m.info.deliveryCount, "keb.worker": this.name,
    };
  }

  #logOutcome(t, { outcome, retryAfter, message, error }) {
    const level = outcome === "failed" ? "error" : error ? "warn" : outcome === "stage lost" ? "info" : "debug";
    this.log[level]("step ended", { ...t.attributes, outcome, took: `${Date.now() - t.since} ms`, retry_after: retryAfter, text: message,
      component: error?.component, reason: error?.reason, err: error?.message });
  }
}
