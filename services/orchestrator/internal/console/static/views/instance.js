// @ts-check
/** Everything about one customer's runtime. */

import { Resource } from '../api.js';
import { askHold, askRelease, operationActions, scopeWords } from '../dialogs.js';
import { absolute, badge, clock, count, dryMark, duration, errorLine, kind, lasting, operationURL, operationsURL, reasonOf, short, shownState, sign, stamp, time, waitingWords } from '../format.js';
import { shown, table, th } from '../parts.js';
import { h } from '../vdom.js';
import { failure } from './operations.js';

/** The colours of the states of runtimes. @type {Record<string, [look: string, text?: string]>} */
const looks = {
  succeeded: ['succeeded', 'ready'], failed: ['failed'], error: ['failed'], provisioning: ['in progress'], deprovisioning: ['in progress'],
  updating: ['in progress'], upgrading: ['in progress'], suspended: ['held'], deprovisioned: ['cancelled'], deprovisionincomplete: ['not completed', 'deprovisioned, not completed'],
};

/** Renders the state of a runtime. @param {string} state */
export const runtimeBadge = (state) => badge(looks[state]?.[0] ?? 'pending', looks[state]?.[1] ?? state);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function instance(ctx) {
  const id = ctx.parts[1];
  const url = `/instances/${encodeURIComponent(id)}`;
  const all = new Resource(ctx.api, url, { every: 5000, changed: ctx.update });
  const maintenance = new Resource(ctx.api, `${url}/maintenance-window`, { changed: ctx.update });
  const holds = new Resource(ctx.api, '/holds', { every: 3000, changed: ctx.update });
  const refresh = () => {
    all.refresh();
    holds.refresh();
  };
  refresh();
  maintenance.refresh();
  const name = () => all.data?.detail?.runtime.name || all.data?.operations[0]?.runtimeName || short(id);

  return {
    title: () => `Runtime ${name()}`,
    resume: refresh,
    close: () => {
      all.close();
      holds.close();
      maintenance.close();
    },
    render: () => [
      h('p', { class: 'crumb' }, h('a', { href: operationsURL({ instance: id }) }, 'Operations of this instance')),
      h('div', { class: 'title-row' },
        h('div', null, h('h1', null, name(), ' ', h('span', { class: 'id' }, id)), h('p', { class: 'muted small' }, all.at ? `as of ${clock(all.at)}` : '')),
        all.data && operator() ? buttons(all.data) : null),
      shown(all, content),
    ],
  };

  function operator() {
    return ctx.me.role === 'operator';
  }

  /** @param {any} d */
  function buttons(d) {
    const o = current(d);
    return h('div', { class: 'actions', 'data-home': true, tabindex: -1, role: 'group', 'aria-label': 'Actions' }, h('div', { class: 'buttons' },
      o?.state === 'failed' ? h('button', { key: 'retry', type: 'button', class: 'button primary', onclick: () => act(o, 'retry') }, `Retry the ${kind(o)}…`) : null,
      d.detail?.deletedAt ? null : h('button', { key: 'hold', type: 'button', class: 'button', onclick: () => askHold(ctx, refresh, { instance: id }) }, 'Hold this instance…'),
      o && !o.finishedAt && !o.cancelRequested ? h('button', { key: 'cancel', type: 'button', class: 'button danger-quiet', onclick: () => act(o, 'cancel') }, `Cancel the ${kind(o)}…`) : null));
  }

  /**
   * Opens the dialog of an action. It needs the stages of the operation, which the list does not have.
   * @param {import('../format.js').Operation} o
   * @param {string} name
   */
  async function act(o, name) {
    try {
      const action = operationActions(ctx, await ctx.api.get(`/operations/${encodeURIComponent(o.id)}`), refresh).find((a) => a.name === name);
      if (action) action.ask();
      else ctx.notice('bad', `The ${kind(o)} has changed; this action is no longer possible.`);
    } catch (e) {
      ctx.notice('bad', /** @type {Error} */ (e).message);
    }
  }

  /**
   * Reports whether a hold applies to the instance. One that names an operation, a step, a worker or a system applies if it names the instance, too, or holds an operation of it.
   * @param {any} hold
   * @param {any} d
   */
  function applies(hold, d) {
    const { scope } = hold;
    if (d.operations.some((/** @type {any} */ o) => o.waiting?.hold === hold.id)) return true;
    const last = d.operations[0];
    /** @type {Record<string, string | undefined>} */
    const own = { instance: id, plan: d.detail?.plan.name ?? last?.plan, region: d.detail?.runtime.region ?? last?.region, globalAccount: d.detail?.globalAccountId ?? last?.globalAccountId };
    return Object.keys(own).every((member) => !scope[member] || scope[member] === own[member])
      && (scope.instance || ['operation', 'step', 'worker', 'system'].every((member) => !scope[member]));
  }

  /** @param {any} hold @param {number} now */
  function heldBy(hold, now) {
    return h('div', { key: hold.id, class: 'callout edge-idle' }, sign('held'), h('div', null,
      h('p', null, h('b', null, 'Hold: '), scopeWords(hold.scope), hold.orders === 'reject' ? '; new orders are rejected' : ''),
      h('p', null, hold.reason, ' ', h('span', { class: 'muted' }, hold.createdBy, ' ', time(hold.createdAt, now), hold.until ? [', ends ', time(hold.until, now)] : null)),
      operator() ? h('p', null, h('button', { type: 'button', class: 'button small', onclick: () => askRelease(ctx, hold, refresh) }, 'Release…')) : null));
  }

  /** @param {any} d */
  function content(d) {
    const now = ctx.now();
    const i = d.detail;
    return [
      (d.problems ?? []).map((/** @type {string} */ p) => h('p', { key: p, class: 'note bad', role: 'status' }, `Only a part is shown: ${p}.`)),
      i ? states(i, now) : null,
      (holds.data?.data ?? []).filter((/** @type {any} */ hold) => applies(hold, d)).map((/** @type {any} */ hold) => heldBy(hold, now)),
      i ? facts(i) : null,
      h('section', null, h('h2', null, 'Operations', h('span', { class: 'muted small' }, ` ${d.operationCount > d.operations.length ? `the newest ${d.operations.length} of ` : ''}${count(d.operationCount)}`)),
        d.operations.length ? operationRows(d.operations, now) : none('No operations are stored; old ones are removed.')),
      i ? h('section', null, h('h2', null, 'Bindings'), i.bindings?.length ? bindingRows(i.bindings, now) : none('No bindings.')) : null,
      i?.parameters ? h('section', null, h('h2', null, 'Parameters'), parameters(i.parameters, i.effectiveParameters ?? {})) : null,
      h('section', null, h('h2', null, 'Orchestrations'), d.orchestrations.length ? memberRows(d.orchestrations, now) : none('The instance is in no orchestration.')),
      d.events.length ? h('section', null, h('h2', null, 'Events', h('span', { class: 'muted small' }, ` the newest ${d.events.length}`)), eventRows([...d.events].reverse())) : null,
    ];
  }

  /** @param {any} i @param {number} now */
  function states(i, now) {
    return h('p', { class: 'state-line' }, runtimeBadge(i.state), ' ',
      i.expiredAt ? [badge('not completed', 'expired'), ' since ', time(i.expiredAt, now), '. It cannot be used again; the platform can only remove it. '] : null,
      i.state === 'suspended' && !i.expiredAt ? 'The runtime is removed and the instance kept; a provisioning recreates it when the platform ends the suspension. ' : null,
      i.deletedAt ? ['removed ', time(i.deletedAt, now)] : null);
  }

  /** @param {any} i */
  function facts(i) {
    const w = maintenance.data;
    const window = !w ? (maintenance.error ? `not known: ${maintenance.error.message}` : 'asking…') : w.problem ? `not known: ${w.problem}` : w.begin ? `${timeOfDay(w.begin)} to ${timeOfDay(w.end)}` : 'none';
    /** @type {[string, any][]} */
    const list = [
      ['Plan', i.plan.name], ['Region', [i.runtime.region, i.runtime.provider ? h('span', { class: 'muted' }, ` ${i.runtime.provider}`) : null]], ['Kyma version', i.kymaVersion],
      ['Shoot', i.runtime.shootName && h('code', null, i.runtime.shootName)], ['Runtime ID', i.runtimeId && h('code', null, i.runtimeId)],
      ['Global account', h('code', null, i.globalAccountId)],
      ['Subscription account', i.subscriptionAccountId && i.subscriptionAccountId !== i.globalAccountId && h('code', null, i.subscriptionAccountId)],
      ['Subaccount', h('code', null, i.subaccountId)], ['Platform region', i.platformRegion],
      ['Created', h('time', { datetime: i.createdAt, title: absolute(i.createdAt) }, stamp(i.createdAt))],
      ['Maintenance window', window], ['Maintenance version', i.maintenanceVersion],
    ];
    return h('dl', { class: 'facts' }, list.filter(([, v]) => v).map(([k, v]) => h('div', { key: k }, h('dt', null, k), h('dd', null, v))));
  }
}

