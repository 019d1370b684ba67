"""Whether a tool ran before a reset, in the part of the history that the reset undid.

`temporal workflow reset` goes back to an earlier point of a history, in a new run. What came later stays in the old
run, and what its tools did stays done: a payment is not taken back. So before a `once` tool runs in a conversation that
was reset, the old run is read. An activity does that, since a workflow does no I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everturn import names
from everturn.history.reader import HistoryReader
from everturn.history.resets import RESET
from everturn.history.steps import ActivityEnded, RunClosed, ToolCompleted, ToolRunFailed, ToolScheduled, TurnScheduled
from everturn.payloads import ToolRequest
from everturn.temporal.temporal_errors import not_found

MAX_RUNS = 1000
"""For so many runs, this process remembers whether a reset made them. That never changes."""

_made_by_reset: OrderedDict[str, bool] = OrderedDict()


@dataclass
class _RanBefore:
    """What the old runs say of one tool."""

    runs: dict[str, str] = field(default_factory=dict)
    """How each call of the tool ended there, by call_id, in words."""
    last_turn: int = 0
    gone: bool = False
    """Whether the history of an old run is deleted."""


async def check_not_run(tool: str, request: ToolRequest) -> None:
    """Raises ApplicationError if this call may have run before a reset, as itself or as an earlier call of the tool."""
    if request.again:
        return
    info = activity.info()
    client = activity.client()
    conversation_id = info.workflow_id or ""
    run_id = info.workflow_run_id or ""
    try:
        undone_run_id = request.reset_run
        if await _by_reset(client, conversation_id, run_id):
            undone_run_id = run_id
        if not undone_run_id:
            return
        undone = _RanBefore()
        await _read_run(client, conversation_id, undone_run_id, tool, undone, since=0, is_left=False, seen=set())
    except RPCError as error:
        reason = (
            f"the conversation was reset, and it is not known whether {tool} ran before: {error.message.rstrip('.')}"
        )
        raise ApplicationError(reason, type=names.NOT_CHECKED, non_retryable=True) from error
    if undone.gone:
        reason = "the history of the earlier run is deleted, and the tool may have run in it"
    elif undone.runs and request.turn <= undone.last_turn:
        calls = "; ".join(f"as call {call_id!r} {end}" for call_id, end in list(undone.runs.items())[-3:])
        reason = f"{tool} ran in the part that was undone ({calls})"
    else:
        return
    raise ApplicationError(f"the conversation was reset, and {reason}", type=names.RAN_BEFORE_RESET, non_retryable=True)


async def _by_reset(client: Client, conversation_id: str, run_id: str) -> bool:
    """Whether a reset made this run. Then its first event is a copy of the old run's, and names the old run."""
    if run_id not in _made_by_reset:
        handle = client.get_workflow_handle(conversation_id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1):
            began = event.workflow_execution_started_event_attributes
            _made_by_reset[run_id] = began.original_execution_run_id not in ("", run_id)
            break
        while len(_made_by_reset) > MAX_RUNS:
            _made_by_reset.popitem(last=False)
    return _made_by_reset.get(run_id, False)


async def _read_run(
    client: Client,
    conversation_id: str,
    run_id: str,
    tool: str,
    undone: _RanBefore,
    *,
    since: int,
    is_left: bool,
    seen: set[str],
) -> None:
    """Notes what the tool did in an old run, from event `since` on. Then reads the runs that this one was reset from,
    and the one that continued it."""
    if run_id in seen:
        return
    seen.add(run_id)
    reader = HistoryReader(client.data_converter)
    resets = list[tuple[str, int]]()
    open_calls = dict[str, str]()
    next_run = ""
    try:
        async for event in client.get_workflow_handle(conversation_id, run_id=run_id).fetch_history_events():
            failed = event.workflow_task_failed_event_attributes
            was_reset = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED and failed.cause == RESET
            if was_reset and event.event_id >= since and failed.base_run_id != run_id:
                resets.append((failed.base_run_id, event.event_id))
            if not is_left:
                continue
            match await reader.read_event(event):
                case (
                    ToolScheduled(request=request) | ToolCompleted(request=request) | ToolRunFailed(request=request)
                ) if request.result is not None:
                    pass  # hooks saw what it had brought
                case TurnScheduled(request=request) if event.event_id >= since:
                    undone.last_turn = max(undone.last_turn, request.turn)
                case ToolScheduled(request=request) as step if step.tool == tool:
                    undone.last_turn = max(undone.last_turn, request.turn)
                    open_calls[request.call_id] = "without a result"
                case ToolCompleted(request=request) | ActivityEnded(request=request) as step if step.tool == tool:
                    open_calls.pop(request.call_id, None)
                    if event.event_id >= since:
                        undone.runs[request.call_id] = f"in turn {request.turn}, with a result"
                case ToolRunFailed(request=request) as step if step.tool == tool and event.event_id < since:
                    open_calls.pop(request.call_id, None)
                case ToolRunFailed(request=request, kind=kind) as step if (
                    step.tool == tool and kind in names.NEVER_BEGUN
                ):
                    open_calls.pop(request.call_id, None)
                case RunClosed() as step:
                    next_run = step.next_run_id
                case _:
                    pass
    except RPCError as error:
        if not not_found(error):
            raise
        undone.gone = True
        return
    undone.runs |= open_calls
    for base_run_id, event_id in resets:
        await _read_run(client, conversation_id, base_run_id, tool, undone, since=event_id, is_left=True, seen=seen)
    if next_run:
        await _read_run(client, conversation_id, next_run, tool, undone, since=0, is_left=True, seen=seen)
