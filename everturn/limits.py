"""What ends or slows a conversation: an agent's limits and patience, and what a provider's key, a task queue and a
tenant may use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import Field, field_validator

from everturn.agent_settings import Setting
from everturn.records import Usage
from everturn.sizes import MAX_RESULT_CHARS
from everturn.validation import durations


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
    """Counted from the conversation's start, including the time that it waited for people. A stalled turn that is
    resumed later than that concludes."""
    max_handoffs: int | None = Field(default=10, ge=0)
    """How often agents may hand the conversation over between two messages of the user. After that, the agent in
    charge has to answer."""
    conclude: bool = True
    """At a limit, the model gets one last turn without tools. False: the conversation just ends."""
    max_result_chars: int = Field(default=MAX_RESULT_CHARS, ge=1_000)
    """A longer tool result is cut, with a notice that the model reads."""

    _durations = field_validator("max_duration", mode="before")(durations.checked)

    @classmethod
    def merged(cls, agents: Mapping[str, Any], own: Limits | None) -> Limits:
        """The agent's limits, as a worker reported them; the conversation's own win."""
        known = {name: value for name, value in agents.items() if name in cls.model_fields}
        if own:
            known |= own.model_dump(exclude_unset=True)
        return cls(**known)

    def calls_left(self, tool_calls: int) -> int | None:
        """How many tool calls the next reply may make; None if nothing limits them."""
        if self.max_tool_calls is None:
            return None
        return max(0, self.max_tool_calls - tool_calls)

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


MODEL_PATIENCE = timedelta(minutes=30)


class Patience(Setting):
    """How long to retry what fails. It is a time and not a count, so deploys and crashes don't use it up."""

    model: timedelta = MODEL_PATIENCE
    """From a model turn's first try until the conversation stalls."""
    turn_timeout: timedelta = timedelta(minutes=20)
    """The longest that one try of a model turn may take."""
    max_retry_delay: timedelta = timedelta(minutes=2)
    """No wait between two tries is longer, whatever a provider's Retry-After says."""

    _durations = field_validator("model", "turn_timeout", "max_retry_delay", mode="before")(durations.checked)


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
    """What a tenant's conversations may use together. None is no limit; days and months are UTC's."""

    tokens_per_day: int | None = Field(default=None, ge=1)
    """Input and output of all turns."""
    usd_per_day: float | None = Field(default=None, gt=0)
    """By the price list of the extra `prices`. Turns of models without a known price don't count."""
    tokens_per_month: int | None = Field(default=None, ge=1)
    usd_per_month: float | None = Field(default=None, gt=0)
    tokens_total: int | None = Field(default=None, ge=1)
    """Since the tenant first had a budget. It never opens again by itself."""
    usd_total: float | None = Field(default=None, gt=0)
    conversations: int | None = Field(default=None, ge=1, le=1_000)
    """How many may be at work at once. A conversation that is idle, done or stalled is not at work. Those of sub-agents
    are a part of the one that asks them."""
    lease: timedelta = Field(default=timedelta(minutes=15), ge=timedelta(seconds=1))
    """A conversation that has taken no turn for so long, as it waits for a person or was terminated, is no longer at
    work."""

    _durations = field_validator("lease", mode="before")(durations.checked)
