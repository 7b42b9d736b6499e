// @ts-check
/** The list of operations: filters and order in the URL, saved views, pages by cursor, and live rows. */

import { Resource, Unreachable } from '../api.js';
import { ask, tell } from '../dialogs.js';
import { badge, count, dryMark, duration, errorLine, filterStates, instanceURL, kind, lasting, operationURL, plural, reasonOf, reasons, short, shownState, time, typeNames, usefulEnd, waitingWords } from '../format.js';
import { select, shown, sorter, table, th } from '../parts.js';
import { remember, remembered } from '../settings.js';
import { Stream } from '../stream.js';
import { h } from '../vdom.js';
import { askBatch } from './batches.js';

/** @typedef {import('../format.js').Operation} Operation */

const pageSize = 50;
/** The maximum count of new operations; more are shown as "1000+". */
const mostNew = 1000;
/** The maximum number of selected operations: their condition must not be longer than the API allows. */
const mostSelected = 48;
/** The minimum time between two updates of the rows, in milliseconds. */
const pace = 250;

/** The filters in the URL: those of the API. */
const filters = ['q', 'state', 'type', 'plan', 'step', 'worker', 'system', 'waiting', 'instance', 'global_account', 'region', 'orchestration', 'since', 'until', 'error', 'hold', 'limit_name', 'finished_since', 'finished_until', 'filter'];
/** The filters that an operation always matches, or never. With any other, operations enter and leave the list. */
const fixed = ['q', 'type', 'plan', 'instance', 'global_account', 'region', 'orchestration', 'since', 'until'];
/** The time between two refreshes of a list that operations enter and leave, in milliseconds. */
const refreshEvery = 10_000;
/** The other parameters of the URL. */
const positions = ['cursor', 'page', 'sort'];

/** The orders of the list. The API has an index for the first two; it sorts a limited number of operations by the others. @type {[string, string][]} */
const orders = [['', 'Newest first'], ['oldest', 'Oldest first'], ['duration', 'Longest first'], ['attempts', 'Most attempts first'], ['state', 'State']];

/** What the help of conditions shows. @type {[string, string][]} */
const examples = [
  ['state = failed AND error.component = edp', 'both must match'],
  ['plan:(azure OR aws) AND NOT region = eu-*', 'one of two plans, and no region that begins with eu-'],
  ['error.message:"status 503"', 'the text contains it'],
  ['duration > 20m AND (waiting = failing OR attempts >= 10)', 'OR binds tighter than AND'],
  ['created >= 24h AND finished:*', 'requested in the last 24 hours, and ended'],
];

/** The fields of conditions, by the form of their values. @type {[string, string][]} */
const conditionFields = [
  ['plan, region, instance, global_account, subaccount, runtime, shoot, message, error.component, error.reason, error.message', 'text; * stands for any characters'],
  ['state, type, waiting', 'a state such as in_progress, a type, a reason such as no_worker'],
  ['stage, step, worker, system', 'where an operation is, or where it failed'],
  ['error, limit_name', 'the key of a group of errors or none, the name of a limit'],
  ['id, orchestration, hold', 'a UUID'],
  ['held, incomplete', 'true or false'],
  ['attempts, duration', 'a number; 90s, 20m, 2h'],
  ['created, started, finished', '2026-11-21T08:00:00Z, 2026-11-21, or 24h for 24 hours ago'],
];

/** @typedef {{name: string, query: string}} SavedView */

/** The views that everybody has. @type {SavedView[]} */
const builtIn = [
  { name: 'Failing now', query: 'waiting=failing,no_answer,no_worker' },
  { name: 'Longest in progress', query: 'state=in progress&sort=duration' },
  { name: 'Held or limited', query: 'waiting=held,limited' },
  { name: 'Failed in 24 h', query: 'state=failed&finished_since=24h' },
  { name: 'Incomplete', query: 'state=incomplete' },
];

/** @returns {SavedView[]} */
function savedViews() {
  try {
    const list = JSON.parse(remembered('keb.views') || '[]');
    return list.filter((/** @type {any} */ v) => typeof v?.name === 'string' && typeof v?.query === 'string');
  } catch {
    return [];
  }
}

/** Times relative to now. @type {[string, string][]} */
const periods = [['', 'Any time'], ['15m', 'Last 15 minutes'], ['1h', 'Last hour'], ['24h', 'Last 24 hours'], ['168h', 'Last 7 days']];

