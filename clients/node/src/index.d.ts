// The API of the package, with its documentation.

/** A time: milliseconds, or a text such as "500ms", "10s", "1.5m" or "1h30m". */
export type Time = number | string;

export type Log = Record<"debug" | "info" | "warn" | "error", (message: string, attributes?: Record<string, unknown>) => void>;

/** One setting of a component. The consumer must keep the value of a secret one in a Secret. */
export interface Override { key: string; value: string; secret?: boolean }
export interface ComponentOverrides { component: string; entries: Override[] }

/** The input of a step: the order, the position of the operation, and access to its saved data and to the stage memory. */
export interface Operation {
  /** A UUID that is the same in every step and attempt. */
  readonly id: string;
  readonly type: "provision" | "deprovision" | "update" | "upgradeKyma" | "upgradeCluster";
  readonly instanceId: string;
  readonly plan: { id: string; name: string };
  readonly context: Record<string, string>;
  readonly runtime: { name: string; shootName: string; shootDomain: string; provider: string; region: string };
  /** The parameters of the order with the defaults of the plan, without secrets. */
  readonly parameters: Record<string, any>;
  /** The names that claimCredentials accepts. */
  readonly credentials: string[];
  /** The deprovisioning only suspends the instance. */
  readonly temporary?: boolean;
  readonly purpose?: "suspension" | "expiry" | "unsuspension";
  readonly userAgent?: string;
  readonly update?: { parameters?: Record<string, any>; credentials?: string[]; licenseType?: boolean; plan?: boolean };
  readonly upgrade?: { orchestrationId: string; kymaVersion?: string; kubernetesVersion?: string; dryRun?: boolean; [member: string]: any };
  readonly stage: string;
  readonly step: string;
  /** These count from 1. */
  readonly stageAttempt: number;
  readonly stepAttempt: number;
  /** The first try of this step since it last succeeded, from which its budgets count. */
  readonly firstTriedAt: Date;
  /** The signal of the step is aborted at this time. */
  readonly executeBefore: Date;
  /** The event that the step has waited for; undefined if none has come. */
  readonly event?: { key: string; source: string; id: string; receivedAt: string; data?: any };

  /** Returns the details that a worker (by default this one) has saved in this or an earlier operation of the instance; {} if none. */
  details(worker?: string): any;
  /** Saves members of this worker's details: they replace members of the same name, and null removes one. They must not contain secrets. */
  saveDetails(members: Record<string, any>): Operation;
  /** Stores a value in the stage memory for later steps of the stage, when the step is done or skipped. */
  remember(key: string, value: string | Uint8Array): Operation;
  /** Returns a value that a step of this stage has remembered; undefined if none has. */
  recall(key: string): Promise<Buffer | undefined>;
  /** Stores settings of a component in the stage memory, when the step is done or skipped. */
  setOverrides(component: string, entries: Override[]): Operation;
  /** Returns what the steps of this stage have set, ordered by component and key. */
  overrides(): Promise<ComponentOverrides[]>;
  /** Requests credentials of the instance from the broker. Neither log nor save them. */
  claimCredentials(name: string): Promise<any>;
  /** Returns the number of other instances in the subaccount. */
  neighbours(): Promise<number>;
  /** Lets the broker keep one value of the instance for this worker, sealed, at once: any JSON of at most 256 KiB. */
  keep(value: any): Promise<void>;
  /** Returns the kept value; undefined if none is kept. */
  kept(): Promise<any>;
  /** Asks the orchestrator for this time from now on, and returns the granted time limit. An error means that the old limit stays. */
  extend(time: Time): Promise<Date>;
  /** Reports that the step deleted an object in its external system, such as "evaluation 12". A missing object does not count. */
  noteRemoved(object: string): Operation;
  /** Shows operators how far the step is, such as "3 of 7 nodes" and 43 percent. The last report of each second is sent, and may be lost. */
  progress(message: string, percent?: number): void;
}

/** The outcome of a step that is not simply done. A step returns it, or throws it. */
export interface Outcome { readonly outcome: string }

export interface StepContext {
  /** Is aborted at executeBefore, when the command is cancelled, and when the worker stops; its reason is a StepEnded. Pass it to every call. */
  signal: AbortSignal;
  log: Log;
}

/** Does the work of a step. To return nothing or op means done; to throw an error means failed, or retry if a StepError is temporary. */
export type Step = (op: Operation, context: StepContext) => Outcome | Operation | void | Promise<Outcome | Operation | void>;

export interface StepErrorOptions {
  /** The system at fault; the worker by default. */
  component?: string;
  /** A short code, such as "err_http_status_code". */
  reason?: string;
  message?: string;
  cause?: unknown;
  /** The step is tried again after retry.every of the process file. */
  temporary?: boolean;
}

/** An error with what operators group errors by. */
export class StepError extends Error {
  constructor(options: StepErrorOptions);
  readonly component?: string;
  readonly reason?: string;
  readonly temporary: boolean;
}

/** Why the signal of a step was aborted. */
export class StepEnded extends Error {
  constructor(why: "cancelled" | "time limit" | "stopping", message: string);
  readonly why: "cancelled" | "time limit" | "stopping";
}

/** What went wrong. */
export type Cause = Error | StepErrorOptions | string;

/** Runs the stage again after a time, and shows the error. 0 means retry.every of the process file. */
export function retry(after: Time, cause: Cause): Outcome;
/** Runs the stage again after a time, without an error. 0 means wait.every of the process file. */
export function wait(after: Time, message: string): Outcome;
/** Waits until the event with the key comes, and for fallback at most. */
export function waitForEvent(key: string, fallback: Time, message: string): Outcome;
/** Fails the step. */
export function fail(error: Cause): Outcome;
/** Ends the step successfully without work. */
export function skip(message: string): Outcome;
/** Continues the operation without the step, and records it. */
export function notCompleted(cause: Cause): Outcome;
/** Is a retry until the budget has passed since op.firstTriedAt, and then notCompleted. */
export function retryWithoutFail(op: Operation, after: Time, budget: Time, cause?: Cause): Outcome;

export interface WorkerOptions {
  version?: string;
  /** The registry of prom-client for the metrics of the library; give your own to serve your metrics with them. */
  registry?: import("prom-client").Registry;
  /** Answers to NATS requests by subject, such as "keb.ask.my-worker.state". */
  questions?: Record<string, (question: any, context: { signal: AbortSignal }) => unknown>;
}

export interface Worker {
  /** Runs the worker until SIGTERM, drains it, and ends the process. With a signal it runs until that is aborted, and the process goes on. */
  run(how?: { signal: AbortSignal; env?: Record<string, string | undefined> }): Promise<void>;
}

/** Creates a worker with the name of the process files, and its steps by their names. It reads its settings from the environment. */
export function worker(name: string, steps: Record<string, Step>, options?: WorkerOptions): Worker;
