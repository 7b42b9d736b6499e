// One execution of a step, without a bus: the operation that the step receives (index.d.ts), and the result that becomes of it.
import { createSecrets } from "./mask.js";
import { OVERRIDES, overrideName, valueName } from "./memory.js";
import { chain, classified, isBug, Outcome, report, StepEnded, StepError } from "./outcome.js";
import { duration } from "./settings.js";
import { cleanText, encodeJSON, isEventKey } from "./wire.js";

const MAX_VALUE = 256 << 10; // details and kept values, in bytes of JSON
const MAX_STORED = 512 << 10; // details as the database writes them, and a remembered value
const MAX_PROGRESS = 200;

export const timeUntil = (time) => Math.min(time - Date.now(), 2 ** 31 - 1); // the most of a timer of Node
const invalid = (message) => new StepError({ message: `invalid result: ${message}`, reason: "err_step_result" });
const internal = (message, cause) => new StepError({ message, cause, component: "keb", reason: "err_keb_internal", temporary: true });

// How much larger JSON becomes in Postgres, which stores numbers without exponents.
const expansion = (json) =>
  [...json.matchAll(/"(?:\\.|[^"\\])*"|e([+-]?\d+)/g)].reduce((sum, [, exponent = 0]) => sum + Math.abs(Number(exponent)), 0);

/** Returns the details of a worker with a patch. */
export const applyPatch = (saved, patch) =>
  structuredClone(Object.fromEntries(Object.entries({ ...saved, ...patch }).filter(([, value]) => value !== null)));

/** Returns a patch with more members, or throws if they cannot be stored. */
function addToPatch(patch, members) {
  const json = encodeJSON({ ...patch, ...members });
  const size = Buffer.byteLength(json);
  if (typeof members !== "object" || Array.isArray(members)) throw new Error("want an object");
  if (/(?<!\\)(?:\\\\)*\\u0000/.test(json)) throw new Error("a text holds a NUL character, which cannot be stored");
  if (size > MAX_VALUE) throw new Error(`${size} bytes, at most ${MAX_VALUE} are allowed`);
  if (size + expansion(json) > MAX_STORED) throw new Error(`at most ${MAX_STORED} bytes are allowed as the database writes them`);
  return JSON.parse(json);
}

/** Merges sets of overrides, of which a later one wins, ordered by component and key. */
function mergeOverrides(sets) {
  const merged = new Map(sets.map(({ component }) => [component, new Map()]));
  for (const { component, entries } of sets) for (const e of entries) merged.get(component).set(e.key, e);
  const ordered = (map) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
  return ordered(merged).map(([component, entries]) => ({ component, entries: ordered(entries).map(([, e]) => e) }));
}

/**
 * Creates the operation of a step, and execute, which runs the step once. x has the command, the worker, the stage memory if there is one,
 * the log, the functions ask (a question), report (progress) and onExtended (a new time limit), and end, which aborts the signal of the step.
 */
