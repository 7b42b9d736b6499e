// What becomes of a command, with a connection that the test answers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TimeoutError } from "@nats-io/transport-node";
import { createPool } from "../src/pool.js";

const STORED = { stream: "KEB_RESULTS", seq: 1 };

/** Handles a command, and returns how its message was settled, and the requests. answer returns the answer to each request. */
async function handle(/** @type {any} */ { step = () => {}, unreadable = false, answer = () => STORED, bus = { since: 0 } }) {
  const requests = [], settled = [];
  const nc = {
    options: {}, info: { max_payload: 1 << 20 },
    async request(subject, data) {
      requests.push(`${subject} ${data}`);
      const body = JSON.stringify(answer(requests.length, bus));
      return { data: Buffer.from(body), json: () => JSON.parse(body) };
    },
  };
  const settings = { concurrency: 1, rateLimit: 0 };
  const nothing = () => {};
  const log = { debug: nothing, info: nothing, warn: nothing, error: nothing, with: () => log };
  const metrics = new Proxy({}, { get: () => nothing });
  const pool = createPool({ name: "w", version: "", steps: { Step: step }, settings, log, metrics, memory: undefined,
    ask: async () => ({ current: [] }), bus, nc, signal: new AbortController().signal });
  const command = {
    operation: { id: "op", type: "provision", instanceId: "i" }, stage: "s", step: "Step", cursor: 1, dispatch: 1, stageAttempt: 1, stepAttempt: 1,
    firstTriedAt: new Date().toISOString(), executeBefore: new Date(Date.now() + 60_000).toISOString(),
  };
  const attributes = { specversion: "1.0", id: "op/1", type: "io.kyma-project.keb.step.execute.v1", source: "/keb/orchestrator" };
  const body = unreadable ? "{" : JSON.stringify(command);
  await pool.handle({
    subject: "keb.command.w.Step", headers: Object.entries(attributes).map(([name, value]) => [`ce-${name}`, [value]]), string: () => body,
    data: Buffer.from(body), info: { deliveryCount: 1, streamSequence: 1 }, time: new Date(), timestampNanos: 1n,
    ack: () => settled.push("ack"), nak: (after) => settled.push(`nak ${after}`), term: (reason) => settled.push(`term ${reason}`), working: nothing,
  });
  return { requests, settled };
}

test("a result whose answer was lost with the connection is published again", async () => {
  const reconnectDuring = (count, bus) => {
    if (count > 1) return STORED;
    bus.since = Date.now();
    throw new TimeoutError();
  };
  const { requests, settled } = await handle({ answer: reconnectDuring });
  assert.deepEqual([requests.length, requests[1], settled], [2, requests[0], ["ack"]]);
});

test("a command whose result is refused is given back", async () => {
  const { settled } = await handle({ answer: () => ({ error: { code: 503, err_code: 10077, description: "full" } }) });
  assert.deepEqual(settled, ["nak 5000"]);
});

test("a late result of a blocked event loop is unwanted", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const block = () => t.mock.timers.setTime(Date.now() + 64_000); // no timer runs meanwhile
  const { requests, settled } = await handle({ step: block });
  assert.deepEqual([requests, settled], [[], []]);
});

test("a dead letter that the stream will never accept is terminated", async () => {
  for (const [err_code, want] of [[10054, "term dead letter refused"], [10077, "nak 5000"]]) {
    const { settled } = await handle({ unreadable: true, answer: () => ({ error: { code: 400, err_code, description: "no" } }) });
    assert.deepEqual(settled, [want]);
  }
});
