// A tool call as a card: what is asked for, who decided, what came of it; and the buttons while it waits.

import { printable } from "./printable.js";
import { clock, el, folded, oneLine, parsed } from "./text.js";

const LABELS = {
  called: "called",
  waiting: "waits for you",
  decided: "decided",
  running: "running",
  done: "done",
  failed: "failed",
  lost: "worker lost",
};
const VERDICTS = { approve: "approved", deny: "denied", answer: "answered" };

export class Call {
  /** `decide(verb, body)` posts a decision about it, and throws a Refusal. */
  constructor(call, decide) {
    this.call = call;
    this.decide = decide;
    this.label = el("span", { class: "label" });
    this.line = el("span", { class: "line" });
    this.note = el("p", { class: "note", hidden: true });
    this.box = el("div", { class: "decide", hidden: true });
    this.decided = el("p", { class: "decided", hidden: true });
    this.result = el("div", { class: "result", hidden: true });
    this.body = el("div", { class: "body" }, this.#arguments(), this.note, this.box, this.decided, this.result);
    const summary = el("summary", {}, el("span", { class: "dot" }), el("b", {}, call.name), this.line, this.label);
    this.node = el("details", { class: "call", data: { call: call.call_id } }, summary, this.body);
    this.line.textContent = oneLine(call.arguments ?? {});
    this.become("called");
  }

  get waits() {
    return this.state === "waiting";
  }

  become(state, label = LABELS[state]) {
    this.state = this.node.dataset.state = state;
    this.label.textContent = printable(label);
    if (state !== "waiting") this.box.hidden = true;
    if (state !== "called" && state !== "waiting" && !this.result.hasChildNodes()) this.note.hidden = true;
  }

  /** It needs a person, for an "approval" or an "answer"; `reason` is one of the WaitReason of plans.py. */
  wait(needs, { reason, why }) {
    this.explain(why);
    const doubtful = reason === "outcome_unknown";
    if (this.waits && this.needs === needs && this.doubtful === doubtful) return;
    this.needs = needs;
    this.doubtful = doubtful;
    this.become("waiting", needs === "answer" ? "waits for your answer" : LABELS.waiting);
    this.decided.hidden = true;
    this.node.open = true;
    this.#offer();
  }

  explain(text) {
    this.note.textContent = printable(text ?? "");
    this.note.hidden = !text;
  }

  expires(at) {
    if (at) this.label.textContent = `${LABELS.waiting} · until ${clock(at)}`;
  }

  tell({ verdict, by, note, arguments: edited, at }) {
    const words = [VERDICTS[verdict] ?? verdict, by && `by ${by}`, at && clock(at)].filter(Boolean).join(" ");
    this.decided.replaceChildren(printable(words), note ? printable(`: “${note}”`) : "");
    this.edited = edited ?? this.edited;
    if (edited) this.decided.append(el("span", { class: "edited" }, ` with ${oneLine(edited, 1000)}`));
    this.decided.hidden = false;
    this.become("decided", VERDICTS[verdict] ?? verdict);
  }

  progress(value) {
    this.become("running", typeof value === "string" ? value.slice(0, 120) : oneLine({ progress: value }, 120));
  }

  finish(result) {
    const text = (result.content ?? []).map((part) => (part.kind === "text" ? part.text : `[${part.kind}]`)).join("\n");
    const pictures = (result.content ?? []).filter((part) => part.kind === "image").map(picture);
    if (result.decision) this.tell(result.decision);
    this.result.replaceChildren(folded(text || "(empty)"), ...pictures);
    this.result.hidden = false;
    const denied = result.decision?.verdict === "deny";
    this.become(result.is_error ? "failed" : "done", denied ? "denied" : undefined);
    this.line.textContent = `${oneLine(this.edited ?? this.call.arguments ?? {}, 80)}  →  ${printable(text.slice(0, 200)).replaceAll("\n", " ")}`;
    if (!this.node.matches(":focus-within")) this.node.open = false;
  }

  // ------------------------------------------------------------ while it waits

  /** Opens the box for one of: approve, edit, deny, answer. Only approve is done at once. */
  act(what) {
    if (!this.waits) return;
    const offered = this.box.querySelector(`button[data-act="${what}"]`);
    offered?.click();
  }

  #offer() {
    const button = (act, label, key, kind = "") =>
      el("button", { type: "button", class: kind, data: { act }, title: `${label} (${key})`, onclick: () => this.#take(act) }, label);
    const answers = this.needs === "answer";
    this.box.replaceChildren(
      ...(answers ? [] : [button("approve", this.doubtful ? "Run it again" : "Approve", "a", "primary")]),
      ...(answers ? [] : [button("edit", "Edit arguments", "e")]),
      button("answer", answers ? "Answer" : "Answer in its place", "r", answers ? "primary" : ""),
      button("deny", "Deny", "d", "danger"),
    );
    this.box.hidden = false;
  }

  #take(act) {
    const { call_id, arguments: seen } = this.call;
    if (act === "approve") return this.#send("approve", { call_id, expected: seen ?? {} });
    if (act === "edit") {
      return this.#ask("Arguments, as JSON", printable(JSON.stringify(seen ?? {}, null, 2)), "Approve with these", (text) => {
        const edited = parsed(text);
        if (edited === null || typeof edited !== "object" || Array.isArray(edited)) throw new Error("it is no object: {...}");
        return this.#send("approve", { call_id, arguments: edited, expected: seen ?? {} });
      });
    }
    if (act === "deny") {
      return this.#ask("Why not? The model is told.", "", "Deny", (text) =>
        this.#send("deny", { call_id, ...(text.trim() && { reason: text.trim() }) }),
      );
    }
    return this.#ask("The result, as a text or as JSON", "", "Answer", (text) =>
      this.#send("answer", { call_id, content: /^\s*[[{]/.test(text) ? parsed(text) : text }),
    );
  }

  #ask(label, value, verb, send) {
    const problem = el("p", { class: "problem", role: "alert", hidden: true });
    const rows = Math.min(14, Math.max(2, value.split("\n").length));
    const input = el("textarea", { value, rows, spellcheck: !value, "aria-label": label, placeholder: label });
    const back = el("button", { type: "button", onclick: () => this.#offer() }, "Back");
    const form = el("form", {}, el("label", {}, label, input), problem);
    form.append(el("div", { class: "row" }, el("button", { class: "primary" }, verb), back));
    input.onkeydown = (key) => {
      if (key.key === "Escape") this.#offer();
      if (key.key === "Enter" && (key.ctrlKey || key.metaKey)) form.requestSubmit();
    };
    form.onsubmit = async (event) => {
      event.preventDefault();
      try {
        await send(input.value);
      } catch (error) {
        problem.textContent = printable(`That is not JSON that fits: ${error.message}`);
        problem.hidden = false;
      }
    };
    this.box.replaceChildren(form);
    input.focus();
  }

  async #send(verb, body) {
    const controls = [...this.box.querySelectorAll("button, textarea")];
    controls.forEach((control) => (control.disabled = true));
    try {
      await this.decide(verb, body);
    } catch (error) {
      this.explain(error.message);
      controls.forEach((control) => (control.disabled = false));
    }
  }

  #arguments() {
    const { arguments: values, unparsed } = this.call;
    if (unparsed) return folded(unparsed);
    const table = el("dl", { class: "arguments" });
    for (const [name, value] of Object.entries(values ?? {})) {
      table.append(el("dt", {}, name), el("dd", {}, folded(asText(value))));
    }
    return table;
  }
}

function asText(value) {
  if (typeof value === "string") return value;
  const line = JSON.stringify(value);
  return line.length < 80 ? line : JSON.stringify(value, null, 2);
}

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** A picture that came along; one that stands elsewhere is named only: looking at it would tell its owner. */
export function picture(part) {
  const shown = PICTURES.includes(part.media_type) && part.data;
  if (shown) return el("img", { src: `data:${part.media_type};base64,${part.data}`, alt: "A picture" });
  return el("p", { class: "chip" }, `${part.kind} ${part.name ?? part.url ?? part.media_type ?? ""}`);
}
