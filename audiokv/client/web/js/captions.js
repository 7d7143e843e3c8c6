/**
 * The live captions: a box of a fixed number of lines that rolls up.
 *
 * Committed words are never touched again; only the tail after them is replaced. The box is a
 * picture for the eye and hidden from screen readers, which read the transcript.
 */

/** @typedef {import("./protocol.js").PlacedCaption} PlacedCaption */
/** @typedef {import("./protocol.js").Word} Word */

/** More than ten changes a second only flicker. */
const MIN_INTERVAL_MS = 100;
/** Older segments have rolled out of any box that can be set. */
const KEPT_SEGMENTS = 6;

/** One segment: a paragraph whose words are spans. */
class SegmentView {
  element = document.createElement("p");
  isFinal = false;
  #body = document.createElement("span");
  /** @type {{span: HTMLSpanElement, space: Text, text: string, isFinal: boolean}[]} */
  #words = [];
  #tallestPx = 0;

  #name = document.createElement("span");
  #before;
  #colours;

  /**
   * @param {string | null} before Speaker of the segment before; only another one is named.
   * @param {import("./speakers.js").SpeakerColours} colours
   */
  constructor(before, colours) {
    this.#before = before;
    this.#colours = colours;
    this.element.className = "segment";
    this.element.dir = "auto";
    this.#name.className = "speaker";
    this.#name.dir = "auto"; // So that the name does not decide the direction of the words.
    this.element.append(this.#body);
  }

  /** @param {string | null} speaker May become known, or change, until the segment is final. */
  #showSpeaker(speaker) {
    const text = speaker && speaker !== this.#before ? `${speaker}: ` : "";
    if (this.#name.textContent === text) return;
    this.#name.textContent = text;
    if (speaker) this.#name.style.setProperty("--speaker", this.#colours.of(speaker));
    if (text) this.#body.before(this.#name);
    else this.#name.remove();
  }

  /** @param {PlacedCaption} caption */
  show(caption) {
    this.isFinal = caption.final;
    if (caption.language) this.element.lang = caption.language;
    this.#showSpeaker(caption.speaker);
    const { words } = caption;
    for (const { span, space } of this.#words.splice(words.length)) {
      span.remove();
      space.remove();
    }
    words.forEach((word, index) => this.#showWord(index, word, caption.final || word.final));
    this.#keepHeight();
  }

  /** Forget the reserved height, after the type size or the width changed. */
  measureAgain() {
    this.#tallestPx = 0;
    this.#keepHeight();
  }

  /**
   * @param {number} index
   * @param {Word} word
   * @param {boolean} isFinal
   */
  #showWord(index, word, isFinal) {
    let shown = this.#words[index];
    if (!shown) {
      shown = {
        span: document.createElement("span"), space: document.createTextNode(""), text: "",
        isFinal: false,
      };
      this.#words.push(shown);
      this.#body.append(shown.space, shown.span);
    }
    const space = index > 0 && word.space_before !== false ? " " : "";
    if (shown.space.data !== space) shown.space.data = space;
    if (shown.text !== word.text) {
      shown.text = word.text;
      shown.span.textContent = word.text;
    }
    shown.isFinal = isFinal;
    const className = isFinal ? "word" : "word tentative";
    if (shown.span.className !== className) shown.span.className = className;
  }

  /** A tail that got shorter must not make the lines above fall back down. */
  #keepHeight() {
    this.element.style.minHeight = "";
    this.#tallestPx = Math.max(this.#tallestPx, this.element.getBoundingClientRect().height);
    this.element.style.minHeight = `${this.#tallestPx}px`;
  }
}

/** Shows captions in a box. */
export class LiveCaptions {
  #box;
  #colours;
  /** @type {Map<string, SegmentView>} */
  #segments = new Map();
  /** @type {Map<string, PlacedCaption>} */
  #due = new Map();
  #shownAtMs = -Infinity;
  #timer = 0;
  #isWhole = false;
  /** @type {string | null} */
  #speaker = null;

  /**
   * @param {HTMLElement} box
   * @param {import("./speakers.js").SpeakerColours} colours
   */
  constructor(box, colours) {
    this.#box = box;
    this.#colours = colours;
    new ResizeObserver(() => {
      for (const segment of this.#segments.values()) segment.measureAgain();
    }).observe(box);
  }

  /**
   * Whether to show segments only when they are final, for readers whom running words tire.
   * @param {boolean} isWhole
   */
  set isWhole(isWhole) {
    this.#isWhole = isWhole;
  }

  /** Remove everything. */
  clear() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#due.clear();
    this.#segments.clear();
    this.#speaker = null;
    this.#box.replaceChildren();
  }

  /** Lay the lines out anew after the type size changed. */
  measureAgain() {
    for (const segment of this.#segments.values()) segment.measureAgain();
  }

  /**
   * Show a caption now or, when captions come too fast, with the next picture.
   * @param {PlacedCaption} caption
   */
  show(caption) {
    if (this.#isWhole && !caption.final) return;
    this.#due.set(caption.key, caption);
    if (this.#timer) return;
    const waitMs = MIN_INTERVAL_MS - (performance.now() - this.#shownAtMs);
    if (waitMs <= 0) this.#draw();
    else this.#timer = window.setTimeout(() => this.#draw(), waitMs);
  }

  #draw() {
    this.#timer = 0;
    this.#shownAtMs = performance.now();
    for (const caption of this.#due.values()) this.#drawOne(caption);
    this.#due.clear();
  }

  /** @param {PlacedCaption} caption */
  #drawOne(caption) {
    let segment = this.#segments.get(caption.key);
    if (caption.words.length === 0) {
      segment?.element.remove();
      this.#segments.delete(caption.key);
      return;
    }
    if (!segment) {
      segment = new SegmentView(this.#speaker, this.#colours);
      this.#segments.set(caption.key, segment);
      this.#box.append(segment.element);
      this.#forgetOldest();
    }
    if (segment.element === this.#box.lastElementChild) this.#speaker = caption.speaker;
    segment.show(caption);
  }

  #forgetOldest() {
    const [oldest] = this.#segments;
    if (this.#segments.size <= KEPT_SEGMENTS || !oldest) return;
    oldest[1].element.remove();
    this.#segments.delete(oldest[0]);
  }
}
