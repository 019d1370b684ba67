// Text that is safe to show. The same as everturn/text/printable.py, which says why; a test holds them together.

const RIGHT_TO_LEFT = "[\\u0590-\\u061b\\u061d-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufefc\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1eeff}]";
const JOINED =
  "[\\u0620-\\u109f\\u1780-\\u18af\\ufb50-\\ufdff\\ufe70-\\ufefc\\u{10d00}-\\u{10d3f}\\u{11000}-\\u{114ff}]";
const PICTURE =
  "[#*0-9\\u00a9\\u00ae\\u2000-\\u200a\\u2010-\\u2027\\u2030-\\u205f\\u2070-\\u33ff\\u{1f000}-\\u{1faff}]";
const AFTER_PICTURE = "[\\u2190-\\u33ff\\ufe0f\\u{1f000}-\\u{1faff}]";
const UNSAFE = new RegExp(
  [
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\u2028\\u2029\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5" +
      "\\u180b-\\u180f\\u200b\\u2060-\\u2065\\u206a-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb" +
      "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\ud800-\\udfff]",
    `(?<!${JOINED})(?<!${AFTER_PICTURE})[\\u200c\\u200d]`,
    `[\\u200c\\u200d](?!${JOINED}|${AFTER_PICTURE})`,
    `(?<!${RIGHT_TO_LEFT})[\\u200e\\u200f\\u061c](?!${RIGHT_TO_LEFT})`,
    "[\\ufe00-\\ufe0d]",
    `(?<!${PICTURE})[\\ufe0e\\ufe0f]`,
  ].join("|"),
  "gu",
);

/** The text with all that is not seen, or that changes how other text is seen, as JSON writes it: `\\u202e`. */
export function printable(text) {
  return String(text)
    .replaceAll("\r\n", "\n")
    .replace(UNSAFE, (found) =>
      Array.from({ length: found.length }, (_, at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""),
    );
}
