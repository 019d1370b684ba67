// The page: one conversation at a time, the list beside it, and the keys.

import { asked, beside, filters, selected, write } from "./address.js";
import { OpenConversation } from "./conversation.js";
import { ForkDialog, markDifferences } from "./forks.js";
import { listen } from "./keys.js";
import { ConversationList, standing, words } from "./listing.js";
import { Many } from "./many.js";
import { printable } from "./printable.js";
import { newId, post } from "./server.js";
import { copied, dollars, el } from "./text.js";
import { drawTimeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const MORE = 200;
const SEARCH_MS = 250;
const DRAW_MS = 500;

const listing = new ConversationList($("conversations"), {
  onMore: () => narrow({ limit: String(Math.min(Number(filters().limit || MORE) + MORE, 2_000)) }),
  onMany: () => many.open(),
  onClear: () => clearFilters(),
});
const many = new Many($("many"), (verb, body) => post(verb, { by: by(), ...body }));
const forks = new ForkDialog($("fork"), {
  post: (body) => post("fork", { by: by(), ...body }),
  onFork: (id, origin) => {
    write({ beside: id });
    if (origin !== open.id) location.hash = encodeURIComponent(origin);
    else showBeside();
  },
});

let open = { id: "" }; // the conversation that is shown
let other = null; // the one beside it
let who = { by: "", fixed: false, temporal_ui: "" };

// ---------------------------------------------------------------- opening a conversation

const page = {
  post: (verb, body) => post(verb, { by: by(), ...body }),
  announce: (text) => ($("spoken").textContent = printable(text)),
  again: (asked) => forks.open(asked),
  problem,
  ui: () => who.temporal_ui,
};

function show(id) {
  open.close?.();
  document.body.classList.toggle("reading", Boolean(id));
  for (const part of ["head", "composer"]) $(part).hidden = !id;
  $("empty").hidden = Boolean(id);
  $("title").textContent = printable(id);
  $("say").value = sessionStorage.getItem(`draft ${id}`) ?? "";
  grow($("say"));
  problem("");
  const startedAt = listing.row(id)?.started_at;
  const here = { ...page, changed: (events) => here.of === open && changed(events) };
  open = here.of = new OpenConversation(id, { scroll: $("scroll"), root: $("transcript") }, here, heard, asked);
  Object.assign(open, { startedAt });
  listing.select(id);
  describe();
  drawTime();
  showBeside();
}

const heard = {
  link,
  hello: (hello) => {
    who = hello;
    $("by").disabled = hello.fixed;
    $("by").placeholder = printable(hello.by);
    if (hello.fixed) $("by").value = printable(hello.by);
  },
  conversations: takeList,
};

function showBeside() {
  const id = open.id ? beside() : "";
  if (other?.id === id) return;
  other?.close();
  other = null;
  $("other").hidden = !id;
  $("panes").classList.toggle("two", Boolean(id));
  for (const node of document.querySelectorAll(".differs")) node.classList.remove("differs");
  if (!id) return;
  $("other-title").textContent = printable(id);
  $("other-open").href = `#${encodeURIComponent(id)}`;
  const there = { ...page, changed: compare, whole: true };
  other = new OpenConversation(id, { scroll: $("other-scroll"), root: $("other-transcript") }, there, { link: () => {}, hello: () => {} });
}

let comparing = 0;

function compare() {
  if (!other || comparing) return;
  comparing = setTimeout(() => {
    comparing = 0;
    if (other) markDifferences(open.transcript, other.transcript);
  }, DRAW_MS);
}

function closeBeside() {
  write({ beside: "" });
  showBeside();
  $("scroll").focus();
}

$("other-close").onclick = closeBeside;
$("other-open").onclick = () => write({ beside: "" });

let refused = false;

function link(state, why = "") {
  $("link").textContent = state;
  $("link").dataset.state = state;
  if (why) problem(`${why} Trying again.`);
  else if (refused && state === "live") problem("");
  refused = Boolean(why) || (refused && state !== "live");
  if (state === "signed out") problem("Your sign-in is no longer good. Open the inbox with its token again.");
}

function changed() {
  describe();
  drawTime();
  compare();
}

// ---------------------------------------------------------------- what is said of it

const HELD = new Set(["paused", "stalled"]);
const AT_WORK = new Set(["running", "awaiting_approval", "awaiting_answer"]);

function describe() {
  const row = listing.row(open.id);
  // The list is a second old, and the conversation's own word may be older: whoever says it is over is right.
  const over = open.over || (row && row.ended_at);
  const ended = open.transcript?.outcome || (row?.ended_at ? standing(row) : "done");
  const state = over ? (ended === "completed" ? "done" : ended) : open.state || row?.status || "";
  const usage = open.status?.usage ?? {};
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) || row?.tokens;
  const cost = open.status?.cost_usd;
  const turn = open.status?.turn;
  const facts = [open.agent || row?.agent, row?.model, row?.tenant && `for ${row.tenant}`, turn && `turn ${turn}`, tokens && `${tokens.toLocaleString()} tokens`, cost && dollars(cost)];
  const parent = open.parent || row?.parent || "";
  $("facts").replaceChildren(printable(facts.filter(Boolean).join(" · ")));
  if (parent) $("facts").prepend(el("a", { id: "parent", href: `#${encodeURIComponent(parent)}`, title: "Its parent (u)" }, `↑ ${parent}`), " · ");
  $("state").textContent = printable(words(state));
  $("state").dataset.status = state;
  $("controls").hidden = over;
  // Each is offered if it means something now.
  const means = { pause: AT_WORK.has(state), resume: HELD.has(state), cancel_turn: AT_WORK.has(state), close: Boolean(state) };
  for (const button of $("controls").children) {
    if (document.activeElement === button && !means[button.dataset.verb]) $("main").focus();
    button.hidden = !means[button.dataset.verb];
  }
  $("say").placeholder = over ? "Say more, and it goes on" : "Message";
  const place = open.place?.() ?? "";
  const there = document.querySelector('[data-do="place"]');
  there.hidden = !place;
  if (place) there.href = place;
}

