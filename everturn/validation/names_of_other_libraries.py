"""Names that people bring along from other libraries, and what everturn has in their place.

The names are those of pydantic-ai 2, the OpenAI Agents SDK, LangChain and LangGraph, and the vendors' own SDKs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SETTINGS: Final = "settings=ModelSettings({name}=...)"
_HOST: Final = (
    "An agent runs on a worker: `async with Worker(client, agents=[agent])`, and then `await client.run(agent, ...)`. "
    "`generate(model, messages)` asks a model without a conversation."
)
_TRANSCRIPT: Final = "`await conversation.transcript()` has the messages."

OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Agent": {
        **dict.fromkeys(("system_prompt", "system", "prompt", "system_message"), "instructions=..."),
        "temperature": _SETTINGS.format(name="temperature"),
        "top_p": _SETTINGS.format(name="top_p"),
        "reasoning_effort": _SETTINGS.format(name="reasoning_effort"),
        **dict.fromkeys(("max_tokens", "max_output_tokens"), _SETTINGS.format(name="max_output_tokens")),
        **dict.fromkeys(("max_turns", "max_iterations", "recursion_limit"), "limits=Limits(max_turns=...)"),
        **dict.fromkeys(("model_settings", "model_kwargs"), "settings=ModelSettings(...)"),
        **dict.fromkeys(("output_type", "result_type", "response_format", "output_schema"), "output=..."),
        "handoffs": "handoff_to=[...]",
        **dict.fromkeys(("mcp_servers", "toolsets"), "tools=[McpServer(...), ...]"),
        **dict.fromkeys(("deps_type", "deps", "context_type"), "Worker(client, agents=[...], deps=...)"),
        **dict.fromkeys(("retries", "max_retries"), "patience=Patience(...), or @tool(retry=...) for one tool"),
        **dict.fromkeys(("guardrails", "input_guardrails", "output_guardrails"), "hooks=[...]"),
        **dict.fromkeys(("checkpointer", "memory", "session"), "no option: Temporal keeps each conversation by its id"),
    },
    "Client.run": {
        **dict.fromkeys(("thread_id", "session_id", "session", "conversation_id"), "id=..."),
        "max_turns": "Agent(limits=Limits(max_turns=...))",
        **dict.fromkeys(("message_history", "messages", "history"), "client.start(..., transcript=[...])"),
        **dict.fromkeys(("deps", "context"), "Worker(deps=...), or metadata={...} for this conversation"),
    },
}
"""By whose option it would be, then by its name: what to write."""

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "Agent": dict.fromkeys(
        ("run", "run_sync", "run_stream", "arun", "iter", "invoke", "ainvoke", "stream", "astream", "chat", "override"),
        _HOST,
    ),
    "Conversation": {
        **dict.fromkeys(("stream", "run_stream", "astream"), "`async for event in conversation.events()` follows it."),
        **dict.fromkeys(
            ("run", "chat", "ask", "invoke"), "`await conversation.send(text)`, then `await conversation.reply()`."
        ),
        **dict.fromkeys(("result", "wait", "join"), "`await conversation.outcome()` waits for its end."),
        **dict.fromkeys(("messages", "history", "get_messages", "all_messages"), _TRANSCRIPT),
        **dict.fromkeys(
            ("cancel", "stop", "abort"), "`cancel_turn()` ends the turn that runs; `close()` the conversation."
        ),
        **dict.fromkeys(("reject",), "`deny(call_id, reason=...)`."),
    },
    "Outcome": {
        **dict.fromkeys(
            ("data", "final_output", "result", "value", "parsed", "content", "response"),
            "`outcome.output` is the value of the agent's output type, `outcome.text` the text.",
        ),
        **dict.fromkeys(("messages", "all_messages", "new_messages", "new_items"), _TRANSCRIPT),
    },
    "Client": {
        **dict.fromkeys(
            ("invoke", "ainvoke", "chat", "run_stream"),
            "`await client.run(agent, message)`, or `start` and `events()`.",
        ),
        "run_sync": "`Client.connect_sync()` makes a client whose `run` waits.",
    },
    "everturn": {
        **dict.fromkeys(("Runner", "run", "run_sync"), _HOST),
        **dict.fromkeys(("function_tool", "Function", "StructuredTool"), "`@tool` makes a tool of a function."),
        **dict.fromkeys(
            ("RunContext", "RunContextWrapper", "ToolRuntime"), "`ToolContext`, as the type of one of the parameters."
        ),
        "ModelRetry": "`raise ToolFailed(...)` tells the model; `raise Retry(after=...)` tries the call again.",
        **dict.fromkeys(("Session", "Thread", "SQLiteSession"), "A conversation by its id: `client.conversation(id)`."),
        **dict.fromkeys(
            ("MCPServerStdio", "MCPServerStreamableHttp", "MCPServerStreamableHTTP"),
            "`McpServer(command=[...])`, or `McpServer(url=...)`.",
        ),
    },
}
"""By the class, or `everturn` for the package; then by the name."""


def word_for(owner: str, option: str) -> str | None:
    """What to write in place of another library's option; None if it is not one that we know."""
    return OPTIONS.get(owner, {}).get(option)


def no_attribute(owner: str, name: str) -> AttributeError:
    """The error for an attribute that is not there: with what everturn has in its place, if that is known."""
    message = f"{owner!r} object has no attribute {name!r}"
    if instead := ATTRIBUTES.get(owner, {}).get(name):
        message = f"{message}. {instead}"
    return AttributeError(message)
