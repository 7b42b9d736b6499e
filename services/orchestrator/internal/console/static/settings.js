// @ts-check
/** Settings of this browser. Without storage, they are lost when the page is closed. */

/** @param {string} key @returns {string} empty if there is none */
export function remembered(key) {
  try {
    return localStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

/**
 * @param {string} key
 * @param {string} value empty forgets it
 */
export function remember(key, value) {
  try {
    if (value) localStorage.setItem(key, value);
    else localStorage.removeItem(key);
  } catch {
    // Storage is disabled.
  }
}
