/**
 * A transcript as a file: plain text, SubRip (.srt) or WebVTT (.vtt).
 *
 * Cues are zero-based on the audio's clock, in order, and never overlap.
 */

import { joinWords } from "./protocol.js";

/** @typedef {import("./protocol.js").PlacedCaption} PlacedCaption */
/** @typedef {import("./protocol.js").Word} Word */
/**
 * @typedef {object} Cue
 * @property {number} startMs
 * @property {number} endMs
 * @property {string[]} lines
 * @property {string | null} speaker
 */

/** Width of a line in half-width characters, after Netflix's guides for each language. */
const LINE_COLUMNS = 42;
/** @type {Record<string, number>} */
const LINE_COLUMNS_OF = { zh: 32, yue: 32, ko: 32, ja: 26 };
const CUE_LINES = 2;
const MAX_CUE_MS = 7000;
/** A shorter cue cannot be read. */
const MIN_CUE_MS = 833;
const SENTENCE_END = /[.!?…。！？।؟]["'”’»)]*$/u;
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}\p{Emoji_Presentation}]/u;

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/**
 * Columns a text takes: wide characters and emoji take two, whatever marks they carry.
 * @param {string} text
 */
function columns(text) {
  let n = 0;
  for (const { segment } of graphemes.segment(text)) n += WIDE.test(segment) ? 2 : 1;
  return n;
}

/**
 * Break words into lines that fit; a word longer than a line is cut between characters.
 * @param {Word[]} words
 * @param {number} width In columns.
 * @returns {string[]}
 */
function wrap(words, width) {
  /** @type {string[]} */
  const lines = [];
  let line = "";
  for (const word of words) {
    const space = line && word.space_before !== false ? " " : "";
    if (columns(line + space + word.text) <= width) {
      line += space + word.text;
      continue;
    }
    if (line) lines.push(line);
    line = "";
    for (const { segment } of graphemes.segment(word.text)) {
      if (columns(line + segment) > width) {
        lines.push(line);
        line = "";
      }
      line += segment;
    }
  }
  if (line) lines.push(line);
  return lines;
}

/**
 * Cut a segment where it would be too long to show, after a sentence where one ends late enough.
 * @param {Word[]} words
 * @param {number} width
 * @returns {Word[][]}
 */
function cut(words, width) {
  /** @type {Word[][]} */
  const parts = [];
  /** @type {Word[]} */
  let part = [];
  for (const word of words) {
    const longer = [...part, word];
    const isTooLong = wrap(longer, width).length > CUE_LINES
      || word.end_ms - longer[0].start_ms > MAX_CUE_MS;
    if (isTooLong && part.length > 0) {
      const sentence = part.findLastIndex((w) => SENTENCE_END.test(w.text)) + 1;
      const keep = sentence > part.length / 2 ? sentence : part.length;
      parts.push(part.slice(0, keep));
      part = [...part.slice(keep), word];
    } else part = longer;
  }
  if (part.length > 0) parts.push(part);
  return parts;
}

/**
 * Subtitle cues of a transcript.
 * @param {PlacedCaption[]} captions Finals in order.
 * @returns {Cue[]}
 */
export function cuesOf(captions) {
  /** @type {Cue[]} */
  const cues = [];
  // Two channels may finish their segments in another order than they began them.
  const inOrder = [...captions].sort((a, b) => a.start_ms - b.start_ms);
  for (const { words, speaker, language } of inOrder) {
    const width = LINE_COLUMNS_OF[language ?? ""] ?? LINE_COLUMNS;
    for (const part of cut(words, width)) {
      const previousEndMs = cues.at(-1)?.endMs ?? 0;
      const startMs = Math.max(0, previousEndMs, part[0].start_ms);
      const endMs = Math.max(startMs + 1, part[part.length - 1].end_ms);
      cues.push({ startMs, endMs, lines: wrap(part, width), speaker });
    }
  }
  cues.forEach((cue, index) => {
    const roomMs = cues[index + 1]?.startMs ?? Infinity;
    cue.endMs = Math.max(cue.endMs, Math.min(cue.startMs + MIN_CUE_MS, roomMs));
  });
  return cues;
}

/**
 * @param {number} ms
 * @param {string} mark Between seconds and milliseconds.
 */
export function timestamp(ms, mark) {
  const whole = Math.max(0, Math.round(ms));
  const pad = (/** @type {number} */ value, /** @type {number} */ width) =>
    String(Math.floor(value)).padStart(width, "0");
  const hours = pad(whole / 3_600_000, 2);
  const minutes = pad((whole / 60_000) % 60, 2);
  const seconds = pad((whole / 1000) % 60, 2);
  return `${hours}:${minutes}:${seconds}${mark}${pad(whole % 1000, 3)}`;
}

/** One line of text without anything that a subtitle file would read as structure. @param {string} text */
function flat(text) {
  return text.replace(/\s+/gu, " ").trim();
}

/** @param {string} text */
function escapeVtt(text) {
  return flat(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/**
 * @param {PlacedCaption[]} captions
 * @returns {string}
 */
export function toSrt(captions) {
  return cuesOf(captions).map(({ startMs, endMs, lines, speaker }, index) => {
    const name = speaker ? `${speaker}: ` : "";
    // SubRip has no escapes; only its arrow would be read as structure.
    const text = lines.map((line, i) => flat((i === 0 ? name : "") + line).replaceAll("-->", "→"));
    return `${index + 1}\n${timestamp(startMs, ",")} --> ${timestamp(endMs, ",")}\n${text.join("\n")}\n`;
  }).join("\n");
}

/**
 * What is known about the stream, a line each; in WebVTT they are a comment.
 * @param {Record<string, string>} about
 */
function aboutLines(about) {
  const lines = Object.entries(about).map(([name, text]) => flat(`${name}: ${text}`));
  return lines.map((line) => `${line.replaceAll("-->", "→")}\n`).join("");
}

/**
 * @param {PlacedCaption[]} captions
 * @param {Record<string, string>} about
 * @returns {string}
 */
export function toVtt(captions, about = {}) {
  const cues = cuesOf(captions).map(({ startMs, endMs, lines, speaker }) => {
    const voice = speaker ? `<v ${escapeVtt(speaker)}>` : "";
    const text = lines.map(escapeVtt).join("\n");
    return `\n${timestamp(startMs, ".")} --> ${timestamp(endMs, ".")}\n${voice}${text}\n`;
  });
  const known = aboutLines(about);
  return `WEBVTT\n${known && `\nNOTE\n${known}`}${cues.join("")}`;
}

/**
 * Plain text, a line a segment, after what is known about the stream.
 * @param {PlacedCaption[]} captions
 * @param {Record<string, string>} about
 * @returns {string}
 */
export function toText(captions, about = {}) {
  const known = aboutLines(about);
  const lines = captions.map(({ words, speaker }) => {
    const name = speaker ? `${speaker}: ` : "";
    return `${name}${flat(joinWords(words))}\n`;
  });
  return `${known && `${known}\n`}${lines.join("")}`;
}
