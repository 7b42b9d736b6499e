import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { count, duration } from "./settings.mjs";

test("duration parses every format of Go", () => {
  const times = {
    "20s": 20_000, "1.5s": 1500, "500ms": 500, "1h0m0s": 3_600_000, "1m30s": 90_000, "2h45m30.5s": 9_930_500, "1.5h": 5_400_000, "250µs": 0.25,
    "250us": 0.25, "1000000ns": 1, "24h0m0s": 86_400_000,
  };
  for (const [text, want] of Object.entries(times)) assert.equal(duration("TIME", text, 7), want, text);
});

test("duration returns the default for an empty or zero time", () => {
  for (const text of [undefined, "", "0", "0s", "0h0m0s"]) assert.equal(duration("TIME", text, 20_000), 20_000, text);
});

test("duration rejects an invalid time and explains the format", () => {
  for (const text of ["20", "s", "1d", "-5s", "1,5s", "5 s", "20s ", "1.s", "soon", "25h", "9".repeat(400) + "s"]) {
    assert.throws(() => duration("TIME", text, 7), (e) => e.message.startsWith(`TIME ${JSON.stringify(text)}: use a time up to 24h`), text);
  }
});

test("count accepts only whole numbers up to 1000", () => {
  for (const [text, want] of [[undefined, 8], ["", 8], ["0", 8], ["1", 1], ["1000", 1000]]) assert.equal(count("N", text, 8), want, text);
  for (const text of ["-1", "1.5", "many", "1001", "1e3", "NaN"]) assert.throws(() => count("N", text, 8), /^Error: N ".*": use a whole number/, text);
});

test("the worker does not start with an invalid setting", () => {
  const worker = fileURLToPath(new URL("worker.mjs", import.meta.url));
  for (const [name, value] of [["KEB_WORKER_DRAIN_TIMEOUT", "soon"], ["KEB_WORKER_CONCURRENCY", "many"]]) {
    // No server listens on that address: a worker that starts would wait forever.
    const env = { ...process.env, KEB_NATS_URL: "nats://127.0.0.1:1", [name]: value };
    const { status, stderr } = spawnSync(process.execPath, [worker], { env, timeout: 60_000, encoding: "utf8" });
    assert.equal(status, 1);
    assert.match(stderr, new RegExp(`^node-greeter: ${name} "${value}": use a `));
  }
});
