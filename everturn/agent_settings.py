"""What every group of an agent's settings is made of: frozen, and a misspelt name is an error. And the groups for
approvals and compaction; `models` has a model's, `limits` what ends or slows a conversation."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from everturn.errors import ConfigError, InvalidSetting
from everturn.validation import durations
from everturn.validation.explaining import explain
from everturn.validation.spelling import refuse_unknown

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _ReadableErrors(ModelMetaclass):
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


class Setting(BaseModel, metaclass=_ReadableErrors):
    """Configuration: frozen, and a misspelt name is an error, as is a number that JSON does not have."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
