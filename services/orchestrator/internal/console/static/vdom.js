// @ts-check
/**
 * Renders descriptions of elements into the document and changes only what differs, so that focus, selection and
 * scrolling stay where they are while data changes. Text only ever becomes text: there is no way to give HTML.
 *
 * @typedef {{tag: string, props: Record<string, any>, children: (VNode | string)[]}} VNode
 * @typedef {VNode | string | number | null | undefined | boolean | Child[]} Child
 */

const svgNamespace = 'http://www.w3.org/2000/svg';

/** What is set as a property because the attribute is only its first value. */
const properties = new Set(['value', 'checked', 'selected', 'indeterminate', 'disabled', 'open']);

/** The props that an element was last given. @type {WeakMap<Node, Record<string, any>>} */
const given = new WeakMap();

/**
 * Describes an element. Props are attributes, but `on...` are handlers, `style` is an object of CSS properties,
 * `key` tells siblings apart and `ref` is called with the element once it exists.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flatten(children, []) };
}

/**
 * Absent children stay as empty texts, so that their siblings keep their place.
 * @param {Child[]} list
 * @param {(VNode | string)[]} out
 */
function flatten(list, out) {
  for (const child of list) {
    if (Array.isArray(child)) flatten(child, out);
    else if (child === null || child === undefined || typeof child === 'boolean') out.push('');
    else out.push(typeof child === 'object' ? child : String(child));
  }
  return out;
}

/**
 * Makes the children of an element those that are described.
 * @param {Element} root
 * @param {...Child} children
 */
export function render(root, ...children) {
  patchChildren(root, flatten(children, []), root.namespaceURI === svgNamespace);
}

/**
 * @param {Element} parent
 * @param {(VNode | string)[]} next
 * @param {boolean} svg
 */
function patchChildren(parent, next, svg) {
  const keyed = new Map();
  /** @type {ChildNode[]} */
  const unkeyed = [];
  for (const node of parent.childNodes) {
    const key = given.get(node)?.key;
    if (key === undefined) unkeyed.push(node);
    else keyed.set(key, node);
  }
  let position = 0;
  const nodes = next.map((child) => {
    const key = typeof child === 'string' ? undefined : child.props.key;
    let node;
    if (key === undefined) node = unkeyed[position++];
    else {
      node = keyed.get(key);
      if (node) keyed.delete(key);
    }
    return patch(node, child, svg);
  });
  const wanted = new Set(nodes);
  // What goes, goes first: then the others are in place, and moving them would cost the focus.
  for (const node of [...parent.childNodes]) if (!wanted.has(node)) node.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

/**
 * @param {ChildNode | undefined} node
 * @param {VNode | string} child
 * @param {boolean} svg
 * @returns {ChildNode}
 */
function patch(node, child, svg) {
  if (typeof child === 'string') {
    if (node?.nodeType !== Node.TEXT_NODE) return document.createTextNode(child);
    if (node.nodeValue !== child) node.nodeValue = child;
    return node;
  }
  svg ||= child.tag === 'svg';
  let element = /** @type {Element} */ (/** @type {unknown} */ (node));
  const isNew = node?.nodeType !== Node.ELEMENT_NODE || element.localName !== child.tag;
  if (isNew) element = svg ? document.createElementNS(svgNamespace, child.tag) : document.createElement(child.tag);
  // Options come before the value of their select.
  patchChildren(element, child.children, svg);
  patchProps(element, child.props, given.get(element) ?? {});
  given.set(element, child.props);
  if (isNew) child.props.ref?.(element);
  return element;
}

/**
 * @param {any} element
 * @param {Record<string, any>} next
 * @param {Record<string, any>} previous
 */
function patchProps(element, next, previous) {
  for (const name of Object.keys(previous)) if (!(name in next)) setProp(element, name, undefined, previous[name]);
  for (const [name, value] of Object.entries(next)) {
    if (properties.has(name)) {
      if (element[name] !== value) element[name] = value ?? (typeof element[name] === 'boolean' ? false : '');
    } else if (value !== previous[name]) setProp(element, name, value, previous[name]);
  }
}

/**
 * @param {any} element
 * @param {string} name
 * @param {any} value
 * @param {any} previous
 */
function setProp(element, name, value, previous) {
  if (name === 'key' || name === 'ref') return;
  if (name === 'style') {
    for (const property of Object.keys(previous ?? {})) if (!(property in (value ?? {}))) element.style.removeProperty(property);
    for (const [property, v] of Object.entries(value ?? {})) element.style.setProperty(property, String(v));
  } else if (name.startsWith('on')) element[name] = value ?? null;
  else if (properties.has(name)) element[name] = typeof element[name] === 'boolean' ? false : '';
  else if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? '' : String(value));
}
