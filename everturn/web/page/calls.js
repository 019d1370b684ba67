// A tool call as a card: what is asked for, who decided, what came of it; and the buttons while it waits.

import { printable } from "./printable.js";
import { clock, copied, el, folded, lasting, oneLine, parsed } from "./text.js";

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
  /** `decide(verb, body)` posts a decision about it, and throws a Refusal. `again(call, results)`: asked when somebody
   * wants to go on from here with another result; null if that can't be. */
  constructor(call, decide, again = null) {
    this.call = call;
    this.decide = decide;
    this.again = again;
    this.label = el("span", { class: "label" });
    this.line = el("span", { class: "line" });
    this.who = el("span", { class: "who", hidden: true });
    this.note = el("p", { class: "note", hidden: true });
    this.box = el("div", { class: "decide", hidden: true });
    this.decided = el("div", { class: "decided", hidden: true });
    this.result = el("div", { class: "result", hidden: true });
    this.actions = el("div", { class: "actions" });
    this.links = el("p", { class: "links", hidden: true });
    this.changed = el("div", { class: "changes", hidden: true });
    this.children = el("div", { class: "children" });
    this.body = el("div", { class: "body" }, this.#arguments(), this.changed, this.note, this.box, this.decided, this.children, this.result, this.actions, this.links);
    const summary = el("summary", {}, el("span", { class: "dot" }), el("b", {}, call.name), this.line, this.who, this.label);
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
    if (state !== "called" && state !== "waiting" && !this.second && !this.result.hasChildNodes()) this.note.hidden = true;
  }

  /** It needs a person, for an "approval" or an "answer"; `reason` is one of the WaitReason of plans.py. */
  wait(needs, { reason, why, question, arguments: values = this.call.arguments ?? {} }) {
    this.explain(why);
    const doubtful = reason === "outcome_unknown";
    if (this.waits && this.needs === needs && this.doubtful === doubtful && this.question === question) return;
    this.needs = needs;
    this.doubtful = doubtful;
    // What is decided on is what is shown: not the call that it was when another tab of this browser was opened.
    this.question = question;
    this.seen = values;
    this.changed.replaceChildren(difference(this.call.arguments ?? {}, values));
    this.changed.hidden = !this.changed.firstChild.hasChildNodes();
    this.second = false;
    this.become("waiting", needs === "answer" ? "waits for your answer" : LABELS.waiting);
    this.decided.hidden = this.who.hidden = true;
    this.node.open = true;
    this.#offer();
    // The edit came back: its form, and what was written there, stay to be mended.
    if (this.draft && needs === "approval") this.act("edit", this.draft);
  }

  explain(text) {
    this.note.textContent = printable(text ?? "");
    this.note.hidden = !text;
  }

  expires(at) {
    if (at) this.label.textContent = `${this.needs === "answer" ? "waits for your answer" : LABELS.waiting} · until ${clock(at)}`;
  }

  tell({ verdict, by, note, arguments: edited, at, by_policy, by_model }) {
    const done = edited ? `edited and ${VERDICTS[verdict]}` : (VERDICTS[verdict] ?? verdict);
    const who = by_model ? `the reviewer ${by}, no person` : by;
    const whom = by_policy ? `by the policy of ${by || "the conversation"}` : who && `by ${who}`;
    const words = [done, whom, at && clock(at)].filter(Boolean).join(" ");
    this.decided.replaceChildren(el("p", {}, words, note ? `: “${note}”` : ""));
    this.edited = edited ?? this.edited;
    if (this.edited) this.decided.append(difference(this.call.arguments ?? {}, this.edited));
    this.decided.hidden = false;
    this.who.textContent = printable([done, whom].filter(Boolean).join(" "));
    this.who.hidden = false;
    this.decidedAt ??= at;
    if (this.state !== "done" && this.state !== "failed") this.become("decided", VERDICTS[verdict] ?? verdict);
  }

  progress(value) {
    const fraction = typeof value === "number" && value >= 0 && value <= 1;
    const words = typeof value === "string" ? value.slice(0, 120) : oneLine({ progress: value }, 120);
    this.become("running", fraction ? `${Math.round(value * 100)} %` : words);
  }

  finish(result) {
    this.draft = "";
    this.answered = result;
    const content = result.content ?? [];
    const text = content.map((part) => (part.kind === "text" ? part.text : `[${part.kind}]`)).join("\n");
    const media = content.filter((part) => part.kind !== "text").map(picture);
    if (result.decision) this.tell(result.decision);
    const texts = content.filter((part) => part.kind === "text").map((part) => part.text).join("\n");
    this.result.replaceChildren(...(texts || !media.length ? [folded(laidOut(texts) || "(empty)")] : []), ...media);
    this.result.hidden = false;
    this.actions.replaceChildren(this.#actions(texts));
    const denied = result.decision?.verdict === "deny";
    this.become(result.is_error ? "failed" : "done", denied ? "denied" : undefined);
    this.line.textContent = `${oneLine(this.edited ?? this.call.arguments ?? {}, 80)}  →  ${printable(text.slice(0, 200)).replaceAll("\n", " ")}`;
    if (!this.node.matches(":focus-within")) this.node.open = false;
  }

  /** How long it ran, on the collapsed line too. */
  took(ms) {
    const words = lasting(ms);
    if (words && (this.state === "done" || this.state === "failed") && !this.answered?.decision?.verdict?.match(/deny|answer/)) {
      this.label.textContent = `${LABELS[this.state]} · ${words}`;
    }
  }

  /** The conversation of the agent that does the work. */
  link(id) {
    this.links.replaceChildren(el("a", { href: `#${encodeURIComponent(id)}` }, `Open its conversation ${id}`));
    this.links.hidden = false;
  }

  // ------------------------------------------------------------ while it waits

  /** Opens the box for one of: approve, edit, deny, answer. Only approve, and a choice, is done at once. */
  act(what, value) {
    if (!this.waits) return;
    if (value !== undefined) return this.#take(what, value);
    this.box.querySelector(`button[data-act="${what}"]`)?.click();
  }

  #offer() {
    const button = (act, label, key, kind = "") =>
      el("button", { type: "button", class: kind, data: { act }, title: `${label} (${key})`, onclick: () => this.#take(act) }, label);
    const answers = this.needs === "answer";
    const { choices } = this.call.arguments ?? {};
    const choose = answers && Array.isArray(choices) ? choices.filter((choice) => typeof choice === "string").slice(0, 50) : [];
    const { question } = this;
    const { call_id } = this.call;
    this.box.replaceChildren(
      ...choose.map((choice, at) =>
        el("button", {
          type: "button",
          class: "choice",
          data: { act: `choice-${at + 1}` },
          title: at < 9 ? `Answer “${choice}” (${at + 1})` : `Answer “${choice}”`,
          onclick: () => this.#send("answer", { call_id, question, content: choice }),
        }, choice),
      ),
      ...(answers ? [] : [button("approve", this.doubtful ? "Run it again" : "Approve", "a", "primary")]),
      ...(answers ? [] : [button("edit", "Edit arguments", "e")]),
      button("answer", answers ? (choose.length ? "Answer in other words" : "Answer") : "Answer in its place", "r", answers && !choose.length ? "primary" : ""),
      button("deny", "Deny", "d", "danger"),
    );
    this.box.hidden = false;
  }

  /** Back to the buttons, with the focus on the one that led here. */
  #back(act) {
    this.draft = "";
    this.#offer();
    this.box.querySelector(`button[data-act="${act}"]`)?.focus();
  }

  #take(act, draft) {
    const { seen, question } = this;
    const { call_id } = this.call;
    if (act === "approve") return this.#send("approve", { call_id, question, expected: seen });
    if (act === "edit") {
      const written = draft ?? printable(JSON.stringify(seen, null, 2));
      return this.#ask(act, "Arguments, as JSON", written, "Approve with these", (text) => {
        const edited = parsed(text);
        if (edited === null || typeof edited !== "object" || Array.isArray(edited)) throw new Error("it is no object: {...}");
        this.draft = text;
        return this.#send("approve", { call_id, question, arguments: edited, expected: seen });
      });
    }
    if (act === "deny") {
      return this.#ask(act, "Why not? The model is told.", "", "Deny", (text) =>
        this.#send("deny", { call_id, question, ...(text.trim() && { reason: text.trim() }) }),
      );
    }
    return this.#ask(act, "The result, as a text or as JSON", "", "Answer", (text) =>
      this.#send("answer", { call_id, question, content: /^\s*[[{]/.test(text) ? parsed(text) : text }),
    );
  }

  #ask(act, label, value, verb, send) {
    const problem = el("p", { class: "problem", role: "alert", hidden: true });
    const rows = Math.min(14, Math.max(2, value.split("\n").length));
    const input = el("textarea", { value, rows, spellcheck: !value, "aria-label": label, placeholder: label });
    const changes = el("div", { class: "changes" });
    const back = el("button", { type: "button", onclick: () => this.#back(act) }, "Back");
    const form = el("form", {}, el("label", {}, label, input), changes, problem);
    form.append(el("div", { class: "row" }, el("button", { class: "primary" }, verb), back));
    if (act === "edit") {
      input.oninput = () => {
        try {
          changes.replaceChildren(difference(this.seen, parsed(input.value)));
        } catch {
          changes.replaceChildren(); // half written
        }
      };
      input.oninput();
    }
    input.onkeydown = (key) => {
      if (key.key === "Escape") {
        key.stopPropagation();
        this.#back(act);
      }
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
    this.box.hidden = false;
    input.focus({ preventScroll: true });
    form.scrollIntoView({ block: "nearest" }); // its buttons, too
  }

  async #send(verb, body) {
    const controls = [...this.box.querySelectorAll("button, textarea")];
    controls.forEach((control) => (control.disabled = true));
    try {
      // The page knows whose call it is: none of a sub-agent's is meant that has the same id.
      await this.decide(verb, { ...body, children: false });
      // Its buttons go, and the focus stays with the call.
      if (!this.draft) this.node.querySelector("summary").focus({ preventScroll: true });
    } catch (error) {
      // Who came second is told who was first, whatever the card shows by now.
      this.second = !this.waits;
      this.explain(error.message);
      controls.forEach((control) => (control.disabled = false));
    }
  }

  // ------------------------------------------------------------ underneath

  #actions(text) {
    const copy = el("button", { type: "button", class: "quiet" }, "Copy");
    copy.onclick = async () => {
      await copied(text);
      copy.textContent = "Copied";
    };
    const raw = el("button", { type: "button", class: "quiet", ariaExpanded: "false" }, "JSON");
    raw.onclick = () => {
      const shown = raw.parentNode.parentNode.querySelector(".raw");
      if (shown) shown.remove();
      else raw.parentNode.after(el("div", { class: "raw" }, folded(JSON.stringify({ call: this.call, result: this.answered }, null, 2))));
      raw.ariaExpanded = String(!shown);
    };
    const other = this.again && el("button", { type: "button", class: "quiet" }, "Run again with another result");
    if (other) other.onclick = () => this.again(this.call, text);
    return el("p", { class: "row small" }, copy, raw, other);
  }

  #arguments() {
    const { arguments: values, unparsed } = this.call;
    if (unparsed) return folded(unparsed);
    return table(values ?? {});
  }
}

