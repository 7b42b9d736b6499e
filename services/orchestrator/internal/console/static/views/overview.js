// @ts-check
/** The overview: what operations fail with, by error, then the figures. */

import { Resource } from '../api.js';
import { bars } from '../charts.js';
import { advice, badge, clock, colour, count, dayBefore, lasting, name, operationLink, operationsURL, plural, reasons, sign, states, time, typeNames } from '../format.js';
import { shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

const every = 4000;
/** Older numbers are marked as stale, in milliseconds. A busy database makes the API keep numbers for up to 30 seconds. */
const stale = 45_000;
/** Groups beyond these are shown on demand. */
const mostGroups = 8;

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function overview(ctx) {
  const options = { every, changed: ctx.update };
  const figures = new Resource(ctx.api, '/overview', options);
  const errors = new Resource(ctx.api, '/errors', options);
  const throughput = new Resource(ctx.api, '/throughput?minutes=60&bucket=60s', { every: 10_000, changed: ctx.update });
  const workers = new Resource(ctx.api, '/workers', options);
  const dead = new Resource(ctx.api, '/dead-letters?page_size=1', { every: 15_000, changed: ctx.update });
  /** Incomplete operations have succeeded, so no group of errors has them. */
  let dayAgo = '';
  const incomplete = new Resource(ctx.api, () => {
    dayAgo = dayBefore(ctx.now());
    return `/operations?state=incomplete&finished_since=${dayAgo}&page_size=1`;
  }, { every: 15_000, changed: ctx.update });
  const all = [figures, errors, throughput, workers, dead, incomplete];
  const resume = () => all.forEach((r) => r.refresh());
  resume();

  /** Returns how old the data of a resource is, in milliseconds, if it is too old or the API does not respond; otherwise 0. @param {Resource} r */
  function tooOld(r) {
    if (!r.data) return 0;
    const counted = r.data.countedAt ? Date.parse(r.data.time) - Date.parse(r.data.countedAt) : 0;
    const age = Math.max(0, ctx.now() - r.at) + counted;
    return ctx.api.connection.lost || age > stale ? Math.max(age, 1000) : 0;
  }

  /** Renders a resource, and marks it if it is too old. @param {Resource} r @param {(d: any, age: number) => import('../parts.js').Child} content */
  function fresh(r, content) {
    const age = tooOld(r);
    return shown(r, (d) => (age ? h('div', { class: 'stale' }, content(d, age)) : content(d, 0)));
  }

  return {
    title: () => {
      const n = (errors.data?.now.groups ?? []).filter(needsHelp).length;
      return n ? `(${n}) Overview` : 'Overview';
    },
    resume,
    close: () => all.forEach((r) => r.close()),
    render: () => {
      const now = ctx.now();
      const age = tooOld(errors);
      return [
        h('div', { class: 'head' }, h('h1', null, 'Overview'), errors.at ? h('p', { class: 'muted small' }, `as of ${clock(errors.at)}`) : null),
        age ? h('p', { class: 'note bad', role: 'status' }, h('span', null, sign('missing'), ` Not current: these numbers are ${lasting(age)} old.`)) : null,
        dead.data?.totalCount ? h('p', { class: 'line' }, badge('not completed', 'Dead letters'), ' ',
          h('a', { href: '/console/dead-letters' }, `${plural(dead.data.totalCount, 'message')} could not be handled`)) : null,
        h('div', { class: 'beside' },
          h('section', { 'aria-labelledby': 'now' }, h('h2', { id: 'now' }, 'Failing now', total(errors.data?.now)),
            fresh(errors, (d, old) => [groups(d.now, now, 'now', old ? null : good('Nothing fails.', 'No operation fails or stands still.')), calm(d.calm, now)])),
          h('section', { 'aria-labelledby': 'failed' }, h('h2', { id: 'failed' }, 'Failed in the last 24 hours', total(errors.data?.failed)),
            fresh(errors, (d, old) => groups(d.failed, now, 'failed', old ? null : good('Nothing has failed.', ''))),
            incomplete.data?.totalCount ? h('p', { class: 'line' }, badge('incomplete'), ' ',
              h('a', { href: operationsURL({ state: 'incomplete', finished_since: dayAgo }) }, plural(incomplete.data.totalCount, 'operation')), ' succeeded without some steps') : null)),
        h('section', { 'aria-labelledby': 'missing' }, h('h2', { id: 'missing' }, 'Workers'), fresh(workers, (d, old) => missing(d.data, old))),
        h('section', { 'aria-labelledby': 'hour' }, h('h2', { id: 'hour' }, 'The last hour'), fresh(figures, (d) => lastHour(d)),
          fresh(throughput, series)),
        h('section', { 'aria-labelledby': 'counts' }, h('h2', { id: 'counts' }, 'Operations by type and state'),
          fresh(figures, (d) => counts(d, now))),
      ];
    },
  };
}

/** Reports whether a group needs an action. @param {any} g */
const needsHelp = (g) => ['no_worker', 'no_answer', 'failing'].includes(g.reason);

/** @param {any} groups */
const total = (groups) => (groups?.operations ? h('span', { class: 'muted small' }, ` ${plural(groups.operations, 'operation')}`) : null);

/**
 * @param {string} what
 * @param {string} more
 */
const good = (what, more) => h('div', { class: 'empty good' }, sign('succeeded'), h('p', null, h('b', null, what), more && ` ${more}`));

/**
 * Renders groups of errors, the largest first.
 * @param {any} d
 * @param {number} now
 * @param {string} id
 * @param {import('../parts.js').Child} none
 */
function groups(d, now, id, none) {
  if (!d.operations) return none ?? h('p', { class: 'muted' }, 'None when the API last answered.');
  const list = (/** @type {any[]} */ some) => h('ul', { class: 'groups' }, some.map((g) => group(g, now)));
  const rest = d.groups.slice(mostGroups);
  return [
    list(d.groups.slice(0, mostGroups)),
    rest.length ? h('details', { class: 'more', key: `${id}-more` }, h('summary', null, `${plural(rest.length, 'more group')}`), list(rest)) : null,
    d.others ? h('p', { class: 'muted small' }, `And ${plural(d.others.operations, 'operation')} with ${plural(d.others.errors, 'other error')}.`) : null,
  ];
}

/**
 * @param {any} g
 * @param {number} now
 */
function group(g, now) {
  const failed = g.reason === 'failed';
  const alone = g.count === 1;
  return h('li', { key: g.query, class: `group edge-${colour(g.reason)}` },
    h('div', { class: 'group-head' }, badge(g.reason, failed ? 'Failed' : reasons[g.reason] ?? g.reason), h('h3', null, headline(g)),
      h('a', { class: 'group-count', href: `/console/operations?${g.query}` }, plural(g.count, 'operation'))),
    g.error ? h('p', { class: 'message', title: g.sample.message }, alone ? g.sample.message : g.error.message) : null,
    h('p', { class: 'group-foot' },
      alone ? [failed ? 'at ' : 'since ', at(g.first, now)] : [failed ? 'from ' : 'since ', at(g.first, now), failed ? ' to ' : ', the last one since ', at(g.last, now)],
      g.steps.length ? [' · ', g.steps.map((/** @type {any} */ s, /** @type {number} */ i) => [i ? ', ' : '', h('code', null, name(s.step)),
        g.steps.length > 1 ? ` ${count(s.count)}` : ''])] : null,
      g.moreSteps ? ` and ${plural(g.moreSteps, 'more step')}` : null,
      ' · ', g.types.map((/** @type {string} */ t) => typeNames[t] ?? t).join(', ')),
    h('p', { class: 'group-foot' }, failed ? 'The last one: ' : 'For example ', operationLink(g.sample.operation), ' ',
      !failed && advice[g.reason] ? h('span', { class: 'muted' }, advice[g.reason]) : null));
}

/**
 * Renders a time of day with how long ago it is.
 * @param {string} iso
 * @param {number} now
 */
const at = (iso, now) => [h('span', { class: 'nowrap' }, clock(iso)), ' (', time(iso, now), ')'];

/** @param {any} g */
function headline(g) {
  if (g.reason === 'no_worker') return ['No live worker ', h('code', null, g.worker)];
  if (g.reason === 'no_answer' && g.error) return ['Worker ', h('code', null, g.error.component || g.steps[0]?.worker), ' is alive and does not answer'];
  if (!g.error) return g.text;
  // A step calls a system with the name of its worker unless it names others.
  const systems = g.systems.filter((/** @type {string} */ s) => s !== g.error.component && !g.steps.some((/** @type {any} */ step) => step.worker === s));
  return [h('code', null, g.error.component || g.steps[0]?.worker || 'unknown'), ' ', g.error.reason ? h('span', null, g.error.reason) : null,
    systems.length ? h('span', { class: 'muted small' }, ` calls ${systems.join(', ')}`) : null];
}

/**
 * Renders the operations that need no action.
 * @param {any[]} data
 * @param {number} now
 */
function calm(data, now) {
  if (!data.length) return null;
  const words = { polling: 'polling', event: 'waiting for an event', slow: 'slow' };
  /** @type {Record<string, number>} */
  const sums = {};
  for (const g of data) sums[g.reason] = (sums[g.reason] ?? 0) + g.count;
  return h('details', { class: 'more', key: 'calm' },
    h('summary', null, 'No action needed: ', Object.entries(sums).map(([reason, n]) => `${count(n)} ${words[/** @type {'slow'} */ (reason)] ?? reason}`).join(', ')),
    h('ul', { class: 'plain-list' }, data.map((g) => h('li', { key: g.query, class: 'line' }, badge(g.reason, reasons[g.reason]), ' ',
      h('a', { href: `/console/operations?${g.query}` }, plural(g.count, 'operation')), ' at ', h('code', null, name(g.step)), ' of ', h('code', null, g.worker),
      ', the first since ', at(g.since, now), g.long ? h('b', null, ', for more than half of its time') : null))));
}

/**
 * @param {any[]} data
 * @param {number} old how old the data is, if it is too old
 */
function missing(data, old) {
  const gone = data.filter((w) => !w.alive || w.missingSteps?.length);
  if (!gone.length) return h('p', { class: 'line' },
    old ? badge('waiting', `All ${data.length} workers were alive ${lasting(old)} ago`) : badge('alive', `All ${data.length} workers are alive`),
    ' ', h('a', { href: '/console/workers' }, 'Rates and lag'));
  return h('ul', { class: 'plain-list' }, gone.map((w) => h('li', { key: w.name, class: 'line' },
    badge(w.alive ? 'not completed' : 'missing', w.alive ? 'Incomplete' : 'Missing'), ' ', h('a', { href: `/console/workers?worker=${encodeURIComponent(w.name)}` }, w.name),
    h('span', { class: 'muted' }, ` no replica serves ${(w.missingSteps ?? []).join(', ')}`))));
}

/** @param {any} d */
function lastHour(d) {
  const hour = d.lastHour;
  const figure = (/** @type {string} */ state, /** @type {string} */ label, /** @type {number | undefined} */ n, /** @type {string} */ href = '') => {
    const content = [h('b', null, count(n ?? 0)), h('span', null, sign(state), label)];
    return h('li', null, href ? h('a', { href, class: `figure text-${colour(state)}` }, content) : h('div', { class: `figure text-${colour(state)}` }, content));
  };
  // The list counts by the same time, so it has as many rows as the number says.
  const ended = (/** @type {string} */ state) => operationsURL({ state, finished_since: d.lastHourSince });
  return h('ul', { class: 'figures-row' }, figure('pending', 'started', hour.started),
    ['succeeded', 'failed', 'cancelled'].map((state) => figure(state, state, hour[state], ended(state))));
}

/** The outcomes of executions that failed, also those that are tried again. */
const failedTries = ['failed', 'retry', 'noAnswer', 'stageLost', 'notCompleted'];

/** @param {any} d */
function series(d) {
  const times = d.data.map((/** @type {any} */ b) => b.time);
  const pick = (/** @type {string} */ kind, /** @type {string[]} */ keys) =>
    d.data.map((/** @type {any} */ b) => keys.reduce((sum, key) => sum + (b[kind][key] ?? 0), 0));
  // Failures are at the bottom and alone in colour: the steps before a failing one succeed again and again while their stage is repeated.
  /** @type {[string, string[], string][]} */
  const outcomes = [['failed tries', failedTries, 'bad'], ['polling', ['polled'], 'run'], ['succeeded', ['succeeded'], 'idle'], ['skipped', ['skipped'], 'gone']];
  return h('div', { class: 'charts' },
    bars({
      title: 'Operations ended per minute', unit: 'operations', at: times,
      series: ['failed', 'cancelled', 'succeeded'].map((s) => ({ name: s, colour: colour(s), values: pick('operations', [s]) })),
    }),
    bars({
      title: 'Step executions per minute', unit: 'executions', at: times,
      series: outcomes.map(([label, keys, c]) => ({ name: label, colour: c, values: pick('steps', keys) })),
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
          return h('td', { class: 'number', 'data-label': state }, cell?.count
            ? h('a', { href: operationsURL({ type, state }) }, count(cell.count) + (cell.capped ? '+' : '')) : h('span', { class: 'muted' }, '0'));
        }),
        h('td', { class: 'nowrap', 'data-label': 'oldest' }, oldest ? [operationLink(oldest.operation), ' ', time(oldest.createdAt, now)] : h('span', { class: 'muted' }, 'none')));
    })), 'cards');
}
