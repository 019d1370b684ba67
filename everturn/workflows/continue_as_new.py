"""When a conversation goes on as a new run, and what it hands over: so a replay stays short for any conversation."""

from __future__ import annotations

from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError

from everturn import names
from everturn.carryover import CarryOver, Earlier, OpenReply, PackedTranscript, StoredInRun
from everturn.logs import workflow_log
from everturn.packed_messages import pack
from everturn.payloads import ModelRequest, Start
from everturn.size_estimates import fits
from everturn.sizes import MAX_HANDED_BYTES, MAX_HISTORY_BYTES, MAX_OPEN_BYTES, MAX_PACKED_BYTES, size_of
from everturn.state import State
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.truncation import cut_messages
from everturn.workflows import sent_messages, tool_results
from everturn.workflows.activity_results import ActivityResults, UnreadableResult
from everturn.workflows.chain import RunChain
from everturn.workflows.history_space import left_in_run
from everturn.workflows.recent_messages import RecentMessages, whole_prefix
from everturn.workflows.timeouts import model_options, prefix_options

MAX_EVENTS = 2_000
"""The most events of a run: about 160 turns of one call each."""

MAX_UPDATES = 1_000
"""Temporal takes 2,000 updates in a run, refused ones included."""

LEAST_SECONDS = 1.0
"""If a run ends sooner, the server delays the next one until then (history.workflowIdReuseMinimalInterval)."""

LIKELY_TOO_LONG = 20 * MAX_PACKED_BYTES
"""Text hardly ever packs to a twentieth of its size. Above this, packing is not even tried."""


async def copy_earlier_messages_in_time(state: State, activity_results: ActivityResults) -> None:
    """Copies the messages of earlier runs into this run's history before Temporal deletes theirs."""
    if state.prefix.keep_by is None or not isinstance(state.prefix.earlier, StoredInRun):
        return
    await workflow.sleep(max(0.0, state.prefix.keep_by - workflow.time()), summary="bring earlier runs' messages here")
    try:
        raw: RawValue | None = await workflow.execute_activity(
            names.KEEP_TRANSCRIPT, state.prefix.earlier, result_type=RawValue, **model_options()
        )
        state.prefix.take_earlier(
            hold_earlier(activity_results.read(raw, PackedTranscript, "The transcript of earlier runs"))
        )
    except (ActivityError, UnreadableResult) as error:
        # It goes on as long as a worker remembers the messages; one that does not will stall it, with this cause.
        workflow_log("transcript.not_kept", level="error", cause=tool_results.cause_of(error))


def begin_next_run(handed: Start | dict[str, Any]) -> NoReturn:
    """Ends this run; the next one begins with what it is handed."""
    workflow.continue_as_new(handed, task_timeout=TASK_TIMEOUT)


def hold_earlier(earlier: Earlier) -> Earlier:
    """Earlier messages as a conversation holds them: what is too much to hand on is in this run's history."""
    if isinstance(earlier, PackedTranscript) and len(earlier.data) > MAX_PACKED_BYTES:
        return StoredInRun(run_id=workflow.info().run_id)
    return earlier


def is_due(*, updates: int, full: bool) -> bool:
    """Whether the run is long enough, has taken enough updates, or is full of what Temporal does not let go of; or was
    started with a longer time-out for its workflow tasks than a worker that is killed in one should cost."""
    info = workflow.info()
    return (
        full
        or updates >= MAX_UPDATES
        or info.is_continue_as_new_suggested()
        or info.get_current_history_length() >= MAX_EVENTS
        or info.get_current_history_size() >= MAX_HISTORY_BYTES
        or (info.task_timeout > TASK_TIMEOUT and _has_run_for(LEAST_SECONDS))
    )


def _has_run_for(seconds: float) -> bool:
    return workflow.time() - workflow.info().workflow_start_time.timestamp() >= seconds


async def fit_unseen(state: State, activity_results: ActivityResults) -> None:
    """Unseen messages are handed over if they are small. Otherwise, they become a part of the prefix."""
    if size_of(state.unseen.messages) + size_of(state.unseen.in_events) > MAX_HANDED_BYTES:
        await extend_prefix(state, activity_results)


def fit_inbox(state: State, room: int) -> bool:
    """Whether the inbox can be handed to another run. If this one is full, which many long messages by signal can make
    it, the latest of them are cut until it can: the model reads that they were."""
    if fits(state.inbox.messages, room):
        return True
    if left_in_run():
        return False
    state.inbox.messages = list(cut_messages(state.inbox.messages, room))
    if not fits(state.inbox.messages, room):
        return False  # so many that even what is left of them has to be answered first
    workflow_log("inbox.cut", level="warning", messages=len(state.inbox.messages), kept_bytes=room)
    return True


def fits_with_open_calls(handed: Start) -> bool:
    """Whether an input with open calls is small enough for the next run."""
    return size_of(handed) <= MAX_OPEN_BYTES


async def extend_prefix(state: State, activity_results: ActivityResults) -> None:
    """Makes the unseen messages a part of the prefix, which is handed over by pointing to it."""
    delta, named = sent_messages.next_delta(state)
    request = ModelRequest(
        agent=state.agent,
        turn=state.turn + 1,
        position=state.prefix.position,
        digest=state.prefix.digest,
        delta=delta,
        named=named,
        **state.start.labels,
    )
    handle = workflow.start_activity(
        names.EXTEND_PREFIX, request, result_type=RawValue, summary="results too large to hand on", **prefix_options()
    )
    try:
        digest = await activity_results.wait_for(handle, str, "The digest of the transcript")
    except UnreadableResult:
        digest = ""  # a worker that needs the prefix reads it from the history
    state.take_in_unseen(digest)


def carry_over(state: State, recent: RecentMessages, chain: RunChain, *, reply: OpenReply | None = None) -> CarryOver:
    """What the next run begins with. `reply`: the one at hand, if its calls wait for people; what the model said in it
    is not cut then: it fits, or the run goes on."""
    handed = state.carry_over(earlier=_earlier_messages(state, recent), keep_by=_keep_by(state), reply=reply)
    return handed.model_copy(update={"chain_id": chain.id, "reset_run": chain.reset_run})


def _keep_by(state: State) -> float | None:
    """Half of what the histories of earlier runs have left to live; the oldest one decides."""
    if state.prefix.keep_by is not None or state.facts is None or state.facts.retention is None:
        return state.prefix.keep_by
    return workflow.time() + state.facts.retention / 2


def _earlier_messages(state: State, recent: RecentMessages) -> Earlier:
    """The prefix itself if it is small; else where it is: in this run's history, and in those before it."""
    here = StoredInRun(run_id=workflow.info().run_id)
    messages = whole_prefix(state, recent)
    if messages is None or sum(len(message.model_dump_json()) for message in messages) > LIKELY_TOO_LONG:
        return here
    packed = pack(messages)
    return PackedTranscript(data=packed) if len(packed) <= MAX_PACKED_BYTES else here
