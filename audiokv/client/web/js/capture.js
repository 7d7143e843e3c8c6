/** Sound from a microphone or a shared tab, as 10 ms frames of 16-bit mono samples. */

import { ProblemError, problem, problemFromMedia } from "./problems.js";

/** The model's rate: asked for first, so that nobody has to resample. */
const WANTED_RATE_HZ = 16_000;
/** What the protocol allows at most; some sound cards run faster. */
const MAX_RATE_HZ = 48_000;
const START_TIMEOUT_MS = 5000;
const FLUSH_TIMEOUT_MS = 500;

/** Value of the source list that stands for a shared tab. */
export const TAB_SOURCE = "tab";

/**
 * @typedef {object} CaptureOptions
 * @property {string} source Device id, "" for the default microphone, or TAB_SOURCE.
 * @property {boolean} echoCancellation
 * @property {boolean} noiseSuppression
 * @property {boolean} autoGainControl
 */

/** @typedef {{media: MediaStream, isShare: boolean, isSubstitute: boolean}} OpenedMedia */

/** Whether the browser can share the sound of a tab at all. */
export function canShareTab() {
  return Boolean(navigator.mediaDevices?.getDisplayMedia);
}

/**
 * The microphones; without names until the page was allowed to record.
 * @returns {Promise<{id: string, label: string}[]>}
 */
export async function listMicrophones() {
  if (!navigator.mediaDevices?.enumerateDevices) return [];
  const devices = await navigator.mediaDevices.enumerateDevices();
  return devices
    .filter(({ kind, deviceId, label }) => kind === "audioinput" && deviceId && label)
    .map(({ deviceId, label }) => ({ id: deviceId, label }));
}

/**
 * Events: `frame` (detail {samples, peak}), `ended` (detail: Problem; the source is gone).
 */
export class Capture extends EventTarget {
  /** @type {OpenedMedia} */
  #opened;
  #context;
  /** @type {MediaStreamAudioSourceNode} */
  #input;
  /** @type {AudioWorkletNode | null} */
  #cutter = null;

  /**
   * Ask for the source and make it ready; `start` sets it going.
   * @param {CaptureOptions} options
   * @returns {Promise<Capture>}
   * @throws {ProblemError} The reason, for the user.
   */
  static async open(options) {
    if (!window.isSecureContext || !navigator.mediaDevices) {
      throw new ProblemError(problem("insecure"));
    }
    if (!window.AudioWorkletNode) throw new ProblemError(problem("unsupported"));
    const opened = await openMedia(options);
    try {
      const { context, input } = openContext(opened.media);
      await context.audioWorklet.addModule(new URL("./worklet.js", import.meta.url));
      return new Capture(opened, context, input);
    } catch (error) {
      for (const track of opened.media.getTracks()) track.stop();
      throw error instanceof ProblemError ? error : new ProblemError(problem("unsupported"));
    }
  }

  /**
   * @param {OpenedMedia} opened
   * @param {AudioContext} context
   * @param {MediaStreamAudioSourceNode} input
   */
  constructor(opened, context, input) {
    super();
    this.#opened = opened;
    this.#context = context;
    this.#input = input;
  }

  /** Rate of the frames' samples. */
  get sampleRateHz() {
    return this.#context.sampleRate;
  }

  /** Whether the chosen microphone was gone, so that the default one is used. */
  get isSubstitute() {
    return this.#opened.isSubstitute;
  }

  /**
   * Let the frames come.
   * @throws {ProblemError} The browser holds the audio back.
   */
  async start() {
    const cutter = new AudioWorkletNode(this.#context, "frame-cutter", {
      numberOfInputs: 1, numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit",
    });
    cutter.port.onmessage = ({ data }) => {
      if (data.samples) this.#emitFrame(new Int16Array(data.samples), data.peak);
    };
    this.#cutter = cutter;
    this.#follow(this.#opened);
    this.#input.connect(cutter);
    await within(this.#context.resume(), START_TIMEOUT_MS);
    if (this.#context.state !== "running") {
      this.close();
      throw new ProblemError(problem("audio-blocked"));
    }
    this.#context.onstatechange = () => {
      if (this.#context.state !== "closed") void this.#context.resume();
    };
  }