/** Returns the operation in progress, or the newest one. @param {any} d @returns {import('../format.js').Operation | undefined} */
const current = (d) => d.operations.find((/** @type {any} */ o) => o.state === 'in progress') ?? d.operations[0];

const none = (/** @type {string} */ text) => h('p', { class: 'muted' }, text);

/** Formats a time of day such as 220000+0000. @param {string} text */
function timeOfDay(text) {
  const m = /^(\d\d)(\d\d)\d\d([+-])(\d\d)(\d\d)$/.exec(text);
  if (!m) return text;
  return `${m[1]}:${m[2]} ${m[4] === '00' && m[5] === '00' ? 'UTC' : `UTC${m[3]}${m[4]}:${m[5]}`}`;
}

/**
 * @param {import('../format.js').Operation[]} list
 * @param {number} now
 */
function operationRows(list, now) {
  return table('Operations of the instance, newest first', [th('Operation'), th('State'), th('Type'), th('Step and reason'), th('Created'), th('Took', 'number')],
    h('tbody', null, list.map((o) => {
      const begin = Date.parse(o.startedAt ?? o.createdAt);
      const reason = o.waiting?.reason;
      const error = errorLine(reasonOf(o));
      return h('tr', { key: o.id },
        h('th', { scope: 'row' }, h('a', { href: operationURL(o.id), class: 'mono', 'data-row': true, title: o.id }, short(o.id))),
        h('td', null, badge(shownState(o))), h('td', null, kind(o), dryMark(o)),
        h('td', { class: 'wide' }, o.step ? h('span', { class: 'step' }, o.step) : null, reason && reason !== 'executing' ? h('span', { class: 'words' }, waitingWords(o, now)) : null,
          error && reason !== 'polling' && reason !== 'event' ? failure(error, reasonOf(o)?.component) : null,
          o.notCompleted?.length ? h('span', { class: 'words' }, `not completed: ${o.notCompleted.join(', ')}`) : null),
        h('td', { class: 'nowrap', 'data-label': 'created' }, time(o.createdAt, now)),
        h('td', { class: 'number nowrap', 'data-label': 'took' }, o.state === 'pending' ? '–' : o.finishedAt ? duration(Date.parse(o.finishedAt) - begin) : lasting(now - begin)));
    })), 'operations cards');
}

