// One execution of a step, without a bus: the operation that the step receives (index.d.ts), and the result that becomes of it.
import { Secrets } from "./mask.js";
import { isAway, OVERRIDES, overrideName, valueName } from "./memory.js";
import { chain, classified, isBug, Outcome, report, StepEnded, StepError } from "./outcome.js";
import { duration } from "./settings.js";
import { cleanText, encodeJSON, isEventKey } from "./wire.js";

const MAX_VALUE = 256 << 10; // details and kept values, in bytes of JSON
const MAX_REMEMBERED = 512 << 10; // bytes of a remembered value
const MAX_PROGRESS = 200;
const MAX_REMOVED = 100, MAX_OBJECT = 256;
const MAX_TIMER = 2 ** 31 - 1; // of Node
const FLUSH_TIMEOUT = 5000; // milliseconds for writing the stage memory
const MEMORY_DELAY = 5; // seconds until a stage is repeated whose memory did not answer: the time in the process file is for external systems

const invalid = (message) => new StepError({ message: `invalid result: ${message}`, reason: "err_step_result" });

/** Throws an error of the broker or the stage memory, which leads to a retry. */
function throwInternal(message, cause) {
  throw new StepError({ message, cause, component: "keb", reason: "err_keb_internal", temporary: true });
}

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
 * Creates the operation of a step, and execute, which runs the step once. x has the command, its deadline, the name and version of the
 * worker, the stage memory if there is one, the log, the functions ask (a question) and report (progress), and end, which aborts the signal
 * of the step. The step may extend the deadline.
 */
