// Nodes from texts. What models and tools say is untrusted: it becomes text nodes, and nothing here parses markup.

import { printable } from "./printable.js";

const SHOWN = ["title", "alt"];

/** An element: `attributes` are set as properties where there are such, else as attributes; children are texts or nodes. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (SHOWN.includes(name)) node[name] = printable(value);
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
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && JSON.rawJSON && written
      ? JSON.rawJSON(written.source)
      : value,
  );
}

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

/** A text with the few things that models write most: fences, headings, lists, `code`, **bold**. All else stays. */
export function prose(text) {
  const whole = document.createDocumentFragment();
  printable(text).split(/^```[^\n]*\n([\s\S]*?)(?:^```[ \t]*$|(?![\s\S]))/m).forEach((piece, index) => {
    if (index % 2) whole.append(el("pre", { tabIndex: 0 }, piece.replace(/\n$/, "")));
    else for (const block of piece.split(/\n{2,}/)) if (block.trim()) whole.append(...blocks(block));
  });
  return whole;
}

function blocks(text) {
  const made = [];
  let list = null;
  for (const line of text.replace(/^\n+|\n+$/g, "").split("\n")) {
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    const item = /^\s*(?:([-*•])|\d{1,3}[.)])\s+(.*)$/.exec(line);
    if (item) {
      const tag = item[1] ? "ul" : "ol";
      if (list?.localName !== tag) made.push((list = el(tag)));
      list.append(el("li", {}, ...spans(item[2])));
      continue;
    }
    list = null;
    const last = made.at(-1);
    if (heading) made.push(el("h3", {}, ...spans(heading[1])));
    else if (last?.localName === "p") last.append("\n", ...spans(line));
    else made.push(el("p", {}, ...spans(line)));
  }
  return made;
}

function spans(line) {
  return line.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((piece) => {
    if (/^`[^`]+`$/.test(piece)) return el("code", {}, piece.slice(1, -1));
    if (/^\*\*[^*]+\*\*$/.test(piece)) return el("strong", {}, piece.slice(2, -2));
    return piece;
  });
}
