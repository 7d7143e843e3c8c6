/** A WebSocket that comes back: what the source's and the viewer's connection share. */

import { CLOSE_FULL, CLOSE_TOKEN, isSendableToken, parseMessage, subprotocols } from "./protocol.js";
import { problem, problemFromServer } from "./problems.js";

/** @typedef {import("./protocol.js").ServerMessage} ServerMessage */
/** @typedef {import("./protocol.js").ServerError} ServerError */
/** @typedef {import("./protocol.js").Ready} Ready */
/** @typedef {import("./problems.js").Problem} Problem */

/**
 * `waiting` means that a new attempt is due in `retryInMs`; `token` that one must be entered.
 * @typedef {"idle" | "connecting" | "live" | "waiting" | "token" | "ended" | "failed"} LinkState
 */

/**
 * @typedef {object} LinkOptions
 * @property {string} url
 * @property {string} [token]
 * @property {number} [firstRetryMs] Pause before the second attempt; doubles up to maxRetryMs.
 * @property {number} [maxRetryMs]
 * @property {number} [readyTimeoutMs] An attempt without an answer is given up after this.
 */

const DEFAULTS = { token: "", firstRetryMs: 250, maxRetryMs: 5000, readyTimeoutMs: 10_000 };

/** Spread of the pauses, so that many clients do not come back in the same moment. */
const RETRY_JITTER = 0.2;

/**
 * Events: `state` (detail {state, problem, retryInMs}), `ready`, `message` (detail: the message).
 */
export class Link extends EventTarget {
  /** @type {LinkState} */
  state = "idle";
  /** @type {Problem | null} Why the link is not live. */
  problem = null;
  /** Time of the last message, on the page's monotonic clock. */
  lastMessageAtMs = 0;

  /** @type {WebSocket | null} */
  #socket = null;
  #options;
  #attempts = 0;
  #retryTimer = 0;
  #readyTimer = 0;
  /** @type {ServerError | null} */
  #lastError = null;
  #onOnline = () => { if (this.state === "waiting") this.#connect(); };

  /** @param {LinkOptions} options */
  constructor(options) {
    super();
    this.#options = { ...DEFAULTS, ...options };
  }