  /**
   * Change the source while frames keep coming at the same rate.
   * @param {CaptureOptions} options
   * @throws {ProblemError} The old source goes on.
   */
  async switchTo(options) {
    const opened = await openMedia(options);
    /** @type {MediaStreamAudioSourceNode} */
    let input;
    try {
      input = this.#context.createMediaStreamSource(opened.media);
    } catch {
      for (const track of opened.media.getTracks()) track.stop();
      throw new ProblemError(problem("busy"));
    }
    this.#input.disconnect();
    this.#release();
    this.#opened = opened;
    this.#input = input;
    this.#follow(opened);
    if (this.#cutter) input.connect(this.#cutter);
  }

  /** Stop; resolves once the last, possibly shorter frame was emitted. */
  async stop() {
    this.#context.onstatechange = null;
    if (!this.#cutter) {
      this.close();
      return;
    }
    const { port } = this.#cutter;
    const flushed = new Promise((resolve) => {
      port.onmessage = ({ data }) => {
        if (data.samples) this.#emitFrame(new Int16Array(data.samples), data.peak);
        if (data.end) resolve(undefined);
      };
    });
    port.postMessage("flush");
    await within(flushed, FLUSH_TIMEOUT_MS);
    this.close();
  }

  /** Release the device at once. */
  close() {
    this.#release();
    this.#context.onstatechange = null;
    if (this.#context.state !== "closed") void this.#context.close();
  }

  #release() {
    for (const track of this.#opened.media.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }

  /**
   * @param {Int16Array} samples
   * @param {number} peak
   */
  #emitFrame(samples, peak) {
    this.dispatchEvent(new CustomEvent("frame", { detail: { samples, peak } }));
  }

  /** @param {OpenedMedia} opened */
  #follow({ media, isShare }) {
    const [track] = media.getAudioTracks();
    track.onended = () => {
      const detail = problem(isShare ? "share-ended" : "unplugged");
      this.dispatchEvent(new CustomEvent("ended", { detail }));
    };
  }
}

/**
 * @param {CaptureOptions} options
 * @returns {Promise<OpenedMedia>}
 */
async function openMedia({ source, ...processing }) {
  if (source === TAB_SOURCE) return { media: await openTab(), isShare: true, isSubstitute: false };
  const audio = { channelCount: { ideal: 1 }, ...processing };
  if (source) {
    try {
      const exact = { ...audio, deviceId: { exact: source } };
      const media = await navigator.mediaDevices.getUserMedia({ audio: exact });
      return { media, isShare: false, isSubstitute: false };
    } catch (error) {
      const isGone = error instanceof Error && error.name === "OverconstrainedError";
      if (!isGone) throw new ProblemError(problemFromMedia(error, false));
    }
  }
  try {
    const media = await navigator.mediaDevices.getUserMedia({ audio });
    return { media, isShare: false, isSubstitute: source !== "" };
  } catch (error) {
    throw new ProblemError(problemFromMedia(error, false));
  }
}

/** @returns {Promise<MediaStream>} */
async function openTab() {
  /** @type {MediaStream} */
  let media;
  try {
    media = await navigator.mediaDevices.getDisplayMedia(/** @type {any} */ ({
      video: true,
      audio: {
        suppressLocalAudioPlayback: false,
        echoCancellation: false, noiseSuppression: false, autoGainControl: false,
      },
      selfBrowserSurface: "exclude",
      systemAudio: "include",
    }));
  } catch (error) {
    throw new ProblemError(problemFromMedia(error, true));
  }
  for (const track of media.getVideoTracks()) track.stop();
  if (media.getAudioTracks().length === 0) throw new ProblemError(problem("no-tab-sound"));
  return media;
}

/**
 * A context at the model's rate where the browser can resample its input, else at the device's.
 * @param {MediaStream} media
 * @returns {{context: AudioContext, input: MediaStreamAudioSourceNode}}
 */
function openContext(media) {
  for (const rateHz of [WANTED_RATE_HZ, undefined, MAX_RATE_HZ]) {
    /** @type {AudioContext | null} */
    let context = null;
    try {
      context = new AudioContext({ latencyHint: "interactive", sampleRate: rateHz });
      if (context.sampleRate > MAX_RATE_HZ) throw new RangeError("faster than the protocol allows");
      return { context, input: context.createMediaStreamSource(media) };
    } catch {
      // Firefox refuses to connect a source of another rate; some devices run at 96 kHz.
      void context?.close();
    }
  }
  throw new ProblemError(problem("unsupported"));
}

/**
 * Wait for a promise, but not for ever.
 * @param {Promise<unknown>} promise
 * @param {number} ms
 */
async function within(promise, ms) {
  let timer = 0;
  const timeout = new Promise((resolve) => { timer = window.setTimeout(resolve, ms); });
  await Promise.race([promise, timeout]);
  clearTimeout(timer);
}
