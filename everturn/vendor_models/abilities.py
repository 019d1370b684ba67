"""What models can do: the one table by which agents are checked and requests are made. What a model does not take is a
400, in this request and in every later one.

By provider, then by the model's name: the first row that matches counts, and says where its facts come from. A name
without a row is treated as `UNKNOWN`: it is asked for what was set. `tests/providers/test_abilities.py` lists every
difference between these rows and the model profiles of pydantic-ai, which are tried against the live APIs.

Which media a protocol takes is in `media.py`: no vendor says it by model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from everturn.errors import InvalidTool
from everturn.models import PROVIDERS, Model
from everturn.vendor_models import plugins

MAX_TOKENS: Final = 32_000
"""max_tokens of Claude if nobody set it, since its API requires one: room for long files and thoughts. Each model since
Claude 4 takes this much."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model takes."""

    efforts: tuple[str, ...] | None = None
    """Its levels of reasoning_effort; empty if it takes no effort, None if they are not known."""
    thinks_unasked: bool = False
    """Whether it thinks if no effort is asked for."""
    sampling: Literal["always", "without thinking", "never"] = "always"
    """When it takes a temperature."""
    forced_tools: bool = True
    """Whether it can be made to call a tool (tool_choice 'required', or a tool's name)."""
    encrypted_reasoning: bool = True
    """Whether OpenAI may be asked for its encrypted reasoning."""
    calls: bool = True
    """Whether it can call tools that others than its provider run. What it can't do is a 400 in each request."""
    without: frozenset[str] = frozenset()
    """Server tools of its provider that it does not take, by the names of our classes."""
    effort_beside_calls: bool = True
    """Whether it thinks while it is offered functions."""
    # Of Claude:
    budget: bool = False
    """Whether its thinking is set by a budget of tokens. Newer models refuse a budget, and take an effort instead."""
    thinking_off: Literal["disabled", "between_tools", "left out", "never"] = "disabled"
    """How it is told not to think: a type of `thinking`, no `thinking` at all, or not in any way."""
    output_schema: bool = True
    """Whether it can be held to a JSON schema."""
    max_tokens: int = MAX_TOKENS
    """The output that it is asked for if nobody set it."""

    def takes_temperature(self, effort: str | None) -> bool:
        """Whether a temperature may be sent beside this effort, which is None if none is sent."""
        if self.sampling != "without thinking":
            return self.sampling == "always"
        return effort == "none" or (effort is None and not self.thinks_unasked)


UNKNOWN: Final = Abilities()
"""Of a name that is in no row: somebody's own model, or a newer one."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """Models by a pattern that their names begin with, in lower case and without a vendor's path before them."""

    pattern: str | re.Pattern[str]
    """Most stay texts: a worker meets a few of them, and to compile all takes 10 ms of its start."""
    abilities: Abilities
    source: str
    """Where this was read, and when."""


def _row(pattern: str, source: str, abilities: Abilities) -> ModelRow:
    return ModelRow(pattern, abilities, source)


