// @ts-check
/** Changes of operations as they happen, by server-sent events. */

const longestPause = 15_000;

/**
 * Follows changes until it is closed. Whenever changes may have been missed - before it was open, when the connection was cut,
 * the server restarted, or the page was hidden - `onresync` is called, and the view must load its data again.
 */
export class Stream {
  /** @type {EventSource | undefined} */
  #source;
  #pause = 500;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  live = false;

  /**
   * @param {string} path
   * @param {{onoperation: (o: import('./format.js').Operation) => void, onhistory?: () => void, onresync: () => void,
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
    const source = new EventSource(this.path);
    this.#source = source;
    source.onopen = () => {
      this.#pause = 500;
      this.#setLive(true);
      // The stream does not contain changes from before it was open.
      this.handlers.onresync();
    };
    source.onerror = () => {
      // The browser reconnects automatically, but not after an answer such as 503.
      this.#drop();
      this.handlers.onlost();
      this.#timer = setTimeout(() => this.#connect(), this.#pause);
      this.#pause = Math.min(this.#pause * 2, longestPause);
    };
    source.addEventListener('operation', (e) => {
      const o = parse(e.data);
      if (o) this.handlers.onoperation(o);
    });
    source.addEventListener('history', () => this.handlers.onhistory?.());
    source.addEventListener('resync', () => this.handlers.onresync());
    // The workers have changed, and with them the reasons why operations wait.
    source.addEventListener('workers', () => this.handlers.onresync());
  }

  /** Tries now, because the API is known to answer again. */
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
