// @ts-check
/** The list of workers with their rates and the operations that wait for them. */

import { badge, clock, count, operationsURL, plural, sign, time } from '../format.js';
import { listOf, shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function workers(ctx) {
  const { list, get, order, view } = listOf(ctx, '/console/workers', 3000, () => '/workers', changed);
  /** @type {Map<string, boolean>} */
  let before = new Map();

  function changed() {
    const data = list.data?.data ?? [];
    for (const w of data) {
      if (before.has(w.name) && before.get(w.name) !== w.alive) ctx.announce(`Worker ${w.name} is ${w.alive ? 'alive again' : 'missing'}`);
    }
    before = new Map(data.map((/** @type {any} */ w) => [w.name, w.alive]));
    ctx.update();
  }

  return {
    title: () => 'Workers',
    ...view,
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Workers'), list.at ? h('p', { class: 'muted small' }, `as of ${clock(list.at)}`) : null),
      shown(list, (d) => (d.data.length ? rows(d.data) : h('div', { class: 'empty' }, h('p', null, 'No process uses a worker, and no worker responds.')))),
      h('p', { class: 'muted small' }, 'Rates are per minute, over the last one to two minutes. A ', h('b', null, 'retry'), ' is a try that ended with an error or without an answer and is repeated; a ', h('b', null, 'failure'), ' ends the step. ', h('b', null, 'Lag'), ' is the number of commands on the bus; ', h('b', null, 'at work'), ' is the number of commands at replicas; ', h('b', null, 'waiting'), ' is the number of operations at its steps that poll, fail, get no answer or have no live worker.'),
    ],
  };

  /** @param {any[]} data */
  function rows(data) {
    // Missing workers come first.
    const trouble = (/** @type {any} */ w) => (w.alive ? (w.missingSteps.length ? 1 : 2) : 0);
    const now = ctx.now();
    const { th: sort, rows: sorted } = order(data, true, 'state', {
      name: (w) => w.name, state: (w) => `${trouble(w)} ${w.name}`, replicas: (w) => w.replicas, lag: (w) => w.pending ?? -1, work: (w) => w.deliveredNotAcked ?? -1,
      steps: (w) => w.stepsPerMinute, retries: (w) => w.retriesPerMinute, failures: (w) => w.failuresPerMinute, waiting: (w) => w.operationsWaiting,
    });
    return table('Workers', [sort('Worker', 'name'), sort('State', 'state'), sort('Replicas', 'replicas'), sort('Lag', 'lag', 'number'), sort('At work', 'work', 'number'), sort('Steps / min', 'steps', 'number'),
      sort('Retries / min', 'retries', 'number'), sort('Failures / min', 'failures', 'number'), sort('Waiting', 'waiting', 'number'), th('Steps')],
    h('tbody', null, sorted.map((w) => h('tr', { key: w.name, class: w.name === get('worker') ? 'marked' : '' },
      h('th', { scope: 'row' }, h('a', { href: operationsURL({ worker: w.name }), 'data-row': true }, w.name)),
      h('td', null, w.alive ? (w.missingSteps.length ? badge('not completed', 'incomplete') : badge('alive')) : badge('missing'),
        w.alive ? null : h('span', { class: 'words small' }, w.lastSeen ? [' last seen ', time(w.lastSeen, now)] : ' not seen yet')),
      h('td', { class: 'version', 'data-label': 'replicas' }, w.replicas ? versions(w) : dash()),
      lag('lag', w.pending), lag('at work', w.deliveredNotAcked),
      h('td', { class: 'number', 'data-label': 'steps / min' }, rate(w.stepsPerMinute)),
      h('td', { class: 'number', 'data-label': 'retries / min' }, w.retriesPerMinute ? h('b', { class: 'text-wait' }, rate(w.retriesPerMinute)) : '0'),
      h('td', { class: 'number', 'data-label': 'failures / min' }, w.failuresPerMinute ? h('b', { class: 'text-bad' }, rate(w.failuresPerMinute)) : '0'),
      h('td', { class: 'number', 'data-label': 'waiting' }, w.operationsWaiting ? h('a', { href: operationsURL({ worker: w.name, waiting: 'failing,no_answer,no_worker,polling' }), title: plural(w.operationsWaiting, 'operation') }, count(w.operationsWaiting)) : '0'),
      h('td', { class: 'wide' },
        w.missingSteps.length ? h('span', { class: 'failure' }, `no replica serves ${w.missingSteps.join(', ')}`) : null,
        w.steps?.length ? h('details', null, h('summary', null, plural(w.steps.length, 'step')), h('span', { class: 'mono small' }, w.steps.join(', '))) : null)))), 'workers cards');
  }
}

/** Renders the replicas of each version. @param {any} w */
function versions(w) {
  return [w.versionReplicas.map((/** @type {any} */ v) => h('span', { key: v.version, class: 'release' }, `${count(v.replicas)} × ${v.version || 'unnamed'}`)),
    w.versionReplicas.length > 1 ? h('span', { class: 'badge run' }, sign('retrying'), `${w.versionReplicas.length} versions`) : null,
    (w.ramps ?? []).map((/** @type {any} */ r) => h('span', { key: r.id, class: 'release', title: `${r.createdBy}: ${r.reason}` },
      `ramp: ${r.percent} % to ${r.version}${Object.entries(r.scope).map(([k, v]) => `, ${k} ${v}`).join('')}`))];
}

const dash = () => h('span', { class: 'muted' }, '–');

/**
 * @param {string} label
 * @param {number | undefined} n absent when the bus does not answer
 */
const lag = (label, n) => h('td', { class: 'number', 'data-label': label }, n === undefined ? h('span', { class: 'muted', title: 'The bus does not respond' }, '?') : count(n));

/** @param {number} n */
const rate = (n) => (n >= 10 ? count(Math.round(n)) : String(Math.round(n * 10) / 10));
