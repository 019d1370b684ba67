// The transcript of one conversation, made of its events; what came before its latest run, of messages.

import { Call, picture } from "./calls.js";
import { prose } from "./markdown.js";
import { Metrics } from "./metrics.js";
import { printable } from "./printable.js";
import { clock, copied, dollars, el, folded, lasting } from "./text.js";

const DELTAS = new Set(["text_delta", "thinking_delta", "tool_progress", "turn_retried"]);
const NOT_WELL = { limit_reached: "warning", failed: "bad", cancelled: "warning" };

export class Transcript {
  calls = new Map();
  metrics = new Metrics();
  events = [];
  #turn = null;
  #turns = new Map();
  #agent = "assistant"; // who speaks, by name once the conversation was handed on
  #said = null; // the last message of a person, until a turn answers it
  #others = new Map(); // calls of agents that work for this conversation

  /** `decide(verb, body, conversation)` posts a decision; `announce(text)` says it to those who listen instead of looking;
   * `again({ turn, text, model, call })` is asked when somebody wants another way from there; `place(cursor)` is the
   * address of an event in Temporal's Web UI, or empty. */
  constructor(root, { decide, announce, again = null, place = () => "" }) {
    Object.assign(this, { root, decide, announce, again, place });
    root.replaceChildren();
  }

