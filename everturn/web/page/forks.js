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

/** Marks where two transcripts differ, turn by turn; what is not loaded on one side is not compared. */
export function markDifferences(one, other) {
  const [left, right] = [one, other].map(byTurn);
  const from = Math.max(...[left, right].map((nodes) => Number.parseInt([...nodes.keys()][0] ?? "0", 10)));
  for (const key of new Set([...left.keys(), ...right.keys()])) {
    const nodes = [left.get(key), right.get(key)];
    const differs = Number.parseInt(key, 10) >= from && words(nodes[0]) !== words(nodes[1]);
    for (const node of nodes) node?.classList.toggle("differs", differs);
  }
}

/** A transcript's nodes: "3" is its third turn, "3 1" what was said first after it. */
function byTurn({ turns }) {
  const replies = turns.filter((node) => node.matches(".turn"));
  const first = replies.findIndex((node) => Number(node.dataset.turn));
  // Those before the latest run bear no numbers: they are counted back from the first that does.
  let turn = first < 0 ? 0 : Number(replies[first].dataset.turn) - first - 1;
  let said = 0;
  const nodes = new Map();
  for (const node of turns) {
    if (node.matches(".turn")) {
      turn = Number(node.dataset.turn) || turn + 1;
      said = 0;
      nodes.set(`${turn}`, node);
    } else nodes.set(`${turn} ${(said += 1)}`, node);
  }
  return nodes;
}

const words = (node) =>
  [...(node?.querySelectorAll(":scope > :not(header, .call, .raw), .call .line") ?? [])].map((part) => part.textContent).join("\n");
