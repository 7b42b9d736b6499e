// @ts-check
/** Formats values of the API: states, reasons, times. */

import { remember, remembered } from './settings.js';
import { h } from './vdom.js';

/**
 * @typedef {{component?: string, reason?: string, message?: string}} OperationError
 * @typedef {{reason: string, since?: string, until?: string, extendedSeconds?: number, worker?: string, step?: string, operation?: string, event?: string}} Waiting
 * @typedef {{message: string, percent?: number, at: string}} StepProgress
 * @typedef {{attempts: number, limit: string, nextTryAt?: string, endsAt: string, secondsLeft: number, onTimeout: string}} Budget
 * @typedef {{
 *   id: string, type: string, state: string, incomplete?: boolean, instanceId: string, plan: string, stage?: string, step?: string, purpose?: string,
 *   cause?: {stage: string, step: string, error: OperationError, since: string, attempts: number}, stageAttempt?: number, stepAttempt?: number, cursor: number, message?: string, error?: OperationError, notCompleted: string[],
 *   waitingFor?: string, waiting?: Waiting, progress?: StepProgress, budget?: Budget, cancelRequested?: string, dueAt?: string, createdAt: string, startedAt?: string,
 *   finishedAt?: string, globalAccountId?: string, subaccountId?: string, runtimeName?: string, shootName?: string, region?: string,
 *   orchestrationId?: string
 * }} Operation
 * @typedef {{
 *   cursor: number, tries: number, queuedMs?: number, first?: {cursor: number, stageAttempt: number, stepAttempt: number, startedAt: string}, similar?: boolean,
 *   stage?: string, step?: string, worker?: string, workerVersion?: string, outcome: string, stageAttempt?: number, stepAttempt?: number, message?: string, error?: OperationError, startedAt: string, finishedAt: string
 * }} Line
 * @typedef {{
 *   name: string, worker: string, state: string, attempts: number, firstTriedAt?: string, startedAt?: string, finishedAt?: string,
 *   durationMs?: number, message?: string, error?: OperationError
 * }} Step
 * @typedef {{name: string, state: string, attempt: number, finally?: boolean, steps: Step[]}} Stage
 * @typedef {{startedAt: string, endedAt?: string, state?: string}} Run
 * @typedef {Operation & {stages: Stage[], history: Line[], historyCount: number, processHash?: string, processCurrent?: boolean, runs: Run[],
 *   details?: Record<string, any>, parameters?: Record<string, any>, update?: any, upgrade?: any, traceId?: string,
 *   links?: {name: string, url: string}[]}} Detail
 */

/** The states of operations, in the order in which they are shown. */
export const states = ['pending', 'in progress', 'succeeded', 'failed', 'cancelled'];

/** The states that operations can be filtered by. */
export const filterStates = ['pending', 'in progress', 'succeeded', 'incomplete', 'failed', 'cancelled'];

/** The types of operations and their display names. @type {Record<string, string>} */
export const typeNames = {
  provision: 'provisioning', deprovision: 'deprovisioning', update: 'update', upgradeKyma: 'Kyma upgrade', upgradeCluster: 'cluster upgrade',
};

/** Why operations stand where they stand. @type {Record<string, string>} */
export const reasons = {
  failing: 'Failing', no_answer: 'No answer', no_worker: 'No worker', held: 'Held', limited: 'Limited', slow: 'Slow', polling: 'Polling', event: 'Waiting for an event', executing: 'Executing', instance_busy: 'Instance busy', admission: 'Admission',
};

/** What an operator can do, by reason. @type {Record<string, string>} */
export const advice = {
  no_worker: 'Start the worker; the operations then continue automatically.',
  failing: 'Check the system in the error. The step is tried again until its budget is spent.',
  no_answer: 'Look for the step in the log of the worker. The command is sent again until the budget of the step is spent.',
  polling: 'The step has polled for more than half of its time. Check the system that it waits for.',
  event: 'The step has waited for more than half of its time. Check the system that sends the event: keb operation shows its key.',
  slow: 'The execution takes several times as long as usual. Check the system that the step calls.',
  executing: 'The worker has the command. If no result arrives in time, the command is sent again.',
  held: 'A hold pauses the operations. They continue when it is released: see Holds.',
  instance_busy: 'No action needed: an instance has one operation at a time. The next one starts when it ends.',
  limited: 'A limit has no room. Wait, or raise the limit: keb limits shows it.',
  admission: 'No action needed: the operation is about to start.',
};

