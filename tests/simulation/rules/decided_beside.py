"""What has to be true of the tools that a message names, and of what a reviewer decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everturn.records import Message, tool_pairs
from tests.simulation.agents.cast import CHOOSING
from tests.simulation.agents.reviewed import REVIEWED, may_decide, verdict_on
from tests.simulation.rules.conversations import Evidence


def a_model_is_offered_the_tools_of_its_message(one: Evidence) -> Iterator[str]:
    """Until the answer is complete; for one that concludes, none are offered."""
    if one.agent != CHOOSING:
        return
    for request in one.asked:
        wanted = _tools_of(request.messages)
        if wanted and request.tools and sorted(request.tools) != sorted(wanted):
            yield f"a model was offered {request.tools}, and its message names {wanted}"


def _tools_of(messages: Sequence[Message]) -> tuple[str, ...] | None:
    """Those that the message names which is being answered, for sure; None if it names none."""
    for message in reversed(messages):
        if message.role == "user" and not message.author:
            return message.tools
        if message.role == "assistant" and not message.tool_calls:
            return None
    return None


def a_reviewer_decides_within_its_rules(one: Evidence) -> Iterator[str]:
    """And as it said; whatever else it may be asked, a person decides."""
    if one.agent != REVIEWED:
        return
    for call, result in tool_pairs(one.transcript):
        decision = result.decision
        if decision and decision.by_model:
            if not may_decide(call.name, call.arguments):
                yield f"a model decided on {call.name} {call.arguments}"
            elif decision.verdict != verdict_on(call.arguments):
                yield f"a model said {verdict_on(call.arguments)}, and it was {decision.verdict}"


BESIDE_RULES = (a_model_is_offered_the_tools_of_its_message, a_reviewer_decides_within_its_rules)
