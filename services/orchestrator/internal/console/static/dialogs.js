// @ts-check
/** Dialogs for confirmations and for the help. */

import { h, render } from './vdom.js';

const root = /** @type {HTMLElement} */ (document.getElementById('dialogs'));

/**
 * Shows a dialog until it is closed, and then restores the focus.
 * @param {(close: () => void, update: () => void) => import('./vdom.js').VNode[]} content
 * @param {string} label the id of the heading
 */
function open(content, label) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const home = /** @type {HTMLElement | null | undefined} */ (before?.closest('[data-home]'));
  let closed = false;
  const close = () => {
    closed = true;
    const dialog = root.querySelector('dialog');
    dialog?.close();
    render(root);
    // The element may be gone, such as a button for an action that is no longer possible.
    (before?.isConnected ? before : home)?.focus?.();
  };
  const update = () => !closed && render(root, h('dialog', {
    'aria-labelledby': label,
    oncancel: (/** @type {Event} */ e) => {
      e.preventDefault();
      close();
    },
  }, content(close, update)));
  update();
  const dialog = /** @type {HTMLDialogElement} */ (root.querySelector('dialog'));
  dialog.showModal();
  dialog.querySelector(/** @type {'input'} */ ('[data-first]'))?.focus();
}

export const isOpen = () => root.querySelector('dialog[open]') !== null;

/**
 * Asks for a confirmation. A body that changes is a function, which is given a function that draws it again. If the action fails, the dialog stays open and shows the error.
 * @param {{title: string, body: import('./vdom.js').Child | ((update: () => void) => import('./vdom.js').Child), action: string, danger?: boolean,
 *   typed?: string | (() => string), run: () => Promise<void>}} question the user must type `typed` first, unless it is empty
 */
export function ask(question) {
  let busy = false;
  let text = '';
  let refusal = '';
  const typed = () => (typeof question.typed === 'function' ? question.typed() : question.typed);
  open((close, update) => [
    h('form', {
      method: 'dialog',
      onsubmit: async (/** @type {Event} */ e) => {
        e.preventDefault();
        if (busy) return;
        if (typed() && text.trim() !== typed()) {
          refusal = `Type ${typed()} to continue.`;
          update();
          return;
        }
        busy = true;
        refusal = '';
        update();
        try {
          await question.run();
        } catch (error) {
          busy = false;
          refusal = /** @type {Error} */ (error).message;
          update();
          return;
        }
        close();
      },
    },
      h('h2', { id: 'dialog-title' }, question.title),
      h('div', { class: 'dialog-body' }, typeof question.body === 'function' ? question.body(update) : question.body),
      typed() && h('label', { class: 'field' },
        h('span', null, 'Type ', h('code', null, typed()), ' to continue'),
        h('input', {
          name: 'typed', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off', value: text, 'data-first': true,
          'aria-describedby': 'dialog-refusal',
          oninput: (/** @type {any} */ e) => {
            text = e.target.value;
            update();
          },
        })),
      h('p', { id: 'dialog-refusal', class: 'refusal', role: 'alert' }, refusal),
      h('div', { class: 'buttons' },
        h('button', { type: 'button', class: 'button', onclick: close, 'data-first': !typed() }, 'Close'),
        h('button', {
          type: 'submit', class: question.danger ? 'button danger' : 'button primary',
          disabled: busy || Boolean(typed() && text.trim() !== typed()),
        }, busy ? 'Working…' : question.action))),
  ], 'dialog-title');
}

/**
 * Shows the help.
 * @param {[keys: string[], what: string][]} shortcuts
 * @param {{enabled: () => boolean, toggle: () => void}} setting
 */
export function help(shortcuts, setting) {
  open((close, update) => [
    h('h2', { id: 'dialog-title' }, 'Keyboard'),
    h('table', { class: 'keys' }, h('caption', { class: 'visually-hidden' }, 'Shortcuts'),
      h('thead', { class: 'visually-hidden' }, h('tr', null, h('th', { scope: 'col' }, 'Keys'), h('th', { scope: 'col' }, 'Action'))),
      h('tbody', null, shortcuts.map(([keys, what]) => h('tr', null,
        h('td', null, keys.map((key, i) => [i ? ' ' : '', h('kbd', null, key)])), h('td', null, what))))),
    h('label', { class: 'check' }, h('input', {
      type: 'checkbox', checked: setting.enabled(),
      onchange: () => {
        setting.toggle();
        update();
      },
    }), ' Enable single-key shortcuts'),
    h('p', { class: 'muted' }, 'Tab and Shift+Tab reach everything; Enter opens a link, Space presses a button.'),
    h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'button primary', onclick: close, 'data-first': true }, 'Close')),
  ], 'dialog-title');
}
