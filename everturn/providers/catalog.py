"""The providers: one table row each, and how a model's name leads to an address and a key.

Another server that speaks a known protocol is another row. A new protocol is a module beside `openai_chat`. Packages
add rows and protocols of their own: `everturn/vendor_models/plugins.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import SecretStr

from everturn.errors import InvalidModel, InvalidSetting, KeyMissing, KeyRefused
from everturn.models import Model, unknown_provider
from everturn.providers.base import Request
from everturn.providers.wire_protocol import ProtocolName, WireProtocol
from everturn.vendor_models import plugins
from everturn.vendor_models.abilities import ModelRow


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server's Chat Completions differ from OpenAI's."""

    max_tokens: str = "max_tokens"
    """The field that limits the output."""
    required: str = "required"
    """How `tool_choice='required'` is spelt; 'auto' if the server can't be forced to call any tool, or a named one."""
    parallel: bool = True
    """Whether the server obeys parallel_tool_calls."""
    no_effort: Literal["reasoning_effort", "thinking"] = "reasoning_effort"
    """Which field turns reasoning off."""
    stream_usage: bool = True
    """Whether stream_options.include_usage may be sent; if not, the server sends usage unasked."""
    reasoning_field: str = ""
    """The field in which thoughts go back with the tool calls; empty: the field that they came in, if any."""
    thinking_blocks: bool = False
    """Whether thoughts are blocks of a message's content, in requests and in replies."""
    reasoning_required: bool = False
    """Whether the reasoning field has to be there, even if it is empty."""
    user_after_tool: bool = True
    """Whether a user message may follow a tool message directly."""
    strict_tools: bool = False
    """Whether each of its servers accepts a function's `strict`."""
    call_id: re.Pattern[str] | None = None
    """The pattern that ids of calls have to match; other ids are replaced in the request."""
    output: Literal["json_schema", "json_object", "words"] = "json_schema"
    """How the server is made to follow an output's schema. If it can't be, the model reads the schema as text."""
    files: Literal["none", "data", "data_or_url", "document_url"] = "none"
    """How a user's message holds files: not; as `file` with data, or also with a URL; as Mistral's `document_url`."""
    images: bool = False
    """Whether an assistant's message holds the pictures that the model made, as `images`."""
    sounds: bool = False
    """Whether a user's message holds sounds as `input_audio`. The user has to know which models can hear them."""
    cache_key: bool = False
    """Whether prompt_cache_key says which requests share a prefix."""
    server_tools: tuple[tuple[str, str], ...] = ()
    """The tools that the server runs: the name of our class, and the `type` in the request. A type that begins with a
    dollar sign is a `builtin_function` of Moonshot's."""
    gateway: bool = True
    """Whether the server may stand before others: a message's fields that nobody knows go back to it, and a result
    names its tool, which Portkey needs for Gemini. A vendor's own server may refuse what it does not know."""


@dataclass(frozen=True, slots=True)
class ResponsesDialect:
    """How the servers of the Responses protocol differ from each other."""

    server_tools: Literal["openai", "xai", "ollama", "none"] = "none"
    """Whose server tools these are, and in whose spelling."""
    instructions: bool = True
    """Whether the instructions have a field of their own; if not, they are the first system message."""
    reasoning_leads: bool = False
    """Whether a reasoning is refused if nothing that it led to follows."""
    strict_tools: bool = False
    """Whether a function may be strict."""
    background: bool = False
    """Whether a response can run in the background, and be picked up by its id."""


