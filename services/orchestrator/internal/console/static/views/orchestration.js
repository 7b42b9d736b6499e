// @ts-check
/** The view of one orchestration: its progress and its operations. */

import { Resource } from '../api.js';
import { share } from '../charts.js';
import { ask } from '../dialogs.js';
import { absolute, badge, colour, count, operationURL, operationsURL, plural, short, spelled, time, typeNames } from '../format.js';
import { select, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';
import { targets } from './orchestrations.js';

const pageSize = 50;
const memberStates = ['succeeded', 'in progress', 'retrying', 'pending', 'failed', 'canceled', 'skipped'];
const ended = new Set(['succeeded', 'failed', 'canceled']);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function orchestration(ctx) {
  const id = ctx.parts[1];
  const url = `/orchestrations/${encodeURIComponent(id)}`;
  let params = ctx.params;
  const page = () => Math.max(1, Number(params.get('page')) || 1);
  const detail = new Resource(ctx.api, url, { every: 3000, changed: ctx.update });
  const members = new Resource(ctx.api, () => {
    const query = new URLSearchParams({ page_size: String(pageSize), page: String(page()) });
    if (params.get('state')) query.set('state', params.get('state') ?? '');
    return `${url}/operations?${query}`;
  }, { every: 3000, changed: ctx.update });
  const resume = () => {
    detail.refresh();
    members.refresh();
  };
  resume();

  /** @param {Record<string, string>} change */
  function filter(change) {
    const next = new URLSearchParams(params);
    for (const [name, value] of Object.entries(change)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    ctx.go(`/console${url}` + (next.size ? `?${next}` : ''));
  }

  /** @param {any} o */
  function askCancel(o) {
    const stats = o.operationStats ?? {};
    ask({
      title: 'Cancel this orchestration?',
      body: [
        h('p', null, 'No further operations are started, and the orchestration ends as ', h('b', null, 'cancelled'), '.'),
        h('ul', null, h('li', null, `${plural((stats.pending ?? 0) + (stats.retrying ?? 0), 'operation')} waiting will be cancelled.`),
          h('li', null, `${plural(stats['in progress'] ?? 0, 'operation')} in progress will continue to their end.`)),
      ],
      action: 'Cancel the orchestration', danger: true, typed: 'cancel',
      run: async () => {
        await ctx.api.send('PUT', `${url}/cancel`);
        ctx.notice('ok', 'The orchestration is being cancelled.');
        resume();
      },
    });
  }

  /** @param {any} o */
  function askRetry(o) {
    const n = o.operationStats?.failed ?? 0;
    let immediate = false;
    ask({
      title: 'Retry failed operations?',
      body: [
        h('p', null, `${plural(n, 'failed operation')} of this orchestration will be repeated by a new operation, with the same parallelism.`),
        o.parameters.strategy?.maintenanceWindow ? h('label', { class: 'check' }, h('input', { type: 'checkbox', onchange: (/** @type {any} */ e) => { immediate = e.target.checked; } }),
          ' Now, without waiting for maintenance windows') : null,
      ],
      action: 'Retry',
      run: async () => {
        const answer = await ctx.api.send('POST', `${url}/retry`, new URLSearchParams(immediate ? { immediate: 'true' } : {}));
        ctx.notice('ok', `${answer.msg}: ${plural(answer.retryShoots.length, 'operation')}.`);
        resume();
      },
    });
  }

  /** @param {any} o */
  function buttons(o) {
    const viewer = ctx.me.role !== 'operator';
    const describe = viewer ? 'viewer' : undefined;
    const list = [
      o.operationStats?.failed && o.state !== 'canceling' ? h('button', { key: 'retry', type: 'button', class: 'button primary', disabled: viewer, 'aria-describedby': describe, onclick: () => askRetry(o) }, 'Retry failed…') : null,
      !ended.has(o.state) && o.state !== 'canceling' ? h('button', { key: 'cancel', type: 'button', class: 'button danger-quiet', disabled: viewer, 'aria-describedby': describe, onclick: () => askCancel(o) }, 'Cancel…') : null,
    ].filter(Boolean);
    return list.length ? h('div', { class: 'actions' }, h('div', { class: 'buttons' }, list), viewer ? viewerNote('viewer') : null) : null;
  }

  /** @param {any} o */
  function view(o) {
    const now = ctx.now();
    const stats = o.operationStats ?? {};
    const total = Object.values(stats).reduce((/** @type {number} */ a, b) => a + Number(b), 0);
    const over = total - (stats.pending ?? 0) - (stats['in progress'] ?? 0) - (stats.retrying ?? 0);
    const p = o.parameters;
    return [
      h('div', { class: 'title-row' }, h('div', null, h('p', { class: 'crumb' }, h('a', { href: '/console/orchestrations' }, 'Orchestrations')),
        h('h1', null, `${typeNames[o.type] ?? o.type} `, h('span', { class: 'id mono' }, o.orchestrationID)),
        h('p', { class: 'state-line' }, badge(o.state), ' ', h('span', null, o.description))), buttons(o)),
      h('section', { 'aria-labelledby': 'progress' }, h('h2', { id: 'progress' }, 'Progress'),
        total ? [
          share(memberStates.map((s) => ({ name: spelled(s), colour: colour(s), value: stats[s] ?? 0 })), `${over} of ${plural(total, 'operation')} have ended`),
          h('p', { class: 'share-words' }, h('b', null, `${count(over)} of ${plural(total, 'operation')} ended`)),
          h('ul', { class: 'figures-row small' }, memberStates.filter((s) => stats[s]).map((s) => h('li', { key: s }, h('a', { class: `figure text-${colour(s)}`, href: `/console${url}?state=${encodeURIComponent(s)}` }, h('b', null, count(stats[s])), badge(s))))),
        ] : h('p', { class: 'muted' }, 'Its operations are not determined yet.')),
      h('dl', { class: 'facts' },
        h('div', null, h('dt', null, 'Targets'), h('dd', null, targets(p.targets))),
        h('div', null, h('dt', null, 'In parallel'), h('dd', null, p.strategy?.parallel?.workers ?? 1)),
        h('div', null, h('dt', null, 'Begins'), h('dd', null, p.strategy?.schedule === 'immediate' ? 'immediately' : p.strategy?.schedule, p.strategy?.maintenanceWindow ? ', each in its maintenance window' : '')),
        p.kyma?.version ? h('div', null, h('dt', null, 'Kyma'), h('dd', null, p.kyma.version)) : null,
        p.kubernetes?.kubernetesVersion ? h('div', null, h('dt', null, 'Kubernetes'), h('dd', null, p.kubernetes.kubernetesVersion)) : null,
        p.dryRun ? h('div', null, h('dt', null, 'Dry run'), h('dd', null, 'nothing is changed')) : null,
        h('div', null, h('dt', null, 'Created'), h('dd', null, time(o.createdAt, now))), h('div', null, h('dt', null, 'Changed'), h('dd', null, time(o.updatedAt, now)))),
      h('section', { 'aria-labelledby': 'members' }, h('h2', { id: 'members' }, 'Operations'),
        h('form', { class: 'filters', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
          select('State', 'state', [['', 'All states'], ...memberStates.map((s) => /** @type {[string, string]} */ ([s, spelled(s)]))], params.get('state') ?? '', (v) => filter({ state: v, page: '' })),
          h('a', { class: 'button plain', href: operationsURL({ orchestration: o.orchestrationID }) }, 'As a list of operations')),
        shown(members, (d) => (d.data.length ? [table('Operations of the orchestration', [th('Operation'), th('State'), th('Runtime'), th('Plan'), th('Maintenance window'), th('Description')],
          h('tbody', null, d.data.map((/** @type {any} */ m) => h('tr', { key: m.operationID },
            h('th', { scope: 'row' }, m.state === 'pending' || m.state === 'skipped' || m.state === 'retrying' ? h('span', { class: 'mono', title: m.operationID }, short(m.operationID))
              : h('a', { href: operationURL(m.operationID), class: 'mono', 'data-row': true, title: m.operationID }, short(m.operationID))),
            h('td', null, badge(m.state)), h('td', { class: 'mono nowrap' }, m.shootName || short(m.instanceID)), h('td', null, m.servicePlanName),
            h('td', { class: 'nowrap' }, m.maintenanceWindowBegin ? h('time', { datetime: m.maintenanceWindowBegin, title: absolute(m.maintenanceWindowBegin) }, time(m.maintenanceWindowBegin, now)) : h('span', { class: 'muted' }, '–')),
            h('td', { class: 'wide' }, m.description, m.retriedAs ? h('span', { class: 'words' }, 'retried as ', h('a', { href: operationURL(m.retriedAs), class: 'mono' }, short(m.retriedAs))) : null)))), 'cards'), pages(d.totalCount)]
          : h('div', { class: 'empty' }, h('p', null, 'No operations match these filters.'))))),
    ];
  }

  /** @param {number} total */
  function pages(total) {
    if (total <= pageSize) return null;
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('button', { type: 'button', class: 'button', disabled: page() === 1, onclick: () => filter({ page: page() > 2 ? String(page() - 1) : '' }) }, 'Back'),
      h('span', { class: 'muted' }, `${(page() - 1) * pageSize + 1} to ${Math.min(total, page() * pageSize)} of ${count(total)}`),
      h('button', { type: 'button', class: 'button', disabled: page() * pageSize >= total, onclick: () => filter({ page: String(page() + 1) }) }, 'Next'));
  }

  return {
    title: () => (detail.data ? `${detail.data.state}: orchestration ${short(id)}` : 'Orchestration'),
    resume,
    close: () => {
      detail.close();
      members.close();
    },
    query: (next) => {
      params = next;
      members.reset();
      members.refresh();
    },
    render: () => (detail.data ? shown(detail, view) : [h('h1', null, 'Orchestration ', h('span', { class: 'id mono' }, id)), shown(detail, view)]),
  };
}
