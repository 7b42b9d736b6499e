// What a step returns or throws.
import { duration } from "./settings.js";
import { cleanText } from "./wire.js";

export const INTERNAL = "err_keb_internal";
export const TIMEOUT = "err_keb_timeout";
export const CANCELLED = "err_keb_cancelled";

export class StepError extends Error {
  constructor(/** @type {import("./index.js").StepErrorOptions} */ { component, reason, message, cause, temporary = false }) {
    super(message ?? "", cause === undefined ? undefined : { cause });
    this.name = "StepError";
    this.component = component;
    this.reason = reason;
    this.temporary = temporary;
  }
}

/** The reason of the signal of a step. */
export class StepEnded extends Error {
  constructor(why, message) {
    super(message);
    this.name = "AbortError";
    this.why = why;
  }
}

/** The outcome of a step that is not simply done. */
export class Outcome {
  constructor(outcome, /** @type {any} */ { message = "", cause, after = 0, event } = {}) {
    this.outcome = outcome;
    this.message = message;
    this.cause = cause;
    this.after = duration("the retry delay", after);
    this.event = event;
    Object.freeze(this);
  }
}

const asError = (e) => (typeof e === "string" ? new Error(e) : e instanceof Error || e === undefined ? e : new StepError(e));

export const retry = (after, cause) => new Outcome("retry", { after, cause: asError(cause) });
export const wait = (after, message) => new Outcome("retry", { after, message });

export const waitForEvent = (event, fallback, message) => new Outcome("retry", { event, after: fallback, message });
export const fail = (error) => new Outcome("failed", { cause: asError(error) ?? new StepError({ message: "the step failed without saying why" }) });
export const skip = (message) => new Outcome("skipped", { message });
export const notCompleted = (cause) => new Outcome("not completed", { cause: asError(cause) ?? new Error("not completed") });

export const retryWithoutFail = (op, after, budget, cause) => Date.now() - op.firstTriedAt.getTime() < duration("budget", budget)
  ? retry(after, cause) : notCompleted(cause ?? `not done within ${budget}`);

/** Lists an error and its causes. */
export function chain(error) {
  /** @type {any[]} */ const found = [];
  for (let e = (error); e instanceof Error && !found.includes(e); e = e.cause) found.push(e);
  return found;
}

export const classified = (error) => chain(error).find((e) => e instanceof StepError);

const NETWORK = {
  ECONNREFUSED: "err_connection_refused", ENOTFOUND: "err_unknown_host", EAI_AGAIN: "err_unknown_host", ETIMEDOUT: "err_network_timeout",
  UND_ERR_CONNECT_TIMEOUT: "err_network_timeout", UND_ERR_HEADERS_TIMEOUT: "err_network_timeout", UND_ERR_BODY_TIMEOUT: "err_network_timeout",
  ECONNRESET: "err_network", EPIPE: "err_network", EHOSTUNREACH: "err_network", ENETUNREACH: "err_network", UND_ERR_SOCKET: "err_network",
};

function reasonOf(errors) {
  const given = errors.find((e) => e instanceof StepError && e.reason)?.reason;
  if (given) return given;
  if (errors.some((e) => e.why === "time limit")) return TIMEOUT;
  return errors.map((e) => NETWORK[e.code] ?? (e.name === "TimeoutError" ? "err_network_timeout" : "")).find(Boolean) ?? "err_step_failed";
}

/** Returns the error of a result, with the texts of all causes. The worker is the component of an error without another one. */
export function report(error, worker) {
  const errors = chain(error);
  const message = errors.length ? errors.map((e) => e.message || e.code).filter(Boolean).join(": ") : `the step threw ${typeof error}`;
  const reason = reasonOf(errors);
  return { component: cleanText(classified(error)?.component || worker), reason: cleanText(reason), message: cleanText(message || reason) };
}
