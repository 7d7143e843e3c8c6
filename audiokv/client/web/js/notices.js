/** Problems, each shown once and read out by screen readers. */

/** @typedef {import("./problems.js").Problem} Problem */

export class Notices {
  #list;
  /** @type {Map<string, HTMLElement>} */
  #shown = new Map();

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
  }

  /** @param {Problem} found */
  show({ id, title, remedy }) {
    if (this.#shown.get(id)?.dataset.title === title) return;
    this.remove(id);
    const notice = document.createElement("div");
    notice.className = "notice";
    notice.setAttribute("role", "alert");
    notice.dataset.problem = id;
    notice.dataset.title = title;
    const text = document.createElement("p");
    const strong = document.createElement("b");
    strong.textContent = title;
    text.append(strong, document.createTextNode(remedy));
    const close = document.createElement("button");
    close.type = "button";
    close.className = "quiet";
    close.textContent = "Dismiss";
    close.addEventListener("click", () => this.remove(id));
    notice.append(text, close);
    this.#shown.set(id, notice);
    this.#list.append(notice);
  }

  /** @param {string} id */
  remove(id) {
    this.#shown.get(id)?.remove();
    this.#shown.delete(id);
  }

  /** Remove all. */
  clear() {
    this.#shown.clear();
    this.#list.replaceChildren();
  }
}

/** A connection that comes back sooner than this is not worth an alarm. */
const PATIENCE_MS = 2000;

/** The one notice about the connection: it comes when the trouble lasts, and goes with it. */
export class LinkNotice {
  #notices;
  #shownId = "";
  /** @type {Problem | null} */
  #due = null;
  #timer = 0;

  /** @param {Notices} notices */
  constructor(notices) {
    this.#notices = notices;
  }

  /**
   * @param {string} state The connection's new state.
   * @param {Problem | null} reason
   */
  update(state, reason) {
    if (state === "connecting") return;
    if (!reason || state === "token") {
      this.#forget();
      return;
    }
    this.#due = reason;
    const isPassing = state === "waiting" && reason.id === "unreachable" && !this.#shownId;
    if (!isPassing) this.#show();
    else if (!this.#timer) this.#timer = window.setTimeout(() => this.#show(), PATIENCE_MS);
  }

  #show() {
    const reason = this.#due;
    if (!reason || this.#shownId === reason.id) return; // Dismissed is dismissed.
    this.#forget();
    this.#shownId = reason.id;
    this.#notices.show(reason);
  }

  #forget() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#due = null;
    if (this.#shownId) this.#notices.remove(this.#shownId);
    this.#shownId = "";
  }
}
