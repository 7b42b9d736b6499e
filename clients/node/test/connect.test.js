// How a worker connects to a server that refuses it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { worker } from "../src/index.js";
import { readSettings } from "../src/settings.js";

/** Starts a server that calls answer with each connection and what it received, and returns the server and the environment of a worker. */
async function listen(answer) {
  const server = createServer((socket) => {
    socket.on("error", () => {}); // the client closes the connection
    socket.write('INFO {"version": "2.12.0", "max_payload": 1000, "headers": true}\r\n');
    socket.on("data", (data) => answer(socket, String(data)));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = /** @type {any} */ (server.address());
  return { server, env: { KEB_NATS_URL: `nats://127.0.0.1:${port}`, KEB_LOG_LEVEL: "error" } };
}

test("a server that refuses the credentials ends the worker", async () => {
  const { server, env } = await listen((socket) => socket.end("-ERR 'Authorization Violation'\r\n"));
  const signal = new AbortController().signal;
  await assert.rejects(worker("slow", { Step: () => {} }).run({ env, signal }), /connect to the bus: .*Authorization Violation/i);
  server.close();
});

test("a worker that is stopped before the first connection ends without an error", async () => {
  const stop = new AbortController();
  let connections = 0;
  const { server, env } = await listen((socket) => { // a slow network: it tries again
    if (++connections === 2) stop.abort();
    socket.end("-ERR 'Authentication Timeout'\r\n");
  });
  await worker("slow", { Step: () => {} }).run({ env, signal: stop.signal });
  server.close();
});

test("a worker that is stopped while the bus is away ends without an error", async () => {
  const stop = new AbortController();
  const { server, env } = await listen((socket, data) => {
    if (data.includes("PING")) socket.write("PONG\r\n");
    if (!data.includes("keb.ask.slow.q")) return;
    socket.destroy();
    server.close();
    stop.abort();
  });
  await worker("slow", {}, { questions: { "keb.ask.slow.q": () => {} } }).run({ env, signal: stop.signal });
});

test("a second signal of any kind ends the process at once", async () => {
  const { server, env } = await listen((socket, data) => {
    if (data.includes("PING") && !data.includes("UNSUB")) socket.write("PONG\r\n"); // no answer lets the connection drain
    if (data.includes("keb.ask.slow.q")) child.kill("SIGTERM");
    if (data.includes("UNSUB")) child.kill("SIGINT");
  });
  const index = new URL("../src/index.js", import.meta.url);
  const script = `import { worker } from "${index}"; await worker("slow", {}, { questions: { "keb.ask.slow.q": () => {} } }).run();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { env: { ...process.env, ...env } });
  assert.deepEqual(await once(child, "exit"), [1, null]);
  server.close();
});

test("TLS files and passwords are read at the start", () => {
  const folder = mkdtempSync(join(tmpdir(), "keb-"));
  const file = (name, text) => (writeFileSync(join(folder, name), text), join(folder, name));
  const bad = file("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  assert.throws(() => readSettings({ KEB_NATS_CA_FILE: bad }), /KEB_NATS_CA_FILE, .*: /);
  assert.throws(() => readSettings({ KEB_NATS_CA_FILE: join(folder, "none") }), /ENOENT/);
  assert.throws(() => readSettings({ KEB_NATS_CERT_FILE: bad }), /KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE: set both files/);
  assert.throws(() => readSettings({ KEB_METRICS_TLS_CLIENT_CA_FILE: bad }), /KEB_METRICS_TLS_CERT_FILE, .*: /);
  const password = readSettings({ KEB_NATS_USER: "a", KEB_NATS_PASSWORD_FILE: file("password", " b \r\n") }).password;
  assert.equal(password, " b ");
  rmSync(folder, { recursive: true });
});