  get waiting() {
    return [...this.calls.values(), ...this.#others.values()].filter((call) => call.waits);
  }

  get turns() {
    return [...this.root.querySelectorAll(".turn, .said")];
  }

  /** The text of the turn at hand will be told again from its beginning. */
  startOver() {
    this.#turn?.text.replaceChildren();
    this.#turn?.thinking.replaceChildren();
    if (this.#turn) this.#turn.thinkingBox.hidden = true;
  }

  take(event) {
    if (!DELTAS.has(event.kind)) this.events.push(event);
    this.metrics.take(event);
    const handle = this[`_${event.kind}`];
    handle?.call(this, event);
  }

  // ------------------------------------------------------------ what is said

  _message_received({ message, at, cursor }) {
    const node = this.#saidNode(message, at, cursor);
    this.#said = { text: textOf(message), node };
    this.#add(node);
  }

  _turn_started({ turn, at, cursor, agent }) {
    this.#settle();
    if (agent) this.#agent = agent;
    this.#turn = this.#newTurn(turn, at, cursor);
    this.#turn.node.dataset.live = "";
    this.#add(this.#turn.node);
  }

  _thinking_delta({ text }) {
    if (!this.#turn) return;
    this.#turn.thinkingBox.hidden = false;
    this.#turn.thinking.append(printable(text));
  }

  _text_delta({ text }) {
    this.#turn?.text.append(printable(text));
  }

  _turn_limited({ provider }) {
    if (this.#turn) this.#turn.facts.textContent = `waits for ${printable(provider)}'s limit`;
  }

  _turn_retried({ attempt }) {
    this.startOver();
    if (this.#turn) this.#turn.facts.textContent = `try ${attempt}`;
  }

  _replied({ turn, message, usage, at, final, cursor, cost_usd }) {
    this.#turn ??= this.#newTurn(turn, at, cursor);
    if (message.author) this.#turn.who.textContent = printable(message.author);
    if (!this.#turn.node.isConnected) this.#add(this.#turn.node);
    delete this.#turn.node.dataset.live;
    const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
    const facts = [tokens && `${tokens.toLocaleString()} tokens`, cost_usd && dollars(cost_usd), lasting(this.metrics.of(turn)?.took)];
    this.#turn.facts.textContent = facts.filter(Boolean).join(" · ");
    this.#turn.message = message;
    this.#fill(this.#turn, message);
    this.#said = null;
    if (final) this.announce("The reply is complete.");
  }

  // ------------------------------------------------------------ calls

  _tool_called({ call, refused }) {
    this.#call(call);
    if (refused) this.calls.get(call.call_id).finish({ is_error: true, content: [{ kind: "text", text: refused }] });
  }

  _approval_requested({ call, ...asked }) {
    this.#call(call).wait("approval", { ...asked, arguments: call.arguments });
    this.announce(`${call.name} waits for your decision.`);
  }

  _answer_requested({ call, ...asked }) {
    this.#call(call).wait("answer", { ...asked, arguments: call.arguments });
    this.announce(`${call.name} waits for your answer.`);
  }

  _decided(event) {
    const all = [...this.calls.values()].filter((call) => call.waits);
    for (const call of event.call_id === "*" ? all : [this.calls.get(event.call_id)]) if (call?.waits) call.tell(event);
  }

  _tool_started({ call_id, conversation_id }) {
    const call = this.calls.get(call_id);
    call?.become("running");
    if (conversation_id) call?.link(conversation_id);
  }

  _tool_progress({ call_id, progress }) {
    this.calls.get(call_id)?.progress(progress);
  }

  _tool_finished({ result }) {
    const call = this.calls.get(result.call_id);
    call?.finish(result);
    call?.took(this.metrics.ran(result.call_id));
  }

  _tool_lost({ call_id, cause }) {
    const call = this.calls.get(call_id);
    call?.become("lost");
    call?.explain(cause);
  }

  _hook_acted({ hook, did, why, call_id }) {
    this.calls.get(call_id)?.explain(`The hook ${hook} ${did}${why ? `: ${why}` : ""}.`);
  }

  _handed_off({ agent, by }) {
    this.#settle();
    this.#agent = agent;
    this.#line(`${by} handed the conversation on to ${agent}.`);
  }

  _approval_reminder({ call_id }) {
    this.calls.get(call_id)?.explain("It expires soon.");
  }

  /** What the agents that work for this conversation wait for, under the calls that asked them. */
  takeChildren(children) {
    const waiting = new Set();
    for (const child of children) {
      let top = child;
      for (let up = top; up; up = children.find((one) => one.conversation_id === top.parent)) top = up;
      const asking = this.calls.get(top.call_id);
      asking?.link(top.conversation_id);
      for (const one of child.waiting) {
        const key = `${child.conversation_id} ${one.call_id}`;
        waiting.add(key);
        let call = this.#others.get(key);
        if (!call && asking) {
          const decide = (verb, body) => this.decide(verb, body, child.conversation_id);
          call = new Call({ call_id: one.call_id, name: one.tool, arguments: one.arguments }, decide);
          this.#others.set(key, call);
          const where = el("a", { href: `#${encodeURIComponent(child.conversation_id)}` }, child.conversation_id);
          asking.children.append(el("section", { ariaLabel: `${child.agent} asks` }, el("p", { class: "asks" }, `${child.agent} asks, in `, where), call.node));
          asking.node.open = true;
          this.announce(`${one.tool} of ${child.agent} waits for you.`);
        }
        call?.wait(one.needs ?? "approval", one);
        call?.expires(one.expires_at);
      }
    }
    for (const [key, call] of this.#others) if (call.waits && !waiting.has(key)) call.become("decided");
  }

  // ------------------------------------------------------------ what happens to the conversation

  _stalled({ cause, cure }) {
    this.#settle();
    const model = el("input", { placeholder: "another model, or the same", "aria-label": "Model to go on with", spellcheck: false });
    const wrong = el("p", { class: "problem", role: "alert", hidden: true });
    const form = el("form", { class: "row" }, model, el("button", {}, "Go on"), wrong);
    form.onsubmit = async (event) => {
      event.preventDefault();
      try {
        await this.decide("resume", model.value.trim() ? { model: model.value.trim() } : {});
        form.remove();
      } catch (error) {
        wrong.textContent = printable(error.message);
        wrong.hidden = false;
      }
    };
    this.#add(el("div", { class: "notice trouble" }, el("b", {}, "Stalled"), el("p", {}, cause), el("p", {}, cure), form));
    this.announce("The conversation is stalled.");
  }

  _fell_back({ cause, model }) {
    this.#line(`${cause} It goes on with ${model}.`);
  }

  _turn_batched({ turn, provider, batch_id }) {
    this.#line(`Turn ${turn} waits for ${batch_id ? `batch ${batch_id}` : `the next batch of ${provider}`}.`);
  }

  _worker_awaited({ cause, cure }) {
    this.#line(`${cause} ${cure}`);
  }

  _compacted({ summary }) {
    const what = "From here on, the model is shown less";
    if (!summary) return this.#line(`${what}: old tool results as notices.`);
    this.#add(el("details", { class: "line" }, el("summary", {}, `${what}: a summary of the older part.`), folded(summary)));
  }

  _switched({ name, by, reason }) {
    const done = { pause: "paused", resume: "resumed", cancel_turn: "turn cancelled", close: "closed" }[name] ?? name;
    this.#line(`${done}${by ? ` by ${by}` : ""}${reason ? `: ${reason}` : ""}`);
  }

  _done({ outcome, why }) {
    this.#settle();
    this.outcome = outcome ? outcome.status : "failed";
    if (!outcome) return this.#line(`over without an outcome: ${why}`, "bad");
    const turns = `${outcome.turns} ${outcome.turns === 1 ? "turn" : "turns"}`;
    const cost = outcome.cost_usd ? dollars(outcome.cost_usd) : "";
    const words = [outcome.status.replaceAll("_", " "), turns, cost, outcome.reason].filter(Boolean).join(" · ");
    this.#line(words, NOT_WELL[outcome.status] ?? "well");
    // Results that came after the last turn.
    for (const message of outcome.tail ?? []) this.#results(message);
  }

  // ------------------------------------------------------------ what came before

  /** Messages that stand before all others; the place where one reads stays. */
  prepend(messages) {
    const holder = this.root;
    this.root = el("div");
    const at = this.#turn;
    for (const message of messages) {
      if (message.role === "tool") this.#results(message);
      else if (message.role === "assistant") {
        this.#turn = this.#newTurn(0, "", "", message.author || "assistant");
        this.#turn.message = message;
        this.#add(this.#turn.node);
        this.#fill(this.#turn, message);
      } else this.#add(this.#saidNode(message));
    }
    const made = this.root;
    this.root = holder;
    this.#turn = at;
    holder.prepend(...made.childNodes);
  }

  // ------------------------------------------------------------ underneath

  #add(node) {
    this.root.append(node);
  }

  #line(text, tone = "") {
    this.#add(el("p", { class: `line ${tone}`.trim() }, text));
  }

  #saidNode(message, at, cursor = "") {
    const who = message.author ? message.author : message.role;
    const text = textOf(message);
    const turn = () => (this.metrics.turns.find((one) => at && one.startedAt >= at)?.turn ?? this.metrics.last + 1);
    const menu = this.#menu(`What ${who} said`, () => [
      ["Copy", () => copied(text)],
      this.again && at && message.role === "user" && !message.author && ["Run again with other words", () => this.again({ turn: turn(), text, words: true })],
      this.#placed(cursor),
    ]);
    const head = el("header", {}, el("b", {}, who), el("time", { title: at ?? "" }, clock(at)), menu);
    return el("article", { class: "said", tabIndex: -1, "aria-label": `${who} said` }, head, ...(message.parts ?? []).map((part) => shown(part)).filter(Boolean));
  }

  #newTurn(number, at, cursor, agent = this.#agent) {
    const name = number ? `turn ${number}` : "";
    const who = el("b", {}, agent);
    const facts = el("span");
    const thinking = el("div", { class: "thoughts" });
    const thinkingBox = el("details", { class: "thinking", hidden: true }, el("summary", {}, "Thinking"), thinking);
    const text = el("div", { class: "text" });
    const before = this.#said?.text;
    const made = { facts, who, thinking, thinkingBox, text, number };
    const menu = this.#menu(name || "An earlier turn", () => [
      ["Copy", () => copied(textOf(made.message))],
      ["Raw JSON", () => this.#raw(made)],
      number && this.again && ["Fork from here", () => this.again({ turn: number, fork: true })],
      number && this.again && ["Run again with another model", () => this.again({ turn: number, text: before ?? "", model: true })],
      this.#placed(cursor),
    ]);
    const head = el("header", {}, who, name && el("span", {}, name), facts, el("time", { title: at ?? "" }, clock(at)), menu);
    made.node = el("article", { class: "turn", tabIndex: -1, "aria-label": [agent, name].filter(Boolean).join(", "), data: { turn: number } }, head, thinkingBox, text);
    if (number) this.#turns.set(number, made);
    return made;
  }

