// The call that the keys are about: which of those that wait, and that no key decides on one that is out of sight.

export class MarkedCall {
  #call = null;
  #waiting;
  #scroll;

  /** `waiting()`: the calls that wait, in order. */
  constructor(waiting, scroll) {
    this.#waiting = waiting;
    this.#scroll = scroll;
  }

  /** Keeps the call that is marked as long as it waits; else marks the first one. */
  markFirst() {
    this.#mark(this.#call?.waits && this.#call.node.isConnected ? this.#call : this.#waiting()[0]);
  }

  markNext() {
    const waiting = this.#waiting();
    this.#mark(waiting[(waiting.indexOf(this.#call) + 1) % waiting.length]);
    if (this.#call) this.#scroll.bring(this.#call.node);
  }

  #mark(call) {
    if (this.#call !== call) this.#call?.node.classList.remove("marked");
    const first = call && !this.#call;
    this.#call = call ?? null;
    call?.node.classList.add("marked");
    if (first) this.#scroll.opensAt(call.node);
    if (!call) this.#scroll.opensAt(null);
  }

  /** If the call is out of sight, this only brings it into view: nobody decides on what they do not see. */
  act(what, value) {
    const call = this.#call;
    if (!call?.waits) return;
    if (this.#scroll.shows(call.node)) call.act(what, value);
    else this.#scroll.bring(call.node);
  }

  choose(number) {
    this.act(`choice-${number}`);
  }
}
