/** Colours of speakers, in the order in which they first spoke. */

/** The four colours of broadcast subtitles; the style sheet gives each theme's shade. */
const N_COLOURS = 4;

/** Gives a speaker the same colour wherever the page names them. */
export class SpeakerColours {
  /** @type {Map<string, number>} */
  #order = new Map();

  /**
   * @param {string} speaker
   * @returns {string} A CSS value.
   */
  of(speaker) {
    const index = this.#order.get(speaker) ?? this.#order.size % N_COLOURS;
    if (!this.#order.has(speaker)) this.#order.set(speaker, index);
    return `var(--speaker-${index})`;
  }
}