@dataclass(frozen=True, slots=True)
class Row:
    """One provider. `keys`: the variables that may hold its key, in order; with no names, it takes no key."""

    protocol: ProtocolName | WireProtocol = "openai_chat"
    """One of ours by its name, or one of a package's own."""
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    key_header: str = "Authorization"
    headers: tuple[tuple[str, str], ...] = ()
    served_by: ProtocolName | None = None
    """The protocol of requests with tools that the server runs, if only that one has them."""
    dialect: Dialect = Dialect()
    responses: ResponsesDialect = ResponsesDialect()
    models: tuple[ModelRow, ...] = ()
    """What models of a package's provider can do; those of ours are in `everturn/vendor_models/abilities.py`."""
    priced_as: str = ""
    """The name of a package's provider in the price list, genai-prices; empty: its prices are not known."""
    reports_cost: bool = False
    """Whether its replies say what they cost: `usage.cost` in US dollars, or `cost_in_usd_ticks`."""
    key_optional: bool = False
    """Whether its server may work without a key: a missing key is then an error only if the server says so."""
    grammar: Literal["beside_calls", "over_calls"] = "beside_calls"
    """Whether an output's schema leaves room for calls, or the whole reply is written under it, so that beside one no
    tool can be called, not even with tool_choice 'required'. Of the first kind are the vendors' own servers; of the
    second, vLLM 0.32 (unless a tool is strict), SGLang, Ollama and llama.cpp (build 11549: not even strict tools)."""


# OpenAI refuses ids of more than 40 characters, Mistral any but 9 letters and digits. Ids of other servers that
# come along at a change of models have other lengths.
_OPENAI = Dialect(
    max_tokens="max_completion_tokens",
    call_id=re.compile(r"[^\s]{1,40}"),
    files="data",
    sounds=True,
    cache_key=True,
    strict_tools=True,
    gateway=False,
)
_AZURE = replace(_OPENAI, files="none", cache_key=False)
_MISTRAL = Dialect(
    required="any",
    stream_usage=False,
    thinking_blocks=True,
    user_after_tool=False,
    call_id=re.compile(r"[a-zA-Z0-9]{9}"),
    files="document_url",
    gateway=False,
)
_MOONSHOT = Dialect(
    required="auto",
    parallel=False,
    no_effort="thinking",
    reasoning_field="reasoning_content",
    reasoning_required=True,
    server_tools=(("WebSearch", "$web_search"),),
    gateway=False,
)
_DEEPSEEK = replace(_MOONSHOT, output="json_object", server_tools=())
# Groq takes no schema together with streaming or with tools, and answers 400.
_GROQ = Dialect(
    reasoning_field="reasoning",
    output="words",
    server_tools=(("WebSearch", "browser_search"), ("CodeExecution", "code_interpreter")),
    gateway=False,
)
_VLLM = Dialect(reasoning_field="reasoning", sounds=True, strict_tools=True)
_OLLAMA = replace(_VLLM, required="auto", parallel=False, sounds=False, strict_tools=False)

