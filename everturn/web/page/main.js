// The page: one conversation at a time, the list beside it, and the keys.

import { ConversationList, needsPerson, words } from "./listing.js";
import { printable } from "./printable.js";
import { ask, newId, post, Stream } from "./server.js";
import { el } from "./text.js";
import { Transcript } from "./transcript.js";

const $ = (id) => document.getElementById(id);
const listing = new ConversationList($("conversations"), $("filter"));
const EARLIER = 100;
const STATUS_MS = 400;
/** Events after which nothing else waits than before. */
const PASSING = new Set(["text_delta", "thinking_delta", "tool_progress", "tool_called", "tool_started"]);

let stream = null;
let open = null; // the conversation that is shown
let who = { by: "", fixed: false };

// ---------------------------------------------------------------- opening a conversation

const selected = () => decodeURIComponent(location.hash.slice(1));

function show(id) {
  stream?.close();
  const transcript = new Transcript($("transcript"), { decide: (verb, body) => decide(id, verb, body), announce });
  open = { id, transcript, startedAt: listing.row(id)?.started_at, agent: "", state: "", over: false, marked: null };
  document.body.classList.toggle("reading", Boolean(id));
  for (const part of ["head", "composer"]) $(part).hidden = !id;
  $("empty").hidden = Boolean(id);
  atEnd = true;
  $("title").textContent = printable(id);
  $("say").value = sessionStorage.getItem(`draft ${id}`) ?? "";
  grow($("say"));
  problem("");
  listing.select(id);
  describe();
  stream = new Stream(id, hear(open));
}

/** What is heard is about the conversation that was open when it was asked for. */
function hear(here) {
  const told = (handle) => (data) => here === open && handle(data);
  return {
    link,
    hello: (hello) => {
      who = hello;
      $("by").disabled = hello.fixed;
      $("by").placeholder = printable(hello.by);
      if (hello.fixed) $("by").value = printable(hello.by);
    },
    conversations: takeList,
    opened: told((run) => {
      Object.assign(here, { agent: run.agent, runId: run.run_id });
      here.transcript = new Transcript($("transcript"), here.transcript);
      if (run.paused) here.transcript.take({ kind: "switched", name: "paused" });
      if (run.earlier) offerEarlier(here, run.earlier);
      describe();
      askStatus(here);
    }),
    resumed: told(() => {
      here.transcript.startOver();
      problem("");
      askStatus(here);
    }),
    events: told((events) => {
      for (const event of events) here.transcript.take(event);
      problem("");
      if (events.some((event) => !PASSING.has(event.kind))) askStatus(here);
      mark(here.marked?.waits ? here.marked : here.transcript.waiting[0]);
    }),
    ended: told(() => {
      here.over = true;
      describe();
    }),
    missing: told(({ error }) => problem(error)),
    trouble: told(({ error }) => problem(`${error} Trying again.`)),
  };
}

let refused = false;

function link(state, why = "") {
  $("link").textContent = state;
  $("link").dataset.state = state;
  if (why) problem(`${why} Trying again.`);
  else if (refused && state === "live") problem("");
  refused = Boolean(why) || (refused && state !== "live");
  if (state === "signed out") problem("Your sign-in is no longer good. Open the inbox with its token again.");
}

// Stays at the end for one who is at the end, and elsewhere for all others.
let atEnd = true;
const toEnd = () => atEnd && $("scroll").scrollTo(0, $("scroll").scrollHeight);
new ResizeObserver(toEnd).observe($("transcript"));
$("scroll").onscroll = ({ target }) => {
  atEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 60;
};
$("transcript").addEventListener("click", () => (atEnd = false)); // what unfolds must not move away

function offerEarlier(here, count) {
  const button = el("button", { type: "button", class: "quiet earlier" });
  const label = () => (button.textContent = `Show earlier messages (${count.toLocaleString()})`);
  button.onclick = async () => {
    button.disabled = true;
    try {
      const query = { conversation: here.id, run: here.runId, before: count, limit: EARLIER };
      const { from, messages } = await ask("earlier", query);
      const scroll = $("scroll");
      const fromEnd = scroll.scrollHeight - scroll.scrollTop;
      button.remove();
      atEnd = false;
      here.transcript.prepend(messages);
      count = from;
      if (count) $("transcript").prepend(button);
      scroll.scrollTop = scroll.scrollHeight - fromEnd;
      label();
    } catch (error) {
      problem(error.message);
    }
    button.disabled = false;
  };
  label();
  $("transcript").prepend(button);
}

// ---------------------------------------------------------------- what events do not tell

/** What only the conversation itself knows: what really waits, until when, and what it has used. One question at a time. */
function askStatus(here) {
  if (here.asking) {
    here.askAgain = true;
    return;
  }
  here.asking = true;
  setTimeout(async () => {
    try {
      const status = await ask("status", { conversation: here.id });
      if (here === open) takeStatus(here, status);
    } catch (error) {
      if (here === open && !here.over) problem(error.message);
    }
    here.asking = false;
    if (here.askAgain && here === open) askStatus(here);
    here.askAgain = false;
  }, STATUS_MS);
}

function takeStatus(here, status) {
  here.status = status;
  here.state = status.state;
  problem("");
  for (const waiting of status.waiting ?? []) {
    const call = here.transcript.calls.get(waiting.call_id);
    // A decision that the conversation passed over: the call waits as before.
    call?.wait(waiting.needs ?? "approval", waiting);
    call?.expires(waiting.expires_at);
  }
  mark(here.marked?.waits ? here.marked : here.transcript.waiting[0]);
  describe();
}

