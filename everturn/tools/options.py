"""What a provider is told about one tool besides its name, description and schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, JsonValue

from everturn.agent_settings import Setting
from everturn.errors import InvalidTool


class ToolOptions(Setting):
    """`@tool(options=ToolOptions(strict=True))`, or a dict of the same. Fields that are None are not sent.

    Each field is sent to the providers that know it, under the same name. Requests to others go out without it, with a
    warning (UnsupportedParameter).
    """

    _error = InvalidTool

    strict: bool | None = None
    """The model can only write arguments that fit the schema. Anthropic, OpenAI, Azure, OpenRouter. OpenAI's models
    accept few schemas: all parameters have to be required, for example."""
    defer_loading: bool | None = None
    """The model sees the tool only when it has searched for it, with the provider's own tool search among `tools`.
    Anthropic, OpenAI."""
    allowed_callers: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Who may call it: 'direct', Anthropic's 'code_execution_20250825' and later, OpenAI's 'programmatic'. Each
    provider gets its own."""
    input_examples: tuple[dict[str, JsonValue], ...] | None = Field(default=None, min_length=1)
    """Arguments as the model could write them. Anthropic."""
    cache_control: dict[str, JsonValue] | None = None
    """Such as {"type": "ephemeral", "ttl": "1h"}: the provider caches the prompt up to here. Anthropic."""

    @classmethod
    def of(cls, given: object, *, tool: str) -> Self:
        """Raises InvalidTool."""
        match given:
            case None:
                return cls()
            case cls():
                return given
            case Mapping():
                return cls(**given)
        raise InvalidTool(
            f"Tool {tool!r} has options={given!r}.",
            cure="Write options=ToolOptions(strict=True), or a dict.",
        )

    def known_to(self, *names: str, callers: tuple[str, ...] = ()) -> tuple[dict[str, Any], list[str]]:
        """The options among `names` that are set, as JSON, and the names of other options that are set.

        `callers`: prefixes of the callers that the provider knows.
        """
        given = self.model_dump(mode="json", exclude_none=True)
        known = {name: value for name, value in given.items() if name in names}
        if "allowed_callers" in known:
            own = [caller for caller in known.pop("allowed_callers") if caller.startswith(callers)]
            if own:
                known["allowed_callers"] = own
        return known, [name for name in given if name not in known]
