import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { run } from "@kyma-project/keb-worker/testing";

const worker = fileURLToPath(new URL("worker.mjs", import.meta.url));
let answer = { status: 200, body: "" };
const greeter = createServer((_, response) => response.writeHead(answer.status).end(answer.body)).listen(0);
greeter.unref();
process.env.HELLO_URL = `http://127.0.0.1:${/** @type {any} */ (greeter.address()).port}/`;
const { steps } = await import("./worker.mjs");
const of = { worker: "node-greeter" };

test("Hello_World saves the greeting and passes the token on, each time", async () => {
  answer = { status: 200, body: '{"data":"hello","token":"s3cret-token"}' };
  const first = await run(steps.Hello_World, of);
  for (const r of [first, await run(steps.Hello_World, first.next())]) {
    assert.deepEqual([r.outcome, r.details], ["succeeded", { helloWorlds: "hello" }]);
    assert.deepEqual(r.overrides, [{ component: "component-name", entries: [{ key: "some.key", value: "s3cret-token", secret: true }] }]);
  }
});

test("Hello_World retries a temporary error and fails with a permanent one", async () => {
  for (const [status, body, outcome, message] of [[502, "", "retry", "502"], [403, "", "failed", "403"], [200, '{"data":1,"token":"s3cret-token"}', "failed", "expected"]]) {
    answer = { status, body };
    const r = await run(steps.Hello_World, of);
    assert.equal(r.outcome, outcome);
    assert.ok(r.error.message.includes(message) && !r.error.message.includes("s3cret"), r.error.message);
  }
});

test("Node_Greeting greets once, and fails with a reason", async () => {
  const first = await run(steps.Node_Greeting, { ...of, runtime: { name: "Orsolya's" } });
  assert.deepEqual(first.details, { greeting: "Hello, Orsolya's!" });
  assert.deepEqual((await run(steps.Node_Greeting, first.next({ runtime: { name: "other" } }))).details, first.details);
  assert.equal((await run(steps.Node_Greeting, { ...of, parameters: { delaySeconds: -1 } })).error.reason, "err_input");
});

test("the worker does not start with an invalid setting", () => {
  const folder = mkdtempSync(join(tmpdir(), "keb-"));
  const link = join(folder, "current"); // as of a deployment that switches versions
  symlinkSync(dirname(worker), link);
  for (const [name, value, path] of [["KEB_WORKER_DRAIN_TIMEOUT", "soon", worker], ["KEB_WORKER_CONCURRENCY", "many", join(link, "worker.mjs")]]) {
    // No server listens on that address: a worker that starts would wait forever.
    const env = { ...process.env, KEB_NATS_URL: "nats://127.0.0.1:1", [name]: value };
    const { status, stderr } = spawnSync(process.execPath, [path], { env, timeout: 60_000, encoding: "utf8" });
    assert.equal(status, 1);
    assert.match(stderr, new RegExp(`^keb-worker-node-greeter: ${name}: use a `));
    assert.ok(!stderr.includes(value), stderr);
  }
  rmSync(folder, { recursive: true });
});
