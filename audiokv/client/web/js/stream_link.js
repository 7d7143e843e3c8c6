/**
 * The source's side of a stream: no sample lost, no caption twice, whatever the network does.
 *
 * Three positions, in samples of the recording: `acknowledged` <= `sent` <= end of the kept audio.
 * Audio stays kept until its words are settled too, so that a server that lost the stream can be
 * given the open segment again.
 */

import { KeptAudio } from "./kept_audio.js";
import { Link } from "./link.js";
import { CLOSE_INTERNAL, CLOSE_NORMAL, FATAL_CLOSE_CODES, joinWords, startMessage } from "./protocol.js";
import { problem, problemFromServer } from "./problems.js";

/** @typedef {import("./protocol.js").ServerError} ServerError */
/** @typedef {import("./protocol.js").PlacedCaption} PlacedCaption */

/**
 * @typedef {object} StreamOptions
 * @property {import("./protocol.js").StartOptions} start
 * @property {number} [originMs] Where on the page's time line this recording begins.
 * @property {number} [keptMs] Audio kept at most while the server is away.
 * @property {number} [historyMs] Acknowledged audio kept for words that are not settled.
 * @property {number} [stopTimeoutMs] Wait for the last words, counted from the last sign of life.
 * @property {number} [silenceTimeoutMs] A live server that says nothing for this long is gone.
 * @property {number} [keepaliveMs] Pause in the audio after which a sign of life is sent.
 */

const DEFAULTS = {
  originMs: 0,
  keptMs: 300_000,
  historyMs: 30_000,
  stopTimeoutMs: 20_000,
  silenceTimeoutMs: 8000,
  keepaliveMs: 10_000,
};
const MAX_MESSAGE_BYTES = 32_768;
const MAX_UNACKNOWLEDGED_MS = 10_000;
/** More than this in the socket means that the network is slower than the audio. */
const MAX_BUFFERED_BYTES = 262_144;
const CHECK_EVERY_MS = 250;
/** A session that breaks this often in a row is not taken up again; a new stream is begun. */
const MAX_INTERNAL_ERRORS = 3;

/**
 * Events beside those of Link: `caption` (detail: PlacedCaption), `lost` (detail {ms}).
 */
export class StreamLink extends Link {
  #options;
  #startOptions;
  #rateHz;
  #kept;
  #base = 0;
  #sent = 0;
  #acknowledged = 0;
  #generation = 0;
  /** @type {{token: string, last_seq: number} | null} */
  #resume = null;
  #lastSeq = 0;
  /** @type {PlacedCaption | null} */
  #openCaption = null;
  #settledMs = 0;
  #processedMs = 0;
  #isSpeech = false;
  #isRenewing = false;
  #internalErrors = 0;
  #limits = { messageSamples: MAX_MESSAGE_BYTES / 2, unacknowledgedMs: MAX_UNACKNOWLEDGED_MS };
  /** @type {{language?: string, prompt?: string} | null} */
  #pendingUpdate = null;
  #isStopping = false;
  #isStopSent = false;
  #stopSinceMs = 0;
  #lastSentAtMs = 0;
  #timer = 0;

  /**
   * @param {import("./link.js").LinkOptions & StreamOptions} options
   */
  constructor(options) {
    super(options);
    this.#options = { ...DEFAULTS, ...options };
    this.#startOptions = { ...options.start };
    this.#rateHz = options.start.sampleRateHz;
    this.#kept = new KeptAudio(this.#samples(this.#options.keptMs));
  }

  open() {
    this.#timer = window.setInterval(() => this.#check(), CHECK_EVERY_MS);
    super.open();
  }

