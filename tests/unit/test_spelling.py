"""Misspelt options: refused in everturn's own words, which name the option and the nearest one, and show no value."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

import everturn
from everturn import (
    Agent,
    Approvals,
    Budget,
    Client,
    Compaction,
    Conversation,
    Deployment,
    EverturnPlugin,
    Limits,
    Model,
    ModelSettings,
    Outcome,
    Patience,
    QueueLimit,
    RateLimit,
    Reviewer,
    ToolContext,
    ToolOptions,
    Traces,
    Webhook,
    WebSearch,
    Worker,
    XSearch,
    generate,
    tool,
)
from everturn.errors import ConfigError, InvalidAgent, InvalidModel, InvalidSetting, InvalidTool, Refused
from everturn.models import PROVIDERS
from everturn.providers import catalog
from everturn.validation import names_of_other_libraries
from tests.support.agents import nowhere

KEY = "sk-that-nobody-may-see"

CLERK = Agent("clerk", model="scripted:demo")
NOWHERE = nowhere()


def add(a: int, b: int) -> int:
    return a + b


def connect(**options: Any) -> None:
    asyncio.run(Client.connect(**options))


CASES: list[tuple[Callable[..., Any], str, str, type[ConfigError]]] = [
    (cast("Any", tool), "tiemout", "Did you mean 'timeout'?", InvalidTool),
    (lambda **options: tool(add, **options), "efect", "Did you mean 'effect'?", InvalidTool),
    (lambda **options: Agent("clerk", model="scripted:demo", **options), "instruction", "'instructions'", InvalidAgent),
    (lambda **options: Agent("clerk", **options), "modle", "Did you mean 'model'?", InvalidAgent),
    (lambda **options: Worker(cast("Any", None), agents=[], **options), "task_que", "'task_queue'", InvalidSetting),
    (lambda **options: Client(cast("Any", None), **options), "taskqueue", "'task_queue'", InvalidSetting),
    (connect, "adress", "Did you mean 'address'?", InvalidSetting),
    (connect, "name_space", "Did you mean 'namespace'?", InvalidSetting),
    (lambda **options: generate("scripted:demo", "Hi", **options), "setings", "'settings'", InvalidSetting),
    (lambda **options: Model("openai:m", **options), "api_key", "key_env= takes the name", InvalidModel),
    (lambda **options: Model("openai:m", **options), "base_uri", "Did you mean 'base_url'?", InvalidModel),
    (Limits, "max_turn", "Did you mean 'max_turns'?", InvalidSetting),
    (Limits, "maxTurns", "Did you mean 'max_turns'?", InvalidSetting),
    (ModelSettings, "temperatur", "Did you mean 'temperature'?", InvalidSetting),
    (Patience, "models", "Did you mean 'model'?", InvalidSetting),
    (Approvals, "expires_after", "Did you mean 'expire_after'?", InvalidSetting),
    (Compaction, "window_token", "Did you mean 'window_tokens'?", InvalidSetting),
    (Reviewer, "effect", "Did you mean 'effects'?", InvalidAgent),
    (Webhook, "secret_evn", "Did you mean 'secret_env'?", InvalidAgent),
    (ToolOptions, "defer_load", "Did you mean 'defer_loading'?", InvalidTool),
    (lambda **options: tool(add, options=options), "input_example", "Did you mean 'input_examples'?", InvalidTool),
    (WebSearch, "max_use", "Did you mean 'max_uses'?", InvalidTool),
    (Budget, "usd_a_day", "Did you mean 'usd_per_day'?", InvalidSetting),
    (QueueLimit, "per_secnd", "Did you mean 'per_second'?", InvalidSetting),
    (RateLimit, "rmp", "Did you mean 'rpm'?", InvalidSetting),
    (XSearch, "from_day", "Did you mean 'from_date'?", InvalidTool),
    (Deployment, "build", "Did you mean 'build_id'?", InvalidSetting),
    (Traces, "contents", "Did you mean 'content'?", InvalidSetting),
    (EverturnPlugin, "agent", "Did you mean 'agents'?", InvalidSetting),
    (ToolContext, "conversation", "Did you mean 'conversation_id'?", InvalidTool),
]


@pytest.mark.parametrize(("make", "option", "cure", "error"), CASES, ids=[case[1] for case in CASES])
def test_a_misspelt_option_is_named_with_the_nearest_one_and_without_its_value(
    make: Callable[..., Any], option: str, cure: str, error: type[ConfigError]
) -> None:
    with pytest.raises(error) as caught:
        make(**{option: KEY})
    assert f"has no option {option!r}" in str(caught.value)
    assert cure in str(caught.value)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


CONFIGURED = {
    "Agent",
    "Approvals",
    "Client",
    "CodeExecution",
    "Compaction",
    "Deployment",
    "Encryption",
    "HandOff",
    "Limits",
    "McpOAuth",
    "McpServer",
    "McpTool",
    "Model",
    "ModelSettings",
    "Patience",
}
CONFIGURED |= {
    "AgentStore",
    "Budget",
    "EverturnPlugin",
    "QueueLimit",
    "Reviewer",
    "RateLimit",
    "Shown",
    "ToolOptions",
    "ToolContext",
    "Traces",
    "TurnContext",
    "WebSearch",
    "Webhook",
    "Worker",
    "XSearch",
}
NOT_CONFIGURED = {"Document", "Image", "Message", "Outcome", "Reply", "Text", "ToolCall", "ToolResult", "Usage"}
"""Records: they cross deploys, and pass over what they do not know."""
NOT_CONFIGURED |= {"Conversation", "Tool"}
"""Made by a client, and by `tool`."""
NOT_CONFIGURED |= {"WorkerOptions"}
"""A TypedDict: Worker and EverturnPlugin, which take it by keyword, refuse what it lacks."""


def test_every_public_class_refuses_what_it_does_not_know_or_is_none_that_users_configure() -> None:
    public = {name: getattr(everturn, name) for name in everturn.__all__}
    classes = {name for name, value in public.items() if isinstance(value, type) and not issubclass(value, Exception)}
    assert classes == CONFIGURED | NOT_CONFIGURED
    for name in CONFIGURED:
        with pytest.raises(ConfigError, match="has no option 'nonsense'"):
            public[name](nonsense=1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Limits(max_turns=0), "Limits(...) is invalid: max_turns: Input should be greater than or equal to 1."),
        (cast("Any", Compaction), "Compaction(...) is invalid: window_tokens: Field required."),
        (lambda: ModelSettings(temperature=cast("Any", KEY)), "ModelSettings(...) is invalid: temperature: "),
        (lambda: Patience(model=timedelta()), "Patience(...) is invalid: model: "),
        (lambda: Model(cast("Any", 5)), "5 is not a model."),
        (lambda: Model("openai:m", base_url=5), "Model(...) is invalid: base_url: "),
        (lambda: cast("Any", Model)("openai:m", KEY), "Model was given a value after name without a name. Write"),
        (lambda: cast("Any", Limits)(50), "Limits was given a value without a name. Write the name before it"),
        (lambda: cast("Any", Agent)("a"), "Agent was given no 'model'. Write Agent(..., model=...)."),
        (lambda: cast("Any", Agent)("a", "openai:m"), "Agent was given no 'model'."),
        (cast("Any", Model), "'' is not a model."),
        (lambda: tool(description=cast("Any", 5))(add), "Tool 'add' has description=5. Write a text."),
    ],
)
def test_a_value_that_does_not_fit_is_said_by_its_option_alone(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(said)
    assert KEY not in str(caught.value)
    assert "pydantic.dev" not in str(caught.value)


@pytest.mark.parametrize("key", [KEY, "hf_abcdefgh", "gsk_abcdefgh", "AIzaSyAbcdefgh"])
def test_a_key_in_the_place_of_its_variables_name_is_refused_unseen(key: str) -> None:
    with pytest.raises(InvalidModel, match="not the name of an environment variable") as caught:
        Model("openai:m", key_env=key)
    assert key not in str(caught.value)


def test_a_models_name_may_be_given_by_name() -> None:
    assert Model(name="openai:m") == Model("openai:m")
    assert Model.model_validate({"name": "openai:m"}) == Model("openai:m")


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({"model": "openia:gpt-5.5"}, "Did you mean 'openai'?"),
        ({"model": Model("anthropc:claude")}, "Did you mean 'anthropic'?"),
        ({"model": "scripted:demo", "fallback_models": ["gogle:gemini"]}, "Did you mean 'google'?"),
        ({"model": "nobody:x"}, "Known providers: openai, "),
    ],
)
def test_an_agent_with_a_model_of_an_unknown_provider_is_refused(options: dict[str, Any], near: str) -> None:
    with pytest.raises(InvalidModel, match="There is no provider") as caught:
        Agent("clerk", **options)
    assert near in str(caught.value)


async def test_a_conversation_on_a_model_of_an_unknown_provider_is_refused_before_it_starts() -> None:
    client = nowhere()
    with pytest.raises(InvalidModel, match="Did you mean 'openai'"):
        await client.start("clerk", "Hi", model="openia:gpt-5.5")


WRONG_THINGS: list[tuple[Callable[[], Any], str, type[Exception]]] = [
    (lambda: Client(cast("Any", "localhost:7233")), "await Client.connect", InvalidSetting),
    (lambda: Worker(cast("Any", "localhost:7233"), agents=[CLERK]), "not an everturn.Client", InvalidSetting),
    (lambda: Worker(cast("Any", object()), agents=[CLERK]), "not an everturn.Client", InvalidSetting),
    (lambda: Worker(NOWHERE, agents=cast("Any", CLERK)), r"Write agents=\[", InvalidAgent),
    (lambda: Worker(NOWHERE, agents="clerk"), r"Write agents=\[", InvalidAgent),  # type: ignore[arg-type]
    (lambda: Worker(NOWHERE, agents=[CLERK, cast("Any", "clerk")]), r"agents\[1\] of a worker", InvalidAgent),
    (lambda: Worker(NOWHERE, agents=[]), "at least one agent", InvalidAgent),
    (lambda: NOWHERE.start(cast("Any", 5), "Hi"), "5 is not an agent", InvalidAgent),
    (lambda: NOWHERE.run(cast("Any", None), "Hi"), "None is not an agent", InvalidAgent),
    (lambda: NOWHERE.send(cast("Any", 5), "Hi", id="order-81"), "5 is not an agent", InvalidAgent),
    (lambda: NOWHERE.start("clerk", "Hi", id=cast("Any", 81)), "The id is 81, of type int", Refused),
    (lambda: NOWHERE.send("clerk", "Hi", id=cast("Any", 81)), "The id is 81, of type int", Refused),
    (lambda: NOWHERE.conversation(cast("Any", 81)), "The id is 81, of type int", Refused),
    (lambda: NOWHERE.start("clerk", "Hi", limit=3), "Did you mean 'limits'", InvalidSetting),  # type: ignore[call-arg]
    (lambda: anext(NOWHERE.conversations(status="waiting")), "'waiting'. There are running, awaiting_", InvalidSetting),
    (lambda: NOWHERE.run("clerk", "Hi", mode="x"), "Did you mean 'model'", InvalidSetting),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("give", "why", "error"), WRONG_THINGS)
async def test_a_thing_of_another_kind_is_named_before_anything_is_sent(
    give: Callable[[], Any], why: str, error: type[Exception]
) -> None:
    async def given() -> None:
        if inspect.isawaitable(made := give()):
            await made

    with pytest.raises(error, match=why):
        await given()


def test_the_providers_that_are_known_are_those_that_there_are() -> None:
    assert sorted(PROVIDERS) == sorted(catalog.PROVIDERS)


# ---------------------------------------------------------------- names from other libraries


@pytest.mark.parametrize(
    ("owner", "option"), [(owner, name) for owner, table in names_of_other_libraries.OPTIONS.items() for name in table]
)
def test_another_librarys_option_is_answered_with_everturns_word(owner: str, option: str) -> None:
    takers: dict[str, Callable[..., Any]] = {
        "Agent": lambda **options: Agent("clerk", model="scripted:demo", **options),
        "Client.run": lambda **options: NOWHERE.run(CLERK, "Hi", **options),
    }
    with pytest.raises(ConfigError) as refused:
        takers[owner](**{option: KEY})
    assert names_of_other_libraries.OPTIONS[owner][option] in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, table in names_of_other_libraries.ATTRIBUTES.items() for name in table]
)
def test_another_librarys_attribute_is_answered_with_everturns_word(owner: str, name: str) -> None:
    things: dict[str, Any] = {
        "Agent": CLERK,
        "Conversation": NOWHERE.conversation("order-81"),
        "Outcome": Outcome(status="completed"),
        "Client": NOWHERE,
        "everturn": everturn,
    }
    with pytest.raises(AttributeError) as missing:
        getattr(things[owner], name)
    assert names_of_other_libraries.ATTRIBUTES[owner][name] in str(missing.value)
    assert not hasattr(things[owner], "nobody_calls_it_so")


def test_what_everturn_has_is_no_habit_of_others() -> None:
    for owner, made in {"Agent": Agent, "Conversation": Conversation, "Outcome": Outcome, "Client": Client}.items():
        assert not [name for name in names_of_other_libraries.ATTRIBUTES[owner] if hasattr(made, name)]