function describe() {
  const row = listing.row(open.id);
  // The list is a second old, and the conversation's own word may be older: whoever says it is over is right.
  const over = open.over || (row && row.ended_at);
  const state = over ? (row?.ended_at ? row.status : "done") : open.state || row?.status || "";
  const usage = open.status?.usage ?? {};
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) || row?.tokens;
  const cost = open.status?.cost_usd;
  const turn = open.status?.turn;
  const facts = [open.agent || row?.agent, row?.model, turn && `turn ${turn}`, tokens && `${tokens.toLocaleString()} tokens`];
  $("facts").textContent = printable([...facts, cost && `$${cost.toFixed(4)}`].filter(Boolean).join(" · "));
  $("state").textContent = printable(words(state));
  $("state").dataset.status = state;
  $("controls").hidden = over;
  const held = ["paused", "stalled"].includes(state);
  for (const button of $("controls").children) {
    const verb = button.dataset.verb;
    button.hidden = (verb === "resume" && !held) || (verb === "pause" && held);
  }
  $("say").placeholder = over ? "Say more, and it goes on" : "Message";
}

// ---------------------------------------------------------------- the list

function takeList(told) {
  listing.take(told);
  if (told.trouble) problem(told.trouble);
  document.title = listing.waiting ? `(${listing.waiting}) everturn` : "everturn";
  $("empty").firstElementChild.textContent = listing.waiting
    ? `${listing.waiting} ${listing.waiting === 1 ? "conversation waits" : "conversations wait"} for you`
    : "Nobody waits for you";
  $("agents").replaceChildren(...[...new Set(listing.rows.map((row) => row.agent))].filter((agent) => agent && agent === printable(agent)).map((value) => el("option", { value })));
  const row = listing.row(open.id);
  // Revived, here or elsewhere: a new chain of runs, and new events.
  if (row && open.over && !row.ended_at && row.started_at !== open.startedAt) show(open.id);
  else {
    if (row && !open.over) open.startedAt = row.started_at;
    describe();
  }
}

// ---------------------------------------------------------------- what people do

const by = () => (who.fixed ? "" : $("by").value.trim());

function decide(conversation, verb, body) {
  return post(verb, { conversation, by: by(), ...body });
}

function problem(text) {
  $("trouble").textContent = printable(text);
  $("trouble").hidden = !text;
}

function announce(text) {
  $("spoken").textContent = printable(text);
}

/** The call that the keys are about. */
function mark(call) {
  if (open.marked !== call) open.marked?.node.classList.remove("marked");
  open.marked = call ?? null;
  call?.node.classList.add("marked");
}

/** Nothing is decided on unseen: all of it, or its end where it is too long, has to be in view. */
function inView(node) {
  const { top, bottom, height } = node.getBoundingClientRect();
  const frame = $("scroll").getBoundingClientRect();
  return bottom <= frame.bottom + 1 && (top >= frame.top - 1 || (height > frame.height && bottom > frame.top));
}

function bringIntoView(node) {
  atEnd = false;
  node.scrollIntoView({ block: node.clientHeight > $("scroll").clientHeight ? "end" : "center" });
}

function act(what) {
  const { marked } = open;
  if (!marked?.waits) return;
  if (inView(marked.node)) marked.act(what);
  else bringIntoView(marked.node);
}

function markNext() {
  const { waiting } = open.transcript;
  mark(waiting[(waiting.indexOf(open.marked) + 1) % waiting.length]);
  if (open.marked) bringIntoView(open.marked.node);
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
    await decide(here.id, "message", here.unsent);
    here.unsent = null;
    sessionStorage.removeItem(`draft ${here.id}`);
    if (here === open) {
      $("say").value = "";
      grow($("say"));
      if (here.over) show(here.id);
    }
  } catch (error) {
    problem(error.message);
  }
  here.sending = false;
};

$("controls").onclick = async ({ target }) => {
  const verb = target.dataset.verb;
  if (!verb || (verb === "close" && !confirm("End this conversation? What waits is denied."))) return;
  try {
    await decide(open.id, verb, {});
    askStatus(open);
  } catch (error) {
    problem(error.message);
  }
};

$("new").onclick = () => $("begin").showModal();
$("begin").querySelector("[data-close]").onclick = () => $("begin").close();
$("begin").querySelector("form").onsubmit = async (event) => {
  event.preventDefault();
  const wrong = $("begin").querySelector(".problem");
  wrong.hidden = true;
  try {
    const body = { agent: $("begin-agent").value.trim(), message: $("begin-message").value, by: by() };
    const { id } = await post("start", body);
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

const KEYS = {
  j: () => (location.hash = encodeURIComponent(listing.beside(open.id, 1) ?? "")),
  k: () => (location.hash = encodeURIComponent(listing.beside(open.id, -1) ?? "")),
  a: () => act("approve"),
  e: () => act("edit"),
  d: () => act("deny"),
  r: () => act("answer"),
  w: markNext,
  m: () => $("say").focus(),
  n: () => $("begin").showModal(),
  "/": () => $("filter").focus(),
  "?": () => $("keys").showModal(),
};
document.addEventListener("keydown", (key) => {
  const typing = key.target.closest("input, textarea, dialog");
  if (typing && key.key === "Escape" && !key.target.closest("dialog")) key.target.blur();
  if (typing || key.ctrlKey || key.metaKey || key.altKey || key.repeat || !KEYS[key.key]) return;
  key.preventDefault();
  KEYS[key.key]();
});

addEventListener("hashchange", () => show(selected()));
show(selected());
