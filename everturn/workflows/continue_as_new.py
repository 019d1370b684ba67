"""What one run hands to the next, and when: so that replay stays short however long the conversation gets."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError

from everturn import names
from everturn.carryover import CarryOver, Earlier, InRun, OpenReply, Packed, WorkerFacts
from everturn.cutting import shortened
from everturn.logs import workflow_log
from everturn.packing import pack, unpack
from everturn.payloads import ModelRequest, Start
from everturn.records import Message
from everturn.sizes import MAX_HANDED_BYTES, MAX_LAST_TEXT_BYTES, MAX_OPEN_BYTES, MAX_PACKED_BYTES, size_of
from everturn.workflows import tool_results
from everturn.workflows.activity_results import ActivityResults, Unreadable
from everturn.workflows.chain import Chain
from everturn.workflows.commands import Commands
from everturn.workflows.progress import Progress
from everturn.workflows.timeouts import model_options

MAX_EVENTS = 2_000
"""Of a run's history: about 160 turns of one call each."""

MAX_UPDATES = 1_000
"""Temporal takes 2,000 in a run, those that were refused included."""

MAX_HISTORY_BYTES = 8 * 1024 * 1024

LIKELY_TOO_LONG = 20 * MAX_PACKED_BYTES
"""Text hardly ever packs to a twentieth: beyond this, it is not even tried."""


async def keep_in_time(progress: Progress, activity_results: ActivityResults) -> None:
    """Brings what is in earlier runs into this one's history before Temporal deletes theirs."""
    if progress.keep_by is None or not isinstance(progress.earlier, InRun):
        return
    await workflow.sleep(max(0.0, progress.keep_by - workflow.time()), summary="bring earlier runs' messages here")
    try:
        raw: RawValue | None = await workflow.execute_activity(
            names.KEEP_TRANSCRIPT, progress.earlier, result_type=RawValue, **model_options()
        )
        progress.earlier, progress.keep_by = (
            held(activity_results.read(raw, Packed, "The transcript of earlier runs")),
            None,
        )
    except (ActivityError, Unreadable) as error:
        # It goes on as long as a worker remembers the messages; one that does not will stall it, with this cause.
        cause = error.why if isinstance(error, Unreadable) else tool_results.cause_of(error)
        workflow_log("transcript.not_kept", level="error", cause=cause)


def held(earlier: Earlier | None) -> Earlier | None:
    """Earlier messages as a conversation holds them: what is too much to hand on is in this run's history."""
    if isinstance(earlier, Packed) and len(earlier.data) > MAX_PACKED_BYTES:
        return InRun(run_id=workflow.info().run_id)
    return earlier


def due(*, updates: int) -> bool:
    """Whether the run is long enough, and has taken enough updates."""
    info = workflow.info()
    return (
        updates >= MAX_UPDATES
        or info.is_continue_as_new_suggested()
        or info.get_current_history_length() >= MAX_EVENTS
        or info.get_current_history_size() >= MAX_HISTORY_BYTES
    )


async def fit_unseen(progress: Progress, activity_results: ActivityResults, *, agent: str) -> None:
    """What no model has seen is handed over, if it is little; else it becomes a part of the prefix."""
    if size_of(progress.unseen) + size_of(progress.told) > MAX_HANDED_BYTES:
        await extend_prefix(progress, activity_results, agent=agent)


def may_be_open(handed: Start) -> bool:
    """Whether this can be handed over while calls wait for people."""
    return size_of(handed) <= MAX_OPEN_BYTES


async def extend_prefix(progress: Progress, activity_results: ActivityResults, *, agent: str) -> None:
    """Makes what no model has seen a part of the prefix: that is handed over by pointing to it."""
    delta, named = progress.delta()
    request = ModelRequest(
        agent=agent,
        turn=progress.turn + 1,
        position=progress.position,
        digest=progress.digest,
        delta=delta,
        named=named,
    )
    handle = workflow.start_activity(
        names.EXTEND_PREFIX, request, result_type=RawValue, summary="results too large to hand on", **model_options()
    )
    try:
        digest = await activity_results.result(handle, str, "The digest of the transcript")
    except Unreadable:
        digest = ""  # whoever needs the prefix reads it from the history
    progress.take_in_unseen(digest)


def over(
    progress: Progress,
    commands: Commands,
    *,
    facts: WorkerFacts | None,
    started_at: float,
    chain: Chain,
    owed: bool = True,
    reply: OpenReply | None = None,
) -> CarryOver:
    """`reply`: the one at hand, if its calls wait for people. What the model said in it is not cut then: it fits, or
    the run goes on."""
    earlier = _earlier(progress)
    return CarryOver(
        earlier=earlier,
        keep_by=_keep_by(progress, facts) if isinstance(earlier, InRun) else None,
        length=progress.position,
        digest=progress.digest,
        unseen=tuple(progress.unseen),
        told=progress.told,
        owed=owed,
        open=reply,
        inbox=tuple(commands.inbox),
        message_ids=commands.message_ids,
        turn=progress.turn,
        tool_calls=progress.tool_calls,
        usage=progress.usage,
        cost_usd=progress.cost_usd,
        last_text=progress.last_text if reply else shortened(progress.last_text, max_bytes=MAX_LAST_TEXT_BYTES),
        started_at=started_at,
        facts=facts,
        chain_id=chain.id,
        reset_run=chain.reset_run,
        model=commands.model,
        paused=commands.paused,
        repairs=progress.repairs,
        view=progress.view,
        summary_due=progress.summary_due,
    )


def _keep_by(progress: Progress, facts: WorkerFacts | None) -> float | None:
    """Half of what the histories of earlier runs have left to live; the oldest one decides."""
    if progress.keep_by is not None or facts is None or facts.retention is None:
        return progress.keep_by
    return workflow.time() + facts.retention / 2


def _earlier(progress: Progress) -> Earlier:
    """The prefix itself if it is small; else where it is: in this run's history, and in those before it."""
    here, before = InRun(run_id=workflow.info().run_id), progress.earlier
    if isinstance(before, InRun) or progress.held_from > progress.base:
        return here
    try:
        earlier = unpack(before.data) if before else ()
    except ValueError:
        return here  # other code wrote it, and other code may read it
    messages = (*earlier, *map(Message.model_validate_json, progress.held))
    if sum(len(message.model_dump_json()) for message in messages) > LIKELY_TOO_LONG:
        return here
    packed = pack(messages)
    return Packed(data=packed) if len(packed) <= MAX_PACKED_BYTES else here