PROVIDERS: Mapping[str, Row] = {
    "openai": Row(
        protocol="openai_responses",
        base_url="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",),
        responses=ResponsesDialect(server_tools="openai", reasoning_leads=True, background=True, strict_tools=True),
    ),
    "openai-chat": Row(base_url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), dialect=_OPENAI),
    "anthropic": Row(
        "anthropic_messages",
        base_url="https://api.anthropic.com",
        keys=("ANTHROPIC_API_KEY",),
        key_header="x-api-key",
        headers=(("anthropic-version", "2023-06-01"),),
    ),
    "groq": Row(base_url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",), dialect=_GROQ),
    "mistral": Row(base_url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",), dialect=_MISTRAL),
    "deepseek": Row(base_url="https://api.deepseek.com", keys=("DEEPSEEK_API_KEY",), dialect=_DEEPSEEK),
    "moonshot": Row(base_url="https://api.moonshot.ai/v1", keys=("MOONSHOT_API_KEY",), dialect=_MOONSHOT),
    "huggingface": Row(base_url="https://router.huggingface.co/v1", keys=("HF_TOKEN",)),
    "openrouter": Row(
        base_url="https://openrouter.ai/api/v1",
        keys=("OPENROUTER_API_KEY",),
        dialect=Dialect(
            files="data_or_url",
            images=True,
            sounds=True,
            strict_tools=True,
            server_tools=(("WebSearch", "openrouter:web_search"),),
        ),
        reports_cost=True,
    ),
    "xai": Row(
        protocol="openai_responses",
        base_url="https://api.x.ai/v1",
        keys=("XAI_API_KEY",),
        responses=ResponsesDialect(server_tools="xai", instructions=False),
        reports_cost=True,
    ),
    "ollama": Row(
        base_url="http://localhost:11434/v1",
        dialect=_OLLAMA,
        responses=ResponsesDialect(server_tools="ollama"),
        served_by="openai_responses",
        grammar="over_calls",
    ),
    "vllm": Row(base_url="http://localhost:8000/v1", dialect=_VLLM, grammar="over_calls"),
    "azure": Row(keys=("AZURE_OPENAI_API_KEY",), key_header="api-key", dialect=_AZURE),
    "google": Row(
        protocol="gemini",
        base_url="https://generativelanguage.googleapis.com",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_header="x-goog-api-key",
    ),
    "openresponses": Row(
        protocol="openai_responses",
        keys=("OPENRESPONSES_API_KEY",),
        responses=ResponsesDialect(background=True, strict_tools=True),
        key_optional=True,
        grammar="over_calls",
    ),
    "scripted": Row(dialect=Dialect(gateway=False)),
}

_ADDRESS_OF = {"openai-chat": "OPENAI_BASE_URL", "azure": "AZURE_OPENAI_BASE_URL"}
"""Providers whose base URL's variable is not named after them."""
_NOT_IN_VARIABLES = re.compile(r"[^A-Z0-9]")
_USER = re.compile(r"//[^/?#@]*@")
_ADDRESS_ALSO = {"azure": "AZURE_BASE_URL"}
_ADDRESS_EXAMPLE = {"azure": "https://NAME.openai.azure.com/openai/v1", "scripted": "the ScriptedModel's base_url"}
_ADDRESS_EXAMPLE["openresponses"] = "http://HOST/v1"


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """Where a model is asked, and with what key. Its repr never shows the key."""

    model: str
    """`provider:name`"""
    provider: str
    row: Row
    base_url: str
    key: SecretStr | None = field(default=None, repr=False)
    key_env: str = ""
    """The variable that holds the key, or should; empty if the provider takes none."""
    base_url_from: str = ""
    """Who gave the base URL: `base_url=`, or a variable; empty if it is the provider's own."""

    @property
    def address(self) -> str:
        """The base URL for people: without a user, a password and a query, in which a key may be."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def secret(self) -> str:
        return self.key.get_secret_value() if self.key else ""

    def url_of(self, path: str) -> str:
        """The address of `path` (which starts with a slash); a query in the base URL, such as Azure's, stays last."""
        base, _, query = self.base_url.partition("?")
        url = f"{base.rstrip('/')}{path}"
        if not query:
            return url
        separator = "&" if "?" in path else "?"
        return f"{url}{separator}{query}"

    def key_headers(self) -> dict[str, str]:
        """The headers that carry the key: not for logs."""
        headers = dict(self.row.headers)
        if self.key:
            is_bearer = self.row.key_header == "Authorization"
            headers[self.row.key_header] = f"Bearer {self.secret}" if is_bearer else self.secret
        return headers


def row_of(provider: str) -> Row:
    """The row of a provider's prefix. Raises InvalidModel, with the nearest name, or with what is wrong with the
    package that adds it."""
    if row := PROVIDERS.get(provider):
        return row
    added: Row | None = plugins.load_row(provider)
    if added is None:
        raise unknown_provider(provider, known=plugins.known_names())
    return added


def all_rows() -> dict[str, Row]:
    """The rows of all providers that can be used here, with those of packages; a package's that can't is left out."""
    rows = dict(PROVIDERS)
    for name in plugins.points_by_name():
        with suppress(InvalidModel):
            rows[name] = row_of(name)
    return rows


def protocol_of(request: Request) -> ProtocolName | WireProtocol:
    """What a request is encoded by."""
    row = row_of(request.model.provider)
    if row.served_by and request.server_tools:
        return row.served_by
    return row.protocol


def dialect_of(model: Model) -> Dialect:
    """The dialect of a model's server. With another base URL, `openai-chat:` is any server that speaks like OpenAI."""
    dialect = row_of(model.provider).dialect
    if model.base_url and model.provider == "openai-chat":
        return replace(dialect, gateway=True)
    return dialect


_OF_VENDORS = re.compile(r"(?:^|[/.-])(?:gpt-[3-9]|chatgpt|o[134](?:$|-)|claude|gemini|grok)", re.I)
"""Models that only their vendors serve, whatever gateway stands before them. gpt-oss is none of them."""


def grammar_over_calls(model: Model) -> bool:
    """Whether the model's server writes the whole reply under an output's schema. With a base URL, a row stands for any
    server, as OpenRouter and Hugging Face do for models of open weights: the model decides."""
    if row_of(model.provider).grammar == "over_calls":
        return True
    moved = bool(model.base_url) and model.provider in {"openai-chat", "anthropic"}
    routed = model.provider in {"openrouter", "huggingface"}
    return (moved or routed) and not _OF_VENDORS.search(model.model)


def runs_in_background(request: Request) -> bool:
    """Whether the provider works on the response without a connection: it is asked for, and the provider can."""
    return request.settings.background and row_of(request.model.provider).responses.background


def resolve_endpoint(model: Model, *, environ: Mapping[str, str] = os.environ) -> ModelEndpoint:
    """Where to ask `model`, by this process's environment now.

    Raises InvalidModel, InvalidSetting (no base URL, or one that is none), KeyMissing, KeyRefused (not a key).
    """
    row = row_of(model.provider)
    base_url, given_by = _base_url(model, row, environ=environ)
    names = (model.key_env,) if model.key_env else row.keys
    name, key = next(((name, key) for name in names if (key := environ.get(name, "").strip())), ("", ""))
    if names and not key:
        # Somebody's own server often takes no key. One that does answers 401, which names the variable too.
        if model.key_env or not (row.key_optional or (given_by and row.base_url)):
            raise _key_missing(model, names)
        name = names[0]
    if not (key.isascii() and key.isprintable()):
        raise KeyRefused(
            f"{name} does not hold a valid key: it has characters that an HTTP header can't carry.",
            cure="Set it again, in the worker's environment.",
            provider=model.provider,
        )
    return ModelEndpoint(
        model=model.name,
        provider=model.provider,
        row=row,
        base_url=base_url,
        key=SecretStr(key) if key else None,
        key_env=name,
        base_url_from=given_by,
    )


def address_variable(provider: str) -> str:
    """The variable that moves a provider to another base URL."""
    return _ADDRESS_OF.get(provider, f"{_NOT_IN_VARIABLES.sub('_', provider.upper())}_BASE_URL")


def _base_url(model: Model, row: Row, *, environ: Mapping[str, str]) -> tuple[str, str]:
    """The base URL, and who gave it: see ModelEndpoint."""
    variable = address_variable(model.provider)
    sources = {name: environ.get(name, "").strip() for name in (variable, _ADDRESS_ALSO.get(model.provider, variable))}
    sources = {"base_url=": model.base_url or "", **sources}
    given_by, url = next(((name, url) for name, url in sources.items() if url), ("", row.base_url))
    if not url:
        example = _ADDRESS_EXAMPLE.get(model.provider, "an address")
        raise InvalidSetting(
            f"{model.name!r} has no address.", cure=f"Set {variable} in the worker's environment ({example})."
        )
    if not _is_http(url):
        source = "Model(base_url=)" if model.base_url else given_by
        raise InvalidSetting(
            f"{source} is not an HTTP address: {without_password(url)!r}.", cure="Write http://HOST or https://HOST."
        )
    if model.provider == "azure":
        url = _azure_url(url, model.model)
    return url, given_by


def _azure_url(url: str, deployment: str) -> str:
    """Azure's address from any form in use: /openai/v1, /openai/deployments/NAME?api-version=, or just the host.

    If a path ends with /deployments, the model's name is the deployment's.
    """
    base, mark, query = url.partition("?")
    base = base.rstrip("/")
    if not urlsplit(base).path:
        base += "/openai/v1"
    elif base.endswith("/deployments"):
        base += f"/{quote(deployment, safe='')}"
    return f"{base}{mark}{query}"


def without_password(url: str) -> str:
    """The address for people: a password in it is none of theirs."""
    return _USER.sub("//…@", url)


@lru_cache(maxsize=256)
def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


def _key_missing(model: Model, names: tuple[str, ...]) -> KeyMissing:
    return KeyMissing(
        f"No key for {model.name!r}: {' or '.join(names)} is not set in the worker's environment.",
        cure=f"Set {names[0]} where the worker runs, and restart it.",
        provider=model.provider,
        variables=names,
    )
