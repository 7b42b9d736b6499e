// @ts-check
/** The list of webhooks. */

import { Resource } from '../api.js';
import { ask } from '../dialogs.js';
import { badge, clock, count, plural, time, typeNames } from '../format.js';
import { code, select, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';

/** The kinds of the API with what they report. @type {[kind: string, text: string][]} */
const kinds = [
  ['failing', 'a step begins to fail'], ['failed', 'an operation failed'], ['orchestration', 'an orchestration has a new state'], ['started', 'an operation started'],
  ['succeeded', 'an operation succeeded'], ['incomplete', 'it succeeded without some steps'], ['cancelled', 'an operation was cancelled'], ['step', 'every try of a step'],
  ['stage', 'the end of a stage'],
];
/** The kinds of a webhook whose filter has none. */
const usual = ['failing', 'failed', 'orchestration'];
const formats = ['cloudevents', 'cloudevents-binary', 'slack'];
/** The waiting events are counted up to this number. */
const maxWaiting = 100_000;

/** @param {any} filter */
const filterWords = (filter) => [
  (filter.kinds ?? usual).join(', '),
  [['type', filter.types?.map((/** @type {string} */ t) => typeNames[t] ?? t)], ['plan', filter.plans], ['global account', filter.globalAccounts]]
    .filter(([, values]) => values).map(([label, values]) => ['; ', h('span', { class: 'muted' }, label, ' '), values.join(' or ')]),
];

/** Splits a list that is separated by commas. @param {string} text */
const listed = (text) => text.split(',').map((s) => s.trim()).filter(Boolean);

/** @param {any} w */
const path = (w) => `/webhooks/${encodeURIComponent(w.id)}`;

/** @param {any} w */
const waiting = (w) => (w.waiting > maxWaiting ? `more than ${count(maxWaiting)}` : count(w.waiting));

/** @param {string} label @param {() => void} onclick */
const button = (label, onclick) => h('button', { type: 'button', class: 'button small', onclick }, label);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function webhooks(ctx) {
  const list = new Resource(ctx.api, '/webhooks', { every: 3000, changed: ctx.update });
  list.refresh();
  /** The new webhook whose secret is shown. @type {any} */
  let created = null;

  const viewer = () => ctx.me.role !== 'operator';

  /** Asks for a confirmation of an action on a webhook. @param {any} w @param {{action: string, body: string, run: () => Promise<string>, danger?: boolean, typed?: string}} question */
  const confirm = (w, { action, body, run, ...more }) => ask({
    title: `${action} this webhook?`, body: [h('p', null, h('b', null, w.name), ' sends to ', h('code', null, w.origin)), h('p', null, body)], action, ...more,
    run: async () => {
      ctx.notice('ok', await run());
      list.refresh();
    },
  });

  /** @param {any} w */
  const askTest = (w) => confirm(w, {
    action: 'Test', body: 'The receiver gets one test event now.',
    run: async () => {
      const d = await ctx.api.send('POST', `${path(w)}/test`);
      if (d.state !== 'delivered') throw new Error(`The test event was not delivered: ${d.error}`);
      return `${w.name} accepted the test event with status ${d.status}.`;
    },
  });

  /** @param {any} w */
  const askChange = (w) => confirm(w, w.state === 'active' ? {
    action: 'Disable', body: 'Waiting events stay. Events from now on are lost until the webhook is enabled.',
    run: async () => {
      await ctx.api.send('POST', `${path(w)}/disable`);
      return `${w.name} is disabled.`;
    },
  } : {
    action: 'Enable', body: w.waiting ? `${plural(w.waiting, 'waiting event is', 'waiting events are')} sent at once, and events from now on.` : 'Events from now on are sent.',
    run: async () => {
      await ctx.api.send('POST', `${path(w)}/enable`);
      return `${w.name} is enabled.`;
    },
  });

  /** @param {any} w */
  const askDelete = (w) => confirm(w, {
    action: 'Delete', danger: true, typed: w.name, body: w.waiting ? `The URL, the secret and ${plural(w.waiting, 'waiting event')} are deleted.` : 'The URL and the secret are deleted.',
    run: async () => {
      await ctx.api.send('DELETE', path(w));
      if (created?.id === w.id) created = null;
      return `${w.name} is deleted.`;
    },
  });

  /** @param {any} w @param {number} now */
  function state(w, now) {
    if (w.state === 'disabled') return [badge('held', 'disabled'), ' ', h('span', { class: 'words' }, w.reason), w.error ? h('span', { class: 'failure', title: w.error }, w.error) : null];
    if (!w.failures) return badge('alive', 'active');
    return [badge('failing'), ' ', h('span', { class: 'words' }, plural(w.failures, 'attempt'), ' since ', time(w.failingSince, now)), h('span', { class: 'failure', title: w.error }, w.error)];
  }

  /** @param {any[]} data */
  function rows(data) {
    const now = ctx.now();
    return table('Webhooks, by name', [
      th('Name'), th('Target'), th('Events'), th('State and last error'), th('Waiting', 'number'), th('Last delivery'), viewer() ? null : th(h('span', { class: 'visually-hidden' }, 'Actions')),
    ], h('tbody', null, data.map((w) => h('tr', { key: w.id },
      h('th', { scope: 'row', class: 'nowrap', title: `${w.id}, created by ${w.createdBy}` }, w.name),
      h('td', { 'data-label': 'target' }, h('code', null, w.origin), ' ', h('span', { class: 'muted' }, w.format)),
      h('td', { 'data-label': 'events' }, filterWords(w.filter)),
      h('td', { class: 'wide' }, state(w, now)),
      h('td', { class: 'number', 'data-label': 'waiting' }, waiting(w)),
      h('td', { class: 'nowrap', 'data-label': 'last delivery' }, w.deliveredAt ? time(w.deliveredAt, now) : h('span', { class: 'muted' }, 'none')),
      viewer() ? null : h('td', null, h('div', { class: 'buttons' }, button('Test…', () => askTest(w)), button(w.state === 'active' ? 'Disable…' : 'Enable…', () => askChange(w)), button('Delete…', () => askDelete(w))))))), 'holds cards');
  }

  return {
    title: () => 'Webhooks',
    resume: () => list.refresh(),
    close: () => list.close(),
    render: () => [
      h('div', { class: 'title-row' },
        h('div', null, h('h1', null, 'Webhooks'), h('p', { class: 'muted small' }, list.at ? `as of ${clock(list.at)}` : '')),
        h('div', { class: 'actions' }, viewer() ? viewerNote('viewer') : h('div', { class: 'buttons' }, h('button', {
          type: 'button', class: 'button primary', onclick: () => askWebhook(ctx, (w) => {
            created = w.secret ? w : null;
            list.refresh();
          }),
        }, 'Create a webhook…')))),
      created && h('div', { class: 'callout edge-wait' }, h('div', null,
        h('p', null, 'The secret of ', h('b', null, created.name), '. Give it to the receiver now: it is not shown again.'), code(created.secret, 'Secret', ctx.announce),
        h('p', null, button('Hide the secret', () => { created = null; ctx.update(); })))),
      h('p', { class: 'muted small' }, h('b', null, 'Target'), ' is the scheme and the host of the URL. Its path may be a credential and is never shown. For the attempts of each event: ', h('code', null, 'keb webhooks deliveries NAME'), '.'),
      shown(list, (d) => (d.data.length ? rows(d.data) : h('div', { class: 'empty' },
        h('p', null, h('b', null, 'There are no webhooks.'), ' A webhook sends events of operations and orchestrations to another system, for example a chat.')))),
    ],
  };
}

/**
 * @param {import('../parts.js').Context} ctx
 * @param {(webhook: any) => void} created
 */
function askWebhook(ctx, created) {
  const order = { name: '', url: '', format: formats[0], secret: '', type: '', plans: '', accounts: '' };
  const chosen = new Set(usual);
  /** @param {keyof typeof order} name @param {string} label @param {object} [more] */
  const input = (name, label, more = {}) => h('label', { class: `field ${name === 'url' ? 'whole' : ''}` }, h('span', null, label),
    h('input', { name, autocomplete: 'off', spellcheck: 'false', value: order[name], oninput: (/** @type {any} */ e) => Object.assign(order, { [name]: e.target.value.trim() }), ...more }));
  ask({
    title: 'Create a webhook',
    body: (update) => [
      h('p', null, 'Events from now on that match all conditions are sent to the URL, each at least once. The URL and the secret are sealed.'),
      h('div', { class: 'fields' },
        input('name', 'Name', { required: true }),
        select('Format', 'format', formats.map((f) => [f, f]), order.format, (v) => { order.format = v; update(); }),
        input('url', 'URL', { required: true, type: 'url' }),
        h('fieldset', { class: 'chips' }, h('legend', null, 'Events'), kinds.map(([kind, text]) => h('label', { class: `chip ${chosen.has(kind) ? 'on' : ''}`, title: text },
          h('input', {
            type: 'checkbox', name: 'kind', value: kind, checked: chosen.has(kind),
            onchange: (/** @type {any} */ e) => {
              if (e.target.checked) chosen.add(kind);
              else chosen.delete(kind);
              update();
            },
          }), h('span', { class: 'words' }, kind)))),
        select('Type', 'type', [['', 'Any type'], ...Object.entries(typeNames)], order.type, (v) => { order.type = v; update(); }),
        input('plans', 'Plans', { placeholder: 'Any; separate with commas' }), input('accounts', 'Global accounts', { placeholder: 'Any; separate with commas' }),
        input('secret', 'Secret (generated if empty)', { type: 'password', autocomplete: 'new-password' })),
    ],
    action: 'Create the webhook',
    run: async () => {
      if (!chosen.size) throw new Error('Select at least one kind of event.');
      const { name, url, format, secret, type, plans, accounts } = order;
      const filter = { kinds: [...chosen], types: type ? [type] : undefined, plans: listed(plans), globalAccounts: listed(accounts) };
      const webhook = await ctx.api.send('POST', '/webhooks', { name, url, format, filter, secret: secret || undefined });
      ctx.notice('ok', `${webhook.name} is created.`);
      created(webhook);
    },
  });
}
