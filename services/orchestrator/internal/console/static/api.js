// @ts-check
/** Client of the operator API of the same origin. It detects when the API does not respond. */

const requestTimeout = 15_000;
const firstPause = 1000;
const longestPause = 15_000;

/** An error answer of the API, with its message. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The API did not respond. */
export class Unreachable extends Error {}

/**
 * The state of the connection to the API. While the API does not respond, it is probed with growing pauses; `onback` is called
 * when it responds again.
 */
export class Connection {
  lost = false;
  since = 0;
  nextTry = 0;
  #pause = firstPause;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {() => void} onchange
   * @param {() => void} onback
   */
  constructor(onchange, onback) {
    this.onchange = onchange;
    this.onback = onback;
  }

  /** Probes the API after a request that took too long: it may be the only one. */
  async suspect() {
    if (this.lost || await this.#responds()) return;
    this.fail();
  }

  fail() {
    if (this.lost) return;
    this.lost = true;
    this.since = Date.now();
    this.#pause = firstPause;
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.nextTry = Date.now() + this.#pause;
    this.#timer = setTimeout(() => this.probe(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, longestPause);
    this.onchange();
  }

  /** Probes the API immediately. */
  async probe() {
    clearTimeout(this.#timer);
    this.nextTry = 0;
    this.onchange();
    if (!await this.#responds()) {
      if (this.lost) this.#schedule();
      return;
    }
    const wasLost = this.lost;
    this.lost = false;
    this.onchange();
    if (wasLost) this.onback();
  }

  async #responds() {
    try {
      const answer = await fetch('/me', { signal: AbortSignal.timeout(requestTimeout), headers: { Accept: 'application/json' } });
      return answer.status < 500;
    } catch {
      return false;
    }
  }
}

export class API {
  /**
   * @param {Connection} connection
   * @param {() => void} onunauthorized
   */
  constructor(connection, onunauthorized) {
    this.connection = connection;
    this.onunauthorized = onunauthorized;
  }

  /** Sends a request after a stream has ended, so that a lost server or an expired session is handled as for any request. */
  async check() {
    await this.get('/me').catch(() => {});
  }

  /**
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  get(path, signal) {
    return this.send('GET', path, undefined, signal);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {object | URLSearchParams} [body]
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  async send(method, path, body, signal) {
    const limit = AbortSignal.timeout(requestTimeout);
    /** @type {Record<string, string>} */
    const headers = { Accept: 'application/json' };
    if (body && !(body instanceof URLSearchParams)) headers['Content-Type'] = 'application/json';
    let answer;
    let text;
    try {
      answer = await fetch(path, {
        method, headers, signal: signal ? AbortSignal.any([signal, limit]) : limit, redirect: 'error',
        body: body instanceof URLSearchParams ? body : body && JSON.stringify(body),
      });
      text = await answer.text();
    } catch (e) {
      if (signal?.aborted) throw e;
      const effect = method === 'GET' || /** @type {any} */ (body)?.dryRun ? '' : ' The action may have been done: see Actions.';
      // Other requests may be answered in time.
      if (limit.aborted && path !== '/me') {
        this.connection.suspect();
        throw new Refusal(0, `The orchestrator has not answered within ${requestTimeout / 1000} s.${effect}`);
      }
      this.connection.fail();
      throw new Unreachable(`The orchestrator does not respond.${effect}`);
    }
    if (answer.ok) return text ? JSON.parse(text) : null;
    if (answer.status === 401) this.onunauthorized();
    const message = errorText(text);
    // Without a message, the answer is from a proxy.
    if (answer.status >= 502 && answer.status <= 504 && !message) {
      this.connection.fail();
      throw new Unreachable('The orchestrator does not respond.');
    }
    throw new Refusal(answer.status, message || text.slice(0, 300).trim() || `The API answered with status ${answer.status}.`);
  }
}

/** Returns the message of an error answer of the API, or nothing. @param {string} text */
function errorText(text) {
  try {
    return String(JSON.parse(text).error ?? '');
  } catch {
    return '';
  }
}

/**
 * Data of the API that a view shows and refreshes. It has at most one request in flight; a refresh during a request starts
 * another one after it.
 */
export class Resource {
  /** @type {any} */
  data = null;
  /** @type {Error | null} */
  error = null;
  /** When the data was received, in epoch milliseconds. */
  at = 0;
  #running = false;
  #again = false;
  #request = new AbortController();
  #closed = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {API} api
   * @param {string | (() => string)} path
   * @param {{every?: number | (() => number), changed: () => void, merge?: (data: any) => any}} options `every` is in milliseconds; 0 loads once
   */
  constructor(api, path, options) {
    this.api = api;
    this.path = path;
    this.options = options;
  }

  /** Clears the data before a request with another path. */
  reset() {
    this.data = null;
    this.error = null;
  }

  /** Loads data that is not older than this call: a request in flight is cancelled. */
  restart() {
    this.#request.abort();
    this.refresh();
  }

  async refresh() {
    if (this.#closed.signal.aborted) return;
    if (this.#running) {
      this.#again = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#running = true;
    this.#request = new AbortController();
    const { signal } = this.#request;
    const now = () => (typeof this.path === 'function' ? this.path() : this.path);
    const path = now();
    let data = null;
    /** @type {Error | null} */
    let error = null;
    try {
      data = await this.api.get(path, AbortSignal.any([signal, this.#closed.signal]));
    } catch (e) {
      error = /** @type {Error} */ (e);
    }
    this.#running = false;
    if (this.#closed.signal.aborted) return;
    if (signal.aborted || path !== now()) {
      // The view wants another answer now.
      this.#again = false;
      this.refresh();
      return;
    }
    this.error = error;
    if (!error) {
      this.data = data;
      this.at = Date.now();
    }
    this.options.changed();
    if (this.#again) {
      this.#again = false;
      this.refresh();
      return;
    }
    this.#schedule();
  }

  #schedule() {
    const every = typeof this.options.every === 'function' ? this.options.every() : this.options.every;
    if (!every) return;
    this.#timer = setTimeout(() => {
      // The page is hidden or the API does not respond: resume() loads again.
      if (document.hidden || this.api.connection.lost) this.#schedule();
      else this.refresh();
    }, every);
  }

  close() {
    this.#closed.abort();
    clearTimeout(this.#timer);
  }
}
