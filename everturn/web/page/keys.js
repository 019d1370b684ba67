// Every action by keyboard: which key does what. The list that `?` shows is made of the same table.

import { el } from "./text.js";

/** [key, what it does, its act, its argument]. Those without an act are only listed, those without words are not. */
const KEYS = [
  ["j", "next conversation", "goBeside", 1],
  ["k", "previous conversation", "goBeside", -1],
  ["/", "search", "search"],
  ["f", "filters", "toggleFilters"],
  ["l", "load more", "loadMore"],
  ["b", "decide on many", "decideOnMany"],
  ["n", "start a conversation", "start"],
  ["a", "approve the marked call", "decide", "approve"],
  ["e", "edit its arguments", "decide", "edit"],
  ["d", "deny it, with a reason", "decide", "deny"],
  ["r", "answer in the tool’s place", "decide", "answer"],
  ["1 … 9", "take that choice"],
  ...Array.from({ length: 9 }, (_, index) => [String(index + 1), "", "choose", index + 1]),
  ["w", "mark the next call that waits", "markNext"],
  ["]", "next message or turn; Tab leads to its actions", "step", 1],
  ["[", "previous message or turn", "step", -1],
  ["G", "to the end", "toEnd"],
  ["m", "write a message", "write"],
  ["t", "time, tokens and cost", "showTimes"],
  ["i", "raw JSON", "showJson"],
  ["u", "its parent", "goToParent"],
  ["o", "open what is beside, alone", "openOther"],
  ["c", "close what is beside", "closeOther"],
  ["p", "pause, or resume", "press", ["pause", "resume"]],
  ["x", "cancel the turn", "press", ["cancel_turn"]],
  ["X", "close the conversation", "press", ["close"]],
  ["?", "these keys", "showKeys"],
  ["Esc", "leave a box"],
];

/** `acts`: by name, what the page does. */
export function listen(acts, listed) {
  const byKey = new Map(KEYS.filter(([, , act]) => act).map(([key, , act, value]) => [key, () => acts[act](value)]));
  for (const [key, what] of KEYS) if (what) listed.append(el("dt", {}, ...key.split(" ").flatMap((name) => [el("kbd", {}, name), " "])), el("dd", {}, what));
  document.addEventListener("keydown", (key) => {
    const typing = key.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (typing && key.key === "Escape" && !key.target.closest("dialog")) key.target.blur();
    if (typing || key.ctrlKey || key.metaKey || key.altKey || key.repeat || !byKey.has(key.key)) return;
    key.preventDefault();
    byKey.get(key.key)();
  });
}
