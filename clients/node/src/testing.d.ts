import type { ComponentOverrides, Log, Operation, Step } from "./index.js";

/** The operation of a step in a test. Without members it is the first try in a provisioning without parameters and details. */
export interface TestOperation extends Partial<Pick<Operation, "id" | "instanceId" | "type" | "plan" | "context" | "runtime" | "parameters" | "temporary" | "purpose" | "userAgent" |
  "update" | "upgrade" | "stage" | "step" | "stageAttempt" | "stepAttempt" | "event">> {
  /** The name of the worker, under which the step saves details; "test" by default. */
  worker?: string;
  /** The saved details by worker. */
  details?: Record<string, any>;
  /** The answers of claimCredentials by name, and of neighbours. */
  credentials?: Record<string, any>;
  neighbours?: number;
  /** The kept values by worker; the step changes them. */
  kept?: Record<string, any>;
  /** What earlier steps have put into the stage memory. */
  remembered?: Record<string, string | Uint8Array>;
  overrides?: ComponentOverrides[];
  /** Runs the step as if the stage memory was used and lost. */
  lostMemory?: boolean;
  /** The time since the first try, and the time limit of the step, in milliseconds. */
  firstTried?: number;
  limit?: number;
  /** The most time that extend grants, in milliseconds. */
  extension?: number;
  log?: Log;
  /** Abort it with a StepEnded to cancel the step. */
  end?: AbortController;
}

export interface TestResult {
  outcome: "succeeded" | "retry" | "failed" | "skipped" | "not completed" | "stage lost";
  /** In milliseconds; 0 means the time in the process file. */
  retryAfter?: number;
  message?: string;
  error?: { component: string; reason: string; message: string };
  /** The objects of noteRemoved. */
  removed?: string[];
  /** The patch of the worker's details. */
  details?: Record<string, any>;
  /** What the step has reported. */
  progress: { message: string; percent?: number }[];
  /** The key of the event that the step waits for. */
  eventKey?: string;
  /** All that is in the stage memory after the step. */
  overrides: ComponentOverrides[];
  remembered: Record<string, Buffer>;
  /** Returns the operation after the step: for the next step of the stage, or after a retry for the repeated stage. */
  next(more?: TestOperation): TestOperation;
  /** Returns the operation after the event that the step waits for has come. */
  nextWithEvent(data?: any): TestOperation;
}

/** Runs a step once, as the worker does. Every outcome, also after a thrown error, is a result. */
export function run(step: Step, operation?: TestOperation): Promise<TestResult>;