/** @type {[string, string][]} */
const plans = ['aws', 'azure', 'azure_lite', 'gcp', 'openstack', 'free', 'trial', 'own_cluster', 'preview'].map((p) => [p, p]);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function operations(ctx) {
  let params = joined(ctx.params);
  let search = params.get('q') ?? '';
  let condition = params.get('filter') ?? '';
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
  /** The ids of the selected operations of this page. @type {Set<string>} */
  let selected = new Set();
  /** Whether the rows belong to the filters of before. */
  let loading = true;
  let saved = savedViews();
  /** Whether the filters are open on a phone. */
  let open = false;

  const changes = () => [...filterOf(params).keys()].some((name) => !fixed.includes(name));

  const list = new Resource(ctx.api, () => path(params, horizon), {
    every: () => (changes() ? refreshEvery : 0),
    changed: () => {
      if (loading && list.error && !(list.error instanceof Unreachable)) list.data = null;
      if (list.error === null) loading = false;
      const first = list.data?.data[0];
      if (!horizon && first && list.error === null && !params.get('sort') && !changes()) {
        horizon = new Date(Date.parse(first.createdAt) + 1).toISOString();
        ctx.keep({ horizon });
      }
      // An operation that has left the list cannot be unselected.
      selected = new Set([...selected].filter((id) => list.data?.data.some((/** @type {Operation} */ o) => o.id === id)));
      for (const o of list.data?.data ?? []) fresh.delete(o.id);
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

  /** @param {import('../parts.js').Kept} [kept] of a page that was shown before: the way back leads to the same rows */
  function load(kept = {}) {
    fresh.clear();
    selected = new Set();
    newest = Date.now();
    horizon = kept.horizon ?? '';
    trail = kept.trail ?? [];
    loading = true;
    list.restart();
  }

  /** Loads the newest operations. */
  function reload() {
    ctx.keep({ horizon: '' });
    load({ trail });
  }

  /** @param {Record<string, string>} change */
  function filter(change) {
    const next = new URLSearchParams(params);
    next.delete('cursor');
    next.delete('page');
    for (const [name, value] of Object.entries(change)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    ctx.go('/console/operations' + (next.size ? `?${next}` : ''), 'q' in change);
  }

  /**
   * @param {'cursor' | 'page'} name
   * @param {string} value
   * @param {string[]} [visited] the cursors of the pages before
   */
  function page(name, value, visited = []) {
    const next = new URLSearchParams(params);
    if (value) next.set(name, value);
    else next.delete(name);
    const kept = { horizon, trail: visited };
    ctx.go('/console/operations' + (next.size ? `?${next}` : ''));
    ctx.keep(kept);
    trail = visited;
    document.querySelector('.list')?.scrollIntoView({ block: 'start' });
  }

  function save() {
    let name = '';
    ask({
      title: 'Save these filters as a view', action: 'Save',
      body: () => [h('p', null, 'The view is saved in this browser.'), h('label', { class: 'field' }, h('span', null, 'Name'), h('input', {
        name: 'view', autocomplete: 'off', maxlength: 40, value: name, 'data-first': true, oninput: (/** @type {any} */ e) => { name = e.target.value.trim(); },
      }))],
      run: async () => {
        if (!name) throw new Error('Enter a name.');
        const query = new URLSearchParams(params);
        for (const part of ['cursor', 'page']) query.delete(part);
        store([...saved.filter((v) => v.name !== name), { name, query: String(query) }]);
        ctx.announce(`View ${name} saved`);
      },
    });
  }

  /** @param {SavedView[]} list */
  function store(list) {
    saved = list;
    remember('keb.views', list.length ? JSON.stringify(list) : '');
    ctx.update();
  }

  load(ctx.kept);
  definitions.refresh();

  return {
    title: () => 'Operations',
    live: () => stream.live,
    resume: () => {
      stream.retry();
      list.refresh();
    },
    keys: { r: reload },
    close: () => {
      list.close();
      definitions.close();
      stream.close();
      clearTimeout(painting);
      clearTimeout(typing);
    },
    query: (next, kept) => {
      params = joined(next);
      if (document.activeElement?.getAttribute('type') !== 'search') search = params.get('q') ?? '';
      condition = params.get('filter') ?? '';
      load(kept);
    },
    render: () => {
      const now = ctx.now();
      const steps = stepNames(definitions.data?.data ?? []);
      const chosen = (params.get('state') ?? '').split(',').filter(Boolean);
      const active = [...filterOf(params).keys()];
      const unknown = active.filter((name) => !filters.includes(name));
      return [
        h('div', { class: 'head' }, h('h1', null, 'Operations'),
          h('p', { class: 'muted small', role: 'status' }, list.data && !unknown.length ? total(list.data) : ''),
          selected.size ? h('button', {
            type: 'button', class: 'button', disabled: selected.size > mostSelected, title: selected.size > mostSelected ? `At most ${mostSelected} at once` : undefined,
            onclick: () => askBatch(ctx, only(selected, params)),
          }, `Act on ${selected.size} selected…`) : null,
          ctx.me.role === 'operator' ? h('button', {
            type: 'button', class: 'button', disabled: !active.length || unknown.length > 0 || !list.data?.totalCount, title: active.length ? undefined : 'Choose a filter first',
            onclick: () => askBatch(ctx, filterOf(params)),
          }, active.length && list.data && !unknown.length ? `Act on all ${count(list.data.totalCount)}${list.data.totalCountCapped ? '+' : ''} that match…` : 'Act on all that match…') : null),
        views(),
        h('button', { type: 'button', class: 'button only-phone', 'aria-expanded': String(open), onclick: () => { open = !open; ctx.update(); } },
          open ? 'Hide the filters' : `Filters and order${active.length ? ` (${active.length})` : ''}`),
        h('form', { class: `filters ${open ? 'open' : 'closed'}`, role: 'search', 'aria-label': 'Filter operations', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
          h('label', { class: 'field grow' }, h('span', null, 'Search'),
            h('input', {
              type: 'search', name: 'q', value: search, placeholder: 'ID, or name of runtime or shoot', autocomplete: 'off', spellcheck: 'false',
              oninput: (/** @type {any} */ e) => {
                search = e.target.value;
                clearTimeout(typing);
                typing = setTimeout(() => {
                  // The API requires at least three characters.
                  if (search.trim().length !== 1 && search.trim().length !== 2) filter({ q: search.trim() });
                }, 250);
              },
            })),
          h('div', { class: 'field grow' }, h('label', { for: 'condition' }, 'Condition'), h('div', { class: 'with-help' },
            h('input', {
              id: 'condition', name: 'filter', value: condition, placeholder: examples[0][0], maxlength: 2000, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', class: 'mono',
              oninput: (/** @type {any} */ e) => { condition = e.target.value; },
              onchange: () => filter({ filter: condition.trim() }),
            }),
            h('button', { type: 'button', class: 'button', 'aria-label': 'Help for conditions', onclick: explainConditions }, '?'))),
          select('Type', 'type', [['', 'All types'], ...Object.entries(typeNames)], params.get('type') ?? '', (v) => filter({ type: v })),
          select('Plan', 'plan', [['', 'All plans'], ...plans], params.get('plan') ?? '', (v) => filter({ plan: v })),
          select('Waits for', 'waiting', [['', 'Anything'], ...Object.entries(reasons)], params.get('waiting') ?? '', (v) => filter({ waiting: v })),
          select('Worker', 'worker', [['', 'All workers'], ...steps.workers], params.get('worker') ?? '', (v) => filter({ worker: v, step: '' })),
          select('Step', 'step', [['', 'All steps'], ...steps.of(params.get('worker') ?? '')], params.get('step') ?? '', (v) => filter({ step: v })),
          select('Created', 'since', periods, params.get('since') ?? '', (v) => filter({ since: v, until: '' })),
          select('Order', 'sort', orders, params.get('sort') ?? '', (v) => filter({ sort: v })),
          h('fieldset', { class: 'chips' }, h('legend', null, 'State'), filterStates.map((s) => h('label', { class: `chip ${chosen.includes(s) ? 'on' : ''}` },
            h('input', {
              type: 'checkbox', name: 'state', value: s, checked: chosen.includes(s),
              onchange: (/** @type {any} */ e) => filter({ state: filterStates.filter((x) => (x === s ? e.target.checked : chosen.includes(x))).join(',') }),
            }), badge(s))),
            h('button', { type: 'button', class: 'button plain', disabled: !params.size, onclick: () => ctx.go('/console/operations') }, 'Clear all'))),
        params.get('orchestration') ? h('p', { class: 'line' }, 'Orchestration ',
          h('a', { href: `/console/orchestrations/${encodeURIComponent(params.get('orchestration') ?? '')}`, class: 'mono' }, params.get('orchestration'))) : null,
        params.get('error') ? h('p', { class: 'line' }, 'Operations with a similar error, group ', h('code', null, params.get('error')),
          params.get('finished_since') ? [', that failed since ', time(filterOf(params).get('finished_since') ?? '', now)] : null) : null,
        params.get('hold') ? h('p', { class: 'line' }, 'Held by ', h('a', { href: '/console/holds', class: 'mono' }, params.get('hold'))) : null,
        params.get('instance') ? h('p', { class: 'line' }, 'Instance ', h('a', { href: instanceURL(params.get('instance') ?? ''), class: 'mono' }, params.get('instance'))) : null,
        [['global_account', 'Global account'], ['region', 'Region'], ['system', 'System']].map(([name, label]) => params.get(name) && h('p', { class: 'line', key: name }, `${label} `, h('code', null, params.get(name)))),
        fresh.size && !params.get('cursor') && !params.get('sort') ? h('div', { class: 'fresh', role: 'status' },
          h('button', { type: 'button', class: 'button primary', onclick: reload },
            `Show ${fresh.size >= mostNew ? mostNew + '+' : plural(fresh.size, 'new operation')}`)) : null,
        h('div', { class: `list ${loading && list.data ? 'stale' : ''}`, 'aria-busy': loading }, unknown.length ? h('p', { class: 'refusal' }, `Unknown filter: ${unknown.join(', ')}`) : shown(list, (d) => (d.data.length ? [
          d.sortedWithin ? h('p', { class: 'muted small', role: 'status' }, `Of the newest ${count(d.sortedWithin)} that match; filter for the others.`) : null,
          rows(d.data, now, params.get('sort') ?? '', (sort) => filter({ sort }), ctx.me.role === 'operator' ? choose : undefined), pager(d)] : nothing(active.length > 0)))),
      ];
    },
  };

  /** Renders the checkbox that selects an operation. @param {Operation} o */
  function choose(o) {
    return h('input', {
      type: 'checkbox', class: 'choose', 'aria-label': `Select operation ${short(o.id)}`, checked: selected.has(o.id),
      onchange: (/** @type {any} */ e) => {
        if (e.target.checked) selected.add(o.id);
        else selected.delete(o.id);
        ctx.update();
      },
    });
  }

  /** Renders the saved views. */
  function views() {
    const now = new URLSearchParams(params);
    for (const part of ['cursor', 'page']) now.delete(part);
    const link = (/** @type {SavedView} */ v) => h('a', {
      href: `/console/operations?${new URLSearchParams(v.query)}`, 'aria-current': sameQuery(now, new URLSearchParams(v.query)) ? 'page' : undefined,
    }, v.name);
    return h('nav', { class: 'views', 'aria-label': 'Saved views' }, h('ul', null,
      h('li', null, h('a', { href: '/console/operations', 'aria-current': now.size ? undefined : 'page' }, 'All')),
      builtIn.map((v) => h('li', { key: v.query }, link(v))),
      saved.map((v) => h('li', { key: v.name, class: 'own' }, link(v), h('button', {
        type: 'button', class: 'button plain small', 'aria-label': `Delete the view ${v.name}`, onclick: () => store(saved.filter((x) => x.name !== v.name)),
      }, '×'))),
      h('li', null, h('button', { type: 'button', class: 'button plain small', disabled: !now.size, onclick: save }, 'Save view…'))));
  }

  /** @param {any} d */
  function pager(d) {
    const cursor = params.get('cursor');
    if (bounded(params)) {
      const n = Math.max(1, Number(params.get('page')) || 1);
      if (n === 1 && n * pageSize >= (d.sortedWithin ?? d.totalCount)) return null;
      return h('nav', { class: 'pager', 'aria-label': 'Pages' },
        h('button', { type: 'button', class: 'button', disabled: n === 1, onclick: () => page('page', n > 2 ? String(n - 1) : '') }, 'Previous'),
        h('button', { type: 'button', class: 'button', disabled: n * pageSize >= (d.sortedWithin ?? d.totalCount), onclick: () => page('page', String(n + 1)) }, 'Next'));
    }
    if (!cursor && !d.nextCursor) return null;
    const [first, before, after] = params.get('sort') === 'oldest' ? ['Oldest', 'Older', 'Newer'] : ['Newest', 'Newer', 'Older'];
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('button', { type: 'button', class: 'button', disabled: !cursor, onclick: () => page('cursor', '') }, first),
      h('button', { type: 'button', class: 'button', disabled: !cursor || !trail.length, onclick: () => page('cursor', trail.at(-1) ?? '', trail.slice(0, -1)) }, before),
      h('button', { type: 'button', class: 'button', disabled: !d.nextCursor, onclick: () => page('cursor', d.nextCursor, [...trail, cursor ?? '']) }, after));
  }
}

/** Shows the help of conditions. */
function explainConditions() {
  const list = (/** @type {string} */ heading, /** @type {[string, string][]} */ rows) => [h('h3', null, heading),
    h('dl', { class: 'explained' }, rows.map(([code, what]) => h('div', { key: code }, h('dt', null, h('code', null, code)), h('dd', null, what))))];
  tell('Conditions', [
    h('p', null, 'A condition compares fields with values by = != < <= > >= and : (has). It is the language of AIP-160. Press Enter to apply it.'),
    list('Examples', examples), list('Fields', conditionFields),
    h('p', { class: 'muted' }, 'NOT and != also select operations without the field. field:* selects those with any value. Quote a value with spaces.'),
  ]);
}

/** Reports whether the API sorts a limited number of operations. @param {URLSearchParams} params */
const bounded = (params) => ['duration', 'attempts', 'state'].includes(params.get('sort') ?? '');

/** @param {URLSearchParams} a @param {URLSearchParams} b */
const sameQuery = (a, b) => String([...a].sort()) === String([...b].sort());

/** Returns parameters with the values of repeated ones in one list. @param {URLSearchParams} given */
const joined = (given) => new URLSearchParams([...new Set(given.keys())].map((name) => [name, given.getAll(name).join(',')]));

/**
 * Returns the request for a page.
 * @param {URLSearchParams} params
 * @param {string} horizon
 */
function path(params, horizon) {
  const query = filterOf(params);
  query.set('page_size', String(pageSize));
  for (const name of positions) if (params.get(name)) query.set(name, params.get(name) ?? '');
  if (horizon && !query.has('until') && !query.has('cursor')) query.set('until', horizon);
  return `/operations?${query}`;
}

/** Returns the filter of the list in the form of the API, which rejects unknown filters of batches. @param {URLSearchParams} params */
function filterOf(params) {
  const query = new URLSearchParams();
  for (const [name, value] of params) {
    if (!value || positions.includes(name)) continue;
    const ago = /^(\d+)(m|h)$/.exec(value);
    if ((name === 'since' || name === 'finished_since') && ago) {
      // Round to the minute, so that the URL of the request stays the same for a while.
      const ms = Number(ago[1]) * (ago[2] === 'h' ? 3_600_000 : 60_000);
      query.set(name, new Date(Math.floor((Date.now() - ms) / 60_000) * 60_000).toISOString());
    } else query.set(name, value);
  }
  return query;
}

/**
 * Returns the filter of the list for some of its operations: those that no longer match are left alone.
 * @param {Set<string>} ids
 * @param {URLSearchParams} params
 */
function only(ids, params) {
  const query = filterOf(params);
  const condition = query.get('filter');
  query.set('filter', `id:(${[...ids].join(' OR ')})${condition ? ` AND (${condition})` : ''}`);
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
  return (has('state', o.state) || has('state', shownState(o))) && has('type', o.type) && has('plan', o.plan) && has('step', o.step) && has('waiting', o.waiting?.reason)
    && has('worker', o.waiting?.worker) && has('instance', o.instanceId) && has('global_account', o.globalAccountId) && has('region', o.region) && has('orchestration', o.orchestrationId)
    && (!q || o.id.startsWith(q.toLowerCase()) || o.instanceId.startsWith(q) || [o.subaccountId, o.globalAccountId, o.shootName, o.runtimeName].includes(q)) && !['until', 'error', 'hold', 'system', 'limit_name', 'finished_since', 'finished_until', 'filter'].some((name) => params.get(name));
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
 * @param {string} order
 * @param {(order: string) => void} sort
 * @param {(o: Operation) => any} [choose] renders what selects an operation
 */
function rows(data, now, order, sort, choose) {
  const by = (/** @type {string} */ name) => (order === name ? 'descending' : '');
  return table(`Operations, ${(orders.find(([name]) => name === order)?.[1] ?? orders[0][1]).toLowerCase()}`, [
    th('Operation'), sorter('State', by('state'), () => sort(order === 'state' ? '' : 'state')), th('Runtime'), th('Type'), th('Plan'),
    sorter('Step, attempts and reason', by('attempts'), () => sort(order === 'attempts' ? '' : 'attempts')),
    sorter('Created', order === '' ? 'descending' : order === 'oldest' ? 'ascending' : '', () => sort(order === '' ? 'oldest' : '')),
    sorter('Took', by('duration'), () => sort(order === 'duration' ? '' : 'duration'), 'number')],
  h('tbody', null, data.map((o) => row(o, now, choose?.(o)))), 'operations cards');
}

/**
 * @param {Operation & {changedAt?: number}} o
 * @param {number} now
 * @param {any} [choice] what selects the operation
 */
export function row(o, now, choice) {
  const end = o.finishedAt ? Date.parse(o.finishedAt) : now;
  const begin = Date.parse(o.startedAt ?? o.createdAt);
  return h('tr', { key: o.id, class: o.changedAt && now - o.changedAt < 1500 ? 'changed' : '' },
    h('th', { scope: 'row' }, choice, h('a', { href: operationURL(o.id), class: 'mono', 'data-row': true, title: o.id }, short(o.id))),
    h('td', null, badge(shownState(o))),
    h('td', { class: 'name', 'data-label': 'runtime' }, h('a', { href: instanceURL(o.instanceId), class: o.runtimeName ? '' : 'mono', title: [o.runtimeName, o.shootName, o.instanceId].filter(Boolean).join(', ') },
      o.runtimeName || short(o.instanceId))),
    h('td', { class: 'type' }, kind(o), dryMark(o)), h('td', null, o.plan),
    h('td', { class: 'wide' }, what(o, now)),
    h('td', { class: 'nowrap', 'data-label': 'created' }, time(o.createdAt, now)),
    h('td', { class: 'number nowrap', 'data-label': o.finishedAt ? 'took' : 'for' }, o.state === 'pending' ? '–' : o.finishedAt ? duration(end - begin) : lasting(end - begin)));
}

/**
 * Renders an error by its useful end; the whole text opens on demand.
 * @param {string} text
 * @param {string} [component]
 */
export function failure(text, component = '') {
  const end = usefulEnd(text, component);
  if (end === text) return h('span', { class: 'failure' }, text);
  return h('details', { class: 'failure unfolds' }, h('summary', { title: 'Show the whole error' }, end), h('span', { class: 'whole' }, text));
}

/**
 * @param {Operation} o
 * @param {number} now
 */
function what(o, now) {
  const words = waitingWords(o, now);
  const polls = ['polling', 'event'].includes(o.waiting?.reason ?? '');
  const text = polls ? '' : errorLine(reasonOf(o)) || (o.waiting?.reason === 'failing' || o.state === 'cancelled' ? o.message : '');
  // While a stage is repeated, the reason belongs to a later step than the current one.
  const step = o.waiting?.step || o.step;
  const attempts = o.budget?.attempts ?? o.stepAttempt ?? 0;
  return [
    step ? h('span', { class: 'step' }, step, attempts > 1 ? h('span', { class: 'muted' }, ` attempt ${count(attempts)}`) : null) : null,
    words && o.waiting?.reason !== 'executing' ? h('span', { class: 'words' }, words) : null,
    polls && o.message ? h('span', { class: 'words', title: o.message }, o.message) : null,
    text ? failure(text, reasonOf(o)?.component) : null,
    o.cancelRequested ? h('span', { class: 'words' }, 'cancellation requested') : null,
    o.notCompleted?.length ? h('span', { class: 'words' }, `not completed: ${o.notCompleted.join(', ')}`) : null,
  ];
}
