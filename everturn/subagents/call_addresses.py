"""Which of several waiting calls is meant, if a conversation and the agents that work for it have calls of the same id.

An id names a call as long as no other one that waits has it. An address always does (`WaitingCall.address`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from everturn.errors import Refused
from everturn.payloads import WaitingCall

MOST_CALLS_NAMED: Final = 5
"""How many calls an error names."""


def find_named_call(waiting: Iterable[WaitingCall], name: str) -> WaitingCall | None:
    """The waiting call with this id or address; None if there is none. Raises Refused if several have the id."""
    calls = _find_calls(waiting, name)
    if len(calls) > 1:
        raise ambiguous_id_error(name, calls)
    return calls[0] if calls else None


def _find_calls(waiting: Iterable[WaitingCall], name: str) -> list[WaitingCall]:
    return [call for call in waiting if name in (call.call_id, call.address)]


def ambiguous_id_error(call_id: str, calls: Sequence[WaitingCall]) -> Refused:
    """The error if several waiting calls have the id that somebody gave: it names them all by their addresses."""
    named = [f"{call.address!r}: {call.tool} of {in_words(call) or 'this agent'}" for call in calls[:MOST_CALLS_NAMED]]
    more = ""
    if len(calls) > MOST_CALLS_NAMED:
        more = f"; and {len(calls) - MOST_CALLS_NAMED} more"
    return Refused(
        f"{len(calls)} calls with the id {call_id!r} wait: {'; '.join(named)}{more}.",
        cure="Name one of them by its address, which begins with a slash.",
    )


def shortest_name(call: WaitingCall, waiting: Iterable[WaitingCall]) -> str:
    """What names the call to the conversation at whose door it is shown: its id, or its address if another one of the
    `waiting` calls has the same id."""
    if len(_find_calls(waiting, call.call_id)) > 1:
        return call.address
    return call.call_id


def in_words(call: WaitingCall) -> str:
    """Whose call it is: `helper › auditor`. Empty for the conversation's own agent."""
    return " › ".join(asked_agent.agent for asked_agent in call.path)
