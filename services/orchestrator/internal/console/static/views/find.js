// @ts-check
/** What matches a text: runtimes by name, shoot or ID, and operations. */

import { Resource } from '../api.js';
import { badge, count, dryMark, instanceURL, kind, operationURL, operationsURL, plural, short, shownState, time } from '../format.js';
import { shown, table, th } from '../parts.js';
import { h } from '../vdom.js';
import { runtimeBadge } from './instance.js';

/** What a text matches, in the words of the page. @type {Record<string, string>} */
const properties = { instance: 'instance ID', runtime: 'runtime ID', shoot: 'shoot', name: 'runtime name', subaccount: 'subaccount', account: 'global account' };

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function find(ctx) {
  let text = ctx.params.get('q') ?? '';
  // A single match is opened, but not again on the way back.
  let direct = !ctx.kept.seen;
  const found = new Resource(ctx.api, () => `/find?q=${encodeURIComponent(text)}`, {
    changed: () => {
      const only = found.data && single(found.data);
      if (only && direct && !found.error) ctx.go(only, true);
      direct = false;
      ctx.keep({ seen: true });
      ctx.update();
    },
  });
  if (text) found.refresh();

  return {
    title: () => (text ? `Find ${text}` : 'Find'),
    resume: () => text && found.refresh(),
    close: () => found.close(),
    query: (next, kept) => {
      text = next.get('q') ?? '';
      direct = !kept.seen;
      found.reset();
      if (text) found.refresh();
    },
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Find ', text ? h('span', { class: 'id' }, text) : null)),
      text ? shown(found, results) : h('div', { class: 'empty' }, h('p', null, 'Enter the name of a runtime or a shoot, or the beginning of an ID, in the search field.')),
    ],
  };

  /** @param {any} d */
  function results(d) {
    const now = ctx.now();
    return [
      (d.problems ?? []).map((/** @type {string} */ p) => h('p', { key: p, class: 'note bad', role: 'status' }, `Runtimes were not searched: ${p}.`)),
      !d.instances.length && !d.operations.length ? h('div', { class: 'empty' }, h('p', null, h('b', null, 'Nothing matches.'),
        ' Names of runtimes and shoots and IDs match from their beginning, with at least 3 characters.')) : null,
      d.instances.length ? h('section', null, h('h2', null, `Runtimes`, h('span', { class: 'muted small' }, ` ${d.moreInstances ? 'the first ' : ''}${count(d.instances.length)}`)),
        table('Runtimes', [th('Runtime'), th('State'), th('Shoot'), th('Plan'), th('Region'), th('Matches'), th('Global account'), th('Subaccount'), th('Created')],
          h('tbody', null, d.instances.map((/** @type {any} */ i) => h('tr', { key: i.instanceId },
            h('th', { scope: 'row', class: 'name' }, h('a', { href: instanceURL(i.instanceId), 'data-row': true, title: i.instanceId }, i.runtimeName || short(i.instanceId))),
            h('td', null, runtimeBadge(i.state), i.expiredAt ? [' ', badge('not completed', 'expired')] : null),
            h('td', { class: 'code', 'data-label': 'shoot' }, i.shootName), h('td', null, i.plan), h('td', { 'data-label': 'region' }, i.region),
            h('td', { 'data-label': 'matches' }, properties[i.matched] ?? i.matched),
            h('td', { class: 'wrap', 'data-label': 'account', title: i.globalAccountId }, short(i.globalAccountId)), h('td', { class: 'wrap', 'data-label': 'subaccount', title: i.subaccountId }, short(i.subaccountId)),
            h('td', { class: 'nowrap', 'data-label': 'created' }, time(i.createdAt, now))))), 'cards')) : null,
      d.operations.length ? h('section', null, h('h2', null, 'Operations', h('span', { class: 'muted small' },
        ` ${d.operationCount > d.operations.length ? `the newest ${d.operations.length} of ` : ''}${count(d.operationCount)}${d.operationCountCapped ? '+' : ''}`)),
      table('Operations', [th('Operation'), th('State'), th('Runtime'), th('Type'), th('Plan'), th('Created')], h('tbody', null, d.operations.map((/** @type {any} */ o) => h('tr', { key: o.id },
        h('th', { scope: 'row' }, h('a', { href: operationURL(o.id), class: 'mono', 'data-row': true, title: o.id }, short(o.id))),
        h('td', null, badge(shownState(o))), h('td', { class: 'name' }, h('a', { href: instanceURL(o.instanceId), title: o.instanceId }, o.runtimeName || short(o.instanceId))),
        h('td', null, kind(o), dryMark(o)), h('td', null, o.plan), h('td', { class: 'nowrap', 'data-label': 'created' }, time(o.createdAt, now))))), 'cards'),
      d.operationCount > d.operations.length ? h('p', null, h('a', { href: operationsURL({ q: text }) }, `All ${plural(d.operationCount, 'operation')}`)) : null) : null,
    ];
  }
}

/**
 * Returns the page of the only match: an instance, or an operation.
 * @param {any} d
 */
function single(d) {
  if (d.problems?.length || d.moreInstances) return '';
  const instances = new Set([...d.instances, ...d.operations].map((x) => x.instanceId));
  if (instances.size !== 1) return '';
  if (d.instances.length) return instanceURL(d.instances[0].instanceId);
  return d.operations.length === 1 ? operationURL(d.operations[0].id) : '';
}
