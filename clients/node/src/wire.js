// Messages of the bus: CloudEvents 1.0 in binary mode with JSON (docs/wire-contract.md).
import { headers } from "@nats-io/transport-node";

const TYPE = "io.kyma-project.keb.";
const RESULTS = { succeeded: "step.succeeded", retry: "step.retry", failed: "step.failed", skipped: "step.skipped",
  "not completed": "step.skipped", "stage lost": "stage.lost" };
const OPERATIONS = ["provision", "deprovision", "update", "upgradeKyma", "upgradeCluster"];
const MAX_TEXT = 4096; // bytes of a message, and of each member of an error
const MAX_REASON = 1000; // bytes of the reason of a dead letter
const MAX_HEADERS = 65_535; // bytes of a message

export const OUTCOMES = Object.keys(RESULTS);
export const STREAM = "KEB_COMMANDS";

/** Names, subjects and ids of the contract. */
export const names = {
  service: (worker) => `keb-worker-${worker}`,
  source: (worker) => `/keb/worker/${worker}`,
  inboxPrefix: (user) => `_INBOX_${user}`,
  deadSubject: () => `keb.dead.${STREAM}`,
  commandId: (operation, cursor) => `${operation}/${cursor}`,
  dispatchId: (operation, cursor, dispatch) => `${operation}/${cursor}/${dispatch}`,
  resultSubject: (worker, step) => `keb.result.${worker}.${step}`,
  workerSubject: (worker, what) => `keb.worker.${worker}.${what}`, // cancel, ping and progress
  askSubject: (worker, kind) => `keb.ask.${["current", "extend"].includes(kind) ? "orchestrator" : "broker"}.${kind}.${worker}`,
};

