#!/usr/bin/env bash
# A LAST STEP WITHOUT WORDS IS NOT SHOWN: after a call, `start-step` and `finish` reach the page's message only if something
# else is written, so an empty final answer leaves the call as the last step, and the page posts it again without end.
#
# Software:  ai 5.0.277, 6.0.326 and 7.0.173 with @ai-sdk/react (npm)
# Expected:  a model that says nothing after a tool's result has answered: the page is at rest
# Seen:      the step is put into the stream's copy of the message alone; `sendAutomaticallyWhen` looks at the page's, where
#            the finished call is still last. With any messageMetadata on `finish`, the step is there, and the page rests
# It matters to: every server of the UI message stream: send metadata with `finish`
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/seen.mjs" <<'JS'
import { Chat } from "@ai-sdk/react";
import * as ai from "ai";
async function page(finish) {
  const chunks = [
    { type: "start", messageId: "a" },
    { type: "start-step" },
    { type: "tool-input-available", toolCallId: "c", toolName: "turn_off", input: {} },
    { type: "tool-output-available", toolCallId: "c", output: "Off." },
    { type: "finish-step" },
    { type: "start-step" },
    { type: "finish-step" },
    { type: "finish", finishReason: "stop", ...finish },
  ];
  const text = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n";
  let posts = 0;
  const chat = new Chat({
    // The tenth post fails, so that this program ends.
    transport: new ai.DefaultChatTransport({ api: "/", fetch: async () => new Response(text, { status: ++posts < 10 ? 200 : 500 }) }),
    sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
  });
  await chat.sendMessage({ text: "Turn it off." });
  await new Promise((done) => setTimeout(done, 1000));
  return posts;
}
console.log(`${await page({})} posts, with metadata ${await page({ messageMetadata: { seen: true } })}`);
process.exit(0);
JS
for versions in "5.0.277 2.0.280" "6.0.326 3.0.328" "7.0.173 4.0.177"; do
  read -r core react <<< "$versions"
  (cd "$folder" && echo '{"type": "module"}' > package.json && rm -rf node_modules package-lock.json &&
    npm install --silent --no-audit --no-fund "ai@$core" "@ai-sdk/react@$react" react@19.3.1 zod@4.1.13) || exit 2
  seen=$(cd "$folder" && node seen.mjs)
  echo "ai $core: $seen"
  [ "$seen" = "10 posts, with metadata 1" ] || { echo "it has changed"; exit 1; }
done
# Output of 2026-11-27:
# ai 5.0.277: 10 posts, with metadata 1
# ai 6.0.326: 10 posts, with metadata 1
# ai 7.0.173: 10 posts, with metadata 1