/**
 * The color and the sign of each state. The sign makes a state recognizable without its color.
 * @type {Record<string, [colour: string, sign: string]>}
 */
const looks = {
  pending: ['idle', 'M8 4.2V8l2.6 1.6'],
  waiting: ['idle', 'M8 4.2V8l2.6 1.6'],
  'in progress': ['run', 'M6.2 5l4.6 3-4.6 3z'],
  current: ['run', 'M6.2 5l4.6 3-4.6 3z'],
  executing: ['run', 'M6.2 5l4.6 3-4.6 3z'],
  succeeded: ['ok', 'M4.8 8.3l2.2 2.2 4.2-4.7'],
  finished: ['ok', 'M4.8 8.3l2.2 2.2 4.2-4.7'],
  alive: ['ok', 'M4.8 8.3l2.2 2.2 4.2-4.7'],
  failed: ['bad', 'M5.4 5.4l5.2 5.2M10.6 5.4l-5.2 5.2'],
  missing: ['bad', 'M8 4.4v4.4M8 11v.4'],
  no_worker: ['bad', 'M8 4.4v4.4M8 11v.4'],
  held: ['idle', 'M6.2 5v6M9.8 5v6'],
  paused: ['idle', 'M6.2 5v6M9.8 5v6'],
  approval: ['wait', 'M8 4.2V8l2.6 1.6'],
  canary: ['idle', 'M8 4.800v6.400M4.800 8h6.400'],
  'too many failures': ['bad', 'M6.2 5v6M9.8 5v6'],
  cancelled: ['gone', 'M5 8h6'],
  canceled: ['gone', 'M5 8h6'],
  canceling: ['gone', 'M5 8h6'],
  skipped: ['idle', 'M5.4 5.4L8 8l-2.6 2.6M9 5.4L11.600 8 9 10.600'],
  'not completed': ['wait', 'M8 4.4v4.4M8 11v.4'],
  incomplete: ['wait', 'M8 4.4v4.4M8 11v.4'],
  retrying: ['wait', 'M10.8 6.400A3.3 3.3 0 1 0 11.300 8.700M11 4.300v2.300H8.700'],
  failing: ['wait', 'M10.8 6.400A3.3 3.3 0 1 0 11.300 8.700M11 4.300v2.300H8.700'],
  polling: ['run', 'M4 8s1.500-2.700 4-2.700S12 8 12 8 10.500 10.700 8 10.700 4 8 4 8zM8 7.900v.200'],
  slow: ['wait', 'M8 4.2V8l2.6 1.6'],
  event: ['run', 'M4.500 6.200L8 8.700l3.500-2.500M4.500 5.600h7v4.800h-7z'],
  'event received': ['run', 'M4.500 6.200L8 8.700l3.500-2.500M4.500 5.600h7v4.800h-7z'],
  no_answer: ['bad', 'M4.900 8v.100M8 8v.100M11.100 8v.100'],
  'no answer': ['bad', 'M4.900 8v.100M8 8v.100M11.100 8v.100'],
  'stage lost': ['wait', 'M10.8 6.400A3.3 3.3 0 1 0 11.300 8.700M11 4.300v2.300H8.700'],
  instance_busy: ['idle', 'M6.2 5v6M9.8 5v6'],
  admission: ['idle', 'M6.2 5v6M9.8 5v6'],
  limited: ['idle', 'M6.2 5v6M9.8 5v6'],
};

/** Returns a state in the spelling of the console: the API has canceled orchestrations and cancelled operations. @param {string} state */
export const spelled = (state) => state?.replace(/^cancel(?=ed|ing)/, 'cancell').replace('_', ' ');

/** Returns the type of an operation for people: a suspension is not shown as a deprovisioning. @param {Operation} o */
export const kind = (o) => o.purpose ?? typeNames[o.type] ?? o.type;

/** Returns the error that explains the state of an operation: for a cancelled one, what it failed at. @param {Operation} o */
export const reasonOf = (o) => o.cause?.error ?? o.error;

/**
 * Returns the state of an operation for people: incomplete, or for an operation in progress the reason why it waits.
 * @param {Operation} o
 */
export function shownState(o) {
  if (o.incomplete) return 'incomplete';
  const reason = o.waiting?.reason;
  return o.state === 'in progress' && reason && reason !== 'executing' ? reason : o.state;
}

