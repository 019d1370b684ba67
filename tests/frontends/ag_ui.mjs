// A front end of AG-UI: the HttpAgent of @ag-ui/client, told by lines of JSON what its person does.
// node ag_ui.mjs URL THREAD HEADERS; each change of what it shows is a line on stdout.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const [url, threadId, headers] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId, headers: JSON.parse(headers) });
// Its reader rejects once more where nobody listens, if the connection breaks: a browser only logs that.
process.on("unhandledRejection", () => {});
let events = [], error = "", running = false, runs = 0;

const show = () => {
  const { messages, pendingInterrupts } = agent;
  console.log(JSON.stringify({ running, runs, messages, interrupts: pendingInterrupts, events, error }));
};
const run = async (parameters = {}) => {
  events = [];
  error = "";
  running = true;
  await agent.runAgent(parameters).catch((failure) => (error = failure.message));
  running = false;
  runs += 1;
  show();
};
agent.subscribe({
  onEvent: ({ event }) => void events.push(event),
  onRunErrorEvent: ({ event }) => void (error = event.message),
  onMessagesChanged: show,
});

const can = {
  send: ({ message, state, ...brings }) => {
    if (state) agent.setState(state);
    agent.addMessage({ role: "user", ...message });
    return run(brings);
  },
  resume: ({ resume, tool }) => {
    if (tool) agent.addMessage({ role: "tool", ...tool });
    return run({ resume });
  },
  output: ({ id, toolCallId, content }) => {
    agent.addMessage({ role: "tool", id, toolCallId, content });
    return run();
  },
  back: () => run(),
  leave: () => agent.abortRun(),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { does, ...what } = JSON.parse(line);
  can[does](what);
}
