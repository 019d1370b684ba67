// Another way from here: a fork as it is, or with other words, another model or another result; and both side by side.

import { printable } from "./printable.js";

const TITLES = {
  fork: ["Fork from here", "A new conversation with the same beginning, to the end of this turn. This one stays as it is."],
  words: ["Run again with other words", "A new conversation with the same beginning, in which this is said instead."],
  model: ["Run again with another model", "A new conversation with the same beginning, in which another model takes this turn."],
  result: ["Run again with another result", "A new conversation with the same beginning, in which the tool gave this instead. The tool does not run again."],
};

export class ForkDialog {
  #asked = null;

  /** `post(body)` starts the fork, and returns its id; `onFork(id, origin)` shows it. */
  constructor(dialog, { post, onFork }) {
    this.dialog = dialog;
    this.part = (name) => dialog.querySelector(`[data-part="${name}"]`);
    dialog.querySelector("form").onsubmit = async (event) => {
      event.preventDefault();
      this.part("problem").hidden = true;
      this.part("go").disabled = true;
      try {
        const origin = this.#asked.conversation;
        const { id } = await post(this.#body());
        dialog.close();
        onFork(id, origin);
      } catch (error) {
        this.part("problem").textContent = printable(error.message);
        this.part("problem").hidden = false;
      }
      this.part("go").disabled = false;
    };
  }

  /** `asked`: the `conversation` and its `turn`, and what shall be other: `fork`, `words`, `model` or a `call`. */
  open(asked) {
    this.#asked = asked;
    const kind = asked.fork ? "fork" : asked.call ? "result" : asked.model ? "model" : "words";
    const [title, what] = TITLES[kind];
    this.kind = kind;
    this.part("title").textContent = title;
    this.part("what").textContent = kind === "result" ? `${what} ${printable(asked.call.name)}, turn ${asked.turn}.` : `${what} Turn ${asked.turn}.`;
    const words = kind === "words" || kind === "result" || (kind === "model" && asked.text);
    this.part("text-label").hidden = !words;
    this.part("text-name").textContent = kind === "result" ? "What the tool gave" : "What is said";
    this.part("text").value = printable(asked.text ?? "");
    this.part("model").value = "";
    this.part("model").required = kind === "model";
    this.part("problem").hidden = true;
    this.dialog.showModal();
    (words && kind !== "model" ? this.part("text") : this.part("model")).focus();
  }

  #body() {
    const { conversation, turn, call, text: before } = this.#asked;
    const model = this.part("model").value.trim();
    const body = { conversation, ...(model && { model }) };
    const text = this.part("text").value;
    switch (this.kind) {
      case "fork":
        return { ...body, at_turn: turn };
      case "result":
        return { ...body, at_turn: turn, results: { [call.call_id]: text === printable(before) ? before : text } };
      default:
        // What was said before that turn is said again; without words, its turn had only results before it.
        return { ...body, at_turn: turn - 1, ...(text && { text: text === printable(before) ? before : text }) };
    }
  }
}

/** Marks where two transcripts begin to differ. */
export function markDifferences(one, other) {
  const [left, right] = [one, other].map(({ root }) => [...root.querySelectorAll(".turn, .said")]);
  const said = (node) => node?.querySelector(".text")?.textContent ?? node?.textContent.replace(/\d\d:\d\d/g, "") ?? "";
  const words = (node) => `${said(node)}${[...(node?.querySelectorAll(".call") ?? [])].map((call) => call.querySelector(".line").textContent).join()}`;
  for (let at = 0; at < Math.max(left.length, right.length); at += 1) {
    const differs = words(left[at]) !== words(right[at]);
    for (const node of [left[at], right[at]]) node?.classList.toggle("differs", differs);
  }
}
