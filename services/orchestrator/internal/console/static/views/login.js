// @ts-check
/** The login with a token or at the identity provider. */

import { Resource } from '../api.js';
import { problem } from '../parts.js';
import { h } from '../vdom.js';

/**
 * @param {import('../parts.js').Context} ctx
 * @param {() => void} done
 * @param {string} refusal why the user has no access
 * @returns {import('../parts.js').View}
 */
export function login(ctx, done, refusal) {
  let token = '';
  let busy = false;
  const methods = new Resource(ctx.api, '/console/login/methods', { changed: ctx.update });
  methods.refresh();

  /** @param {Event} e */
  async function submit(e) {
    e.preventDefault();
    if (busy) return;
    if (!token.trim()) {
      refusal = 'Paste a token first.';
      ctx.update();
      return;
    }
    busy = true;
    refusal = '';
    ctx.update();
    try {
      await ctx.api.send('POST', '/console/login', { token });
    } catch (error) {
      busy = false;
      refusal = /** @type {Error} */ (error).message;
      ctx.update();
      return;
    }
    // Remove the token from the page.
    token = '';
    done();
  }

  return {
    title: () => 'Log in',
    resume: () => methods.refresh(),
    close: () => methods.close(),
    render: () => {
      const offered = methods.data?.methods ?? [];
      return h('div', { class: 'login' },
        h('h1', null, 'Log in'),
        h('p', { class: 'muted' }, 'The console shows the operations, and lets operators act on them.'),
        h('p', { id: 'login-refusal', class: 'refusal', role: 'alert' }, refusal),
        methods.error && !methods.data ? problem(methods.error, () => methods.refresh()) : null,
        offered.includes('oidc') ? h('a', {
          class: 'button primary block', 'data-leave': true, href: `/console/login/oidc?next=${encodeURIComponent(location.pathname + location.search)}`,
        }, 'Log in with the identity provider') : null,
        offered.includes('oidc') && offered.includes('token') ? h('p', { class: 'or' }, 'or') : null,
        offered.includes('token') ? h('form', { onsubmit: submit },
          h('label', { class: 'field' }, h('span', null, 'Token'),
            h('input', {
              type: 'password', name: 'token', autocomplete: 'current-password', value: token, 'aria-describedby': 'login-refusal',
              oninput: (/** @type {any} */ e) => {
                token = e.target.value;
              },
            })),
          h('button', { type: 'submit', class: 'button block', disabled: busy }, busy ? 'Checking…' : 'Log in with the token')) : null);
    },
  };
}
