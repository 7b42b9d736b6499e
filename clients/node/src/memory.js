// The stage memory: sealed values that the steps of a stage share in a key-value bucket of NATS (libs/stagemem).
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { createInbox } from "@nats-io/transport-node";
import { chain } from "./outcome.js";
import { encodeBytes } from "./wire.js";

const BUCKET = "keb_stage";
const SUBJECTS = `$KV.${BUCKET}.`;
const MARKER = "="; // marks a scope as used; no encoded name is equal to it
const EXISTS = [10071, 10164]; // the codes of a marker that is there, on one server and in a cluster
const ANSWER = 2000; // for one request, in milliseconds
const MISSING = 10_000; // how long to wait for the bucket, which the orchestrator creates again after a restart of NATS
const MAX_KNOWN = 10_000;

export const valueName = (key) => `value.${key}`;
export const OVERRIDES = "override.";
export const overrideName = (step, component) => `${OVERRIDES}${step}.${component}`;

// A name as one token of a key.
const encodeToken = (text) => encodeBytes(text, /[^A-Za-z0-9_-]/g, "=");
const decodeToken = (token) => decodeURIComponent(token.replaceAll("=", "%"));

/** Returns the key of an entry in the bucket; without a name it is the marker of the scope. */
export const stageKey = (operationId, stage, attempt, name) =>
  `${encodeToken(operationId)}.${encodeToken(stage)}.${attempt}.${name === undefined ? MARKER : encodeToken(name)}`;

/** Returns a function that opens the memory of the stage attempt of a command. It never creates the bucket, and waits for it. */
export function stageMemory(nc, keyring) {
  const marked = new Set(); // scopes whose marker this process has seen: to write one again would hide a loss
  const bucket = new Kvm(jetstream(nc, { timeout: ANSWER, checkAPI: false })).open(BUCKET, { allow_direct: true });

  // Waits for a missing bucket, and repeats a request without an answer once.
  async function withRetry(request) {
    const until = Date.now() + MISSING;
    for (let timeouts = 0; ; ) {
      try {
        return await request(await bucket);
      } catch (error) {
        const isMissing = chain(error).some((e) => e.name === "NoRespondersError" || /^503|no responders/.test(e.message));
        const isSilent = error.name === "TimeoutError" && timeouts++ === 0;
        if (!isSilent && !(isMissing && Date.now() < until)) throw error;
        if (isMissing) await sleep(250);
      }
    }
  }

  function know(scope) {
    if (marked.size > MAX_KNOWN) marked.clear();
    marked.add(scope);
  }

  // Requests the last message of each subject at once: a watch would need the right to create a consumer.
  async function readAll(scope) {
    const inbox = createInbox(nc.options.inboxPrefix);
    const answers = nc.subscribe(inbox, { timeout: ANSWER });
    nc.publish(`$JS.API.DIRECT.GET.KV_${BUCKET}`, JSON.stringify({ multi_last: [`${SUBJECTS}${scope}*`] }), { reply: inbox });
    const values = new Map();
    try {
      for await (const m of answers) {
        const { code, description } = m.headers;
        const isComplete = code === 204 && m.headers.get("Nats-Num-Pending") === "0";
        if (isComplete || (code === 404 && description === "No Results")) return values;
        if (code !== 0) throw new Error(`the server answers ${code} ${description}`);
        const key = m.headers.get("Nats-Subject").slice(SUBJECTS.length);
        const isValue = !key.endsWith(MARKER) && !m.headers.has("KV-Operation");
        if (isValue) values.set(decodeToken(key.slice(scope.length)), keyring.open(m.string(), key));
      }
      throw new Error("the connection was closed");
    } finally {
      answers.unsubscribe();
    }
  }

  return ({ operation, stage, stageAttempt }) => {
    const keyOf = (name) => stageKey(operation.id, stage, stageAttempt, name);
    const scope = keyOf("");
    const create = (kv) => kv.create(keyOf(), "").catch((error) => {
      if (!EXISTS.includes(error.code)) throw error;
    });
    return {
      async put(name, value) {
        if (!marked.has(scope)) await withRetry(create);
        know(scope);
        await withRetry((kv) => kv.put(keyOf(name), keyring.seal(value, keyOf(name))));
      },
      async get(name) {
        const entry = await withRetry((kv) => kv.get(keyOf(name)));
        return entry?.operation === "PUT" ? keyring.open(entry.string(), keyOf(name)) : undefined;
      },
      async list(prefix) {
        const all = await withRetry(() => readAll(scope));
        return new Map([...all].filter(([name]) => name.startsWith(prefix)));
      },
      async isLost() {
        const marker = await withRetry((kv) => kv.get(keyOf()));
        if (marker) know(scope);
        return !marker;
      },
    };
  };
}
