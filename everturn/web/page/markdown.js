// Markdown as nodes. What models write is untrusted: nothing here parses markup, pictures are not fetched, and a link
// goes nowhere but to http, https or mail, and says where.

import { printable } from "./printable.js";
import { el } from "./text.js";

const DEEPEST = 8;
const LONGEST = 300_000; // beyond it, a text is shown as it is
const ITEM = /^(\s*)([-*+•]|\d{1,9}[.)])(?:\s+(.*))?$/;
const FENCE = /^\s{0,3}(```+|~~~+)\s*([^`\s]{0,40})[^`]*$/;
const RULE = /^\s{0,3}(?:-\s*){3,}$|^\s{0,3}(?:\*\s*){3,}$|^\s{0,3}(?:_\s*){3,}$/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const QUOTE = /^\s{0,3}>\s?/;

/** A text with its Markdown, as a fragment. */
export function prose(text) {
  const whole = document.createDocumentFragment();
  const safe = printable(text);
  if (safe.length > LONGEST) whole.append(el("p", {}, safe));
  else whole.append(...blocks(safe.split("\n"), 0));
  // The page's own heading is the first level; who goes from heading to heading finds none left out.
  let level = 1;
  for (const heading of whole.querySelectorAll("h3, h4, h5, h6")) {
    level = Math.min(Number(heading.localName[1]) - 1, level + 1);
    heading.ariaLevel = level;
  }
  return whole;
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  const take = (while_) => {
    const taken = [];
    while (at < lines.length && while_(lines[at], taken)) taken.push(lines[at++]);
    return taken;
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      at += 1;
      const inside = take((next) => !next.trim().startsWith(fence[1]) || next.trim().replaceAll(fence[1][0], ""));
      at += 1;
      made.push(el("pre", { tabIndex: 0, data: fence[2] ? { language: fence[2] } : {} }, inside.join("\n")));
    } else if (HEADING.test(line)) {
      const [, marks, words] = HEADING.exec(line);
      at += 1;
      // Those of the page itself come above.
      made.push(el(`h${Math.min(6, marks.length + 2)}`, {}, ...spans(words)));
    } else if (RULE.test(line)) {
      at += 1;
      made.push(el("hr"));
    } else if (QUOTE.test(line) && depth < DEEPEST) {
      const quoted = take((next, taken) => QUOTE.test(next) || (taken.length && next.trim() && !begins(next)));
      made.push(el("blockquote", {}, ...blocks(quoted.map((one) => one.replace(QUOTE, "")), depth + 1)));
    } else if (columns(line, lines[at + 1])) {
      made.push(table(take((next, taken) => taken.length < 2 || (next.includes("|") && next.trim()))));
    } else if (ITEM.test(line) && depth < DEEPEST) made.push(...lists(take(ofList()), depth));
    else {
      const said = take((next, taken) => next.trim() && (!taken.length || !begins(next)));
      made.push(el("p", {}, ...spans(said.join("\n"))));
    }
  }
  return made;
}

const begins = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
const indent = (line) => /^\s*/.exec(line)[0].replaceAll("\t", "    ").length;

// ---------------------------------------------------------------- lists

/** Whether a line belongs to the list that begins with the first. */
function ofList() {
  let blank = false;
  return (line, taken) => {
    if (!line.trim()) return (blank = true);
    const belongs = !taken.length || ITEM.test(line) || indent(line) > 1 || (!blank && !begins(line));
    blank = false;
    return belongs;
  };
}

function lists(lines, depth) {
  const base = indent(lines[0]);
  const made = [];
  let item = null;
  const close = () => item && item.node.append(...itemBlocks(item.lines, depth));
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && indent(line) <= base + 1) {
      close();
      const ordered = /\d/.test(found[2]);
      const tag = ordered ? "ol" : "ul";
      if (made.at(-1)?.localName !== tag) made.push(el(tag, ordered ? { start: Number.parseInt(found[2], 10) } : {}));
      item = { node: el("li"), lines: [found[3] ?? ""], from: base + found[2].length + 1 };
      made.at(-1).append(item.node);
    } else item.lines.push(line.slice(Math.min(indent(line), item.from)));
  }
  close();
  return made;
}

function itemBlocks(lines, depth) {
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  const first = task ? `${task[1] === " " ? "☐" : "☑"} ${lines[0].slice(task[0].length)}` : lines[0];
  const made = blocks([first, ...lines.slice(1)], depth + 1);
  return made[0]?.localName === "p" ? [...made[0].childNodes, ...made.slice(1)] : made;
}

// ---------------------------------------------------------------- tables

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function columns(head, below) {
  if (!head?.includes("|") || !below?.includes("-")) return null;
  const marks = cells(below);
  return marks.length === cells(head).length && marks.every((mark) => /^:?-+:?$/.test(mark)) ? marks : null;
}

function table([head, below, ...rows]) {
  const sides = cells(below).map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : ""));
  const row = (tag, line) =>
    el("tr", {}, ...sides.map((side, at) => el(tag, side ? { data: { side } } : {}, ...spans(cells(line)[at] ?? ""))));
  const body = el("tbody", {}, ...rows.map((line) => row("td", line)));
  return el("div", { class: "table", tabIndex: 0, role: "group", ariaLabel: "Table" }, el("table", {}, el("thead", {}, row("th", head)), body));
}

// ---------------------------------------------------------------- in a line

const SPAN = new RegExp(
  [
    "(`{1,3})([^`]{1,2000})\\1",
    "(!?)\\[([^\\[\\]]{0,400})\\]\\(\\s*<?([^()\\s<>]{1,1000}(?:\\([^()\\s<>]{0,200}\\)[^()\\s<>]{0,200})?)>?(?:\\s+\"[^\"]{0,200}\")?\\s*\\)",
    "\\*\\*(?!\\s)([^*]{1,600})\\*\\*",
    "(?<![\\w*])\\*(?![\\s*])([^*\\n]{1,400})(?<!\\s)\\*(?!\\w)",
    "(?<![\\w_])_(?![\\s_])([^_\\n]{1,400})(?<!\\s)_(?!\\w)",
    "~~(?!\\s)([^~\\n]{1,400})~~",
    "(https?://[^\\s<>()\\[\\]\"'`*|]{1,1000})",
  ].join("|"),
  "gu",
);

