"""What spans say: in the words of OpenTelemetry's semantic conventions for generative AI (1.41), and in ours for what
they have no word for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from temporalio import activity

from everturn.agent import Agent
from everturn.payloads import ModelReply, ModelRequest, ToolRequest
from everturn.providers.base import ToolSpec, specs_of
from everturn.records import Message, Part, Text, Thinking, ToolCall, ToolResult, Usage, on_lines
from everturn.text.shortening import shortened
from everturn.tracing import AnswerSpan, WaitSpan

Value = str | bool | int | float | Sequence[str]
Attributes = dict[str, Value]

MAX_CONTENT_BYTES = 32_000
"""Of one attribute. What is longer is cut, and so is no JSON then."""

PROVIDERS = {
    "openai-chat": "openai",
    "google": "gcp.gemini",
    "xai": "x_ai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "azure": "azure.ai.openai",
}
"""By everturn's names of providers; the others have the same name in both."""

FINISH_REASONS = {"end": "stop", "tool_calls": "tool_call", "filtered": "content_filter", "refused": "refusal"}
"""By everturn's words for why a model stopped; the others are the same in both."""


def provider_of(model: str) -> str:
    """`gen_ai.provider.name`, from `provider:name`."""
    provider = model.partition(":")[0]
    return PROVIDERS.get(provider, provider)


def finish_reason(reply: ModelReply) -> str:
    return FINISH_REASONS.get(reply.stopped, reply.stopped)


# ---------------------------------------------------------------- names


def answer_name(agent: str) -> str:
    return f"invoke_agent {agent}"


def turn_name(model: str) -> str:
    return f"chat {model.partition(':')[2] or model}"


def call_name(tool: str) -> str:
    return f"execute_tool {tool}"


def wait_name(wait: WaitSpan) -> str:
    """The conventions have no name for a wait for a person."""
    if wait.needs == "activity":
        return call_name(wait.tool)
    return f"await_{wait.needs} {wait.tool or wait.reason}"


# ---------------------------------------------------------------- what they have


def of_activity() -> Attributes:
    """As temporalio.contrib.opentelemetry calls them; and which try this is."""
    info = activity.info()
    return {
        "temporalWorkflowID": info.workflow_id or "",
        "temporalRunID": info.workflow_run_id or "",
        "temporalActivityID": info.activity_id,
        "everturn.attempt": info.attempt,
    }


def of_agent(agent: str, model: str, conversation_id: str) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": conversation_id,
        **of_model(model),
    }


def of_turn(request: ModelRequest, agent: Agent | None, model: str) -> Attributes:
    attributes: Attributes = {
        **of_agent(request.agent, model, activity.info().workflow_id or ""),
        "gen_ai.operation.name": "chat",
        "everturn.turn": request.turn,
    }
    if request.summarise:
        attributes["everturn.summarise"] = True
    if agent is not None:
        if agent.output_schema is not None and not request.summarise:
            attributes["gen_ai.output.type"] = "json"
        settings = agent.settings
        wanted = {"max_tokens": settings.max_output_tokens, "temperature": settings.temperature}
        attributes |= {f"gen_ai.request.{name}": value for name, value in wanted.items() if value is not None}
    return attributes


def of_reply(reply: ModelReply) -> Attributes:
    attributes: Attributes = {"gen_ai.response.finish_reasons": (finish_reason(reply),), **of_usage(reply.usage)}
    if isinstance(answered := reply.details.get("model"), str):
        attributes["gen_ai.response.model"] = answered
    if reply.cost_usd is not None:
        attributes["everturn.cost_usd"] = reply.cost_usd
    return attributes


def of_usage(usage: Usage) -> Attributes:
    counts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        **{name: count for name, count in counts.items() if count},
    }


def of_call(request: ToolRequest, tool: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": request.call_id,
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": request.agent,
        "gen_ai.conversation.id": activity.info().workflow_id or "",
        "everturn.turn": request.turn,
    }


