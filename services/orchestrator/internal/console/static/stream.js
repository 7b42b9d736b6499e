// @ts-check
/** Live changes of operations, received as server-sent events. */

const longestPause = 15_000;

/**
 * Receives changes until it is closed. It calls `onresync` whenever changes may have been missed: after it has connected, after
 * a lost connection or a restart of the server, and after the page was hidden. The view must then load its data again.
 */
export class Stream {
  /** @type {EventSource | undefined} */
  #source;
  #pause = 500;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  live = false;

  /**
   * @param {string | (() => string)} path
   * @param {{onoperation?: (o: import('./format.js').Operation) => void, ondetail?: (o: import('./format.js').Detail) => void,
   *   onchange?: (c: any) => void, onhistory?: (lines: import('./format.js').Line[]) => void, onresync?: () => void,
   *   onstate: () => void, onlost: () => void}} handlers
   */
  constructor(path, handlers) {
    this.path = path;
    this.handlers = handlers;
    this.visibility = () => (document.hidden ? this.#drop() : this.#connect());
    document.addEventListener('visibilitychange', this.visibility);
    if (!document.hidden) this.#connect();
  }

  #connect() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    const source = new EventSource(typeof this.path === 'function' ? this.path() : this.path);
    this.#source = source;
    source.onopen = () => {
      this.#pause = 500;
      this.#setLive(true);
      // The stream does not contain changes from before it was open.
      this.handlers.onresync?.();
    };
    source.onerror = () => {
      // The browser reconnects automatically, but not after an answer such as 503.
      this.#drop();
      this.handlers.onlost();
      this.#timer = setTimeout(() => this.#connect(), this.#pause);
      this.#pause = Math.min(this.#pause * 2, longestPause);
    };
    const on = (/** @type {string} */ event, /** @type {((data: any) => void) | undefined} */ handler) => source.addEventListener(event, (e) => {
      const data = parse(e.data);
      if (data) handler?.(data);
    });
    on('operation', this.handlers.onoperation);
    on('detail', this.handlers.ondetail);
    on('change', this.handlers.onchange);
    on('history', (h) => this.handlers.onhistory?.(h.lines));
    on('resync', this.handlers.onresync);
    // The workers have changed, and with them the reasons why operations wait.
    on('workers', this.handlers.onresync);
  }

  /** Reconnects immediately, because the API responds again. */
  retry() {
    if (this.#source || document.hidden) return;
    this.#connect();
  }

  #drop() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = undefined;
    this.#setLive(false);
  }

  /** @param {boolean} live */
  #setLive(live) {
    if (this.live === live) return;
    this.live = live;
    this.handlers.onstate();
  }

  close() {
    document.removeEventListener('visibilitychange', this.visibility);
    this.#drop();
  }
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
