"""A model that decides on calls in people's place, within rules: what it may be asked at all, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar, Final, Literal

from pydantic import Field, JsonValue, field_validator

from everturn.agent_settings import Setting
from everturn.errors import ConfigError, InvalidAgent
from everturn.models import Model, ModelSettings, check_asks_at_once
from everturn.policy import Condition, conditions_hold
from everturn.tools.tool import Tool
from everturn.validation import durations
from everturn.vendor_models.plugins import check_provider

REVIEW_TIMEOUT: Final = timedelta(seconds=30)


class Reviewer(Setting):
    """Decides on calls whose tool has `needs_approval`, before a person is asked. It approves a call, denies it, or
    leaves it to a person; a person decides, too, whenever it is unsure, fails, or answers oddly. Its word is recorded
    as a model's: `Decision.by_model`.

    It is asked only about calls that all of these allow. What a hook, a rule, or the provider wants a person to see, it
    is never asked about, and the agent's `approvers` may refuse its decisions.
    """

    _error: ClassVar[type[ConfigError]] = InvalidAgent

    model: Model
    """As an Agent takes it."""
    instructions: str = Field(min_length=1)
    """What may be approved, and what is to be denied, in words."""
    tools: tuple[str, ...] | None = None
    """The names of the tools whose calls it may decide on; None: of all, by their `effects`."""
    effects: tuple[Literal["read", "idempotent"], ...] = ("read", "idempotent")
    """Of tools that `tools` does not name. A tool whose effect is `once`, a client's tool, and another agent have to be
    named."""
    where: Mapping[str, Mapping[str, Condition]] = Field(default_factory=dict)
    """Conditions on the arguments, by tool: {"refund": {"cents": {"at_most": 2000}}}, with names as in `Rule.where`. If
    one does not hold, or it can't be said whether it does, a person decides."""
    settings: ModelSettings = Field(default_factory=lambda: ModelSettings(stream=False))
    timeout: timedelta = REVIEW_TIMEOUT
    """Then a person decides."""

    _durations = field_validator("timeout", mode="before")(durations.checked)

    @field_validator("model", mode="before")
    @classmethod
    def _as_model(cls, model: object) -> Model:
        return check_provider(model if isinstance(model, Model) else Model(model))  # type: ignore[arg-type]

    @field_validator("settings")
    @classmethod
    def _asks_at_once(cls, settings: ModelSettings) -> ModelSettings:
        check_asks_at_once("It", settings)
        return settings

    @field_validator("tools", mode="before")
    @classmethod
    def _names(cls, tools: object) -> object:
        if isinstance(tools, str):
            raise ValueError("it is a text: write a list of names")
        return tools

    @property
    def by(self) -> str:
        """How its decisions are signed."""
        return f"model:{self.model.name}"

    def may_decide(self, tool: Tool, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether the rules let it decide on such a call."""
        if not self._covers(tool):
            return False
        return conditions_hold(self.where.get(tool.name, {}), arguments) is True

    def _covers(self, tool: Tool) -> bool:
        if self.tools is not None:
            return tool.name in self.tools
        runs_here = tool.runs_on == "worker" and not (tool.agent or tool.handoff)
        return runs_here and tool.effect in self.effects

    def check_tools(self, agent: str, names: frozenset[str]) -> None:
        """Raises InvalidAgent for a rule about a tool that the agent does not have: it would hold for nothing."""
        for name in (*(self.tools or ()), *self.where):
            if name not in names:
                raise InvalidAgent(
                    f"The reviewer of agent {agent!r} has a rule about {name!r:.100}, and the agent has no such tool.",
                    cure=f"It has {', '.join(sorted(names)) or 'none'}.",
                )
