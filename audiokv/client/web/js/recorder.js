/** One recording: a source of sound joined to a stream, and the states in between. */

import { Capture } from "./capture.js";
import { ProblemError, problem } from "./problems.js";
import { StreamLink } from "./stream_link.js";

/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {import("./settings.js").Values} Values */
/** @typedef {"idle" | "starting" | "connecting" | "live" | "waiting" | "token" | "stopping"} RecorderState */

/** Below this peak (-66 dB) for this long, the microphone is probably muted. */
const SILENT_PEAK = 0.0005;
const SILENT_FRAMES = 800;

/**
 * Events: `state` (detail {state, problem, retryInMs}), `caption`, `ready`, `message` (as Link's),
 * `level` (detail: peak 0..1), `problem` (detail: Problem), `solved` (detail: problem id).
 */
export class Recorder extends EventTarget {
  /** @type {RecorderState} */
  state = "idle";
  #url;
  /** @type {Capture | null} */
  #capture = null;
  /** @type {StreamLink | null} */
  #link = null;
  #originMs = 0;
  #silentFrames = 0;
  /** @type {WakeLockSentinel | null} */
  #wakeLock = null;

  /** @param {string} url Address of /v1/stream. */
  constructor(url) {
    super();
    this.#url = url;
  }

  /** Audio that the server does not have yet, in ms. */
  get waitingMs() {
    return this.#link?.waitingMs ?? 0;
  }

  /**
   * Open the source and the stream; the sound counts from here on, connected or not.
   * @param {Values} settings
   * @param {string} token
   */
  async start(settings, token) {
    if (this.state !== "idle") return;
    this.#setState("starting");
    try {
      const capture = await Capture.open(settings);
      const { language, prompt } = settings;
      const link = new StreamLink({
        url: this.#url,
        token,
        originMs: this.#originMs,
        start: { sampleRateHz: capture.sampleRateHz, language, prompt },
      });
      this.#join(capture, link);
      await capture.start();
      if (capture.isSubstitute) this.#tell(problem("device-gone"));
      link.open();
      await this.#keepAwake();
    } catch (error) {
      this.#capture = null;
      this.#link = null;
      this.#setState("idle");
      if (!(error instanceof ProblemError)) throw error;
      this.#tell(error.problem);
    }
  }

  /** Stop recording; the last words still arrive. A second call does not wait for them. */
  async stop() {
    if (this.state === "stopping") {
      this.#link?.end("ended");
      return;
    }
    if (!this.#capture || !this.#link) return;
    const capture = this.#capture;
    const link = this.#link;
    this.#capture = null;
    this.#setState("stopping");
    await capture.stop();
    link.stop();
  }

  /**
   * Take another source while the stream goes on.
   * @param {Values} settings
   */
  async switchSource(settings) {
    if (!this.#capture) return;
    try {
      await this.#capture.switchTo(settings);
      this.#silentFrames = 0;
      this.dispatchEvent(new CustomEvent("solved", { detail: "silent" }));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      this.#tell(error.problem);
    }
  }

  /** @param {{language?: string, prompt?: string}} change */
  update(change) {
    this.#link?.update(change);
  }

  /** @param {string} token */
  setToken(token) {
    this.#link?.setToken(token);
  }

  /**
   * @param {Capture} capture
   * @param {StreamLink} link
   */
  #join(capture, link) {
    this.#capture = capture;
    this.#link = link;
    this.#silentFrames = 0;
    capture.addEventListener("frame", (event) => {
      const { samples, peak } = /** @type {CustomEvent} */ (event).detail;
      link.push(samples);
      this.#notePeak(peak);
    });
    capture.addEventListener("ended", (event) => {
      this.#tell(/** @type {CustomEvent} */ (event).detail);
      void this.stop();
    });
    link.addEventListener("lost", () => this.#tell(problem("audio-lost")));
    for (const name of ["caption", "ready", "message"]) {
      link.addEventListener(name, (event) => {
        const { detail } = /** @type {CustomEvent} */ (event);
        this.dispatchEvent(new CustomEvent(name, { detail }));
      });
    }
    link.addEventListener("state", (event) => {
      const { state, problem: reason, retryInMs } = /** @type {CustomEvent} */ (event).detail;
      if (state === "ended" || state === "failed") this.#finish(reason);
      else if (this.state !== "stopping") this.#setState(state, reason, retryInMs);
    });
  }

  /** @param {Problem | null} reason */
  #finish(reason) {
    this.#originMs += this.#link?.recordedMs ?? 0;
    this.#capture?.close();
    this.#capture = null;
    this.#link = null;
    void this.#wakeLock?.release();
    this.#wakeLock = null;
    this.#setState("idle");
    if (reason) this.#tell(reason);
  }

  /** @param {number} peak */
  #notePeak(peak) {
    this.dispatchEvent(new CustomEvent("level", { detail: peak }));
    if (peak > SILENT_PEAK) {
      if (this.#silentFrames >= SILENT_FRAMES) {
        this.dispatchEvent(new CustomEvent("solved", { detail: "silent" }));
      }
      this.#silentFrames = 0;
      return;
    }
    this.#silentFrames += 1;
    if (this.#silentFrames === SILENT_FRAMES) this.#tell(problem("silent"));
  }

  /** A screen that goes dark would stop the microphone of a phone. */
  async #keepAwake() {
    try {
      this.#wakeLock = await navigator.wakeLock?.request("screen") ?? null;
    } catch {
      // Not allowed, for instance on low battery: captions work without.
    }
  }

  /** @param {Problem} found */
  #tell(found) {
    this.dispatchEvent(new CustomEvent("problem", { detail: found }));
  }

  /**
   * @param {RecorderState} state
   * @param {Problem | null} [reason]
   * @param {number} [retryInMs]
   */
  #setState(state, reason = null, retryInMs = 0) {
    this.state = state;
    const detail = { state, problem: reason, retryInMs };
    this.dispatchEvent(new CustomEvent("state", { detail }));
  }
}