let drawing = 0;

function drawTime() {
  const shown = $("time").ariaPressed === "true" && Boolean(open.id);
  $("insight").hidden = !shown;
  if (!shown || drawing) return;
  drawing = setTimeout(() => {
    drawing = 0;
    if ($("insight").contains(document.activeElement) && document.activeElement !== $("insight")) return; // it is read
    const usage = open.status?.usage ?? {};
    const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
    drawTimeline($("insight"), open.transcript.metrics, { goTo: (turn) => open.goTo(turn), tokens, cost: open.status?.cost_usd });
  }, open.drawn === open.id ? DRAW_MS : 50);
  open.drawn = open.id;
}

$("time").onclick = () => {
  $("time").ariaPressed = $("time").ariaPressed === "true" ? "false" : "true";
  drawTime();
};

const raw = () => JSON.stringify({ id: open.id, status: open.status, events: open.transcript.events }, null, 2);
const DO = {
  id: () => copied(open.id),
  text: () => copied(open.transcript.turns.map((node) => node.innerText).join("\n\n")),
  raw: () => {
    $("raw-text").textContent = printable(raw());
    $("raw").showModal();
  },
  "copy-raw": () => copied(raw()),
};
document.addEventListener("click", ({ target }) => {
  const act = DO[target.closest("[data-do]")?.dataset.do];
  if (act) act();
  if (target.closest("[data-close]")) target.closest("dialog").close();
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target) || target.closest(".entries")) menu.open = false;
  }
});

// ---------------------------------------------------------------- the list

function takeList(told) {
  listing.take(told);
  if (told.trouble) problem(told.trouble);
  document.title = listing.waiting ? `(${listing.waiting}) everturn` : "everturn";
  $("empty").firstElementChild.textContent = listing.waiting
    ? `${listing.waiting} ${listing.waiting === 1 ? "conversation needs" : "conversations need"} you`
    : "Nobody waits for you";
  for (const [id, known] of [["agents", listing.agents], ["tenants", listing.tenants]]) {
    const names = [...known].filter((name) => name === printable(name));
    if ($(id).children.length !== names.length) $(id).replaceChildren(...names.map((value) => el("option", { value })));
  }
  const row = listing.row(open.id);
  // Revived, here or elsewhere: a new chain of runs, and new events.
  if (row && open.over && !row.ended_at && row.started_at !== open.startedAt) show(open.id);
  else {
    if (row && !open.over) open.startedAt = row.started_at;
    describe();
  }
}

let searching = 0;

/** Writes filters into the address, and lists by them. */
function narrow(changes) {
  write(changes);
  drawFilters();
  open.stream.again();
}

function clearFilters() {
  $("filter").value = "";
  narrow({ q: "", state: "", agent: "", tenant: "", within: "", after: "", before: "", limit: "" });
  $("filter").focus();
}

function drawFilters() {
  const now = filters();
  if (document.activeElement !== $("filter")) $("filter").value = now.q ?? "";
  listing.search($("filter").value);
  const between = Boolean(now.after || now.before) || now.within === "between";
  for (const field of document.querySelectorAll("[data-filter]")) {
    const name = field.dataset.filter;
    if (document.activeElement !== field) field.value = name === "within" && between ? "between" : (now[name] ?? "");
  }
  for (const label of document.querySelectorAll("[data-between]")) label.hidden = !between;
  const active = ["state", "agent", "tenant", "within", "after", "before"].filter((name) => now[name]).length;
  $("narrow").textContent = active ? `Filters (${active})` : "Filters";
  $("narrow").classList.toggle("active", Boolean(active));
  $("clear").hidden = !active && !now.q;
}

