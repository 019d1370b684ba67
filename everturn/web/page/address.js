// What the address says: which conversation is open, which beside it, and what the list is filtered by.

const NAMES = ["q", "state", "agent", "tenant", "within", "after", "before", "limit"];
const HOURS = { "1h": 1, "24h": 24, "7d": 168 };

export const selected = () => {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return location.hash.slice(1); // half of an escape
  }
};
export const beside = () => new URLSearchParams(location.search).get("beside") ?? "";

export function filters() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? ""]).filter(([, value]) => value));
}

/** Writes some of it into the address, without a new page. An empty value goes. */
export function write(changes) {
  const all = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) value ? all.set(name, value) : all.delete(name);
  const query = all.size ? `?${all}` : "";
  history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
}

/** For the server: `within` as a moment, to the minute, so that pages that look at the same are told the same. */
export function asked() {
  const { within, after, before, ...rest } = filters();
  const minute = 60_000;
  const since = HOURS[within] ? new Date(Math.floor((Date.now() - HOURS[within] * 60 * minute) / minute) * minute) : moment(after);
  const until = moment(before);
  return { ...rest, ...(since && { after: since.toISOString() }), ...(until && { before: until.toISOString() }) };
}

function moment(written) {
  const there = written ? new Date(written) : null;
  return there && !Number.isNaN(there.getTime()) ? there : null;
}
