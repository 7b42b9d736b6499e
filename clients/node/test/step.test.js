// What becomes of a step, with the kit that teams use.
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import { fail, notCompleted, retry, retryWithoutFail, skip, StepEnded, StepError, wait, waitForEvent } from "../src/index.js";
import { createOperation } from "../src/operation.js";
import { isAgain } from "../src/pool.js";
import { run } from "../src/testing.js";

const CANARY = "canary-4711-secret";

test("outcomes of a step", async () => {
  /** @type {Record<string, [any, string, RegExp?]>} */ const cases = {
    "returns nothing": [() => {}, "succeeded"],
    "returns the operation": [(op) => op, "succeeded"],
    "returns a number": [() => 5, "failed", /invalid result: the step returned number/],
    "waits": [() => wait("90s", "not yet"), "retry"],
    "retries": [() => retry(500, "down"), "retry", /^down$/],
    "throws a retry": [() => { throw retry(0, "down"); }, "retry", /^down$/],
    "fails": [() => fail({ component: "avs", reason: "err_x", message: "no" }), "failed", /^no$/],
    "throws": [() => { throw new Error("call", { cause: new Error("refused") }); }, "failed", /^call: refused$/],
    "throws nothing": [() => { throw undefined; }, "failed", /threw nothing/],
    "throws a temporary error": [() => { throw new StepError({ message: "503", temporary: true }); }, "retry", /^503$/],
    "skips": [() => skip("no url"), "skipped"],
    "gives up": [() => notCompleted("too hard"), "not completed", /^too hard$/],
    "has a negative delay": [() => wait(-1, "x"), "failed", /the retry delay -1: use a time/],
    "has an error as the text": [() => skip(/** @type {any} */ (new Error("no"))), "skipped"],
    "fails with a number": [() => fail(/** @type {any} */ ({ reason: 404, message: "no" })), "failed", /^no$/],
    "fails with no text": [() => fail(/** @type {any} */ ({ reason: Object.create(null), message: "no" })), "failed", /^invalid result: Cannot convert object/],
    "waits for a bad key": [() => waitForEvent("a b", 0, "x"), "failed", /event\.key/],
    "saves a list": [(op) => op.saveDetails([1]), "failed", /save details: want an object/],
    "saves a NUL": [(op) => op.saveDetails({ a: "\0" }), "failed", /NUL/],
    "saves NaN": [(op) => op.saveDetails({ a: NaN }), "failed", /save details: NaN is not JSON/],
    "remembers too many bytes": [(op) => op.remember("a", "é".repeat(1 << 18).concat("x")), "failed", /at most 524288 bytes/],
    "saves too much": [(op) => { try { op.saveDetails({ a: "x".repeat(1 << 18) }); } catch { /* the step fails all the same */ } }, "failed", /at most 262144/],
  };
  for (const [name, [step, outcome, message = /^$/]] of Object.entries(cases)) {
    const r = await run(step);
    assert.equal(r.outcome, outcome, `${name}: ${r.error?.message}`);
    assert.match(r.error?.message ?? "", message, name);
  }
  assert.equal((await run(() => wait("90s", "not yet"))).retryAfter, 90_000);
});

test("a call that the network failed has its reason", async () => {
  const failures = {
    err_network_timeout: new DOMException("slow", "TimeoutError"), // of AbortSignal.timeout, with the legacy code 23
    err_connection_refused: Object.assign(new Error("refused"), { code: "ECONNREFUSED" }),
    err_step_failed: new Error("other"),
  };
  for (const [reason, cause] of Object.entries(failures)) {
    assert.equal((await run(() => retry(0, new Error("call", { cause })))).error?.reason, reason);
  }
});

test("names what it removed", async () => {
  assert.deepEqual((await run((op) => op.noteRemoved("evaluation 12").noteRemoved("12").noteRemoved(/** @type {any} */ (12)).noteRemoved("ab ".repeat(100)))).removed, ["evaluation 12", "12", `${"ab ".repeat(84)}a...`]);
  assert.equal((await run(() => {})).removed, undefined);
});

test("a budget ends in not completed", async () => {
  const step = (op) => retryWithoutFail(op, "1s", "5m", "down");
  assert.equal((await run(step, { firstTried: 299_000 })).outcome, "retry");
  assert.equal((await run(step, { firstTried: 301_000 })).outcome, "not completed");
});

