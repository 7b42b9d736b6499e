// The settings of a worker come from its environment, with the names, formats and defaults of the workers in Go.
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { Keyring } from "./memory.js";

const UNITS = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };
const DAY = 24 * UNITS.h; // a timer of Node is limited to 24 days

/** Returns a time such as 500 (milliseconds), "20s" or "1h0m0s" in milliseconds. */
export function duration(value, what = "") {
  let time = typeof value === "number" || value === "0" ? Number(value) : NaN;
  if (/^\+?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(value)) {
    time = [...value.matchAll(/([\d.]+)([a-zµ]+)/g)].reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[unit], 0);
  }
  if (time >= 0 && time <= DAY) return time;
  throw new Error(`${what}use a time up to 24h, such as 20s, 1.5s, 500ms or 1h0m0s`);
}

// The variable of each setting, its default, its form, what is wanted, and a conversion.
const SETTINGS = {
  servers: ["KEB_NATS_URL", "nats://127.0.0.1:4222", /^[^@]+$/, "no user here, but KEB_NATS_USER and KEB_NATS_PASSWORD_FILE",
    (urls) => urls.split(/ *, */)],
  user: ["KEB_NATS_USER"],
  password: ["KEB_NATS_PASSWORD"],
  caFile: ["KEB_NATS_CA_FILE"],
  certFile: ["KEB_NATS_CERT_FILE"],
  keyFile: ["KEB_NATS_KEY_FILE"],
  handshakeFirst: ["KEB_NATS_TLS_FIRST", "false", /^(true|false)$/, "true or false", (text) => text === "true"],
  keyring: ["KEB_STAGE_KEYS", "", undefined, "", (keys) => new Keyring(keys)],
  address: ["KEB_METRICS_ADDR", "", /:\d{1,5}$/, "an address such as :9090"],
  serverCert: ["KEB_METRICS_TLS_CERT_FILE"],
  serverKey: ["KEB_METRICS_TLS_KEY_FILE"],
  clientCA: ["KEB_METRICS_TLS_CLIENT_CA_FILE"],
  concurrency: ["KEB_WORKER_CONCURRENCY", "0", /^(\d{1,4}|10000)$/, "a whole number from 0 to 10000", (n) => Number(n) || 32],
  rateLimit: ["KEB_WORKER_RATE_LIMIT", "0", /^\d{1,6}(\.\d+)?$/, "a number of steps per second, or 0 for no limit", Number],
  ramped: ["KEB_WORKER_RAMPED", "false", /^(true|false)$/, "true or false", (text) => text === "true"],
  drainTimeout: ["KEB_WORKER_DRAIN_TIMEOUT", "0", undefined, "", (time) => Math.ceil(duration(time)) || 20_000],
  logFormat: ["KEB_LOG_FORMAT", process.stderr.isTTY ? "text" : "json", /^(json|text)$/, "json or text"],
  logLevel: ["KEB_LOG_LEVEL", "info", /^(debug|info|warn|error)$/, "debug, info, warn or error"],
};

export const readIfSet = (file) => file && readFileSync(file);

/** Returns what is wrong with the TLS files of variables: with invalid ones the worker would retry the connection to the bus for ever. */
function badTLSFiles(variables, ca, cert, key) {
  try {
    if (!cert !== !key) throw new Error("set both files of the certificate, or neither");
    if (ca) new X509Certificate(readFileSync(ca)); // a context ignores what it cannot read
    createSecureContext({ cert: readIfSet(cert), key: readIfSet(key) });
    return [];
  } catch (error) {
    return [`${variables}: ${error.message}`];
  }
}

/** Reads and validates the environment; the error names every invalid setting, and no value. */
export function readSettings(env) {
  const problems = [];
  /** @type {any} */ const found = {};
  for (const [setting, row] of Object.entries(SETTINGS)) {
    const [name, byDefault = "", form = /^/, wanted, convert = (text) => text] = /** @type {any} */ (row);
    try {
      const file = env[`${name}_FILE`];
      if (env[name] && file) throw new Error(`set it or ${name}_FILE, not both`);
      const text = (file ? readFileSync(file, "utf8").replace(/[\r\n]+$/, "") : env[name]) || byDefault;
      if (text && !form.test(text)) throw new Error(`use ${wanted}`);
      if (text) found[setting] = convert(text);
    } catch (error) {
      problems.push(`${name}: ${error.message}`);
    }
  }
  if (!found.user !== !found.password) problems.push("KEB_NATS_USER and KEB_NATS_PASSWORD: set both, or neither");
  problems.push(
    ...badTLSFiles("KEB_NATS_CA_FILE, KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE", found.caFile, found.certFile, found.keyFile),
    ...badTLSFiles("KEB_METRICS_TLS_CERT_FILE, ..._KEY_FILE and ..._CLIENT_CA_FILE", found.clientCA, found.serverCert, found.serverKey));
  if (problems.length) throw new Error(problems.join("; "));
  return found;
}
