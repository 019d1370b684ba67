#!/usr/bin/env bash
# PYDANTIC-AI RUNS WHAT WAS APPROVED, AND TELLS EVERYBODY THAT IT RAN WHAT WAS ASKED FOR: with ToolApproved(override_args=...), the
# tool gets the new arguments; the model, the message history and the events keep the old ones. Only the trace has the new ones.
#
# Software:  pydantic-ai-slim 2.68.0, opentelemetry-sdk 1.45.2 (PyPI)
# Expected:  the history says what ran, or at least the model is told beside the result, as LangChain 1.5.2 does for its "edit"
#            decision ("a human reviewer replaced this tool call before it ran ... Executed instead: ...")
# Seen:      a model asks for 100, a person approves 5, 5 is paid. The model reads that it called with 100 and that this was
#            "paid"; FunctionToolCallEvent says 100; nothing in all_messages() has a 5. The span's gen_ai.tool.call.arguments: 5
# It matters to: who lets people edit calls before they approve them (AG-UI's `editedArgs` end here), and who keeps the history as
#            the record of what was done: the answer to the person, and the next call, build on the wrong number. Return
#            what was really done from the tool
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pydantic-ai-slim==2.68.0" "opentelemetry-sdk==1.45.2" || exit 2
timeout 100 "$folder/venv/bin/python" - <<'PY'
import asyncio
import re
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, InstrumentationSettings, ToolApproved
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import FunctionToolCallEvent, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

read = []  # what the model is sent, turn by turn

async def model(messages, info):
    read.append(list(messages))
    if any(isinstance(message, ModelResponse) for message in messages):
        yield "Done."
    else:
        yield {0: DeltaToolCall("pay", '{"amount": 100}', tool_call_id="c1")}

spans, tracers = InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
traced = Instrumentation(InstrumentationSettings(tracer_provider=tracers))
agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests], capabilities=[traced])
paid, events = [], []

@agent.tool_plain(requires_approval=True)
def pay(amount: int) -> str:
    paid.append(amount)
    return "paid"

async def keep(context, stream):
    events.extend([event.part.args async for event in stream if isinstance(event, FunctionToolCallEvent)])

async def main():
    asked = await agent.run("Pay what I owe.", event_stream_handler=keep)
    events.clear()
    approved = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"amount": 5})})
    done = await agent.run(
        message_history=asked.all_messages(), deferred_tool_results=approved, event_stream_handler=keep
    )
    parts = [part for message in read[-1] for part in message.parts]
    call = next(part.args for part in parts if isinstance(part, ToolCallPart))
    result = next(part.content for part in parts if isinstance(part, ToolReturnPart))
    [span] = [span.attributes for span in spans.get_finished_spans() if span.name == "execute_tool pay"]
    told = re.search(rb"amount\W+5\b", ModelMessagesTypeAdapter.dump_json(done.all_messages())) is not None
    print(f"paid {paid}; the model reads the call {call} with the result {result!r}; the event says {events}")
    print(f"the history has the 5: {told}; the trace says {span['gen_ai.tool.call.arguments']}")
    assert paid == [5] and call == '{"amount": 100}' and result == "paid", f"it has changed: {paid}, {call}, {result}"
    assert events == ['{"amount": 100}'] and not told, f"it has changed: {events}, {told}"
    assert span["gen_ai.tool.call.arguments"] == '{"amount":5}', f"it has changed: {span}"

asyncio.run(main())
PY
# Output of 2026-11-28:
# paid [5]; the model reads the call {"amount": 100} with the result 'paid'; the event says ['{"amount": 100}']
# the history has the 5: False; the trace says {"amount":5}
