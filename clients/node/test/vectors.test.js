// Compares the library with the test vectors of the wire contract (api/vectors).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Empty, headers } from "@nats-io/transport-node";
import { fail, StepError } from "../src/index.js";
import { maskText } from "../src/mask.js";
import { Keyring, overrideName, stageKey, valueName } from "../src/memory.js";
import { createOperation } from "../src/operation.js";
import { readSettings } from "../src/settings.js";
import {
  deadLetter, decodeCommand, encodeJSON, encodeResult, escape, isEventKey, isStepName, isWorkerName, names, serviceVersion, unescape,
} from "../src/wire.js";

const log = { debug() {}, info() {}, warn() {}, error() {} };
const command = {
  operation: { id: "op", type: "provision", instanceId: "instance" }, stage: "s", step: "S", cursor: 7, dispatch: 1, stageAttempt: 1, stepAttempt: 1,
  firstTriedAt: new Date().toISOString(), executeBefore: new Date(Date.now() + 60_000).toISOString(),
};

const end = new AbortController();

/** Runs one test for each case of a file. */
function vectors(file, run) {
  const { cases } = JSON.parse(readFileSync(new URL(`../../../api/vectors/${file}.json`, import.meta.url), "utf8"));
  assert.ok(cases.length > 0);
  for (const c of cases) test(`${file}: ${c.name}`, () => run(c.in, c.out, c.name));
}

const headersOf = (all) => {
  const h = headers();
  for (const [name, values] of Object.entries(all)) for (const value of values) h.append(name, value);
  return h;
};
const message = ({ subject, headers: all, body, sequence, time }) => ({
  subject, headers: headersOf(all), data: Buffer.from(body), string: () => body, info: { streamSequence: sequence },
  timestampNanos: time && BigInt(Date.parse(time.replace(/\.\d+Z/, "Z"))) * 1_000_000n + BigInt((/\.(\d+)Z/.exec(time)?.[1] ?? "").padEnd(9, "0")),
});
const attempt = (f) => {
  try {
    return f();
  } catch {
    return { error: true };
  }
};

vectors("commands", (given, want) => {
  if (want.unreadable) return assert.throws(() => decodeCommand(message(given)));
  const { command: c, traceparent = "" } = decodeCommand(message(given));
  const id = `${c.operation.id}/${c.cursor}`;
  const got = { commandId: id, dispatchId: `${id}/${c.dispatch}`, step: c.step, executeBefore: c.executeBefore, stageMemory: c.stageMemory ?? false, traceparent, event: c.event ?? undefined };
  assert.deepEqual(got, { event: undefined, ...want });
});

vectors("results", ({ worker, command: c, startedAt, finishedAt, ...outcome }, want) => {
  const { dispatch, traceparent, ...position } = c;
  const m = encodeResult({ ...position, worker: { name: worker.name, version: worker.version || undefined }, startedAt, finishedAt, ...outcome }, dispatch, traceparent);
  const got = Object.fromEntries([...m.headers].map(([name, [value]]) => [name, value]));
  assert.deepEqual({ ...got, "Nats-Msg-Id": m.id }, want.headers);
  assert.equal(m.subject, want.subject);
  assert.deepEqual(JSON.parse(m.body), JSON.parse(want.body));
});

vectors("messages", ({ value }, want) => assert.deepEqual(JSON.parse(encodeJSON(value)), JSON.parse(want)));

vectors("names", ({ function: name, arguments: given }, want) => {
  const functions = {
    ...names, isEventKey, isStep: isStepName, isWorker: isWorkerName, serviceVersion,
    cancelSubject: (worker) => names.workerSubject(worker, "cancel"), pingSubject: (worker) => names.workerSubject(worker, "ping"),
    ...Object.fromEntries(["current", "extend", "credentials", "keep", "kept"].map((kind) => [`${kind}Subject`, (worker) => names.askSubject(worker, kind)])),
  };
  if (!["commandSubject", "signalSubject", "user"].includes(name)) assert.deepEqual(functions[name](...given), want); // a worker needs none of these
});

