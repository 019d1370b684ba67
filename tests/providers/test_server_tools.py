"""Which models take the tools that their provider runs, and which call tools at all: others are refused at once."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from everturn import Agent, CodeExecution, McpServer, WebSearch, XSearch
from everturn.errors import InvalidTool
from everturn.models import PROVIDERS, Model, ModelSettings
from everturn.providers.base import Request, ToolSpec
from everturn.providers.catalog import protocol_of, row_of
from everturn.providers.http import protocol_by_name
from everturn.providers.openai_responses.tools import _SERVED
from everturn.records import Message, Text, ToolCall
from everturn.tools.server_tools import ServerTool, UnsupportedParameter
from everturn.vendor_models.abilities import SERVER_TOOLS, TABLE, abilities_of

TOOLS: dict[str, ServerTool] = {"WebSearch": WebSearch(), "XSearch": XSearch(), "CodeExecution": CodeExecution()}
ADD = ToolSpec("add", "Adds.")


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def encoded(model: str, *tools: ServerTool, own: tuple[ToolSpec, ...] = (), **more: Any) -> tuple[str, dict[str, Any]]:
    settings = ModelSettings(**more.pop("settings", {}))
    request = Request(Model(model), [Message.user("?")], server_tools=tools, tools=own, settings=settings, **more)
    named = protocol_of(request)
    assert isinstance(named, str)
    return protocol_by_name(named).encode(request)


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("openai:gpt-5.5", "WebSearch CodeExecution"),
        ("openai:gpt-5-nano", "WebSearch CodeExecution"),
        ("openai:gpt-4.1-nano", "CodeExecution"),
        ("openai:gpt-4.1", "WebSearch CodeExecution"),
        ("openai:gpt-4o-mini", "WebSearch CodeExecution"),
        ("openai:gpt-4-turbo", "CodeExecution"),
        ("openai:o3-mini", "CodeExecution"),
        ("openai:o3", "WebSearch CodeExecution"),
        ("openai:gpt-5-pro", "WebSearch"),
        ("openai:gpt-5.4-pro", "WebSearch CodeExecution"),
        ("openai:gpt-5.1-codex", "WebSearch"),
        ("openai:gpt-5.1-codex-max", "WebSearch"),
        ("openai:gpt-5.3-codex", "WebSearch CodeExecution"),
        ("openai:a-new-name", "WebSearch CodeExecution"),
        ("openai-chat:gpt-5.5", ""),
        ("anthropic:claude-opus-5-5", "WebSearch CodeExecution"),
        ("anthropic:claude-3-opus-20240229", ""),
        ("anthropic:claude-3-5-sonnet-20241022", "WebSearch"),
        ("anthropic:claude-3-5-haiku-20241022", "WebSearch CodeExecution"),
        ("anthropic:claude-3-7-sonnet", "WebSearch CodeExecution"),
        ("google:gemini-3.5-flash", "WebSearch CodeExecution"),
        ("google:gemini-2.5-flash-image", ""),
        ("google:gemini-3-pro-image", "WebSearch"),
        ("google:gemini-2.5-flash-preview-tts", ""),
        ("google:gemma-3-27b-it", ""),
        ("google:gemma-4-31b-it", "WebSearch CodeExecution"),
        ("xai:grok-4.5", "WebSearch XSearch CodeExecution"),
        ("xai:grok-4-fast-reasoning", "WebSearch XSearch CodeExecution"),
        ("xai:grok-code-fast-1", "WebSearch XSearch CodeExecution"),
        ("xai:grok-3", "WebSearch XSearch CodeExecution"),  # leads to Grok 4.3
        ("xai:grok-3-mini", ""),
        ("xai:grok-3-mini-fast", ""),
        ("xai:grok-2-1212", ""),
        ("groq:openai/gpt-oss-120b", "WebSearch CodeExecution"),
        ("groq:openai/gpt-oss-safeguard-20b", "WebSearch"),
        ("groq:llama-3.1-8b-instant", ""),
        ("groq:meta-llama/llama-4-scout-17b-16e-instruct", ""),
        ("groq:qwen/qwen3-32b", ""),
        ("groq:moonshotai/kimi-k2-instruct", ""),
        ("groq:groq/compound-mini", "WebSearch CodeExecution"),
        ("mistral:mistral-large-latest", ""),
        ("deepseek:deepseek-chat", ""),
        ("moonshot:kimi-k2.6", "WebSearch"),
        ("moonshot:kimi-k3", ""),  # it can't stop thinking, as the search asks
        ("moonshot:kimi-k2-thinking", ""),
        ("openrouter:anthropic/claude-opus-5.5", "WebSearch"),
        ("ollama:qwen3:8b", "WebSearch"),
        ("huggingface:openai/gpt-oss-120b", ""),
        ("vllm:any", ""),
    ],
)
def test_a_server_tool_that_a_model_does_not_take_is_refused_with_those_that_do(model: str, takes: str) -> None:
    for name, tool in TOOLS.items():
        if name in takes.split():
            encoded(model, tool)
            Agent("clerk", model=model, tools=[tool])
            continue
        with pytest.raises(InvalidTool, match=name) as raised:
            encoded(model, tool)
        if name in SERVER_TOOLS.get(Model(model).provider, {}):
            assert SERVER_TOOLS[Model(model).provider][name] in str(raised.value)
            with pytest.raises(InvalidTool, match=f"does not take {name}"):
                Agent("clerk", model=model, tools=[tool])
            with pytest.raises(InvalidTool, match=f"does not take {name}"):
                Agent("clerk", model="scripted:any", fallback_models=[model], tools=[tool])


def test_the_tables_of_server_tools_agree() -> None:
    """What people are told, what each protocol can write, and the rows by model."""
    for provider in PROVIDERS:
        row = row_of(provider)
        family = row.responses.server_tools if "openai_responses" in {row.protocol, row.served_by} else "none"
        written = {kind.__name__ for kind in _SERVED[family]} | {name for name, _ in row.dialect.server_tools}
        if row.protocol in {"gemini", "anthropic_messages"}:
            written = {"WebSearch", "CodeExecution"}
        assert written == {*SERVER_TOOLS.get(provider, {})}, provider
    for provider, rows in TABLE.items():
        for row in rows:
            unknown = row.abilities.without - {*SERVER_TOOLS.get(provider, {}), *SERVER_TOOLS["xai"]}
            assert not unknown, (provider, row.pattern)


@pytest.mark.parametrize(
    "model",
    [
        "openai:gpt-image-2",
        "openai:gpt-5-chat-latest",
        "openai:chatgpt-4o-latest",
        "openai:gpt-4o-search-preview",
        "openai:o3-deep-research",
        "openai:o1-mini",
        "openai:text-embedding-3-large",
        "openai:gpt-4o-mini-tts",
        "openai-chat:gpt-3.5-turbo-instruct",
        "anthropic:claude-2.1",
        "google:gemini-2.5-flash-image",
        "google:gemini-3-pro-image-preview",
        "google:gemini-3.1-flash-image-preview",
        "google:gemini-2.5-pro-preview-tts",
        "google:gemma-3-4b-it",
        "google:imagen-4.0",
        "xai:grok-imagine-image",
        "xai:grok-4.20-multi-agent-0309",
        "groq:groq/compound",
        "groq:whisper-large-v3",
        "groq:meta-llama/llama-guard-4-12b",
        "mistral:mistral-embed",
    ],
)
def test_a_model_without_tools_is_refused_when_the_agent_is_made(model: str) -> None:
    other = Agent("other", model="scripted:any")
    given: list[dict[str, Any]] = [
        {"tools": [add]},
        {"tools": [{"name": "ask", "parameters": {"type": "object", "properties": {}}}]},
        {"tools": [other]},
        {"tools": [McpServer(url="http://127.0.0.1:1/mcp")]},
        {"handoff_to": [other]},
    ]
    for options in given:
        with pytest.raises(InvalidTool, match=f"^{model} can't call tools, and was given "):
            Agent("clerk", model=model, **options)
    with pytest.raises(InvalidTool, match="can't call tools"):
        Agent("clerk", model="scripted:any", fallback_models=[model], tools=[add])
    with pytest.raises(InvalidTool, match="can't call tools, and was given add"):
        encoded(model, own=(ADD,))
    Agent("clerk", model=model)


@pytest.mark.parametrize(
    "model",
    [
        Model("openai-chat:gpt-image-2", base_url="http://h/v1"),  # whatever somebody's own server calls so
        Model("openresponses:whisper", base_url="http://h/v1"),
        Model("openai:gpt-5.3-chat-latest"),
        Model("openai:gpt-audio"),
        Model("azure:gpt-image-2"),  # a deployment's name
        Model("ollama:gemma3"),  # it depends on the model's template
        Model("google:gemini-2.5-computer-use-preview-10-2025"),
    ],
)
def test_a_model_that_may_call_tools_is_not_refused(model: Model) -> None:
    Agent("clerk", model=model, tools=[add])


def test_what_server_tools_become() -> None:
    path, body = encoded("moonshot:kimi-k2.6", WebSearch(), own=(ADD,))
    assert body["tools"][1] == {"type": "builtin_function", "function": {"name": "$web_search"}}
    assert (path, body["thinking"]) == ("/chat/completions", {"type": "disabled"})
    _, body = encoded("openrouter:openai/gpt-6", WebSearch(allowed_domains=("a.example",), max_uses=2))
    parameters = {"allowed_domains": ["a.example"], "max_uses": 2}
    assert body["tools"] == [{"type": "openrouter:web_search", "parameters": parameters}]
    path, body = encoded("ollama:qwen3:8b", WebSearch(), own=(ADD,))
    assert (path, body["tools"][1]) == ("/responses", {"type": "web_search"})
    assert encoded("ollama:qwen3:8b", own=(ADD,))[0] == "/chat/completions"
    _, body = encoded("groq:groq/compound", WebSearch(blocked_domains=("b.example",)), CodeExecution())
    assert body["compound_custom"] == {"tools": {"enabled_tools": ["web_search", "code_interpreter"]}}
    assert (body["search_settings"], "tools" in body) == ({"exclude_domains": ["b.example"]}, False)


@pytest.mark.parametrize(
    ("model", "tools", "effort", "sent"),
    [
        ("moonshot:kimi-k2.6", "search", "high", {"thinking": {"type": "disabled"}}),
        ("moonshot:kimi-k2.6", "add", "none", {"thinking": {"type": "disabled"}}),
        ("openai:gpt-5", "search", "minimal", {"reasoning": {"effort": "low"}}),
        ("openai:gpt-5", "add", "minimal", {"reasoning": {"effort": "minimal"}}),
        ("openai-chat:gpt-5.6-terra", "add", None, {"reasoning_effort": "none"}),
        ("openai-chat:gpt-5.4", "add", "high", {"reasoning_effort": "none"}),
        ("openai-chat:gpt-5.4", "", "high", {"reasoning_effort": "high"}),
        ("openai-chat:gpt-5.2", "add", "high", {"reasoning_effort": "high"}),
        ("openai:gpt-5.6-terra", "add", "high", {"reasoning": {"effort": "high"}}),
    ],
)
def test_an_effort_that_is_refused_beside_a_tool_is_not_sent(
    model: str, tools: str, effort: str | None, sent: dict[str, Any]
) -> None:
    served = (WebSearch(),) if tools == "search" else ()
    own = (ADD,) if tools == "add" else ()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnsupportedParameter)
        _, body = encoded(model, *served, own=own, settings={"reasoning_effort": effort})
    assert {name: body.get(name) for name in sent} == sent
    asked = effort in {None, "none"} or any(str(effort) in str(value) for value in sent.values())
    assert bool(caught) is not asked


def test_moonshots_search_is_answered_by_the_agent_itself() -> None:
    agent = Agent("clerk", model="moonshot:kimi-k2.6", tools=[add, WebSearch()])
    assert [tool.name for tool in agent.tools] == ["add", "$web_search"]
    assert [tool.name for tool in agent.for_turn(tools=[add]).tools] == ["add", "$web_search"]
    assert [tool.name for tool in Agent("clerk", model="openai:gpt-6", tools=[add, WebSearch()]).tools] == ["add"]
    with_raw = [{"type": "builtin_function", "function": {"name": "$web_search"}}, WebSearch()]
    assert [tool.name for tool in Agent("clerk", model="moonshot:kimi-k2.6", tools=with_raw).tools] == ["$web_search"]


def test_a_transcript_by_chat_goes_on_by_responses() -> None:
    """An agent on Ollama that is given WebSearch while its conversation runs changes its protocol."""
    thoughts = {"kind": "thinking", "text": "Hm.", "extra": {"came_in": "reasoning"}}
    call = ToolCall(call_id="c1", name="add", arguments={"a": 1}, extra={"index": 0})
    reply = Message.model_validate(
        {
            "role": "assistant",
            "provider": "ollama",
            "parts": [thoughts, Text(text="So.").model_dump(), call.model_dump()],
        }
    )
    request = Request(Model("ollama:qwen3:8b"), [Message.user("?"), reply], tools=(ADD,), server_tools=(WebSearch(),))
    _, body = protocol_by_name("openai_responses").encode(request)
    assert [item.get("type", item.get("role")) for item in body["input"]] == [
        *("user", "assistant", "function_call", "function_call_output")
    ]
    assert "came_in" not in str(body)


def test_abilities_beside_chat_are_those_of_the_model() -> None:
    assert not abilities_of(Model("openai-chat:gpt-6-sol")).effort_beside_calls
    assert abilities_of(Model("openai:gpt-6-sol")).effort_beside_calls
