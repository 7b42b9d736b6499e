// Messages of the bus: CloudEvents 1.0 in binary mode with JSON (docs/wire-contract.md).
import { headers } from "@nats-io/transport-node";

const TYPE = "io.kyma-project.keb.";
const OPERATIONS = ["provision", "deprovision", "update", "upgradeKyma", "upgradeCluster"];
const WORD = /^[A-Za-z0-9_-]{1,200}$/;
/** Names, subjects and ids of the contract. */
export const names = {
  service: (worker) => `keb-worker-${worker}`,
  source: (worker) => `/keb/worker/${worker}`,
  inboxPrefix: (user) => `_INBOX_${user}`,
  commandId: (operation, cursor) => `${operation}/${cursor}`,
  dispatchId: (operation, cursor, dispatch) => `${operation}/${cursor}/${dispatch}`,
  resultSubject: (worker, step) => `keb.result.${worker}.${step}`,
  deadSubject: () => "keb.dead.KEB_COMMANDS",
  cancelSubject: (worker) => `keb.worker.${worker}.cancel`,
  pingSubject: (worker) => `keb.worker.${worker}.ping`,
  currentSubject: (worker) => `keb.ask.orchestrator.current.${worker}`,
  credentialsSubject: (worker) => `keb.ask.broker.credentials.${worker}`,
  keepSubject: (worker) => `keb.ask.broker.keep.${worker}`,
  keptSubject: (worker) => `keb.ask.broker.kept.${worker}`,
};

const MAX_TEXT = 4096;

export const RESULT_TYPES = { succeeded: "step.succeeded", retry: "step.retry", failed: "step.failed", skipped: "step.skipped",
  "not completed": "step.skipped", "stage lost": "stage.lost" };

/** Encodes JSON that a database can store: without halves of surrogate pairs. */
export const encodeJSON = (value) =>
  JSON.stringify(value)?.replace(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g, "$1\ufffd");

/** Returns a text for a result: valid Unicode without NUL, at most 4 KiB. */
export function cleanText(text) {
  const raw = Buffer.from(text.replaceAll("\0", "\ufffd"));
  if (raw.length <= MAX_TEXT) return raw.toString();
  let cut = MAX_TEXT - 3;
  while ((raw[cut] & 0xc0) === 0x80) cut--;
  return `${raw.subarray(0, cut)}...`;
}

/** The size of JSON after Postgres has written it: numbers without exponents, a space after each comma and colon. */
export function storedSize(json) {
  let size = Buffer.byteLength(json);
  for (const [token, number] of json.matchAll(/"(?:\\.|[^"\\])*"|(-?\d+(?:\.\d+)?e[+-]?\d+)|[,:]/gi)) {
    if (number) size += Math.abs(Number(number.split(/e/i)[1])) < 1e6 ? plainSize(number) - number.length : 1e6; // Postgres rejects more
    else if (token === "," || token === ":") size++;
  }
  return size;
}

function plainSize(number) {
  const [, sign, whole, fraction = "", exponent] = /^(-?)(\d+)(?:\.(\d+))?e([+-]?\d+)$/i.exec(number) ?? [];
  const behind = Math.max(fraction.length - Number(exponent), 0);
  return sign.length + Math.max(whole.length + Number(exponent), 1) + (behind && behind + 1);
}

/** Encodes a text as the value of a header. */
export const escape = (text) => [...Buffer.from(text)]
  .map((c) => (c <= 32 || c >= 127 || c === 34 || c === 37 ? `%${c.toString(16).toUpperCase().padStart(2, "0")}` : String.fromCharCode(c))).join("");

/** Decodes the value of a header once. */
export function unescape(value, name = "header") {
  try {
    return decodeURIComponent(value);
  } catch {
    throw new Error(`${name} is not percent-encoded UTF-8`);
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the body is not JSON"); // the parser's error would quote it
  }
}

/** Returns the attributes and the data of an event, in binary or structured mode. */
function decodeEvent(m) {
  const attributes = {};
  let contentType = "";
  for (const [header, values] of m.headers ?? []) {
    const name = header.toLowerCase();
    if (name === "content-type") contentType = values[0];
    if (!name.startsWith("ce-")) continue;
    if (values.length !== 1 || name.slice(3) in attributes) throw new Error(`header ${name} is duplicated`);
    attributes[name.slice(3)] = unescape(values[0], `header ${name}`);
  }
  if (!/^application\/cloudevents/i.test(contentType)) return { attributes, read: () => parse(m.string()) };
  if (!/^application\/cloudevents(\+json)?(;|$)/i.test(contentType)) throw new Error(`content type ${JSON.stringify(contentType)}: want application/cloudevents+json`);
  const { data, ...structured } = parse(m.string()) ?? {};
  return { attributes: structured, read: () => data };
}

