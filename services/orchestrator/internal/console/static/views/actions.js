// @ts-check
/** The view of the actions of operators. */

import { Resource } from '../api.js';
import { absolute, badge, operationURL, plural, short, stamp, time } from '../format.js';
import { shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

const pageSize = 50;

/** @type {Record<string, string>} */
const looks = { done: 'succeeded', refused: 'cancelled', failed: 'failed', begun: 'in progress' };

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function actions(ctx) {
  let params = ctx.params;
  const page = () => Math.max(1, Number(params.get('page')) || 1);
  const list = new Resource(ctx.api, () => `/actions?page_size=${pageSize}&page=${page()}`, { every: 10_000, changed: ctx.update });
  list.refresh();
  const go = (/** @type {number} */ n) => ctx.go('/console/actions' + (n > 1 ? `?page=${n}` : ''));
  return {
    title: () => 'Actions',
    resume: () => list.refresh(),
    close: () => list.close(),
    query: (next) => {
      params = next;
      list.reset();
      list.refresh();
    },
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Actions'), h('p', { class: 'muted small' }, list.data ? plural(list.data.totalCount, 'action') : '')),
      h('p', null, 'You are ', h('b', null, ctx.me.name), ' with the role ', h('b', null, ctx.me.role),
        ctx.me.authentication === 'none' ? '. Access control is off: anyone who reaches this page is an operator.' : `, authenticated by ${ctx.me.authentication === 'oidc' ? 'the identity provider' : 'a token'}.`),
      shown(list, (d) => (d.data.length ? [
        table('Actions, newest first', [th('When'), th('Who'), th('Action'), th('Target'), th('Outcome')], h('tbody', null, d.data.map((/** @type {any} */ a) => h('tr', null,
          h('td', { class: 'nowrap' }, h('span', { title: absolute(a.time) }, stamp(a.time)), ' ', h('span', { class: 'muted' }, time(a.time, ctx.now()))),
          h('td', { class: 'nowrap' }, a.name, h('span', { class: 'muted' }, ` ${a.role}`)),
          h('td', { class: 'nowrap' }, a.action, a.detail ? [' ', h('code', null, a.detail)] : null),
          h('td', null, target(a)),
          h('td', { class: 'wide' }, badge(looks[a.outcome] ?? 'pending', a.outcome), a.reason ? h('span', { class: 'words' }, a.reason) : null)))), 'cards'),
        d.totalCount > pageSize ? h('nav', { class: 'pager', 'aria-label': 'Pages' },
          h('button', { type: 'button', class: 'button', disabled: page() === 1, onclick: () => go(page() - 1) }, 'Newer'),
          h('button', { type: 'button', class: 'button', disabled: page() * pageSize >= d.totalCount, onclick: () => go(page() + 1) }, 'Older')) : null,
      ] : h('div', { class: 'empty' }, h('p', null, h('b', null, 'No actions yet.'), ' Retries, skipped steps and cancellations by operators appear here.')))),
    ],
  };
}

/** @param {any} a */
function target(a) {
  if (!/^[0-9a-f-]{36}$/.test(a.target)) return h('span', { class: 'mono' }, a.target);
  if (a.action.endsWith('_hold')) return h('a', { href: '/console/holds', class: 'mono', title: a.target }, short(a.target));
  const href = a.action.includes('orchestration') || a.action.startsWith('upgrade') ? `/console/orchestrations/${a.target}` : operationURL(a.target);
  return h('a', { href, class: 'mono', title: a.target }, short(a.target));
}
