// What a conversation's events say of time, tokens and cost: spans of turns, calls, waits and stalls.

const ms = (at) => (at ? Date.parse(at) : Number.NaN);

export class Metrics {
  spans = [];
  #turns = new Map();
  #open = new Map();

  /** Those of the events that were taken, in order: `turn`, `took` in ms, `usage`, `cost`. */
  get turns() {
    return [...this.#turns.values()];
  }

  get last() {
    return Math.max(0, ...this.#turns.keys());
  }

  of(turn) {
    return this.#turns.get(turn);
  }

  /** How long the call's tool ran, in ms; all of its tries. */
  ran(callId) {
    return this.spans.filter((span) => span.kind === "tool" && span.callId === callId).reduce((sum, span) => sum + (span.to - span.from), 0);
  }

  get sums() {
    const sum = (kind) => this.spans.reduce((all, span) => all + (span.kind === kind && span.to ? span.to - span.from : 0), 0);
    const turns = this.turns.filter((one) => one.usage);
    const tokens = (name) => turns.reduce((all, one) => all + (one.usage[name] ?? 0), 0);
    const known = turns.filter((one) => typeof one.cost === "number");
    return {
      turns: turns.length,
      calls: new Set(this.spans.filter((span) => span.kind === "tool").map((span) => span.callId)).size,
      input: tokens("input_tokens"),
      cached: tokens("cached_tokens"),
      output: tokens("output_tokens"),
      cost: known.length ? known.reduce((all, one) => all + one.cost, 0) : null,
      priced: known.length === turns.length,
      model: sum("model"),
      tools: sum("tool"),
      waits: sum("wait"),
    };
  }

  take(event) {
    const at = ms(event.at);
    switch (event.kind) {
      case "turn_started":
        this.#close("stall", at);
        this.#turns.set(event.turn, { turn: event.turn, startedAt: event.at, tries: 1 });
        return this.#begin(`model ${event.turn}`, { kind: "model", turn: event.turn, name: `turn ${event.turn}`, from: at });
      case "turn_retried":
        if (this.#turns.has(event.turn)) this.#turns.get(event.turn).tries = event.attempt;
        return undefined;
      case "replied": {
        const turn = this.#turns.get(event.turn) ?? { turn: event.turn, startedAt: event.at, tries: 1 };
        this.#turns.set(event.turn, Object.assign(turn, { usage: event.usage ?? {}, cost: event.cost_usd, took: at - ms(turn.startedAt) }));
        return this.#close(`model ${event.turn}`, at);
      }
      case "approval_requested":
      case "answer_requested":
        return this.#begin(`wait ${event.call.call_id}`, { kind: "wait", turn: event.turn, callId: event.call.call_id, name: `${event.call.name} waits`, from: at });
      case "decided":
        for (const key of [...this.#open.keys()]) {
          if (key === `wait ${event.call_id}` || (event.call_id === "*" && key.startsWith("wait "))) this.#close(key, at, event.by && `${event.verdict} by ${event.by}`);
        }
        return undefined;
      case "tool_started":
        return this.#begin(`tool ${event.call_id}`, { kind: "tool", turn: event.turn, callId: event.call_id, name: event.tool, from: at });
      case "tool_lost":
        return this.#close(`tool ${event.call_id}`, at, "worker lost", "lost");
      case "tool_finished":
        this.#close(`wait ${event.result.call_id}`, at);
        return this.#close(`tool ${event.result.call_id}`, at, event.result.is_error ? "failed" : "", event.result.is_error ? "lost" : "");
      case "stalled":
        for (const key of [...this.#open.keys()]) if (key.startsWith("model ")) this.#close(key, at, "failed", "lost");
        return this.#begin("stall", { kind: "stall", turn: event.turn, name: "stalled", from: at });
      case "done":
        for (const key of [...this.#open.keys()]) this.#close(key, at);
        return undefined;
      default:
        return undefined;
    }
  }

  #begin(key, span) {
    if (this.#open.has(key)) this.#close(key, span.from, "tried again", "lost");
    if (!Number.isFinite(span.from)) return;
    this.#open.set(key, span);
    this.spans.push(span);
  }

  #close(key, at, words = "", tone = "") {
    const span = this.#open.get(key);
    if (!span) return;
    Object.assign(span, { to: Math.max(at, span.from), words, tone });
    this.#open.delete(key);
  }
}