  /** Audio that the server does not have yet, in ms. */
  get waitingMs() {
    return Math.round(((this.#kept.end - this.#acknowledged) * 1000) / this.#rateHz);
  }

  /** Length of the recording so far, in ms. */
  get recordedMs() {
    return Math.round((this.#kept.end * 1000) / this.#rateHz);
  }

  /**
   * Take over the next samples of the recording.
   * @param {Int16Array} samples
   */
  push(samples) {
    this.#kept.append(samples);
    if (this.state === "live" && this.#kept.start > this.#sent) this.#isRenewing = true;
    this.#pump();
  }

  /**
   * Change language or prompt while the stream runs.
   * @param {{language?: string, prompt?: string}} change
   */
  update(change) {
    this.#startOptions = { ...this.#startOptions, ...change };
    this.#pendingUpdate = { ...this.#pendingUpdate, ...change };
    this.#sendUpdate();
  }

  /** End the stream; the last captions still arrive, then the state is `ended`. */
  stop() {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#stopSinceMs = performance.now();
    if (this.state === "token" || this.state === "idle") this.end("ended");
    else this.#pump();
  }

  /**
   * @param {import("./link.js").LinkState} state
   * @param {import("./problems.js").Problem | null} [reason]
   */
  end(state, reason = null) {
    clearInterval(this.#timer);
    this.#closeOpenCaption();
    super.end(state, reason);
  }

  greeting() {
    this.#isStopSent = false;
    if (!this.#resume) {
      this.#moveBase(this.#base);
      this.#pendingUpdate = null; // The message itself says it.
    }
    return startMessage(this.#startOptions, this.#resume ?? undefined);
  }

  /** @param {import("./protocol.js").Ready} ready */
  onReady(ready) {
    this.#lastSentAtMs = performance.now();
    if (this.#resume && ready.resumed === false) this.#renew();
    this.#resume = ready.resume_token ? { token: ready.resume_token, last_seq: this.#lastSeq } : null;
    const messageBytes = Math.min(ready.limits?.max_message_bytes ?? Infinity, MAX_MESSAGE_BYTES);
    this.#limits = {
      messageSamples: Math.floor(messageBytes / 2),
      unacknowledgedMs: ready.limits?.max_unacknowledged_ms ?? MAX_UNACKNOWLEDGED_MS,
    };
    this.#sent = this.#base + (ready.received_samples ?? 0);
    this.#acknowledged = this.#sent;
    this.#isRenewing = this.#sent < this.#kept.start;
    this.#sendUpdate();
    this.#pump();
  }

  /** @param {import("./protocol.js").ServerMessage} message */
  onMessage(message) {
    if (message.type === "caption") this.#receiveCaption(message);
    else if (message.type === "speech") this.#isSpeech = message.on;
    else if (message.type === "progress") {
      if (message.processed_ms > this.#processedMs) this.#internalErrors = 0;
      this.#processedMs = message.processed_ms;
      this.#acknowledged = Math.max(this.#acknowledged, this.#base + message.received_samples);
      if (!this.#isSpeech && !this.#openCaption) {
        this.#settledMs = Math.max(this.#settledMs, message.processed_ms);
      }
      this.#forget();
      this.#pump();
    } else if (message.type === "done") {
      super.onMessage(message);
      this.#afterDone();
      return;
    }
    super.onMessage(message);
  }

  /**
   * @param {number} code
   * @param {ServerError | null} error
   */
  onClosed(code, error) {
    if (error?.code === "unknown_resume") {
      this.#renew();
      this.connectNow();
    } else if (code === CLOSE_NORMAL) {
      this.end("ended");
    } else if (FATAL_CLOSE_CODES.has(code)) {
      this.end("failed", problemFromServer(error, "failed"));
    } else {
      this.#internalErrors += code === CLOSE_INTERNAL ? 1 : 0;
      if (this.#internalErrors >= 2 * MAX_INTERNAL_ERRORS) {
        this.end("failed", problemFromServer(error, "failed"));
        return;
      }
      if (this.#internalErrors === MAX_INTERNAL_ERRORS) this.#renew();
      this.retry(problemFromServer(error, "unreachable"));
    }
  }

  /** @param {number} ms */
  #samples(ms) {
    return Math.round((ms * this.#rateHz) / 1000);
  }

  /** Send what may be sent now. */
  #pump() {
    if (this.state !== "live") return;
    const end = this.#isRenewing ? this.#sent : this.#kept.end;
    const allowed = this.#acknowledged + this.#samples(this.#limits.unacknowledgedMs);
    while (this.#sent < Math.min(end, allowed) && this.bufferedBytes < MAX_BUFFERED_BYTES) {
      const room = Math.min(this.#limits.messageSamples, allowed - this.#sent);
      const samples = this.#kept.read(this.#sent, room);
      this.send(samples);
      this.#sent += samples.length;
      this.#lastSentAtMs = performance.now();
    }
    if ((this.#isStopping || this.#isRenewing) && this.#sent >= end && !this.#isStopSent) {
      this.#isStopSent = true;
      this.send('{"type":"stop"}');
    }
  }

  #sendUpdate() {
    if (this.state !== "live" || !this.#pendingUpdate) return;
    this.send(JSON.stringify({ type: "update", ...this.#pendingUpdate }));
    this.#pendingUpdate = null;
  }

  /** @param {import("./protocol.js").Caption} caption */
  #receiveCaption(caption) {
    if (caption.seq <= this.#lastSeq) return;
    this.#lastSeq = caption.seq;
    if (this.#resume) this.#resume.last_seq = caption.seq;
    const committed = caption.words.filter((word) => caption.final || word.final);
    const settledMs = committed.at(-1)?.end_ms ?? (caption.final ? caption.end_ms : 0);
    this.#settledMs = Math.max(this.#settledMs, settledMs);
    const placed = this.#place(caption);
    this.#openCaption = caption.final ? null : placed;
    this.dispatchEvent(new CustomEvent("caption", { detail: placed }));
  }

  /**
   * Move a caption from the server's clock, which begins with each stream, to the page's.
   * @param {import("./protocol.js").Caption} caption
   * @returns {PlacedCaption}
   */
  #place(caption) {
    const shiftMs = this.#options.originMs + Math.round((this.#base * 1000) / this.#rateHz);
    const words = caption.words.map((word) => ({
      ...word, start_ms: word.start_ms + shiftMs, end_ms: word.end_ms + shiftMs,
    }));
    return {
      ...caption,
      key: `${this.#options.originMs}.${this.#generation}.${caption.segment}`,
      start_ms: caption.start_ms + shiftMs,
      end_ms: caption.end_ms + shiftMs,
      words,
    };
  }

  /** Give up audio that neither the server nor a successor stream will need. */
  #forget() {
    const settled = this.#base + this.#samples(this.#settledMs);
    const history = this.#acknowledged - this.#samples(this.#options.historyMs);
    this.#kept.dropBefore(Math.min(this.#acknowledged, Math.max(settled, history)));
  }

  /** The server no longer knows the stream: begin another where the settled words end. */
  #renew() {
    const settled = this.#base + this.#samples(this.#settledMs);
    this.#closeOpenCaption();
    // A stream that was ended because its next samples are gone has said all it was sent.
    this.#moveBase(this.#isRenewing ? this.#sent : settled);
    this.#generation += 1;
    this.#lastSeq = 0;
    this.#settledMs = 0;
    this.#processedMs = 0;
    this.#isSpeech = false;
    this.#isRenewing = false;
    this.#resume = null;
  }

  /**
   * Let the next stream begin at a position, or at the oldest sample still kept after it.
   * @param {number} wanted
   */
  #moveBase(wanted) {
    this.#base = Math.max(this.#kept.start, Math.min(wanted, this.#kept.end));
    this.#sent = this.#base;
    this.#acknowledged = this.#base;
    const ms = ((this.#base - wanted) * 1000) / this.#rateHz;
    if (ms > 0) this.dispatchEvent(new CustomEvent("lost", { detail: { ms } }));
  }

  /** Turn the committed words of a segment that nobody will finish into its final caption. */
  #closeOpenCaption() {
    const caption = this.#openCaption;
    if (!caption) return;
    this.#openCaption = null;
    const words = caption.words.filter((word) => word.final);
    const endMs = words.at(-1)?.end_ms ?? caption.start_ms;
    const detail = { ...caption, final: true, words, text: joinWords(words), end_ms: endMs };
    this.dispatchEvent(new CustomEvent("caption", { detail }));
  }

  #afterDone() {
    if (this.#isRenewing) {
      this.#renew();
      this.connectNow();
    } else {
      this.end("ended");
    }
  }

  /** Regular look at what no event tells. */
  #check() {
    const nowMs = performance.now();
    if (this.#isStopping) {
      const sinceMs = nowMs - Math.max(this.#stopSinceMs, this.lastMessageAtMs);
      if (sinceMs > this.#options.stopTimeoutMs) {
        this.end("ended", problem("incomplete"));
        return;
      }
    }
    if (this.state !== "live") return;
    if (nowMs - this.lastMessageAtMs > this.#options.silenceTimeoutMs) {
      this.reconnect();
      return;
    }
    if (nowMs - this.#lastSentAtMs > this.#options.keepaliveMs) {
      this.#lastSentAtMs = nowMs;
      this.send('{"type":"keepalive"}');
    }
    this.#pump();
  }
}
