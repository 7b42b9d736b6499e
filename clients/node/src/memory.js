// The stage memory: sealed values that the steps of a stage share in a key-value bucket of NATS (libs/stagemem).
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { chain } from "./outcome.js";
import { encodeBytes } from "./wire.js";

const BUCKET = "KV_keb_stage";
const SUBJECTS = "$KV.keb_stage.";
const MARKER = "="; // marks a scope as used; no encoded name is equal to it
const EXISTS = [10071, 10164]; // the codes of a marker that is there, on one server and in a cluster
const ANSWER = 2000; // for one request, in milliseconds
const MISSING = 10_000; // how long to wait for the bucket, which the orchestrator creates again after a restart of NATS, or for a replica
const PAUSE = 100; // before the next request to a missing bucket, or to a replica that lags
const MAX_KNOWN = 10_000;
const NONCE = 12;
const TAG = 16;

/** The keys that seal values: "v1.<key id>.<base64url of nonce, ciphertext and tag>", AES-256-GCM. */
export class Keyring {
  #keys = new Map();

  /** Parses "id1:base64key,id2:base64key". The first key seals, all keys open. Errors contain no key. */
  constructor(text) {
    text.trim().split(",").forEach((entry, i) => {
      const [, id, encoded = ""] = /^([A-Za-z0-9_-]{1,64}):([A-Za-z0-9+/]*|[A-Za-z0-9_-]*)=*$/.exec(entry.trim()) ?? [];
      const key = Buffer.from(encoded, "base64");
      if (key.length !== 32) throw new Error(`key ${i + 1}: want "<id>:<base64 of 32 bytes>", with an id of letters, digits, - and _`);
      if (this.#keys.has(id)) throw new Error(`key ${i + 1}: the id ${JSON.stringify(id)} is duplicated`);
      this.#keys.set(id, key);
    });
  }

  get ids() {
    return [...this.#keys.keys()];
  }

  /** Encrypts a value and binds it to the text associated. */
  seal(plain, associated, nonce = randomBytes(NONCE)) {
    const prefix = `v1.${this.ids[0]}.`;
    const cipher = createCipheriv("aes-256-gcm", this.#keys.get(this.ids[0]), nonce).setAAD(Buffer.from(prefix + associated));
    return prefix + Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]).toString("base64url");
  }

  /** Decrypts a sealed value. */
  open(sealed, associated) {
    const [, id, encoded = ""] = /^v1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*)$/.exec(sealed) ?? [];
    if (id && !this.#keys.has(id)) throw new Error(`open: key id ${JSON.stringify(id)}: sealed with an unknown key`);
    const raw = Buffer.from(encoded, "base64url");
    try {
      if (raw.toString("base64url") !== encoded) throw new Error("another text of the same bytes");
      const decipher = createDecipheriv("aes-256-gcm", this.#keys.get(id), raw.subarray(0, NONCE), { authTagLength: TAG });
      decipher.setAAD(Buffer.from(`v1.${id}.${associated}`)).setAuthTag(raw.subarray(-TAG));
      return Buffer.concat([decipher.update(raw.subarray(NONCE, -TAG)), decipher.final()]);
    } catch {
      throw new Error("open: sealed value is damaged or belongs to another owner");
    }
  }
}

export const valueName = (key) => `value.${key}`;
export const OVERRIDES = "override.";
export const overrideName = (step, component) => `${OVERRIDES}${step}.${component}`;

const encodeToken = (text) => encodeBytes(text, /[^A-Za-z0-9_-]/g, "=");
const decodeToken = (token) => decodeURIComponent(token.replaceAll("=", "%"));

/** Returns the key of an entry in the bucket; without a name it is the marker of the scope. */
export const stageKey = (operationId, stage, attempt, name) =>
  `${encodeToken(operationId)}.${encodeToken(stage)}.${attempt}.${name === undefined ? MARKER : encodeToken(name)}`;

/** Reports whether the bucket did not answer, does not exist at present, or has a replica that lags. */
export const isAway = (error) => chain(error).some((e) =>
  /^(NoResponders|Timeout|StreamNotFound|Lagging)Error$/.test(e.name) || /^503|no responders/.test(e.message));

/** Repeats a request without an answer, and waits for a missing bucket, or for a replica that lags. */
async function withRetry(request) {
  for (const until = Date.now() + MISSING; ; await sleep(PAUSE)) {
    try {
      return await request();
    } catch (error) {
      if (!isAway(error) || Date.now() > until) throw error;
    }
  }
}

/** Returns a function that opens the memory of the stage attempt of a command. It never creates the bucket. Tests pass a manager. */
export function stageMemory(nc, keyring, manager = jetstreamManager(nc, { timeout: ANSWER, checkAPI: false })) {
  const marked = new Set(); // scopes whose marker this process has seen: to write one again would hide a loss
  const js = jetstream(nc, { timeout: ANSWER });

  return ({ operation, stage, stageAttempt }) => {
    const keyOf = (name) => stageKey(operation.id, stage, stageAttempt, name);
    const scope = keyOf("");
    const open = (m, key) => (m.header.has("KV-Operation") ? undefined : keyring.open(m.string(), key));
    // Any replica of the bucket answers a read, and one that lags does not have the latest values: the leader knows how many there are.
    const checkLeader = async (keys, found) => {
      const { state } = await (await manager).streams.info(BUCKET, { subjects_filter: SUBJECTS + keys });
      const there = Object.keys(state.subjects ?? {}).length;
      if (there > found) throw Object.assign(new Error(`a replica has ${found} of ${there} values`), { name: "LaggingError" });
    };
    const find = (key) => withRetry(async () => {
      const m = await (await manager).direct.getMessage(BUCKET, { last_by_subj: SUBJECTS + key });
      if (!m) await checkLeader(key, 0);
      return m;
    });
    const know = () => {
      if (marked.size > MAX_KNOWN) marked.clear();
      marked.add(scope);
    };
    // Requests the last message of each subject at once: a watch would need the right to create a consumer.
    const readAll = async () => {
      const values = new Map();
      let found = 0;
      for await (const m of await (await manager).direct.getLastMessagesFor(BUCKET, { multi_last: [`${SUBJECTS}${scope}*`] })) {
        const key = m.subject.slice(SUBJECTS.length);
        const value = key.endsWith(MARKER) ? undefined : open(m, key);
        if (value) values.set(decodeToken(key.slice(scope.length)), value);
        found++;
      }
      await checkLeader(`${scope}*`, found);
      return values;
    };
    return {
      async put(name, value) {
        const mark = () => js.publish(SUBJECTS + keyOf(), "", { expect: { lastSubjectSequence: 0 } }).catch((error) => {
          if (!EXISTS.includes(error.code)) throw error;
        });
        if (!marked.has(scope)) await withRetry(mark);
        know();
        await withRetry(() => js.publish(SUBJECTS + keyOf(name), keyring.seal(value, keyOf(name))));
      },
      async get(name) {
        const m = await find(keyOf(name));
        return m ? open(m, keyOf(name)) : undefined;
      },
      list: async (prefix) => new Map([...await withRetry(readAll)].filter(([name]) => name.startsWith(prefix))),
      async isLost() {
        const marker = await find(keyOf());
        if (marker) know();
        return !marker;
      },
    };
  };
}