/** Returns the outcome of a try: the API calls polls and failed tries that are repeated both retry. @param {Line} l */
export const tried = (l) => (l.outcome !== 'retry' ? l.outcome : l.error ? 'failing' : 'polling');

/** Returns the start of the first try of a line. @param {Line} l */
export const firstTry = (l) => l.first?.startedAt ?? l.startedAt;

/** Formats when the first try of a line started; with the date if it was on another day than the last one. @param {Line} l */
export function firstClock(l) {
  return day(firstTry(l)) === day(l.finishedAt) ? clock(firstTry(l)) : stamp(firstTry(l));
}

/** Returns the error or the message of a line. @param {Line} l */
export const told = (l) => {
  const text = errorLine(l.error) || l.message || '';
  return l.similar && text ? `last of several messages: ${text}` : text;
};

/** Returns the color token of a state. @param {string} state */
export const colour = (state) => looks[state]?.[0] ?? 'idle';

/** Renders the sign of a state. @param {string} state */
export function sign(state) {
  return h('svg', { class: 'sign', viewBox: '0 0 16 16', 'aria-hidden': 'true' },
    h('circle', { cx: 8, cy: 8, r: 6.6 }), h('path', { d: looks[state]?.[1] ?? looks.pending[1] }));
}

/**
 * Renders a state as a label.
 * @param {string} state
 * @param {string} [text]
 */
export function badge(state, text = spelled(state)) {
  return h('span', { class: `badge ${colour(state)} ${state === 'waiting' ? 'quiet' : ''}` }, sign(state), text);
}

/** Marks an operation that changes nothing in its runtime. @param {{dryRun?: boolean}} o */
export const dryMark = (o) => (o.dryRun ? [' ', badge('skipped', 'dry run')] : null);

/** @param {number} n */
export const count = (n) => n.toLocaleString('en-US');

/**
 * Returns a number with its noun: "1 operation", "1,200 operations".
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

/**
 * Formats a duration with its two largest units.
 * @param {number} ms
 */
