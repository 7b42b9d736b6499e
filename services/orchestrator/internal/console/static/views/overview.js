// @ts-check
/** The overview: stuck operations with their reasons, then the figures. */

import { Resource } from '../api.js';
import { bars } from '../charts.js';
import { absolute, advice, badge, clock, colour, count, errorLine, lasting, operationLink, operationsURL, plural, reasons, sign, states, time, typeNames } from '../format.js';
import { shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

const every = 4000;

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function overview(ctx) {
  const options = { every, changed: ctx.update };
  const figures = new Resource(ctx.api, '/overview', options);
  const stuck = new Resource(ctx.api, '/stuck', options);
  const throughput = new Resource(ctx.api, '/throughput?minutes=60&bucket=60s', { every: 10_000, changed: ctx.update });
  const workers = new Resource(ctx.api, '/workers', options);
  const all = [figures, stuck, throughput, workers];
  const resume = () => all.forEach((r) => r.refresh());
  resume();
  return {
    title: () => {
      const n = (stuck.data?.data ?? []).filter(needsHelp).length;
      return n ? `(${n}) Overview` : 'Overview';
    },
    resume,
    close: () => all.forEach((r) => r.close()),
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Overview'), stuck.at ? h('p', { class: 'muted small' }, `as of ${clock(stuck.at)}`) : null),
      h('section', { 'aria-labelledby': 'stuck' }, h('h2', { id: 'stuck' }, 'Stuck operations'), shown(stuck, (d) => groups(d.data, ctx.now()))),
      h('section', { 'aria-labelledby': 'missing' }, h('h2', { id: 'missing' }, 'Workers'), shown(workers, (d) => missing(d.data))),
      h('section', { 'aria-labelledby': 'hour' }, h('h2', { id: 'hour' }, 'The last hour'), shown(figures, (d) => lastHour(d)),
        shown(throughput, series)),
      h('section', { 'aria-labelledby': 'counts' }, h('h2', { id: 'counts' }, 'Operations by type and state'),
        shown(figures, (d) => counts(d, ctx.now()))),
    ],
  };
}

/** Reports whether a group needs an action. @param {any} g */
const needsHelp = (g) => ['no_worker', 'no_answer', 'failing'].includes(g.reason);

/**
 * @param {any[]} data
 * @param {number} now
 */
function groups(data, now) {
  if (!data.length) return h('div', { class: 'empty good' }, sign('succeeded'), h('p', null, h('b', null, 'Nothing is stuck.'), ' Every operation makes progress.'));
  return h('ul', { class: 'groups' }, data.map((g) => group(g, now)));
}

/**
 * @param {any} g
 * @param {number} now
 */
function group(g, now) {
  const filter = { waiting: g.reason, worker: g.worker, step: g.step, type: g.type };
  return h('li', { key: [g.reason, g.worker, g.step, g.type].join(' '), class: `group edge-${colour(g.reason)}` },
    h('div', { class: 'group-head' }, badge(g.reason, reasons[g.reason] ?? g.reason), h('h3', null, headline(g)),
      h('span', { class: 'since' }, 'for ', h('time', { datetime: g.since, title: absolute(g.since) }, lasting(now - Date.parse(g.since))))),
    g.error || g.message ? h('p', { class: 'message' }, errorLine(g.error) || g.message) : null,
    g.blockedBy?.length ? h('p', null, 'Blocked by ', g.blockedBy.map((/** @type {string} */ id) => [operationLink(id), ' '])) : null,
    h('p', { class: 'group-foot' },
      h('a', { href: operationsURL(filter) }, plural(g.count, 'operation')), ' ',
      (g.operations ?? []).slice(0, 3).map((/** @type {string} */ id) => [operationLink(id), ' ']),
      h('span', { class: 'muted' }, advice[g.reason] ?? '')));
}

