// @ts-check
/** Components that several views share. */

import { Resource, Unreachable } from './api.js';
import { clock } from './format.js';
import { remember, remembered } from './settings.js';
import { h } from './vdom.js';

/**
 * @typedef {import('./vdom.js').Child} Child
 * @typedef {{
 *   api: import('./api.js').API, parts: string[], params: URLSearchParams, me: {name: string, role: string, authentication: string},
 *   update: () => void, go: (url: string, replace?: boolean) => void, announce: (text: string) => void,
 *   notice: (kind: 'ok' | 'bad', text: string) => void, now: () => number, kept: Kept, keep: (kept: Kept) => void
 * }} Context
 * @typedef {Record<string, any>} Kept what a view keeps in the history of the browser, for the way back
 * @typedef {{title: () => string, render: () => Child, resume: () => void, close: () => void, query?: (params: URLSearchParams, kept: Kept) => void,
 *   live?: () => boolean | undefined, keys?: Record<string, () => void>}} View
 */

/**
 * Renders a resource: its content, and its error.
 * @param {import('./api.js').Resource} resource
 * @param {(data: any) => Child} content
 * @returns {Child}
 */
export function shown(resource, content) {
  const { data, error } = resource;
  if (data === null && error === null) return h('p', { class: 'loading' }, 'Loading…');
  if (data === null) return problem(/** @type {Error} */ (error), () => resource.refresh());
  // The banner already shows that the API does not respond.
  return [
    error && !(error instanceof Unreachable)
      ? h('p', { class: 'note bad', role: 'status' }, `Not up to date: ${error.message} The data is from ${clock(resource.at)}.`) : null,
    content(data),
  ];
}

/**
 * @param {Error} error
 * @param {() => void} again
 */
export function problem(error, again) {
  return h('div', { class: 'empty', role: 'alert' }, h('p', null, h('b', null, 'This view cannot be shown. '), error.message),
    h('button', { class: 'button', type: 'button', onclick: again }, 'Try again'));
}

/**
 * Renders a table that scrolls horizontally on narrow screens.
 * @param {string} caption
 * @param {Child[]} head
 * @param {Child} body
 * @param {string} [className]
 */
export function table(caption, head, body, className = '') {
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption },
    h('table', { class: className }, h('caption', { class: 'visually-hidden' }, caption), h('thead', null, h('tr', null, head)), body));
}

/**
 * @param {Child} label
 * @param {string} [className]
 */
export const th = (label, className = '') => h('th', { scope: 'col', class: className }, label);

/**
 * Renders the header of a column that sorts.
 * @param {Child} label
 * @param {'ascending' | 'descending' | ''} direction of the current order, empty if it is by another column
 * @param {() => void} sort
 * @param {string} [className]
 */
export const sorter = (label, direction, sort, className = '') => h('th', { scope: 'col', class: className, 'aria-sort': direction || undefined },
  h('button', { type: 'button', class: 'sort', onclick: sort }, label, h('span', { 'aria-hidden': 'true' }, { ascending: ' ▲', descending: ' ▼', '': ' ' }[direction])));

/**
 * Returns a list whose filters, order and page are in the URL.
 * @param {Context} ctx
 * @param {string} base the path of the view
 * @param {number} every the time between two refreshes, in milliseconds
 * @param {(get: (name: string) => string) => string} path the request for the values of the URL
 * @param {() => void} [changed]
 */
export function listOf(ctx, base, every, path, changed = ctx.update) {
  let { params } = ctx;
  const get = (/** @type {string} */ name) => params.get(name) ?? '';
  const list = new Resource(ctx.api, () => path(get), { every, changed });
  list.refresh();
  /** @param {Record<string, string>} change @param {boolean} [replace] */
  function filter(change, replace) {
    const next = new URLSearchParams(params);
    for (const [name, value] of Object.entries(change)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    ctx.go(base + (next.size ? `?${next}` : ''), replace);
  }
  const page = () => Math.max(1, Number(get('page')) || 1);
  return {
    list, get, filter, page,
    /** The parts of a view. */
    view: {
      resume: () => list.refresh(),
      close: () => list.close(),
      query: (/** @type {URLSearchParams} */ next) => {
        const before = path(get);
        params = next;
        if (path(get) === before) return;
        list.reset();
        list.refresh();
      },
    },
    /**
     * Renders the buttons of the pages.
     * @param {number} total
     * @param {number} size
     */
    pages: (total, size) => (total <= size ? null : h('nav', { class: 'pager', 'aria-label': 'Pages' },
      h('button', { type: 'button', class: 'button', disabled: page() === 1, onclick: () => filter({ page: page() > 2 ? String(page() - 1) : '' }) }, 'Newer'),
      h('button', { type: 'button', class: 'button', disabled: page() * size >= total, onclick: () => filter({ page: String(page() + 1) }) }, 'Older'))),
    /**
     * Returns the order of rows: headers that sort them if all rows are on the page, and the sorted rows.
     * @param {any[]} rows
     * @param {boolean} whole whether all rows are on the page
     * @param {string} first the first order: the name of a column, after "-" if it is descending
     * @param {Record<string, (row: any) => string | number>} columns the values to sort by; numbers are descending at first
     */
    order: (rows, whole, first, columns) => {
      const wanted = get('sort').replace('-', '') in columns ? get('sort') : first;
      const down = wanted.startsWith('-');
      const column = wanted.replace('-', '');
      const value = columns[column];
      return {
        rows: whole ? [...rows].sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b))) : rows,
        th: (/** @type {string} */ label, /** @type {string} */ name, className = '') => {
          if (!whole || !rows.length) return th(label, className);
          const next = column === name ? `${down ? '' : '-'}${name}` : `${typeof columns[name](rows[0]) === 'number' ? '-' : ''}${name}`;
          return sorter(label, column !== name ? '' : down ? 'descending' : 'ascending', () => filter({ sort: next === first ? '' : next }), className);
        },
      };
    },
  };
}

