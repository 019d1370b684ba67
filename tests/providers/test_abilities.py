"""What models can do, held against pydantic-ai's profiles, for every name that the vendors' SDKs and genai-prices have.

Each difference has its reason in `REASONS`. A new version in the lock file that says something else fails here: the
row is mended, or gets its reason. `LATEST=1 make peers` says what is new in newer versions.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from everturn.models import Model
from everturn.vendor_models.abilities import TABLE, UNKNOWN, abilities_of


def literals(kind: Any) -> Iterator[str]:
    for inner in get_args(kind):
        if isinstance(inner, str):
            yield inner
        else:
            yield from literals(inner)


def known_names(provider: str) -> list[str]:
    """pydantic-ai's names of a provider's models."""
    from pydantic_ai.models import KnownModelName

    names = literals(getattr(KnownModelName, "__value__", KnownModelName))
    return [name.partition(":")[2] for name in names if name.startswith(f"{provider}:")]


# The SDKs take seconds to import, which only the process that runs these tests spends.
@cache
def names_of(provider: str) -> list[str]:
    from anthropic.types import ModelParam
    from openai.types.shared import ChatModel, ResponsesModel

    more = {
        "anthropic": {*literals(ModelParam), "claude-sonnet-5-5"},
        "openai": {*literals(ChatModel), *literals(ResponsesModel), "gpt-6-sol"},
        "google": {"gemini-3-pro-preview", "gemini-3-flash-preview", "gemini-4-carbon"},
        "xai": {"grok-4.5", "grok-4.6", "grok-4.7", "grok-latest", "grok-4-0709"},
        "groq": {"qwen/qwen3-32b"},
    }
    return sorted({*known_names(provider), *more[provider]})


def profile(family: str, name: str) -> dict[str, Any]:
    module = importlib.import_module(f"pydantic_ai.profiles.{family}")
    return dict(getattr(module, f"{family}_model_profile")(name) or {})


def claude_differences() -> Iterator[str]:
    for name in names_of("anthropic"):
        ours = abilities_of(Model(f"anthropic:{name}"))
        theirs = profile("anthropic", name)
        off = "never" if theirs["thinking_always_enabled"] else "disabled"
        if theirs["anthropic_disables_thinking_with_between_tools"]:
            off = "between_tools"
        if not theirs["anthropic_supports_adaptive_thinking"]:
            off = "left out"
        pairs = {
            "thinking off": (ours.thinking_off, off),
            "thinks unasked": (ours.thinks_unasked, theirs["thinking_enabled_by_default"]),
            "forced tools": (ours.forced_tools, theirs["supports_forced_tool_choice"]),
            "a budget": (ours.budget, not theirs["anthropic_supports_adaptive_thinking"]),
            "no temperature": (ours.sampling == "never", theirs["anthropic_disallows_sampling_settings"]),
            "xhigh": ("xhigh" in (ours.efforts or ()), theirs["anthropic_supports_xhigh_effort"]),
            "an output schema": (ours.output_schema, theirs["supports_json_schema_output"]),
        }
        yield from (f"{name}: {what}, {mine!r} is {other!r}" for what, (mine, other) in pairs.items() if mine != other)


def openai_differences() -> Iterator[str]:
    for name in names_of("openai"):
        ours = abilities_of(Model(f"openai:{name}"))
        theirs = profile("openai", name)
        levels = {*(ours.efforts or ())} if ours is not UNKNOWN else None
        reasons = levels is None or bool(levels)
        if levels is None:
            continue  # what we do not know is sent as it was set
        if (exact := theirs.get("openai_reasoning_efforts")) is not None and levels != exact:
            yield f"{name}: {' '.join(sorted(levels))} is {' '.join(sorted(exact))}"
        pairs = {
            "reasons": (reasons, theirs["openai_supports_reasoning"]),
            "none": ("none" in levels, theirs["openai_supports_reasoning_effort_none"]),
            "thinks unasked": (ours.thinks_unasked, theirs["thinking_enabled_by_default"]),
            "encrypted reasoning": (
                ours.encrypted_reasoning,
                theirs["openai_supports_encrypted_reasoning_content"],
            ),
        }
        yield from (f"{name}: {what}, {mine!r} is {other!r}" for what, (mine, other) in pairs.items() if mine != other)


def other_differences() -> Iterator[str]:
    for name in names_of("google"):
        theirs = profile("google", name)
        if not theirs["google_supports_thinking_level"]:
            continue
        mine = {*(abilities_of(Model(f"google:{name}")).efforts or ())}
        other = {level.lower() for level in theirs.get("google_thinking_levels", ("MINIMAL", "LOW", "MEDIUM", "HIGH"))}
        if mine != other:
            yield f"{name}: {' '.join(sorted(mine))} is {' '.join(sorted(other))}"
    for name in names_of("xai"):
        mine = {*(abilities_of(Model(f"xai:{name}")).efforts or ())}
        if mine != (other := {*profile("grok", name)["grok_reasoning_efforts"]}):
            yield f"{name}: {' '.join(sorted(mine))} is {' '.join(sorted(other))}"
    for name in names_of("groq"):
        ours = abilities_of(Model(f"groq:{name}"))
        theirs = profile("groq", name)
        pairs = {
            "none": ("none" in (ours.efforts or ()), theirs["groq_supports_reasoning_disable"]),
            "low": ("low" in (ours.efforts or ()), theirs["groq_supports_graded_reasoning_effort"]),
        }
        yield from (f"{name}: {what}, {mine!r} is {other!r}" for what, (mine, other) in pairs.items() if mine != other)


def tool_differences() -> Iterator[str]:
    """Which tools a model takes: the server's, and its caller's."""
    for name in names_of("xai"):
        ours = abilities_of(Model(f"xai:{name}"))
        theirs = {kind.__name__.removesuffix("Tool") for kind in profile("grok", name)["supported_native_tools"]}
        for tool in ("WebSearch", "XSearch", "CodeExecution"):
            if (tool not in ours.without) != (tool in theirs):
                yield f"{name}: {tool}, {tool not in ours.without} is {tool in theirs}"
    for name in names_of("google"):
        ours, theirs_calls = abilities_of(Model(f"google:{name}")), profile("google", name)["supports_tools"]
        if ours.calls != theirs_calls:
            yield f"{name}: calls, {ours.calls} is {theirs_calls}"


def price_differences() -> Iterator[str]:
    """The models that genai-prices has a price for and that we know nothing of, by providers whose models we know."""
    from genai_prices.data import providers

    listed = {"anthropic": "anthropic", "openai": "openai", "google": "google", "x-ai": "xai", "groq": "groq"}
    listed |= {"moonshotai": "moonshot", "mistral": "mistral", "deepseek": "deepseek"}
    for provider in providers:
        for model in provider.models if provider.id in listed else ():
            if abilities_of(Model(f"{listed[provider.id]}:{model.id}")) is UNKNOWN:
                yield f"{model.id}: no row"


REASONS: dict[str, str] = {
    r"codex-mini-latest|gpt-6-(?:cyber|rosalind)": "It has no row there, and is taken for one that doesn't reason.",
    r"o[34](?:-mini)?-deep-research": "It is taken for the o-series there; models.dev lists no levels for it.",
    r"gemini-3-pro-image": "It has no row there, and gets all levels; models.dev lists none for it.",
    r"gemini-3\.1-flash-image": "There, its levels depend on the API: Google's, which we use, enforces these two.",
    r"grok-4\.20-multi-agent": "It has no row there; xAI takes the effort for the number of agents.",
    r"grok-4\.7": "It takes xhigh, says a comment there, which only isn't mapped yet (pydantic-ai#9744).",
    r"qwen/qwen3\.8-27b": "It has no row of its own there; Groq's SDK says that it takes low, medium and high.",
    r"claude-[\w-]+: no row": "Google lists Claude's prices for Vertex; its own API does not serve it.",
    r"gemma-4[\w-]+: no row": "Nothing that it refuses is known.",
    r"(?:kimi-k2|moonshot-v1)[\w.-]*: no row": "They take an effort as its others do, and stop thinking if asked.",
    r"(?:ada|curie|moderation|computer-use): no row": "They are retired, or no models that talk.",
    r"gpt-(?:live|realtime)[\w-]*: no row": "They are asked by WebSockets, which we don't speak.",
    r"gpt-(?:chat-latest|rosalind-\w+): no row": "An alias, and models for few: no source says what they take.",
}
"""Every difference between our table and pydantic-ai's profiles of the lock file: a pattern, and why ours stays."""


def test_every_difference_from_pydantic_ais_profiles_has_its_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [*claude_differences(), *openai_differences(), *other_differences(), *tool_differences()]
        found += price_differences()
    without = [line for line in found if not any(re.match(pattern, line) for pattern in REASONS)]
    assert not without, "\n".join(without)
    unused = [pattern for pattern in REASONS if not any(re.match(pattern, line) for line in found)]
    assert not unused, unused


def test_every_row_has_its_source() -> None:
    assert all(row.source for rows in TABLE.values() for row in rows)