/** @param {any} g */
function headline(g) {
  const type = h('span', { class: 'muted' }, ` ${typeNames[g.type] ?? g.type}`);
  switch (g.reason) {
    case 'no_worker': return ['No live worker ', h('code', null, g.worker), ' for step ', h('code', null, g.step), type];
    case 'failing': return ['Step ', h('code', null, g.step), ' of worker ', h('code', null, g.worker), ' fails and is tried again', type];
    case 'no_answer': return ['Worker ', h('code', null, g.worker), ' is alive and does not answer for step ', h('code', null, g.step), type];
    case 'polling': return ['Step ', h('code', null, g.step), ' of worker ', h('code', null, g.worker), ' has polled for more than half of its time', type];
    case 'slow': return ['Step ', h('code', null, g.step), ' of worker ', h('code', null, g.worker), ' executes for longer than usual', type];
    case 'event': return ['Step ', h('code', null, g.step), ' of worker ', h('code', null, g.worker), ' has waited for its event for more than half of its time', type];
    case 'held': return g.step
      ? ['A hold keeps step ', h('code', null, g.step), ' of worker ', h('code', null, g.worker), ' from running', type]
      : ['A hold keeps the operation from starting', type];
    case 'instance_busy': return ['Another operation of the instance is in progress', type];
    case 'limited': return ['A limit has no room', type];
    case 'admission': return ['The operation is about to start', type];
    default: return [g.text, type];
  }
}

/** @param {any[]} data */
function missing(data) {
  const gone = data.filter((w) => !w.alive || w.missingSteps?.length);
  if (!gone.length) return h('p', { class: 'line' }, badge('alive', `All ${data.length} workers are alive`), ' ', h('a', { href: '/console/workers' }, 'Rates and lag'));
  return h('ul', { class: 'plain-list' }, gone.map((w) => h('li', { key: w.name, class: 'line' },
    badge(w.alive ? 'not completed' : 'missing', w.alive ? 'Incomplete' : 'Missing'), ' ', h('a', { href: `/console/workers?worker=${encodeURIComponent(w.name)}` }, w.name),
    h('span', { class: 'muted' }, ` no replica serves ${(w.missingSteps ?? []).join(', ')}`))));
}

/** @param {any} d */
function lastHour(d) {
  const hour = d.lastHour;
  const figure = (/** @type {string} */ state, /** @type {string} */ label, /** @type {number | undefined} */ n, /** @type {string} */ href) =>
    h('li', null, h('a', { href, class: `figure text-${colour(state)}` }, h('b', null, count(n ?? 0)), h('span', null, sign(state), label)));
  return h('ul', { class: 'figures-row' },
    figure('pending', 'started', hour.started, operationsURL({ since: '1h' })),
    figure('succeeded', 'succeeded', hour.succeeded, operationsURL({ state: 'succeeded', since: '1h' })),
    figure('failed', 'failed', hour.failed, operationsURL({ state: 'failed', since: '1h' })),
    figure('cancelled', 'cancelled', hour.cancelled, operationsURL({ state: 'cancelled', since: '1h' })));
}

/** @param {any} d */
function series(d) {
  const at = d.data.map((/** @type {any} */ b) => b.time);
  const pick = (/** @type {string} */ kind, /** @type {string} */ key) => d.data.map((/** @type {any} */ b) => b[kind][key] ?? 0);
  /** @type {[string, string, string][]} */
  const outcomes = [
    ['succeeded', 'succeeded', 'ok'], ['polled', 'polling', 'run'], ['skipped', 'skipped', 'idle'], ['retry', 'failing', 'wait'],
    ['notCompleted', 'not completed', 'gone'], ['failed', 'failed', 'bad'],
  ];
  return h('div', { class: 'charts' },
    bars({
      title: 'Operations ended per minute', unit: 'operations', at,
      series: ['succeeded', 'cancelled', 'failed'].map((s) => ({ name: s, colour: colour(s), values: pick('operations', s) })),
    }),
    bars({
      title: 'Step executions per minute', unit: 'executions', at,
      series: outcomes.map(([key, name, c]) => ({ name, colour: c, values: pick('steps', key) })),
    }));
}

/**
 * @param {any} d
 * @param {number} now
 */
function counts(d, now) {
  return table('Operations by type and state', [th('Type'), states.map((s) => th(badge(s), 'number')), th('Oldest unfinished')],
    h('tbody', null, Object.keys(typeNames).map((type) => {
      const oldest = d.oldest.find((/** @type {any} */ o) => o.type === type);
      return h('tr', { key: type }, h('th', { scope: 'row' }, h('a', { href: operationsURL({ type }) }, typeNames[type])),
        states.map((state) => {
          const cell = d.operations.find((/** @type {any} */ c) => c.type === type && c.state === state);
          return h('td', { class: 'number' }, cell?.count
            ? h('a', { href: operationsURL({ type, state }) }, count(cell.count) + (cell.capped ? '+' : '')) : h('span', { class: 'muted' }, '0'));
        }),
        h('td', { class: 'nowrap' }, oldest ? [operationLink(oldest.operation), ' ', time(oldest.createdAt, now)] : h('span', { class: 'muted' }, 'none')));
    })));
}
