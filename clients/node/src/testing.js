// Runs a step as the worker does, without a server. See testing.d.ts.
import { overrideName, valueName } from "./memory.js";
import { applyPatch, createOperation } from "./operation.js";

const DEFAULTS = {
  id: "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10", instanceId: "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20", type: "provision",
  worker: "test", stage: "create_runtime", stageAttempt: 1, stepAttempt: 1, cursor: 1, limit: 60_000, extension: Infinity, firstTried: 0,
  log: { debug() {}, info() {}, warn() {}, error() {} },
};
const VALUE = valueName("");

/** Runs a step once and returns its result. */
export async function run(step, given = {}) {
  /** @type {any} */ const all = { kept: {}, ...DEFAULTS, ...given };
  const {
    worker, details, credentials = {}, neighbours = 0, kept, remembered = {}, overrides = [], carried = [], lostMemory, firstTried, limit,
    extension, log, end = new AbortController(), stage, step: name = step.name, stageAttempt, stepAttempt, cursor, event, ...order
  } = all;
  const values = new Map(lostMemory ? [] : carried);
  for (const [key, value] of Object.entries(lostMemory ? {} : remembered)) values.set(valueName(key), Buffer.from(value));
  for (const set of lostMemory ? [] : overrides) {
    values.set(overrideName("other-steps", set.component), Buffer.from(JSON.stringify({ ...set, cursor: 0 })));
  }
  const memory = {
    put: async (key, value) => void values.set(key, Buffer.from(value)),
    get: async (key) => values.get(key),
    list: async (prefix) => new Map([...values].filter(([key]) => key.startsWith(prefix))),
    isLost: async () => values.size === 0,
  };
  const answers = {
    keep: ({ value }) => void (kept[worker] = structuredClone(value)),
    kept: () => ({ value: kept[worker] }),
    extend: ({ seconds }) => ({ executeBefore: new Date(Date.now() + Math.min(seconds * 1000, extension)).toISOString() }),
    credentials: (request) => ({ credentials: request.name === "neighbours" ? { count: neighbours } : credentials[request.name] }),
  };
  const command = {
    operation: { ...order, credentials: Object.keys(credentials).sort() }, details, stage, step: name, cursor, dispatch: 1, stageAttempt,
    stepAttempt, event, stageMemory: values.size > 0 || Boolean(lostMemory), firstTriedAt: new Date(Date.now() - firstTried).toISOString(),
  };
  const progress = [];
  const x = {
    command, deadline: Date.now() + limit, worker: { name: worker, version: "test" }, memory, log, end,
    ask: async (kind, request) => answers[kind](request), report: ({ message, percent }) => progress.push({ message, percent }),
  };
  const r = await createOperation(x).execute(step);
  const repeats = Number(r.outcome === "retry" || r.outcome === "stage lost");
  const next = (more = {}) => ({
    ...all, details: { ...details, [worker]: applyPatch(details?.[worker], r.details) }, cursor: cursor + 1,
    lostMemory: false, remembered: undefined, overrides: undefined, carried: repeats ? undefined : values,
    event: repeats && !r.event ? event : undefined, stageAttempt: stageAttempt + repeats, stepAttempt: stepAttempt + repeats,
    firstTried: firstTried + (r.retryAfter ?? 0) * 1000, ...more,
  });
  const isValue = (/** @type {any} */ [key]) => key.startsWith(VALUE);
  const { op: later } = createOperation({ ...x, command: { ...command, step: "later", stageMemory: false } });
  return {
    outcome: r.outcome, retryAfter: r.retryAfter && r.retryAfter * 1000, message: r.message, error: r.error, details: r.details, removed: r.removed,
    eventKey: r.event?.key, progress, overrides: await later.overrides(),
    remembered: Object.fromEntries([...values].filter(isValue).map(([key, value]) => [key.slice(VALUE.length), value])),
    next,
    nextWithEvent: (data) => next({ event: { key: r.event?.key, source: "/test", id: "1", receivedAt: new Date().toISOString(), data } }),
  };
}
