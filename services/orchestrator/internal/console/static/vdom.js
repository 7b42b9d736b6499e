// @ts-check
/**
 * Renders elements with Preact, which changes only what differs, so that focus, selection and scroll position are kept while
 * data changes. Strings are rendered as text, never as HTML.
 *
 * @typedef {import('./vendor/preact.js').VNode} VNode
 * @typedef {VNode | string | number | null | undefined | boolean | Child[]} Child
 */
import { Fragment, h, render as draw } from './vendor/preact.js';

export { h };

/** The elements that were rendered into before. @type {WeakSet<Element>} */
const known = new WeakSet();

/**
 * Replaces the children of an element.
 * @param {Element} root
 * @param {...Child} children
 */
export function render(root, ...children) {
  if (!known.has(root)) root.replaceChildren();
  known.add(root);
  draw(h(Fragment, null, ...children), root);
}
