// @ts-check
/**
 * Describes elements and brings the document to what is described, by Preact: only what differs is changed, so that focus,
 * selection and scrolling stay where they are while data changes. Text only ever becomes text.
 *
 * @typedef {import('./vendor/preact.js').VNode} VNode
 * @typedef {VNode | string | number | null | undefined | boolean | Child[]} Child
 */
import { Fragment, h, render as draw } from './vendor/preact.js';

export { h };

/** Where something was rendered before. @type {WeakSet<Element>} */
const known = new WeakSet();

/**
 * Makes the children of an element those that are described.
 * @param {Element} root
 * @param {...Child} children
 */
export function render(root, ...children) {
  if (!known.has(root)) root.replaceChildren();
  known.add(root);
  draw(h(Fragment, null, ...children), root);
}
