// The settings of a worker come from its environment, with the names, formats and defaults of the workers in Go.
import { readFileSync } from "node:fs";
import { Keyring } from "./seal.js";

const UNITS = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };
const PART = "(\\d+(?:\\.\\d+)?)(ns|us|µs|ms|s|m|h)";
const DAY = 24 * UNITS.h; // a timer of Node is limited to 24 days

/** Returns a time such as 500 (milliseconds), "20s" or "1h0m0s" in milliseconds. */
export function duration(value, what = "") {
  const isText = new RegExp(`^\\+?(${PART})+$`).test(value);
  const parts = [...String(value).matchAll(new RegExp(PART, "g"))].map(([, n, unit]) => Number(n) * UNITS[unit]);
  const time = isText ? parts.reduce((sum, part) => sum + part, 0) : typeof value === "number" || value === "0" ? Number(value) : NaN;
  if (time >= 0 && time <= DAY) return time;
  throw new Error(`${what}use a time up to 24h, such as 20s, 1.5s, 500ms or 1h0m0s`);
}

const form = (pattern, use, convert = (text) => text) => (text) => {
  if (!pattern.test(text)) throw new Error(`use ${use}`);
  return convert(text);
};
const text = form(/^/, "");
const servers = form(/^[^@]+$/, "no user here, but KEB_NATS_USER and KEB_NATS_PASSWORD_FILE", (urls) => urls.split(/ *, */));
const concurrency = form(/^(\d{1,4}|10000)$/, "a whole number from 0 to 10000", Number);
const rate = form(/^\d{1,6}(\.\d+)?$/, "a number of steps per second, or 0 for no limit", Number);
const address = form(/:\d{1,5}$/, "an address such as :9090", (url) => {
  const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(url);
  return { host: host || undefined, port: Number(port) };
});

/** Reads and validates the environment; the error names every invalid setting, and no value. */
export function readSettings(env) {
  const problems = [];
  const read = (name, parse, byDefault) => {
    try {
      const file = env[`${name}_FILE`];
      if (env[name] && file) throw new Error(`set it or ${name}_FILE, not both`);
      const value = file ? readFileSync(file, "utf8").trim() : env[name];
      return (value && parse(value)) || byDefault;
    } catch (error) {
      problems.push(`${name}: ${error.message}`);
    }
  };
  const { KEB_NATS_CA_FILE: caFile, KEB_NATS_CERT_FILE: certFile, KEB_NATS_KEY_FILE: keyFile } = env;
  const handshakeFirst = env.KEB_NATS_TLS_FIRST === "true";
  const found = {
    servers: read("KEB_NATS_URL", servers, ["nats://127.0.0.1:4222"]),
    user: read("KEB_NATS_USER", text),
    password: read("KEB_NATS_PASSWORD", text),
    tls: caFile || certFile || keyFile || handshakeFirst ? { caFile, certFile, keyFile, handshakeFirst } : undefined,
    keyring: read("KEB_STAGE_KEYS", (keys) => new Keyring(keys)),
    address: read("KEB_METRICS_ADDR", address),
    addressTLS: ["CERT", "KEY", "CLIENT_CA"].map((what) => env[`KEB_METRICS_TLS_${what}_FILE`]),
    concurrency: read("KEB_WORKER_CONCURRENCY", concurrency, 32),
    rateLimit: read("KEB_WORKER_RATE_LIMIT", rate, 0),
    drainTimeout: read("KEB_WORKER_DRAIN_TIMEOUT", duration, 20_000),
    logFormat: read("KEB_LOG_FORMAT", form(/^(json|text)$/, "json or text"), process.stderr.isTTY ? "text" : "json"),
    logLevel: read("KEB_LOG_LEVEL", form(/^(debug|info|warn|error)$/, "debug, info, warn or error"), "info"),
  };
  if (!found.user !== !found.password) problems.push("KEB_NATS_USER and KEB_NATS_PASSWORD: set both, or neither");
  if (problems.length) throw new Error(problems.join("; "));
  return found;
}
