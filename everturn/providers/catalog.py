"""The providers: one table row each, and how a model's name becomes an address and a key.

Another server that speaks a known protocol is another row. A protocol of its own is a module beside `openai_chat`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from everturn.errors import InvalidModel, InvalidSetting, KeyMissing, KeyRefused
from everturn.models import Model

ProtocolName = Literal["openai_chat"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where a server's Chat Completions differ from OpenAI's."""

    max_tokens: str = "max_tokens"
    """The field that bounds the output."""
    required: str = "required"
    """How `tool_choice='required'` is spelt; 'auto' where the server refuses to be forced."""
    stream_usage: bool = True
    """Whether stream_options.include_usage may be sent; where not, usage comes unasked."""
    reasoning_back: bool = False
    """Whether assistant messages with tool calls must carry their reasoning_content."""
    user_after_tool: bool = True
    """Whether a user message may follow a tool message directly."""
    call_id: re.Pattern[str] | None = None
    """What the ids of calls have to look like; others are replaced on the wire."""


@dataclass(frozen=True, slots=True)
class Row:
    """One provider. `keys`: the variables that may hold its key, in order; none means that it takes no key."""

    protocol: ProtocolName = "openai_chat"
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    key_header: str = "Authorization"
    headers: tuple[tuple[str, str], ...] = ()
    dialect: Dialect = Dialect()


# OpenAI refuses ids of more than 40 characters, Mistral any but 9 letters and digits. Ids of other servers that
# come along at a change of models have other lengths.
_OPENAI = Dialect(max_tokens="max_completion_tokens", call_id=re.compile(r"[^\s]{1,40}"))
_MISTRAL = Dialect(required="any", stream_usage=False, user_after_tool=False, call_id=re.compile(r"[a-zA-Z0-9]{9}"))
_THINKS_BACK = Dialect(required="auto", reasoning_back=True)

PROVIDERS: Mapping[str, Row] = {
    "openai": Row(base_url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), dialect=_OPENAI),
    "openai-chat": Row(base_url="https://api.openai.com/v1", keys=("OPENAI_API_KEY",), dialect=_OPENAI),
    "groq": Row(base_url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",)),
    "mistral": Row(base_url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",), dialect=_MISTRAL),
    "deepseek": Row(base_url="https://api.deepseek.com", keys=("DEEPSEEK_API_KEY",), dialect=_THINKS_BACK),
    "moonshot": Row(base_url="https://api.moonshot.ai/v1", keys=("MOONSHOT_API_KEY",), dialect=_THINKS_BACK),
    "huggingface": Row(base_url="https://router.huggingface.co/v1", keys=("HF_TOKEN",)),
    "openrouter": Row(base_url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",)),
    "xai": Row(base_url="https://api.x.ai/v1", keys=("XAI_API_KEY",)),
    "ollama": Row(base_url="http://localhost:11434/v1"),
    "azure": Row(keys=("AZURE_OPENAI_API_KEY",), key_header="api-key", dialect=_OPENAI),
    "scripted": Row(),
}

_LATER = frozenset({"anthropic", "google"})
_ADDRESS_OF = {"openai-chat": "OPENAI_BASE_URL"}
"""Providers whose base URL's variable is not named after them."""
_ADDRESS_EXAMPLE = {"azure": "https://NAME.openai.azure.com/openai/v1", "scripted": "the ScriptedModel's base_url"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked, and with what key. Its repr never shows the key."""

    model: str
    """`provider:name`"""
    provider: str
    row: Row
    base_url: str
    key: SecretStr | None = field(default=None, repr=False)
    key_env: str = ""
    """The variable that holds the key, or would; empty where the provider takes none."""

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def secret(self) -> str:
        return self.key.get_secret_value() if self.key else ""

    def url(self, path: str) -> str:
        """The address of `path` (which starts with a slash); a query in the base URL, such as Azure's, stays last."""
        base, mark, query = self.base_url.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}"

    def headers(self) -> dict[str, str]:
        """The headers that carry the key: not for logs."""
        headers = dict(self.row.headers)
        if self.key:
            bearer = self.row.key_header == "Authorization"
            headers[self.row.key_header] = f"Bearer {self.secret}" if bearer else self.secret
        return headers


def row_of(provider: str) -> Row:
    """The row of a provider's prefix. Raises InvalidModel, with the nearest name."""
    if row := PROVIDERS.get(provider):
        return row
    if provider in _LATER:
        raise InvalidModel(f"The provider {provider!r} is not built in yet.", cure=_known())
    near = difflib.get_close_matches(provider.lower(), PROVIDERS, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise InvalidModel(f"There is no provider {provider!r}.", cure=hint + _known())


def resolve(model: Model, *, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Where to ask `model`, as this process is set up now.

    Raises InvalidModel, InvalidSetting (no base URL, or one that is none), KeyMissing, KeyRefused (not a key).
    """
    row = row_of(model.provider)
    base_url, replaced = _base_url(model, row, environ=environ)
    names = (model.key_env,) if model.key_env else row.keys
    name, key = next(((name, key) for name in names if (key := environ.get(name, "").strip())), ("", ""))
    if names and not key:
        # Somebody's own server often takes no key. One that does answers 401, which names the variable too.
        if model.key_env or not (replaced and row.base_url):
            raise _key_missing(model, names)
        name = names[0]
    if not (key.isascii() and key.isprintable()):
        raise KeyRefused(
            f"What {name} holds is not a key: it has characters that no HTTP header can carry.",
            cure="Set it again, in the worker's environment.",
            provider=model.provider,
        )
    return Endpoint(
        model=model.name,
        provider=model.provider,
        row=row,
        base_url=base_url,
        key=SecretStr(key) if key else None,
        key_env=name,
    )


def address_variable(provider: str) -> str:
    """The variable that moves a provider to another base URL."""
    return _ADDRESS_OF.get(provider, f"{provider.upper().replace('-', '_')}_BASE_URL")


def _base_url(model: Model, row: Row, *, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The base URL, and whether it is another than the provider's own."""
    variable = address_variable(model.provider)
    given = model.base_url or environ.get(variable, "").strip()
    url = given or row.base_url
    if not url:
        example = _ADDRESS_EXAMPLE.get(model.provider, "an address")
        raise InvalidSetting(
            f"{model.name!r} has no address.", cure=f"Set {variable} in the worker's environment ({example})."
        )
    if not _is_http(url):
        source = "Model(base_url=)" if model.base_url else variable
        raise InvalidSetting(f"{source} is not an HTTP address: {url!r}.", cure="Write http://HOST or https://HOST.")
    return url, bool(given)


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
    )


def _known() -> str:
    return f"Known providers: {', '.join(PROVIDERS)}."
