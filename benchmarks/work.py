"""The conversation that every contestant holds: a number of turns with one tool call each, then a last reply.

Light on purpose: contestants import it in virtual environments that have no everturn.
"""

from __future__ import annotations

import os
from typing import Any

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look up a number.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
LAST_WORDS = "done"
SLOW = "slowly"
SLOW_TURN = 1


LONG_RESULTS = int(os.environ.get("LONG_RESULTS", "0"))
"""How many of the first results are long, so that a transcript is long soon."""
LONG_RESULT_KB = 32


def looked_up(number: int) -> str:
    """What the tool returns: 4 KB, or LONG_RESULT_KB."""
    return f"{number:016}" * (64 * LONG_RESULT_KB if number < LONG_RESULTS else 256)


def opening(turns: int, *, slow: str = "", unlike: str = "", calls: int = 1) -> str:
    """The user's message. The scripted model reads from it how many calls to make.

    With `slow`, a word that is used once: the first time it is asked for turn SLOW_TURN, it takes minutes. With
    `unlike`, a word that is used once as well: no worker can hold the same transcript for two conversations.
    """
    each = "" if calls == 1 else f" of {calls} calls"
    return f"{turns} turns{each}, please{unlike and f' ({unlike})'}" + (f", {SLOW}: {slow}" if slow else "")


def turns_of(said: str) -> int:
    return int(said.split(maxsplit=1)[0])


def calls_of(said: str) -> int:
    """In each of these turns."""
    return int(said.split()[3]) if said.split()[2:3] == ["of"] else 1


def call_of(turn: int) -> dict[str, Any]:
    """The model's message in `turn`, from 0 on, as the wire has it."""
    function = {"name": "lookup", "arguments": f'{{"number":{turn}}}'}
    call = {"id": f"call_{turn}_0", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result_of(turn: int) -> dict[str, Any]:
    """The tool's message in `turn`."""
    return {"role": "tool", "tool_call_id": f"call_{turn}_0", "content": looked_up(turn)}
