/** Joins the page's parts: as a source (a microphone) or, with ?watch=STREAM, as a viewer. */

import { CacheView } from "./cache_view.js";
import { LiveCaptions } from "./captions.js";
import { askClear, copyText, saveFile } from "./dialogs.js";
import { byId } from "./dom.js";
import { languageName } from "./languages.js";
import { Notices } from "./notices.js";
import { Settings, readToken } from "./settings.js";
import { bindControls, bindLooks } from "./settings_view.js";
import { runSource } from "./source_page.js";
import { SpeakerColours } from "./speakers.js";
import { toSrt, toText, toVtt } from "./subtitles.js";
import { Transcript } from "./transcript.js";
import { runViewer } from "./viewer_page.js";

/** @typedef {import("./protocol.js").PlacedCaption} PlacedCaption */

/** A lag above this is worth a sign. */
const LATE_MS = 2000;

/** @type {Record<string, {type: string, write: (captions: PlacedCaption[], about: Record<string, string>) => string}>} */
const FILES = {
  txt: { type: "text/plain;charset=utf-8", write: toText },
  srt: { type: "application/x-subrip;charset=utf-8", write: toSrt },
  vtt: { type: "text/vtt;charset=utf-8", write: toVtt },
};

/** What both kinds of page show. */
export class Board {
  settings;
  captions;
  transcript;
  notices;
  #cache = new CacheView(byId("cache", HTMLDetailsElement));
  #status = byId("status", HTMLElement);
  #hint = byId("hint", HTMLElement);
  #lag = byId("lag-chip", HTMLElement);
  #language = byId("language-chip", HTMLElement);

  /** @param {Settings} settings */
  constructor(settings) {
    this.settings = settings;
    const colours = new SpeakerColours();
    this.captions = new LiveCaptions(byId("captions", HTMLElement), colours);
    this.transcript = new Transcript(byId("log", HTMLElement), colours);
    this.notices = new Notices(byId("notices", HTMLElement));
    bindControls(settings);
    bindLooks(settings, () => {
      this.captions.isWhole = settings.values.display === "whole";
      this.captions.measureAgain();
    });
    this.#bindTranscript();
  }

  /** @param {PlacedCaption} caption */
  showCaption(caption) {
    if (caption.words.length > 0) this.#hint.hidden = true;
    this.captions.show(caption);
    if (caption.final) this.transcript.add(caption);
    if (caption.language) {
      this.#language.hidden = false;
      this.#language.textContent = languageName(caption.language);
    }
  }

  /**
   * @param {string} state A word that the style sheet knows.
   * @param {string} text For people.
   */
  showState(state, text) {
    document.body.dataset.state = state;
    if (state === "live") document.body.dataset.live = "";
    if (this.#status.textContent !== text) this.#status.textContent = text;
    if (state !== "live") this.#lag.hidden = true;
  }

  /** @param {string} text What to do first, shown where captions will be. */
  showHint(text) {
    this.#hint.textContent = text;
  }

  /** @param {number} lagMs How far the captions are behind the sound. */
  showLag(lagMs) {
    this.#lag.hidden = false;
    this.#lag.dataset.lag = lagMs > LATE_MS ? "late" : "fine";
    this.#lag.textContent = `${(lagMs / 1000).toFixed(1)} s behind`;
  }

  /** @param {import("./protocol.js").CacheCounters | undefined} cache What the server's cache holds. */
  showCache(cache) {
    this.#cache.show(cache);
  }

  #bindTranscript() {
    const { transcript } = this;
    const jump = byId("jump", HTMLButtonElement);
    const copy = byId("copy", HTMLButtonElement);
    const clear = byId("open-clear", HTMLButtonElement);
    /** @type {HTMLButtonElement[]} */
    const downloads = [...document.querySelectorAll("button[data-download]")].map(
      (button) => /** @type {HTMLButtonElement} */ (button),
    );
    transcript.addEventListener("follow", (event) => {
      const { isFollowing, unread } = /** @type {CustomEvent} */ (event).detail;
      jump.hidden = isFollowing;
      jump.textContent = unread > 0 ? `Jump to live (${unread} new)` : "Jump to live";
    });
    transcript.addEventListener("change", () => {
      const isEmpty = transcript.finals.length === 0;
      byId("empty", HTMLElement).hidden = !isEmpty;
      for (const button of [copy, clear, ...downloads]) button.disabled = isEmpty;
      const hidden = byId("hidden-lines", HTMLElement);
      hidden.hidden = transcript.nHidden === 0;
      hidden.textContent = `${transcript.nHidden} earlier lines are in the downloads.`;
    });
    jump.addEventListener("click", () => {
      transcript.jumpToEnd();
      byId("log", HTMLElement).focus();
    });
    copy.addEventListener("click", () => void copyText(toText(transcript.finals), copy));
    for (const button of downloads) {
      const kind = button.dataset.download ?? "";
      const { type, write } = FILES[kind];
      button.addEventListener("click", () => {
        saveFile(fileName(kind), write(transcript.finals, transcript.about), type);
      });
    }
    clear.addEventListener("click", async () => {
      if (!(await askClear())) return;
      transcript.clear();
      this.captions.clear();
    });
  }
}

/** @param {string} kind */
function fileName(kind) {
  const now = new Date();
  const pad = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${now.getFullYear()}-${pad(now.getMonth() + 1)}-${pad(now.getDate())}`;
  return `captions-${day}-${pad(now.getHours())}${pad(now.getMinutes())}.${kind}`;
}

function main() {
  const parameters = new URLSearchParams(location.search);
  const token = readToken(location);
  if (parameters.get("overlay") === "1") document.documentElement.dataset.overlay = "";
  const settings = new Settings(localStorage, parameters);
  const board = new Board(settings);
  const dialog = byId("settings", HTMLDialogElement);
  byId("open-settings", HTMLButtonElement).addEventListener("click", () => dialog.showModal());
  const stream = parameters.get("watch");
  if (stream) runViewer(board, stream, token);
  else runSource(board, token);
}

main();
