// Mistakes of a team that must not end the process.
import assert from "node:assert/strict";
import { test } from "node:test";
import { maskText } from "../src/mask.js";
import { serve } from "../src/monitoring.js";
import { answerQuestion } from "../src/worker.js";

test("every question has an answer", async () => {
  const answers = {
    "{}": () => undefined,
    '{"error":"the answer is too large"}': () => "\u00e9".repeat(60),
    '{"error":"the question failed"}': () => { throw undefined; },
    '{"error":"password=[redacted]"}': () => { throw new Error("password=x"); },
  };
  for (const [want, answer] of Object.entries(answers)) {
    let got;
    const m = { subject: "keb.ask.w.q", json: () => ({}), respond: (body) => (got = body) };
    await answerQuestion({ info: { max_payload: 100 } }, "w", m, answer);
    assert.equal(got, want);
  }
});

test("a metric that rejects is an error of the scrape", async () => {
  const registry = { metrics: () => Promise.reject(new Error("no pool")) };
  const server = await serve({ address: "127.0.0.1:0" }, registry, { since: 0 });
  const answer = await fetch(`http://127.0.0.1:${/** @type {any} */ (server.address()).port}/metrics`);
  assert.deepEqual([answer.status, await answer.text()], [500, "no pool"]);
  server.close().closeAllConnections();
});

test("a long body is masked in time", () => {
  const started = Date.now();
  const body = "a.".repeat(50_000);
  assert.equal(maskText(`${body} x://u:p@h`), `${body} x://[redacted]@h`);
  assert.ok(Date.now() - started < 1000);
});
