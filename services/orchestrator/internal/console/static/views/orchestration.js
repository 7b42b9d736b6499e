// @ts-check
/** The view of one orchestration: its progress and its operations. */

import { Resource } from '../api.js';
import { share } from '../charts.js';
import { ask } from '../dialogs.js';
import { absolute, badge, clock, colour, count, operationLink, operationURL, operationsURL, plural, short, sign, spelled, time, typeNames } from '../format.js';
import { select, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';
import { dry, ended, remaining, status, targets, version } from './orchestrations.js';

const pageSize = 50;
const memberStates = ['succeeded', 'in progress', 'retrying', 'pending', 'failed', 'canceled', 'skipped'];

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

  /** @param {string} verb @param {string} done */
  async function change(verb, done) {
    await ctx.api.send('PUT', `${url}/${verb}`);
    ctx.notice('ok', done);
    resume();
  }

  /** Runs an action without a dialog. @param {string} verb @param {string} done */
  const act = (verb, done) => change(verb, done).catch((e) => ctx.notice('bad', e.message));

  /** @param {any} o */
  function askApprove(o) {
    ask({
      title: 'Approve the canary?',
      body: [
        h('p', null, o.description, '.'),
        h('p', null, h('b', null, plural(o.progress.waiting, 'operation')), ` will be started, ${count(o.parameters.strategy.parallel.workers)} in parallel.`),
      ],
      action: 'Approve', run: () => change('approve', 'The canary is approved.'),
    });
  }

  /** @param {any} o */
  function askResume(o) {
    ask({
      title: 'Resume despite the failures?',
      body: [
        h('p', null, `${plural(o.progress.failed, 'operation')} failed. They no longer count: the orchestration is paused again if as many more fail.`),
        h('p', null, 'Retry repeats the failed operations.'),
      ],
      action: 'Resume', run: () => change('resume', 'The orchestration continues.'),
    });
  }

  /** How many operations a retry repeats: after a cancellation also the cancelled ones. @param {any} o */
  const retryable = (o) => (o.operationStats?.failed ?? 0) + (o.state === 'canceled' ? o.operationStats?.canceled ?? 0 : 0);

  /** @param {any} o */
  function askRetry(o) {
    const n = retryable(o);
    let immediate = false;
    ask({
      title: o.state === 'canceled' ? 'Retry failed and cancelled operations?' : 'Retry failed operations?',
      body: [
        h('p', null, `${plural(n, 'operation')} of this orchestration will be repeated by a new operation, with the same strategy.`,
          o.state === 'paused' ? ' They wait until the orchestration is resumed.' : ''),
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
    /** @param {string} key @param {string} kind @param {() => void} run @param {string} text */
    const button = (key, kind, run, text) => h('button', { key, type: 'button', class: `button ${kind}`, disabled: viewer, 'aria-describedby': describe, onclick: run }, text);
    const going = !ended.has(o.state) && o.state !== 'canceling';
    const reason = o.pause?.reason;
    const list = [
      reason === 'approval' ? button('approve', 'primary', () => askApprove(o), 'Approve…') : null,
      reason === 'operator' ? button('resume', 'primary', () => act('resume', 'The orchestration continues.'), 'Resume') : null,
      reason === 'failures' ? button('resume', 'primary', () => askResume(o), 'Resume…') : null,
      going && o.state !== 'paused' ? button('pause', '', () => act('pause', 'The orchestration is paused. Operations in progress continue.'), 'Pause') : null,
      retryable(o) && o.state !== 'canceling' ? button('retry', ended.has(o.state) ? 'primary' : '', () => askRetry(o), o.state === 'canceled' ? 'Retry…' : 'Retry failed…') : null,
      going ? button('cancel', 'danger-quiet', () => askCancel(o), 'Cancel…') : null,
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
        h('h1', null, `${typeNames[o.type] ?? o.type} `, version(p) ? `to ${version(p)} ` : '', h('span', { class: 'id mono' }, o.orchestrationID)),
        h('p', { class: 'state-line' }, status(o), dry(o), ' ', h('span', null, o.description))), buttons(o)),
      o.pause ? paused(o, now) : null,
      h('section', { 'aria-labelledby': 'progress' }, h('h2', { id: 'progress' }, 'Progress'),
        total ? [
          share(memberStates.map((s) => ({ name: spelled(s), colour: colour(s), value: stats[s] ?? 0 })), `${over} of ${plural(total, 'operation')} have ended`),
          h('p', { class: 'share-words' }, h('b', null, `${count(over)} of ${plural(total, 'operation')} ended`), pace(o, now)),
          h('ul', { class: 'figures-row small' }, memberStates.filter((s) => stats[s]).map((s) => h('li', { key: s }, h('a', { class: `figure text-${colour(s)}`, href: `/console${url}?state=${encodeURIComponent(s)}` }, h('b', null, count(stats[s])), badge(s))))),
        ] : h('p', { class: 'muted' }, 'Its operations are not determined yet.')),
      o.failures?.length ? failures(o) : null,
      h('dl', { class: 'facts' },
        h('div', null, h('dt', null, 'Targets'), h('dd', null, targets(p.targets))),
        h('div', null, h('dt', null, 'In parallel'), h('dd', null, p.strategy?.parallel?.workers ?? 1)),
        h('div', null, h('dt', null, 'Begins'), h('dd', null, p.strategy?.schedule === 'immediate' ? 'immediately' : p.strategy?.schedule, p.strategy?.maintenanceWindow ? ', each in its maintenance window' : '')),
        p.strategy?.canary ? h('div', null, h('dt', null, 'Canary'), h('dd', null, plural(p.strategy.canary.size, 'runtime'), ', then ', p.strategy.canary.then)) : null,
        p.strategy?.maxFailures ? h('div', null, h('dt', null, 'Pauses after more than'), h('dd', null, `${p.strategy.maxFailures} failures`)) : null,
        h('div', null, h('dt', null, 'Kyma'), h('dd', null, o.type === 'upgradeKyma' ? p.kyma?.version || 'as configured' : 'not changed')),
        h('div', null, h('dt', null, 'Kubernetes'), h('dd', null, o.type === 'upgradeCluster' ? p.kubernetes?.kubernetesVersion || 'as configured' : 'not changed')),
        p.kubernetes?.machineImage || p.kubernetes?.machineImageVersion ? h('div', null, h('dt', null, 'Machine image'), h('dd', null, `${p.kubernetes.machineImage ?? ''} ${p.kubernetes.machineImageVersion ?? ''}`)) : null,
        p.dryRun ? h('div', null, h('dt', null, 'Dry run'), h('dd', null, 'nothing is changed')) : null,
        h('div', null, h('dt', null, 'Created'), h('dd', null, time(o.createdAt, now))), o.startedAt ? h('div', null, h('dt', null, 'Started'), h('dd', null, time(o.startedAt, now))) : null, h('div', null, h('dt', null, 'Changed'), h('dd', null, time(o.updatedAt, now)))),
      h('section', { 'aria-labelledby': 'members' }, h('h2', { id: 'members' }, 'Operations'),
        h('form', { class: 'filters', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
          select('State', 'state', [['', 'All states'], ...memberStates.map((s) => /** @type {[string, string]} */ ([s, spelled(s)]))], params.get('state') ?? '', (v) => filter({ state: v, page: '' })),
          h('a', { class: 'button plain', href: operationsURL({ orchestration: o.orchestrationID }) }, 'Open as a list')),
        shown(members, (d) => (d.data.length ? [table('Operations of the orchestration', [th('Operation'), th('State'), th('Runtime'), th('Plan'), th('Maintenance window'), th('Description')],
          h('tbody', null, d.data.map((/** @type {any} */ m) => h('tr', { key: m.operationID },
            h('th', { scope: 'row' }, m.state === 'pending' || m.state === 'skipped' || m.state === 'retrying' ? h('span', { class: 'mono', title: m.operationID }, short(m.operationID))
              : h('a', { href: operationURL(m.operationID), class: 'mono', 'data-row': true, title: m.operationID }, short(m.operationID))),
            h('td', null, badge(m.state), m.canary ? [' ', badge('canary')] : null), h('td', { class: 'mono nowrap' }, m.shootName || short(m.instanceID)), h('td', null, m.servicePlanName),
            h('td', { class: 'nowrap' }, m.maintenanceWindowBegin ? h('time', { datetime: m.maintenanceWindowBegin, title: absolute(m.maintenanceWindowBegin) }, time(m.maintenanceWindowBegin, now)) : h('span', { class: 'muted' }, '–')),
            h('td', { class: 'wide' }, m.description, m.retriedAs ? h('span', { class: 'words' }, 'retried as ', h('a', { href: operationURL(m.retriedAs), class: 'mono' }, short(m.retriedAs))) : null)))), 'cards'), pages(d.totalCount)]
          : h('div', { class: 'empty' }, h('p', null, 'No operations match these filters.'))))),
    ];
  }

  /** Says why nothing is started, and what an operator can do. @param {any} o @param {number} now */
  function paused(o, now) {
    const by = { operator: 'Resume starts the next operations.', approval: 'Check the runtimes of the canary. Approve starts the others; Cancel ends the orchestration.', failures: 'Look at the errors below. Resume accepts these failures; Retry repeats them when the orchestration is resumed.' };
    const look = { operator: 'paused', approval: 'approval', failures: 'too many failures' };
    const reason = /** @type {keyof typeof by} */ (o.pause.reason);
    return h('div', { class: `callout edge-${colour(look[reason])}`, role: 'status' }, sign(look[reason]), h('div', null,
      h('p', null, h('b', null, reason === 'approval' ? 'The canary has ended' : reason === 'failures' ? 'Too many operations failed' : `Paused by ${o.pause.by}`), ' ', time(o.pause.since, now), '. No further operation starts',
        o.progress.inProgress ? `; ${plural(o.progress.inProgress, 'operation')} in progress will finish` : '', '.'),
      h('p', null, by[reason])));
  }

  /** @param {any} o @param {number} now */
  function pace(o, now) {
    const p = o.progress;
    return p.estimatedEnd ? `, ${p.perMinute.toPrecision(2)} per minute, ${remaining(p, now)} left, until ${clock(p.estimatedEnd)}` : '';
  }

  /** @param {any} o */
  function failures(o) {
    return h('section', { 'aria-labelledby': 'failures' }, h('h2', { id: 'failures' }, 'Failures by error'),
      table('Failures by error', [th('Operations', 'number'), th('Error'), th('For example')],
        h('tbody', null, o.failures.map((/** @type {any} */ f) => h('tr', { key: f.error },
          h('td', { class: 'number', 'data-label': 'operations' }, count(f.count)), h('td', { class: 'wide' }, f.error), h('td', { class: 'nowrap' }, operationLink(f.operationID))))), 'cards'));
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
    title: () => (detail.data ? `${detail.data.pause?.reason === 'approval' ? 'waiting for approval' : spelled(detail.data.state)}: orchestration ${short(id)}` : 'Orchestration'),
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