/** @param {any[]} list @param {number} now */
function bindingRows(list, now) {
  const state = (/** @type {any} */ b) => (b.revokedAt ? badge('cancelled', 'revoked') : Date.parse(b.expiresAt) <= now ? badge('cancelled', 'expired') : b.createdAccessAt ? badge('alive', 'usable') : badge('in progress', 'being created'));
  return table('Bindings, newest first', [th('Binding'), th('State'), th('Created'), th('Expires'), th('Revoked'), th('Replaces')], h('tbody', null, list.map((b) => h('tr', { key: b.bindingId },
    h('th', { scope: 'row', class: 'wrap' }, h('code', null, b.bindingId)), h('td', null, state(b)),
    h('td', { class: 'nowrap', 'data-label': 'created' }, time(b.createdAt, now)), h('td', { class: 'nowrap', 'data-label': 'expires' }, time(b.expiresAt, now)),
    h('td', { class: 'nowrap', 'data-label': 'revoked' }, time(b.revokedAt, now)), h('td', { class: 'wrap', 'data-label': 'replaces' }, b.predecessor ? h('code', null, b.predecessor) : h('span', { class: 'muted' }, '–'))))), 'cards');
}

/**
 * Renders the parameters as sent beside the effective ones.
 * @param {any} sent
 * @param {any} effective
 */
function parameters(sent, effective) {
  const names = [...new Set([...Object.keys(sent), ...Object.keys(effective)])].sort();
  if (!names.length) return none('The platform sent no parameters, and the plan has no defaults.');
  const value = (/** @type {any} */ v) => (v === undefined ? h('span', { class: 'muted' }, '–') : h('code', null, typeof v === 'string' ? v : JSON.stringify(v)));
  return table('Parameters', [th('Parameter'), th('As sent'), th('Effective')], h('tbody', null, names.map((n) => h('tr', { key: n },
    h('th', { scope: 'row', class: 'wrap' }, n), h('td', { class: 'half', 'data-label': 'sent' }, value(sent[n])), h('td', { class: 'half', 'data-label': 'effective' }, value(effective[n]))))), 'cards');
}

/** @param {any[]} list @param {number} now */
function memberRows(list, now) {
  return table('Orchestrations of the instance, newest first', [th('Orchestration'), th('State'), th('Operation'), th('Window'), th('Description')], h('tbody', null, list.map((m) => h('tr', { key: m.operationID },
    h('th', { scope: 'row' }, h('a', { href: `/console/orchestrations/${m.orchestrationID}`, class: 'mono', title: m.orchestrationID }, short(m.orchestrationID))),
    h('td', null, badge(m.state), dryMark(m)), h('td', { 'data-label': 'operation' }, h('a', { href: operationURL(m.operationID), class: 'mono', title: m.operationID }, short(m.operationID))),
    h('td', { class: 'nowrap', 'data-label': 'window' }, time(m.maintenanceWindowBegin, now)), h('td', { class: 'wide' }, m.description)))), 'cards');
}

/** @param {any[]} list */
function eventRows(list) {
  return table('Events, newest first', [th('Time'), th('Level'), th('Operation'), th('Event')], h('tbody', null, list.map((e) => h('tr', { key: e.ID },
    h('td', { class: 'nowrap' }, h('time', { datetime: e.CreatedAt, title: absolute(e.CreatedAt) }, stamp(e.CreatedAt))),
    h('td', null, e.Level === 'error' ? badge('failed', 'error') : h('span', { class: 'muted' }, e.Level)),
    h('td', { 'data-label': 'operation' }, h('a', { href: operationURL(e.OperationID), class: 'mono', title: e.OperationID }, short(e.OperationID))),
    h('td', { class: 'wide' }, e.Level === 'error' ? failure(e.Message) : e.Message)))), 'cards');
}
