// How a worker connects to a server that refuses it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { worker } from "../src/index.js";
import { readSettings } from "../src/settings.js";

const refusals = {
  "Authentication Timeout": /stopped before the bus was available/, // a slow network: it tries again
  "Authorization Violation": /connect to the bus: .*Authorization Violation/i,
};

for (const [refusal, want] of Object.entries(refusals)) {
  test(`a server refuses with ${refusal}`, async () => {
    const stop = new AbortController();
    let connections = 0;
    const server = createServer((socket) => {
      if (++connections === 2) stop.abort();
      socket.on("error", () => {}); // the client closes the connection
      socket.write('INFO {"version": "2.12.0", "max_payload": 1000}\r\n');
      socket.once("data", () => socket.end(`-ERR '${refusal}'\r\n`));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = /** @type {any} */ (server.address());
    const env = { KEB_NATS_URL: `nats://127.0.0.1:${port}`, KEB_LOG_LEVEL: "error" };
    await assert.rejects(worker("slow", { Step: () => {} }, {}).run({ env, signal: stop.signal }), want);
    server.close();
  });
}

test("TLS files and passwords are read at the start", () => {
  const folder = mkdtempSync(join(tmpdir(), "keb-"));
  const file = (name, text) => (writeFileSync(join(folder, name), text), join(folder, name));
  const bad = file("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  assert.throws(() => readSettings({ KEB_NATS_CA_FILE: bad }), /KEB_NATS_CA_FILE, .*: /);
  assert.throws(() => readSettings({ KEB_NATS_CA_FILE: join(folder, "none") }), /ENOENT/);
  assert.throws(() => readSettings({ KEB_NATS_CERT_FILE: bad }), /KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE: set both, or neither/);
  const password = readSettings({ KEB_NATS_USER: "a", KEB_NATS_PASSWORD_FILE: file("password", " b \r\n") }).password;
  assert.equal(password, " b ");
  rmSync(folder, { recursive: true });
});
