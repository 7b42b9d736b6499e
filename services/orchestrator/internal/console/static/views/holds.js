// @ts-check
/** The list of holds. */

import { Resource } from '../api.js';
import { askHold, askRelease, scopeWords } from '../dialogs.js';
import { badge, clock, count, operationsURL, time } from '../format.js';
import { shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function holds(ctx) {
  const list = new Resource(ctx.api, '/holds', { every: 3000, changed: ctx.update });
  list.refresh();

  const viewer = () => ctx.me.role !== 'operator';

  /** @param {any[]} data */
  function rows(data) {
    const now = ctx.now();
    return table('Holds, oldest first', [th('Scope'), th('Held', 'number'), th('New orders'), th('Reason'), th('Created'), th('Until'), th(h('span', { class: 'visually-hidden' }, 'Action'))],
      h('tbody', null, data.map((hold) => h('tr', { key: hold.id },
        h('th', { scope: 'row', class: 'wide', title: hold.id }, scopeWords(hold.scope)),
        h('td', { class: 'number', 'data-label': 'held' }, hold.operations ? h('a', { href: operationsURL({ hold: hold.id }), 'data-row': true }, count(hold.operations)) : '0'),
        h('td', { class: 'nowrap', 'data-label': 'new orders' }, hold.orders === 'reject' ? badge('failed', 'rejected') : 'wait'),
        h('td', { class: 'wide' }, hold.reason),
        h('td', { class: 'nowrap', 'data-label': 'created' }, hold.createdBy, ' ', h('span', { class: 'muted' }, time(hold.createdAt, now))),
        h('td', { class: 'nowrap', 'data-label': 'until' }, hold.until ? time(hold.until, now) : h('span', { class: 'muted' }, 'released')),
        h('td', { class: 'nowrap' }, h('button', {
          type: 'button', class: 'button small', disabled: viewer(), 'aria-describedby': viewer() ? 'viewer' : undefined, onclick: () => askRelease(ctx, hold, () => list.refresh()),
        }, 'Release…'))))), 'holds cards');
  }

  return {
    title: () => (list.data?.totalCount ? `(${list.data.totalCount}) Holds` : 'Holds'),
    resume: () => list.refresh(),
    close: () => list.close(),
    render: () => [
      h('div', { class: 'title-row' },
        h('div', null, h('h1', null, 'Holds'), h('p', { class: 'muted small' }, list.at ? `as of ${clock(list.at)}` : '')),
        h('div', { class: 'actions' }, h('div', { class: 'buttons' }, h('button', {
          type: 'button', class: 'button primary', disabled: viewer(), 'aria-describedby': viewer() ? 'viewer' : undefined, onclick: () => askHold(ctx, () => list.refresh()),
        }, 'Create a hold…')), viewer() ? viewerNote('viewer') : null)),
      shown(list, (d) => (d.data.length ? rows(d.data) : h('div', { class: 'empty' },
        h('p', null, h('b', null, 'There are no holds.'), ' A hold pauses the operations in its scope, for example while a system is migrated.')))),
      h('p', { class: 'muted small' }, h('b', null, 'Held'), ' is the number of operations that the hold keeps waiting now. An operation in several scopes counts once; one that waits for its next try counts when that is due.'),
    ],
  };
}
