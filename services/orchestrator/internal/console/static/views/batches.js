// @ts-check
/** Actions on all operations of a filter: the dialog that orders one, the list of batches, and the page of one. */

import { Resource } from '../api.js';
import { ask } from '../dialogs.js';
import { badge, count, operationLink, plural, short, time } from '../format.js';
import { listOf, select, shown, table, th, viewerNote } from '../parts.js';
import { h } from '../vdom.js';

const pageSize = 50;
const defaultRate = 50;

/** @type {[string, string][]} */
const actions = [['retry', 'Retry'], ['skip', 'Skip a step'], ['cancel', 'Cancel']];
/** @type {[string, string][]} */
const rates = [['1', '1 per second'], ['10', '10 per second'], [String(defaultRate), `${defaultRate} per second`], ['200', '200 per second'], ['0', 'no limit']];
/** @type {[string, string][]} */
const results = ['waiting', 'done', 'failed', 'skipped'].map((s) => [s, s]);

/** The colours of states and results. @type {Record<string, string>} */
const looks = { running: 'in progress', paused: 'held', finished: 'succeeded', done: 'succeeded', waiting: 'pending' };
const look = (/** @type {string} */ state) => badge(looks[state] ?? state, state);

/** @param {any} b */
const actionWords = (b) => [b.action, b.stage ? ` from ${b.stage}${b.step ? `/${b.step}` : ''}` : b.step ? ` ${b.step}` : ''].join('');

/**
 * Asks for an action on all operations of a filter. The preview changes with the action; the user must type the number of operations.
 * @param {import('../parts.js').Context} ctx
 * @param {URLSearchParams} filter
 */
export function askBatch(ctx, filter) {
  const order = { action: 'retry', stage: '', step: filter.get('step') ?? '', rate: String(defaultRate), reason: '' };
  /** @type {any} */
  let preview = null;
  let problem = '';
  let turn = 0;
  const request = () => {
    const [stage, ...step] = order.action === 'retry' ? order.stage.split('/') : ['', order.step];
    return {
      action: order.action, filter: String(filter), stage: stage || undefined, step: order.action === 'cancel' ? undefined : step.join('/') || undefined, rate: Number(order.rate),
    };
  };

  /** @param {() => void} update */
  async function refresh(update) {
    const mine = ++turn;
    preview = null;
    problem = '';
    update();
    try {
      const found = await ctx.api.send('POST', '/batches', { ...request(), dryRun: true });
      if (mine === turn) preview = found;
    } catch (e) {
      if (mine === turn) problem = /** @type {Error} */ (e).message;
    }
    if (mine === turn) update();
  }

  /** @param {() => void} update @param {Partial<typeof order>} change */
  function set(update, change) {
    Object.assign(order, change);
    refresh(update);
  }

  let begun = false;
  ask({
    title: 'Act on all operations that match',
    body: (update) => {
      if (!begun) {
        begun = true;
        queueMicrotask(() => refresh(update));
      }
      return [
        h('p', { class: 'mono small' }, decodeURIComponent(String(filter).replaceAll('+', ' ').replaceAll('&', ', '))),
        h('div', { class: 'fields' },
          select('Action', 'action', actions, order.action, (v) => set(update, { action: v })),
          order.action === 'retry' ? h('label', { class: 'field' }, h('span', null, 'From STAGE or STAGE/STEP (failed stage if empty)'),
            h('input', { name: 'stage', autocomplete: 'off', spellcheck: 'false', value: order.stage, onchange: (/** @type {any} */ e) => set(update, { stage: e.target.value.trim() }) })) : null,
          order.action === 'skip' ? h('label', { class: 'field' }, h('span', null, 'Step'),
            h('input', { name: 'step', required: true, autocomplete: 'off', spellcheck: 'false', value: order.step, onchange: (/** @type {any} */ e) => set(update, { step: e.target.value.trim() }) })) : null,
          select('Rate', 'rate', rates, order.rate, (v) => { order.rate = v; update(); }),
          h('label', { class: 'field whole' }, h('span', null, 'Reason, shown with the batch'),
            h('input', { name: 'reason', required: true, autocomplete: 'off', value: order.reason, oninput: (/** @type {any} */ e) => { order.reason = e.target.value; } }))),
        h('div', { class: 'preview', role: 'status' }, problem || (preview ? previewWords(preview) : 'Counting the operations…')),
      ];
    },
    action: 'Order the batch',
    danger: true,
    typed: () => (preview?.count ? String(preview.count) : ''),
    run: async () => {
      if (!preview?.count) throw new Error(problem || 'There is nothing to do.');
      const batch = await ctx.api.send('POST', '/batches', { ...request(), reason: order.reason, expected: preview.count });
      ctx.go(`/console/batches/${batch.id}`);
    },
  });
}