def _levels(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PYDANTIC_AI: Final = "pydantic-ai 2.68.0, profiles, tried live (2026-11)"
_MODELS_DEV: Final = "models.dev, reasoning_options (2026-07)"

# ---------------------------------------------------------------- Claude

_NO_SEARCH = frozenset({"WebSearch"})
_NO_CODE = frozenset({"CodeExecution"})
_NEITHER = _NO_SEARCH | _NO_CODE

_CLAUDE_1_TO_3 = Abilities(
    efforts=(), budget=True, thinking_off="left out", output_schema=False, max_tokens=4096, without=_NEITHER
)
_CLAUDE_3_5 = replace(_CLAUDE_1_TO_3, max_tokens=8192, without=_NO_CODE)
_CLAUDE_3_5_HAIKU = replace(_CLAUDE_3_5, without=frozenset())
_CLAUDE_3_7 = replace(_CLAUDE_3_5_HAIKU, efforts=None, sampling="without thinking")
_CLAUDE_4 = Abilities(budget=True, thinking_off="left out", output_schema=False, sampling="without thinking")
_CLAUDE_4_5 = replace(_CLAUDE_4, output_schema=True)
_CLAUDE_4_6 = Abilities(efforts=_levels("low medium high max"), sampling="without thinking")
_CLAUDE_4_7 = Abilities(efforts=_levels("low medium high xhigh max"), sampling="never")
_CLAUDE_5 = replace(_CLAUDE_4_7, thinks_unasked=True)
_ALWAYS_THINKS = replace(_CLAUDE_5, thinking_off="never")
_NEVER_FORCED = replace(_ALWAYS_THINKS, forced_tools=False)

_SCHEMAS: Final = "Anthropic, structured outputs and extended thinking (2026-02)"
_V = r"(?!\d|-\d{1,2}(?!\d))"  # so that 4-1 is not 4-10, nor 4 any 4-6; dates of 8 digits may follow
_CLAUDE: Final = (
    _row(r"claude-(?:[12]|instant)", "Anthropic, models overview (2025-10)", replace(_CLAUDE_1_TO_3, calls=False)),
    _row(r"claude-3-(?:haiku|opus|sonnet)", "Anthropic, models overview; web search tool (2025-10)", _CLAUDE_1_TO_3),
    _row(r"claude-3-7", "Anthropic, extended thinking; code execution tool (2025-10)", _CLAUDE_3_7),
    _row(r"claude-3-5-haiku", "Anthropic, models overview; code execution tool (2025-10)", _CLAUDE_3_5_HAIKU),
    _row(r"claude-3", "Anthropic, models overview (2025-10)", _CLAUDE_3_5),
    _row(rf"claude-(?:opus|sonnet|haiku)-4(?:-0)?{_V}|claude-4-(?:opus|sonnet)", _SCHEMAS, _CLAUDE_4),
    _row(rf"claude-(?:opus|sonnet|haiku)-4-[15]{_V}", _SCHEMAS, _CLAUDE_4_5),
    _row(rf"claude-(?:opus|sonnet)-4-6{_V}", _PYDANTIC_AI, _CLAUDE_4_6),
    _row(rf"claude-opus-4-[78]{_V}", _PYDANTIC_AI, _CLAUDE_4_7),
    _row(rf"claude-(?:opus|sonnet)-5{_V}|claude-haiku", _PYDANTIC_AI, _CLAUDE_5),
    _row(
        r"claude-mythos-preview",
        _PYDANTIC_AI,
        replace(_CLAUDE_4_6, thinks_unasked=True, thinking_off="never", output_schema=False),
    ),
    _row(rf"claude-(?:fable|mythos)-5{_V}", _PYDANTIC_AI, _ALWAYS_THINKS),
    # The 5.1, 5.2 and 5.5 take no forced tools. Names of later ones are treated as the newest of their kind.
    _row(r"claude-sonnet-", _PYDANTIC_AI, replace(_CLAUDE_5, thinking_off="between_tools", forced_tools=False)),
    _row(r"claude-opus-4", _PYDANTIC_AI, _CLAUDE_4_7),
    _row(r"claude-", _PYDANTIC_AI, _NEVER_FORCED),
)

# ---------------------------------------------------------------- OpenAI

_TALKS = Abilities(efforts=(), encrypted_reasoning=False)
_SILENT = replace(_TALKS, calls=False, without=_NEITHER)


def _reasons(efforts: str, *, unasked: bool = True, without: frozenset[str] = frozenset()) -> Abilities:
    return Abilities(efforts=_levels(efforts), thinks_unasked=unasked, sampling="without thinking", without=without)


_HOME: Final = f"{_PYDANTIC_AI}; tools: Home Assistant, openai_conversation (2026-05)"
_CATALOG: Final = "models.dev, tool_call; platform.openai.com, pages of the models (2026-07)"


_OPENAI: Final = (
    _row(r"[\w.-]+-deep-research", _MODELS_DEV, replace(_reasons(""), encrypted_reasoning=True, calls=False)),
    # Pictures, sounds, vectors, completions: they hold no conversation that could call a tool.
    _row(
        r"(?:chat)?gpt-image|dall-e|sora|tts|whisper|text-|omni-moderation|babbage|davinci|[\w.-]+-(?:tts|transcribe)"
        r"|gpt-3\.5-turbo-instruct",
        _CATALOG,
        _SILENT,
    ),
    _row(r"chatgpt-4o|gpt-5-chat|gpt-4o[\w-]*-search|gpt-5-search", _CATALOG, replace(_TALKS, calls=False)),
    _row(r"gpt-3|gpt-4-turbo|gpt-4\.1-nano|gpt-4(?![\w.])|gpt-4-\d", _HOME, replace(_TALKS, without=_NO_SEARCH)),
    _row(r"gpt-4|chatgpt|gpt-audio", _PYDANTIC_AI, _TALKS),
    _row(r"gpt-5\.\d+-chat", _PYDANTIC_AI, _reasons("medium")),
    _row(r"gpt-5-pro", _HOME, _reasons("high", without=_NO_CODE)),
    _row(r"gpt-5\.2-pro", _HOME, _reasons("medium high xhigh", without=_NO_CODE)),
    _row(r"gpt-[\w.]+-pro", _PYDANTIC_AI, _reasons("medium high xhigh")),
    _row(
        r"gpt-5-codex|gpt-5\.1-codex(?!-max)", f"{_MODELS_DEV}; {_HOME}", _reasons("low medium high", without=_NO_CODE)
    ),
    _row(r"codex", _MODELS_DEV, _reasons("low medium high")),
    _row(r"gpt-5\.[12]-codex", f"{_MODELS_DEV}; {_HOME}", _reasons("low medium high xhigh", without=_NO_CODE)),
    _row(r"gpt-5\.1(?!\d)", _PYDANTIC_AI, _reasons("none low medium high", unasked=False)),
    _row(r"gpt-5\.[2-4](?!\d)", _PYDANTIC_AI, _reasons("none low medium high xhigh", unasked=False)),
    _row(r"gpt-5\.5(?!\d)", _PYDANTIC_AI, _reasons("none low medium high xhigh")),
    _row(r"gpt-5(?!\.)", _PYDANTIC_AI, _reasons("minimal low medium high")),
    _row(r"o1-(?:mini|preview)", _HOME, replace(_reasons("low medium high"), calls=False, without=_NEITHER)),
    _row(r"o1|o3-mini", _HOME, _reasons("low medium high", without=_NO_SEARCH)),
    _row(r"gpt-oss|o\d", _PYDANTIC_AI, _reasons("low medium high")),
    # Of GPT-6, Astra and 6.1 Sol can't stop thinking. 6.2 and later are taken for their successors.
    _row(r"gpt-6[\d.]*-astra|gpt-6\.[1-9]\d*-sol", _PYDANTIC_AI, _reasons("low medium high xhigh max")),
    _row(r"gpt-5\.[6-9]|gpt-6[\d.]*-(?:sol|luna|terra)", _PYDANTIC_AI, _reasons("none low medium high xhigh max")),
    # Without a source: levels that every model since GPT-5.2 has.
    _row(r"gpt-\d", "of a name that no source has", _reasons("low medium high xhigh")),
)


_SINCE_5_4 = re.compile(r"gpt-5\.(?:[4-9]|\d\d)|gpt-[6-9]|gpt-\d\d")
"""By Chat Completions: "Function tools with reasoning_effort are not supported for gpt-5.6-terra in
/v1/chat/completions", even if no effort is set, unless it is none (BerriAI/litellm#34569, tried live, 2026-07)."""


def _by_chat(row: ModelRow) -> ModelRow:
    """The same model by Chat Completions, which refuses 'max' (pydantic-ai 2.68.0, tried live, 2026-10)."""
    efforts = row.abilities.efforts or ()
    return replace(row, abilities=replace(row.abilities, efforts=tuple(level for level in efforts if level != "max")))


_OPENAI_CHAT: Final = tuple(map(_by_chat, _OPENAI))

# ---------------------------------------------------------------- Gemini, Grok, and all others


def _takes(efforts: str, *, calls: bool = True, without: frozenset[str] = frozenset()) -> Abilities:
    return Abilities(efforts=_levels(efforts), calls=calls, without=without)


_GEMINI_DOCS: Final = "Gemini API, thinking levels (2026-11); pydantic-ai 2.68.0, profiles"
_GEMINI_PAGES: Final = "ai.google.dev, pages of the models (2026-11); models.dev, tool_call; pydantic-ai 2.68.0"
_GOOGLE: Final = (
    _row(r"gemini-2[\w.-]*-image", f"{_PYDANTIC_AI}; {_GEMINI_PAGES}", _takes("", calls=False, without=_NEITHER)),
    _row(r"gemini-[\w.]+-pro-image", f"{_MODELS_DEV}; {_GEMINI_PAGES}", _takes("", calls=False, without=_NO_CODE)),
    _row(
        r"gemini-[\w.]+-flash(?:-lite)?-image",
        f"{_GEMINI_DOCS}; {_GEMINI_PAGES}",
        _takes("minimal high", calls=False, without=_NO_CODE),
    ),
    _row(
        r"gemini-[\w.-]*(?:-tts|-embedding)|gemini-embedding|imagen|veo|lyria|text-embedding|aqa",
        _GEMINI_PAGES,
        Abilities(calls=False, without=_NEITHER),
    ),
    _row(r"gemini-2\.0-flash-lite", _GEMINI_PAGES, _takes("", without=_NEITHER)),
    # "Function calling is not enabled for models/gemma-3-27b-it"; Gemma 4 has it.
    _row(
        r"gemma-?[1-3]",
        "the API's answer, in BerriAI/litellm#10313 (2025)",
        _takes("", calls=False, without=_NEITHER),
    ),
    _row(r"gemini-3(?:\.0)?-pro", _GEMINI_DOCS, _takes("low high")),
    _row(r"gemini-(?:[\w.]+-)?pro", _GEMINI_DOCS, _takes("low medium high")),
    _row(r"gemini-(?:[\w.]+-)?flash-lite|gemini-3(?:\.[0-6])?-flash", _GEMINI_DOCS, _takes("minimal low medium high")),
    _row(r"gemini-flash|gemini-[\w.]+-flash", _GEMINI_DOCS, _takes("low medium high")),
    # Argon and Carbon. "Gemini 4 Argon does not support minimal. Use low, medium, or high."
    _row(r"gemini-(?:[4-9]|\d\d)", _GEMINI_DOCS, _takes("low medium high")),
    _row(r"gemini", _GEMINI_DOCS, _takes("minimal low medium high")),
)

_XAI_DOCS: Final = "docs.x.ai, reasoning; pydantic-ai 2.68.0, tried live (2026-10)"
_XAI_TOOLS: Final = "docs.x.ai, tools: Grok 4 and later; pydantic-ai 2.68.0, profiles"
_NO_XAI = frozenset({"WebSearch", "XSearch", "CodeExecution"})
_XAI: Final = (
    _row(r"grok-3-mini", f"{_XAI_DOCS}; {_XAI_TOOLS}", _takes("none low high", without=_NO_XAI)),
    _row(r"grok-(?:2-image|imagine)", "models.dev, tool_call (2026-07)", _takes("", calls=False, without=_NO_XAI)),
    # "Client-side tools are not supported": it has the server's.
    _row(
        r"grok-4\.20-multi-agent",
        "models.dev, tool_call; docs.x.ai, multi-agent (2026-07)",
        replace(_takes("low medium high xhigh"), calls=False),
    ),
    # Retired names that xAI answers with Grok 4.3, and the alias that it routes to whichever model takes the effort.
    _row(
        r"(?:grok-4-0709|grok-4-1-fast-(?:non-)?reasoning|grok-4-fast-(?:non-)?reasoning|grok-3|grok-latest)$|grok-4\.3",
        _XAI_DOCS,
        _takes("none low medium high"),
    ),
    _row(r"grok-build-latest", _XAI_DOCS, _takes("low medium high")),
    _row(r"grok-[23](?!\d)|grok-beta", f"{_MODELS_DEV}; {_XAI_TOOLS}", _takes("", without=_NO_XAI)),
    _row(
        r"grok-4(?![.\d])|grok-code|grok-build|grok-4\.20(?:-\d+)?-(?:non-)?reasoning",
        _MODELS_DEV,
        _takes(""),
    ),
    _row(r"grok-4\.20|grok-4\.[789]", _XAI_DOCS, _takes("low medium high xhigh")),
    _row(r"grok", _XAI_DOCS, _takes("low medium high")),
)

_GROQ_SDK: Final = "groq 1.7.0, CompletionCreateParams (2026-11)"
_GROQ_TOOLS: Final = "console.groq.com, built-in tools, browser search, compound (2026-11)"
_GROQ: Final = (
    _row(r"gpt-oss-safeguard", f"{_GROQ_SDK}; {_GROQ_TOOLS}", _takes("low medium high", without=_NO_CODE)),
    _row(r"gpt-oss", f"{_GROQ_SDK}; {_GROQ_TOOLS}", _takes("low medium high")),
    # Its default is medium; high is the model's own xhigh.
    _row(r"qwen3\.8", f"{_GROQ_SDK}; {_GROQ_TOOLS}", _takes("none low medium high", without=_NEITHER)),
    _row(r"qwen", f"{_GROQ_SDK}; {_GROQ_TOOLS}", _takes("none default", without=_NEITHER)),
    _row(r"compound", f"{_MODELS_DEV}; {_GROQ_TOOLS}", _takes("", calls=False)),
    _row(
        r"whisper|llama-prompt-guard|llama-guard|orpheus|playai",
        f"{_MODELS_DEV}; {_GROQ_TOOLS}",
        _takes("", calls=False, without=_NEITHER),
    ),
    _row(
        r"llama|kimi|allam|mixtral|mistral|gemma|deepseek",
        f"{_MODELS_DEV}; {_GROQ_TOOLS}",
        _takes("", without=_NEITHER),
    ),
)

_MISTRAL_DOCS: Final = "docs.mistral.ai, reasoning; pydantic-ai 2.68.0, tried live (2026-10)"
_GLM_5_3: Final = _row(r"(?:zai-)?glm-5[.-]3", "OpenRouter and Z.ai on GLM-5.3 (2026-08)", _takes("low high max"))
_MISTRAL: Final = (
    _GLM_5_3,
    _row(
        r"mistral-(?:embed|moderation|ocr)|codestral-embed|voxtral-mini-transcribe",
        "docs.mistral.ai, function calling; models.dev, tool_call (2026-07)",
        _takes("", calls=False),
    ),
    _row(r"mistral-large-4", _MISTRAL_DOCS, _takes("none low medium high")),
    _row(
        r"magistral-\w+-2\d{3}|codestral|ministral|pixtral|voxtral|open-|mistral-(?:large|tiny|nemo)"
        r"|mistral-(?:small|medium)-2[0-5]\d\d",
        _MISTRAL_DOCS,
        _takes(""),
    ),
    # Magistral and Devstral are retired: their names lead to Medium 3.5 and Small 4.
    _row(r"mistral-|magistral|devstral", _MISTRAL_DOCS, _takes("none high")),
    _row(r"", _MISTRAL_DOCS, _takes("none high")),
)

_KIMI_DOCS: Final = "platform.kimi.ai, reasoning effort; pydantic-ai 2.68.0, providers (2026-11)"
# platform.kimi.ai, web search: "When using $web_search, you must disable the model's thinking" (2026-11).
_MOONSHOT: Final = (
    _row(r"kimi-k3", _KIMI_DOCS, replace(_takes("low high max", without=_NO_SEARCH), thinking_off="never")),
    _row(r"kimi-k2\.7", _KIMI_DOCS, replace(_takes("", without=_NO_SEARCH), thinking_off="never")),
    _row(
        r"kimi-k2-thinking|kimi-thinking",
        _MODELS_DEV,
        replace(_takes("", without=_NO_SEARCH), thinking_off="never"),
    ),
)

_DEEPSEEK: Final = (
    _row(r"deepseek-reasoner|r1|deepseek-r1", _PYDANTIC_AI, replace(_takes("low high max"), thinking_off="never")),
    _row(r"", "api-docs.deepseek.com, thinking mode (2026-10)", _takes("low high max")),
)

_HUGGINGFACE: Final = (_row(r"gpt-oss", _MODELS_DEV, _takes("low medium high")), _GLM_5_3)
_OLLAMA: Final = (_row(r"", "docs.ollama.com, thinking (2026)", _takes("none low medium high")),)
_VLLM: Final = (_row(r"", "docs.vllm.ai, reasoning outputs (2026)", _takes("none low medium high")),)

TABLE: Final[Mapping[str, tuple[ModelRow, ...]]] = {
    "anthropic": _CLAUDE,
    "openai": _OPENAI,
    "openai-chat": _OPENAI_CHAT,
    "azure": _OPENAI_CHAT,
    "google": _GOOGLE,
    "xai": _XAI,
    "groq": _GROQ,
    "mistral": _MISTRAL,
    "moonshot": _MOONSHOT,
    "deepseek": _DEEPSEEK,
    "huggingface": _HUGGINGFACE,
    "ollama": _OLLAMA,
    "vllm": _VLLM,
}
SERVER_TOOLS: Final[Mapping[str, Mapping[str, str]]] = {
    "openai": {
        "WebSearch": "GPT-4o and later, but for GPT-4.1 nano, o1 and o3-mini",
        "CodeExecution": "GPT-4o and later, but for GPT-5 and 5.2 pro, and Codex up to 5.2",
    },
    "anthropic": {
        "WebSearch": "Claude 3.5 and later",
        "CodeExecution": "Claude 3.5 Haiku, and 3.7 and later",
    },
    "google": {
        "WebSearch": "Gemini 2.0 and later, but for speech and Gemini 2's pictures",
        "CodeExecution": "Gemini 2.0 and later, but for pictures and speech",
    },
    "xai": dict.fromkeys(("WebSearch", "XSearch", "CodeExecution"), "Grok 4 and later"),
    "groq": {
        "WebSearch": "openai/gpt-oss-20b and -120b, groq/compound and compound-mini",
        "CodeExecution": "openai/gpt-oss-20b and -120b, groq/compound and compound-mini",
    },
    "moonshot": {"WebSearch": "the Kimi models whose thinking can be turned off, such as K2.6"},
    "openrouter": {"WebSearch": "all"},
    "ollama": {"WebSearch": "all that call tools, with Ollama of August 2026 or later (its pull request 17686)"},
}
"""The tools that providers run themselves, by our classes' names, and which of their models take them, for people. The
rows above say it by model (`without`); a provider that is not here has none."""

_GATEWAYS: Final = frozenset({"openrouter"})
"""They translate efforts by themselves, but pass a forced tool on to Claude."""


def abilities_of(model: Model) -> Abilities:
    """What the model can do, by its provider's rows."""
    return _find_abilities(model.provider, model.model)


def takes_functions(model: Model) -> bool:
    """False if it is known that the model calls no functions."""
    return _known_abilities(model).calls


def _known_abilities(model: Model) -> Abilities:
    if model.provider == "azure" or (model.base_url and model.provider in _ANYBODYS):
        return UNKNOWN
    return abilities_of(model)


def check_tools(model: Model, *, functions: Sequence[str], server_tools: Iterable[str]) -> None:
    """Raises InvalidTool if it is known that the model does not take these tools. `functions`: the names of those that
    its provider does not run; `server_tools`: the class names of those that it does."""
    abilities = _known_abilities(model)
    if functions and not abilities.calls:
        named = ", ".join(functions[:_MOST_NAMED])
        if len(functions) > _MOST_NAMED:
            named += ", ..."
        raise InvalidTool(
            f"{model.name} can't call tools, and was given {named}.",
            cure="Remove the tools, or take a model that can call them.",
        )
    for name in server_tools:
        if name in abilities.without:
            raise untaken_error(model, name)


def untaken_error(model: Model, name: str) -> InvalidTool:
    """The error for a tool of its provider that a model does not take, with those that do."""
    taking = SERVER_TOOLS.get(model.provider, {})
    other_providers = [
        provider for provider, tools in SERVER_TOOLS.items() if name in tools and provider != model.provider
    ]
    elsewhere = f"so do models of {', '.join(other_providers)}" if other_providers else "no other provider has it"
    if name in taking:
        cure = f"Of {model.provider!r}, these take it: {taking[name]}; {elsewhere}."
        return InvalidTool(f"{model.name} does not take {name}.", cure=cure)
    has = ", ".join(sorted(taking)) or "no tools of its own"
    return InvalidTool(
        f"{model.name} has no {name}; {model.provider!r} has {has}.",
        cure=f"Remove it from tools=, or use a provider that has it: {', '.join(other_providers) or 'none does'}.",
    )


def is_claude(name: str) -> bool:
    """Whether a model's name is one of Claude's, in whatever form gateways write it."""
    return "claude-" in name.lower()


@lru_cache(maxsize=1024)
def _find_abilities(provider: str, model: str) -> Abilities:
    name = model.lower().removeprefix("ft:").rpartition("/")[2]
    if provider in _GATEWAYS:
        return replace(UNKNOWN, forced_tools=_of_claude(name).forced_tools)
    if provider == "anthropic":
        return _of_claude(name)
    rows = TABLE.get(provider, ()) if provider in PROVIDERS else getattr(plugins.load_row(provider), "models", ())
    abilities = next((row.abilities for row in rows if re.match(row.pattern, name)), UNKNOWN)
    if provider == "openai-chat" and _SINCE_5_4.match(name):
        return replace(abilities, effort_beside_calls=False)
    return abilities


_ANYBODYS: Final = frozenset({"openai-chat", "openresponses"})
"""Providers whose names are anybody's at another address; Azure's are those of deployments."""
_MOST_NAMED: Final = 5


def _of_claude(name: str) -> Abilities:
    """By a name in any form: `us.anthropic.claude-opus-5-5-v1:0`, `claude-opus-5.5`. Another name is of another server
    with this protocol, whose requests carry every setting as it is."""
    _, prefix, rest = name.replace(".", "-").partition("claude-")
    if not prefix:
        return UNKNOWN
    return next((row.abilities for row in _CLAUDE if re.match(row.pattern, f"claude-{rest}")), UNKNOWN)