/** Returns a command and its trace, or throws an error that names what is wrong. */
export function decodeCommand(m) {
  const { attributes, read } = decodeEvent(m);
  const { specversion, type, time, datacontenttype } = attributes;
  for (const name of ["specversion", "id", "type", "source"]) if (!attributes[name]) throw new Error(`ce-${name} is missing or empty`);
  if (specversion !== "1.0") throw new Error(`ce-specversion is ${JSON.stringify(specversion)}: want 1.0`);
  if (type !== `${TYPE}step.execute.v1`) throw new Error(`type ${JSON.stringify(type)}: want "${TYPE}step.execute.v1"`);
  if (time !== undefined && !isTime(time)) throw new Error(`ce-time is ${JSON.stringify(time)}: want a time as in RFC 3339`);
  if (datacontenttype && !/^(application|text)\/([^;]+\+)?json *(;|$)/i.test(datacontenttype)) throw new Error("ce-datacontenttype: want application/json");
  const command = read();
  checkCommand(command);
  return { command, traceparent: attributes.traceparent };
}

const isTime = (text) => typeof text === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i.test(text) && !Number.isNaN(Date.parse(text));

function checkCommand(c) {
  const require = (ok, problem) => {
    if (!ok) throw new Error(problem);
  };
  const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
  require(isObject(c) && isObject(c.operation), "operation: want a JSON object");
  const o = c.operation;
  for (const [field, value] of Object.entries({ "operation.id": o.id, stage: c.stage, step: c.step })) {
    require(typeof value === "string" && WORD.test(value), `${field}: want 1 to 200 letters, digits, hyphens and underscores`);
  }
  require(OPERATIONS.includes(o.type), `operation.type: want one of ${OPERATIONS}`);
  require(typeof o.instanceId === "string" && o.instanceId !== "", "operation.instanceId is empty");
  for (const [field, value] of Object.entries({ "operation.parameters": o.parameters, details: c.details })) {
    require(value == null || isObject(value), `${field}: want a JSON object`);
  }
  for (const field of ["cursor", "dispatch", "stageAttempt", "stepAttempt"]) require(Number.isSafeInteger(c[field]) && c[field] > 0, `${field}: want 1 or more`);
  require(isTime(c.executeBefore), "executeBefore: want a time");
  require(c.event == null || isEventKey(c.event?.key), "event.key: want letters, digits, hyphens and underscores, with dots between them");
}

export const isEventKey = (key) => typeof key === "string" && key.length <= 200 && /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/.test(key);

/** Returns the message of a result. */
export function encodeResult(r, dispatch, traceparent) {
  const { outcome, interrupted, panicked, unwanted, retryAfter, ...result } = r;
  const id = names.dispatchId(r.operationId, r.cursor, dispatch);
  const attributes = { specversion: "1.0", id, type: `${TYPE}${RESULT_TYPES[outcome]}.v1`, source: names.source(r.worker.name), subject: r.operationId,
    time: r.finishedAt, datacontenttype: "application/json", traceparent };
  const h = headers();
  for (const [name, value] of Object.entries(attributes)) if (value) h.set(`ce-${name}`, escape(value));
  const more = { ...(outcome === "retry" && { retryAfter }), ...(outcome === "not completed" && { notCompleted: true }) };
  return { subject: names.resultSubject(r.worker.name, r.step), id, headers: h, body: encodeJSON({ ...result, ...more }) };
}

const MAX_REASON = 1000; // in bytes
const MAX_HEADERS = 65_535;

/** Returns the copy of an unreadable message for the dead letters, cut to the maximum payload of the server. */
export function deadLetter(m, worker, reason, maxPayload) {
  const own = { Reason: escape(Buffer.from(reason).subarray(0, MAX_REASON).toString().replace(/\ufffd$/, "")), Subject: m.subject, Consumer: worker };
  const make = (original) => {
    const h = headers();
    for (const [name, values] of original) if (!name.startsWith("Nats-")) for (const value of values) h.append(name, value);
    for (const [name, value] of Object.entries(own)) h.set(`Keb-Dead-${name}`, value);
    h.set("Nats-Msg-Id", `dead/${worker}/${m.info.streamSequence}/${m.timestampNanos}`);
    return h;
  };
  const size = (h) => Buffer.byteLength(String(h));
  let h = make(m.headers ?? []);
  const full = size(h) + m.data.length;
  if (full > maxPayload || size(h) > MAX_HEADERS) {
    if (size(h) > MAX_HEADERS - 100) h = make([]);
    h.set("Keb-Dead-Size", String(full));
  }
  return { subject: names.deadSubject(), headers: h, body: m.data.subarray(0, Math.max(maxPayload - size(h), 0)) };
}
