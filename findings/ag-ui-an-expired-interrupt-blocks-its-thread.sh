#!/usr/bin/env bash
# AN EXPIRED INTERRUPT BLOCKS ITS THREAD: once an interrupt is past its `expiresAt`, AG-UI's client of 0.0.59 runs nothing
# more on the thread, whatever the run brings.
#
# Software:  @ag-ui/client 0.0.59 and 1.0.0 (npm)
# Expected:  an interrupt that nobody answered in time is over; cancelling it, at least, lets the thread go on
# Seen:      0.0.59 throws before it sends anything, also for `status: "cancelled"`; 1.0.0 runs if the run cancels it
# It matters to: agents that send `expiresAt` to clients of 0.0.x, which post no protocolVersion: leave the field out
#            there, and put the time into the interrupt's metadata
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/seen.mjs" <<'JS'
import { createServer } from "node:http";
import { HttpAgent } from "@ag-ui/client";
let posts = 0;
const server = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const { threadId, runId } = JSON.parse(body);
  const interrupts = [{ id: "i1", reason: "tool_call", expiresAt: new Date(Date.now() + 300).toISOString() }];
  const outcome = posts++ ? { type: "success" } : { type: "interrupt", interrupts };
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of [{ type: "RUN_STARTED" }, { type: "RUN_FINISHED", outcome }])
    response.write(`data: ${JSON.stringify({ ...event, threadId, runId })}\n\n`);
  response.end();
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const agent = new HttpAgent({ url: `http://127.0.0.1:${server.address().port}/`, threadId: "t" });
agent.addMessage({ id: "m", role: "user", content: "Pay." });
await agent.runAgent();
await new Promise((done) => setTimeout(done, 600));
for (const status of ["resolved", "cancelled"]) {
  const resume = [{ interruptId: "i1", status, payload: { approved: true } }];
  const ran = await agent.runAgent({ resume }).then(() => "ran", (error) => error.message.replace(/ at \S+/, ""));
  console.log(`${status}: ${ran}`);
}
process.exit(0);
JS
seen=""
for version in 0.0.59 1.0.0; do
  (cd "$folder" && echo '{"type": "module"}' > package.json && rm -rf node_modules package-lock.json &&
    npm install --silent --no-audit --no-fund "@ag-ui/client@$version") || exit 2
  seen+="$version $(cd "$folder" && node seen.mjs | tr '\n' ';')"$'\n'
done
printf '%s' "$seen"
expected="0.0.59 resolved: Interrupt i1 expired;cancelled: Interrupt i1 expired;
1.0.0 resolved: Interrupt i1 expired and can no longer be answered. Cancel it to continue the thread.;cancelled: ran;"
[ "$seen" = "$expected"$'\n' ] || { echo "it has changed"; exit 1; }
# Output of 2026-11-27:
# 0.0.59 resolved: Interrupt i1 expired;cancelled: Interrupt i1 expired;
# 1.0.0 resolved: Interrupt i1 expired and can no longer be answered. Cancel it to continue the thread.;cancelled: ran;
