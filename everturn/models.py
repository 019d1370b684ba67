"""An agent's settings: the model and how it is asked, limits, patience, approvals, compaction."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from everturn import durations
from everturn.errors import ConfigError, InvalidModel, InvalidSetting
from everturn.explaining import explain
from everturn.records import Usage
from everturn.spelling import nearest, refuse_unknown

MAX_RESULT_CHARS = 200_000
"""The most that a model reads of one result (of a tool, a client or another agent), unless its agent says otherwise."""

PROVIDERS = (
    *("openai", "openai-chat", "anthropic", "groq", "mistral", "deepseek", "moonshot", "huggingface", "openrouter"),
    *("xai", "ollama", "vllm", "azure", "google", "openresponses", "scripted"),
)
"""What may be before a model's colon. What each of them means is in `providers.catalog`."""

_VARIABLE = re.compile(r"(?!sk_|gsk_|hf_|AIza)[A-Za-z_][A-Za-z0-9_]*")
"""Matches an environment variable's name, but no key that looks like such a name."""


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _Written(ModelMetaclass):
    """What a user writes is refused in everturn's own words: pydantic's hold the value, which may be a key.

    What comes in payloads does not pass through here.
    """

    if not TYPE_CHECKING:  # or all settings would take anything

        def __call__(cls, *args, **options):  # noqa: N805 - of a class of classes
            refuse_unknown(cls.__name__, options, cls.model_fields, error=cls._error)
            if len(args) > len(cls._by_position):
                raise cls._too_many_values()
            try:
                return super().__call__(*args, **options)
            except ValidationError as error:
                raise cls._error(f"{cls.__name__}(...) is invalid: {explain(error).rstrip('.')}.") from None


class Setting(BaseModel, metaclass=_Written):
    """Configuration: frozen, and a misspelt name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    _error: ClassVar[type[ConfigError]] = InvalidSetting
    _by_position: ClassVar[tuple[str, ...]] = ()
    """What may be given without its name."""

    @classmethod
    def _too_many_values(cls) -> ConfigError:
        """Values are not shown: one may be a key."""
        named = [name for name in cls.model_fields if name not in cls._by_position]
        place = f"after {', '.join(cls._by_position)} " if cls._by_position else ""
        cure = f"Write the name before it: {', '.join(f'{name}=' for name in named)}."
        if "key_env" in named:
            cure += " A key stays in the worker's environment: key_env= takes the name of the key's variable."
        return cls._error(f"{cls.__name__} was given a value {place}without a name.", cure=cure)


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


def check_provider(model: Model) -> Model:
    """The model, if there is such a provider. Raises InvalidModel, with the nearest one."""
    if model.provider not in PROVIDERS:
        raise unknown_provider(model.provider)
    return model


def unknown_provider(provider: str) -> InvalidModel:
    known = f"Known providers: {', '.join(PROVIDERS)}."
    near = nearest(provider, PROVIDERS)
    hint = f"Did you mean {near!r}? " if near else ""
    return InvalidModel(f"There is no provider {provider!r}.", cure=hint + known)


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
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Put into the request's body as it is."""


class Limits(Setting):
    """How far a conversation may go before it concludes. None is no limit."""

    max_turns: int = Field(default=100, ge=1)
    """A summary that compaction has the model write is a turn, too."""
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_parallel_calls: int = Field(default=16, ge=1)
    """How many calls of one reply may run at the same time; the others wait for a place."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Input and output of all turns together."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """By the price list of the extra `prices`. Has no effect if a model's price is not known."""
    max_duration: timedelta | None = None
    """Counted from the conversation's start, including the time that it waited for people."""
    max_handoffs: int | None = Field(default=10, ge=0)
    """How often agents may hand the conversation over between two messages of the user. After that, the agent in
    charge has to answer."""
    conclude: bool = True
    """At a limit, the model gets one last turn without tools. False: the conversation just ends."""
    max_result_chars: int = Field(default=MAX_RESULT_CHARS, ge=1_000)
    """A longer tool result is cut, with a notice that the model reads."""

    _durations = field_validator("max_duration", mode="before")(durations.checked)

    def used_up(self, turns: int, tool_calls: int, usage: Usage, cost_usd: float | None, seconds: float) -> str | None:
        """The first limit that is used up, in words; None while there is room for another turn."""
        if turns >= self.max_turns:
            return f"the limit of {self.max_turns} turns"
        if self.max_tool_calls is not None and tool_calls >= self.max_tool_calls:
            return f"the limit of {self.max_tool_calls} tool calls"
        if self.max_total_tokens is not None and usage.total_tokens >= self.max_total_tokens:
            return f"the limit of {self.max_total_tokens} tokens"
        if self.max_cost_usd is not None and (cost_usd or 0) >= self.max_cost_usd:
            return f"the limit of {self.max_cost_usd} USD"
        if self.max_duration is not None and seconds >= self.max_duration.total_seconds():
            return f"the limit of {self.max_duration}"
        return None


