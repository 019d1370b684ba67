// Nodes from texts. What models and tools say is untrusted: it becomes text nodes, and nothing here parses markup.

import { printable } from "./printable.js";

const SHOWN = new Set(["title", "alt", "placeholder", "aria-label"]);

/** An element: `attributes` are set as properties where there are such, else as attributes; children are texts or nodes. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (SHOWN.has(name)) node.setAttribute(name, printable(value));
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  const there = children.filter((child) => child !== null && child !== undefined && child !== "");
  node.append(...there.map((child) => (child instanceof Node ? child : printable(child))));
  return node;
}

/** JSON with its whole numbers as they were written: those beyond 2^53 would come out as others. */
export function parsed(json) {
  return JSON.parse(json, (_, value, written) =>
    typeof value === "number" && !Number.isSafeInteger(value) && (Number.isInteger(value) || !Number.isFinite(value)) && JSON.rawJSON && written
      ? JSON.rawJSON(written.source)
      : value,
  );
}

/** Whether this browser can do that: Chrome since 114, Firefox since 135, Safari since 18.4. */
export const EXACT_NUMBERS = JSON.stringify(parsed("9007199254740993")) === "9007199254740993";

/** `order_id="81" cents=3490`, on one line. */
export function oneLine(values, limit = 160) {
  const line = printable(Object.entries(values).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join("  "));
  return line.length > limit ? `${line.slice(0, limit)}…` : line;
}

export function clock(at) {
  const moment = new Date(at);
  if (!at || Number.isNaN(moment.getTime())) return "";
  const today = moment.toDateString() === new Date().toDateString();
  const time = moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return today ? time : `${moment.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

export function ago(at) {
  const seconds = Math.max(0, (Date.now() - new Date(at)) / 1000);
  for (const [size, unit] of [[86_400, "d"], [3_600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return "now";
}

const SHOWN_CHARS = 4_000;

/** A text as it is, in a frame; a long one in part, with a button for the rest. */
export function folded(text) {
  const pre = el("pre", { tabIndex: 0 }, text.slice(0, SHOWN_CHARS));
  if (text.length <= SHOWN_CHARS) return pre;
  const more = el("button", { type: "button", class: "quiet" }, `Show all ${text.length.toLocaleString()} characters`);
  more.onclick = () => {
    pre.textContent = printable(text);
    more.remove();
  };
  return el("div", {}, pre, more);
}

/** `850 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`. */
export function lasting(ms) {
  if (!Number.isFinite(ms) || ms < 0) return "";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return [`${minutes} min`, Math.floor(seconds % 60) && `${Math.floor(seconds % 60)} s`].filter(Boolean).join(" ");
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? [`${hours} h`, minutes % 60 && `${minutes % 60} min`].filter(Boolean).join(" ") : `${Math.floor(hours / 24)} d`;
}

/** Two digits that say something, however little it is. */
export const dollars = (usd) => `$${usd.toFixed(usd >= 1 || !usd ? 2 : usd >= 0.01 ? 4 : Math.min(10, 1 - Math.floor(Math.log10(usd))))}`;

/** Puts a text on the clipboard; on plain http, browsers have the old way only. */
export async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
