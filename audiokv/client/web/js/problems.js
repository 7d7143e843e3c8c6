/** What can go wrong, in words that say what to do about it. */

/**
 * @typedef {object} Problem
 * @property {string} id
 * @property {string} title
 * @property {string} remedy
 */

/** @type {Record<string, [title: string, remedy: string]>} */
const TEXTS = {
  insecure: [
    "This page may not use the microphone, because its address is not secure.",
    "Open it over https, or on this computer as http://localhost with the same port.",
  ],
  unsupported: [
    "This browser cannot record audio the way this page needs it.",
    "Use a current Chrome, Edge, Firefox or Safari.",
  ],
  denied: [
    "The browser does not let this page use the microphone.",
    "Allow the microphone in the site settings beside the address, then press Start again.",
  ],
  "no-device": [
    "No microphone was found.",
    "Plug one in, or choose the sound of a tab as the source, then press Start again.",
  ],
  busy: [
    "The microphone could not be opened.",
    "Close other programs that use it, or choose another source, then press Start again.",
  ],
  unplugged: [
    "The microphone was disconnected.",
    "Plug it in again or choose another source, then press Start. Your transcript is kept.",
  ],
  "device-gone": [
    "The chosen microphone is not there any more, so the default one is used.",
    "Choose another source if that is not the one you want.",
  ],
  "share-denied": [
    "No tab was shared.",
    "Press Start again and choose a tab.",
  ],
  "share-ended": [
    "Sharing has ended.",
    "Press Start to share again. Your transcript is kept.",
  ],
  "no-tab-sound": [
    "What you shared has no sound.",
    "Press Start again, choose a tab, and switch on “Also share tab audio”.",
  ],
  "audio-blocked": [
    "The browser did not start the audio.",
    "Press Start again; if that does not help, reload the page.",
  ],
  silent: [
    "No sound arrives.",
    "Check that the microphone is not muted and that the right source is chosen.",
  ],
  unreachable: [
    "The caption server cannot be reached.",
    "Check that it is running. The page keeps trying, and keeps what you say meanwhile.",
  ],
  refused: [
    "The caption server refuses the connection.",
    "Open the page from the server's own address, or ask whoever runs it.",
  ],
  "bad-server": [
    "The server sends what this page does not understand.",
    "Reload the page, so that it fits the server.",
  ],
  full: [
    "The caption server is full.",
    "The page tries again by itself, and keeps what you say meanwhile.",
  ],
  token: [
    "The server wants an access token.",
    "Enter the token that the server was started with.",
  ],
  "bad-token": [
    "This token cannot be sent by a browser.",
    "Use one made of letters, digits and . - _ ~ only.",
  ],
  "audio-lost": [
    "The connection was away for too long, so some audio is lost.",
    "Captions go on with what was kept.",
  ],
  incomplete: [
    "The server did not answer in time, so the last words may be missing.",
    "The transcript holds everything that arrived.",
  ],
  "stream-unknown": [
    "There is no such stream.",
    "It has not begun or is over. The page keeps looking for it.",
  ],
  failed: [
    "The stream was ended by an error.",
    "Press Start to begin a new one. Your transcript is kept.",
  ],
};

/** An error that carries its problem, for code that throws. */
export class ProblemError extends Error {
  /** @param {Problem} found */
  constructor(found) {
    super(found.title);
    this.problem = found;
  }
}

/**
 * @param {string} id One of the known problems.
 * @returns {Problem}
 */
export function problem(id) {
  const [title, remedy] = TEXTS[id];
  return { id, title, remedy };
}

/**
 * What the server said, or a stand-in where it said nothing.
 * @param {{code: string, message: string, remedy?: string} | null} message
 * @param {string} fallbackId
 * @returns {Problem}
 */
export function problemFromServer(message, fallbackId) {
  if (!message) return problem(fallbackId);
  return {
    id: message.code,
    title: message.message,
    remedy: message.remedy || TEXTS[fallbackId][1],
  };
}

/**
 * Turn what getUserMedia or getDisplayMedia threw into a problem.
 * @param {unknown} error
 * @param {boolean} isShare
 * @returns {Problem}
 */
export function problemFromMedia(error, isShare) {
  const name = error instanceof Error ? error.name : "";
  if (name === "NotAllowedError" || name === "SecurityError") {
    return problem(isShare ? "share-denied" : "denied");
  }
  if (name === "NotFoundError" || name === "OverconstrainedError") return problem("no-device");
  return problem("busy");
}
