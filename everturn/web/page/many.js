// Decisions on many calls at once: each is shown with its arguments before anything is sent, and what was sent is
// bound to what was shown.

import { difference } from "./calls.js";
import { printable } from "./printable.js";
import { asked } from "./address.js";
import { ask } from "./server.js";
import { ago, clock, el } from "./text.js";

export class Many {
  #calls = [];
  #items = new Map();

  /** `decide(verb, body)` posts, and throws a Refusal. */
  constructor(dialog, decide) {
    this.dialog = dialog;
    this.decide = decide;
    this.part = (name) => dialog.querySelector(`[data-part="${name}"]`);
    this.part("only").oninput = () => this.#narrow();
    this.part("all").onchange = ({ target }) => {
      for (const { box, item } of this.#items.values()) if (!item.hidden && !box.disabled) box.checked = target.checked;
      this.#count();
    };
    this.part("again").onclick = () => this.#look();
    for (const verb of ["approve", "deny"]) this.part(verb).onclick = () => this.#send(verb);
  }

  open() {
    this.dialog.showModal();
    this.part("words").value = "";
    this.#look();
  }

  async #look() {
    this.#say("Looking at what waits …");
    this.part("calls").replaceChildren();
    this.#items.clear();
    this.#calls = [];
    this.#count();
    try {
      const { calls, silent, more } = await ask("waiting", asked());
      this.#calls = calls;
      for (const call of calls) this.#show(call);
      const notes = [
        !calls.length && "No call waits for an approval that may be given together with others.",
        silent.length && `No worker answers for ${silent.length} more: ${silent.slice(0, 3).join(", ")}${silent.length > 3 ? " …" : ""}.`,
        more && "There are more than are shown; decide on these first.",
      ];
      this.#say(notes.filter(Boolean).join(" "));
    } catch (error) {
      this.#say(error.message);
    }
    this.#narrow();
    this.part("only").focus();
  }

  #show(call) {
    const box = el("input", { type: "checkbox", onchange: () => this.#count() });
    const until = call.expires_at ? ` · until ${clock(call.expires_at)}` : "";
    const state = el("span", { class: "came" });
    const head = el("label", {}, box, el("b", {}, call.tool), el("span", { class: "where" }, `${call.conversation} · ${call.agent} · ${ago(call.since)}${until}`), state);
    const item = el("li", {}, head, difference({}, call.arguments));
    this.part("calls").append(item);
    this.#items.set(call, { box, item, state, wanted: `${call.tool} ${call.conversation} ${call.agent} ${JSON.stringify(call.arguments)}`.toLowerCase() });
  }

  get #chosen() {
    // What is not seen is not decided on.
    return this.#calls.filter((call) => this.#items.get(call).box.checked && !this.#items.get(call).item.hidden);
  }

  #narrow() {
    const words = this.part("only").value.trim().toLowerCase();
    for (const { item, wanted } of this.#items.values()) item.hidden = !wanted.includes(words);
    this.#count();
  }

  #count() {
    const open = [...this.#items.values()].filter(({ box, item }) => !box.disabled && !item.hidden);
    const chosen = this.#chosen.length;
    this.part("all").checked = chosen > 0 && chosen === open.length;
    this.part("all").indeterminate = chosen > 0 && chosen < open.length;
    this.part("all").disabled = !open.length;
    this.part("chosen").textContent = `${chosen} of ${open.length} chosen`;
    for (const [verb, name] of [["approve", "Approve"], ["deny", "Deny"]]) {
      this.part(verb).disabled = !chosen;
      this.part(verb).textContent = chosen ? `${name} ${chosen}` : name;
    }
  }

  async #send(verb) {
    const chosen = this.#chosen;
    const calls = chosen.map(({ conversation, call_id, question, arguments: expected }) => ({ conversation, call_id, question, expected }));
    const words = this.part("words").value.trim();
    for (const button of ["approve", "deny"]) this.part(button).disabled = true;
    try {
      const { calls: came } = await this.decide("decide_many", { verdict: verb, calls, ...(words && { words }) });
      came.forEach(({ refused }, at) => {
        const { box, state, item } = this.#items.get(chosen[at]);
        box.checked = false;
        box.disabled = true;
        item.dataset.came = refused ? "refused" : verb;
        state.textContent = printable(refused || { approve: "approved", deny: "denied" }[verb]);
      });
      this.part("words").value = "";
      const taken = came.filter(({ refused }) => !refused).length;
      this.#say(`${taken} ${verb === "approve" ? "approved" : "denied"}${taken < came.length ? `, ${came.length - taken} not taken: each says why` : ""}.`);
    } catch (error) {
      this.#say(error.message);
    }
    this.#count();
  }

  #say(text) {
    this.part("note").textContent = printable(text);
  }
}