export function createOperation(x) {
  const { worker, memory, log, ask, end } = x;
  const { operation, details, cursor, dispatch, stageMemory, ...position } = structuredClone(x.command);
  const { id, instanceId, credentials = [] } = operation;
  const secrets = new Secrets();
  const values = new Map(); // by their names in the stage memory
  let patch = {};
  let problem; // the first thing that a result cannot contain
  let unreadable; // why the stage memory could not be read
  let isLost = false; // the stage memory
  let isClosed = false;
  const removed = [];

  // Returns an error that fails the step, even if the step catches it.
  function reject(what) {
    if (!isClosed) problem ??= what;
    return new Error(what);
  }

  // Stores a value for the time when the step is done.
  function store(what, isValid, name, value) {
    if (!isValid) throw reject(what);
    if (!memory) throw reject(`${what}: this worker has no stage memory: set KEB_STAGE_KEYS`);
    values.set(name, value);
    return op;
  }

  async function read(what, request) {
    if (!memory) throw reject(`${what}: this worker has no stage memory: set KEB_STAGE_KEYS`);
    try {
      const found = await request();
      if (found === undefined || found.size === 0) await checkLost();
      return found;
    } catch (error) {
      if (!isLost) unreadable = error;
      return throwInternal(what, error);
    }
  }

  async function checkLost() {
    isLost = Boolean(stageMemory) && (await memory.isLost());
    if (isLost) throw new Error("the stage memory is lost");
  }

  const askBroker = (kind, what, more) =>
    ask(kind, { instanceId, operationId: id, ...more }).catch((error) => throwInternal(what, error));

  async function claim(name) {
    const what = `claim credentials ${JSON.stringify(name)}`;
    const { credentials: claimed } = await askBroker("credentials", what, { name });
    return claimed ?? throwInternal(`${what}: the broker's answer holds no credentials`);
  }

  const op = Object.freeze({
    ...operation, ...position, credentials, parameters: operation.parameters ?? {},
    firstTriedAt: new Date(position.firstTriedAt), executeBefore: new Date(x.deadline),

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

    remember: (key, value) => store(`remember ${JSON.stringify(key)}: want a key, and at most ${MAX_REMEMBERED} bytes`,
      key && Buffer.byteLength(value) <= MAX_REMEMBERED, valueName(key), Buffer.from(value)),

    setOverrides: (component, entries) => store(
      `overrides of component ${JSON.stringify(component)}: want entries with a key and a text`,
      entries.every((e) => e.key && typeof e.value === "string"), overrideName(op.step, component),
      Buffer.from(encodeJSON({ component, cursor, entries }))),

    async recall(key) {
      const name = valueName(key);
      if (values.has(name)) return Buffer.from(values.get(name));
      const value = await read(`recall ${JSON.stringify(key)}`, () => memory.get(name));
      if (value) secrets.learn(value.toString());
      return value;
    },

    async overrides() {
      const stored = await read("overrides", () => memory.list(OVERRIDES));
      const own = [...values].filter(([name]) => name.startsWith(OVERRIDES));
      for (const [name] of own) stored.delete(name);
      const others = [...stored.values()].map((value) => JSON.parse(value)).sort((a, b) => a.cursor - b.cursor);
      for (const { entries } of others) for (const e of entries) if (e.secret) secrets.learn(e.value);
      return mergeOverrides([...others, ...own.map(([, value]) => JSON.parse(value))]);
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
      const answer = await ask("extend", { operationId: id, cursor, seconds }).catch((e) => throwInternal("ask for more time", e));
      x.deadline = Math.max(x.deadline, Date.parse(answer.executeBefore));
      return new Date(x.deadline);
    },

    noteRemoved(object) {
      if (!isClosed && removed.length < MAX_REMOVED && !removed.includes(String(object))) removed.push(String(object));
      return op;
    },

    progress: (message, percent) => x.report({
      operationId: id, cursor, message: cleanText(secrets.redact(message), MAX_PROGRESS),
      percent: !Number.isFinite(percent) ? undefined : Math.min(Math.max(Math.round(percent), 0), 100),
    }),
  });

  /** Runs the step, and returns its result; nothing if isWanted, which is called when the step has returned, denies it. */
  async function execute(step, isWanted = async () => true) {
    const startedAt = new Date().toISOString();
    let timer, returned, error;
    const endAtLimit = () => {
      if (Date.now() >= x.deadline) end.abort(new StepEnded("time limit", "the time limit of the step has passed"));
      else timer = setTimeout(endAtLimit, Math.min(x.deadline - Date.now(), MAX_TIMER)); // again, if the step gets more time meanwhile
    };
    endAtLimit();
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
    let judged;
    try {
      judged = judge(returned, error, end.signal.reason, saved);
    } catch (e) { // such as that of an error without a text
      judged = withError("failed", invalid(e.message));
    }
    const result = await settle(judged);
    if (result.panicked) log.error("step threw an unexpected error", { err: secrets.redact(String(error.stack)) });
    const finishedAt = new Date().toISOString();
    return {
      operationId: id, cursor, stage: op.stage, step: op.step, worker, ...result, details: saved, startedAt, finishedAt,
      ...(removed.length && { removed: removed.map((object) => cleanText(secrets.redact(object), MAX_OBJECT)) }),
    };
  }

  // Removes secrets before it cuts a text, because a cut secret would not be found.
  const clean = (text) => cleanText(secrets.redact(text));

  function withError(outcome, error) {
    const [component, reason, message] = report(error, worker.name).map(clean);
    return { outcome, error: { component, reason, message }, ...(outcome === "retry" && { retryAfter: 0 }) };
  }

  // Returns the outcome of the step. ended is why its signal was aborted.
  function judge(returned, error, ended, saved) {
    const errors = chain(error ?? returned?.cause);
    const isAbort = errors.some((e) => e === ended || e.name === "AbortError" || e.name === "TimeoutError");
    if (problem) return withError("failed", invalid(problem));
    const isChosen = returned instanceof Outcome && ended?.why === "time limit";
    if (ended && !isChosen && (isAbort || (error && !classified(error)))) { // the step has not decided
      const reason = ended.why === "cancelled" ? "err_keb_cancelled" : "err_keb_timeout";
      const message = isAbort ? ended.message : `${ended.message}: ${error.message}`;
      const result = withError("retry", new StepError({ component: "keb", reason, message }));
      return { ...result, interrupted: ended.why === "stopping" && !saved && !removed.length };
    }
    if (error) return { ...withError(errors.some((e) => e.temporary) ? "retry" : "failed", error), panicked: isBug(error) };
    if (returned === undefined || returned === op) return { outcome: "succeeded" };
    if (returned instanceof Outcome) return chosen(returned, isChosen && isAbort && !classified(errors[0]));
    return withError("failed", invalid(`the step returned ${typeof returned}: return nothing, op, or an outcome such as retry(...)`));
  }

  // isLate means that the error of the outcome is the end of the time limit.
  function chosen(/** @type {any} */ { outcome, message, cause, after, event }, isLate) {
    const isBad = event !== undefined && !isEventKey(event);
    if (isBad) return withError("failed", invalid("event.key: want letters, digits, hyphens and underscores, with dots between them"));
    const result = { outcome, message: message && clean(message), ...(cause && withError(outcome, cause)) };
    if (isLate) result.error.reason = "err_keb_timeout";
    return outcome === "retry" ? { ...result, retryAfter: after / 1000, event: event && { key: event } } : result;
  }

  // Writes the stage memory of a step that is done. A lost memory overrides every other outcome.
  async function settle(result) {
    let failure = ["failed", "not completed"].includes(result.outcome) ? unreadable : undefined;
    let wrote, isLate, timer;
    const flush = async () => {
      await checkLost(); // or this write would make a lost memory look complete
      for (const [name, value] of values) { // too late, it could replace values of the next try
        if (!isLate) await memory.put(name, value).then(() => (wrote = true));
      }
    };
    try {
      if (!isLost && values.size && ["succeeded", "skipped"].includes(result.outcome)) {
        const late = Object.assign(new Error("no answer in time"), { name: "TimeoutError" });
        const limit = new Promise((_, reject) => (timer = setTimeout(reject, FLUSH_TIMEOUT, late)));
        await Promise.race([flush(), limit]).finally(() => clearTimeout(timer)); // a timer would keep the command in memory
      }
    } catch (error) {
      isLate = true;
      failure = new StepError({ message: "stage memory", cause: error, component: "keb", reason: "err_keb_internal" });
    }
    if (isLost) return { outcome: "stage lost", message: "the stage memory is lost" };
    const retry = { ...(failure ? withError("retry", failure) : result), stageMemory: wrote };
    const isSoon = retry.outcome === "retry" && retry.retryAfter === 0 && retry.error?.component === "keb" && isAway(failure ?? unreadable);
    return isSoon ? { ...retry, retryAfter: MEMORY_DELAY } : retry;
  }

  return { op, execute };
}