/** @param {any} preview */
function previewWords(preview) {
  const impossible = preview.sample.filter((/** @type {any} */ s) => s.problem);
  /** @type {Map<string, number>} */
  const again = new Map();
  for (const s of preview.sample) for (const p of s.steps ?? []) if (p.plan === 'again') again.set(p.step, (again.get(p.step) ?? 0) + 1);
  return [
    h('p', null, h('b', null, plural(preview.count, 'operation')), ' match. ',
      impossible.length ? `${impossible.length} of the newest ${preview.sample.length} would be skipped: ${impossible[0].problem}` : ''),
    again.size ? h('p', { class: 'small' }, `Of the newest ${preview.sample.length} run again: `, [...again].map(([step, n]) => `${step} (${n})`).join(', ')) : null,
    h('p', { class: 'small' }, 'Newest: ', preview.sample.map((/** @type {any} */ s, /** @type {number} */ i) => [i ? ', ' : '', operationLink(s.operation.id)])),
  ];
}

/** @param {any} b */
const progress = (b) => h('progress', { max: Math.max(1, b.total), value: b.total - b.waiting, 'aria-label': `${count(b.total - b.waiting)} of ${count(b.total)} operations` });

/**
 * The list of batches.
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function batches(ctx) {
  const { list, order, view } = listOf(ctx, '/console/batches', 3000, () => `/batches?page_size=${pageSize}`);

  /** @param {any} d */
  function rows(d) {
    const numbers = ['done', 'failed', 'skipped', 'total'];
    const sorted = order(d.data, d.totalCount === d.data.length, '-ordered', {
      state: (b) => b.state, action: actionWords, progress: (b) => (b.total ? 1 - b.waiting / b.total : 0), ordered: (b) => Date.parse(b.createdAt), reason: (b) => b.reason,
      ...Object.fromEntries(numbers.map((n) => [n, (/** @type {any} */ b) => b[n]])),
    });
    return table('Batches', [th('Batch'), sorted.th('State', 'state'), sorted.th('Action', 'action'), sorted.th('Progress', 'progress'),
      ...numbers.map((n) => sorted.th(n[0].toUpperCase() + n.slice(1), n, 'number')), sorted.th('Ordered', 'ordered'), sorted.th('Reason', 'reason')],
    h('tbody', null, sorted.rows.map((/** @type {any} */ b) => h('tr', { key: b.id },
      h('th', { scope: 'row' }, h('a', { href: `/console/batches/${b.id}`, class: 'mono', 'data-row': true, title: b.id }, short(b.id))),
      h('td', null, look(b.state)), h('td', { class: 'nowrap' }, actionWords(b)), h('td', null, progress(b)),
      ...numbers.map((n) => h('td', { class: 'number', 'data-label': n }, count(b[n]))),
      h('td', { class: 'nowrap' }, b.createdBy, ' ', h('span', { class: 'muted' }, time(b.createdAt, ctx.now()))),
      h('td', { class: 'wide' }, b.reason)))), 'cards');
  }

  return {
    title: () => 'Batches',
    ...view,
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Batches'), h('p', { class: 'muted small' }, list.data ? plural(list.data.totalCount, 'batch', 'batches') : '')),
      shown(list, (d) => (d.data.length ? rows(d)
        : h('div', { class: 'empty' }, h('p', null, h('b', null, 'There are no batches.'), ' Filter the operations, and act on all that match.')))),
      list.data?.totalCount > pageSize ? h('p', { class: 'muted small' }, `The newest ${pageSize} are shown; `, h('code', null, 'keb batches --page 2'), ' lists the others.') : null,
    ],
  };
}

