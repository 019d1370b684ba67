"""Brings the messages of earlier runs into the current one, before Temporal deletes the histories that hold them."""

from __future__ import annotations

from temporalio import activity

from everturn import names
from everturn.activities import activity_errors
from everturn.carryover import PackedTranscript, StoredInRun
from everturn.errors import ContextTooLong, ConversationError, InvalidSetting
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.history.reader import first_step
from everturn.history.transcript import Transcript, read_earlier
from everturn.packed_messages import pack
from everturn.sizes import MAX_PACKED_ALONE_BYTES


class KeepTranscript:
    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats

    @activity.defn(name=names.KEEP_TRANSCRIPT)
    async def keep_transcript(self, earlier: StoredInRun) -> PackedTranscript:
        with self._heartbeats.beating():
            return await self._read_transcript(earlier)

    async def _read_transcript(self, earlier: StoredInRun) -> PackedTranscript:
        info = activity.info()
        client = activity.client()
        transcript = Transcript()
        conversation_id = info.workflow_id or ""
        if started := await first_step(client, conversation_id, info.workflow_run_id):
            transcript.take_step(started)  # it says how many messages came before this run
        transcript.earlier = earlier
        try:
            packed = pack(await read_earlier(client, conversation_id, transcript))
        except (ConversationError, InvalidSetting) as error:
            raise activity_errors.final_error(error) from None
        # With external storage the SDK puts it elsewhere, and any size will do.
        if len(packed) > MAX_PACKED_ALONE_BYTES and client.data_converter.external_storage is None:
            raise activity_errors.final_error(
                ContextTooLong(
                    f"The transcript of earlier runs has {len(packed):,} bytes packed; a payload takes "
                    f"{MAX_PACKED_ALONE_BYTES:,}.",
                    cure="Raise the namespace's retention, or set up external storage (EVERTURN_STORAGE).",
                )
            )
        return PackedTranscript(data=packed)
