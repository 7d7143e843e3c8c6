/** The dialogs that ask for something, and the clipboard. */

import { byId } from "./dom.js";

/**
 * Ask for the access token.
 * @param {import("./problems.js").Problem} reason
 * @returns {Promise<string>} "" when the user gave up.
 */
export function askToken(reason) {
  const dialog = byId("token-dialog", HTMLDialogElement);
  const field = byId("token", HTMLInputElement);
  byId("token-text", HTMLElement).textContent = `${reason.title} ${reason.remedy}`;
  field.value = "";
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    let isSubmitted = false;
    const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
    form.onsubmit = () => { isSubmitted = true; };
    dialog.onclose = () => {
      const token = isSubmitted ? field.value.trim() : "";
      field.value = "";
      resolve(token);
    };
    byId("token-cancel", HTMLButtonElement).onclick = () => dialog.close();
  });
}

/** @returns {Promise<boolean>} Whether the transcript may go. */
export function askClear() {
  const dialog = byId("clear-dialog", HTMLDialogElement);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "clear");
  });
}

/**
 * Copy a text and say so on the button.
 * @param {string} text
 * @param {HTMLButtonElement} button
 */
export async function copyText(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

/**
 * Let the browser save a text as a file.
 * @param {string} name
 * @param {string} text
 * @param {string} type
 */
export function saveFile(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
