"""What decides beside the agent and its people: the tools that a message names, and a model that reviews calls."""

from __future__ import annotations

from tests.simulation.agents.cast import CHOOSING
from tests.simulation.agents.reviewed import REVIEWED
from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

DECIDED_BESIDE: dict[str, Situation] = {
    "tools with a message": Situation(
        {
            **CALM,
            "agent": (CHOOSING,),
            "messages": (3, 4),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT, *SHORT),
            "resets": (0.0, 0.0, 0.3),
        },
        tools=("look", "note", "peek", "peep"),
        failures=("key", "unavailable"),
        habits=Habits(unasked=("say", "say", "cancel_turn", "pause", "resume", "close")),
    ),
    "reviewed": Situation(
        {**CALM, "agent": (REVIEWED,), "kills": (0.0, 2.0, 4.0), "bounds": ((), *SHORT), "impatience": (0.3, 0.6)},
        tools=("refund", "refund", "refund", "peep", "gift", "ship"),
        failures=("key", "unavailable"),
        habits=Habits(unasked=("say", "cancel_turn", "pause", "resume")),
    ),
}
