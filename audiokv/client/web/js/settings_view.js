/** Binds the settings to the controls that carry data-setting, and to the page's looks. */

/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {import("./settings.js").SettingName} SettingName */
/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Control */

/**
 * @param {Control} control
 * @param {string | number | boolean} value
 */
function show(control, value) {
  if (control instanceof HTMLInputElement && control.type === "checkbox") {
    control.checked = Boolean(value);
    return;
  }
  control.value = String(value);
}

/** @param {Control} control */
function read(control) {
  const isCheck = control instanceof HTMLInputElement && control.type === "checkbox";
  return isCheck ? control.checked : control.value;
}

/**
 * Keep controls and settings the same.
 * @param {Settings} settings
 */
export function bindControls(settings) {
  /** @type {NodeListOf<Control>} */
  const controls = document.querySelectorAll("[data-setting]");
  const refresh = () => {
    for (const control of controls) {
      show(control, settings.values[/** @type {SettingName} */ (control.dataset.setting)]);
    }
  };
  for (const control of controls) {
    const isSlider = control instanceof HTMLInputElement && control.type === "range";
    control.addEventListener(isSlider ? "input" : "change", () => {
      settings.set({ [control.dataset.setting ?? ""]: read(control) });
    });
  }
  settings.addEventListener("change", refresh);
  refresh();
}

/**
 * Apply what concerns the looks, now and after each change.
 * @param {Settings} settings
 * @param {() => void} onResize After the captions' size may have changed.
 */
export function bindLooks(settings, onResize) {
  const root = document.documentElement;
  const prefersLight = matchMedia("(prefers-color-scheme: light)");
  const output = document.getElementById("size-output");
  const log = document.getElementById("log");
  const apply = () => {
    const { theme, colours, font, sizePercent, lines, isAnnounced } = settings.values;
    const system = prefersLight.matches ? "light" : "dark";
    root.dataset.theme = theme === "system" ? system : theme;
    root.dataset.colours = colours;
    root.dataset.font = font;
    root.style.setProperty("--size", String(sizePercent / 100));
    root.style.setProperty("--lines", String(lines));
    if (output) output.textContent = `${sizePercent} %`;
    log?.setAttribute("aria-live", isAnnounced ? "polite" : "off");
    onResize();
  };
  settings.addEventListener("change", apply);
  prefersLight.addEventListener("change", apply);
  apply();
}

/**
 * Fill a list of choices; a choice that is selected but not offered stays.
 * @param {HTMLSelectElement} select
 * @param {{value: string, label: string}[]} choices
 * @param {string} selected
 */
export function fillSelect(select, choices, selected) {
  const isOffered = choices.some(({ value }) => value === selected);
  const missing = isOffered ? [] : [{ value: selected, label: "The one chosen last time" }];
  select.replaceChildren(...[...choices, ...missing].map(({ value, label }) => new Option(label, value)));
  select.value = selected;
}
