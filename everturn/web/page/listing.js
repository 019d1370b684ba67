// The list: conversations by what they wait for, those that need a person first; children under their parents.

import { printable } from "./printable.js";
import { ago, clock, el } from "./text.js";

const GROUPS = [
  ["Waits for you", "waiting", ["awaiting_approval", "awaiting_answer"]],
  ["Stalled", "stalled", ["stalled", "stuck"]],
  ["Running", "running", ["running"]],
  ["Paused", "paused", ["paused"]],
  ["Idle", "idle", ["idle"]],
  ["Over", "over", null],
];
const NAMED = new Set(GROUPS.flatMap(([, , statuses]) => statuses ?? []));
const groupOf = (row) => GROUPS.findIndex(([, , statuses]) => (statuses ? statuses.includes(row.status) : true));

export const words = (status) => status.replaceAll("_", " ");
/** How it stands, for people: one that is over says how it ended. */
export const standing = (row) => (row.status === "done" && row.outcome) || row.status;

/** For whom it is, and what it was started with. */
function labels({ tenant, metadata }) {
  const facts = Object.entries(metadata ?? {}).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [...(tenant ? [`for ${tenant}`] : []), ...facts].join(", ");
}

const textOf = (row) =>
  [row.said, row.id, row.agent, row.model, labels(row), words(standing(row)), ...(row.asks ?? []).flatMap((one) => [one.tool, one.line])].join("\n").toLowerCase();

export class ConversationList {
  rows = [];
  words = "";
  agents = new Set();
  tenants = new Set();
  #counts = {};
  #links = new Map();
  #groups;
  #more;
  #nothing;
  #touched = false; // somebody moves in the list: what is open is not brought into view any more
  #stood = ""; // how it stood when it was opened: it isn't followed to where it goes