test("the end of the signal decides about an error without a class", async () => {
  const step = (_, { signal }) => sleep(60_000, undefined, { signal });
  const late = await run(step, { limit: 20 });
  assert.deepEqual([late.outcome, late.error?.reason], ["retry", "err_keb_timeout"]);
  const end = new AbortController();
  setTimeout(() => end.abort(new StepEnded("cancelled", "the command was cancelled: by a test")), 20);
  const cancelled = await run(step, { end });
  assert.deepEqual([cancelled.outcome, cancelled.error?.reason, cancelled.error?.message], ["retry", "err_keb_cancelled", "the command was cancelled: by a test"]);
  const own = await run(async (_, { signal }) => {
    await sleep(60_000, undefined, { signal }).catch(() => {});
    throw new StepError({ component: "avs", message: "broken" });
  }, { limit: 20 });
  assert.deepEqual([own.outcome, own.error?.component], ["failed", "avs"]);
  const chosen = await run(async (_, { signal }) => {
    try {
      await sleep(60_000, undefined, { signal });
    } catch (error) {
      return retry("90s", error);
    }
  }, { limit: 20 });
  assert.deepEqual([chosen.outcome, chosen.retryAfter, chosen.error?.reason], ["retry", 90_000, "err_keb_timeout"]);
});

test("a step that asks for more time has it", async () => {
  const slow = (ms) => async (op, { signal }) => {
    const limit = await op.extend(ms);
    await sleep(60, undefined, { signal });
    return op.saveDetails({ left: limit.getTime() > Date.now() });
  };
  assert.deepEqual((await run(slow(10_000), { limit: 30 })).details, { left: true });
  assert.equal((await run(slow(10_000), { limit: 30, extension: 10 })).error?.reason, "err_keb_timeout");
  assert.match((await run(async (op) => void (await op.extend("2d")))).error?.message ?? "", /more time: use a time up to 24h/);
});

test("secrets do not reach the result", async () => {
  const credentials = { kubeconfig: { token: CANARY } };
  const claims = (end) => async (op) => {
    await op.claimCredentials("kubeconfig");
    return end(op);
  };
  for (const end of [() => fail(`it was ${CANARY}`), () => wait(0, CANARY), (op) => op.saveDetails({ a: [`a ${CANARY}`] }),
    () => { throw new StepError({ component: CANARY, reason: CANARY, message: "x" }); }]) {
    const { outcome, message, error, details } = await run(claims(end), { credentials });
    assert.notEqual(outcome, "succeeded");
    assert.ok(!JSON.stringify({ message, error, details }).includes(CANARY), JSON.stringify({ message, error, details }));
  }
  const denied = await run((op) => op.claimCredentials("other"), { credentials });
  assert.match(denied.error?.message ?? "", /no such credentials \(it has kubeconfig\)/);
});

test("progress is reported without secrets", async () => {
  const { progress } = await run(async (op) => {
    op.progress("3 of 7 nodes", 43);
    op.progress("a part", NaN);
    await op.claimCredentials("kubeconfig");
    op.progress(`${CANARY} ${"x ".repeat(150)}`, 101);
  }, { credentials: { kubeconfig: { token: CANARY } } });
  assert.deepEqual(progress[0], { message: "3 of 7 nodes", percent: 43 });
  assert.equal(progress[1].percent, undefined);
  assert.match(progress[2].message, /^\[redacted\] x x .*\.\.\.$/);
  assert.deepEqual([progress[2].message.length, progress[2].percent], [200, 100]);
});

test("the stage memory passes values on, and reports its loss", async () => {
  const first = await run((op) => void op.remember("token", CANARY).setOverrides("c", [{ key: "k", value: "1" }]));
  assert.equal(first.remembered.token.toString(), CANARY);
  const second = await run(async (op) => op.saveDetails({ found: (await op.recall("token")).length, components: (await op.overrides()).length, none: await op.recall("other") ?? 0 }), first.next());
  assert.deepEqual(second.details, { found: CANARY.length, components: 1, none: 0 });
  for (const step of [async (op) => void await op.recall("token"), async (op) => void await op.overrides(), (op) => void op.remember("a", "b")]) {
    assert.equal((await run(step, { lostMemory: true })).outcome, "stage lost");
  }
  assert.deepEqual((await run((op) => (op.remember("a", "b"), retry(0, "x")))).remembered, {}); // a retry discards it
});