export function duration(ms) {
  if (!Number.isFinite(ms)) return '';
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000 && ms % 1000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  let s = Math.floor(ms / 1000);
  /** @type {[number, string][]} */
  const units = [[86_400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const parts = [];
  for (const [size, unit] of units) {
    if (s >= size || parts.length) {
      const n = Math.floor(s / size);
      if (n) parts.push(`${n} ${unit}`);
      s -= n * size;
      if (parts.length === 2) break;
      if (parts.length === 1 && !n) break;
    }
  }
  return parts.join(' ');
}

/** Formats a duration that has not ended, in whole seconds, because it is updated every second. @param {number} ms */
export const lasting = (ms) => duration(Math.max(1, Math.floor(ms / 1000)) * 1000);

/** Formats a Go duration: "1h30m0s" as "1 h 30 min". @param {string} text */
export function goDuration(text) {
  let ms = 0;
  for (const [, n, unit] of text.matchAll(/([\d.]+)(h|ms|m|s|µs|us|ns)/g)) {
    ms += Number(n) * ({ h: 3_600_000, m: 60_000, s: 1000, ms: 1 }[unit] ?? 0);
  }
  return duration(ms);
}

/** Whether times are shown in the zone of the browser instead of UTC. */
let local = remembered('keb.zone') === 'local';

/** @param {Intl.DateTimeFormatOptions} options @returns {[utc: Intl.DateTimeFormat, local: Intl.DateTimeFormat]} */
const both = (options) => [new Intl.DateTimeFormat('sv-SE', { ...options, timeZone: 'UTC' }), new Intl.DateTimeFormat('sv-SE', options)];
/** @type {Intl.DateTimeFormatOptions} */
const timeOfDay = { hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short' };
/** @type {Intl.DateTimeFormatOptions} */
const date = { year: 'numeric', month: '2-digit', day: '2-digit' };
const formats = { clock: both(timeOfDay), stamp: both({ ...date, ...timeOfDay }), day: both(date), minutes: both({ hour: '2-digit', minute: '2-digit' }), zone: both({ timeZoneName: 'short' }) };

/**
 * @param {keyof typeof formats} kind
 * @param {string | number} iso
 * @param {boolean} inLocal
 */
function formatted(kind, iso, inLocal = local) {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? String(iso) : formats[kind][inLocal ? 1 : 0].format(at);
}

/** Returns the name of the zone of all times, at a time. @param {string | number} [iso] */
export const zone = (iso = Date.now()) => formats.zone[local ? 1 : 0].formatToParts(new Date(iso)).find((p) => p.type === 'timeZoneName')?.value ?? 'UTC';

export const isLocal = () => local;

/** Switches between UTC and the zone of the browser. */
export function switchZone() {
  local = !local;
  remember('keb.zone', local ? 'local' : '');
}

/** Formats a date and a time with its zone, and the same in the other zone. @param {string} iso */
export function absolute(iso) {
  const other = formatted('stamp', iso, !local);
  return other === stamp(iso) ? other : `${stamp(iso)} (${other})`;
}

/** Formats a date and a time with its zone. @param {string | number} iso */
export const stamp = (iso) => formatted('stamp', iso);

/** Formats the time of day with its zone. @param {string | number} iso */
export const clock = (iso) => formatted('clock', iso);

/** Formats hours and minutes without a zone, for an axis that names it. @param {string | number} iso */
export const minutes = (iso) => formatted('minutes', iso);

/** @param {string | number} iso */
const day = (iso) => formatted('day', iso);

/**
 * Formats a time relative to now: "5 min ago", "in 5 min".
 * @param {string} iso
 * @param {number} now
 */
export function relative(iso, now) {
  const ms = now - Date.parse(iso);
  if (!Number.isFinite(ms)) return iso;
  if (Math.abs(ms) < 2000) return 'now';
  return ms > 0 ? `${coarse(ms)} ago` : `in ${coarse(-ms)}`;
}

/** Formats a duration with one unit, rounded down like all durations, so that two of the same length are equal. @param {number} ms */
function coarse(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 90) return `${s} s`;
  if (s < 90 * 60) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/**
 * Renders a relative time with the absolute time as its title.
 * @param {string | undefined} iso
 * @param {number} now
 */
export function time(iso, now) {
  return iso ? h('time', { datetime: iso, title: absolute(iso) }, relative(iso, now)) : h('span', { class: 'muted' }, '–');
}

/** Returns both ends of an id, because ids that were created in the same minute have the same beginning. @param {string} id */
export const short = (id) => (id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);

/**
 * Renders the name of a step with line break opportunities after underscores.
 * @param {string} text
 * @returns {import('./vdom.js').Child}
 */
export const name = (text) => text.split(/(?<=_)/).map((part, i) => [i ? h('wbr') : null, part]);

/** @param {string} id */
export const operationURL = (id) => `/console/operations/${encodeURIComponent(id)}`;

/**
 * Renders a link to an operation.
 * @param {string} id
 */
export const operationLink = (id) => h('a', { href: operationURL(id), class: 'mono', title: id }, short(id));

/** @param {string} id */
export const instanceURL = (id) => `/console/instances/${encodeURIComponent(id)}`;

/**
 * Returns the URL of the operations with a filter.
 * @param {Record<string, string | undefined>} filter
 */
export function operationsURL(filter) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filter)) if (value) query.set(name, value);
  return '/console/operations' + (query.size ? `?${query}` : '');
}

/**
 * Renders how far a running step is.
 * @param {StepProgress} p
 * @param {number} now
 * @returns {import('./vdom.js').Child}
 */
export function progressWords(p, now) {
  return [p.message, p.percent === undefined ? null : [' ', h('progress', { max: 100, value: p.percent, 'aria-label': 'Progress of the step' }), ` ${p.percent} %`],
    h('span', { class: 'muted' }, ' ', h('time', { datetime: p.at, title: absolute(p.at) }, relative(p.at, now)))];
}

/**
 * Renders the time that the worker of a running step has asked for.
 * @param {Waiting | undefined} w
 * @returns {import('./vdom.js').Child}
 */
export function extensionWords(w) {
  if (!w?.extendedSeconds || !w.until) return null;
  return ['the worker was given more time, until ', h('time', { datetime: w.until, title: absolute(w.until) }, clock(w.until)), ` (${lasting(w.extendedSeconds * 1000)} longer)`];
}

/**
 * Renders what an operation waits for as text.
 * @param {Operation} o
 * @param {number} now
 * @returns {import('./vdom.js').Child}
 */
