"""What people saw of a reply that is still being written: as the heartbeats of its turn have it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.streamed import SeenReply, Streamed

LONGEST_SECONDS = 1.6
"""Of a long reply most beats hold the end alone. One that holds more comes each 1.5 s."""

LOOK_SECONDS = 0.1


async def seen_reply(temporal: Client, conversation_id: str) -> dict[str, Any] | None:
    """As Control.seen; None if no turn runs, or if it has said nothing yet. Raises nothing: it is only a look."""
    best: Streamed | None = None
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