class Approvals(Setting):
    """How long calls wait for a person. None: as long as it takes."""

    expire_after: timedelta | None = None
    """Counted for each call, from when it began to wait."""
    on_expiry: Literal["deny", "approve"] = "deny"
    """What is decided then. What waits for an answer is denied; a call whose outcome is unknown never expires."""
    remind_before: timedelta | None = None
    """How long before the expiry a reminder comes among the events."""

    _durations = field_validator("expire_after", "remind_before", mode="before")(durations.checked)


class Compaction(Setting):
    """What the model sees of a transcript that nears its window: old tool results are trimmed, then old parts are
    summarised.

    Off unless an Agent has one. The transcript itself stays whole.
    """

    window_tokens: int = Field(ge=100)
    """The model's context window."""
    at: float = Field(default=0.75, gt=0, le=1)
    """From this part of the window on, the model sees less."""
    keep_messages: int = Field(default=12, ge=1)
    """The last messages, which stay as they are."""
    worthwhile: float = Field(default=0.2, gt=0, lt=1)
    """Trimming has to save at least this part of what is shown; else a summary is written."""


class RateLimit(Setting):
    """What a provider allows to one key, if that is known: workers keep below it from the start, and share it."""

    rpm: float | None = Field(default=None, gt=0, le=1e9)
    """Requests a minute, of all workers of the task queue together."""
    tpm: float | None = Field(default=None, gt=0, le=1e12)
    """Tokens a minute, those of replies too."""


class QueueLimit(Setting):
    """How many activities a second the server hands out from a task queue of model turns or of tools, to all workers
    together. Each try counts."""

    per_second: float | None = Field(default=None, ge=0, le=1e9)
    """Of the whole queue; 0 holds it; None is no limit."""
    per_tenant_per_second: float | None = Field(default=None, ge=0, le=1e9)
    """Of each tenant, times its weight (each fairness key); None is no limit."""


class Budget(Setting):
    """What a tenant's conversations may use together. None is no limit; days are UTC's."""

    tokens_per_day: int | None = Field(default=None, ge=1)
    """Input and output of all turns."""
    usd_per_day: float | None = Field(default=None, gt=0)
    """By the price list of the extra `prices`. Turns of models without a known price don't count."""
    conversations: int | None = Field(default=None, ge=1, le=1_000)
    """How many may be at work at once. A conversation that is idle, done or stalled is not at work. Those of sub-agents
    are a part of the one that asks them."""
    lease: timedelta = Field(default=timedelta(minutes=15), ge=timedelta(seconds=1))
    """A conversation that has taken no turn for so long, as it waits for a person or was terminated, is no longer at
    work."""

    _durations = field_validator("lease", mode="before")(durations.checked)


class Patience(Setting):
    """How long to retry what fails. It is a time and not a count, so deploys and crashes don't use it up."""

    model: timedelta = timedelta(minutes=30)
    """From a model turn's first try until the conversation stalls."""
    turn_timeout: timedelta = timedelta(minutes=20)
    """The longest that one try of a model turn may take."""
    max_retry_delay: timedelta = timedelta(minutes=2)
    """No wait between two tries is longer, whatever a provider's Retry-After says."""

    _durations = field_validator("model", "turn_timeout", "max_retry_delay", mode="before")(durations.checked)
