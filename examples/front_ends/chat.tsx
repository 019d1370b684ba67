// A chat page: text while it is written, a question before a refund, a tool that the browser runs, and Stop.
import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  type DynamicToolUIPart,
  type ToolUIPart,
  type UIMessage,
} from "ai";
import { useState } from "react";

// A browser rounds whole numbers beyond 2^53. If there is one, everturn sends the arguments as text, too.
function argumentsOf(part: ToolUIPart | DynamicToolUIPart): string {
  const descriptor = part.approval?.descriptor as { exactArguments?: string } | undefined;
  return descriptor?.exactArguments ?? JSON.stringify(part.input);
}

export function Chat({ id, before }: { id: string; before: UIMessage[] }) {
  const chat = useChat({
    id, // of the chat: make one with crypto.randomUUID(), and keep it in the page's address
    messages: before, // await (await fetch(`/api/chat/${id}`)).json(): what was said so far
    resume: true, // an answer that is being given goes on here
    transport: new DefaultChatTransport({
      api: "/api/chat/",
      // The conversation is kept by everturn, so the newest message is enough.
      prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
        body: { id, trigger, messageId, messages: messages.filter((one) => one.id === messageId).concat(messages.slice(-1)) },
      }),
    }),
    // The SDK's rules look at the last message. A call of an earlier one may be decided, too: each is looked at.
    sendAutomaticallyWhen: ({ messages }) =>
      messages.some(
        (message) =>
          lastAssistantMessageIsCompleteWithApprovalResponses({ messages: [message] }) ||
          lastAssistantMessageIsCompleteWithToolCalls({ messages: [message] }),
      ),
    onToolCall: ({ toolCall }) => {
      if (toolCall.toolName === "where_are_you") {
        const town = Intl.DateTimeFormat().resolvedOptions().timeZone.split("/").pop();
        void chat.addToolOutput({ tool: "where_are_you", toolCallId: toolCall.toolCallId, output: town });
      }
    },
  });
  const [text, setText] = useState("");
  const busy = chat.status === "submitted" || chat.status === "streaming";
  const stop = () =>
    fetch(`/api/chat/${id}/stop`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });

  return (
    <main>
      {chat.messages.map((message) => (
        <section key={message.id}>
          <b>{message.role}</b>
          {message.parts.map((part, at) => {
            if (part.type === "text")
              // A try of the model that failed, and whose words are void.
              return part.providerMetadata?.everturn?.withdrawn ? null : <p key={at}>{part.text}</p>;
            if (!isToolUIPart(part)) return null;
            return (
              <pre key={at}>
                {getToolName(part)} {argumentsOf(part)} {part.state}
                {part.state === "approval-requested" &&
                  [true, false].map((approved) => (
                    <button
                      key={String(approved)}
                      disabled={busy}
                      onClick={() => chat.addToolApprovalResponse({ id: part.approval.id, approved })}
                    >
                      {approved ? "Approve" : "Deny"}
                    </button>
                  ))}
              </pre>
            );
          })}
        </section>
      ))}
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void chat.sendMessage({ text });
          setText("");
        }}
      >
        <input value={text} onChange={(event) => setText(event.target.value)} />
        <button disabled={busy}>Send</button>
        <button type="button" disabled={!busy} onClick={stop}>
          Stop
        </button>
      </form>
    </main>
  );
}