function table(values) {
  const rows = el("dl", { class: "arguments" });
  for (const [name, value] of Object.entries(values)) rows.append(el("dt", {}, name), el("dd", {}, folded(asText(value))));
  return rows;
}

/** What an edit took away, put there and left. */
export function difference(before, after) {
  if (after === null || typeof after !== "object" || Array.isArray(after)) throw new Error("no object");
  const rows = el("dl", { class: "arguments difference", "aria-label": "What was changed" });
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  for (const name of names) {
    const old = name in before ? asText(before[name]) : null;
    const now = name in after ? asText(after[name]) : null;
    if (old === now) continue;
    const cell = el("dd");
    if (old !== null) cell.append(el("del", {}, folded(old)));
    if (now !== null) cell.append(el("ins", {}, folded(now)));
    rows.append(el("dt", {}, name), cell);
  }
  return rows;
}

function asText(value) {
  if (typeof value === "string") return value;
  const line = JSON.stringify(value);
  return line.length < 80 ? line : JSON.stringify(value, null, 2);
}

/** JSON on several lines, if that is what a tool gave. */
function laidOut(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 200_000) return text;
  try {
    const value = JSON.stringify(parsed(text), null, 2);
    return value.length < 120 ? text : value;
  } catch {
    return text;
  }
}

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** A picture that came along; one that stands elsewhere is named only: looking at it would tell its owner. */
export function picture(part) {
  const shown = PICTURES.includes(part.media_type) && part.data;
  if (shown) return el("img", { src: `data:${part.media_type};base64,${part.data}`, alt: part.name || "A picture" });
  return el("p", { class: "chip" }, `${part.kind} ${part.name ?? part.url ?? part.media_type ?? ""}`);
}
