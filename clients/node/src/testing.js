// Runs a step as the worker does, without a server. See testing.d.ts.
import { execute, Session } from "./execution.js";
import { overrideName, valueName } from "./memory.js";

const DEFAULTS = { id: "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10", instanceId: "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20", type: "provision", stage: "create_runtime",
  worker: "test", stageAttempt: 1, stepAttempt: 1, limit: 60_000, firstTried: 0, cursor: 1, log: { debug() {}, info() {}, warn() {}, error() {} } };

const mapMemory = (values) => ({
  put: async (key, value) => void values.set(key, Buffer.from(value)),
  get: async (key) => values.get(key),
  list: async (prefix) => new Map([...values].filter(([key]) => key.startsWith(prefix))),
  isLost: async () => values.size === 0,
});

/** Runs a step once and returns its result. */
export async function run(step, given = {}) {
  /** @type {any} */ const op = { kept: {}, ...DEFAULTS, ...given };
  const values = new Map(op.lostMemory ? [] : op.carried);
  if (!op.lostMemory) {
    for (const [key, value] of Object.entries(op.remembered ?? {})) values.set(valueName(key), Buffer.from(value));
    for (const { component, entries } of op.overrides ?? []) {
      values.set(overrideName("other-steps", component), Buffer.from(JSON.stringify({ component, cursor: 0, entries })));
    }
  }
  const { id, type, instanceId, plan, context, runtime, parameters, temporary, userAgent, update, upgrade, stage, stageAttempt, stepAttempt, event, cursor, details } = op;
  const now = Date.now();
  const execution = {
    command: {
      operation: { id, type, instanceId, plan, context, runtime, parameters, temporary, userAgent, update, upgrade, credentials: Object.keys(op.credentials ?? {}).sort() },
      details, stage, step: op.step ?? step.name, cursor, dispatch: 1, stageAttempt, stepAttempt, event, stageMemory: values.size > 0 || Boolean(op.lostMemory),
      firstTriedAt: new Date(now - op.firstTried).toISOString(), executeBefore: new Date(now + op.limit).toISOString(),
    },
    worker: { name: op.worker, version: "test" }, memory: mapMemory(values), log: op.log, end: op.end,
    ask: async (kind, request) => {
      if (kind === "keep") op.kept[op.worker] = structuredClone(request.value);
      if (kind === "credentials") return { credentials: request.name === "neighbours" ? { count: op.neighbours ?? 0 } : op.credentials[request.name] };
      return { value: op.kept[op.worker] };
    },
  };
  const r = await execute(step, execution);
  const next = (more = {}) => {
    const isRepeated = r.outcome === "retry" || r.outcome === "stage lost";
    const saved = new Session({ ...execution, command: { ...execution.command, details } });
    saved.patch = r.details ?? {};
    return {
      ...op, details: { ...details, [op.worker]: saved.details() }, lostMemory: false, remembered: undefined, overrides: undefined, cursor: cursor + 1,
      event: isRepeated && !r.event ? event : undefined, carried: isRepeated ? undefined : values, stageAttempt: stageAttempt + Number(isRepeated),
      stepAttempt: stepAttempt + Number(isRepeated), firstTried: op.firstTried + (r.retryAfter ?? 0) * 1000, ...more,
    };
  };
  return {
    outcome: r.outcome, retryAfter: r.retryAfter && r.retryAfter * 1000, message: r.message, error: r.error, details: r.details, eventKey: r.event?.key,
    overrides: await new Session({ ...execution, command: { ...execution.command, step: "other", stageMemory: false } }).overrides(),
    remembered: Object.fromEntries([...values].filter(([key]) => key.startsWith(valueName(""))).map(([key, value]) => [key.slice(valueName("").length), value])),
    next,
    nextWithEvent: (data) => next({ event: { key: r.event?.key, source: "/test", id: "1", receivedAt: new Date().toISOString(), data } }),
  };
}