  #placed(cursor) {
    const address = cursor && this.place(cursor);
    return address && ["Open in Temporal’s Web UI", address];
  }

  /** Made when it is opened: a long transcript has thousands. */
  #menu(label, entries) {
    const list = el("div", { class: "entries" });
    const menu = el("details", { class: "menu" }, el("summary", { "aria-label": `${label}: actions`, title: "Actions" }, "⋯"), list);
    menu.ontoggle = () => {
      if (!menu.open) return;
      const made = entries().filter(Boolean).map(([words, act]) => {
        if (typeof act === "string") return el("a", { href: act, target: "_blank", rel: "noopener noreferrer" }, words);
        return el("button", { type: "button", onclick: () => {
          menu.open = false;
          menu.firstElementChild.focus();
          act();
        } }, words);
      });
      list.replaceChildren(...made);
      made[0]?.focus();
    };
    menu.onkeydown = (key) => {
      if (key.key !== "Escape" || !menu.open) return;
      key.stopPropagation();
      menu.open = false;
      menu.firstElementChild.focus();
    };
    menu.onfocusout = ({ relatedTarget }) => {
      if (relatedTarget && !menu.contains(relatedTarget)) menu.open = false;
    };
    return menu;
  }

  #raw(turn) {
    const there = turn.node.querySelector(":scope > .raw");
    if (there) return there.remove();
    const events = this.events.filter((event) => event.turn === turn.number && turn.number);
    turn.node.append(el("div", { class: "raw" }, folded(JSON.stringify(events.length ? events : turn.message, null, 2))));
  }

  #fill(turn, message) {
    const thoughts = message.parts.filter((part) => part.kind === "thinking").map((part) => part.text).join("\n");
    turn.thinking.replaceChildren(printable(thoughts));
    turn.thinkingBox.hidden = !thoughts;
    turn.text.replaceChildren(...message.parts.filter((part) => part.kind !== "thinking").map(shown).filter(Boolean));
    for (const part of message.parts) if (part.kind === "tool_call") this.#call(part);
  }

  #call(call) {
    if (!this.calls.has(call.call_id)) {
      const turn = this.#turn?.number;
      const again = this.again && turn ? (which, text) => this.again({ turn, call: which, text }) : null;
      const card = new Call(call, this.decide, again);
      this.calls.set(call.call_id, card);
      (this.#turn?.node ?? this.root).append(card.node);
    }
    return this.calls.get(call.call_id);
  }

  #results(message) {
    for (const part of message.parts) if (part.kind === "tool_result") this.calls.get(part.call_id)?.finish(part);
  }

  /** The turn at hand is over: what is half told is all there will be. */
  #settle() {
    if (this.#turn) delete this.#turn.node.dataset.live;
    this.#turn = null;
  }

  /** Where a turn stands, if it is shown. */
  nodeOf(turn) {
    return this.#turns.get(turn)?.node;
  }
}

const textOf = (message) => (message?.parts ?? []).filter((part) => part.kind === "text").map((part) => part.text).join("\n");

function shown(part) {
  switch (part.kind) {
    case "text":
      return prose(part.text);
    case "image":
    case "document":
      return picture(part);
    case "server_tool_use":
      return el("details", { class: "thinking" }, el("summary", {}, part.name), folded(JSON.stringify(part.data, null, 2)));
    case "thinking":
    case "tool_call":
    case "tool_result":
      return null;
    default:
      return el("p", { class: "chip" }, part.kind);
  }
}
