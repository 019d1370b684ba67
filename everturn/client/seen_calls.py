"""A waiting call as somebody saw it, and what a decision on it says of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from everturn.errors import InvalidSetting
from everturn.events import AnswerRequested, ApprovalRequested
from everturn.payloads import WaitingCall

SeenCall = WaitingCall | ApprovalRequested | AnswerRequested
"""A call as somebody saw it wait."""


def seen_options(
    expected: Mapping[str, JsonValue] | str | SeenCall | None, *, approves: bool = False
) -> dict[str, Any]:
    """What a decision says of the call that the person saw: its question, its arguments, or both. Raises
    InvalidSetting. `approves`: the decision can say the arguments."""
    if expected is None:
        return {}
    if isinstance(expected, str) and expected:
        return {"question": expected}
    arguments: Any = expected
    if isinstance(expected, WaitingCall):
        arguments = expected.arguments
    elif isinstance(expected, ApprovalRequested | AnswerRequested):
        arguments = expected.call.arguments
    elif not approves or not isinstance(expected, Mapping):
        raise InvalidSetting(
            f"expected={expected!r:.200} is not what somebody saw of a call.",
            cure="Give the call of `status().waiting`, its `question`, or the event that told of it.",
        )
    options: dict[str, Any] = {}
    if approves:  # a worker's version may not know of questions, but of the arguments
        options["expected"] = arguments
    if isinstance(expected, SeenCall) and expected.question:
        options["question"] = expected.question
    return options
