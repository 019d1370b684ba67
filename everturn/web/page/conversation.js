// One conversation on the page: its stream, its transcript, and what only the conversation itself knows.

import { MarkedCall } from "./marked_call.js";
import { Scroll } from "./scroll.js";
import { ask, Stream } from "./server.js";
import { el } from "./text.js";
import { Transcript } from "./transcript.js";

const EARLIER = 200;
const MOST_EARLIER = 1_000;
const STATUS_MS = 400;
const CHILDREN_MS = 2_000;
/** Events after which nothing else waits than before. */
const PASSING = new Set(["text_delta", "thinking_delta", "tool_progress", "tool_called", "tool_started"]);

export class OpenConversation {
  state = "";
  agent = "";
  parent = "";
  over = false;
  #asking = false;
  #askAgain = false;
  #timer = 0;
  #scroll;

  /** `pane`: the elements `scroll` and `root`. `page`: `post(verb, body)`, `announce`, `again`, `problem`, `changed()`
   * and `ui`; if it is to be `whole`, what came before is shown unasked; `hear` is what the stream tells of anything else. */
  constructor(id, pane, page, hear, filters = null) {
    Object.assign(this, { id, pane, page });
    this.#scroll = new Scroll(pane.scroll, pane.root);
    this.marked = new MarkedCall(() => this.transcript.waiting, this.#scroll);
    this.#anew();
    this.stream = new Stream(id, { ...hear, ...this.#heard() }, filters);
  }

  close() {
    clearTimeout(this.#timer);
    this.closed = true;
    this.stream.close();
    this.#scroll.stop();
  }

  get calls() {
    return this.transcript.waiting;
  }

  #anew() {
    const { post, announce, again } = this.page;
    this.transcript = new Transcript(this.pane.root, {
      decide: (verb, body, conversation = this.id) => post(verb, { conversation, ...body }),
      announce,
      again: again && ((asked) => again({ conversation: this.id, ...asked })),
      place: (cursor) => this.place(cursor),
    });
  }

  /** The same place in Temporal's Web UI. */
  place(cursor = "") {
    const [run, step] = cursor.split("/");
    const at = step ? `/${run}/history/events/${step.split(".")[0]}` : this.runId ? `/${this.runId}` : "";
    return this.page.ui() && `${this.page.ui()}/workflows/${encodeURIComponent(this.id)}${at}`;
  }

  /** What is heard after another one was opened is not for it. */
  #heard() {
    const told = (handle) => (data) => !this.closed && handle(data);
    const { problem, changed } = this.page;
    return {
      opened: told((run) => {
        Object.assign(this, { runId: run.run_id, parent: run.parent });
        this.#anew();
        if (run.paused) this.transcript.take({ kind: "switched", name: "paused" });
        if (run.earlier) this.#offerEarlier(run.earlier);
        changed();
        this.askStatus();
      }),
      resumed: told(() => {
        this.transcript.startOver();
        problem("");
        this.askStatus();
      }),
      events: told((events) => {
        for (const event of events) this.transcript.take(event);
        problem("");
        if (events.some((event) => !PASSING.has(event.kind))) this.askStatus();
        this.marked.markFirst();
        changed(events);
      }),
      ended: told(() => {
        this.over = true;
        changed();
      }),
      missing: told(({ error }) => problem(error)),
      trouble: told(({ error }) => problem(`${error} Trying again.`)),
    };
  }

  #offerEarlier(count) {
    let { whole } = this.page;
    const button = el("button", { type: "button", class: "quiet earlier" });
    const label = () => (button.textContent = `Show earlier messages (${count.toLocaleString()})`);
    button.onclick = async () => {
      button.disabled = true;
      try {
        const query = { conversation: this.id, run: this.runId, before: count, limit: whole ? MOST_EARLIER : EARLIER };
        const { from, messages } = await ask("earlier", query);
        if (this.closed) return;
        const { scroll } = this.pane;
        const fromEnd = scroll.scrollHeight - scroll.scrollTop;
        button.remove();
        if (!whole) this.#scroll.stay();
        this.transcript.prepend(messages);
        count = from;
        if (count) this.pane.root.prepend(button);
        if (!whole) scroll.scrollTop = scroll.scrollHeight - fromEnd;
        label();
        this.page.changed();
      } catch (error) {
        this.page.problem(error.message);
      }
      button.disabled = whole = false;
    };
    label();
    this.pane.root.prepend(button);
    if (whole) button.onclick();
  }

  // ------------------------------------------------------------ what events do not tell

  /** What really waits, until when, what the agents that work for it wait for, and what it has used. */
  askStatus() {
    if (this.#asking) {
      this.#askAgain = true;
      return;
    }
    this.#asking = true;
    clearTimeout(this.#timer);
    setTimeout(async () => {
      try {
        const status = await ask("status", { conversation: this.id });
        if (!this.closed) this.#takeStatus(status);
      } catch (error) {
        if (!this.closed && !this.over) this.page.problem(error.message);
      }
      this.#asking = false;
      if (this.#askAgain && !this.closed) this.askStatus();
      this.#askAgain = false;
    }, STATUS_MS);
  }

  #takeStatus(status) {
    this.status = status;
    this.state = status.state;
    this.agent = status.agent || this.agent;
    this.page.problem("");
    for (const waiting of status.waiting ?? []) {
      const call = this.transcript.calls.get(waiting.call_id);
      // A decision that the conversation passed over: the call waits as before.
      call?.wait(waiting.needs ?? "approval", waiting);
      call?.expires(waiting.expires_at);
    }
    this.transcript.takeChildren(status.children ?? []);
    // What agents at work wait for is in no event of this conversation.
    if (status.agents?.length && !this.over) this.#timer = setTimeout(() => this.askStatus(), CHILDREN_MS);
    this.marked.markFirst();
    this.page.changed();
  }

  // ------------------------------------------------------------ moving

  toEnd() {
    this.#scroll.toEnd();
  }

  goTo(turn) {
    const node = this.transcript.nodeOf(turn);
    if (!node) return;
    this.#scroll.bring(node);
    node.focus({ preventScroll: true });
  }

  /** To the next thing that was said, or the one before: focused, so that its actions are one Tab away. */
  step(by) {
    const all = this.transcript.turns;
    const here = all.indexOf(document.activeElement?.closest?.(".turn, .said"));
    const next = here < 0 ? (by > 0 ? all[0] : all.at(-1)) : all[Math.min(Math.max(here + by, 0), all.length - 1)];
    if (!next) return;
    this.#scroll.bring(next, "start");
    next.focus({ preventScroll: true });
  }
}