function toggleFilters(shown = $("filters").hidden) {
  $("filters").hidden = !shown;
  $("narrow").ariaExpanded = String(shown);
  if (shown) $("filters").querySelector("select").focus();
}

$("narrow").onclick = () => toggleFilters();
$("clear").onclick = clearFilters;
$("filters").onchange = ({ target }) => {
  const name = target.dataset.filter;
  const alone = name === "within" && target.value !== "between" ? { after: "", before: "" } : {};
  if (name) narrow({ [name]: target.value.trim(), ...alone });
};
$("filter").oninput = () => {
  clearTimeout(searching);
  listing.search($("filter").value);
  searching = setTimeout(() => narrow({ q: $("filter").value.trim() }), SEARCH_MS);
};

// ---------------------------------------------------------------- what people do

function by() {
  return who.fixed ? "" : $("by").value.trim();
}

function problem(text) {
  $("trouble").textContent = printable(text);
  $("trouble").hidden = !text;
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight, 240)}px`;
}

$("say").oninput = () => {
  grow($("say"));
  sessionStorage.setItem(`draft ${open.id}`, $("say").value);
};
$("say").onkeydown = (key) => {
  if (key.key === "Enter" && !key.shiftKey && !key.isComposing) {
    key.preventDefault();
    $("composer").requestSubmit();
  }
};

$("composer").onsubmit = async (event) => {
  event.preventDefault();
  const here = open;
  const text = $("say").value.trim();
  if (!text || here.sending) return;
  // The same id when it is sent again, for it may have arrived.
  here.sending = true;
  here.unsent = here.unsent?.text === text ? here.unsent : { text, message_id: newId() };
  try {
    await page.post("message", { conversation: here.id, ...here.unsent });
    here.unsent = null;
    sessionStorage.removeItem(`draft ${here.id}`);
    if (here === open) {
      $("say").value = "";
      grow($("say"));
      here.toEnd();
      if (here.over) show(here.id);
    }
  } catch (error) {
    problem(error.message);
  }
  here.sending = false;
};

async function steer(verb) {
  if (verb === "close" && !confirm("End this conversation? What waits is denied.")) return;
  try {
    await page.post(verb, { conversation: open.id });
    open.askStatus();
  } catch (error) {
    problem(error.message);
  }
}

$("controls").onclick = ({ target }) => target.dataset.verb && steer(target.dataset.verb);

/** Steers, if the button is there. */
const press = (...verbs) => {
  const button = verbs.map((verb) => $("controls").querySelector(`[data-verb="${verb}"]`)).find((one) => !one.hidden);
  if (button && !$("controls").hidden && !$("head").hidden) steer(button.dataset.verb);
};

const start = () => $("begin").showModal();
$("new").onclick = start;
$("begin").querySelector("form").onsubmit = async (event) => {
  event.preventDefault();
  const wrong = $("begin").querySelector(".problem");
  wrong.hidden = true;
  try {
    const { id } = await page.post("start", { agent: $("begin-agent").value.trim(), message: $("begin-message").value });
    $("begin-message").value = "";
    $("begin").close();
    location.hash = encodeURIComponent(id);
  } catch (error) {
    wrong.textContent = printable(error.message);
    wrong.hidden = false;
  }
};

$("help").onclick = () => $("keys").showModal();
$("by").value = localStorage.getItem("by") ?? "";
$("by").onchange = () => localStorage.setItem("by", $("by").value.trim());
$("skip").onclick = (event) => {
  event.preventDefault();
  (open.id ? $("scroll") : $("main")).focus();
};

/** Only where a conversation is open. */
const reading = (act) => (value) => open.id && act(value);

listen(
  {
    goBeside: (step) => (location.hash = encodeURIComponent(listing.beside(open.id, step) ?? "")),
    search: () => $("filter").focus(),
    toggleFilters,
    loadMore: () => document.querySelector(".more:not([hidden])")?.click(),
    decideOnMany: () => many.open(),
    start,
    decide: reading((what) => open.marked.act(what)),
    choose: reading((number) => open.marked.choose(number)),
    markNext: reading(() => open.marked.markNext()),
    step: reading((way) => open.step(way)),
    toEnd: reading(() => open.toEnd()),
    write: reading(() => $("say").focus()),
    showTimes: reading(() => $("time").click()),
    showJson: reading(DO.raw),
    goToParent: reading(() => $("parent")?.click()),
    openOther: reading(() => other && $("other-open").click()),
    closeOther: reading(() => other && closeBeside()),
    press: reading((names) => press(...names)),
    showKeys: () => $("keys").showModal(),
  },
  $("keys-list"),
);

addEventListener("hashchange", () => show(selected()));
addEventListener("popstate", () => {
  drawFilters();
  showBeside();
});
drawFilters();
if ($("clear").hidden === false && Object.keys(filters()).some((name) => name !== "q" && name !== "limit")) $("filters").hidden = false;
$("narrow").ariaExpanded = String(!$("filters").hidden);
show(selected());
