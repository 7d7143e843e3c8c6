/**
 * Runs on the audio thread: cuts the input into 10 ms frames of 16-bit samples.
 *
 * Posts {samples: ArrayBuffer, peak: 0..1}; answers "flush" with the started frame and {end: true}.
 */

const FRAMES_PER_SECOND = 100;

class FrameCutter extends AudioWorkletProcessor {
  constructor() {
    super();
    this.frameSamples = Math.round(sampleRate / FRAMES_PER_SECOND);
    this.isOver = false;
    this.begin();
    this.port.onmessage = (event) => {
      if (event.data === "flush") this.flush();
    };
  }

  begin() {
    this.frame = new Int16Array(this.frameSamples);
    this.filled = 0;
    this.peak = 0;
  }

  flush() {
    this.isOver = true;
    if (this.filled > 0) this.post(this.frame.slice(0, this.filled));
    this.port.postMessage({ end: true });
  }

  /** @param {Int16Array} frame */
  post(frame) {
    const samples = frame.buffer;
    this.port.postMessage({ samples, peak: this.peak }, [samples]);
  }

  /** @param {Float32Array[][]} inputs */
  process(inputs) {
    if (this.isOver) return false;
    const channel = inputs[0]?.[0];
    if (!channel) return true;
    for (const value of channel) {
      // 32768, so that audio that was 16-bit before comes out as the same integers.
      const scaled = Math.round(value * 32768);
      this.frame[this.filled] = Math.max(-32768, Math.min(32767, scaled));
      this.peak = Math.max(this.peak, Math.abs(value));
      this.filled += 1;
      if (this.filled === this.frameSamples) {
        this.post(this.frame);
        this.begin();
      }
    }
    return true;
  }
}

registerProcessor("frame-cutter", FrameCutter);
