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

/** Returns the error of a result, with the texts of all causes. */
export function report(error) {
  const errors = chain(error);
  const message = errors.length ? errors.map((e) => e.message || e.code).filter(Boolean).join(": ") : `the step threw ${typeof error}`;
  const step = classified(error);
  const timedOut = errors.some((e) => e.name === "TimeoutError" || e.why === "time limit");
  const reason = step?.reason || errors.find((e) => e instanceof StepError && e.reason)?.reason || (timedOut ? TIMEOUT : INTERNAL);
  return { component: cleanText(step?.component || "keb"), reason: cleanText(reason), message: cleanText(message || reason) };
}
