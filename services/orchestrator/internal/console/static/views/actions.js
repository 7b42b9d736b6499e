// @ts-check
/** The view of the actions of operators. */

import { absolute, badge, operationURL, plural, short, stamp, time } from '../format.js';
import { listOf, select, shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

const pageSize = 50;

/** @type {Record<string, string>} */
const looks = { done: 'succeeded', refused: 'cancelled', failed: 'failed', begun: 'in progress' };

/** The filters of the API. */
const filters = ['name', 'action', 'target', 'outcome'];

/** The actions by their target. @type {[string, string][]} */
const names = [
  'retry', 'skip', 'cancel', 'create_hold', 'release_hold', 'create_ramp', 'remove_ramps', 'order_batch', 'pause_batch', 'resume_batch', 'cancel_batch', 'upgrade_kyma', 'upgrade_cluster', 'pause_orchestration', 'resume_orchestration',
  'approve_orchestration', 'retry_orchestration', 'cancel_orchestration', 'redrive_dead_letter', 'drop_dead_letter', 'create_webhook', 'delete_webhook', 'enable_webhook', 'disable_webhook', 'test_webhook',
  'apply_limits', 'apply_overlay', 'remove_overlay', 'roll_back_overlays', 'replay_facts',
].map((name) => [name, name]);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function actions(ctx) {
  const { list, get, filter, pages, view } = listOf(ctx, '/console/actions', 10_000, (value) => {
    const query = new URLSearchParams({ page_size: String(pageSize), page: value('page') || '1' });
    for (const name of filters) if (value(name)) query.set(name, value(name));
    return `/actions?${query}`;
  });
  /** What is entered and not applied yet. @type {Record<string, string>} */
  const entered = {};
  /** Renders a filter that is applied when its field is left or Enter is pressed. @param {string} label @param {string} name @param {string} hint @param {string} [className] */
  const field = (label, name, hint, className = '') => h('label', { class: `field ${className}` }, h('span', null, label), h('input', {
    type: 'search', name, value: entered[name] ?? get(name), placeholder: hint, autocomplete: 'off', spellcheck: 'false',
    oninput: (/** @type {any} */ e) => { entered[name] = e.target.value; },
    onchange: (/** @type {any} */ e) => {
      delete entered[name];
      filter({ [name]: e.target.value.trim(), page: '' });
    },
  }));
  return {
    title: () => 'Actions',
    ...view,
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Actions'), h('p', { class: 'muted small', role: 'status' }, list.data ? plural(list.data.totalCount, 'action') : '')),
      h('p', null, 'You are ', h('b', null, ctx.me.name), ' with the role ', h('b', null, ctx.me.role),
        ctx.me.authentication === 'none' ? '. Access control is off: anyone who reaches this page is an operator.' : `, authenticated by ${ctx.me.authentication === 'oidc' ? 'the identity provider' : 'a token'}.`),
      h('form', { class: 'filters', role: 'search', 'aria-label': 'Filter actions', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
        field('Who', 'name', 'Exact name'),
        select('Action', 'action', [['', 'All actions'], ...names], get('action'), (v) => filter({ action: v, page: '' })),
        field('Target', 'target', 'Exact ID', 'grow'),
        select('Outcome', 'outcome', [['', 'All outcomes'], ...Object.keys(looks).map((o) => /** @type {[string, string]} */ ([o, o]))], get('outcome'), (v) => filter({ outcome: v, page: '' })),
        h('button', { type: 'button', class: 'button plain', disabled: !filtered(), onclick: () => ctx.go('/console/actions') }, 'Clear all')),
      shown(list, (d) => (d.data.length ? [
        table('Actions, newest first', [th('When'), th('Who'), th('Action'), th('Target'), th('Outcome')], h('tbody', null, d.data.map((/** @type {any} */ a) => h('tr', { key: a.id },
          h('td', { class: 'nowrap' }, h('time', { datetime: a.time, title: absolute(a.time) }, stamp(a.time)), ' ', h('span', { class: 'muted' }, time(a.time, ctx.now()))),
          h('td', { class: 'nowrap' }, a.name, h('span', { class: 'muted' }, ` ${a.role}`)),
          h('td', { class: 'nowrap' }, a.action, a.detail ? [' ', h('code', null, a.detail)] : null),
          h('td', null, target(a)),
          h('td', { class: 'wide' }, badge(looks[a.outcome] ?? 'pending', a.outcome), a.reason ? h('span', { class: 'words' }, a.reason) : null)))), 'cards'),
        pages(d.totalCount, pageSize),
      ] : h('div', { class: 'empty' }, filtered() ? h('p', null, h('b', null, 'No actions match these filters.'))
        : h('p', null, h('b', null, 'No actions yet.'), ' Retries, skipped steps and cancellations by operators appear here.')))),
    ],
  };

  function filtered() {
    return filters.some((name) => get(name));
  }
}

/** @param {any} a */
function target(a) {
  if (!/^[0-9a-f-]{36}$/.test(a.target)) return h('span', { class: 'mono' }, a.target);
  const href = page(a);
  return href ? h('a', { href, class: 'mono', title: a.target }, short(a.target)) : h('span', { class: 'mono', title: a.target }, short(a.target));
}

/** Returns the page of the target of an action, which is an ID; empty if the target has no page. @param {any} a */
function page(a) {
  if (['retry', 'skip', 'cancel'].includes(a.action)) return operationURL(a.target);
  if (a.action.includes('_ramp')) return '/console/workers';
  if (a.action.endsWith('_hold')) return '/console/holds';
  if (a.action.endsWith('_webhook')) return '/console/webhooks';
  if (a.action.endsWith('_batch')) return `/console/batches/${a.target}`;
  return a.action.endsWith('_orchestration') || a.action.startsWith('upgrade_') ? `/console/orchestrations/${a.target}` : '';
}
