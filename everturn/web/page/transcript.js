// The transcript of one conversation, made of its events; what came before its latest run, of messages.

import { Call, picture } from "./calls.js";
import { printable } from "./printable.js";
import { clock, el, folded, prose } from "./text.js";

export class Transcript {
  calls = new Map();
  #turn = null;
  #agent = "assistant"; // who speaks, by name once the conversation was handed on

  /** `decide(verb, body)` posts a decision; `announce(text)` says it to those who listen instead of looking. */
  constructor(root, { decide, announce }) {
    this.root = root;
    this.decide = decide;
    this.announce = announce;
    root.replaceChildren();
  }

  get waiting() {
    return [...this.calls.values()].filter((call) => call.waits);
  }

  /** The text of the turn at hand will be told again from its beginning. */
  startOver() {
    this.#turn?.text.replaceChildren();
    this.#turn?.thinking.replaceChildren();
    if (this.#turn) this.#turn.thinkingBox.hidden = true;
  }

  take(event) {
    const handle = this[`_${event.kind}`];
    handle?.call(this, event);
  }

  // ------------------------------------------------------------ what is said

  _message_received({ message, at }) {
    this.#add(this.#said(message, at));
  }

  _turn_started({ turn, at }) {
    this.#settle();
    this.#turn = this.#newTurn(`turn ${turn}`, at);
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

  _replied({ turn, message, usage, at, final }) {
    this.#turn ??= this.#newTurn(`turn ${turn}`, at);
    if (message.author) this.#turn.who.textContent = printable(message.author);
    if (!this.#turn.node.isConnected) this.#add(this.#turn.node);
    delete this.#turn.node.dataset.live;
    const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
    this.#turn.facts.textContent = tokens ? `${tokens.toLocaleString()} tokens` : "";
    this.#fill(this.#turn, message);
    if (final) this.announce("The reply is complete.");
  }

  // ------------------------------------------------------------ calls

  _tool_called({ call, refused }) {
    this.#call(call);
    if (refused) this.calls.get(call.call_id).finish({ is_error: true, content: [{ kind: "text", text: refused }] });
  }

  _approval_requested({ call, ...asked }) {
    this.#call(call).wait("approval", asked);
    this.announce(`${call.name} waits for your decision.`);
  }

  _answer_requested({ call, ...asked }) {
    this.#call(call).wait("answer", asked);
    this.announce(`${call.name} waits for your answer.`);
  }

  _decided(event) {
    for (const call of event.call_id === "*" ? this.waiting : [this.calls.get(event.call_id)]) {
      if (call?.waits) call.tell(event);
    }
  }

  _tool_started({ call_id }) {
    this.calls.get(call_id)?.become("running");
  }

  _tool_progress({ call_id, progress }) {
    this.calls.get(call_id)?.progress(progress);
  }

  _tool_finished({ result }) {
    this.calls.get(result.call_id)?.finish(result);
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
    if (!outcome) return this.#line(`over without an outcome: ${why}`);
    const turns = `${outcome.turns} ${outcome.turns === 1 ? "turn" : "turns"}`;
    const cost = outcome.cost_usd ? `$${outcome.cost_usd.toFixed(4)}` : "";
    this.#line([outcome.status.replaceAll("_", " "), turns, cost, outcome.reason].filter(Boolean).join(" · "));
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
        this.#turn = this.#newTurn("", "", message.author || "assistant");
        this.#add(this.#turn.node);
        this.#fill(this.#turn, message);
      } else this.#add(this.#said(message));
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

  #line(text) {
    this.#add(el("p", { class: "line" }, text));
  }

  #said(message, at) {
    const who = message.author ? message.author : message.role;
    const head = el("header", {}, el("b", {}, who), el("time", { title: at ?? "" }, clock(at)));
    return el("section", { class: "said" }, head, ...(message.parts ?? []).map((part) => shown(part)).filter(Boolean));
  }

  #newTurn(name, at, agent = this.#agent) {
    const who = el("b", {}, agent);
    const facts = el("span");
    const thinking = el("div", { class: "thoughts" });
    const thinkingBox = el("details", { class: "thinking", hidden: true }, el("summary", {}, "Thinking"), thinking);
    const text = el("div", { class: "text" });
    const head = el("header", {}, who, name, facts, el("time", { title: at }, clock(at)));
    return { node: el("section", { class: "turn" }, head, thinkingBox, text), facts, who, thinking, thinkingBox, text };
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
      const card = new Call(call, this.decide);
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
}

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
