// The conversation at a glance: what it used, turn by turn, and what took how long.

import { dollars, el, lasting } from "./text.js";

const MOST_BARS = 160;
const MOST_SPANS = 400;
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 96;

/** Fills `root`. `goTo(turn)` brings a turn into view. */
export function drawTimeline(root, metrics, { goTo, tokens, cost }) {
  const sums = metrics.sums;
  const fact = (value, name) => (value ? el("div", {}, el("dt", {}, name), el("dd", {}, value)) : "");
  const facts = el(
    "dl",
    { class: "sums" },
    fact(sums.turns.toLocaleString(), sums.turns === 1 ? "turn" : "turns"),
    fact(sums.calls.toLocaleString(), sums.calls === 1 ? "tool call" : "tool calls"),
    fact((tokens || sums.input + sums.output).toLocaleString(), "tokens in all"),
    fact(cost ? dollars(cost) : "", "cost in all"),
    fact(lasting(sums.model), "model at work"),
    fact(sums.tools && lasting(sums.tools), "tools at work"),
    fact(sums.waits && lasting(sums.waits), "waiting for people"),
  );
  const turns = metrics.turns.filter((turn) => turn.usage);
  root.replaceChildren(facts, turns.length ? chart(turns, sums, goTo) : "", spans(metrics.spans, goTo));
}

// ---------------------------------------------------------------- tokens and cost per turn

function chart(turns, sums, goTo) {
  const size = Math.ceil(turns.length / MOST_BARS);
  const bars = [];
  for (let at = 0; at < turns.length; at += size) {
    const some = turns.slice(at, at + size);
    const sum = (name) => some.reduce((all, one) => all + (one.usage[name] ?? 0), 0);
    const [input, cached, output] = ["input_tokens", "cached_tokens", "output_tokens"].map(sum);
    bars.push({ turn: some[0].turn, last: some.at(-1).turn, input: Math.max(0, input - cached), cached, output, cost: some.reduce((all, one) => all + (one.cost ?? 0), 0) });
  }
  const highest = Math.max(1, ...bars.map((bar) => bar.input + bar.cached + bar.output));
  const dearest = Math.max(...bars.map((bar) => bar.cost));
  const width = Math.max(24, bars.length) * 10;
  const svg = document.createElementNS(SVG, "svg");
  const words = `Tokens per turn: ${bars.length} bars, at most ${highest.toLocaleString()} tokens${dearest ? `; cost up to ${dollars(dearest)}` : ""}`;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words })) svg.setAttribute(name, value);
  const dots = [];
  bars.forEach((bar, at) => {
    const group = document.createElementNS(SVG, "g");
    let top = HEIGHT;
    for (const kind of ["cached", "input", "output"]) {
      const height = (bar[kind] / highest) * (HEIGHT - 8);
      top -= height;
      group.append(shape("rect", { class: kind, x: at * 10 + 1.5, y: top, width: 7, height: Math.max(height, bar[kind] ? 1 : 0) }));
    }
    group.append(shape("rect", { class: "hit", x: at * 10, y: 0, width: 10, height: HEIGHT }));
    const title = document.createElementNS(SVG, "title");
    const which = bar.turn === bar.last ? `turn ${bar.turn}` : `turns ${bar.turn} to ${bar.last}`;
    title.textContent = [which, `${(bar.input + bar.cached).toLocaleString()} tokens in${bar.cached ? `, ${bar.cached.toLocaleString()} of them cached` : ""}`, `${bar.output.toLocaleString()} out`, bar.cost && dollars(bar.cost)].filter(Boolean).join("\n");
    group.append(title);
    group.onclick = () => goTo(bar.turn);
    svg.append(group);
    if (dearest) dots.push(`${at * 10 + 5},${HEIGHT - 4 - (bar.cost / dearest) * (HEIGHT - 12)}`);
  });
  if (dots.length > 1) svg.append(shape("polyline", { class: "cost", points: dots.join(" ") }));
  const key = (name, words) => el("span", { class: `key ${name}` }, words);
  const keys = [key("input", "tokens in"), sums.cached ? key("cached", "of these cached") : "", key("output", "tokens out"), dearest ? key("cost", "cost") : ""];
  return el("figure", {}, el("figcaption", {}, "Per turn ", ...keys), svg);
}

function shape(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// ---------------------------------------------------------------- what took how long

function spans(all, goTo) {
  if (!all.length) return "";
  const some = all.slice(-MOST_SPANS);
  const now = Date.now();
  const place = squeezed(some, now);
  const rows = some.map((span) => {
    const to = span.to ?? now;
    const bar = el("i", { class: "bar" });
    bar.style.left = `${place(span.from) * 100}%`;
    bar.style.width = `${Math.max((place(to) - place(span.from)) * 100, 0.6)}%`;
    const lasted = span.to ? lasting(span.to - span.from) : "so far";
    const row = el(
      "button",
      { type: "button", class: "span", data: { kind: span.kind, tone: span.tone ?? "" }, title: [span.name, lasted, span.words].filter(Boolean).join(" · ") },
      el("span", { class: "name" }, span.name),
      el("span", { class: "track" }, bar),
      el("span", { class: "took" }, [lasted, span.words].filter(Boolean).join(" · ")),
    );
    row.onclick = () => goTo(span.turn);
    return row;
  });
  const before = all.length - some.length;
  return el(
    "section",
    { class: "spans", ariaLabel: "Timeline" },
    el("h2", {}, "Timeline", el("small", {}, " long silences are shortened")),
    before ? el("p", { class: "line" }, `${before.toLocaleString()} earlier steps are not shown`) : "",
    ...rows,
  );
}

/** Places from 0 to 1: where nothing but waiting goes on, time is shortened, so that the rest can be seen. */
function squeezed(some, now) {
  const ends = [...new Set(some.flatMap((span) => [span.from, span.to ?? now]))].sort((one, other) => one - other);
  const busy = some.filter((span) => span.kind === "model" || span.kind === "tool").map((span) => [span.from, span.to ?? now]);
  busy.sort((one, other) => one[0] - other[0]);
  const works = [];
  let at = 0;
  let until = Number.NEGATIVE_INFINITY;
  for (const end of ends) {
    while (at < busy.length && busy[at][0] <= end) until = Math.max(until, busy[at++][1]);
    works.push(until > end);
  }
  const active = ends.reduce((sum, end, index) => sum + (works[index] && index + 1 < ends.length ? ends[index + 1] - end : 0), 0);
  const longest = Math.max(active / 6, 200);
  const places = new Map();
  let sum = 0;
  ends.forEach((end, index) => {
    places.set(end, sum);
    const step = (ends[index + 1] ?? end) - end;
    sum += works[index] ? step : Math.min(step, longest);
  });
  return (moment) => (sum ? (places.get(moment) ?? sum) / sum : 0);
}
