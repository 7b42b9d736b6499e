// @ts-check
/** The list of orchestrations, and the dialog that orders one. */

import { share } from '../charts.js';
import { ask } from '../dialogs.js';
import { badge, colour, count, dryMark, duration, plural, short, spelled, time, typeNames } from '../format.js';
import { listOf, select, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';

const pageSize = 50;

/** @type {[string, string][]} */
const states = ['pending', 'in progress', 'retrying', 'paused', 'canceling', 'succeeded', 'failed', 'canceled'].map((s) => [s, spelled(s)]);

/** The states that have ended. */
export const ended = new Set(['succeeded', 'failed', 'canceled']);

/**
 * Renders the state of an orchestration: a paused one says what it waits for.
 * @param {any} o
 */
export function status(o) {
  if (o.state !== 'paused') return badge(o.state);
  switch (o.pause?.reason) {
    case 'approval': return badge('approval', 'waiting for approval');
    case 'failures': return badge('too many failures', 'paused by failures');
  }
  return badge('paused');
}

/** Marks a dry run. @param {any} o */
export const dry = (o) => dryMark(o.parameters);

/** Names what an orchestration installs. @param {any} p the parameters */
export const version = (p) => p.kyma?.version ?? p.kubernetes?.kubernetesVersion ?? p.kubernetes?.machineImageVersion ?? '';

/**
 * Renders the share of the operations of an orchestration that have ended.
 * @param {any} p the progress
 */
export const progressBar = (p) => share([
  { name: 'succeeded', colour: colour('succeeded'), value: p.succeeded }, { name: 'failed', colour: colour('failed'), value: p.failed },
  { name: 'cancelled or skipped', colour: colour('cancelled'), value: p.ended - p.succeeded - p.failed },
  { name: 'in progress', colour: colour('in progress'), value: p.inProgress }, { name: 'waiting', colour: colour('pending'), value: p.waiting },
], `${count(p.ended)} of ${plural(p.total, 'operation')} have ended`);

/**
 * Formats the time that an orchestration will probably still take.
 * @param {any} p the progress
 * @param {number} now
 */
export const remaining = (p, now) => (p.estimatedEnd ? `about ${duration(Math.max(1000, 1000 * Math.round((Date.parse(p.estimatedEnd) - now) / 1000)))}` : '');

/** @param {any} o @param {number} now */
const pace = (o, now) => [o.progress.inProgress ? `${count(o.progress.inProgress)} in progress` : '', remaining(o.progress, now) && `${remaining(o.progress, now)} left`].filter(Boolean).join(', ');

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function orchestrations(ctx) {
  const { list, get, filter, pages, order, view } = listOf(ctx, '/console/orchestrations', 5000, (value) => {
    const query = new URLSearchParams({ page_size: String(pageSize), page: value('page') || '1' });
    if (value('state')) query.set('state', value('state'));
    return `/orchestrations?${query}`;
  });
  const viewer = () => ctx.me.role !== 'operator';

  return {
    title: () => 'Orchestrations',
    ...view,
    render: () => [
      h('div', { class: 'title-row' },
        h('div', { class: 'head' }, h('h1', null, 'Orchestrations'), h('p', { class: 'muted small' }, list.data ? plural(list.data.totalCount, 'orchestration') : '')),
        h('div', { class: 'actions' }, h('div', { class: 'buttons' },
          h('button', { type: 'button', class: 'button', disabled: viewer(), 'aria-describedby': viewer() ? 'viewer' : undefined, onclick: () => askOrder(ctx) }, 'Order an upgrade…')),
        viewer() ? viewerNote('viewer') : null)),
      h('form', { class: 'filters', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
        select('State', 'state', [['', 'All states'], ...states], get('state'), (v) => filter({ state: v, page: '' }))),
      shown(list, (d) => (d.data.length ? [rows(d), pages(d.totalCount, pageSize)]
        : h('div', { class: 'empty' }, h('p', null, h('b', null, get('state') || get('page') ? 'No orchestrations match these filters.' : 'No orchestrations yet.'), ' ', h('code', null, 'keb upgrade kyma -t all'), ' creates one.')))),
    ],
  };

  /** @param {any} d */
  function rows(d) {
    const sorted = order(d.data, d.totalCount === d.data.length, '-created', {
      state: (o) => spelled(o.state), upgrades: (o) => `${typeNames[o.type] ?? o.type} ${version(o.parameters)}`, progress: (o) => (o.progress.total ? o.progress.ended / o.progress.total : 0),
      failed: (o) => o.progress.failed, created: (o) => Date.parse(o.createdAt), description: (o) => o.description ?? '',
    });
    return table('Orchestrations', [th('Orchestration'), sorted.th('State', 'state'), sorted.th('Upgrades', 'upgrades'), sorted.th('Progress', 'progress'), sorted.th('Failed', 'failed', 'number'),
      th('Targets'), sorted.th('Created', 'created'), sorted.th('Description', 'description')],
    h('tbody', null, sorted.rows.map((/** @type {any} */ o) => h('tr', { key: o.orchestrationID },
      h('th', { scope: 'row' }, h('a', { href: `/console/orchestrations/${o.orchestrationID}`, class: 'mono', 'data-row': true, title: o.orchestrationID }, short(o.orchestrationID))),
      h('td', { class: 'nowrap' }, status(o)), h('td', { class: 'nowrap' }, typeNames[o.type] ?? o.type, ' ', h('span', { class: 'mono' }, version(o.parameters)), dry(o)),
      h('td', { class: 'nowrap progress-cell' }, o.progress.total ? [progressBar(o.progress), ` ${count(o.progress.ended)} / ${count(o.progress.total)}`,
        h('span', { class: 'words small muted' }, pace(o, ctx.now()))] : h('span', { class: 'muted' }, '–')),
      h('td', { class: `number ${o.progress.failed ? 'text-bad' : ''}`, 'data-label': 'failed' }, count(o.progress.failed)),
      h('td', null, targets(o.parameters.targets)), h('td', { class: 'nowrap' }, time(o.createdAt, ctx.now())), h('td', { class: 'wide' }, o.description)))), 'cards');
  }
}

/**
 * Orders an upgrade of the runtimes that match all of the given conditions.
 * @param {import('../parts.js').Context} ctx
 */
function askOrder(ctx) {
  const order = { what: 'kyma', planName: '', region: '', kymaVersion: '', kubernetesVersion: '', failed: false, version: '', workers: '1', canary: '', then: 'approval', maxFailures: '', window: false, dryRun: false };
  /** Draws the dialog again. */
  let update = () => {};
  /** @param {keyof typeof order} name @param {any} value */
  const set = (name, value) => {
    Object.assign(order, { [name]: value });
    update();
  };
  /** @param {keyof typeof order} name @param {string} label @param {Record<string, any>} [more] */
  const input = (name, label, more = {}) => h('label', { class: 'field' }, h('span', null, label),
    h('input', { name, autocomplete: 'off', spellcheck: 'false', value: order[name], oninput: (/** @type {any} */ e) => set(name, e.target.value.trim()), ...more }));
  /** @param {keyof typeof order} name @param {string} label */
  const box = (name, label) => h('label', { class: 'check' },
    h('input', { type: 'checkbox', name, checked: order[name], onchange: (/** @type {any} */ e) => set(name, e.target.checked) }), ` ${label}`);
  /** Returns the conditions, in the form of the API. */
  const target = () => {
    /** @type {Record<string, any>} */
    const found = {};
    for (const name of /** @type {const} */ (['planName', 'region', 'kymaVersion', 'kubernetesVersion'])) if (order[name]) found[name] = order[name];
    if (order.failed) found.failed = true;
    return found;
  };
  const hasCondition = () => Object.keys(target()).length > 0;
  ask({
    title: 'Order an upgrade of many runtimes',
    body: (draw) => {
      update = draw;
      return [
        h('p', { class: 'small' }, 'It applies to the runtimes that match all conditions below; without a condition, to all runtimes. More conditions: ', h('code', null, 'keb upgrade --help'), '.'),
        h('div', { class: 'fields' },
          input('planName', 'Plan', { 'data-first': true }), input('region', 'Region (regular expression)'), input('kymaVersion', 'Has Kyma version'), input('kubernetesVersion', 'Has Kubernetes version')),
        box('failed', 'Only runtimes whose last operation failed'),
        h('div', { class: 'fields' },
          select('Upgrade', 'what', [['kyma', 'Kyma'], ['cluster', 'Kubernetes']], order.what, (v) => set('what', v)),
          input('version', 'To version (as configured if empty)'),
          input('workers', 'In parallel', { type: 'number', min: '1', max: '1000', required: true }),
          input('maxFailures', 'Pause if more fail: 5 or 10%'),
          input('canary', 'Canary: runtimes first', { type: 'number', min: '1' }),
          select('After the canary', 'then', [['approval', 'wait for approval'], ['success', 'continue if all succeed']], order.then, (v) => set('then', v))),
        box('window', 'Each in its maintenance window'), box('dryRun', 'Dry run: change nothing in the runtimes'),
      ];
    },
    action: 'Order the upgrade', danger: true, typed: () => (hasCondition() ? '' : 'all'),
    run: async () => {
      const answer = await ctx.api.send('POST', `/upgrade/${order.what}`, {
        targets: { include: [hasCondition() ? target() : { target: 'all' }] }, dryRun: order.dryRun,
        strategy: {
          maintenanceWindow: order.window, parallel: { workers: Number(order.workers) }, maxFailures: order.maxFailures || undefined,
          canary: order.canary ? { size: Number(order.canary), then: order.then } : undefined,
        },
        kyma: order.what === 'kyma' && order.version ? { version: order.version } : undefined,
        kubernetes: order.what === 'cluster' && order.version ? { kubernetesVersion: order.version } : undefined,
      });
      ctx.go(`/console/orchestrations/${answer.orchestrationID}`);
    },
  });
}

/** The names of conditions. @type {Record<string, string>} */
const conditions = { globalAccount: 'global account', subAccount: 'subaccount', runtimeID: 'runtime', planName: 'plan', instanceID: 'instance', kymaVersion: 'Kyma', kubernetesVersion: 'Kubernetes' };

/**
 * Formats targets as text.
 * @param {any} t
 */
export function targets(t) {
  const word = (/** @type {string} */ k, /** @type {any} */ v) => (k === 'target' ? String(v) : k === 'failed' ? 'last operation failed' : `${conditions[k] ?? k} ${v}`);
  const words = (/** @type {any[]} */ list) => list.map((x) => Object.entries(x).map(([k, v]) => word(k, v)).join(', ')).join('; ');
  return words(t?.include ?? []) + (t?.exclude?.length ? ` but not ${words(t.exclude)}` : '');
}
