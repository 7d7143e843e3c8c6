/** The page as a source: start and stop, choice of microphone and language, sharing. */

import { TAB_SOURCE, canShareTab, listMicrophones } from "./capture.js";
import { askToken, copyText } from "./dialogs.js";
import { byId } from "./dom.js";
import { languageChoices, rememberLanguages, rememberedLanguages } from "./languages.js";
import { LinkNotice } from "./notices.js";
import { problem } from "./problems.js";
import { socketUrl } from "./protocol.js";
import { Recorder } from "./recorder.js";
import { DEFAULTS, storeToken } from "./settings.js";
import { fillSelect } from "./settings_view.js";

/** @typedef {import("./app.js").Board} Board */
/** @typedef {import("./problems.js").Problem} Problem */
/** @typedef {import("./settings.js").SettingName} SettingName */

/** @type {Record<string, string>} */
const STATES = {
  idle: "Ready",
  starting: "Waiting for the microphone…",
  connecting: "Connecting…",
  live: "Live",
  waiting: "Reconnecting…",
  token: "Token needed",
  stopping: "Finishing the last words…",
};
/** @type {Record<string, string>} */
const BUTTONS = { idle: "Start", starting: "Starting…", stopping: "Do not wait" };
const METER_FALL = 0.86;

/**
 * @param {Board} board
 * @param {string} token
 */
export function runSource(board, token) {
  const { settings, notices } = board;
  const recorder = new Recorder(socketUrl("v1/stream", document.baseURI));
  const linkNotice = new LinkNotice(notices);
  const toggle = byId("toggle", HTMLButtonElement);
  let currentToken = token;

  toggle.addEventListener("click", () => {
    if (recorder.state === "idle") {
      notices.clear();
      void recorder.start(settings.values, currentToken).then(() => fillSources(board));
    } else void recorder.stop();
  });
  recorder.addEventListener("caption", (event) => {
    board.showCaption(/** @type {CustomEvent} */ (event).detail);
  });
  recorder.addEventListener("state", (event) => {
    const { state, problem: reason } = /** @type {CustomEvent} */ (event).detail;
    board.showState(state, STATES[state]);
    toggle.classList.toggle("is-recording", state !== "idle");
    byId("toggle-label", HTMLElement).textContent = BUTTONS[state] ?? "Stop";
    linkNotice.update(state, reason);
    if (state === "token") void enterToken(reason);
  });
  recorder.addEventListener("problem", (event) => {
    notices.show(/** @type {CustomEvent<Problem>} */ (event).detail);
  });
  recorder.addEventListener("solved", (event) => {
    notices.remove(/** @type {CustomEvent<string>} */ (event).detail);
  });
  recorder.addEventListener("message", (event) => showMessage(board, recorder, event));
  recorder.addEventListener("ready", (event) => {
    /** @type {import("./protocol.js").Ready} */
    const { languages, stream } = /** @type {CustomEvent} */ (event).detail;
    if (languages && languages.length > 0) {
      rememberLanguages(languages);
      fillLanguages(board, languages);
    }
    bindShare(stream);
  });

  /** @param {Problem} reason */
  async function enterToken(reason) {
    currentToken = await askToken(reason);
    if (currentToken) {
      storeToken(currentToken);
      recorder.setToken(currentToken);
    } else {
      await recorder.stop();
      notices.show(reason);
    }
  }

  settings.addEventListener("change", (event) => {
    onSettings(recorder, board, /** @type {CustomEvent} */ (event).detail.names);
  });
  window.addEventListener("beforeunload", (event) => {
    if (recorder.state !== "idle") event.preventDefault();
  });
  byId("reset-settings", HTMLButtonElement).addEventListener("click", () => settings.set(DEFAULTS));
  navigator.mediaDevices?.addEventListener("devicechange", () => void fillSources(board));
  bindMeter(recorder);
  bindCopyButtons();
  fillLanguages(board, rememberedLanguages());
  void fillSources(board);
  if (!window.isSecureContext) notices.show(problem("insecure"));
}

/**
 * @param {Recorder} recorder
 * @param {Board} board
 * @param {SettingName[]} names
 */
function onSettings(recorder, board, names) {
  const { values } = board.settings;
  if (names.includes("language")) recorder.update({ language: values.language });
  if (names.includes("prompt")) recorder.update({ prompt: values.prompt });
  /** @type {SettingName[]} */
  const concerned = ["source", "echoCancellation", "noiseSuppression", "autoGainControl"];
  if (concerned.some((name) => names.includes(name))) void recorder.switchSource(values);
}

/**
 * @param {Board} board
 * @param {Recorder} recorder
 * @param {Event} event
 */
function showMessage(board, recorder, event) {
  /** @type {import("./protocol.js").ServerMessage} */
  const message = /** @type {CustomEvent} */ (event).detail;
  if (message.type === "progress") board.showCache(message.cache);
  if (message.type === "progress" && recorder.state === "live") {
    board.showLag(message.lag_ms + recorder.waitingMs);
  } else if (message.type === "warning") {
    board.notices.show({ id: message.code, title: message.message, remedy: message.remedy ?? "" });
  }
}

/** @param {Board} board */
async function fillSources(board) {
  const microphones = await listMicrophones();
  const choices = [
    { value: "", label: "Default microphone" },
    ...microphones
      .filter(({ id }) => id !== "default")
      .map(({ id, label }) => ({ value: id, label })),
    ...(canShareTab() ? [{ value: TAB_SOURCE, label: "The sound of a tab…" }] : []),
  ];
  fillSelect(byId("source", HTMLSelectElement), choices, board.settings.values.source);
}

/**
 * @param {Board} board
 * @param {string[]} codes
 */
function fillLanguages(board, codes) {
  const { language } = board.settings.values;
  const known = language === "auto" || codes.includes(language) ? codes : [...codes, language];
  fillSelect(byId("language", HTMLSelectElement), languageChoices(known), language);
}

/** Show the level once a picture, falling slowly, so that it can be read. @param {Recorder} recorder */
function bindMeter(recorder) {
  const meter = byId("meter", HTMLElement);
  let level = 0;
  let isDue = false;
  recorder.addEventListener("level", (event) => {
    const peak = /** @type {CustomEvent<number>} */ (event).detail;
    level = Math.max(peak, level * METER_FALL);
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      // The ear is logarithmic: 60 dB from end to end.
      const decibels = 20 * Math.log10(Math.max(level, 1e-6));
      meter.style.setProperty("--level", Math.max(0, 1 + decibels / 60).toFixed(3));
    });
  });
  recorder.addEventListener("state", () => {
    if (recorder.state !== "idle") return;
    level = 0;
    meter.style.setProperty("--level", "0");
  });
}

/** @param {string} stream */
function bindShare(stream) {
  const open = byId("open-share", HTMLButtonElement);
  const address = new URL(location.pathname, location.href);
  address.searchParams.set("watch", stream);
  byId("watch-link", HTMLInputElement).value = address.href;
  address.searchParams.set("overlay", "1");
  byId("overlay-link", HTMLInputElement).value = address.href;
  open.hidden = false;
  open.onclick = () => byId("share-dialog", HTMLDialogElement).showModal();
}

function bindCopyButtons() {
  for (const element of document.querySelectorAll("button[data-copy]")) {
    const button = /** @type {HTMLButtonElement} */ (element);
    button.addEventListener("click", () => {
      void copyText(byId(button.dataset.copy ?? "", HTMLInputElement).value, button);
    });
  }
}
