// @ts-check
/** Dead letters: messages that could not be handled. The list, and the page of one with its payload. */

import { Resource } from '../api.js';
import { ask } from '../dialogs.js';
import { badge, count, operationLink, operationURL, plural, short, stamp, time } from '../format.js';
import { listOf, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';

const pageSize = 50;
const base = '/console/dead-letters';

/** @param {number} n */
const bytes = (n) => (n < 10_000 ? plural(n, 'byte') : `${count(Math.round(n / 1024))} KiB`);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function deadLetters(ctx) {
  const { list, get, order, view } = listOf(ctx, base, 5000, (value) => `/dead-letters?page_size=${pageSize}${value('before') ? `&before=${encodeURIComponent(value('before'))}` : ''}`);
  return {
    title: () => 'Dead letters',
    ...view,
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Dead letters'),
        h('p', { class: 'muted small', role: 'status' }, list.data ? plural(list.data.totalCount, 'message') : '')),
      h('p', { class: 'muted' }, 'Messages on the bus that their consumer could not read, or that failed repeatedly. They are kept for 30 days.'),
      shown(list, (d) => (d.data.length ? [rows(d), pager(d)]
        : h('div', { class: 'empty' }, h('p', null, h('b', null, get('before') ? 'There are no older dead letters.' : 'There are no dead letters.'))))),
    ],
  };

  /** @param {any} d */
  function pager(d) {
    if (!d.nextBefore && !get('before')) return null;
    return h('nav', { class: 'pager', 'aria-label': 'Pages' },
      get('before') ? h('a', { class: 'button', href: base }, 'Newest') : null,
      d.nextBefore ? h('a', { class: 'button', href: `${base}?before=${d.nextBefore}` }, 'Older') : null);
  }

  /** @param {any} d */
  function rows(d) {
    const sorted = order(d.data, !d.nextBefore && !get('before'), '-number', {
      number: (l) => l.id, time: (l) => Date.parse(l.time), consumer: (l) => l.consumer, subject: (l) => `${l.subject} ${l.reason}`, size: (l) => l.size,
    });
    return table('Dead letters', [sorted.th('Number', 'number'), sorted.th('Time', 'time'), sorted.th('Consumer', 'consumer'), sorted.th('Subject and reason', 'subject'), th('Operation'), sorted.th('Size', 'size', 'number')],
      h('tbody', null, sorted.rows.map((/** @type {any} */ l) => h('tr', { key: l.id },
        h('th', { scope: 'row' }, h('a', { href: `${base}/${l.id}`, 'data-row': true }, String(l.id))),
        h('td', { class: 'nowrap' }, time(l.time, ctx.now())),
        h('td', { 'data-label': 'consumer' }, l.consumer),
        h('td', { class: 'wide' }, h('code', null, l.subject), h('span', { class: 'failure', title: l.reason }, l.reason)),
        h('td', { 'data-label': 'operation' }, l.operation ? operationLink(l.operation) : h('span', { class: 'muted' }, 'none')),
        h('td', { class: 'number nowrap' }, bytes(l.size))))), 'operations cards');
  }
}

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function deadLetter(ctx) {
  const id = ctx.parts[1];
  const letter = new Resource(ctx.api, `/dead-letters/${encodeURIComponent(id)}`, { changed: ctx.update });
  letter.refresh();

  /** @param {any} d */
  function askRedrive(d) {
    ask({
      title: 'Redrive this message?',
      body: [h('p', null, h('code', null, d.subject)), h('p', null, d.redrive), h('p', null, 'If it still cannot be handled, it becomes a new dead letter.')],
      action: 'Redrive',
      run: async () => {
        await ctx.api.send('POST', `/dead-letters/${encodeURIComponent(id)}/redrive`);
        done('The message is published again.');
      },
    });
  }

  /** @param {any} d */
  function askDrop(d) {
    ask({
      title: 'Drop this message?', danger: true, action: 'Drop',
      body: [h('p', null, h('code', null, d.subject)), h('p', null, 'The message is deleted and cannot be redriven.')],
      run: async () => {
        await ctx.api.send('DELETE', `/dead-letters/${encodeURIComponent(id)}`);
        done('The dead letter is dropped.');
      },
    });
  }

  /** @param {string} text */
  function done(text) {
    ctx.go(base);
    ctx.notice('ok', text);
  }

  return {
    title: () => `Dead letter ${id}`,
    resume: () => letter.refresh(),
    close: () => letter.close(),
    render: () => [
      h('p', { class: 'crumb' }, h('a', { href: base }, 'Dead letters')),
      shown(letter, (d) => {
        const viewer = ctx.me.role !== 'operator';
        return [
          h('div', { class: 'title-row' }, h('h1', null, `Dead letter ${d.id}`),
            h('div', { class: 'actions' }, h('div', { class: 'buttons' },
              h('button', { type: 'button', class: 'button', disabled: viewer || !d.redrivable, onclick: () => askRedrive(d), 'aria-describedby': viewer ? 'viewer' : 'effect' }, 'Redrive…'),
              h('button', { type: 'button', class: 'button danger', disabled: viewer, onclick: () => askDrop(d), 'aria-describedby': viewer ? 'viewer' : undefined }, 'Drop…')),
            viewer ? viewerNote('viewer') : null)),
          h('p', { class: 'message' }, d.reason),
          h('p', { id: 'effect' }, d.redrivable ? 'What a redrive does: ' : badge('not completed', 'No redrive'), ' ', d.redrive),
          h('dl', { class: 'facts' }, facts(d).map(([label, value]) => h('div', { key: label }, h('dt', null, label), h('dd', null, value)))),
          h('section', { 'aria-labelledby': 'payload' }, h('h2', { id: 'payload' }, 'Payload'),
            d.payloadTruncated ? h('p', { class: 'muted small' }, d.payload ? 'Only a part of it.' : 'It is not text.') : null,
            d.payload ? h('pre', { class: 'payload', tabindex: '0', role: 'group', 'aria-label': 'Payload' }, d.payload) : d.payloadTruncated ? null : h('p', { class: 'muted' }, 'Empty.')),
          h('section', { 'aria-labelledby': 'headers' }, h('h2', { id: 'headers' }, 'Headers'),
            Object.keys(d.headers).length ? table('Headers', [th('Name'), th('Value')], h('tbody', null, Object.entries(d.headers).sort().map(([key, value]) =>
              h('tr', { key }, h('th', { scope: 'row', class: 'mono' }, key), h('td', { class: 'wide mono' }, String(value)))))) : h('p', { class: 'muted' }, 'None.')),
        ];
      }),
    ],
  };
}

/**
 * @param {any} d
 * @returns {[string, import('../parts.js').Child][]}
 */
function facts(d) {
  return [
    ['Time', stamp(d.time)], ['Stream', h('code', null, d.stream)], ['Subject', h('code', null, d.subject)], ['Consumer', h('code', null, d.consumer)],
    ['Event', d.eventId ? [h('code', null, d.type), ' ', h('span', { class: 'mono', title: d.eventId }, short(d.eventId))] : 'not a CloudEvent'],
    ['Operation', d.operation ? h('a', { href: operationURL(d.operation), class: 'mono' }, d.operation) : 'none'],
    ['Size', [bytes(d.size), d.truncated ? ', only a part was kept' : '']],
  ];
}
