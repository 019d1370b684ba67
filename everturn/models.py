"""A model: `provider:name`, and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, JsonValue

from everturn.agent_settings import Setting
from everturn.errors import InvalidModel, InvalidSetting
from everturn.validation.spelling import nearest_name

PROVIDERS = (
    *("openai", "openai-chat", "anthropic", "groq", "mistral", "deepseek", "moonshot", "huggingface", "openrouter"),
    *("xai", "ollama", "vllm", "azure", "google", "openresponses", "scripted"),
)
"""What may be before a model's colon; packages may add more (`vendor_models/plugins.py`). What each of them means is in
`providers.catalog`."""

_VARIABLE = re.compile(r"(?!sk_|gsk_|hf_|AIza)[A-Za-z_][A-Za-z0-9_]*")
"""Matches an environment variable's name, but no key that looks like such a name."""


class Model(Setting):
    """A model by `provider:name`, if you like with another address or key than the provider's own.

    `key_env` names the environment variable that holds the key, on the worker. Keys themselves never go in here.
    """

    _error = InvalidModel
    _by_position = ("name",)

    name: str
    """`provider:name`, such as 'openai:gpt-5.5'. `everturn models` lists the providers."""
    base_url: str | None = None
    """In place of the provider's own address."""
    key_env: str | None = None
    """The environment variable with the key, in place of the provider's own."""

    def __init__(self, name: str = "", **settings: Any) -> None:
        provider, colon, model = name.partition(":") if isinstance(name, str) else ("", "", "")
        if not (provider and colon and model):
            raise InvalidModel(
                f"{name!r} is not a model.", cure="Write provider:name, such as 'openai:gpt-5.5' or 'scripted:demo'."
            )
        super().__init__(**{"name": name, **settings})
        if self.key_env is not None and not _VARIABLE.fullmatch(self.key_env):
            raise InvalidModel(
                f"The key_env of {name!r} is not the name of an environment variable.",
                cure="Write the variable's name, such as 'MY_KEY': the key itself stays in the worker's environment.",
            )

    @property
    def provider(self) -> str:
        """What is before the colon."""
        return self.name.partition(":")[0]

    @property
    def model(self) -> str:
        """The name as the provider knows it."""
        return self.name.partition(":")[2]


def check_spelling(model: Model) -> Model:
    """The model, unless its provider looks like a misspelt one of ours. For workflows, which may not look at what is
    installed: there, another name is taken for a provider that a package adds. Raises InvalidModel."""
    if model.provider not in PROVIDERS and nearest_name(model.provider, PROVIDERS):
        raise unknown_provider(model.provider)
    return model


def unknown_provider(provider: str, *, known: Sequence[str] = PROVIDERS) -> InvalidModel:
    near = nearest_name(provider, known)
    hint = f"Did you mean {near!r}? " if near else ""
    return InvalidModel(f"There is no provider {provider!r}.", cure=f"{hint}Known providers: {', '.join(known)}.")


class ModelSettings(Setting):
    """How the model is asked. A setting that is None is not sent: the provider's default holds."""

    max_output_tokens: int | None = Field(default=None, ge=1)
    """Of one reply, reasoning included if the provider counts it."""
    temperature: float | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """If the provider has other levels, the nearest one; if it has none, left out with a warning."""
    tool_choice: str | None = None
    """'auto', 'none', 'required', or a tool's name. In a conversation, 'required' and a name hold for the first turn
    after a user's message: see `reset_tool_choice`."""
    reset_tool_choice: bool = True
    """A forced call is forced once: once a turn has answered the user's message, tools are the model's own choice.
    False: every turn is forced, and only a limit ends the answer."""
    parallel_calls: bool | None = None
    """Whether one reply may have several tool calls."""
    stop: tuple[str, ...] = ()
    """Texts at which the model is to stop."""
    stream: bool = True
    """Asks for the reply piece by piece. The transcript is the same either way."""
    cache: bool = True
    """Lets the provider keep the prompt's stable prefix for the next turn, if it has to be told to."""
    background: bool = False
    """The provider works on the reply by itself, and stores it for that: a turn that loses its worker or its connection
    is picked up where it is, and paid once. OpenAI's Responses have this; others are asked as ever, with a warning."""
    batch: bool = False
    """The turn may wait: it joins a batch of the provider's, is answered within a day, and costs half. OpenAI,
    Anthropic and Gemini have batches. A summary of the transcript is asked for at once."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Put into the request's body as it is."""


def check_asks_at_once(who: str, settings: ModelSettings | None) -> None:
    """Raises InvalidSetting for settings that would wait for a batch: only a conversation's turn can."""
    if settings and settings.batch:
        raise InvalidSetting(
            f"{who} asks the model at once, and was given batch=True.",
            cure="Leave it out; or give it to an Agent, whose conversations can wait for batches.",
        )
