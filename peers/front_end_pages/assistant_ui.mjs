// A page on assistant-ui, in jsdom: `node assistant_ui.mjs ADDRESS THREAD ag-ui|chat WHAT`. What it shows, as JSON.
import { JSDOM } from "jsdom";
const { window } = new JSDOM("<div id=root></div>", { url: "http://localhost/", pretendToBeVisual: true });
for (const name of ["document", "navigator", "HTMLElement", "Element", "Node", "MutationObserver", "getComputedStyle"])
  globalThis[name] ??= window[name];
globalThis.window = window;
const { createElement } = await import("react");
const { createRoot } = await import("react-dom/client");
const { AssistantRuntimeProvider } = await import("@assistant-ui/react");

const [address, threadId, door, does] = process.argv.slice(2);
const errors = [];
process.on("unhandledRejection", (failure) => errors.push(String(failure?.message ?? failure)));
const headers = { "content-type": "application/json" };
const post = (path) => fetch(`${address}/${path}`, { method: "POST", headers, body: "{}" });
const onError = (error) => errors.push(error.message);
let runtime, interrupts, submit, chatId;

async function agUiPage() {
  const { HttpAgent } = await import("@ag-ui/client");
  const agUi = await import("@assistant-ui/react-ag-ui");
  const agent = new HttpAgent({ url: `${address}/ag-ui/`, threadId });
  const onCancel = () => post(`ag-ui/${threadId}/stop`);
  const Hooks = () => {
    interrupts = agUi.useAgUiInterrupts();
    submit = agUi.useAgUiSubmitInterruptResponses();
  };
  return () => {
    runtime = agUi.useAgUiRuntime({ agent, onError, onCancel });
    return createElement(AssistantRuntimeProvider, { runtime }, createElement(Hooks));
  };
}

async function chatPage() {
  const { useChatRuntime, AssistantChatTransport } = await import("@assistant-ui/react-ai-sdk");
  const ai = await import("ai");
  const transport = new AssistantChatTransport({
    api: `${address}/chat/`,
    fetch: (url, options) => {
      chatId = JSON.parse(options.body).id; // the runtime's own name for the thread
      options.signal?.addEventListener("abort", () => post(`chat/${chatId}/stop`));
      return fetch(url, options);
    },
  });
  const sendAutomaticallyWhen = ai.lastAssistantMessageIsCompleteWithApprovalResponses;
  return () => {
    runtime = useChatRuntime({ transport, onError, sendAutomaticallyWhen });
    return createElement(AssistantRuntimeProvider, { runtime });
  };
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const messages = () => runtime.thread.getState().messages;
const parts = () => messages().flatMap((message) => message.content);
const calls = () => parts().filter((part) => part.type === "tool-call");
const texts = () => parts().flatMap((part) => (part.type === "text" ? [part.text] : []));
const isAtRest = () => !runtime.thread.getState().isRunning;
const until = async (holds) => {
  for (let tries = 0; !holds(); tries++) {
    if (tries > 600) throw new Error(`it did not come: ${JSON.stringify(messages())} ${errors}`);
    await sleep(50);
  }
};
const send = async (text) => {
  const before = messages().length;
  runtime.thread.composer.setText(text);
  runtime.thread.composer.send();
  await until(() => messages().length > before + 1);
};
const talk = async (text) => {
  await send(text);
  await until(isAtRest);
};
const untilDone = () => until(() => texts().includes("Done.") && isAtRest());
const decide = async (response) => {
  await talk("refund");
  const place = messages().findLastIndex(({ content }) => content.some((part) => part.type === "tool-call"));
  const message = runtime.thread.getMessageByIndex(place);
  message.getMessagePartByToolCallId(calls().at(-1).toolCallId).respondToToolApproval(response);
  await untilDone();
};
const can = {
  talk: () => talk("Hello"),
  picture: () => talk("picture"),
  approve: () => decide({ approved: true }),
  deny: () => decide({ approved: false, reason: "Not today" }),
  edit: async () => {
    await talk("refund");
    const [{ id, metadata }] = interrupts;
    const editedArgs = { ...metadata.everturn.arguments, cents: 7 };
    await submit([{ interruptId: id, status: "resolved", payload: { approved: true, editedArgs } }]);
    await untilDone();
  },
  stop: async () => {
    await send("think");
    await until(() => calls().some((part) => part.result !== undefined));
    await sleep(500);
    runtime.thread.cancelRun();
    await until(isAtRest);
    await talk("Hello");
  },
};

createRoot(document.getElementById("root")).render(createElement(await (door === "chat" ? chatPage() : agUiPage())));
await until(() => runtime);
await sleep(200); // its effects have run
await can[does]();
console.log(JSON.stringify({ texts: texts(), results: calls().map((part) => part.result), errors }));
process.exit(0);
