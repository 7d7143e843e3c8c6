/** Audio that may have to be sent again, addressed by its sample number. */

/** @typedef {{start: number, samples: Int16Array}} Chunk */

/** Chunks dropped from the front are given up in one go, so that dropping stays cheap. */
const COMPACT_AFTER_CHUNKS = 1024;

/**
 * Keeps the newest samples of a recording, up to a limit.
 *
 * Positions count samples from the start of the recording and never restart.
 */
export class KeptAudio {
  /** @type {Chunk[]} */
  #chunks = [];
  #head = 0;
  #end = 0;
  #limitSamples;

  /** @param {number} limitSamples Older samples are given up beyond this many. */
  constructor(limitSamples) {
    this.#limitSamples = limitSamples;
  }

  /** Position of the oldest kept sample. */
  get start() {
    return this.#head < this.#chunks.length ? this.#chunks[this.#head].start : this.#end;
  }

  /** Position after the newest sample. */
  get end() {
    return this.#end;
  }

  /**
   * Take samples over; the caller must not change them afterwards.
   * @param {Int16Array} samples
   */
  append(samples) {
    if (samples.length === 0) return;
    this.#chunks.push({ start: this.#end, samples });
    this.#end += samples.length;
    this.dropBefore(this.#end - this.#limitSamples);
  }

  /**
   * Give up whole chunks that end at or before a position.
   * @param {number} position
   */
  dropBefore(position) {
    while (this.#head < this.#chunks.length) {
      const { start, samples } = this.#chunks[this.#head];
      if (start + samples.length > position) break;
      this.#head += 1;
    }
    if (this.#head > COMPACT_AFTER_CHUNKS) {
      this.#chunks = this.#chunks.slice(this.#head);
      this.#head = 0;
    }
  }

  /**
   * Copy samples from a position on.
   * @param {number} from Not before `start`.
   * @param {number} maxSamples
   * @returns {Int16Array} Empty at the end.
   */
  read(from, maxSamples) {
    if (from < this.start) throw new RangeError(`Sample ${from} is no longer kept.`);
    const out = new Int16Array(Math.max(0, Math.min(maxSamples, this.#end - from)));
    let filled = 0;
    for (let i = this.#indexOf(from); filled < out.length; i += 1) {
      const { start, samples } = this.#chunks[i];
      const skip = from + filled - start;
      const part = samples.subarray(skip, skip + out.length - filled);
      out.set(part, filled);
      filled += part.length;
    }
    return out;
  }

  /**
   * Index of the chunk that holds a position.
   * @param {number} position
   */
  #indexOf(position) {
    let low = this.#head;
    let high = this.#chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#chunks[middle].start <= position) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
