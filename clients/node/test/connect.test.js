// How a worker connects to a server that refuses it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { worker } from "../src/index.js";

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
