/** The page as a viewer: captions of a stream that runs elsewhere, without a click. */

import { askToken } from "./dialogs.js";
import { LinkNotice } from "./notices.js";
import { socketUrl } from "./protocol.js";
import { storeToken } from "./settings.js";
import { WatchLink } from "./watch_link.js";

/** @type {Record<string, string>} */
const STATES = {
  connecting: "Connecting…",
  live: "Live",
  waiting: "Reconnecting…",
  token: "Token needed",
  ended: "The stream has ended",
  failed: "Stopped",
};

/**
 * @param {import("./app.js").Board} board
 * @param {string} stream
 * @param {string} token
 */
export function runViewer(board, stream, token) {
  document.body.dataset.mode = "viewer";
  board.showHint("Captions appear here as soon as somebody speaks.");
  const url = socketUrl(`v1/watch/${encodeURIComponent(stream)}`, document.baseURI);
  const link = new WatchLink({ url, token });
  const linkNotice = new LinkNotice(board.notices);
  link.addEventListener("ready", (event) => {
    board.transcript.about = /** @type {CustomEvent} */ (event).detail.metadata ?? {};
  });
  link.addEventListener("caption", (event) => {
    board.showCaption(/** @type {CustomEvent} */ (event).detail);
  });
  link.addEventListener("message", (event) => {
    /** @type {import("./protocol.js").ServerMessage} */
    const message = /** @type {CustomEvent} */ (event).detail;
    if (message.type === "progress") board.showCache(message.cache);
  });
  link.addEventListener("state", (event) => {
    const { state, problem } = /** @type {CustomEvent} */ (event).detail;
    board.showState(state, STATES[state]);
    linkNotice.update(state, problem);
    if (state === "token") void enterToken(link, problem);
  });
  link.open();
}

/**
 * @param {WatchLink} link
 * @param {import("./problems.js").Problem} reason
 */
async function enterToken(link, reason) {
  const token = await askToken(reason);
  if (token) {
    storeToken(token);
    link.setToken(token);
  } else link.end("failed", reason);
}
