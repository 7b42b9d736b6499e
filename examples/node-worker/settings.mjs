// The settings of a worker come from its environment, in the same format as those of the workers in Go. An invalid setting is an error at
// the start, because a guessed value would be noticed too late.

const UNITS = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };
const DURATION = /^(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+$/;
const PART = /(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g;
const DAY = 24 * UNITS.h; // a timer of Node is limited to 24 days

// duration returns a time in Go's format, such as 20s, 1.5s or 1h0m0s, in milliseconds. An empty text and 0 mean the default.
export function duration(name, text, byDefault) {
  if (!text || text === "0") return byDefault;
  const time = DURATION.test(text) ? [...text.matchAll(PART)].reduce((sum, [, n, unit]) => sum + Number(n) * UNITS[unit], 0) : NaN;
  if (!(time <= DAY)) throw new Error(`${name} ${JSON.stringify(text)}: use a time up to 24h, such as 20s, 1.5s, 500ms or 1h0m0s`);
  return time || byDefault;
}

// count returns a whole number. An empty text and 0 mean the default.
export function count(name, text, byDefault) {
  if (!text) return byDefault;
  if (!/^\d{1,4}$/.test(text) || Number(text) > 1000) throw new Error(`${name} ${JSON.stringify(text)}: use a whole number from 0 to 1000`);
  return Number(text) || byDefault;
}