  /** `onMore()` is called when somebody wants more of it, `onMany()` to decide on many, `onClear()` to see all. */
  constructor(root, { onMore, onMany, onClear }) {
    this.root = root;
    this.#groups = GROUPS.map(([name, key, statuses]) => {
      const count = el("span", { class: "count" });
      const list = el("ul");
      const id = `group-${key}`;
      const many = key === "waiting" ? el("button", { type: "button", class: "quiet", title: "Decide on many (b)", onclick: onMany }, "Decide on many") : null;
      const section = el("section", { data: { group: name }, "aria-labelledby": id }, el("h2", { id }, el("span", {}, name), many, count), list);
      root.append(section);
      return { statuses, count, list, section };
    });
    this.#nothing = el("p", { class: "nothing", hidden: true }, "Nothing is like that. ", el("button", { type: "button", class: "quiet", onclick: onClear }, "Show all"));
    this.#more = el("button", { type: "button", class: "more", hidden: true, title: "Load more (l)", onclick: onMore }, "Load more");
    root.append(this.#nothing, this.#more);
    for (const kind of ["wheel", "touchmove", "pointerdown"]) root.addEventListener(kind, () => (this.#touched = true), { passive: true });
    setInterval(() => this.draw(true), 30_000); // "3 min" becomes "4 min"
  }

  take({ rows, counts, more }) {
    this.rows = rows;
    this.#counts = counts;
    this.#more.hidden = !more;
    this.#nothing.hidden = rows.length > 0;
    for (const row of rows) {
      if (row.agent) this.agents.add(row.agent);
      if (row.tenant) this.tenants.add(row.tenant);
    }
    this.draw();
  }

  row(id) {
    return this.rows.find((row) => row.id === id);
  }

  /** Only what has these words, at once: the server looks further. */
  search(text) {
    this.words = text.trim().toLowerCase();
    this.draw();
  }

  /** How many stand under "Waits for you" and "Stalled". */
  waiting = 0;

  /** The id that stands `step` places from this one, as they are shown. */
  beside(id, step) {
    const shown = [...this.root.querySelectorAll("a")].map((link) => link.dataset.id);
    const at = shown.indexOf(id);
    return at < 0 ? shown[step > 0 ? 0 : shown.length - 1] : shown[Math.min(Math.max(at + step, 0), shown.length - 1)];
  }

  select(id) {
    this.selected = id;
    this.#touched = false;
    this.#stood = "";
    this.draw();
  }

  draw(anew = false) {
    const rows = this.words ? this.rows.filter((row) => textOf(row).includes(this.words)) : this.rows;
    const known = new Map(rows.map((row) => [row.id, row]));
    const children = new Map();
    const roots = [];
    for (const row of rows) {
      const parent = row.parent !== row.id && known.has(row.parent) ? row.parent : "";
      if (!parent) roots.push(row);
      else children.set(parent, [...(children.get(parent) ?? []), row]);
    }
    // A family stands where the most urgent of it belongs.
    const urgency = (row) => Math.min(groupOf(row), ...(children.get(row.id) ?? []).map(urgency));
    const families = this.#groups.map(() => []);
    for (const row of roots) families[urgency(row)].push(row);
    this.#groups.forEach(({ statuses, count, list, section }, at) => {
      const belongs = (status) => (statuses ? statuses.includes(status) : !NAMED.has(status));
      const all = Object.entries(this.#counts).reduce((sum, [status, n]) => sum + (belongs(status) ? n : 0), 0);
      const here = rows.filter((row) => belongs(row.status)).length;
      const shown = families[at].length;
      section.hidden = !shown;
      count.textContent = all > here && !this.#more.hidden ? `${shown.toLocaleString()} of ${all.toLocaleString()}` : shown.toLocaleString();
      this.#fill(list, families[at], children, anew);
    });
    this.waiting = families[0].length + families[1].length;
    for (const id of this.#links.keys()) if (!known.has(id)) this.#links.delete(id);
    this.#showSelected(known.get(this.selected));
  }

  /** What is open is in view, while the list fills around it. */
  #showSelected(row) {
    if (!row || this.#touched) return;
    this.#stood ||= row.status;
    this.#touched = this.#stood !== row.status;
    const bring = () => !this.#touched && this.#links.get(row.id)?.link.scrollIntoView({ block: "nearest" });
    bring();
    requestAnimationFrame(bring); // rows that come into view have another height than was thought
  }

  /** Only what has changed is touched: the focus stays where it is. */
  #fill(list, rows, children, anew) {
    const items = rows.map((row) => {
      const { item, under } = this.#item(row, anew);
      this.#fill(under, children.get(row.id) ?? [], children, anew);
      return item;
    });
    items.forEach((item, at) => list.children[at] !== item && list.insertBefore(item, list.children[at] ?? null));
    while (list.children.length > items.length) list.lastChild.remove();
  }

  #item(row, anew) {
    let made = this.#links.get(row.id);
    if (!made) {
      const link = el("a", { href: `#${encodeURIComponent(row.id)}`, data: { id: row.id } });
      link.append(el("span", { class: "dot" }), el("b"), el("time"), el("span", { class: "asks" }), el("small"));
      const under = el("ul");
      made = { link, under, item: el("li", {}, link, under), written: "" };
      this.#links.set(row.id, made);
    }
    const { link } = made;
    link.setAttribute("aria-current", row.id === this.selected ? "true" : "false");
    const written = JSON.stringify(row);
    if (made.written === written && !anew) return made;
    made.written = written;
    const [dot, name, time, asks, facts] = link.children;
    const [first, ...others] = row.asks ?? [];
    const since = first?.since || row.started_at;
    dot.dataset.status = standing(row);
    name.textContent = printable(row.said || row.id);
    time.textContent = ago(since);
    time.title = new Date(since).toLocaleString();
    asks.hidden = !first;
    const until = first?.expires_at ? ` · until ${clock(first.expires_at)}` : "";
    const more = others.length ? ` · and ${others.length} more` : "";
    asks.replaceChildren(...(first ? [el("strong", {}, first.tool), ` ${printable(first.line)}`, el("em", {}, `${until}${more}`)] : []));
    const stands = first && !others.length ? "" : words(standing(row));
    facts.textContent = printable([row.said && row.id, row.agent, stands, row.tenant].filter(Boolean).join(" · "));
    const all = [row.said, row.id, labels(row), row.model, row.tokens ? `${row.tokens.toLocaleString()} tokens` : "", row.trouble];
    link.title = printable(all.filter(Boolean).join("\n"));
    return made;
  }
}
