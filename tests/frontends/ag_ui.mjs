// Front ends of AG-UI: each the HttpAgent of @ag-ui/client, told what its person does.
import { HttpAgent } from "@ag-ui/client";
import { serve } from "./pages.mjs";

// Its reader rejects once more where nobody listens, if the connection breaks: a browser only logs that.
process.on("unhandledRejection", () => {});

await serve(({ address, chat, headers }, show) => {
  const agent = new HttpAgent({ url: address, threadId: chat, headers });
  let events = [], error = "", running = false, runs = 0;

  const changed = () =>
    show(() => ({ running, runs, messages: agent.messages, interrupts: agent.pendingInterrupts, events, error }));
  const run = async (parameters = {}) => {
    events = [];
    error = "";
    running = true;
    await agent.runAgent(parameters).catch((failure) => (error = failure.message));
    running = false;
    runs += 1;
    changed();
  };
  agent.subscribe({
    onEvent: ({ event }) => void events.push(event),
    onRunErrorEvent: ({ event }) => void (error = event.message),
    onMessagesChanged: changed,
  });

  return {
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
});
