// Pages of one front end, in one process: its start takes 0.3 s of CPU, a page nothing. Each line of JSON on stdin says
// which page it is for and what its person does; each change of what a page shows is a line on stdout.
import { createInterface } from "node:readline";

// `open({ address, chat, headers }, show)` makes a page: what its person can do, by name. `leave` ends its requests.
export async function serve(open) {
  const pages = new Map();
  const print = (page, state) => console.log(JSON.stringify({ page, ...state }));
  const begin = (page, where) => {
    let waits = false;
    const can = open(where, (state) => {
      if (waits) return; // of what changes at once, the last state is all that a person sees
      waits = true;
      setImmediate(() => {
        waits = false;
        if (pages.has(page)) print(page, { state: state() });
      });
    });
    pages.set(page, can);
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const { page, does, ...what } = JSON.parse(line);
    if (does === "open") {
      begin(page, what);
      continue;
    }
    const can = pages.get(page);
    if (does === "close") pages.delete(page);
    Promise.resolve(can[does === "close" ? "leave" : does](what)).catch((failure) =>
      print(page, { failed: failure.stack ?? String(failure) }),
    );
  }
  process.exit();
}
