"""Reads a final reply as its agent's `output` type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import JsonValue

from everturn.agent import Agent
from everturn.logs import get_logger
from everturn.records import Reply
from everturn.sizes import MAX_BESIDE_REPLY_BYTES, MAX_CAUSE_BYTES, MAX_DEPTH, shortened, size_of, too_deep
from everturn.tools import user_code
from everturn.tools.context import TurnContext
from everturn.tools.output_type import InvalidOutput
from everturn.tools.results import safe_error_text

_log = get_logger("everturn.turn")


async def output_of(agent: Agent, reply: Reply, turn: Callable[[], TurnContext[Any]]) -> tuple[JsonValue, str | None]:
    """A final reply as the agent's `output` type, in JSON, or None and what is wrong with it; twice None for other
    replies. `turn` makes the context that the type's validators are given."""
    if agent.output_adapter is None or reply.stop != "end" or reply.tool_calls:
        return None, None
    try:
        if size_of(reply.text) > MAX_BESIDE_REPLY_BYTES:
            raise InvalidOutput(f"It has more than {MAX_BESIDE_REPLY_BYTES:,} bytes.")
        output = await user_code.in_thread(partial(agent.read_output, reply.text, turn()))
        if (size := size_of(output)) > MAX_BESIDE_REPLY_BYTES:  # a type can make much of a short text
            raise InvalidOutput(f"It has {size:,} bytes as JSON; the limit is {MAX_BESIDE_REPLY_BYTES:,}.")
        if too_deep(output):
            raise InvalidOutput(f"It is nested more than {MAX_DEPTH} levels deep.")
        return output, None
    except InvalidOutput as error:
        _log.warning("output.refused", error=str(error))
        return None, shortened(str(error), max_bytes=MAX_CAUSE_BYTES)
    except Exception as error:  # noqa: BLE001 - of the user's validators, which may also hang
        problem = f"It could not be checked: {await safe_error_text(error)}"
        return None, shortened(problem, max_bytes=MAX_CAUSE_BYTES)
