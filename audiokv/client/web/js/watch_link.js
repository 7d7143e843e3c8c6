/** The viewer's side: captions only, of a stream that somebody else feeds. */

import { Link } from "./link.js";
import { CLOSE_NORMAL, CLOSE_INTERNAL } from "./protocol.js";
import { problem, problemFromServer } from "./problems.js";

/** A stream that does not exist may yet begin: look again this often. */
const LOOK_AGAIN_MS = 3000;

/** The server says something every 15 s; a browser alone does not notice that a connection is gone. */
const SILENCE_TIMEOUT_MS = 40_000;

/** Events beside those of Link: `caption` (detail: PlacedCaption). */
export class WatchLink extends Link {
  #lastSeq = 0;
  #stream = "";
  #silenceTimeoutMs;
  #silenceTimer = 0;

  /** @param {import("./link.js").LinkOptions & {silenceTimeoutMs?: number}} options */
  constructor({ silenceTimeoutMs = SILENCE_TIMEOUT_MS, ...options }) {
    super(options);
    this.#silenceTimeoutMs = silenceTimeoutMs;
  }

  /** @param {import("./protocol.js").Ready} ready */
  onReady(ready) {
    this.#expectMore();
    if (ready.stream !== this.#stream) this.#lastSeq = 0;
    this.#stream = ready.stream;
  }

  /** @param {import("./protocol.js").ServerMessage} message */
  onMessage(message) {
    this.#expectMore();
    if (message.type === "caption") {
      if (message.seq <= this.#lastSeq) return;
      this.#lastSeq = message.seq;
      const detail = { ...message, key: `${this.#stream}.${message.segment}` };
      this.dispatchEvent(new CustomEvent("caption", { detail }));
    }
    super.onMessage(message);
    if (message.type === "done") this.end("ended");
  }

  /**
   * @param {number} code
   * @param {import("./protocol.js").ServerError | null} error
   */
  onClosed(code, error) {
    if (code === CLOSE_NORMAL && !error) this.end("ended");
    else if (error?.code === "unknown_stream") this.retry(problem("stream-unknown"), LOOK_AGAIN_MS);
    else if (error?.code === "stream_failed") this.end("failed", problemFromServer(error, "failed"));
    else if (error && code !== CLOSE_INTERNAL) {
      this.retry(problemFromServer(error, "stream-unknown"), LOOK_AGAIN_MS);
    } else this.retry(problem("unreachable"));
  }

  #expectMore() {
    clearTimeout(this.#silenceTimer);
    this.#silenceTimer = window.setTimeout(() => {
      if (this.state === "live") this.reconnect();
    }, this.#silenceTimeoutMs);
  }
}
