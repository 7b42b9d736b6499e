// The settings of a worker come from its environment, with the names, formats and defaults of the workers in Go.
import { readFileSync } from "node:fs";
import { Keyring } from "./seal.js";

const UNITS = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };
const DURATION = /^\+?(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+$/;
const PART = /(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g;
const DAY = 24 * UNITS.h; // a timer of Node is limited to 24 days

/** Returns a time such as 500 (milliseconds), "20s" or "1h0m0s" in milliseconds. */
export function duration(name, value) {
  const text = String(value);
  const time = typeof value === "number" || text === "0" ? Number(value)
    : DURATION.test(text) ? [...text.matchAll(PART)].reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[unit], 0) : NaN;
  if (!(time >= 0 && time <= DAY)) throw new Error(`${name} ${JSON.stringify(value)}: use a time up to 24h, such as 20s, 1.5s, 500ms or 1h0m0s`);
  return time;
}

/** Reads and validates the environment; the error names every invalid setting. */
export function settings(env) {
  const problems = [];
  const attempt = (f) => {
    try {
      return f();
    } catch (error) {
      problems.push(error.message);
    }
  };

  const secret = (name) => {
    const file = env[`${name}_FILE`];
    if (env[name] && file) throw new Error(`${name} and ${name}_FILE are both set: set one of them`);
    return file ? attempt(() => readFileSync(file, "utf8").trim()) : env[name];
  };

  const number = (name, byDefault, format, use, most) => {
    const text = env[name] ?? "";
    if (text && (!format.test(text) || Number(text) > most)) throw new Error(`${name} ${JSON.stringify(text)}: use ${use}`);
    return Number(text) || byDefault;
  };

  const choice = (name, byDefault, allowed) => {
    if (env[name] && !allowed.includes(env[name])) throw new Error(`${name} ${JSON.stringify(env[name])}: use ${allowed.join(", ")}`);
    return env[name] || byDefault;
  };
  const stageKeys = attempt(() => secret("KEB_STAGE_KEYS"));
  const tls = {
    caFile: env.KEB_NATS_CA_FILE, certFile: env.KEB_NATS_CERT_FILE, keyFile: env.KEB_NATS_KEY_FILE, handshakeFirst: env.KEB_NATS_TLS_FIRST === "true",
  };
  const read = {
    servers: (env.KEB_NATS_URL || "nats://127.0.0.1:4222").split(",").map((url) => url.trim()),
    user: env.KEB_NATS_USER || undefined,
    password: attempt(() => secret("KEB_NATS_PASSWORD")),
    tls: Object.values(tls).some(Boolean) ? Object.fromEntries(Object.entries(tls).filter(([, value]) => value)) : undefined,
    keyring: stageKeys && attempt(() => {
      try {
        return new Keyring(stageKeys);
      } catch (error) {
        throw new Error(`KEB_STAGE_KEYS: ${error.message}`);
      }
    }),
    metrics: attempt(() => {
      const [, host, port] = /^(.*):(\d{1,5})$/.exec(env.KEB_METRICS_ADDR ?? "") ?? [];
      if (env.KEB_METRICS_ADDR && port === undefined) throw new Error(`KEB_METRICS_ADDR ${JSON.stringify(env.KEB_METRICS_ADDR)}: use for example :9090`);
      const [certFile, keyFile] = [env.KEB_METRICS_TLS_CERT_FILE, env.KEB_METRICS_TLS_KEY_FILE];
      return port && { host: host?.replace(/^\[|\]$/g, "") || undefined, port: Number(port), certFile, keyFile };
    }),
    concurrency: attempt(() => number("KEB_WORKER_CONCURRENCY", 32, /^\d{1,5}$/, "a whole number from 0 to 10000", 10_000)),
    rateLimit: attempt(() => number("KEB_WORKER_RATE_LIMIT", 0, /^\d+(\.\d+)?$/, "steps per second, or 0 for no limit", 1e6)),
    drainTimeout: attempt(() => duration("KEB_WORKER_DRAIN_TIMEOUT", env.KEB_WORKER_DRAIN_TIMEOUT || "20s") || 20_000),
    logFormat: attempt(() => choice("KEB_LOG_FORMAT", process.stderr.isTTY ? "text" : "json", ["json", "text"])),
    logLevel: attempt(() => choice("KEB_LOG_LEVEL", "info", ["debug", "info", "warn", "error"])),
  };
  if (read.servers.some((url) => url.includes("@"))) problems.push("KEB_NATS_URL: put the user into KEB_NATS_USER and KEB_NATS_PASSWORD_FILE");
  if (Boolean(read.user) !== Boolean(read.password)) problems.push("KEB_NATS_USER and KEB_NATS_PASSWORD: set both, or neither");
  if (problems.length) throw new Error(problems.join("; "));
  return read;
}