vectors("percent", ({ text, header }, want) => {
  if (text !== undefined) assert.equal(escape(text), want.header);
  assert.deepEqual(attempt(() => ({ text: unescape(header ?? want.header) })), text === undefined ? want : { text });
});

vectors("stage-keys", ({ operationId, stage, stageAttempt, value, step, component, deathsOf }, want) => {
  if (deathsOf !== undefined) return; // quarantine is optional
  const name = value !== undefined ? valueName(value) : step !== undefined ? overrideName(step, component) : undefined;
  assert.equal(stageKey(operationId, stage, stageAttempt, name), want.key);
});

vectors("sealed", ({ keyring, nonce, plainBase64, sealed, associated }, want) => {
  const ring = new Keyring(keyring);
  if (nonce) assert.equal(ring.seal(Buffer.from(plainBase64, "base64"), associated, Buffer.from(nonce, "hex")), want.sealed);
  const open = () => ring.open(sealed ?? want.sealed, associated).toString("base64");
  if (want.error) assert.throws(open, new RegExp(want.error));
  else assert.equal(open(), plainBase64 ?? want.plainBase64);
});

vectors("keyrings", ({ keyring }, want) => assert.deepEqual(attempt(() => ({ ids: new Keyring(keyring).ids })), want));

vectors("overrides", async ({ step, stored, own }, want) => {
  const memory = { list: async () => new Map(Object.entries(stored).map(([name, text]) => [name, Buffer.from(text)])) };
  const { op } = createOperation({ command: { ...command, step }, memory, worker: { name: "test" }, log, end, ask: undefined, report: undefined });
  for (const { component, entries } of own) op.setOverrides(component, entries ?? []);
  assert.deepEqual(await op.overrides(), want);
});

vectors("details", ({ saved, patch }, want) => {
  const { op } = createOperation({ command: { ...command, details: { test: saved ?? undefined } }, memory: undefined, worker: { name: "test" }, log, end, ask: undefined, report: undefined });
  op.saveDetails(patch);
  assert.deepEqual(op.details(), want);
});

vectors("errors", async ({ credentials, error }, want) => {
  const step = async (op) => {
    if (credentials !== undefined) await op.claimCredentials("given");
    return fail(new StepError(error));
  };
  const operation = { ...command.operation, credentials: ["given"] };
  const x = { command: { ...command, operation }, memory: undefined, worker: { name: "test" }, log, end, report: undefined, ask: async () => ({ credentials }) };
  const r = await createOperation(x).execute(step);
  assert.deepEqual(r.error, want);
});

vectors("dead-letters", ({ message: m, worker, reason, maxPayload }, want) => {
  const copy = deadLetter(message(m), worker, maskText(reason), maxPayload);
  assert.deepEqual(Object.fromEntries(copy.headers), want.headers);
  assert.equal(copy.subject, want.subject);
  assert.equal(Buffer.from(copy.body ?? Empty).toString(), want.body);
});

vectors("masking", ({ text }, want) => assert.equal(maskText(text), want.text));

vectors("settings", (given, want) => {
  const got = attempt(() => {
    const { concurrency, rateLimit, drainTimeout, ramped } = readSettings(given);
    return { concurrency, rateLimit, drainMilliseconds: drainTimeout, ramped };
  });
  assert.deepEqual(got, want);
});

test("settings without a value are undefined", () => {
  const { user, keyring, address, caFile, serverCert } = readSettings({ KEB_STAGE_KEYS: "" });
  assert.deepEqual([user, keyring, address, caFile, serverCert], Array(5).fill(undefined));
  assert.equal(readSettings({ KEB_WORKER_DRAIN_TIMEOUT: "500us" }).drainTimeout, 1); // timers need whole milliseconds
});
