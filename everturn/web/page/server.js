// The connection to `everturn web`: what is asked, what is posted, and the stream that comes back by itself.

import { EXACT_NUMBERS, parsed } from "./text.js";

const SILENT_MS = 40_000; // the server beats every 15 s
const RETRY_MS = 1_500;

export class Refusal extends Error {}

export async function ask(path, query) {
  return answered(await reached(fetch(`/api/${path}?${new URLSearchParams(query)}`)));
}

export async function post(verb, body) {
  const headers = { "Content-Type": "application/json" };
  const json = JSON.stringify({ exact_numbers: EXACT_NUMBERS, ...body });
  return answered(await reached(fetch(`/api/${verb}`, { method: "POST", headers, body: json })));
}

async function reached(request) {
  try {
    return await request;
  } catch {
    throw new Refusal("everturn web does not answer. Is it still running?");
  }
}

async function answered(response) {
  const text = await response.text();
  let told = {};
  try {
    told = parsed(text);
  } catch {
    // a proxy's own page: the status says enough
  }
  if (!response.ok) throw new Refusal(told.error ?? `everturn web answered ${response.status}.`);
  return told;
}

/** A new id, on plain http too. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The list of conversations, and the events of one of them. `hear[name](data)` is called for each kind of message on the wire,
 * `filters()` says what of the list; without it, there is none. `hear.link(state, why)` when the connection comes and goes; `why` it is refused, in the server's words. */
export class Stream {
  #source = null;
  #timer = 0;
  #cursor = "";

  constructor(conversation, hear, filters = null) {
    this.conversation = conversation;
    this.hear = hear;
    this.filters = filters;
    this.#open();
  }

  /** Comes back where it was: what is listed is another thing by now. */
  again() {
    this.#open();
  }

  close() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    this.close();
    const source = (this.#source = new EventSource(`/api/stream?${this.#query()}`));
    const take = (name) => (message) => {
      if (this.#source !== source) return;
      this.#cursor = message.lastEventId || this.#cursor;
      this.#expectMore();
      this.hear[name]?.(parsed(message.data));
    };
    source.onopen = () => this.hear.link("live");
    source.onmessage = take("events");
    for (const name of ["hello", "conversations", "opened", "resumed", "ended", "missing", "trouble", "beat"]) {
      source.addEventListener(name, take(name));
    }
    source.onerror = () => {
      if (this.#source !== source) return;
      this.hear.link("reconnecting");
      // The browser comes back by itself after a broken connection, and gives up after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) this.#again();
    };
    this.#expectMore();
  }

  /** A connection may die without a word, as when a laptop sleeps. */
  #expectMore() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.hear.link("reconnecting");
      this.#open();
    }, SILENT_MS);
  }

  /** An EventSource does not say what was answered: asks once more, and leaves if it is a stream this time. */
  #again() {
    clearTimeout(this.#timer);
    const timer = (this.#timer = setTimeout(async () => {
      const leaving = new AbortController();
      const answer = await fetch(`/api/stream?${this.#query()}`, { signal: leaving.signal }).catch(() => null);
      const refusal = answer && !answer.ok ? await answered(answer).catch((error) => error.message) : "";
      leaving.abort();
      if (this.#timer !== timer) return; // another conversation is shown by now
      if (answer?.status === 401) this.hear.link("signed out");
      else if (refusal) {
        this.hear.link("reconnecting", refusal);
        this.#again();
      } else this.#open();
    }, RETRY_MS));
  }

  #query() {
    return new URLSearchParams({ conversation: this.conversation, since: this.#cursor, ...(this.filters ? this.filters() : { alone: "1" }) });
  }
}