test("a stage memory that does not answer is tried again in seconds", async () => {
  const noAnswer = Object.assign(new Error("no answer"), { name: "TimeoutError" });
  for (const [error, retryAfter] of /** @type {[Error, number][]} */ ([[noAnswer, 5], [new Error("503 no responders"), 5], [new Error("it is full"), 0]])) {
    const memory = { put: () => Promise.reject(error), get: () => Promise.reject(error) };
    const command = { operation: { id: "o" }, stage: "s", step: "S", cursor: 1, stageAttempt: 1, stepAttempt: 1, firstTriedAt: new Date().toISOString() };
    for (const step of [(op) => void op.remember("a", "b"), async (op) => void (await op.recall("a"))]) {
      const x = { command, deadline: Date.now() + 60_000, worker: { name: "w", version: "1" }, memory, log: { error() {} }, end: new AbortController() };
      const r = await createOperation(x).execute(step);
      assert.deepEqual([r.outcome, r.retryAfter, r.error?.component], ["retry", retryAfter, "keb"], error.message);
    }
  }
});

test("a write of the stage memory that takes too long ends", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const events = new EventEmitter();
  let puts = 0;
  const memory = { put: () => (puts++, queueMicrotask(() => events.emit("put")), once(events, "answer")) };
  const command = { operation: { id: "o" }, stage: "s", step: "S", cursor: 1, stageAttempt: 1, stepAttempt: 1, firstTriedAt: new Date().toISOString() };
  const x = { command, deadline: Date.now() + 60_000, worker: { name: "w", version: "1" }, memory, log: { error() {} }, end: new AbortController() };
  const ended = createOperation(x).execute((op) => op.remember("a", "b").remember("c", "d"));
  await once(events, "put");
  t.mock.timers.tick(5000);
  const r = await ended;
  assert.deepEqual([r.outcome, r.retryAfter], ["retry", 5]);
  events.emit("answer");
  await new Promise(setImmediate);
  assert.equal(puts, 1); // the second value is not written any more
});

test("a write of the stage memory leaves no timer", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  const command = { operation: { id: "o" }, stage: "s", step: "S", cursor: 1, stageAttempt: 1, stepAttempt: 1, firstTriedAt: new Date().toISOString() };
  const x = { command, deadline: Date.now() + 60_000, worker: { name: "w", version: "1" }, memory: { put: async () => {} }, log: { error() {} }, end: new AbortController() };
  assert.equal((await createOperation(x).execute((op) => op.remember("a", "b"))).outcome, "succeeded");
  assert.equal(timers(), before);
});

test("a partial write is reported", async () => {
  let writes = 0;
  const memory = { put: async () => { if (writes++) throw new Error("it is full"); } };
  const command = { operation: { id: "o" }, stage: "s", step: "S", cursor: 1, stageAttempt: 1, stepAttempt: 1, firstTriedAt: new Date().toISOString() };
  const x = { command, deadline: Date.now() + 60_000, worker: { name: "w", version: "1" }, memory, log: { error() {} }, end: new AbortController() };
  const r = await createOperation(x).execute((op) => op.remember("a", "b").remember("c", "d"));
  assert.deepEqual([r.outcome, r.stageMemory], ["retry", true]);
});

test("a secret override of JSON does not reach the result", async () => {
  const overrides = [{ component: "c", entries: [{ key: "k", value: JSON.stringify({ x: CANARY }), secret: true }] }];
  assert.equal((await run(async (op) => (await op.overrides(), skip(`it is ${CANARY}`)), { overrides })).message, "it is [redacted]");
});

test("details, kept values and events come with the next operation", async () => {
  const kept = {};
  const first = await run(async (op) => (await op.keep({ a: 1 }), op.saveDetails({ id: 7, gone: 1 }), waitForEvent(`approval.${op.id}`, 0, "waiting")), { kept });
  assert.equal(first.eventKey, "approval.0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10");
  const second = await run(async (op) => op.saveDetails({ ...op.event.data, kept: await op.kept(), id: op.details().id + 1, gone: null }), first.nextWithEvent({ approved: true }));
  assert.deepEqual(second.details, { approved: true, kept: { a: 1 }, id: 8, gone: null });
  assert.deepEqual(second.next().details, { test: { approved: true, kept: { a: 1 }, id: 8 } });
});

test("a command that is older than the connection may have been delivered before", () => {
  const message = (deliveryCount, time) => ({ info: { deliveryCount }, time: new Date(time) });
  assert.deepEqual([isAgain(message(1, 1001), 1000), isAgain(message(2, 1001), 1000), isAgain(message(1, 999), 1000)], [false, true, true]);
  assert.equal(isAgain(message(1, 1001), Infinity), true); // the connection is lost
});
