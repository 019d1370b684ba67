"""What has to be true of local tools: of those that take long, and of those that are tried while they are quick."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.agents.local_tools import LONGEST_SECONDS
from tests.simulation.rules.conversations import Evidence


def what_lingers_is_what_is_told(one: Evidence) -> Iterator[str]:
    """A local tool is cut off at its own time-out, and not before: however many workflow tasks it takes."""
    calls = one.own_calls
    for message in one.transcript:
        for result in message.tool_results:
            call = calls.get(result.call_id)
            if call is None or call.name != "linger" or (result.decision and result.decision.verdict != "approve"):
                continue
            seconds, late = float(str(call.arguments["seconds"])), "did not finish within" in result.text
            if late and seconds < LONGEST_SECONDS:
                yield f"linger {call.call_id} takes {seconds} s, and is said not to have finished"
            if not result.is_error and seconds > LONGEST_SECONDS:
                yield f"linger {call.call_id} takes {seconds} s, and has a result"


LOCAL_RULES = (what_lingers_is_what_is_told,)
