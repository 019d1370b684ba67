"""Which model is asked if one fails for good: the agent's `fallback_models`, in their order."""

from __future__ import annotations

from everturn.agent import Agent
from everturn.models import Model


def next_after(agent: Agent, failed: Model) -> str | None:
    """The name of the next model in line; None after the last one, and for a model that is not in line."""
    line = [agent.model.name, *(model.name for model in agent.fallback_models)]
    if failed.name not in line:
        return None
    return next(iter(line[line.index(failed.name) + 1 :]), None)
