// @ts-check
/** The list of operations: filters in the URL, pages by cursor, and live rows. */

import { Resource } from '../api.js';
import { badge, count, duration, errorLine, lasting, operationURL, operationsURL, plural, reasons, short, states, time, typeNames, waitingWords } from '../format.js';
import { select, shown, table, th } from '../parts.js';
import { Stream } from '../stream.js';
import { h } from '../vdom.js';
import { askBatch } from './batches.js';

/** @typedef {import('../format.js').Operation} Operation */

const pageSize = 50;
/** The maximum count of new operations; more are shown as "1000+". */
const mostNew = 1000;
/** The minimum time between two updates of the rows, in milliseconds. */
const pace = 250;

/** The filters in the URL. */
const filters = ['q', 'state', 'type', 'plan', 'step', 'worker', 'waiting', 'instance', 'orchestration', 'since', 'until'];

/** Times relative to now. @type {[string, string][]} */
const periods = [['', 'Any time'], ['15m', 'Last 15 minutes'], ['1h', 'Last hour'], ['24h', 'Last 24 hours'], ['168h', 'Last 7 days']];

/** @type {[string, string][]} */
const plans = ['aws', 'azure', 'azure_lite', 'gcp', 'openstack', 'free', 'trial', 'own_cluster', 'preview'].map((p) => [p, p]);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function operations(ctx) {
  let params = ctx.params;
  let search = params.get('q') ?? '';
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  /** The cursors of the previous pages that were visited. @type {string[]} */
  let trail = [];
  /** Operations that were created after the list was requested. */
  const fresh = new Set();
  /** @type {Map<string, Operation>} */
  let changed = new Map();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let painting;
  let newest = 0;
  /** Operations that were created later are not in the list until the user loads them, so that the rows do not move. */
  let horizon = '';

  const list = new Resource(ctx.api, () => path(params, horizon), {
    changed: () => {
      const first = list.data?.data[0];
      if (!horizon && first && list.error === null) horizon = new Date(Date.parse(first.createdAt) + 1).toISOString();
      // A change during the request is newer than its answer.
      for (const o of changed.values()) put(o);
      ctx.update();
    },
  });
  const definitions = new Resource(ctx.api, '/processes', { changed: ctx.update });
  const stream = new Stream('/stream', {
    onoperation: (o) => {
      if ((changed.get(o.id)?.cursor ?? 0) <= o.cursor) changed.set(o.id, o);
      // Keep only the visible operations.
      if (changed.size > 2000) changed = new Map([...changed].slice(-1000));
      painting ??= setTimeout(flush, pace);
    },
    onresync: () => list.refresh(),
    onstate: ctx.update,
    onlost: () => ctx.api.check(),
  });

  /** @param {Operation} o */
  function put(o) {
    const rows = list.data?.data;
    const at = rows?.findIndex((/** @type {Operation} */ row) => row.id === o.id) ?? -1;
    if (at < 0) return false;
    if (rows[at].cursor <= o.cursor) rows[at] = { ...o, changedAt: rows[at].cursor < o.cursor ? Date.now() : rows[at].changedAt };
    return true;
  }

  function flush() {
    painting = undefined;
    if (!list.data) return;
    for (const o of changed.values()) {
      if (!put(o) && Date.parse(o.createdAt) > newest && matches(o, params) && fresh.size < mostNew) fresh.add(o.id);
    }
    changed = new Map();
    if (!document.hidden) ctx.update();
  }

  function load() {
    fresh.clear();
    newest = Date.now();
    horizon = '';
    list.refresh();
  }

  /** @param {Record<string, string>} change */
  function filter(change) {
    const next = new URLSearchParams(params);
    next.delete('cursor');
    for (const [name, value] of Object.entries(change)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    trail = [];
    ctx.go('/console/operations' + (next.size ? `?${next}` : ''), 'q' in change);
  }

  /** @param {string} cursor */
  function page(cursor) {
    const next = new URLSearchParams(params);
    if (cursor) next.set('cursor', cursor);
    else next.delete('cursor');
    ctx.go('/console/operations' + (next.size ? `?${next}` : ''));
    document.querySelector('.list')?.scrollIntoView({ block: 'start' });
  }

  load();
  definitions.refresh();

  return {
    title: () => 'Operations',
    live: () => stream.live,
    resume: () => {
      stream.retry();
      list.refresh();
    },
    keys: { r: load },
    close: () => {
      list.close();
      definitions.close();
      stream.close();
      clearTimeout(painting);
      clearTimeout(typing);
    },
    query: (next) => {
      params = next;
      if (document.activeElement?.getAttribute('type') !== 'search') search = params.get('q') ?? '';
      list.reset();
      load();
    },
    render: () => {
      const now = ctx.now();
      const steps = stepNames(definitions.data?.data ?? []);
      const chosen = (params.get('state') ?? '').split(',').filter(Boolean);
      const active = filters.filter((name) => params.get(name));
      return [
        h('div', { class: 'head' }, h('h1', null, 'Operations'),
          h('p', { class: 'muted small', role: 'status' }, list.data ? total(list.data) : ''),
          active.length && list.data?.totalCount && ctx.me.role === 'operator' ? h('button', {
            type: 'button', class: 'button', onclick: () => askBatch(ctx, filterOf(params)),
          }, `Act on all ${count(list.data.totalCount)}${list.data.totalCountCapped ? '+' : ''} that match…`) : null),
        h('form', { class: 'filters', role: 'search', 'aria-label': 'Filter operations', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
          h('label', { class: 'field grow' }, h('span', null, 'Search'),
            h('input', {
              type: 'search', name: 'q', value: search, placeholder: 'ID, or name of the shoot', autocomplete: 'off', spellcheck: 'false',
              oninput: (/** @type {any} */ e) => {
                search = e.target.value;
                clearTimeout(typing);
                typing = setTimeout(() => {
                  // The API requires at least three characters.
                  if (search.trim().length !== 1 && search.trim().length !== 2) filter({ q: search.trim() });
                }, 250);
              },
            })),
          select('Type', 'type', [['', 'All types'], ...Object.entries(typeNames)], params.get('type') ?? '', (v) => filter({ type: v })),
          select('Plan', 'plan', [['', 'All plans'], ...plans], params.get('plan') ?? '', (v) => filter({ plan: v })),
          select('Waits for', 'waiting', [['', 'Anything'], ...Object.entries(reasons)], params.get('waiting') ?? '', (v) => filter({ waiting: v })),
          select('Worker', 'worker', [['', 'All workers'], ...steps.workers], params.get('worker') ?? '', (v) => filter({ worker: v, step: '' })),
          select('Step', 'step', [['', 'All steps'], ...steps.of(params.get('worker') ?? '')], params.get('step') ?? '', (v) => filter({ step: v })),
          select('Created', 'since', periods, params.get('since') ?? '', (v) => filter({ since: v, until: '' })),
          h('fieldset', { class: 'chips' }, h('legend', null, 'State'), states.map((s) => h('label', { class: `chip ${chosen.includes(s) ? 'on' : ''}` },
            h('input', {
              type: 'checkbox', name: 'state', value: s, checked: chosen.includes(s),
              onchange: (/** @type {any} */ e) => filter({ state: states.filter((x) => (x === s ? e.target.checked : chosen.includes(x))).join(',') }),
            }), badge(s)))),
          active.length || params.get('cursor') ? h('a', { class: 'button plain', href: '/console/operations' }, 'Clear all') : null),
        params.get('orchestration') ? h('p', { class: 'line' }, 'Orchestration ',
          h('a', { href: `/console/orchestrations/${encodeURIComponent(params.get('orchestration') ?? '')}`, class: 'mono' }, params.get('orchestration'))) : null,
        params.get('instance') ? h('p', { class: 'line' }, 'Instance ', h('code', null, params.get('instance'))) : null,
        fresh.size && !params.get('cursor') ? h('div', { class: 'fresh', role: 'status' },
          h('button', { type: 'button', class: 'button primary', onclick: load },
            `Show ${fresh.size >= mostNew ? mostNew + '+' : plural(fresh.size, 'new operation')}`)) : null,
        h('div', { class: 'list' }, shown(list, (d) => (d.data.length ? [rows(d.data, now), pager(d)] : nothing(active.length > 0)))),
      ];
    },
  };

  /** @param {any} d */
  function pager(d) {
    const cursor = params.get('cursor');
    if (!cursor && !d.nextCursor) return null;
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('button', { type: 'button', class: 'button', disabled: !cursor, onclick: () => { trail = []; page(''); } }, 'Newest'),
      h('button', { type: 'button', class: 'button', disabled: !cursor || !trail.length, onclick: () => page(trail.pop() ?? '') }, 'Newer'),
      h('button', {
        type: 'button', class: 'button', disabled: !d.nextCursor,
        onclick: () => {
          trail.push(cursor ?? '');
          page(d.nextCursor);
        },
      }, 'Older'));
  }
}

/**
 * Returns the request for a page.
 * @param {URLSearchParams} params
 * @param {string} horizon
 */
function path(params, horizon) {
  const query = filterOf(params);
  query.set('page_size', String(pageSize));
  if (params.get('cursor')) query.set('cursor', params.get('cursor') ?? '');
  if (horizon && !query.has('until') && !query.has('cursor')) query.set('until', horizon);
  return `/operations?${query}`;
}

/** Returns the filter of the list in the form of the API. @param {URLSearchParams} params */
function filterOf(params) {
  const query = new URLSearchParams();
  for (const name of filters) {
    const value = params.get(name);
    if (!value) continue;
    const ago = /^(\d+)(m|h)$/.exec(value);
    if (name === 'since' && ago) {
      // Round to the minute, so that the URL of the request stays the same for a while.
      const ms = Number(ago[1]) * (ago[2] === 'h' ? 3_600_000 : 60_000);
      query.set(name, new Date(Math.floor((Date.now() - ms) / 60_000) * 60_000).toISOString());
    } else query.set(name, value);
  }
  return query;
}

/**
 * Reports whether a new operation belongs to the list, as far as the page can decide.
 * @param {Operation} o
 * @param {URLSearchParams} params
 */
function matches(o, params) {
  const has = (/** @type {string} */ name, /** @type {string | undefined} */ value) =>
    !params.get(name) || (value !== undefined && (params.get(name) ?? '').split(',').includes(value));
  const q = params.get('q');
  return has('state', o.state) && has('type', o.type) && has('plan', o.plan) && has('step', o.step) && has('waiting', o.waiting?.reason)
    && has('worker', o.waiting?.worker) && has('instance', o.instanceId) && has('orchestration', o.orchestrationId)
    && (!q || o.id.startsWith(q.toLowerCase()) || o.instanceId.startsWith(q) || [o.subaccountId, o.globalAccountId, o.shootName].includes(q)) && !params.get('until');
}

/** @param {any} d */
const total = (d) => (d.totalCountCapped ? `more than ${count(d.totalCount)} operations` : plural(d.totalCount, 'operation'));

/** @param {any[]} definitions */
function stepNames(definitions) {
  /** @type {Map<string, string>} */
  const steps = new Map();
  for (const p of definitions) for (const stage of p.stages) for (const s of stage.steps) steps.set(s.name, s.worker);
  const names = (/** @type {Iterable<string>} */ list) => [...new Set(list)].sort().map((n) => /** @type {[string, string]} */ ([n, n]));
  return {
    workers: names(steps.values()),
    of: (/** @type {string} */ worker) => names([...steps].filter(([, w]) => !worker || w === worker).map(([s]) => s)),
  };
}

/** @param {boolean} filtered */
function nothing(filtered) {
  return h('div', { class: 'empty' }, filtered
    ? [h('p', null, h('b', null, 'No operations match these filters.')), h('a', { class: 'button', href: '/console/operations' }, 'Clear all filters')]
    : h('p', null, h('b', null, 'No operations yet.'), ' The first one appears when a platform orders a runtime.'));
}

/**
 * @param {any[]} data
 * @param {number} now
 */
function rows(data, now) {
  return table('Operations, newest first',
    [th('Operation'), th('State'), th('Type'), th('Plan'), th('Step and reason for waiting'), th('Created'), th('Took', 'number'), th('Instance')],
    h('tbody', null, data.map((o) => row(o, now))), 'operations cards');
}

/**
 * @param {Operation & {changedAt?: number}} o
 * @param {number} now
 */
export function row(o, now) {
  const end = o.finishedAt ? Date.parse(o.finishedAt) : now;
  const begin = Date.parse(o.startedAt ?? o.createdAt);
  return h('tr', { key: o.id, class: o.changedAt && now - o.changedAt < 1500 ? 'changed' : '' },
    h('th', { scope: 'row' }, h('a', { href: operationURL(o.id), class: 'mono', 'data-row': true, title: o.id }, short(o.id))),
    h('td', null, label(o)),
    h('td', { class: 'nowrap' }, typeNames[o.type] ?? o.type), h('td', null, o.plan),
    h('td', { class: 'wide' }, what(o, now)),
    h('td', { class: 'nowrap' }, time(o.createdAt, now)),
    h('td', { class: 'number nowrap', 'data-label': 'took' }, o.state === 'pending' ? '–' : o.finishedAt ? duration(end - begin) : lasting(end - begin)),
    h('td', { 'data-label': 'instance' }, h('a', { href: operationsURL({ instance: o.instanceId }), class: 'mono', title: o.instanceId }, short(o.instanceId))));
}

/** Renders the state; for an operation in progress, the reason why it waits. @param {Operation} o */
function label(o) {
  const reason = o.waiting?.reason;
  return badge(o.state === 'in progress' && reason && reason !== 'executing' ? reason : o.state);
}

/**
 * @param {Operation} o
 * @param {number} now
 */
function what(o, now) {
  const words = waitingWords(o, now);
  const polls = ['polling', 'event'].includes(o.waiting?.reason ?? '');
  const failure = polls ? '' : errorLine(o.error) || (o.waiting?.reason === 'failing' || o.state === 'cancelled' ? o.message : '');
  return [
    o.step ? h('span', { class: 'step' }, o.step, o.stepAttempt && o.stepAttempt > 1 ? h('span', { class: 'muted' }, ` attempt ${o.stepAttempt}`) : null) : null,
    words && o.waiting?.reason !== 'executing' ? h('span', { class: 'words' }, words) : null,
    polls && o.message ? h('span', { class: 'words', title: o.message }, o.message) : null,
    failure ? h('span', { class: 'failure', title: failure }, failure) : null,
    o.cancelRequested ? h('span', { class: 'words' }, 'cancellation requested') : null,
    o.notCompleted?.length ? h('span', { class: 'words' }, `not completed: ${o.notCompleted.join(', ')}`) : null,
  ];
}
