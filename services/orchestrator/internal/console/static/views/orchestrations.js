// @ts-check
/** The list of orchestrations. */

import { Resource } from '../api.js';
import { badge, plural, short, spelled, time, typeNames } from '../format.js';
import { select, shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

const pageSize = 50;

/** @type {[string, string][]} */
const states = ['pending', 'in progress', 'retrying', 'canceling', 'succeeded', 'failed', 'canceled'].map((s) => [s, spelled(s)]);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function orchestrations(ctx) {
  let params = ctx.params;
  const page = () => Math.max(1, Number(params.get('page')) || 1);
  const list = new Resource(ctx.api, () => {
    const query = new URLSearchParams({ page_size: String(pageSize), page: String(page()) });
    if (params.get('state')) query.set('state', params.get('state') ?? '');
    return `/orchestrations?${query}`;
  }, { every: 5000, changed: ctx.update });
  list.refresh();

  /** @param {Record<string, string>} change */
  function filter(change) {
    const next = new URLSearchParams(params);
    for (const [name, value] of Object.entries(change)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    ctx.go('/console/orchestrations' + (next.size ? `?${next}` : ''));
  }

  return {
    title: () => 'Orchestrations',
    resume: () => list.refresh(),
    close: () => list.close(),
    query: (next) => {
      params = next;
      list.reset();
      list.refresh();
    },
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Orchestrations'), h('p', { class: 'muted small' }, list.data ? plural(list.data.totalCount, 'orchestration') : '')),
      h('form', { class: 'filters', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
        select('State', 'state', [['', 'All states'], ...states], params.get('state') ?? '', (v) => filter({ state: v, page: '' }))),
      shown(list, (d) => (d.data.length ? [
        table('Orchestrations, newest first', [th('Orchestration'), th('State'), th('Upgrades'), th('Targets'), th('In parallel', 'number'), th('Created'), th('Changed'), th('Description')],
          h('tbody', null, d.data.map((/** @type {any} */ o) => h('tr', { key: o.orchestrationID },
            h('th', { scope: 'row' }, h('a', { href: `/console/orchestrations/${o.orchestrationID}`, class: 'mono', 'data-row': true, title: o.orchestrationID }, short(o.orchestrationID))),
            h('td', null, badge(o.state)), h('td', { class: 'nowrap' }, typeNames[o.type] ?? o.type),
            h('td', null, targets(o.parameters.targets)), h('td', { class: 'number', 'data-label': 'in parallel' }, o.parameters.strategy?.parallel?.workers ?? ''),
            h('td', { class: 'nowrap' }, time(o.createdAt, ctx.now())), h('td', { class: 'nowrap', 'data-label': 'changed' }, time(o.updatedAt, ctx.now())), h('td', { class: 'wide' }, o.description)))), 'cards'),
        pages(d.totalCount),
      ] : h('div', { class: 'empty' }, h('p', null, h('b', null, params.size ? 'No orchestrations match these filters.' : 'No orchestrations yet.'), ' ', h('code', null, 'keb upgrade kyma -t all'), ' creates one.')))),
    ],
  };

  /** @param {number} total */
  function pages(total) {
    if (total <= pageSize) return null;
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('button', { type: 'button', class: 'button', disabled: page() === 1, onclick: () => filter({ page: page() > 2 ? String(page() - 1) : '' }) }, 'Newer'),
      h('button', { type: 'button', class: 'button', disabled: page() * pageSize >= total, onclick: () => filter({ page: String(page() + 1) }) }, 'Older'));
  }
}

/**
 * Formats targets as text.
 * @param {any} t
 */
export function targets(t) {
  const words = (/** @type {any[]} */ list) => list.map((x) => Object.entries(x).map(([k, v]) => (k === 'target' ? String(v) : `${k} ${v}`)).join(', ')).join('; ');
  return words(t?.include ?? []) + (t?.exclude?.length ? ` but not ${words(t.exclude)}` : '');
}
