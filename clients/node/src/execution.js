// One execution of a step, without a bus: the operation that the step receives, and the result from what it does.
import { maskText, REDACTED } from "./mask.js";
import { OVERRIDES, overrideName, valueName } from "./memory.js";
import { CANCELLED, chain, classified, INTERNAL, Outcome, report, StepEnded, StepError, TIMEOUT } from "./outcome.js";
import { cleanText, encodeJSON, isEventKey, storedSize } from "./wire.js";

export const MAX_TIMER = 2 ** 31 - 1; // of Node, in milliseconds
const MAX_VALUE = 256 << 10; // details and kept values, in bytes
const MAX_STORED = 512 << 10;
const MAX_REMEMBERED = 512 << 10;
const MIN_SECRET = 8; // shorter texts occur in ordinary words
const MIN_SECRET_WORD = 24; // a word in a longer text, such as a token in a kubeconfig

const internal = (message, cause) => new StepError({ message, cause, component: "keb", reason: INTERNAL, temporary: true });
const invalid = (message) => new StepError({ message: `invalid result: ${message}`, reason: "err_step_result" });

class StageLost extends Error {}

/** The operation of a step (index.d.ts), and what the step does with it. */
export class Session {
  patch = {};
  values = new Map();
  components = new Map();
  secrets = [];
  invalid;
  unreadable;
  isLost = false;
  isClosed = false;

    constructor(x) {
    this.x = x;
    const { operation, details, cursor, dispatch, ...position } = structuredClone(x.command);
    const methods = ["details", "saveDetails", "remember", "recall", "setOverrides", "overrides", "claimCredentials", "neighbours", "keep", "kept"];
    this.operation = (Object.freeze({
      ...operation, ...position, parameters: operation.parameters ?? {}, credentials: operation.credentials ?? [],
      firstTriedAt: new Date(x.command.firstTriedAt), executeBefore: new Date(x.command.executeBefore),
      ...Object.fromEntries(methods.map((name) => [name, this[name].bind(this)])),
    }));
  }

  // Records the first value that a result cannot contain.
  spoil(message) {
    const error = new Error(message);
    if (!this.isClosed) this.invalid ??= error;
    return error;
  }

  details(worker = this.x.worker.name) {
    const saved = structuredClone(this.x.command.details?.[worker] ?? {});
    if (worker !== this.x.worker.name) return saved;
    return Object.fromEntries(Object.entries({ ...saved, ...structuredClone(this.patch) }).filter(([, value]) => value !== null));
  }

    saveDetails(members) {
    if (this.isClosed) throw new Error("save details: the step has already returned");
    let json;
    try {
      json = encodeJSON(members);
    } catch (error) {
      throw this.spoil(`save details: ${error.message}`);
    }
    if (!json?.startsWith("{")) throw this.spoil("save details: want an object");
    if (/(?<!\\)(?:\\\\)*\\u0000/.test(json)) throw this.spoil("save details: a text holds a NUL character, which cannot be stored");
    const patch = { ...this.patch, ...JSON.parse(json) };
    const size = Buffer.byteLength(JSON.stringify(patch));
    if (size > MAX_VALUE) throw this.spoil(`save details: ${size} bytes, at most ${MAX_VALUE} are allowed`);
    const stored = storedSize(JSON.stringify(patch));
    if (stored > MAX_STORED) throw this.spoil(`save details: they have ${stored} bytes as the database writes them, at most ${MAX_STORED} are allowed`);
    this.patch = patch;
    return this.operation;
  }

    remember(key, value) {
    const raw = Buffer.from(value);
    if (!key) throw this.spoil("remember: the key is empty");
    if (raw.length > MAX_REMEMBERED) throw this.spoil(`remember ${JSON.stringify(key)}: ${raw.length} bytes, at most ${MAX_REMEMBERED} are allowed`);
    this.#memory(`remember ${JSON.stringify(key)}`);
    this.values.set(key, raw);
    return this.operation;
  }

    setOverrides(component, entries) {
    const what = `overrides of component ${JSON.stringify(component)}`;
    this.#memory(what);
    if (!entries.every((e) => e.key && typeof e.value === "string")) throw this.spoil(`${what}: an entry has no key, or a value that is not a text`);
    this.components.set(component, structuredClone(entries));
    return this.operation;
  }

