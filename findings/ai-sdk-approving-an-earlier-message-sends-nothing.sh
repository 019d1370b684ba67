#!/usr/bin/env bash
# APPROVING AN EARLIER MESSAGE SENDS NOTHING: if the person typed another message before pressing Approve, the SDK's own
# rule never sends the decision, though `addToolApprovalResponse` takes it.
#
# Software:  ai 6.0.326 and 7.0.173 with @ai-sdk/react (npm)
# Expected:  `addToolApprovalResponse` finds the call in any message, and remembers that message for the next request; so
#            `lastAssistantMessageIsCompleteWithApprovalResponses`, made for it, would let it be sent
# Seen:      the rule looks at the last message alone. The button is gone (approval-responded), and nothing was posted
# It matters to: pages with approvals: give the rule each message by itself, with messages.some(...)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/seen.mjs" <<'JS'
import { Chat } from "@ai-sdk/react";
import * as ai from "ai";
const asks = [
  { type: "start", messageId: "a" },
  { type: "start-step" },
  { type: "tool-input-available", toolCallId: "c", toolName: "refund", input: {} },
  { type: "tool-approval-request", toolCallId: "c", approvalId: "q" },
  { type: "finish-step" },
  { type: "finish" },
];
const says = [
  { type: "start", messageId: "b" },
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta: "It waits for you." },
  { type: "text-end", id: "t" },
  { type: "finish" },
];
const rule = ai.lastAssistantMessageIsCompleteWithApprovalResponses;
async function page(sendAutomaticallyWhen) {
  let posts = 0;
  const fetch = async () => {
    const chunks = posts++ ? says : asks;
    return new Response(chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n", { status: posts < 4 ? 200 : 500 });
  };
  const chat = new Chat({ transport: new ai.DefaultChatTransport({ api: "/", fetch }), sendAutomaticallyWhen });
  await chat.sendMessage({ text: "Refund it." });
  await chat.sendMessage({ text: "Hello?" });
  const before = posts;
  await chat.addToolApprovalResponse({ id: "q", approved: true });
  await new Promise((done) => setTimeout(done, 500));
  const part = chat.messages[1].parts.find((part) => part.toolCallId);
  return `${posts > before ? "sent" : "not sent"}, ${part.state}`;
}
console.log(`${await page(rule)}; with each message: ${await page(({ messages }) => messages.some((one) => rule({ messages: [one] })))}`);
process.exit(0);
JS
for versions in "6.0.326 3.0.328" "7.0.173 4.0.177"; do
  read -r core react <<< "$versions"
  (cd "$folder" && echo '{"type": "module"}' > package.json && rm -rf node_modules package-lock.json &&
    npm install --silent --no-audit --no-fund "ai@$core" "@ai-sdk/react@$react" react@19.3.1 zod@4.1.13) || exit 2
  seen=$(cd "$folder" && node seen.mjs)
  echo "ai $core: $seen"
  case "$seen" in "not sent, approval-responded; with each message: sent, "*) ;; *) echo "it has changed"; exit 1 ;; esac
done
# Output of 2026-11-27:
# ai 6.0.326: not sent, approval-responded; with each message: sent, approval-responded
# ai 7.0.173: not sent, approval-responded; with each message: sent, approval-responded
