#!/usr/bin/env bash
# COPILOTKIT RUNS THE TOOL THAT AN INTERRUPT ASKS ABOUT, AND WRITES THE APPROVAL DOWN AS ITS RESULT.
#
# Software:  @copilotkit/core 1.75.0 (npm), with its own @ag-ui/client 0.0.59
# Expected:  a run that ends with {"type": "interrupt"} about a call of a front end's tool waits: the tool runs once
#            somebody has answered
# Seen:      the tool's handler runs as soon as the run is over, before anybody was asked, and its result stands in the
#            thread. And whoever answers an interrupt with reason "tool_call" gets a tool message beside the resume
#            entry: its content is the answer's payload, as if that were what the tool returned
# It matters to: who serves AG-UI. Don't send a call of a front end's tool before it is approved; interrupts about it
#            have no toolCallId; a tool message for a call that the same run decides on is no result
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null
npm install --silent --no-audit --no-fund "@copilotkit/core@1.75.0" >/dev/null || exit 2
cat >page.mjs <<'JS'
import assert from "node:assert";
import { createServer } from "node:http";
import { CopilotKitCore, ɵInterruptState } from "@copilotkit/core";
import { HttpAgent } from "@ag-ui/client";

const posted = [];
const server = createServer(async (request, response) => {
  let body = "";
  for await (const chunk of request) body += chunk;
  const run = JSON.parse(body);
  posted.push(run);
  const ids = { threadId: run.threadId, runId: run.runId };
  const interrupts = [{ id: "q1", reason: "tool_call", toolCallId: "c1", message: "Delete it?" }];
  const events = posted.length > 1
    ? [{ type: "RUN_STARTED", ...ids }, { type: "RUN_FINISHED", ...ids }]
    : [
        { type: "RUN_STARTED", ...ids },
        { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "delete_file", parentMessageId: "m1" },
        { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"path":"a.txt"}' },
        { type: "TOOL_CALL_END", toolCallId: "c1" },
        { type: "RUN_FINISHED", ...ids, outcome: { type: "interrupt", interrupts } },
      ];
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""));
}).listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));

const ran = [];
const agent = new HttpAgent({ agentId: "clerk", url: `http://127.0.0.1:${server.address().port}/`, threadId: "t" });
const page = new CopilotKitCore({ agents__unsafe_dev_only: { clerk: agent } });
page.addTool({ name: "delete_file", handler: async (args) => { ran.push(args); return "deleted"; } });
agent.addMessage({ id: "u1", role: "user", content: "Delete a.txt" });
await page.runAgent({ agent });
console.log("the tool ran before anybody was asked:", JSON.stringify(ran));
const last = agent.messages.at(-1);
console.log("the thread's last message:", JSON.stringify({ ...last, id: undefined }));

const state = new ɵInterruptState();
state.setStandard([{ id: "q1", reason: "tool_call", toolCallId: "c1", message: "Delete it?" }]);
const answer = state.resolve({ approved: true }, "q1");
console.log("answering posts:", JSON.stringify({ resume: answer.resume, toolResults: answer.toolResults }));
server.close();
assert.deepEqual(ran, [{ path: "a.txt" }]);
assert.deepEqual([last.role, last.toolCallId, last.content], ["tool", "c1", "deleted"]);
assert.deepEqual(answer.toolResults, [{ toolCallId: "c1", content: '{"approved":true}' }]);
JS
node page.mjs 2>/dev/null
# Output of 2026-11-27:
# the tool ran before anybody was asked: [{"path":"a.txt"}]
# the thread's last message: {"role":"tool","toolCallId":"c1","content":"deleted"}
# answering posts: {"resume":[{"interruptId":"q1","status":"resolved","payload":{"approved":true}}],
#   "toolResults":[{"toolCallId":"c1","content":"{\"approved\":true}"}]}
