/** The transcript: every final caption, kept for the downloads and shown as a log. */

import { joinWords } from "./protocol.js";

/** @typedef {import("./protocol.js").PlacedCaption} PlacedCaption */

/** Lines in the page; older ones stay in the transcript and its downloads. */
const SHOWN_LINES = 1000;
/** Nearer to the end than this counts as being there. */
const AT_END_PX = 48;

/**
 * @param {number} ms
 * @returns {string} Such as 4:07 or 1:02:03.
 */
export function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  const pad = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  const start = hours > 0 ? `${hours}:${pad(minutes)}` : String(minutes);
  return `${start}:${pad(seconds % 60)}`;
}

/** Events: `change`, and `follow` (detail {isFollowing, unread}) when the reader scrolls. */
export class Transcript extends EventTarget {
  /** @type {PlacedCaption[]} */
  #finals = [];
  /** @type {Record<string, string>} What is known about the stream, such as who calls; for downloads. */
  about = {};
  /** @type {Set<string>} */
  #keys = new Set();
  #log;
  #colours;
  #isFollowing = true;
  #unread = 0;
  #nHidden = 0;

  /**
   * @param {HTMLElement} log An element with role="log" that scrolls.
   * @param {import("./speakers.js").SpeakerColours} colours
   */
  constructor(log, colours) {
    super();
    this.#log = log;
    this.#colours = colours;
    log.addEventListener("scroll", () => this.#noteScroll(), { passive: true });
  }

  /** Final captions in the order of time. */
  get finals() {
    return this.#finals;
  }

  /** Lines that are only in the downloads. */
  get nHidden() {
    return this.#nHidden;
  }

  /**
   * Take a final caption; one that came before, or without words, changes nothing.
   * @param {PlacedCaption} caption
   */
  add(caption) {
    if (this.#keys.has(caption.key) || caption.words.length === 0) return;
    this.#keys.add(caption.key);
    const before = this.#finals.at(-1);
    this.#finals.push(caption);
    this.#log.append(lineOf(caption, before?.speaker ?? null, this.#colours));
    if (this.#log.childElementCount > SHOWN_LINES) {
      this.#log.firstElementChild?.remove();
      this.#nHidden += 1;
    }
    if (this.#isFollowing) this.jumpToEnd();
    else {
      this.#unread += 1;
      this.#tellFollow();
    }
    this.dispatchEvent(new Event("change"));
  }

  /** Forget everything. */
  clear() {
    this.#finals = [];
    this.#keys.clear();
    this.#nHidden = 0;
    this.#log.replaceChildren();
    this.jumpToEnd();
    this.dispatchEvent(new Event("change"));
  }

  /** Show the newest line and follow the next ones. */
  jumpToEnd() {
    this.#isFollowing = true;
    this.#unread = 0;
    this.#log.scrollTop = this.#log.scrollHeight;
    this.#tellFollow();
  }

  #noteScroll() {
    const { scrollTop, clientHeight, scrollHeight } = this.#log;
    const isAtEnd = scrollHeight - clientHeight - scrollTop < AT_END_PX;
    if (isAtEnd === this.#isFollowing) return;
    this.#isFollowing = isAtEnd;
    if (isAtEnd) this.#unread = 0;
    this.#tellFollow();
  }

  #tellFollow() {
    const detail = { isFollowing: this.#isFollowing, unread: this.#unread };
    this.dispatchEvent(new CustomEvent("follow", { detail }));
  }
}

/**
 * @param {PlacedCaption} caption
 * @param {string | null} speakerBefore
 * @param {import("./speakers.js").SpeakerColours} colours
 * @returns {HTMLElement}
 */
function lineOf(caption, speakerBefore, colours) {
  const line = document.createElement("div");
  line.className = "line";
  const time = document.createElement("span");
  time.className = "time";
  time.setAttribute("aria-hidden", "true");
  time.textContent = clock(caption.start_ms);
  const text = document.createElement("p");
  text.dir = "auto";
  if (caption.language) text.lang = caption.language;
  if (caption.speaker && caption.speaker !== speakerBefore) {
    const name = document.createElement("b");
    name.className = "speaker";
    name.dir = "auto"; // So that the name does not decide the direction of the words.
    name.style.setProperty("--speaker", colours.of(caption.speaker));
    name.textContent = `${caption.speaker}: `;
    text.append(name);
  }
  text.append(document.createTextNode(joinWords(caption.words)));
  line.append(time, text);
  return line;
}
