// Pages of the AI SDK without a browser: each the Chat of @ai-sdk/react, told what its person does.
import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";
import { serve } from "./pages.mjs";

await serve(({ address: api, chat: id, headers }, show) => {
  const data = [], finished = [], given = [];
  const chat = new Chat({
    id,
    transport: new DefaultChatTransport({ api, headers }),
    sendAutomaticallyWhen: (about) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(about) || lastAssistantMessageIsCompleteWithToolCalls(about),
    onData: (part) => data.push(part),
    onToolCall: ({ toolCall }) => void given.push([toolCall.toolName, toolCall.input]),
    onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
      finished.push({ isAbort, isDisconnect, isError, finishReason }),
  });

  const changed = () =>
    show(() => {
      const { status, messages, error } = chat;
      return { status, messages, error: error?.message ?? "", data, finished, given };
    });
  chat["~registerMessagesCallback"](changed);
  chat["~registerStatusCallback"](changed);
  chat["~registerErrorCallback"](changed);

  const can = {
    send: ({ message }) => chat.sendMessage(message),
    approve: ({ id, approved, reason }) => chat.addToolApprovalResponse({ id, approved, reason }),
    output: ({ tool, toolCallId, output }) => chat.addToolOutput({ tool, toolCallId, output }),
    load: async () => (chat.messages = await (await fetch(`${api}${id}`, { headers })).json()),
    resume: () => chat.resumeStream(),
    again: () => chat.sendMessage(), // what the SDK has for a request that failed
    regenerate: () => chat.regenerate(),
    leave: () => chat.stop(),
  };
  return Object.fromEntries(Object.entries(can).map(([does, act]) => [does, async (what) => (await act(what), changed())]));
});
