// Runs a step as the worker does, without a server. See testing.d.ts.
import { overrideName, valueName } from "./memory.js";
import { applyPatch, createOperation } from "./operation.js";

const DEFAULTS = {
  id: "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10", instanceId: "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20", type: "provision",
  worker: "test", stage: "create_runtime", stageAttempt: 1, stepAttempt: 1, cursor: 1, limit: 60_000, extension: Infinity, firstTried: 0,
  log: { debug() {}, info() {}, warn() {}, error() {} },
};
const VALUE = valueName("");

const mapMemory = (values) => ({
  put: async (key, value) => void values.set(key, Buffer.from(value)),
  get: async (key) => values.get(key),
  list: async (prefix) => new Map([...values].filter(([key]) => key.startsWith(prefix))),
  isLost: async () => values.size === 0,
});

/** Returns the stage memory that earlier steps have left. */
function remembered(op) {
  if (op.lostMemory) return new Map();
  const values = Object.entries(op.remembered ?? {}).map(([key, value]) => [valueName(key), Buffer.from(value)]);
  const stored = (set) => Buffer.from(JSON.stringify({ ...set, cursor: 0 }));
  const sets = (op.overrides ?? []).map((set) => [overrideName("other-steps", set.component), stored(set)]);
  return new Map([...(op.carried ?? []), ...values, ...sets]);
}

/** Runs a step once and returns its result. */
export async function run(step, given = {}) {
  /** @type {any} */ const op = { kept: {}, ...DEFAULTS, ...given };
  const { id, type, instanceId, plan, context, runtime, parameters, temporary, userAgent, update, upgrade } = op;
  const { stage, stageAttempt, stepAttempt, event, cursor, details, worker } = op;
  const values = remembered(op);
  const now = Date.now();
  const credentials = Object.keys(op.credentials ?? {}).sort();
  const command = {
    operation: { id, type, instanceId, plan, context, runtime, parameters, temporary, userAgent, update, upgrade, credentials },
    details, stage, step: op.step ?? step.name, cursor, dispatch: 1, stageAttempt, stepAttempt, event,
    stageMemory: values.size > 0 || Boolean(op.lostMemory),
    firstTriedAt: new Date(now - op.firstTried).toISOString(), executeBefore: new Date(now + op.limit).toISOString(),
  };
  const answers = {
    keep: ({ value }) => void (op.kept[worker] = structuredClone(value)),
    kept: () => ({ value: op.kept[worker] }),
    extend: ({ seconds }) => ({ executeBefore: new Date(Date.now() + Math.min(seconds * 1000, op.extension)).toISOString() }),
    credentials: ({ name }) => ({ credentials: name === "neighbours" ? { count: op.neighbours ?? 0 } : op.credentials[name] }),
  };
  const progress = [];
  const x = {
    command, worker: { name: worker, version: "test" }, memory: mapMemory(values), log: op.log, end: op.end ?? new AbortController(),
    ask: async (kind, request) => answers[kind](request), report: ({ message, percent }) => progress.push({ message, percent }),
  };
  const r = await createOperation(x).execute(step);
  const isRepeated = r.outcome === "retry" || r.outcome === "stage lost";
  const next = (more = {}) => ({
    ...op, details: { ...details, [worker]: applyPatch(details?.[worker], r.details) }, cursor: cursor + 1,
    lostMemory: false, remembered: undefined, overrides: undefined, carried: isRepeated ? undefined : values,
    event: isRepeated && !r.event ? event : undefined, stageAttempt: stageAttempt + Number(isRepeated),
    stepAttempt: stepAttempt + Number(isRepeated), firstTried: op.firstTried + (r.retryAfter ?? 0) * 1000, ...more,
  });
  const { op: later } = createOperation({ ...x, command: { ...command, step: "later", stageMemory: false } });
  const kept = [...values].filter(([key]) => key.startsWith(VALUE));
  return {
    outcome: r.outcome, retryAfter: r.retryAfter && r.retryAfter * 1000, message: r.message, error: r.error, details: r.details,
    eventKey: r.event?.key, progress, overrides: await later.overrides(),
    remembered: Object.fromEntries(kept.map(([key, value]) => [key.slice(VALUE.length), value])),
    next,
    nextWithEvent: (data) => next({ event: { key: r.event?.key, source: "/test", id: "1", receivedAt: new Date().toISOString(), data } }),
  };
}
