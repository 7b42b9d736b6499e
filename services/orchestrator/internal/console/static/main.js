// @ts-check
/** The frame of the console: navigation, user, connection, shortcuts. The views are in views/. */

import { API, Connection } from './api.js';
import { help, isOpen, onLateError } from './dialogs.js';
import { clock, isLocal, switchZone, zone } from './format.js';
import { problem } from './parts.js';
import { remember, remembered } from './settings.js';
import { h, render } from './vdom.js';
import { actions } from './views/actions.js';
import { batch, batches } from './views/batches.js';
import { deadLetter, deadLetters } from './views/deadletters.js';
import { find } from './views/find.js';
import { holds } from './views/holds.js';
import { instance } from './views/instance.js';
import { login } from './views/login.js';
import { operation } from './views/operation.js';
import { operations } from './views/operations.js';
import { orchestration } from './views/orchestration.js';
import { orchestrations } from './views/orchestrations.js';
import { overview } from './views/overview.js';
import { processes } from './views/processes.js';
import { webhooks } from './views/webhooks.js';
import { workers } from './views/workers.js';

/** @typedef {import('./parts.js').View} View */

const base = '/console/';
const top = /** @type {HTMLElement} */ (document.getElementById('top'));
const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const banner = /** @type {HTMLElement} */ (document.getElementById('banner'));
const announcer = /** @type {HTMLElement} */ (document.getElementById('announcer'));

/** The views with their place in the navigation. @type {[path: string, name: string, key: string][]} */
const places = [
  ['', 'Overview', 'h'], ['operations', 'Operations', 'o'], ['workers', 'Workers', 'w'], ['processes', 'Processes', 'p'],
  ['orchestrations', 'Orchestrations', 'r'], ['batches', 'Batches', 'b'], ['holds', 'Holds', 'd'], ['webhooks', 'Webhooks', 'k'], ['actions', 'Actions', 'a'],
];

/** @type {{name: string, role: string, authentication: string} | null} */
let me = null;
/** Why the user has no access. */
let refusal = '';
/** @type {View | null} */
let view = null;
/** The part of the URL that selects the view. */
let shownPath = '';
/** @type {{kind: 'ok' | 'bad', text: string} | null} */
let notice = null;
let pending = false;

const connection = new Connection(update, () => {
  if (me === null) start();
  else view?.resume();
});
const api = new API(connection, () => {
  if (me === null) return;
  me = null;
  show();
});

/** Renders once with the next frame, also after several calls. */
function update() {
  if (pending) return;
  pending = true;
  // A hidden page gets no animation frames and needs no painting.
  requestAnimationFrame(() => {
    pending = false;
    paint();
  });
}

/** When the page was last rendered, in epoch milliseconds. */
let painted = 0;

function paint() {
  painted = Date.now();
  const place = location.pathname.slice(base.length).split('/')[0];
  render(banner, connection.lost && h('div', { class: 'lost' },
    h('span', null, `The orchestrator has not responded since ${clock(connection.since)}. `,
      connection.nextTry > Date.now() ? `Trying again in ${Math.ceil((connection.nextTry - Date.now()) / 1000)} s. ` : 'Trying… ',
      'Operations continue without this page.'),
    h('button', { type: 'button', class: 'button small', onclick: () => connection.probe() }, 'Try now')));
  render(top,
    h('a', { class: 'brand', href: base }, mark(), h('span', null, 'KEB ', h('span', { class: 'brand-more' }, 'console'))),
    me && h('form', { class: 'find', role: 'search', 'aria-label': 'Find', onsubmit: findText },
      h('input', {
        type: 'search', name: 'find', 'aria-label': 'Find a runtime, a shoot, an ID or an account', placeholder: 'Find…  /', 'aria-keyshortcuts': '/', autocomplete: 'off',
        spellcheck: 'false', maxlength: 100, title: 'Name of a runtime or a shoot, or the beginning of the ID of an operation, an instance, a runtime, a subaccount or a global account',
      })),
    h('nav', { 'aria-label': 'Views' }, me && h('ul', null, places.map(([path, name]) => h('li', null,
      h('a', { href: base + path, 'aria-current': place === path ? 'page' : undefined }, icon(path), h('span', null, name)))))),
    h('div', { class: 'tools' },
      me && h('span', { class: 'live', title: liveTitle() }, h('span', { class: `dot ${liveClass()}`, 'aria-hidden': 'true' }), liveText()),
      h('button', { type: 'button', class: 'button plain', onclick: toggleZone, title: `Times are in ${isLocal() ? 'the zone of this browser' : 'UTC'}; switch (z)` }, zone()),
      h('button', { type: 'button', class: 'button plain', onclick: toggleTheme, title: 'Theme (t)' }, themeName()),
      me && h('button', { type: 'button', class: 'button plain', onclick: showHelp, title: 'Keyboard shortcuts (?)' }, 'Keys'),
      me && h('span', { class: 'who' }, h('b', null, me.name), ` ${me.role}`),
      me && me.authentication !== 'none' && h('button', { type: 'button', class: 'button plain', onclick: logout }, 'Log out')));
  const focused = document.activeElement;
  const home = /** @type {HTMLElement | null | undefined} */ (focused?.closest('[data-home]'));
  render(main,
    notice && h('div', { key: 'notice', class: `notice ${notice.kind}`, role: 'status' }, h('span', null, notice.text),
      h('button', { type: 'button', class: 'button small plain', onclick: dismiss, 'aria-label': 'Dismiss this message' }, 'Dismiss')),
    view ? h('div', { key: shownPath, class: 'view' }, content(view)) : h('p', { key: 'loading', class: 'loading' }, 'Loading…'));
  // A button that is gone leaves the focus to its surroundings.
  if (focused && !focused.isConnected && home?.isConnected) home.focus({ preventScroll: true });
  main.classList.toggle('offline', connection.lost);
  document.title = `${view ? view.title() + ' · ' : ''}KEB console`;
  restorePosition();
}