  /** Connect, and stay connected until ended. */
  open() {
    window.addEventListener("online", this.#onOnline);
    this.#connect();
  }

  /**
   * Go on with another token after state `token`.
   * @param {string} token
   */
  setToken(token) {
    this.#options.token = token;
    this.#attempts = 0;
    if (this.state === "token") this.#connect();
  }

  /** Bytes that wait in the socket. */
  get bufferedBytes() {
    return this.#socket ? this.#socket.bufferedAmount : 0;
  }

  /**
   * @param {string | ArrayBufferLike | ArrayBufferView} payload
   */
  send(payload) {
    this.#socket?.send(/** @type {any} */ (payload));
  }

  /** Drop a connection that is no use and connect again. */
  reconnect() {
    this.#detach();
    this.retry(problem("unreachable"));
  }

  /** Connect again at once, on purpose. */
  connectNow() {
    this.#attempts = 0;
    this.#connect();
  }

  /**
   * Close for good.
   * @param {LinkState} state `ended` or `failed`.
   * @param {Problem | null} [reason]
   */
  end(state, reason = null) {
    this.#detach();
    clearTimeout(this.#retryTimer);
    window.removeEventListener("online", this.#onOnline);
    this.#setState(state, reason);
  }

  /**
   * Try again after a growing pause.
   * @param {Problem} reason
   * @param {number} [afterMs] The server's own wish.
   */
  retry(reason, afterMs) {
    const { firstRetryMs, maxRetryMs } = this.#options;
    const pauseMs = afterMs ?? Math.min(maxRetryMs, firstRetryMs * 2 ** this.#attempts);
    const retryInMs = pauseMs * (1 + RETRY_JITTER * (Math.random() - 0.5));
    this.#attempts += 1;
    clearTimeout(this.#retryTimer);
    this.#retryTimer = window.setTimeout(() => this.#connect(), retryInMs);
    this.#setState("waiting", reason, retryInMs);
  }

  /** First message of a new connection; null where the server speaks first. @returns {string | null} */
  greeting() {
    return null;
  }

  /** @param {Ready} _message The connection is usable. */
  onReady(_message) {}

  /** @param {ServerMessage} message Any message after `ready`. */
  onMessage(message) {
    this.dispatchEvent(new CustomEvent("message", { detail: message }));
  }

  /**
   * Decide about a close that is neither about the token nor about a full server.
   * @param {number} _code
   * @param {ServerError | null} error What the server said before it closed.
   */
  onClosed(_code, error) {
    this.retry(problemFromServer(error, "unreachable"));
  }

  #connect() {
    const { url, token, readyTimeoutMs } = this.#options;
    this.#detach();
    clearTimeout(this.#retryTimer);
    if (token && !isSendableToken(token)) {
      this.#setState("token", problem("bad-token"));
      return;
    }
    this.#lastError = null;
    this.#setState("connecting", this.problem);
    const socket = new WebSocket(url, subprotocols(token));
    socket.binaryType = "arraybuffer";
    let isOpen = false;
    socket.onopen = () => {
      isOpen = true;
      const first = this.greeting();
      if (first !== null) socket.send(first);
    };
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => {
      this.#detach();
      if (isOpen) this.#closed(event.code);
      else void this.#refused();
    };
    this.#socket = socket;
    this.#readyTimer = window.setTimeout(() => this.reconnect(), readyTimeoutMs);
  }

  /** Forget the socket without hearing from it again. */
  #detach() {
    clearTimeout(this.#readyTimer);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = null;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  }

  /** @param {unknown} payload */
  #receive(payload) {
    if (typeof payload !== "string") return;
    this.lastMessageAtMs = performance.now();
    /** @type {ServerMessage | null} */
    let message;
    try {
      message = parseMessage(payload);
    } catch (error) {
      if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
      this.end("failed", problem("bad-server"));
      return;
    }
    if (!message) return;
    if (message.type === "error") {
      this.#lastError = message;
      return;
    }
    if (message.type === "ready") {
      clearTimeout(this.#readyTimer);
      this.#setState("live", null);
      this.onReady(message);
      this.dispatchEvent(new CustomEvent("ready", { detail: message }));
      return;
    }
    this.#attempts = 0;
    this.onMessage(message);
  }

  /** @param {number} code */
  #closed(code) {
    const error = this.#lastError;
    if (code === CLOSE_TOKEN) {
      this.#setState("token", problem("token"));
    } else if (code === CLOSE_FULL) {
      const afterMs = error?.retry_after_s ? error.retry_after_s * 1000 : undefined;
      this.retry({ ...problem("full"), ...(error ? { title: error.message } : {}) }, afterMs);
    } else {
      this.onClosed(code, error);
    }
  }

  /**
   * Find out why the handshake failed: the browser hides the answer to a WebSocket handshake, but
   * shows that to a plain request for the same path.
   */
  async #refused() {
    const { url, token } = this.#options;
    const headers = token ? { Authorization: `Bearer ${token}` } : undefined;
    /** @type {Response | null} */
    let answer = null;
    try {
      answer = await fetch(url.replace(/^ws/, "http"), { headers, cache: "no-store" });
    } catch {
      // No answer at all: the server is away.
    }
    if (this.state !== "connecting" || this.#socket) return;
    if (answer?.status === 401) this.#setState("token", problem("token"));
    else if (answer?.status === 403) this.end("failed", problem("refused"));
    else if (answer?.status === 503) {
      const afterS = Number(answer.headers.get("Retry-After"));
      this.retry(problem("full"), afterS > 0 ? afterS * 1000 : undefined);
    } else this.retry(problem("unreachable"));
  }

  /**
   * @param {LinkState} state
   * @param {Problem | null} reason
   * @param {number} [retryInMs]
   */
  #setState(state, reason, retryInMs = 0) {
    this.state = state;
    this.problem = reason;
    const detail = { state, problem: reason, retryInMs };
    this.dispatchEvent(new CustomEvent("state", { detail }));
  }
}
