// Mistakes of a team that must not end the process.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connect } from "node:tls";
import { maskText } from "../src/mask.js";
import { serve } from "../src/monitoring.js";
import { answerQuestion, answerQuestions } from "../src/worker.js";

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

test("a question without a valid Keb-Wait has 5 seconds", async (t) => {
  const timeout = t.mock.method(AbortSignal, "timeout");
  for (const [wait, want] of [["700", 700], ["100000", 60_000], ["-1", 5000], ["1.5", 5000], ["x", 5000], [undefined, 5000]]) {
    const m = { subject: "keb.ask.w.q", json: () => ({}), headers: { get: (name) => (name === "Keb-Wait" ? wait : undefined) }, respond() {} };
    await answerQuestion({ info: { max_payload: 100 } }, "w", m, () => 1);
    assert.equal(timeout.mock.calls.at(-1)?.arguments[0], want);
  }
});

test("at most 64 questions are answered at once", async () => {
  let callback, started = 0, running = 0, most = 0;
  const nc = { info: { max_payload: 100 }, subscribe: (_, options) => (callback = options.callback) };
  const events = new EventEmitter().setMaxListeners(0);
  answerQuestions(nc, "w", "keb.ask.w.q", async () => {
    started++;
    most = Math.max(most, ++running);
    await once(events, "answer");
    running--;
  }, undefined);
  const answered = Array.from({ length: 100 }, () => new Promise((respond) => callback(null, { subject: "keb.ask.w.q", json: () => ({}), respond })));
  while (started < 64) await new Promise(setImmediate);
  events.emit("answer");
  while (started < 100) await new Promise(setImmediate);
  events.emit("answer");
  await Promise.all(answered);
  assert.equal(most, 64);
});

test("a renewed certificate of the metrics is served", async () => {
  const folder = mkdtempSync(join(tmpdir(), "keb-"));
  const [serverCert, serverKey] = ["tls.crt", "tls.key"].map((name) => join(folder, name));
  const renew = () => execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a",
    "-keyout", serverKey, "-out", serverCert], { stdio: "pipe" });
  renew();
  const server = await serve({ address: "127.0.0.1:0", serverCert, serverKey }, { metrics: () => "" }, { since: 0 });
  for (let n = 0; n < 2; n++, renew()) {
    const socket = connect({ port: /** @type {any} */ (server.address()).port, rejectUnauthorized: false });
    await once(socket, "secureConnect");
    assert.equal(socket.getPeerX509Certificate()?.serialNumber, new X509Certificate(readFileSync(serverCert)).serialNumber);
    socket.destroy();
  }
  server.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});

test("an address that cannot be served names its variable", async () => {
  await assert.rejects(serve({ address: "127.0.0.1:99999" }, {}, {}), /^Error: KEB_METRICS_ADDR: /);
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