/** The position to scroll to when the view is long enough, after the user went back. @type {{y: number, row?: string, until: number} | null} */
let wanted = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let scrolled;

/** Adds to the state of the current entry of the history. @param {Record<string, unknown>} more */
const keep = (more) => history.replaceState({ ...history.state, ...more }, '');

function restorePosition() {
  if (!wanted) return;
  const { y, row, until } = wanted;
  const link = row && /** @type {HTMLElement[]} */ ([...main.querySelectorAll('[data-row]')]).find((a) => a.getAttribute('href') === row);
  if (Date.now() > until) wanted = null;
  else if (document.documentElement.scrollHeight - innerHeight >= y && (link || !row)) {
    wanted = null;
    scrollTo(0, y);
    if (link) link.focus({ preventScroll: true });
  }
}

history.scrollRestoration = 'manual';
// A new page shows the newest data.
history.replaceState(null, '');
addEventListener('scroll', () => {
  clearTimeout(scrolled);
  if (!wanted) scrolled = setTimeout(() => keep({ y: Math.round(scrollY) }), 150);
}, { passive: true });
// The user scrolls: no other position is wanted.
for (const kind of ['wheel', 'touchmove', 'keydown']) addEventListener(kind, () => { wanted = null; }, { passive: true });

/** @param {Event} e */
function findText(e) {
  e.preventDefault();
  const input = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (e.target).elements.namedItem('find'));
  const text = input.value.trim();
  if (!text) return;
  input.value = '';
  go(`${base}find?q=${encodeURIComponent(text)}`);
}

function toggleZone() {
  switchZone();
  announce(`Times are in ${zone()}`);
  update();
}

/** Renders a view. If the view cannot read the answer of the API, the rest of the page still works. @param {View} v */
function content(v) {
  try {
    return v.render();
  } catch (e) {
    console.error(e);
    return [h('h1', null, v.title()), problem(new Error('The console cannot read the answer of the API; reload the page.'), () => location.reload())];
  }
}

onLateError((text) => {
  notice = { kind: 'bad', text };
  update();
});

function dismiss() {
  notice = null;
  update();
}

function liveText() {
  if (connection.lost) return 'Offline';
  const live = view?.live?.();
  return live === undefined ? 'Refreshed' : live ? 'Live' : 'Connecting';
}

const liveClass = () => (connection.lost ? 'bad' : view?.live?.() === false ? 'wait' : 'ok');

function liveTitle() {
  if (connection.lost) return 'The orchestrator does not respond';
  const live = view?.live?.();
  return live === undefined ? 'This view refreshes every few seconds' : live ? 'Live updates are on' : 'Live updates are interrupted; trying again';
}

