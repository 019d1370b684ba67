"""What a model turn hands over when its conversation cancels it: the text so far, as its reply, marked as cut short."""

from __future__ import annotations

import asyncio

from temporalio import activity

from everturn.activities.heartbeat import Heartbeat, is_unwanted
from everturn.activities.prefix_cache import PrefixCache, chain_digest
from everturn.activities.tool_contexts import Spent
from everturn.heartbeat_details import SeenReply, beaten_out
from everturn.history.transcript import filled_delta
from everturn.logs import get_logger
from everturn.payloads import ModelReply, ModelRequest
from everturn.records import Message

_log = get_logger("everturn.turn")


def cut_reply(request: ModelRequest, beat: Heartbeat, spent: Spent, prefixes: PrefixCache) -> ModelReply:
    """The reply of a turn that was cancelled, as far as it was said, without any calls in it. Raises CancelledError if
    nobody waits for it, or if nothing was said or counted."""
    if request.summarise or not is_unwanted():
        raise asyncio.CancelledError
    streamed = beat.reply_so_far() if beat.reply_so_far else None
    # People still see what the try before this one said, until this one says something.
    seen = SeenReply.from_streamed(streamed) or beaten_out(activity.info().heartbeat_details)
    if seen and seen.turn != request.turn:
        seen = None
    if counted := seen or streamed:
        spent.add_usage(counted.usage, counted.cost_usd)
    if not seen and not spent.usage.total_tokens:
        raise asyncio.CancelledError
    cut = Message(role="assistant", parts=(), cut_short=True)
    if seen:
        cut = seen.as_message(request.agent if request.signed else "")
    _log.info("turn.cut_short", characters=len(cut.text), output_tokens=spent.usage.output_tokens)
    return ModelReply(
        message=cut, digest=_digest_with(request, cut, prefixes), usage=spent.usage, cost_usd=spent.cost_usd
    )


def _digest_with(request: ModelRequest, cut: Message, prefixes: PrefixCache) -> str:
    """The digest of the transcript with `cut`; empty if that is not known. The worker does not remember this prefix: so
    it meets the conversation with the next turn, whose reply says the worker's facts."""
    results = prefixes.find_results(activity.info().workflow_run_id or "", request.named)
    if results is None or not cut.parts or (request.position and not request.digest):
        return ""
    return chain_digest(request.digest, (*filled_delta(request, results), cut))
