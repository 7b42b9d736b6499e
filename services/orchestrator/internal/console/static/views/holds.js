// @ts-check
/** The list of holds, with dialogs to create and to release one. */

import { Resource } from '../api.js';
import { ask } from '../dialogs.js';
import { badge, clock, count, operationsURL, plural, time, typeNames } from '../format.js';
import { select, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';

/** The members of a scope with their labels and the parameters of GET /operations. @type {[member: string, label: string, parameter: string][]} */
const members = [
  ['plan', 'Plan (name)', 'plan'], ['globalAccount', 'Global account', 'global_account'], ['region', 'Region', 'region'], ['instance', 'Instance', 'instance'],
  ['system', 'System', 'system'], ['worker', 'Worker', 'worker'], ['step', 'Step', 'step'], ['operation', 'Operation', 'q'],
];
/** The members that only operations in progress have. */
const ofSteps = ['system', 'worker', 'step'];
/** The lengths of a hold in minutes. @type {[string, string][]} */
const ends = [['', 'when it is released'], ['30', 'after 30 minutes'], ['120', 'after 2 hours'], ['480', 'after 8 hours'], ['1440', 'after a day']];
const previewDelay = 300;

/** @param {Record<string, string>} scope */
const words = (scope) => [
  ...members.map(([member, label]) => [label.replace(' (name)', '').toLowerCase(), scope[member]]), ['type', typeNames[scope.type] ?? scope.type],
].filter(([, value]) => value);

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function holds(ctx) {
  const list = new Resource(ctx.api, '/holds', { every: 3000, changed: ctx.update });
  const processes = new Resource(ctx.api, '/processes', { changed: ctx.update });
  list.refresh();
  processes.refresh();

  /** @param {any} hold */
  function askRelease(hold) {
    ask({
      title: 'Release this hold?',
      body: [
        h('p', null, scopeWords(hold.scope)), h('p', null, hold.reason),
        h('p', null, hold.operations ? `${plural(hold.operations, 'operation')} will continue, unless another hold contains them.` : 'It holds no operation now.',
          hold.orders === 'reject' ? ' New orders will be accepted again.' : ''),
      ],
      action: 'Release',
      run: async () => {
        await ctx.api.send('DELETE', `/holds/${encodeURIComponent(hold.id)}`);
        ctx.notice('ok', 'The hold is released.');
        list.refresh();
      },
    });
  }

  function askCreate() {
    /** @type {Record<string, string>} */
    const scope = {};
    let reason = '', end = '', orders = 'wait';
    /** What the scope contains now. */
    let preview = '';
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let asked = 0;

    /** Counts the operations in the scope after a pause in typing. @param {() => void} update */
    function look(update) {
      clearTimeout(timer);
      const turn = ++asked;
      if (!words(scope).length) {
        preview = '';
        update();
        return;
      }
      preview = 'Counting the operations in the scope…';
      update();
      timer = setTimeout(async () => {
        const query = new URLSearchParams({ state: 'pending,in progress', page_size: '1' });
        for (const [member, , parameter] of members) if (scope[member]) query.set(parameter, scope[member]);
        if (scope.type) query.set('type', scope.type);
        let text;
        try {
          const found = await ctx.api.get(`/operations?${query}`);
          const n = `${count(found.totalCount)}${found.totalCountCapped ? ' or more' : ''} unfinished ${found.totalCount === 1 ? 'operation' : 'operations'}`;
          text = ofSteps.some((m) => scope[m]) ? `${n} at such a step now. Others are held when they reach one.` : `${n} in the scope now.`;
        } catch (e) {
          text = /** @type {Error} */ (e).message;
        }
        if (turn !== asked) return;
        preview = text;
        update();
      }, previewDelay);
    }

    /**
     * @param {() => void} update
     * @param {string} member
     * @param {string} value
     */
    function set(update, member, value) {
      if (value.trim()) scope[member] = value.trim();
      else delete scope[member];
      look(update);
    }

    ask({
      title: 'Create a hold',
      body: (update) => [
        h('p', null, 'Operations in the scope do not start and send no command. Commands in flight finish. All fields that are set must match.'),
        h('div', { class: 'fields' },
          select('Type', 'type', [['', 'Any type'], ...Object.entries(typeNames)], scope.type ?? '', (v) => set(update, 'type', v)),
          members.map(([member, label]) => h('label', { class: 'field', key: member }, h('span', null, label),
            h('input', {
              name: member, list: known(member).length ? `known-${member}` : undefined, autocomplete: 'off', spellcheck: 'false', value: scope[member] ?? '',
              oninput: (/** @type {any} */ e) => set(update, member, e.target.value),
            })))),
        ['system', 'worker', 'step'].map((member) => h('datalist', { id: `known-${member}`, key: `known-${member}` }, known(member).map((value) => h('option', { value })))),
        h('p', { class: 'preview', role: 'status' }, preview || 'The scope is empty.'),
        h('div', { class: 'fields' },
          h('label', { class: 'field whole' }, h('span', null, 'Reason, shown with every held operation'),
            h('input', { name: 'reason', required: true, autocomplete: 'off', value: reason, oninput: (/** @type {any} */ e) => { reason = e.target.value; } })),
          select('Ends', 'end', ends, end, (v) => { end = v; update(); }),
          select('New orders', 'orders', [['wait', 'wait'], ['reject', 'are rejected with the reason']], orders, (v) => { orders = v; update(); })),
        orders === 'reject' ? h('p', { class: 'muted small' }, 'Only type (provisioning or update), plan, global account, region and instance may be set. Without a type, bindings are rejected, too.') : null,
      ],
      action: 'Create the hold',
      run: async () => {
        const until = end ? new Date(Date.now() + Number(end) * 60_000).toISOString() : undefined;
        await ctx.api.send('POST', '/holds', { scope, reason, orders, until });
        ctx.notice('ok', 'The hold applies within a second.');
        list.refresh();
      },
    });
  }

  /** Returns the names of the process definitions that a member can have. @param {string} member @returns {string[]} */
  function known(member) {
    /** @type {Set<string>} */
    const names = new Set();
    for (const p of processes.data?.data ?? []) {
      for (const stage of p.stages) {
        for (const s of stage.steps) {
          if (s.worker === 'orchestrator') continue;
          if (member === 'step') names.add(s.name);
          if (member === 'worker') names.add(s.worker);
          if (member === 'system') (s.systems ?? [s.worker]).forEach((/** @type {string} */ x) => names.add(x));
        }
      }
    }
    return [...names].sort();
  }

  const viewer = () => ctx.me.role !== 'operator';

  /** @param {any[]} data */
  function rows(data) {
    const now = ctx.now();
    return table('Holds, oldest first', [th('Scope'), th('Held', 'number'), th('New orders'), th('Reason'), th('Created'), th('Until'), th(h('span', { class: 'visually-hidden' }, 'Action'))],
      h('tbody', null, data.map((hold) => h('tr', { key: hold.id },
        h('th', { scope: 'row', class: 'wide', title: hold.id }, scopeWords(hold.scope)),
        h('td', { class: 'number', 'data-label': 'held' }, hold.operations ? h('a', { href: operationsURL({ waiting: 'held' }), 'data-row': true }, count(hold.operations)) : '0'),
        h('td', { class: 'nowrap', 'data-label': 'new orders' }, hold.orders === 'reject' ? badge('failed', 'rejected') : 'wait'),
        h('td', { class: 'wide' }, hold.reason),
        h('td', { class: 'nowrap', 'data-label': 'created' }, hold.createdBy, ' ', h('span', { class: 'muted' }, time(hold.createdAt, now))),
        h('td', { class: 'nowrap', 'data-label': 'until' }, hold.until ? time(hold.until, now) : h('span', { class: 'muted' }, 'released')),
        h('td', { class: 'nowrap' }, h('button', {
          type: 'button', class: 'button small', disabled: viewer(), 'aria-describedby': viewer() ? 'viewer' : undefined, onclick: () => askRelease(hold),
        }, 'Release…'))))), 'holds cards');
  }

  return {
    title: () => (list.data?.totalCount ? `(${list.data.totalCount}) Holds` : 'Holds'),
    resume: () => list.refresh(),
    close: () => {
      list.close();
      processes.close();
    },
    render: () => [
      h('div', { class: 'title-row' },
        h('div', null, h('h1', null, 'Holds'), h('p', { class: 'muted small' }, list.at ? `as of ${clock(list.at)}` : '')),
        h('div', { class: 'actions' }, h('div', { class: 'buttons' }, h('button', {
          type: 'button', class: 'button primary', disabled: viewer(), 'aria-describedby': viewer() ? 'viewer' : undefined, onclick: askCreate,
        }, 'Create a hold…')), viewer() ? viewerNote('viewer') : null)),
      shown(list, (d) => (d.data.length ? rows(d.data) : h('div', { class: 'empty' },
        h('p', null, h('b', null, 'There are no holds.'), ' A hold pauses the operations in its scope, for example while a system is migrated.')))),
      h('p', { class: 'muted small' }, h('b', null, 'Held'), ' is the number of operations that the hold keeps waiting now. An operation in several scopes counts once; one that waits for its next try counts when that is due.'),
    ],
  };
}

/** @param {Record<string, string>} scope */
const scopeWords = (scope) => words(scope).map(([label, value], i) => [i ? ', ' : '', h('span', { class: 'muted' }, label, ' '), h('b', null, value)]);
