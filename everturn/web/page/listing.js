// The list: conversations by what they wait for, those that need a person first.

import { printable } from "./printable.js";
import { ago, el } from "./text.js";

const GROUPS = [
  ["Waits for you", ["awaiting_approval", "awaiting_answer"]],
  ["Stalled", ["stalled", "stuck"]],
  ["Running", ["running"]],
  ["Paused", ["paused"]],
  ["Idle", ["idle"]],
  ["Over", null],
];

export const words = (status) => status.replaceAll("_", " ");
export const needsPerson = (status) => GROUPS[0][1].includes(status) || GROUPS[1][1].includes(status);

/** For whom it is, and what it was started with. */
function labels({ tenant, metadata }) {
  const facts = Object.entries(metadata ?? {}).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [...(tenant ? [`for ${tenant}`] : []), ...facts].join(", ");
}

export class ConversationList {
  rows = [];
  #counts = {};
  #links = new Map();
  #groups;

  constructor(root, filter) {
    this.filter = filter;
    filter.oninput = () => this.draw();
    this.#groups = GROUPS.map(([name, statuses]) => {
      const count = el("span", { class: "count" });
      const list = el("ul");
      const section = el("section", { data: { group: name } }, el("h2", {}, name, count), list);
      root.append(section);
      return { statuses, count, list, section };
    });
    setInterval(() => this.draw(), 30_000); // "3 min" becomes "4 min"
  }

  take({ rows, counts }) {
    this.rows = rows;
    this.#counts = counts;
    this.draw();
  }

  row(id) {
    return this.rows.find((row) => row.id === id);
  }

  get waiting() {
    return this.rows.filter((row) => needsPerson(row.status)).length;
  }

  /** The id that stands `step` places from this one, as they are shown. */
  beside(id, step) {
    const shown = this.#groups.flatMap(({ list }) => [...list.querySelectorAll("a")].map((link) => link.dataset.id));
    const at = shown.indexOf(id);
    return at < 0 ? shown[step > 0 ? 0 : shown.length - 1] : shown[Math.min(Math.max(at + step, 0), shown.length - 1)];
  }

  select(id) {
    this.selected = id;
    this.draw();
    this.#links.get(id)?.scrollIntoView({ block: "nearest" });
  }

  draw() {
    const wanted = this.filter.value.trim().toLowerCase();
    const named = new Set(GROUPS.flatMap(([, statuses]) => statuses ?? []));
    const kept = new Set();
    for (const { statuses, count, list, section } of this.#groups) {
      const belongs = (status) => (statuses ? statuses.includes(status) : !named.has(status));
      const rows = this.rows.filter(
        (row) => belongs(row.status) && `${row.id} ${row.agent} ${row.model} ${labels(row)}`.toLowerCase().includes(wanted),
      );
      const all = Object.entries(this.#counts).reduce((sum, [status, n]) => sum + (belongs(status) ? n : 0), 0);
      section.hidden = !rows.length;
      count.textContent = wanted ? rows.length : Math.max(all, rows.length);
      const items = rows.map((row) => this.#item(row));
      rows.forEach((row) => kept.add(row.id));
      // Only what has moved: the focus stays where it is.
      items.forEach((item, at) => list.children[at] !== item && list.insertBefore(item, list.children[at] ?? null));
      while (list.children.length > items.length) list.lastChild.remove();
    }
    for (const id of this.#links.keys()) if (!kept.has(id)) this.#links.delete(id);
  }

  #item(row) {
    let link = this.#links.get(row.id);
    if (!link) {
      link = el("a", { href: `#${encodeURIComponent(row.id)}`, data: { id: row.id } });
      link.append(el("span", { class: "dot" }), el("b"), el("time"), el("small"));
      this.#links.set(row.id, link);
      el("li", {}, link);
    }
    const [dot, name, time, facts] = link.children;
    link.setAttribute("aria-current", row.id === this.selected ? "true" : "false");
    dot.dataset.status = row.status;
    name.textContent = printable(row.id);
    time.textContent = ago(row.started_at);
    time.title = new Date(row.started_at).toLocaleString();
    facts.textContent = printable([row.agent, words(row.status)].filter(Boolean).join(" · "));
    const more = [row.id, labels(row), row.model, row.tokens ? `${row.tokens.toLocaleString()} tokens` : ""];
    link.title = printable(more.filter(Boolean).join("\n"));
    return link.parentNode;
  }
}