/** @param {string} place */
function icon(place) {
  const d = {
    '': 'M2.500 9.500h4v4h-4zM9.500 9.500h4v4h-4zM2.500 2.500h11v4h-11z', operations: 'M2.500 4h11M2.500 8h11M2.500 12h11',
    workers: 'M8 5.200a2.800 2.800 0 1 0 0 5.600a2.800 2.800 0 1 0 0-5.600M8 1.800v2M8 12.200v2M1.800 8h2M12.200 8h2M3.600 3.600l1.400 1.400M11 11l1.400 1.400M12.400 3.600L11 5M5 11l-1.400 1.400',
    processes: 'M2 3h5v3.500H2zM9 9.500h5V13H9zM4.500 6.500v4.700H9', batches: 'M2.500 4h8M2.500 8h8M2.500 12h8M13.500 3v10', holds: 'M4 2.500h3v11H4zM9 2.500h3v11H9z', webhooks: 'M2.500 8h7.500M7 5l3 3-3 3M13.500 3v10', orchestrations: 'M2.500 8h11M8 2.500v11M4 4l8 8M12 4l-8 8', actions: 'M3 13.500V3.200L8 2l5 1.200v6.300L8 13z',
  }[place];
  return h('svg', { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true' }, h('path', { d }));
}

function mark() {
  return h('svg', { class: 'mark', viewBox: '0 0 32 32', 'aria-hidden': 'true' }, h('rect', { width: 32, height: 32, rx: 7 }),
    h('path', { d: 'M8 10h9M8 16h16M8 22h6' }), h('circle', { cx: 22, cy: 10, r: 2.6 }), h('circle', { cx: 19, cy: 22, r: 2.6 }));
}

/** @type {Record<string, (ctx: import('./parts.js').Context) => View>} */
const views = { '': overview, operations, workers, processes, orchestrations, batches, holds, webhooks, actions, find, 'dead-letters': deadLetters };

/** Shows the view of the URL. */
function show(focus = false) {
  const [place, id, ...rest] = location.pathname.slice(base.length).split('/');
  const params = new URLSearchParams(location.search);
  const path = me === null ? 'login' : location.pathname;
  if (view && path === shownPath) {
    view.query?.(params, history.state?.kept ?? {});
    update();
    return;
  }
  view?.close();
  notice = null;
  shownPath = path;
  /** @type {import('./parts.js').Context} */
  const ctx = {
    api, parts: [place, id && decodeURIComponent(id), ...rest].filter(Boolean), params, me: me ?? { name: '', role: '', authentication: '' },
    update, go, announce, now: Date.now, kept: history.state?.kept ?? {}, keep: (kept) => keep({ kept: { ...history.state?.kept, ...kept } }),
    notice: (kind, text) => {
      notice = { kind, text };
      update();
    },
  };
  let make = views[place];
  if (id && place === 'operations') make = operation;
  else if (id && place === 'orchestrations') make = orchestration;
  else if (id && place === 'batches') make = batch;
  else if (id && place === 'dead-letters') make = deadLetter;
  else if (id && place === 'instances') make = instance;
  else if (id && place !== 'processes') make = notFound;
  if (me === null) view = login(ctx, start, refusal);
  else view = (make ?? notFound)(ctx);
  paint();
  if (focus) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
    announce(view.title());
  }
}

/** @returns {View} */
function notFound() {
  return {
    title: () => 'Not found', close() {}, resume() {},
    render: () => [h('h1', null, 'Not found'), h('p', null, 'The console has no such view. ', h('a', { href: base }, 'Go to the overview'), '.')],
  };
}

/**
 * @param {string} url
 * @param {boolean} [replace] keeps the history as it is
 */
function go(url, replace = false) {
  wanted = null;
  clearTimeout(scrolled);
  if (replace) history.replaceState(null, '', url);
  else {
    const row = document.activeElement?.matches('[data-row]') ? document.activeElement.getAttribute('href') : undefined;
    keep({ y: Math.round(scrollY), row });
    history.pushState(null, '', url);
  }
  const moved = location.pathname !== shownPath;
  show(moved);
}

/** Announces a text to screen readers. @param {string} text */
function announce(text) {
  announcer.textContent = '';
  requestAnimationFrame(() => {
    announcer.textContent = text;
  });
}

const themes = ['', 'light', 'dark'];

function themeName() {
  return { '': 'Auto', light: 'Light', dark: 'Dark' }[document.documentElement.dataset.theme ?? ''] ?? 'Auto';
}

function toggleTheme() {
  const theme = themes[(themes.indexOf(document.documentElement.dataset.theme ?? '') + 1) % themes.length];
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  remember('keb.theme', theme);
  announce(`Theme: ${themeName()}`);
  update();
}

let keysOn = remembered('keb.keys') !== 'off';

function showHelp() {
  help([
    ...places.map(([, name, key]) => /** @type {[string[], string]} */ ([['g', key], `go to ${name}`])),
    [['/'], 'find a runtime or an operation'], [['f'], 'filter the list'], [['j'], 'next row'], [['k'], 'previous row'], [['Enter'], 'open the row'],
    [['r'], 'refresh'], [['t'], 'theme'], [['z'], 'times in UTC or in the zone of this browser'], [['?'], 'this help'], [['Esc'], 'close a dialog'],
  ], {
    enabled: () => keysOn,
    toggle: () => {
      keysOn = !keysOn;
      remember('keb.keys', keysOn ? '' : 'off');
    },
  });
}

/** Whether g was pressed and the next key selects a view. */
let going = false;

document.addEventListener('keydown', (e) => {
  const at = /** @type {HTMLElement} */ (e.target);
  if (!keysOn || e.ctrlKey || e.metaKey || e.altKey || me === null || isOpen() || at.closest('input, select, textarea, [contenteditable]')) return;
  if (e.key === 'Shift') return;
  if (going) {
    going = false;
    const place = places.find(([, , key]) => key === e.key);
    if (place) {
      e.preventDefault();
      go(base + place[0]);
      return;
    }
  }
  /** @type {Record<string, () => void>} */
  const keys = {
    g: () => {
      going = true;
    },
    '?': showHelp,
    t: toggleTheme,
    r: () => {
      view?.resume();
      announce('Refreshing');
    },
    z: toggleZone,
    '/': () => /** @type {HTMLElement | null} */ (top.querySelector('input[type="search"]'))?.focus(),
    f: () => {
      const field = () => /** @type {HTMLElement | null} */ (main.querySelector('.filters input[type="search"], .filters select'));
      if (!field()) go(`${base}operations`);
      field()?.focus();
    },
    j: () => moveRow(1),
    k: () => moveRow(-1),
    ...view?.keys,
  };
  const act = keys[e.key];
  if (!act) return;
  e.preventDefault();
  act();
});

/** Returns the first link or button of each row of a list, or the row itself. @returns {HTMLElement[]} */
function rows() {
  const marked = /** @type {HTMLElement[]} */ ([...main.querySelectorAll('[data-row]')]);
  if (marked.length) return marked;
  return /** @type {HTMLElement[]} */ ([...main.querySelectorAll('tbody tr, .group, .node')]).map((row) => {
    const link = /** @type {HTMLElement | null} */ (row.querySelector('a, button, summary'));
    if (link) return link;
    row.tabIndex = -1;
    return row;
  });
}

/** Moves the focus to the next row of a list. @param {number} by */
function moveRow(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  all[Math.max(0, Math.min(all.length - 1, at + (at < 0 && by < 0 ? all.length : by)))].focus();
}

document.addEventListener('click', (e) => {
  const link = /** @type {Element} */ (e.target).closest('a');
  if (!link || e.defaultPrevented || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey || link.target) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(base) || link.hasAttribute('data-leave')) return;
  e.preventDefault();
  if (url.hash) {
    document.getElementById(url.hash.slice(1))?.focus();
    return;
  }
  go(url.pathname + url.search);
});

addEventListener('popstate', () => {
  clearTimeout(scrolled);
  wanted = { y: history.state?.y ?? 0, row: history.state?.row, until: Date.now() + 5000 };
  show(location.pathname !== shownPath);
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) return;
  if (connection.lost) connection.probe();
  else view?.resume();
  update();
});

// Relative times must be updated, unless a change has just updated them.
setInterval(() => {
  if (!document.hidden && !isOpen() && Date.now() - painted > 800) update();
}, 1000);

async function logout() {
  try {
    await api.send('POST', `${base}logout`);
  } catch (e) {
    notice = { kind: 'bad', text: `Not logged out: ${/** @type {Error} */ (e).message}` };
    update();
    return;
  }
  me = null;
  show();
}

/** Loads the user, then shows the view of the URL. */
async function start() {
  refusal = '';
  try {
    me = await api.get('/me');
  } catch (e) {
    const { status, message } = /** @type {any} */ (e);
    if (status === 403) refusal = message;
    else if (status !== 401) {
      // Without a response, the page tries again automatically. Any other error is shown to the user.
      if (status) notice = { kind: 'bad', text: message };
      paint();
      return;
    }
    me = null;
  }
  shownPath = '';
  show();
}

start();
