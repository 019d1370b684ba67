// Every action by keyboard. The list that `?` shows is made of the same table.

import { el } from "./text.js";

/** `keys`: [[key, what it does, act], ...]; those without an act are only listed. */
export function listen(keys, listed) {
  const acts = new Map(keys.filter(([, , act]) => act).map(([key, , act]) => [key, act]));
  for (const [key, what] of keys) if (what) listed.append(el("dt", {}, ...key.split(" ").flatMap((one) => [el("kbd", {}, one), " "])), el("dd", {}, what));
  document.addEventListener("keydown", (key) => {
    const typing = key.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (typing && key.key === "Escape" && !key.target.closest("dialog")) key.target.blur();
    if (typing || key.ctrlKey || key.metaKey || key.altKey || key.repeat || !acts.has(key.key)) return;
    key.preventDefault();
    acts.get(key.key)(key);
  });
}
