// The stage memory: sealed values that the steps of a stage share in a key-value bucket of NATS (libs/stagemem).
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { createInbox } from "@nats-io/transport-node";
import { chain } from "./outcome.js";

const BUCKET = "keb_stage";
const SUBJECTS = `$KV.${BUCKET}.`;
const MARKER = "="; // the key that marks a scope as used; no encoded key is equal to it
const ANSWER = 2000; // for one request, in milliseconds; a request without an answer is repeated once
const MISSING = 10_000; // how long to wait for the bucket, which the orchestrator creates again after a restart of NATS
const MAX_KNOWN = 10_000;

/** Returns the key of an entry in the bucket; without a name it is the marker of the scope. */
export const stageKey = (operationId, stage, attempt, name) =>
  `${encodeToken(operationId)}.${encodeToken(stage)}.${attempt}.${name === undefined ? MARKER : encodeToken(name)}`;
export const valueName = (key) => `value.${key}`;
export const OVERRIDES = "override.";
export const overrideName = (step, component) => `${OVERRIDES}${step}.${component}`;

/** Encodes a text as one token of a key. */
export const encodeToken = (text) => Buffer.from(text).toString("latin1")
  .replace(/[^A-Za-z0-9_-]/g, (c) => `=${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
const decodeToken = (token) =>
  Buffer.from(token.replace(/=([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16))), "latin1").toString();

export class BusMemory {
  constructor(nc, keyring) {
    this.nc = nc;
    this.keyring = keyring;
    this.kv = new Kvm(jetstream(nc, { timeout: ANSWER, checkAPI: false })).open(BUCKET, { allow_direct: true });
    // Scopes whose marker this process has seen. It never writes them again, so that new values do not hide a loss.
    this.known = new Set();
  }

  // Returns the memory of one attempt of a stage.
  of(operationId, stage, attempt) {
    const prefix = stageKey(operationId, stage, attempt, "");
    return {
      put: async (key, value) => {
        const full = stageKey(operationId, stage, attempt, key);
        await this.#do((kv) => this.#mark(kv, prefix));
        await this.#do((kv) => kv.put(full, this.keyring.seal(value, full)));
      },
      get: async (key) => {
        const full = stageKey(operationId, stage, attempt, key);
        const entry = await this.#do((kv) => kv.get(full));
        return entry?.operation === "PUT" ? this.keyring.open(entry.string(), full) : undefined;
      },
      list: (start) => this.#do(() => this.#list(prefix, start)),
      isLost: async () => {
        const entry = await this.#do((kv) => kv.get(prefix + MARKER));
        if (entry) this.#know(prefix);
        return !entry;
      },
    };
  }

    async #mark(kv, prefix) {
    if (this.known.has(prefix)) return;
    try {
      await kv.create(prefix + MARKER, "");
    } catch (error) {
      if (error.code !== 10071) throw error; // another step has written it
    }
    this.#know(prefix);
  }

    #know(prefix) {
    if (this.known.size >= MAX_KNOWN) this.known.delete((this.known.values().next().value));
    this.known.add(prefix);
  }

  // Requests the last message of each subject at once: a watch would need the right to create a consumer.

  async #list(scope, start) {
    const inbox = createInbox((this.nc).options.inboxPrefix);
    const answers = this.nc.subscribe(inbox, { timeout: ANSWER });
    this.nc.publish(`$JS.API.DIRECT.GET.KV_${BUCKET}`, JSON.stringify({ multi_last: [`${SUBJECTS}${scope}*`] }), { reply: inbox });
    const values = new Map();
    try {
      for await (const m of answers) {
        const code = m.headers?.code ?? 0;
        const noResults = code === 404 && m.headers?.description === "No Results";
        if (noResults || (code === 204 && m.headers?.get("Nats-Num-Pending") === "0")) return values;
        if (code !== 0) throw new Error(`the server answers ${code} ${m.headers?.description}`);
        const full = (m.headers?.get("Nats-Subject") ?? "").slice(SUBJECTS.length);
        const token = full.slice(scope.length);
        if (token === MARKER || m.headers?.has("KV-Operation")) continue;
        const key = decodeToken(token);
        if (key.startsWith(start)) values.set(key, this.keyring.open(m.string(), full));
      }
      throw new Error("the connection was closed");
    } finally {
      answers.unsubscribe();
    }
  }

  async #do(request) {
    const until = Date.now() + MISSING;
    for (let timeouts = 0; ; ) {
      try {
        return await request(await this.kv);
      } catch (error) {
        const isMissing = chain(error).some((e) => e.name === "NoRespondersError" || /^503|no responders/.test(e.message));
        const isLost = error.name === "TimeoutError" && timeouts++ === 0;
        if (!isLost && !(isMissing && Date.now() < until)) throw error;
        if (isMissing) await sleep(250);
      }
    }
  }
}
