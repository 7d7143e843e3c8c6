/** What the user chose, remembered in the browser. */

const STORAGE_KEY = "audiokv.settings";
const TOKEN_KEY = "audiokv.token";

/**
 * @typedef {object} Values
 * @property {string} theme
 * @property {string} colours
 * @property {string} font
 * @property {number} sizePercent
 * @property {number} lines
 * @property {string} display
 * @property {boolean} isAnnounced
 * @property {string} source
 * @property {string} language
 * @property {string} prompt
 * @property {boolean} echoCancellation
 * @property {boolean} noiseSuppression
 * @property {boolean} autoGainControl
 */
/** @typedef {keyof Values} SettingName */

/** @type {Values} */
export const DEFAULTS = Object.freeze({
  theme: "system",
  colours: "theme",
  font: "sans",
  sizePercent: 100,
  lines: 2,
  display: "words",
  isAnnounced: true,
  source: "",
  language: "auto",
  prompt: "",
  echoCancellation: false,
  noiseSuppression: false,
  autoGainControl: false,
});

/** @type {Partial<Record<SettingName, string[]>>} */
const CHOICES = {
  theme: ["system", "light", "dark"],
  colours: ["theme", "white", "yellow", "black", "blue"],
  font: ["sans", "serif", "mono"],
  display: ["words", "whole"],
};
/** @type {Partial<Record<SettingName, [least: number, most: number]>>} */
const RANGES = { sizePercent: [60, 300], lines: [1, 5] };

/**
 * A usable value for a setting, whatever was stored or typed.
 * @param {SettingName} name
 * @param {unknown} value
 * @returns {string | number | boolean}
 */
export function validSetting(name, value) {
  const standard = DEFAULTS[name];
  if (typeof standard === "number") {
    const [least, most] = RANGES[name] ?? [-Infinity, Infinity];
    const number = value === "" || value === null ? NaN : Number(value);
    return Number.isFinite(number) ? Math.max(least, Math.min(most, Math.round(number))) : standard;
  }
  if (typeof value !== typeof standard) return standard;
  const choices = CHOICES[name];
  return !choices || choices.includes(String(value)) ? /** @type {string | boolean} */ (value) : standard;
}

/** The settings. Event: `change` (detail {names: SettingName[]}). */
export class Settings extends EventTarget {
  #values = { ...DEFAULTS };
  #storage;

  /**
   * @param {Storage} storage
   * @param {URLSearchParams} [overrides] Settings in the page's address; they are not remembered.
   */
  constructor(storage, overrides = new URLSearchParams()) {
    super();
    this.#storage = storage;
    this.#assign(readStored(storage));
    const shown = { size: "sizePercent", lines: "lines", theme: "theme", colours: "colours", font: "font" };
    for (const [parameter, name] of Object.entries(shown)) {
      if (overrides.has(parameter)) this.#assign({ [name]: overrides.get(parameter) });
    }
  }

  /** @returns {Readonly<Values>} */
  get values() {
    return this.#values;
  }

  /**
   * Change and remember.
   * @param {Partial<Values>} changes
   */
  set(changes) {
    const names = this.#assign(changes);
    if (names.length === 0) return;
    try {
      this.#storage.setItem(STORAGE_KEY, JSON.stringify(this.#values));
    } catch (error) {
      // A full or forbidden storage must not keep the page from working.
      if (!(error instanceof DOMException)) throw error;
    }
    this.dispatchEvent(new CustomEvent("change", { detail: { names } }));
  }

  /**
   * @param {Record<string, unknown>} changes
   * @returns {SettingName[]} What is different now.
   */
  #assign(changes) {
    /** @type {SettingName[]} */
    const names = [];
    for (const name of /** @type {SettingName[]} */ (Object.keys(DEFAULTS))) {
      if (!(name in changes)) continue;
      const value = validSetting(name, changes[name]);
      if (value === this.#values[name]) continue;
      names.push(name);
      Object.assign(this.#values, { [name]: value });
    }
    return names;
  }
}

/**
 * @param {Storage} storage
 * @returns {Record<string, unknown>}
 */
function readStored(storage) {
  try {
    const stored = JSON.parse(storage.getItem(STORAGE_KEY) ?? "{}");
    return stored !== null && typeof stored === "object" ? stored : {};
  } catch {
    return {}; // Broken or forbidden storage: the defaults.
  }
}

/**
 * The token: from the address's fragment once (for browser sources, which cannot type), then from
 * this tab's session. Fragments are not sent to servers.
 * @param {Location} location
 */
export function readToken(location) {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token) {
    storeToken(token);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

/** @param {string} token Kept until the tab is closed. */
export function storeToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}
