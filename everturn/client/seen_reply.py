"""What people saw of a reply that is still being written: as the heartbeats of its turn have it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.live.lane import Lane, LaneDown, TurnKey
from everturn.streamed import SeenReply, Streamed, whole

LONGEST_SECONDS = 1.6
"""Of a long reply most beats hold the end alone. One that holds more comes each 1.5 s."""

LOOK_SECONDS = 0.1

MOST_CHARS = 32_000
"""As a heartbeat holds, too."""


async def seen_reply(temporal: Client, conversation_id: str, lane: Lane | None = None) -> dict[str, Any] | None:
    """As Control.seen; None if no turn runs, or if it has said nothing yet. Raises nothing: it is only a look."""
    best: Streamed | None = None
    if lane and (streamed := await _beside(temporal, conversation_id, lane)):
        seen = _seen(streamed)
        return seen.model_dump(mode="json") if seen else None
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_SECONDS):
            while True:
                found = await _look(temporal, conversation_id)
                if found is None:
                    break
                best = found if best is None or found.at <= best.at else best
                if not best.at:
                    break
                await asyncio.sleep(LOOK_SECONDS)
    seen = _seen(best) if best else None
    return seen.model_dump(mode="json") if seen else None


async def _beside(temporal: Client, conversation_id: str, lane: Lane) -> Streamed | None:
    """As the lane has it, with what the heartbeats have counted; None if those have to do."""
    with suppress(RPCError, LaneDown, TimeoutError):
        async with asyncio.timeout(LONGEST_SECONDS):
            described = await temporal.get_workflow_handle(conversation_id).describe()
            for pending in described.raw_description.pending_activities:
                if pending.activity_type.name == names.CALL_MODEL:
                    key = TurnKey(temporal.namespace, described.run_id or "", pending.activity_id)
                    said = [one for one in await lane.so_far(key) if one.attempt == pending.attempt]
                    counted = await _look(temporal, conversation_id)
                    facts = {"usage": counted.usage, "cost_usd": counted.cost_usd} if counted else {}
                    found = _last_chars(whole(said))
                    return found and found.model_copy(update=facts)
    return None


def _last_chars(streamed: Streamed | None) -> Streamed | None:
    """As much of it as a message may hold."""
    if streamed is None:
        return None
    left, kept = MOST_CHARS, list[tuple[Literal["text", "thinking"], str]]()
    cut = sum(len(text) for _, text in streamed.pieces) - left
    for kind, text in reversed(streamed.pieces):
        kept.insert(0, (kind, text[-left:] if left > 0 else ""))
        left -= len(text)
    return streamed.model_copy(update={"at": streamed.at + max(0, cut), "pieces": tuple(kept)})


async def _look(temporal: Client, conversation_id: str) -> Streamed | None:
    try:
        described = await temporal.get_workflow_handle(conversation_id).describe()
    except RPCError:
        return None
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name == names.CALL_MODEL:
            with suppress(Exception):  # codecs raise all kinds
                details = await temporal.data_converter.decode(pending.heartbeat_details.payloads)
                return Streamed.model_validate(details[1]) if len(details) > 1 else None
    return None


def _seen(streamed: Streamed) -> SeenReply | None:
    text, thinking = ("".join(said for kind, said in streamed.pieces if kind == one) for one in ("text", "thinking"))
    if not text.strip() or not streamed.turn:
        return None
    if streamed.at:
        text = f"[Cut: what came before these {len(text):,} characters is left out.]\n{text}"
    usage, cost_usd = streamed.usage, streamed.cost_usd
    return SeenReply(turn=streamed.turn, text=text, thinking=thinking, usage=usage, cost_usd=cost_usd)