def of_answer(answer: AnswerSpan, stop: str) -> Attributes:
    attributes: Attributes = {**of_usage(answer.usage), "temporalWorkflowID": activity.info().workflow_id or ""}
    if answer.cost_usd is not None:
        attributes["everturn.cost_usd"] = answer.cost_usd
    if stop:
        attributes["gen_ai.response.finish_reasons"] = (stop,)
    if answer.status:
        attributes["error.type"] = answer.status
    return attributes


def of_wait(wait: WaitSpan, agent: str) -> Attributes:
    attributes: Attributes = {
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": activity.info().workflow_id or "",
    }
    if wait.tool:
        attributes |= {"gen_ai.tool.name": wait.tool, "gen_ai.tool.call.id": wait.call_id}
    if wait.needs == "activity":
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
        if wait.error:
            attributes["error.type"] = wait.error
        return attributes
    attributes |= {"everturn.wait.reason": wait.reason, "everturn.decision.verdict": wait.verdict or "none"}
    if wait.by:
        attributes["everturn.decision.by"] = wait.by
    return attributes


def of_model(model: str) -> dict[str, str]:
    """Of `provider:name`; nothing if that is not known."""
    if not model:
        return {}
    return {"gen_ai.provider.name": provider_of(model), "gen_ai.request.model": model.partition(":")[2] or model}


# ---------------------------------------------------------------- content, if it was asked for


def input_content(request: ModelRequest, agent: Agent | None) -> Attributes:
    """What is new in this turn: the whole transcript in each span would grow with the square of the turns."""
    attributes: Attributes = {
        "gen_ai.input.messages": _shortened_json([_message_json(message) for message in request.delta])
    }
    if agent is not None and isinstance(agent.instructions, str) and agent.instructions:
        attributes["gen_ai.system_instructions"] = _shortened_json([{"type": "text", "content": agent.instructions}])
    if agent is not None and agent.tools and not request.conclude:
        attributes["gen_ai.tool.definitions"] = _shortened_json(
            [_tool_definition(spec) for spec in specs_of(agent.tools)]
        )
    return attributes


def _tool_definition(spec: ToolSpec) -> dict[str, Any]:
    """As gen_ai.tool.definitions has it. Tools of MCP servers and of `prepare_tools` are not there: they are listed
    within the turn."""
    return {"type": "function", "name": spec.name, "description": spec.description, "parameters": spec.parameters}


def answer_content(asked_for: Sequence[Message], reply: ModelReply) -> Attributes:
    """What people said, and the final reply."""
    messages = [_message_json(message) for message in asked_for]
    return {"gen_ai.input.messages": _shortened_json(messages), **output_content(reply)}


def output_content(reply: ModelReply) -> Attributes:
    message = _message_json(reply.message) | {"finish_reason": finish_reason(reply)}
    return {"gen_ai.output.messages": _shortened_json([message])}


def arguments_content(request: ToolRequest) -> Attributes:
    return {"gen_ai.tool.call.arguments": _shortened_json(request.arguments)}


def result_content(result: ToolResult) -> Attributes:
    return {"gen_ai.tool.call.result": _shortened_json(_result_json(result))}


def _message_json(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part_json(part) for part in message.parts]}


def _part_json(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "content": text}
        case Thinking(text=text):
            return {"type": "reasoning", "content": text}
        case ToolCall(call_id=call_id, name=name, arguments=arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResult(call_id=call_id):
            return {"type": "tool_call_response", "id": call_id, "response": _result_json(part)}
        case _:
            return {"type": part.kind}  # pictures and their like stay where they are


def _result_json(result: ToolResult) -> Any:
    return on_lines([part.text if isinstance(part, Text) else f"[{part.kind}]" for part in result.content])


def _shortened_json(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), max_bytes=MAX_CONTENT_BYTES)