export function waitingWords(o, now) {
  const w = o.waiting;
  if (!w) return o.waitingFor ?? null;
  switch (w.reason) {
    case 'no_worker': return ['no live worker ', h('b', null, w.worker ?? ''), ' for ', elapsed(w.since ?? '', now)];
    case 'held': return [h('a', { href: '/console/holds', title: w.hold }, 'hold ', h('code', null, short(w.hold ?? ''))), ' for ', elapsed(w.since ?? '', now)];
    case 'failing': return ['failing for ', elapsed(w.since ?? '', now), nextTry(o, now)];
    case 'polling': return ['polling for ', elapsed(w.since ?? '', now), nextTry(o, now)];
    case 'event': return ['waiting for the event ', h('code', null, w.event ?? ''), ' for ', elapsed(w.since ?? '', now), nextTry(o, now)];
    case 'no_answer': return ['no answer of worker ', h('b', null, w.worker ?? ''), ' for ', elapsed(w.since ?? '', now)];
    case 'instance_busy': return ['operation ', w.operation ? operationLink(w.operation) : null, ' of the same instance is in progress'];
    case 'limited': return ['limit ', h('code', null, w.limit ?? ''), w.position ? ` at position ${w.position}` : '', ' for ', elapsed(w.since ?? '', now)];
    case 'admission': return ['the operation is about to start'];
    case 'slow': return ['worker ', h('b', null, w.worker ?? ''), ' has been executing the step for ', elapsed(w.since ?? '', now), ', longer than usual'];
    case 'executing': return ['worker ', h('b', null, w.worker ?? ''), ' has been executing the step for ', elapsed(w.since ?? '', now)];
    default: return o.waitingFor ?? w.reason;
  }
}

/**
 * @param {Operation} o
 * @param {number} now
 */
const nextTry = (o, now) => [', next try ', o.dueAt && Date.parse(o.dueAt) > now + 1000 ? time(o.dueAt, now) : 'now'];

/** The budgets of a step. @type {Record<string, string>} */
const limits = { retry: 'its retry timeout', wait: 'its wait timeout', operation: 'the time limit of the operation' };

/**
 * Renders how often the step was tried, how long it may be tried, and what happens then.
 * @param {Budget | undefined} b
 * @param {number} now
 * @returns {import('./vdom.js').Child}
 */
export function budgetWords(b, now) {
  if (!b) return null;
  const end = Date.parse(b.endsAt);
  return [b.attempts > 1 ? `Tried ${count(b.attempts)} times. ` : '', b.onTimeout === 'skip' ? 'The step is skipped' : 'The operation fails', ' if it has not succeeded by ',
    h('time', { datetime: b.endsAt, title: absolute(b.endsAt) }, clock(b.endsAt)), `, the end of ${limits[b.limit] ?? 'its budget'}`, end > now ? ` (${lasting(end - now)} left).` : '.'];
}

/**
 * @param {string} iso
 * @param {number} now
 */
const elapsed = (iso, now) => h('time', { datetime: iso, title: absolute(iso) }, lasting(now - Date.parse(iso)));

/** Returns when an operation first started; a retry by an operator starts it again. @param {Detail} o @returns {number | undefined} */
export function firstStart(o) {
  const iso = o.runs[0]?.startedAt ?? o.startedAt;
  return iso === undefined ? undefined : Date.parse(iso);
}

/** Returns the time a day before another, in whole minutes, so that a query with it stays the same for a minute. @param {number} now */
export const dayBefore = (now) => new Date(Math.floor(now / 60_000) * 60_000 - 86_400_000).toISOString();

/** Returns how long an operation has run, without the time between its end and a retry. @param {Detail} o @param {number} now */
export const ranFor = (o, now) => o.runs.reduce((sum, r) => sum + (r.endedAt ? Date.parse(r.endedAt) : now) - Date.parse(r.startedAt), 0);

/**
 * Formats an error as one line.
 * @param {OperationError | undefined} e
 */
export const errorLine = (e) => (e ? [e.component, e.reason, e.message].filter(Boolean).join(': ') : '');

/** The length of the shown part of an error, in characters. */
const usefulLength = 110;

/**
 * Returns the useful part of an error: its system, and the end of the chain of causes, which has the reason.
 * @param {string} text
 * @param {string} [component]
 */
export function usefulEnd(text, component = '') {
  if (text.length <= usefulLength) return text;
  const links = text.split(': ');
  let end = links.pop() ?? '';
  if (end.length > usefulLength) end = `${end.slice(0, 50)}… …${end.slice(-55)}`;
  for (let next = links.pop(); next !== undefined && next.length + end.length < usefulLength; next = links.pop()) end = `${next}: ${end}`;
  return `${component && !end.startsWith(component) ? component + ': ' : ''}… ${end}`;
}
