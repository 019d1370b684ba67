"""What is said of one tool: each option goes to the providers that know it, and to no other."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import Agent, Message, Model, ToolOptions, UnsupportedParameter, tool
from everturn.errors import InvalidTool
from everturn.providers import Request, ToolSpec, anthropic_messages, gemini, openai_chat, openai_responses
from everturn.providers.catalog import row_of

PROTOCOLS: dict[str, Any] = {
    "anthropic_messages": anthropic_messages,
    "gemini": gemini,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
}

EXAMPLES = [{"city": "Bern"}]
EPHEMERAL = {"type": "ephemeral", "ttl": "1h"}
CALLERS = ["direct", "code_execution_20250825", "programmatic"]

NAMES = [*ToolOptions.model_fields]

ALL = ToolOptions(
    strict=True,
    defer_loading=True,
    allowed_callers=tuple(CALLERS),
    input_examples=({"city": "Bern"},),
    cache_control={"type": "ephemeral", "ttl": "1h"},
)


@tool(options=ALL)
def weather(city: str) -> str:
    """The weather."""
    return city


@tool(options={"strict": True})
def forecast(city: str, days: int = 3) -> str:
    """The weather to come."""
    return f"{city} {days}"


def declared(model: str, made: Any) -> dict[str, Any]:
    """The tool as it goes out."""
    request = Request(model=Model(model), messages=[Message.user("?")], tools=[ToolSpec.from_tool(made)])
    protocol = PROTOCOLS[row_of(request.model.provider).protocol]
    (found,) = protocol.encode(request)[1]["tools"]
    found = found["functionDeclarations"][0] if "functionDeclarations" in found else found
    return found.get("function", found)  # type: ignore[no-any-return]


def said(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ToolOptions.model_fields if name in found}


@pytest.mark.parametrize(
    ("model", "known", "unknown"),
    [
        (
            "anthropic:claude-sonnet-4-5",
            {
                "strict": True,
                "defer_loading": True,
                "allowed_callers": CALLERS[:2],
                "input_examples": EXAMPLES,
                "cache_control": EPHEMERAL,
            },
            [],
        ),
        (
            "openai:gpt-5.5",
            {"strict": True, "defer_loading": True, "allowed_callers": ["direct", "programmatic"]},
            ["input_examples", "cache_control"],
        ),
        (
            "xai:grok-5",
            {"strict": False},
            NAMES,
        ),
        ("openai-chat:m", {"strict": True}, ["defer_loading", "allowed_callers", "input_examples", "cache_control"]),
        ("openrouter:m", {"strict": True}, ["defer_loading", "allowed_callers", "input_examples", "cache_control"]),
        ("groq:m", {}, NAMES),
        (
            "google:gemini-3-flash",
            {},
            NAMES,
        ),
    ],
)
@pytest.mark.filterwarnings("always")
def test_each_option_goes_to_the_providers_that_know_it(
    model: str, known: dict[str, Any], unknown: list[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert said(declared(model, weather)) == known
    warned = [str(one.message) for one in recwarn if issubclass(one.category, UnsupportedParameter)]
    assert [text.split(" can't do ")[1].split("=")[0] for text in warned] == unknown
    assert all("of the tool 'weather'" in text and model in text for text in warned)


@pytest.mark.parametrize("model", ["openai:gpt-5.5", "openai-chat:m"])
def test_a_schema_that_openais_strict_mode_refuses_goes_out_without_it(model: str) -> None:
    with pytest.warns(UnsupportedParameter, match=r"strict= of the tool 'forecast' with its schema.*sent without it"):
        assert not declared(model, forecast).get("strict")


@pytest.mark.parametrize(
    "model", ["anthropic:claude-sonnet-4-5", "openai:gpt-5.5", "openai-chat:m", "google:gemini-3-flash"]
)
def test_nothing_is_sent_of_a_tool_without_options(model: str) -> None:
    found = said(declared(model, tool(weather.function)))
    found.pop("cache_control", None)  # everturn's own, of the last tool
    assert found in ({}, {"strict": False})


def test_a_tool_of_the_client_says_the_same_in_its_dict() -> None:
    agent = Agent(
        "clerk",
        model="scripted:demo",
        tools=[{"name": "look", "parameters": {}, "strict": True, "input_examples": [{"screen": 1}]}],
    )
    (made,) = agent.tools
    assert made.options == ToolOptions(strict=True, input_examples=({"screen": 1},))


@pytest.mark.parametrize("options", [True, "strict", ["strict"]])
def test_options_are_toolsoptions_or_a_dict_of_the_same(options: Any) -> None:
    with pytest.raises(InvalidTool, match=r"Write options=ToolOptions\(strict=True\)"):
        tool(weather.function, options=options)
