#!/usr/bin/env bash
# AN ABORT CHUNK MAKES A PAGE POST AGAIN: a stream that ends with `abort` after a finished call is sent once more by
# `sendAutomaticallyWhen`, without end, and `onFinish` says that nothing was aborted.
#
# Software:  ai 5.0.277, 6.0.326 and 7.0.173 with @ai-sdk/react (npm)
# Expected:  the chunk that the protocol has for "stopped" leaves the page at rest, with isAbort true
# Seen:      the page's reader knows no `abort`: isAbort is false, and lastAssistantMessageIsCompleteWithToolCalls, which
#            the documentation's pages use, says "send" as long as the last step has finished calls only
# It matters to: whoever lets a server stop an answer: end it with an empty step (and metadata, see the finding on that),
#            or with an error
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/seen.mjs" <<'JS'
import { Chat } from "@ai-sdk/react";
import * as ai from "ai";
const chunks = [
  { type: "start", messageId: "a" },
  { type: "start-step" },
  { type: "tool-input-available", toolCallId: "c", toolName: "look_up", input: {} },
  { type: "tool-output-available", toolCallId: "c", output: "A lamp." },
  { type: "finish-step" },
  { type: "abort", reason: "stopped" },
];
const text = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n";
const ends = [];
let posts = 0;
const chat = new Chat({
  // The tenth post fails, so that this program ends.
  transport: new ai.DefaultChatTransport({ api: "/", fetch: async () => new Response(text, { status: ++posts < 10 ? 200 : 500 }) }),
  sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
  onFinish: ({ isAbort }) => ends.push(isAbort),
});
await chat.sendMessage({ text: "What is it?" });
await new Promise((done) => setTimeout(done, 1000));
console.log(`${posts} posts, isAbort ${ends[0]}`);
process.exit(0);
JS
for versions in "5.0.277 2.0.280" "6.0.326 3.0.328" "7.0.173 4.0.177"; do
  read -r core react <<< "$versions"
  (cd "$folder" && echo '{"type": "module"}' > package.json && rm -rf node_modules package-lock.json &&
    npm install --silent --no-audit --no-fund "ai@$core" "@ai-sdk/react@$react" react@19.3.1 zod@4.1.13) || exit 2
  seen=$(cd "$folder" && node seen.mjs)
  echo "ai $core: $seen"
  [ "$seen" = "10 posts, isAbort false" ] || { echo "it has changed"; exit 1; }
done
# Output of 2026-11-27:
# ai 5.0.277: 10 posts, isAbort false
# ai 6.0.326: 10 posts, isAbort false
# ai 7.0.173: 10 posts, isAbort false