/**
 * One batch with its progress and the results of its operations.
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function batch(ctx) {
  const id = ctx.parts[1];
  const path = `/batches/${encodeURIComponent(id)}`;
  let params = ctx.params;
  const page = () => Math.max(1, Number(params.get('page')) || 1);
  let waiting = -1;
  const one = new Resource(ctx.api, path, {
    every: 1000,
    changed: () => {
      // The results change with the progress only.
      if (one.data && one.data.waiting !== waiting) {
        waiting = one.data.waiting;
        members.refresh();
      }
      ctx.update();
    },
  });
  const members = new Resource(ctx.api, () => {
    const query = new URLSearchParams({ page_size: String(pageSize), page: String(page()) });
    if (params.get('state')) query.set('state', params.get('state') ?? '');
    return `${path}/operations?${query}`;
  }, { changed: ctx.update });
  one.refresh();
  const viewer = () => ctx.me.role !== 'operator';

  /** @param {Record<string, string>} change */
  function filter(change) {
    const next = new URLSearchParams(params);
    for (const [name, value] of Object.entries(change)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    ctx.go(`/console${path}` + (next.size ? `?${next}` : ''));
  }

  /** @param {string} verb */
  async function change(verb) {
    try {
      await ctx.api.send('POST', `${path}/${verb}`);
      ctx.announce(`${verb}: done`);
    } catch (e) {
      ctx.notice('bad', /** @type {Error} */ (e).message);
    }
    one.refresh();
    members.refresh();
  }

  function askCancel() {
    ask({
      title: 'Cancel this batch?',
      body: [h('p', null, `${plural(one.data.waiting, 'operation')} will stay as they are. What the batch has done stays.`)],
      action: 'Cancel the batch', danger: true,
      run: async () => {
        await ctx.api.send('POST', `${path}/cancel`);
        one.refresh();
        members.refresh();
      },
    });
  }

  /** @param {string} label @param {() => void} run @param {string} [kind] */
  const button = (label, run, kind = '') => h('button', {
    type: 'button', class: `button ${kind}`, disabled: viewer(), 'aria-describedby': viewer() ? 'viewer' : undefined, onclick: run,
  }, label);

  /** @param {any} b */
  function head(b) {
    const open = b.state === 'running' || b.state === 'paused';
    return [
      h('div', { class: 'title-row' },
        h('div', null, h('h1', null, 'Batch: ', actionWords(b)), h('p', null, look(b.state), ' ', h('code', { class: 'small' }, b.id))),
        open ? h('div', { class: 'actions' }, h('div', { class: 'buttons' },
          b.state === 'running' ? button('Pause', () => change('pause')) : button('Resume', () => change('resume'), 'primary'),
          button('Cancel…', askCancel, 'danger')), viewer() ? viewerNote('viewer') : null) : null),
      h('p', { role: 'status' }, progress(b), ` ${count(b.done)} done, ${count(b.failed)} failed, ${count(b.skipped)} skipped, ${count(b.waiting)} waiting of ${count(b.total)}`),
      h('p', null, b.reason),
      h('p', { class: 'muted small' }, `Ordered by ${b.createdBy} `, time(b.createdAt, ctx.now()), b.rate ? ` with at most ${b.rate} per second` : ' without a limit',
        '; operations with ', h('a', { href: `/console/operations?${b.filter}` }, decodeURIComponent(b.filter.replaceAll('+', ' ').replaceAll('&', ', '))), '.'),
    ];
  }

  return {
    title: () => (one.data ? `Batch: ${actionWords(one.data)}, ${one.data.state}` : 'Batch'),
    resume: () => {
      one.refresh();
      members.refresh();
    },
    close: () => {
      one.close();
      members.close();
    },
    query: (next) => {
      params = next;
      members.reset();
      members.refresh();
    },
    render: () => [
      shown(one, head),
      h('form', { class: 'filters', onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
        select('Result', 'state', [['', 'All results'], ...results], params.get('state') ?? '', (v) => filter({ state: v, page: '' }))),
      shown(members, (d) => (d.data.length ? [
        table('Operations of the batch, oldest first', [th('Operation'), th('Result'), th('Instance'), th('At'), th('Why')],
          h('tbody', null, d.data.map((/** @type {any} */ m) => h('tr', { key: m.operationId },
            h('th', { scope: 'row' }, operationLink(m.operationId)), h('td', null, look(m.state)),
            h('td', { class: 'mono', 'data-label': 'instance', title: m.instanceId }, short(m.instanceId)),
            h('td', { class: 'nowrap' }, m.at ? time(m.at, ctx.now()) : '–'), h('td', { class: 'wide' }, m.error ?? '')))), 'cards'),
        d.totalCount > pageSize ? h('nav', { class: 'pager', 'aria-label': 'Pages' },
          h('button', { type: 'button', class: 'button', disabled: page() === 1, onclick: () => filter({ page: page() > 2 ? String(page() - 1) : '' }) }, 'Previous'),
          h('button', { type: 'button', class: 'button', disabled: page() * pageSize >= d.totalCount, onclick: () => filter({ page: String(page() + 1) }) }, 'Next')) : null,
      ] : h('div', { class: 'empty' }, h('p', null, h('b', null, 'No operation of the batch has this result.'))))),
    ],
  };
}
