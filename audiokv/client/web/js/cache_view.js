/** A small panel about the server's audio cache: what is held, what left it, and why. */

/** @typedef {import("./protocol.js").CacheCounters} CacheCounters */

const UNITS = ["B", "kB", "MB", "GB"];

/**
 * A size with three digits or fewer and its unit.
 * @param {number} bytes
 */
export function shownBytes(bytes) {
  let unit = 0;
  let size = bytes;
  while (size >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit && size < 9.95 ? size.toFixed(1) : Math.round(size)} ${UNITS[unit]}`;
}

/**
 * The numbers of the panel, by the name of the place where each is shown.
 * @param {CacheCounters} cache
 * @returns {Record<string, string>}
 */
export function cacheTexts(cache) {
  const counts = {
    ...cache.pools,
    free: Math.max(0, cache.budget_slots - cache.held_slots),
    seen: cache.seen_slots,
    left: cache.seen_slots - cache.held_slots,
    ...cache.left_slots,
    ...cache.chosen_slots,
  };
  const texts = Object.entries(counts).map(([name, count]) => [name, count.toLocaleString("en")]);
  return {
    ...Object.fromEntries(texts),
    brief: `${cache.held_slots} of ${cache.budget_slots} slots`,
    bytes: shownBytes(cache.held_bytes),
    policy: cache.policy,
  };
}

export class CacheView {
  #panel;
  /** @type {Map<string, HTMLElement>} */
  #places = new Map();
  /** @type {HTMLElement[]} */
  #shares;

  /** @param {HTMLElement} panel Has an element with `data-cache` for each number. */
  constructor(panel) {
    this.#panel = panel;
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (
      panel.querySelectorAll("[data-cache]")
    )) this.#places.set(element.dataset.cache ?? "", element);
    this.#shares = [.../** @type {NodeListOf<HTMLElement>} */ (
      panel.querySelectorAll("[data-share]")
    )];
  }

  /**
   * Show counters; a server that bounds nothing sends none, and the panel stays away.
   * @param {CacheCounters | undefined} cache
   */
  show(cache) {
    if (!cache) return;
    this.#panel.hidden = false;
    for (const [name, text] of Object.entries(cacheTexts(cache))) {
      const place = this.#places.get(name);
      if (place && place.textContent !== text) place.textContent = text;
    }
    /** @type {Record<string, number>} */
    const pools = { ...cache.pools };
    for (const share of this.#shares) {
      const part = (pools[share.dataset.share ?? ""] ?? 0) / cache.budget_slots;
      share.style.setProperty("--share", `${(100 * part).toFixed(2)}%`);
    }
  }
}
