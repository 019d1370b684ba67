"""What people saw of a reply that is still being written: as the heartbeats of its turn have it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.history.tail import last_request
from everturn.live.lane import Lane, LaneDown, TurnKey
from everturn.streamed import LiveAt, SeenReply, Streamed, last_chars, whole

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
    with suppress(LaneDown, TimeoutError):
        async with asyncio.timeout(LONGEST_SECONDS):
            run_id, turn = await _running(temporal, conversation_id)
            if turn is None:
                return None
            key = TurnKey(temporal.namespace, run_id, turn.activity_id)
            counted = await _beaten(temporal, turn)
            at = await _handed_out_at(temporal, conversation_id, key, counted) if lane.has_addresses else None
            said = [one for one in await lane.so_far(key, at) if one.attempt == turn.attempt]
            facts = {"usage": counted.usage, "cost_usd": counted.cost_usd} if counted else {}
            found = _last_chars(whole(said))
            return found and found.model_copy(update=facts)
    return None


async def _handed_out_at(
    temporal: Client, conversation_id: str, key: TurnKey, counted: Streamed | None
) -> LiveAt | None:
    """As the turn's heartbeats say, else its request."""
    if counted and counted.live_at:
        return counted.live_at
    request = await last_request(temporal, conversation_id, key.run_id, activity_id=key.activity_id)
    return request.live_at if request else None


def _last_chars(streamed: Streamed | None) -> Streamed | None:
    """As much of it as a message may hold."""
    if streamed is None:
        return None
    at, pieces = last_chars(streamed.pieces, MOST_CHARS, streamed.at)
    return streamed.model_copy(update={"at": at, "pieces": tuple(pieces)})


async def _look(temporal: Client, conversation_id: str) -> Streamed | None:
    _, turn = await _running(temporal, conversation_id)
    return await _beaten(temporal, turn) if turn else None


async def _running(temporal: Client, conversation_id: str) -> tuple[str, PendingActivityInfo | None]:
    """The run, and the model turn that is in hand there; None if there is none, or if nobody knows."""
    try:
        described = await temporal.get_workflow_handle(conversation_id).describe()
    except RPCError:
        return "", None
    pending = described.raw_description.pending_activities
    turns = (one for one in pending if one.activity_type.name == names.CALL_MODEL)
    return described.run_id or "", next(turns, None)


async def _beaten(temporal: Client, turn: PendingActivityInfo) -> Streamed | None:
    """What its last heartbeat has of its text."""
    with suppress(Exception):  # codecs raise all kinds
        details = await temporal.data_converter.decode(turn.heartbeat_details.payloads)
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