    #memory(what) {
    if (!this.x.memory) throw this.spoil(`${what}: this worker has no stage memory: set KEB_STAGE_KEYS`);
    return this.x.memory;
  }

  async #read(what, read) {
    const memory = this.#memory(what);
    try {
      const found = await read(memory);
      const isEmpty = found === undefined || (found instanceof Map && found.size === 0);
      if (isEmpty) await this.checkLost();
      return found;
    } catch (error) {
      if (!(error instanceof StageLost)) this.unreadable = error;
      throw internal(what, error);
    }
  }

  async checkLost() {
    if (!this.x.command.stageMemory || !(await this.x.memory?.isLost())) return;
    this.isLost = true;
    throw new StageLost("the stage memory is lost");
  }

    async recall(key) {
    const own = this.values.get(key);
    if (own) return Buffer.from(own);
    const value = await this.#read(`recall ${JSON.stringify(key)}`, (memory) => memory.get(valueName(key)));
    if (value) this.learn(value.toString());
    return value;
  }

  async overrides() {
    const stored = await this.#read("overrides", (memory) => memory.list(OVERRIDES));
    const sets = [...stored].map(([name, value]) => ({ name, ...JSON.parse(value.toString()) }))
      .filter(({ name, component }) => !(this.components.has(component) && name === overrideName(this.x.command.step, component)))
      .sort((a, b) => a.cursor - b.cursor);
    for (const { entries } of sets) for (const e of entries) if (e.secret) this.learn(e.value);
    const merged = new Map();
    for (const { component, entries } of [...sets, ...[...this.components].map(([component, entries]) => ({ component, entries }))]) {
      if (!merged.has(component)) merged.set(component, new Map());
      for (const e of entries) merged.get(component)?.set(e.key, e);
    }
    const byKey = (x, y) => (x[0] < y[0] ? -1 : 1);
    return [...merged].sort(byKey).map(([component, entries]) => ({ component, entries: [...entries].sort(byKey).map(([, e]) => e) }));
  }

    async #ask(kind, what, more) {
    const { id, instanceId } = this.x.command.operation;
    try {
      return await this.x.ask(kind, { instanceId, operationId: id, ...more });
    } catch (error) {
      throw internal(what, error);
    }
  }

    async claimCredentials(name) {
    const what = `claim credentials ${JSON.stringify(name)}`;
    const names = this.operation.credentials;
    if (!names.includes(name)) throw new Error(`${what}: the operation has no such credentials (it has ${names.join(", ") || "none"})`);
    const { credentials } = await this.#ask("credentials", what, { name });
    if (credentials === undefined) throw internal(`${what}: the broker's answer holds no credentials`, undefined);
    this.learn(credentials);
    return credentials;
  }

  async neighbours() {
    return (await this.#ask("credentials", "claim neighbours", { name: "neighbours" })).credentials.count;
  }

    async keep(value) {
    const size = Buffer.byteLength(encodeJSON(value) ?? "");
    if (size === 0 || size > MAX_VALUE) throw new Error(`keep a value: ${size} bytes of JSON, at most ${MAX_VALUE} are allowed`);
    await this.#ask("keep", "keep a value", { value });
  }

  async kept() {
    return (await this.#ask("kept", "read what is kept", {})).value;
  }

  // Records the secrets in a value, so that they are removed from the result.
  learn(value) {
    const add = (text, least) => {
      const isAddress = text.includes("://") && !text.includes("@"); // errors need addresses
      if (text.length >= least && !isAddress && !text.endsWith(":") && !this.secrets.includes(text)) this.secrets.push(text);
    };
    for (const text of texts(typeof value === "string" ? parsed(value) : value)) {
      add(text.trim(), MIN_SECRET);
      const words = text.split(/[ \t\r\n"',]+/).filter(Boolean);
      if (words.length > 1) words.forEach((word) => add(word, MIN_SECRET_WORD));
    }
    this.secrets.sort((a, b) => b.length - a.length); // a secret may contain another one
  }

  // Removes secrets from a text, also the start of one where the text was cut.
  redact(text) {
    for (const secret of this.secrets) {
      text = text.replaceAll(secret, REDACTED);
      for (let n = secret.length; text.endsWith("...") && n >= MIN_SECRET; n--) {
        if (text.endsWith(`${secret.slice(0, n)}...`)) text = text.slice(0, -n - 3) + REDACTED;
      }
    }
    return maskText(text);
  }

  // Writes what the step remembers, and reports whether it has written anything.
  async flush() {
    if (this.values.size + this.components.size === 0) return false;
    await this.checkLost(); // or this write would make a lost memory look complete
    const memory = this.#memory("flush");
    for (const [key, value] of this.values) await memory.put(valueName(key), value);
    for (const [component, entries] of this.components) {
      const value = encodeJSON({ component, cursor: this.x.command.cursor, entries });
      await memory.put(overrideName(this.x.command.step, component), Buffer.from(value));
    }
    return true;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const texts = (value) => (typeof value === "string" ? [value] : value && typeof value === "object" ? Object.values(value).flatMap(texts) : []);

/** Runs a step once. */
export async function execute(step, x) {
  const { command: c, end = new AbortController() } = x;
  const s = new Session(x);
  const r = { outcome: "", operationId: c.operation.id, cursor: c.cursor, stage: c.stage, step: c.step, worker: x.worker,
    startedAt: new Date().toISOString(), finishedAt: "" };
  const overdue = () => end.abort(new StepEnded("time limit", "the time limit of the step has passed"));
  const timer = setTimeout(overdue, Math.min(Date.parse(c.executeBefore) - Date.now(), MAX_TIMER));
  let returned;
  let error;
  try {
    returned = await step(s.operation, { signal: end.signal, log: x.log });
  } catch (thrown) {
    [returned, error] = thrown instanceof Outcome ? [thrown, undefined] : [undefined, thrown ?? new Error("the step threw nothing")];
  }
  clearTimeout(timer);
  const ended = end.signal.aborted ? (end.signal.reason) : undefined;
  if (x.isWanted && !(await x.isWanted())) return { ...r, unwanted: true };
  s.isClosed = true;
  if (Object.keys(s.patch).length) r.details = s.patch;
  if (s.invalid) {
    delete r.details;
    Object.assign(r, { outcome: "failed", error: report(invalid(s.invalid.message), x.worker.name) });
  } else judge(r, returned === s.operation ? undefined : returned, error, ended);
  r.panicked = isBug(error);
  if (r.panicked && r.error && r.outcome === "failed") r.error.reason = "err_step_panicked";
  if (r.panicked) x.log.error("step threw an unexpected error", { err: s.redact(String(error.stack)) });
  await settle(s, r);
  guard(s, r);
  r.finishedAt = new Date().toISOString();
  return r;
}

// Reports whether an error is a mistake in the program. The errors of fetch are TypeErrors with a cause.
const isBug = (error) => [TypeError, ReferenceError, RangeError].some((kind) => error instanceof kind) && error.cause === undefined;

/** Sets the outcome. ended is why the signal was aborted when the step returned. */
function judge(r, returned, error, ended) {
  const outcome = returned instanceof Outcome ? returned : undefined;
  if (returned !== undefined && !outcome) {
    error = invalid(`the step returned ${typeof returned}: return nothing, the operation, or an outcome such as retry(...)`);
  }
  const cause = outcome ? outcome.cause : error;
  const isAbort = chain(cause).some((e) => e === ended || e.name === "AbortError" || e.name === "TimeoutError");
  const isStop = ended && (isAbort || (error && !classified(error)));
  if (isStop && ended.why === "cancelled") {
    return Object.assign(r, { outcome: "retry", retryAfter: 0, error: { component: "keb", reason: CANCELLED, message: cleanText(ended.message) } });
  }
  if (isStop && ended.why === "stopping") {
    const message = cleanText(`the worker stops: ${report(cause, r.worker.name).message}`);
    return Object.assign(r, { outcome: "retry", retryAfter: 0, error: { component: "keb", reason: TIMEOUT, message }, interrupted: r.details === undefined });
  }
  if (outcome) {
    const { event, after } = outcome;
    if (event !== undefined && !isEventKey(event)) {
      return judge(r, undefined, invalid("event.key: want letters, digits, hyphens and underscores, with dots between them"));
    }
    Object.assign(r, { outcome: outcome.outcome, message: outcome.message ? cleanText(outcome.message) : undefined });
    if (outcome.outcome === "retry") Object.assign(r, { retryAfter: after / 1000, event: event && { key: event } });
    if (cause !== undefined) r.error = report(cause, r.worker.name);
  } else if (error === undefined) r.outcome = "succeeded";
  else if (isStop) Object.assign(r, { outcome: "retry", retryAfter: 0, error: { ...report(error, r.worker.name), reason: TIMEOUT } });
  else if (chain(error).some((e) => e instanceof StepError && e.temporary)) Object.assign(r, { outcome: "retry", retryAfter: 0, error: report(error, r.worker.name) });
  else Object.assign(r, { outcome: "failed", error: report(error, r.worker.name) });
}

/** Writes the stage memory of a step that is done. A lost memory overrides every other outcome. */
async function settle(s, r) {
  const postpone = (error) => {
    Object.assign(r, { outcome: "retry", message: undefined, retryAfter: 0, event: undefined, error: report(internal("stage memory", error), r.worker.name) });
  };
  if (s.unreadable && (r.outcome === "failed" || r.outcome === "not completed")) postpone(s.unreadable);
  if (!s.isLost && (r.outcome === "succeeded" || r.outcome === "skipped")) {
    try {
      r.stageMemory = (await s.flush()) || undefined;
    } catch (error) {
      postpone(error);
    }
  }
  const none = { retryAfter: undefined, event: undefined, error: undefined, interrupted: false };
  if (s.isLost) Object.assign(r, { ...none, outcome: "stage lost", message: "the stage memory is lost" });
}

/** Removes secrets from the texts of a result, and rejects details with a secret that the step received. */
function guard(s, r) {
  const leaking = Object.keys(r.details ?? {}).find((name) => texts(r.details[name]).some((text) => s.secrets.some((secret) => text.includes(secret))));
  if (leaking) {
    delete r.details;
    const message = `details member ${JSON.stringify(leaking)} holds a secret; keep secrets in the stage memory`;
    Object.assign(r, { outcome: "failed", message: undefined, error: report(invalid(message), r.worker.name) });
  }
  if (r.message) r.message = s.redact(r.message);
  if (r.error) r.error = { component: s.redact(r.error.component), reason: s.redact(r.error.reason), message: s.redact(r.error.message) };
}
