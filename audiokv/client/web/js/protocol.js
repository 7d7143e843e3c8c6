/**
 * The native protocol, version 1, as the page speaks it (docs/protocol.md).
 *
 * Messages keep the field names they have on the wire.
 */

export const PROTOCOL_VERSION = 1;
export const SUBPROTOCOL = "audiokv.v1";

/**
 * @typedef {object} Word
 * @property {string} text
 * @property {number} start_ms
 * @property {number} end_ms
 * @property {number} confidence
 * @property {boolean} final
 * @property {boolean} space_before
 */

/**
 * @typedef {object} Caption
 * @property {"caption"} type
 * @property {number} seq
 * @property {number} segment
 * @property {number} revision
 * @property {boolean} final
 * @property {number} start_ms
 * @property {number} end_ms
 * @property {string} text
 * @property {string | null} language
 * @property {string | null} speaker
 * @property {Word[]} words
 */

/**
 * A caption on the page's own time line, which runs on when a lost stream had to be replaced.
 * @typedef {Caption & {key: string}} PlacedCaption
 */

/**
 * @typedef {object} Limits
 * @property {number} [max_message_bytes]
 * @property {number} [max_unacknowledged_ms]
 * @property {number} [idle_timeout_s]
 */

/**
 * @typedef {object} Ready
 * @property {"ready"} type
 * @property {string} stream
 * @property {string} [resume_token]
 * @property {boolean} [resumed]
 * @property {number} [received_samples]
 * @property {string} [model]
 * @property {string[]} [languages]
 * @property {Limits} [limits]
 * @property {Record<string, string>} [metadata] What the source's protocol told about it.
 */

/** @typedef {{type: "speech", on: boolean, at_ms: number}} Speech */
/**
 * The audio cache of a stream that has a budget.
 * @typedef {object} CacheCounters
 * @property {string} policy
 * @property {number} seen_slots
 * @property {number} held_slots
 * @property {number} budget_slots
 * @property {number} held_bytes
 * @property {{base: number, buffer: number, reserve: number}} pools
 * @property {{forced: number, ahead: number, expired: number, shared: number}} left_slots
 * @property {{committed: number, silence: number, speech: number}} chosen_slots
 */
/**
 * @typedef {object} Progress
 * @property {"progress"} type
 * @property {number} received_ms
 * @property {number} received_samples
 * @property {number} processed_ms
 * @property {number} lag_ms
 * @property {CacheCounters} [cache]
 */
/** @typedef {{type: "warning", code: string, message: string, remedy?: string}} Warning */
/**
 * @typedef {object} ServerError
 * @property {"error"} type
 * @property {string} code
 * @property {string} message
 * @property {string} [remedy]
 * @property {number} [retry_after_s]
 */
/** @typedef {{type: "done", received_ms?: number, segments?: number}} Done */
/** @typedef {Ready | Caption | Speech | Progress | Warning | ServerError | Done} ServerMessage */

/** @type {Record<string, Record<string, "number" | "string" | "boolean">>} */
const REQUIRED_FIELDS = {
  ready: { stream: "string" },
  caption: { seq: "number", segment: "number", final: "boolean", text: "string" },
  speech: { on: "boolean", at_ms: "number" },
  progress: { received_samples: "number", processed_ms: "number", lag_ms: "number" },
  warning: { code: "string", message: "string" },
  error: { code: "string", message: "string" },
  done: {},
};

/** Close codes after which trying again cannot help. */
export const FATAL_CLOSE_CODES = new Set([1003, 1008, 1009, 4400]);
export const CLOSE_NORMAL = 1000;
export const CLOSE_INTERNAL = 1011;
export const CLOSE_FULL = 1013;
export const CLOSE_TOKEN = 4401;

/**
 * Read one text message of the server.
 * @param {string} text
 * @returns {ServerMessage | null} null for a type that a later minor version may add.
 * @throws {TypeError} The message is not what the protocol says.
 */
export function parseMessage(text) {
  const message = JSON.parse(text);
  const required = REQUIRED_FIELDS[message?.type];
  if (!required) return null;
  for (const [field, kind] of Object.entries(required)) {
    if (typeof message[field] !== kind) {
      throw new TypeError(`The server's ${message.type} message has no valid ${field}.`);
    }
  }
  return message.type === "caption" ? withWords(message) : message;
}

/**
 * A caption without word times still has one word: its whole text.
 * @param {Caption} caption
 * @returns {Caption}
 */
function withWords(caption) {
  const startMs = caption.start_ms ?? 0;
  const endMs = caption.end_ms ?? startMs;
  let words = Array.isArray(caption.words) ? caption.words : [];
  if (words.length === 0 && caption.text !== "") {
    words = [{
      text: caption.text, start_ms: startMs, end_ms: endMs, confidence: 1,
      final: caption.final, space_before: true,
    }];
  }
  return { ...caption, start_ms: startMs, end_ms: endMs, words };
}

/**
 * Join words the way their language spaces them.
 * @param {Word[]} words
 * @returns {string}
 */
export function joinWords(words) {
  return words.map((w) => (w.space_before === false ? "" : " ") + w.text).join("").trim();
}

/**
 * @typedef {object} StartOptions
 * @property {number} sampleRateHz
 * @property {string} [language] ISO 639-1 code or "auto".
 * @property {string} [prompt] Names and jargon.
 * @property {string} [profile]
 */

/**
 * The first message of a source.
 * @param {StartOptions} options
 * @param {{token: string, last_seq: number}} [resume]
 * @returns {string}
 */
export function startMessage({ sampleRateHz, language, prompt, profile }, resume) {
  return JSON.stringify({
    type: "start",
    version: PROTOCOL_VERSION,
    encoding: "pcm_s16le",
    sample_rate: sampleRateHz,
    channels: 1,
    language: language || "auto",
    ...(profile ? { profile } : {}),
    ...(prompt ? { prompt } : {}),
    ...(resume ? { resume } : {}),
  });
}

/**
 * Subprotocols to offer; none without a token, because a server may answer with none.
 * @param {string} token
 * @returns {string[]}
 */
export function subprotocols(token) {
  return token ? [SUBPROTOCOL, `bearer.${token}`] : [];
}

/**
 * Whether a token can travel as a WebSocket subprotocol (RFC 9110 token characters).
 * @param {string} token
 */
export function isSendableToken(token) {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(token);
}

/**
 * The WebSocket address of a path beside the page.
 * @param {string} path Such as "v1/stream".
 * @param {string} base Address of the page.
 */
export function socketUrl(path, base) {
  const url = new URL(path, base);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = "";
  url.hash = "";
  return url.href;
}