export function createOperation({ command, worker, memory, log, ask, report: reportProgress, onExtended = (_deadline) => {}, end }) {
  const { operation, details, cursor, dispatch, ...position } = structuredClone(command);
  const { id, instanceId, credentials = [], parameters } = operation;
  const secrets = createSecrets();
  const values = new Map();
  const components = new Map();
  let patch = {};
  let problem; // the first thing that a result cannot contain
  let unreadable; // why the stage memory could not be read
  let isLost = false; // the stage memory
  let isClosed = false;
  let deadline = Date.parse(command.executeBefore);

  // Returns an error that fails the step, even if the step catches it.
  function reject(what) {
    if (!isClosed) problem ??= what;
    return new Error(what);
  }

  function requireMemory(what) {
    if (!memory) throw reject(`${what}: this worker has no stage memory: set KEB_STAGE_KEYS`);
  }

  async function read(what, request) {
    requireMemory(what);
    try {
      const found = await request();
      if (found === undefined || found.size === 0) await checkLost();
      return found;
    } catch (error) {
      if (!isLost) unreadable = error;
      throw internal(what, error);
    }
  }

  async function checkLost() {
    isLost = Boolean(command.stageMemory) && (await memory.isLost());
    if (isLost) throw new Error("the stage memory is lost");
  }

  const askBroker = (kind, what, more) => ask(kind, { instanceId, operationId: id, ...more }).catch((error) => {
    throw internal(what, error);
  });

  async function claim(name) {
    const what = `claim credentials ${JSON.stringify(name)}`;
    const answer = await askBroker("credentials", what, { name });
    if (answer.credentials === undefined) throw internal(`${what}: the broker's answer holds no credentials`);
    return answer.credentials;
  }

  const op = Object.freeze({
    ...operation, ...position, credentials, parameters: parameters ?? {},
    firstTriedAt: new Date(position.firstTriedAt), executeBefore: new Date(position.executeBefore),

    details: (name = worker.name) => applyPatch(details?.[name], name === worker.name ? patch : {}),

    saveDetails(members) {
      try {
        if (isClosed) throw new Error("the step has already returned");
        patch = addToPatch(patch, members);
      } catch (error) {
        throw reject(`save details: ${error.message}`);
      }
      return op;
    },

    remember(key, value) {
      const what = `remember ${JSON.stringify(key)}`;
      if (!key || value.length > MAX_STORED) throw reject(`${what}: want a key, and at most ${MAX_STORED} bytes`);
      requireMemory(what);
      values.set(key, Buffer.from(value));
      return op;
    },

    setOverrides(component, entries) {
      const what = `overrides of component ${JSON.stringify(component)}`;
      const isSetting = (e) => e.key && typeof e.value === "string";
      if (!entries.every(isSetting)) throw reject(`${what}: want entries with a key and a text`);
      requireMemory(what);
      components.set(component, structuredClone(entries));
      return op;
    },

    async recall(key) {
      if (values.has(key)) return Buffer.from(values.get(key));
      const value = await read(`recall ${JSON.stringify(key)}`, () => memory.get(valueName(key)));
      if (value) secrets.learn(value.toString());
      return value;
    },

    async overrides() {
      const stored = await read("overrides", () => memory.list(OVERRIDES));
      const own = [...components].map(([component, entries]) => ({ component, entries }));
      for (const { component } of own) stored.delete(overrideName(op.step, component));
      const others = [...stored.values()].map((value) => JSON.parse(value)).sort((a, b) => a.cursor - b.cursor);
      secrets.learn(others.flatMap(({ entries }) => entries.filter((e) => e.secret).map((e) => e.value)));
      return mergeOverrides([...others, ...own]);
    },

    async claimCredentials(name) {
      const known = credentials.join(", ") || "none";
      if (!credentials.includes(name)) throw new Error(`${name}: the operation has no such credentials (it has ${known})`);
      const claimed = await claim(name);
      secrets.learn(claimed);
      return claimed;
    },

    neighbours: async () => (await claim("neighbours")).count,

    async keep(value) {
      const size = Buffer.byteLength(encodeJSON(value) ?? "");
      if (size === 0 || size > MAX_VALUE) throw new Error(`keep a value: ${size} bytes of JSON, at most ${MAX_VALUE} are allowed`);
      await askBroker("keep", "keep a value", { value });
    },

    kept: async () => (await askBroker("kept", "read what is kept")).value,

    async extend(time) {
      const seconds = duration(time, "more time: ") / 1000;
      const { executeBefore } = await ask("extend", { operationId: id, cursor, seconds }).catch((error) => {
        throw internal("ask for more time", error);
      });
      deadline = Math.max(deadline, Date.parse(executeBefore));
      onExtended(deadline);
      return new Date(deadline);
    },

    progress: (message, percent) => reportProgress({
      operationId: id, cursor, message: cleanText(secrets.redact(message), MAX_PROGRESS),
      percent: percent === undefined ? undefined : Math.min(Math.max(Math.round(percent), 0), 100),
    }),
  });

  /** Runs the step, and returns its result; nothing if isWanted, which is called when the step has returned, denies it. */
  async function execute(step, isWanted = async () => true) {
    const startedAt = new Date().toISOString();
    let timer;
    const endAtLimit = () => {
      if (Date.now() >= deadline) end.abort(new StepEnded("time limit", "the time limit of the step has passed"));
      else timer = setTimeout(endAtLimit, timeUntil(deadline)); // again, if the step got more time meanwhile
    };
    endAtLimit();
    let returned, error;
    try {
      returned = await step(op, { signal: end.signal, log });
    } catch (thrown) {
      if (thrown instanceof Outcome) returned = thrown;
      else error = thrown instanceof Error ? thrown : new Error(`the step threw ${thrown === undefined ? "nothing" : typeof thrown}`);
    }
    clearTimeout(timer);
    if (!(await isWanted())) return undefined;
    const leaking = Object.keys(patch).find((name) => secrets.isIn(patch[name]));
    if (leaking) reject(`details member ${JSON.stringify(leaking)} holds a secret; keep secrets in the stage memory`);
    isClosed = true;
    const saved = problem || Object.keys(patch).length === 0 ? undefined : patch;
    const result = await settle(judge(returned, error, end.signal.reason, saved));
    if (result.panicked) log.error("step threw an unexpected error", { err: secrets.redact(String(error.stack)) });
    const finishedAt = new Date().toISOString();
    return { operationId: id, cursor, stage: op.stage, step: op.step, worker, ...result, details: saved, startedAt, finishedAt };
  }

  function withError(outcome, error) {
    const [component, reason, message] = report(error, worker.name).map(secrets.redact);
    return { outcome, error: { component, reason, message }, ...(outcome === "retry" && { retryAfter: 0 }) };
  }

  // Returns the outcome of the step. ended is why its signal was aborted.
  function judge(returned, error, ended, saved) {
    const errors = chain(error ?? returned?.cause);
    const isAbort = errors.some((e) => e === ended || e.name === "AbortError" || e.name === "TimeoutError");
    if (problem) return withError("failed", invalid(problem));
    if (ended && (isAbort || (error && !classified(error)))) return cutShort(ended, isAbort ? "" : `: ${error.message}`, saved);
    if (error) return { ...withError(errors.some((e) => e.temporary) ? "retry" : "failed", error), panicked: isBug(error) };
    if (returned === undefined || returned === op) return { outcome: "succeeded" };
    if (returned instanceof Outcome) return chosen(returned);
    return withError("failed", invalid(`the step returned ${typeof returned}: return nothing, op, or an outcome such as retry(...)`));
  }

  // Returns the outcome of a step whose signal was aborted before it had decided.
  function cutShort({ why, message }, more, saved) {
    const reason = why === "cancelled" ? "err_keb_cancelled" : "err_keb_timeout";
    const result = withError("retry", new StepError({ component: "keb", reason, message: message + more }));
    return { ...result, interrupted: why === "stopping" && !saved };
  }

  function chosen({ outcome, message, cause, after, event }) {
    const isBad = event !== undefined && !isEventKey(event);
    if (isBad) return withError("failed", invalid("event.key: want letters, digits, hyphens and underscores, with dots between them"));
    const result = { outcome, message: message && secrets.redact(cleanText(message)), ...(cause && withError(outcome, cause)) };
    return outcome === "retry" ? { ...result, retryAfter: after / 1000, event: event && { key: event } } : result;
  }

  // Writes the stage memory of a step that is done. A lost memory overrides every other outcome.
  async function settle(result) {
    let failure = ["failed", "not completed"].includes(result.outcome) ? unreadable : undefined;
    try {
      if (["succeeded", "skipped"].includes(result.outcome)) result.stageMemory = await flush();
    } catch (error) {
      failure = error;
    }
    if (isLost) return { outcome: "stage lost", message: "the stage memory is lost" };
    return failure ? withError("retry", internal("stage memory", failure)) : result;
  }

  // Writes what the step remembers. It returns true if it has written anything.
  async function flush() {
    if (isLost || values.size + components.size === 0) return undefined;
    await checkLost(); // or this write would make a lost memory look complete
    for (const [key, value] of values) await memory.put(valueName(key), value);
    for (const [component, entries] of components) {
      await memory.put(overrideName(op.step, component), Buffer.from(encodeJSON({ component, cursor, entries })));
    }
    return true;
  }

  return { op, execute };
}
