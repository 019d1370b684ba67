#!/usr/bin/env bash
# A TOOL'S GUARDRAILS AND TIME LIMIT ARE THE RUNNER'S: whoever calls on_invoke_tool, the tool's own method, passes both by.
#
# Software:  openai-agents 0.24.0 (PyPI)
# Expected:  a FunctionTool that was made with tool_input_guardrails= and timeout= has them wherever it is called
# Seen:      on_invoke_tool runs the function with arguments that its guardrail rejects, and past its time limit
# It matters to: who adapts these tools to another loop (agent frameworks, MCP bridges): ask the guardrails and keep the
#            time yourself, or a payment that was rejected is made
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "openai-agents==0.24.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import asyncio

from agents import ToolGuardrailFunctionOutput, function_tool, tool_input_guardrail
from agents.tool_context import ToolContext


@tool_input_guardrail
def nobody(data):
    return ToolGuardrailFunctionOutput.reject_content("Nobody is paid.")


@function_tool(tool_input_guardrails=[nobody], timeout=0.05)
async def pay(to: str) -> str:
    """Pay somebody."""
    await asyncio.sleep(0.3)
    return f"Paid {to}."


arguments = '{"to": "bob"}'
context = ToolContext(context=None, tool_name="pay", tool_call_id="c1", tool_arguments=arguments)
seen = asyncio.run(pay.on_invoke_tool(context, arguments))
print(seen)
assert seen == "Paid bob.", f"it has changed: {seen!r}"
PY
# Output of 2026-11-27:
# Paid bob.