function spans(text, deep = 0) {
  const made = [];
  let at = 0;
  for (const found of text.matchAll(SPAN)) {
    const [all, , code, picture, label, target, strong, first, second, struck, bare] = found;
    if (found.index > at) made.push(text.slice(at, found.index));
    at = found.index + all.length;
    const inside = (words) => (deep < 3 ? spans(words, deep + 1) : [words]);
    if (code !== undefined) made.push(el("code", {}, code));
    else if (target !== undefined) made.push(...link(target, label, picture, all));
    else if (strong !== undefined) made.push(el("strong", {}, ...inside(strong)));
    else if (first ?? second) made.push(el("em", {}, ...inside(first ?? second)));
    else if (struck !== undefined) made.push(el("s", {}, ...inside(struck)));
    else {
      const end = /[.,;:!?]+$/.exec(bare)?.[0] ?? "";
      made.push(...link(bare.slice(0, bare.length - end.length), "", "", bare), end);
    }
  }
  made.push(text.slice(at));
  return made.filter((piece) => piece !== "");
}

/** Where it leads, beside what it says; as it was written if it leads elsewhere than to a page or a mailbox. */
function link(target, label, picture, written) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return [written];
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol) || target.includes("\\")) return [written];
  const words = label || target;
  const place = url.protocol === "mailto:" ? url.pathname : url.host;
  const plain = words === target || words === place;
  const a = el("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank", title: url.href }, `${picture ? "picture: " : ""}${words}`);
  return plain ? [a] : [a, el("span", { class: "place" }, ` (${place})`)];
}
