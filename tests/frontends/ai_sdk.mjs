// A page of the AI SDK without a browser: the Chat of @ai-sdk/react, told by lines of JSON what its person does.
// node ai_sdk.mjs API CHAT HEADERS; each change of what the page shows is a line on stdout.
import { createInterface } from "node:readline";
import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const [api, id, headers] = process.argv.slice(2);
const data = [], finished = [], given = [];
const chat = new Chat({
  id,
  transport: new DefaultChatTransport({ api, headers: JSON.parse(headers) }),
  sendAutomaticallyWhen: (about) =>
    lastAssistantMessageIsCompleteWithApprovalResponses(about) || lastAssistantMessageIsCompleteWithToolCalls(about),
  onData: (part) => data.push(part),
  onToolCall: ({ toolCall }) => void given.push([toolCall.toolName, toolCall.input]),
  onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
    finished.push({ isAbort, isDisconnect, isError, finishReason }),
});

const show = () => {
  const { status, messages, error } = chat;
  console.log(JSON.stringify({ status, messages, error: error?.message ?? "", data, finished, given }));
};
chat["~registerMessagesCallback"](show);
chat["~registerStatusCallback"](show);
chat["~registerErrorCallback"](show);

const can = {
  send: ({ message }) => chat.sendMessage(message),
  approve: ({ id, approved, reason }) => chat.addToolApprovalResponse({ id, approved, reason }),
  output: ({ tool, toolCallId, output }) => chat.addToolOutput({ tool, toolCallId, output }),
  load: async () => (chat.messages = await (await fetch(`${api}${id}`, { headers: JSON.parse(headers) })).json()),
  resume: () => chat.resumeStream(),
  again: () => chat.sendMessage(), // what the SDK has for a request that failed
  regenerate: () => chat.regenerate(),
  leave: () => chat.stop(),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { does, ...what } = JSON.parse(line);
  Promise.resolve(can[does](what)).then(show);
}