const matches = (pattern) => (v) => typeof v === "string" && pattern.test(v);
const optional = (test) => (v) => v == null || test(v);
const isText = matches(/^[^]/);
const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const isTime = (v) => matches(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i)(v) && !Number.isNaN(Date.parse(v));
export const isWorkerName = matches(/^[a-z0-9][a-z0-9-]{0,31}$/);
export const isStepName = matches(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/);
export const isEventKey = matches(/^(?=.{1,200}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/);

// The rules of attributes and members: their names, a test, and what is wanted.
const ATTRIBUTES = [
  ["specversion", (v) => v === "1.0", "1.0"],
  ["id source", isText, "a text"],
  ["type", (v) => v === `${TYPE}step.execute.v1`, `${TYPE}step.execute.v1`],
  ["time", optional(isTime), "a time as in RFC 3339"],
  ["datacontenttype", optional(matches(/^((application|text)\/([^;]+\+)?json *(;|$)|$)/i)), "application/json"],
];
const MEMBERS = [
  ["operation", isObject, "a JSON object"],
  ["operation.id stage step", matches(/^[A-Za-z0-9_-]{1,200}$/), "1 to 200 letters, digits, hyphens and underscores"],
  ["operation.type", (v) => OPERATIONS.includes(v), `one of ${OPERATIONS.join(", ")}`],
  ["operation.instanceId", isText, "a text"],
  ["operation.parameters details", optional(isObject), "a JSON object"],
  ["cursor dispatch stageAttempt stepAttempt", (v) => Number.isSafeInteger(v) && v > 0, "1 or more"],
  ["executeBefore", isTime, "a time as in RFC 3339"],
  ["event", optional((v) => isEventKey(v.key)), "a key of letters, digits, hyphens and underscores, with dots between them"],
];

function check(value, rules) {
  for (const [paths, test, wanted] of rules) {
    for (const path of paths.split(" ")) {
      const member = path.split(".").reduce((v, name) => v?.[name], value);
      if (!test(member)) throw new Error(`${path}: want ${wanted}`);
    }
  }
}

// Runs a decoder, whose own errors would quote the text.
function decode(decoder, text, problem) {
  try {
    return decoder(text);
  } catch {
    throw new Error(problem);
  }
}

/** Decodes the value of a header once. */
export const unescape = (value, name = "header") => decode(decodeURIComponent, value, `${name} is not percent-encoded UTF-8`);

/** Returns a command and its trace, or throws an error that names what is wrong. */
export function decodeCommand(m) {
  let attributes = {};
  let type = "";
  for (const [header, [value, ...more]] of m.headers ?? []) {
    const name = header.toLowerCase();
    if (name === "content-type") type = value;
    if (!name.startsWith("ce-")) continue;
    if (more.length || name.slice(3) in attributes) throw new Error(`header ${name} is duplicated`);
    attributes[name.slice(3)] = unescape(value, `header ${name}`);
  }
  const [isStructured, format] = /^application\/cloudevents([^;]*)/i.exec(type) ?? [];
  if (isStructured && !["", "+json"].includes(format.toLowerCase())) throw new Error("content type: want application/cloudevents+json");
  const read = () => decode(JSON.parse, m.string(), "the body is not JSON");
  if (isStructured) attributes = read() ?? {};
  check(attributes, ATTRIBUTES);
  const command = isStructured ? attributes.data : read();
  check(command, MEMBERS);
  return { command, traceparent: attributes.traceparent };
}

/** Returns the version of a micro service, which must be a semantic one. */
export const serviceVersion = (version) => /^v?((?:(?:0|[1-9]\d*)(?:\.|$)){3})(?<!\.)$/.exec(version)?.[1] ?? "0.0.0";

function rejectNaN(_, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${value} is not JSON`);
  return value;
}

/** Encodes JSON that a database can store: without halves of surrogate pairs. NaN and infinity are errors, and not null. */
export const encodeJSON = (value) => JSON.stringify(value, rejectNaN)?.replace(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g, "$1\ufffd");

// The first bytes of a text, without a part of a character at the end.
const start = (raw, bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(raw.subarray(0, bytes), { stream: true });

/** Returns a text of valid Unicode without NUL, cut to a number of bytes. */
export function cleanText(text, longest = MAX_TEXT) {
  const raw = Buffer.from(text.replaceAll("\0", "\ufffd"));
  return raw.length <= longest ? raw.toString() : `${start(raw, longest - 3)}...`;
}

/** Replaces bytes of a text by a sign and two hexadecimal digits. */
export const encodeBytes = (text, pattern, sign) => Buffer.from(text).toString("latin1")
  .replace(pattern, (c) => sign + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0"));

/** Percent-encodes the value of a header. */
export const escape = (text) => encodeBytes(text, /[^!#$&-~]/g, "%");

/** Returns headers with the names and their values. */
function headersOf(members) {
  const h = headers();
  for (const [name, values] of members) for (const value of values) h.append(name, value);
  return h;
}

/** Returns the message of a result. */
export function encodeResult({ outcome, interrupted, panicked, ...result }, dispatch, traceparent) {
  const { operationId, cursor, worker, step, finishedAt } = result;
  const id = names.dispatchId(operationId, cursor, dispatch);
  const attributes = { specversion: "1.0", id, type: `${TYPE}${RESULTS[outcome]}.v1`, source: names.source(worker.name),
    subject: operationId, time: finishedAt, datacontenttype: "application/json", traceparent };
  const set = Object.entries(attributes).filter(([, value]) => value).map(([name, value]) => [`ce-${name}`, [escape(value)]]);
  const body = encodeJSON({ ...result, notCompleted: outcome === "not completed" || undefined });
  return { subject: names.resultSubject(worker.name, step), id, headers: headersOf(set), body };
}

/** Returns the copy of an unreadable message for the dead letters, cut to the maximum payload of the server. */
export function deadLetter(m, worker, reason, maxPayload) {
  const own = {
    "Keb-Dead-Reason": escape(start(Buffer.from(reason), MAX_REASON)), "Keb-Dead-Subject": m.subject, "Keb-Dead-Consumer": worker,
    "Nats-Msg-Id": `dead/${worker}/${m.info.streamSequence}/${m.timestampNanos}`,
  };
  const copied = [...m.headers ?? []].filter(([name]) => !name.startsWith("Nats-"));
  const make = (members) => headersOf([...members, ...Object.entries(own).map(([name, value]) => [name, [value]])]);
  const size = (h) => Buffer.byteLength(String(h));
  const full = make(copied);
  const isLong = size(full) > MAX_HEADERS - 100;
  const h = isLong ? make([]) : full;
  if (isLong || size(full) + m.data.length > maxPayload) h.set("Keb-Dead-Size", String(size(full) + m.data.length));
  return { subject: names.deadSubject(), headers: h, body: m.data.subarray(0, Math.max(maxPayload - size(h), 0)) };
}
