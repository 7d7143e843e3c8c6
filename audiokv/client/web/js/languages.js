/** Names of languages, and the list of those that the server knows. */

const STORAGE_KEY = "audiokv.languages";

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

/**
 * @param {string} code ISO 639-1.
 * @returns {string} Its English name, as the page is in English; the code where it has none.
 */
export function languageName(code) {
  try {
    return names.of(code) ?? code;
  } catch (error) {
    if (error instanceof RangeError) return code; // Not a language code at all.
    throw error;
  }
}

/**
 * Choices for a select: "auto" first, then by name.
 * @param {string[]} codes
 * @returns {{value: string, label: string}[]}
 */
export function languageChoices(codes) {
  const choices = codes.map((value) => ({ value, label: languageName(value) }));
  choices.sort((a, b) => a.label.localeCompare(b.label, "en"));
  return [{ value: "auto", label: "Detect automatically" }, ...choices];
}

/** The list that a server gave last time, so that one can choose before the first connection. */
export function rememberedLanguages() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter((code) => typeof code === "string") : [];
  } catch {
    return []; // Broken or forbidden storage.
  }
}

/** @param {string[]} codes */
export function rememberLanguages(codes) {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(codes));
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
  }
}
