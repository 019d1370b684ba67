#!/usr/bin/env bash
# A tool part whose state is "output-available" can be open to the AI SDK's rules for sending by itself.
#
# Software:  ai 6.0.326 (npm)
# Expected:  a part's `state` says how far its call is: beside an "output-available" and an "approval-responded" nothing is
#            open, so lastAssistantMessageIsCompleteWithApprovalResponses lets the page send the approval
# Seen:      not if that output is `preliminary`, a tool's progress: the person has approved, and nothing is sent until
#            something else changes the message. And a call that the provider runs holds an approval back, too, though
#            the sibling rule lastAssistantMessageIsCompleteWithToolCalls leaves such calls out
# It matters to: servers that end a stream while a tool is at work and another one waits for an approval. To close the
#            part for now, send its output without `preliminary`; the real one may replace it later
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit ai@6.0.326 zod@4 >/dev/null || exit 2
cat >seen.mjs <<'JS'
import { lastAssistantMessageIsCompleteWithApprovalResponses as approvals, lastAssistantMessageIsCompleteWithToolCalls as calls } from "ai";

const approved = { type: "tool-refund", toolCallId: "a", state: "approval-responded", input: {}, approval: { id: "1", approved: true } };
const done = { type: "tool-look", toolCallId: "b", state: "output-available", input: {}, output: "seen" };
const work = { type: "tool-work", toolCallId: "c", state: "output-available", input: {}, output: "half of it" };
const search = { type: "tool-search", toolCallId: "d", state: "input-available", input: {}, providerExecuted: true };
const rule = (complete, ...parts) => complete({ messages: [{ id: "m", role: "assistant", parts: [{ type: "step-start" }, ...parts] }] });
const seen = {
  "an approval beside an output": rule(approvals, work, approved),
  "beside a preliminary output": rule(approvals, { ...work, preliminary: true }, approved),
  "beside a call of the provider's": rule(approvals, search, approved),
  "a result beside a call of the provider's": rule(calls, search, done),
};
for (const [what, sends] of Object.entries(seen)) console.log(`${what}: ${sends ? "sent" : "not sent"}`);
if (JSON.stringify(Object.values(seen)) !== "[true,false,false,true]") throw new Error(`it has changed: ${JSON.stringify(seen)}`);
JS
node seen.mjs
# Output of 2026-11-27:
# an approval beside an output: sent
# beside a preliminary output: not sent
# beside a call of the provider's: not sent
# a result beside a call of the provider's: sent
