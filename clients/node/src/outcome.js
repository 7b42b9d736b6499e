// What a step returns or throws, and the error of its result.
import { duration } from "./settings.js";

export class StepError extends Error {
  component; reason; temporary;

  constructor(/** @type {import("./index.js").StepErrorOptions} */ { component, reason, message = "", cause, temporary = false }) {
    super(message, { cause });
    Object.assign(this, { name: "StepError", component, reason, temporary });
  }
}

/** The reason of the signal of a step. */
export class StepEnded extends Error {
  why;

  constructor(why, message) {
    super(message);
    Object.assign(this, { name: "AbortError", why });
  }
}

const asError = (e) => (typeof e === "string" ? new Error(e) : e instanceof Error || e === undefined ? e : new StepError(e));

/** The outcome of a step that is not simply done. */
export class Outcome {
  constructor(outcome, /** @type {any} */ { message, cause, after = 0, event }) {
    const time = duration(after, `the retry delay ${after}: `);
    Object.freeze(Object.assign(this, { outcome, message, cause: asError(cause), after: time, event }));
  }
}

export const retry = (after, cause) => new Outcome("retry", { after, cause });
export const wait = (after, message) => new Outcome("retry", { after, message });
export const waitForEvent = (event, fallback, message) => new Outcome("retry", { event, after: fallback, message });
export const fail = (cause = "the step failed without an error message") => new Outcome("failed", { cause });
export const skip = (message) => new Outcome("skipped", { message });
export const notCompleted = (cause = "not completed") => new Outcome("not completed", { cause });
export const retryWithoutFail = (op, after, budget, cause = `not done within ${budget}`) =>
  Date.now() - op.firstTriedAt.getTime() < duration(budget, "the budget: ") ? retry(after, cause) : notCompleted(cause);

/** Lists an error and its causes. */
export function chain(error) {
  /** @type {any[]} */ const found = [];
  for (let e = error; e instanceof Error && !found.includes(e); e = e.cause) found.push(e);
  return found;
}

export const classified = (error) => chain(error).find((e) => e instanceof StepError);

const NETWORK = {
  err_connection_refused: /^ECONNREFUSED$/,
  err_unknown_host: /^(ENOTFOUND|EAI_AGAIN)$/,
  err_network_timeout: /^(ETIMEDOUT|TimeoutError|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT)$/,
  err_network: /^(ECONNRESET|EPIPE|ECONNABORTED|EHOSTUNREACH|ENETUNREACH|UND_ERR_SOCKET)$/,
};

// Reports whether an error is a mistake in the program. The errors of fetch are TypeErrors with a cause.
export const isBug = (error) => [TypeError, ReferenceError, RangeError].some((kind) => error instanceof kind) && !error.cause;

/** Returns component, reason and message of an error, with the texts of all causes. The worker is the component by default. */
export function report(error, worker) {
  const errors = chain(error);
  const network = Object.keys(NETWORK).find((reason) => errors.some((e) => NETWORK[reason].test(e.code) || NETWORK[reason].test(e.name)));
  const found = errors.find((e) => e instanceof StepError && e.reason)?.reason;
  const reason = found ?? (isBug(error) ? "err_step_panicked" : network ?? "err_step_failed");
  const message = errors.map((e) => e.message || e.code).filter(Boolean).join(": ") || reason;
  return [classified(error)?.component || worker, reason, message];
}
