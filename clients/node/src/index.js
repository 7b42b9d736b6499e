export { fail, notCompleted, retry, retryWithoutFail, skip, StepEnded, StepError, wait, waitForEvent } from "./outcome.js";
export { worker } from "./worker.js";