/** @param {string | number} a @param {string | number} b */
const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b)));

/**
 * Renders a filter with a list of options.
 * @param {string} label
 * @param {string} name
 * @param {[value: string, text: string][]} options
 * @param {string} value
 * @param {(value: string) => void} change
 */
export function select(label, name, options, value, change) {
  // A value outside the list comes from a shared URL and must be kept.
  if (value && !options.some(([v]) => v === value)) options = [...options, [value, value]];
  return h('label', { class: 'field' }, h('span', null, label),
    h('select', { name, value, onchange: (/** @type {any} */ e) => change(e.target.value) },
      options.map(([v, text]) => h('option', { value: v, selected: v === value }, text))));
}

/**
 * Renders a button that copies a text.
 * @param {string | undefined} text
 * @param {string} what the name of the text
 * @param {(text: string) => void} announce
 */
export function copy(text, what, announce) {
  return text ? h('button', {
    type: 'button', class: 'copy', title: `Copy ${what}`, 'aria-label': `Copy ${what}`,
    onclick: async (/** @type {any} */ e) => {
      const button = /** @type {HTMLElement} */ (e.currentTarget);
      announce(await copied(text) ? `Copied ${what}` : `Cannot copy ${what}`);
      button.classList.add('done');
      setTimeout(() => button.classList.remove('done'), 1200);
    },
  }, h('svg', { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true' }, h('path', { d: 'M5.5 5.500h7v8h-7zM10.500 5.500v-3h-7v8h2' }), h('path', { class: 'tick-mark', d: 'M6.800 9.500l1.600 1.700 2.800-3.400' }))) : null;
}

/**
 * Renders a text in lines, with a button that copies it.
 * @param {string} text
 * @param {string} what the name of the text
 * @param {(text: string) => void} announce
 */
export const code = (text, what, announce) => h('div', { class: 'code' }, copy(text, what, announce), h('pre', { tabindex: 0, 'aria-label': what }, text));

/** Copies a text, also without a secure connection. @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    area.value = text;
    area.className = 'visually-hidden';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    before?.focus({ preventScroll: true });
    return done;
  }
}

/** The limits of the first of two panes, in percent of both. */
const [narrowest, widest] = [40, 80];

/**
 * Returns a function that renders two panes with a separator between them, which the pointer and the arrow keys move. On narrow screens the panes are stacked.
 * @param {string} setting where the browser keeps the width
 * @param {string} label the name of the separator
 * @param {number} usual the width of the first pane in percent of both, until the user changes it
 * @param {() => void} update
 * @returns {(first: Child, second: Child) => Child}
 */
export function panes(setting, label, usual, update) {
  const within = (/** @type {number} */ share) => Math.round(Math.min(widest, Math.max(narrowest, share)) * 10) / 10;
  let share = within(Number(remembered(setting)) || usual);
  let dragged = false;
  /** @param {number} to @param {boolean} [keep] */
  function move(to, keep = true) {
    share = within(to);
    if (keep) remember(setting, share === usual ? '' : String(share));
    update();
  }
  const drop = () => {
    if (!dragged) return;
    dragged = false;
    move(share);
  };
  return (first, second) => h('div', { class: 'panes', style: { gridTemplateColumns: `minmax(0, ${share}%) 1rem minmax(0, 1fr)` } },
    h('div', { class: 'pane', id: setting }, first),
    h('div', {
      class: `separator ${dragged ? 'dragged' : ''}`, role: 'separator', tabindex: 0, title: 'Drag, or use the arrow keys; double-click resets the width', 'aria-label': label, 'aria-orientation': 'vertical', 'aria-controls': setting,
      'aria-valuenow': Math.round(share), 'aria-valuemin': narrowest, 'aria-valuemax': widest, 'aria-valuetext': `${Math.round(share)} percent`,
      onpointerdown: (/** @type {any} */ e) => {
        if (e.button !== 0) return;
        e.currentTarget.setPointerCapture(e.pointerId);
        dragged = true;
        update();
      },
      onpointermove: (/** @type {any} */ e) => {
        if (!dragged) return;
        const box = e.currentTarget.parentElement.getBoundingClientRect();
        move((e.clientX - box.left) / box.width * 100, false);
      },
      onpointerup: drop, onpointercancel: drop,
      ondblclick: () => move(usual),
      onkeydown: (/** @type {any} */ e) => {
        const to = { ArrowLeft: share - 2, ArrowRight: share + 2, Home: narrowest, End: widest }[/** @type {string} */ (e.key)];
        if (to === undefined || e.ctrlKey || e.metaKey || e.altKey) return;
        e.preventDefault();
        move(to);
      },
    }),
    h('div', { class: 'pane' }, second));
}

/** Explains to a viewer why buttons are disabled. */
export const viewerNote = (/** @type {string} */ id) =>
  h('p', { id, class: 'muted small' }, 'You are a viewer: you can see everything, but only an operator can act.');
