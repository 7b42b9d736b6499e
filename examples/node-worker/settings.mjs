// The settings of a worker come from its environment, written as those of the workers in Go. One that cannot be used is an error: a
// worker that guesses is found out when it is too late.

const UNITS = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };
const DURATION = /^(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+$/;
const PART = /(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g;
const DAY = 24 * UNITS.h; // a timer of Node takes no more than 24 days

// duration is a time as Go writes it, such as 20s, 1.5s or 1h0m0s, in milliseconds. Nothing, and a time of 0, are the default.
export function duration(name, text, byDefault) {
  if (!text || text === "0") return byDefault;
  const time = DURATION.test(text) ? [...text.matchAll(PART)].reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[unit], 0) : NaN;
  if (!(time <= DAY)) throw new Error(`${name} ${JSON.stringify(text)}: use a time up to 24h, such as 20s, 1.5s, 500ms or 1h0m0s`);
  return time || byDefault;
}

// count is a whole number. Nothing, and 0, are the default.
export function count(name, text, byDefault) {
  if (!text) return byDefault;
  if (!/^\d{1,4}$/.test(text) || Number(text) > 1000) throw new Error(`${name} ${JSON.stringify(text)}: use a whole number from 0 to 1000`);
  return Number(text) || byDefault;
}
