"""What the crash test finds afterwards: histories, transcripts, effects and requests, each from its own source.

The histories are read as Temporal gives them, and not by everturn's own reader, which is under test.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from everturn import names
from everturn.batching.collector import BatchCollectorWorkflow
from everturn.records import Message
from everturn.storage.data_converter import data_converter
from everturn.workflows.conversation import ConversationWorkflow
from tests.crash.ledger import Effect
from tests.crash.stories import Asked, Story

if TYPE_CHECKING:
    from tests.crash.storm import Hit, Storm

AT_ONCE = 16


@dataclass
class Run:
    """One scheduled activity: a model turn, or a run of a tool with all its tries."""

    run_id: str
    activity_id: str
    name: str
    input: dict[str, Any]
    tries: int = 0
    started_at: float = 0.0
    """Its last try."""
    ended_at: float | None = None
    how: str = ""
    """completed, failed, timed out, never began; empty while it is open."""


@dataclass
class Evidence:
    """Of one conversation."""

    story: Story
    runs: list[str] = field(default_factory=list)
    activities: list[Run] = field(default_factory=list)
    chains: dict[str, str] = field(default_factory=dict)
    """The first run of each run's chain."""
    handed_on: list[int] = field(default_factory=list)
    """Of each run that was continued as a new one: how many messages waited in its inbox."""
    approvals: dict[str, list[Any]] = field(default_factory=dict)
    """Approvals that reached the conversation, by call_id: the arguments that each put in the place of the model's."""
    task_failures: list[str] = field(default_factory=list)
    task_timeouts: int = 0
    lost: int = 0
    """Tries of activities that ended without a report."""
    divergence: str = ""
    """Why a replay of its histories failed."""
    events: int = 0
    transcript: tuple[Message, ...] = ()
    asked: list[Asked] = field(default_factory=list)
    effects: dict[str, list[Effect]] = field(default_factory=dict)
    """By call_id."""
    lines: list[Line] = field(default_factory=list)
    task_times: list[float] = field(default_factory=list)
    """When workflow tasks were completed."""
    cost_usd: float | None = None

    def turns(self) -> dict[int, list[Run]]:
        """The runs of `call_model`, by turn."""
        turns: dict[int, list[Run]] = {}
        for run in self.activities:
            if run.name == "call_model":
                turns.setdefault(run.input["turn"], []).append(run)
        return turns

    def runs_of(self, call_id: str) -> list[Run]:
        return [run for run in self.activities if run.input.get("call_id") == call_id]


async def gather(storm: Storm) -> list[Evidence]:
    """The evidence of every conversation that was started."""
    effects: dict[str, dict[str, list[Effect]]] = {}
    for effect in storm.ledger.effects():
        conversation_id, _, rest = effect.key.partition(":")
        effects.setdefault(conversation_id, {}).setdefault(rest.rpartition(":")[2], []).append(effect)
    asked: dict[int, list[Asked]] = {}
    for one in storm.author.asked:
        asked.setdefault(one.story, []).append(one)
    room = asyncio.Semaphore(AT_ONCE)
    logs = [log.read_text(errors="replace") for log in storm.folder.glob("worker-*.log")]

    async def of(story: Story) -> Evidence | None:
        async with room:
            evidence = Evidence(story, asked=asked.get(story.number, []), effects=effects.get(story.id, {}))
            try:
                await _read_histories(storm, evidence)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND and story.number in storm.stuck:
                    return None  # nobody came to start it; that it has not ended is said elsewhere
                raise
            evidence.lines = [line for log in logs for line in lines_of(log, story.id)]
            conversation = storm.client.conversation(story.id)
            evidence.transcript = await conversation.transcript()
            if story.is_batched:
                evidence.cost_usd = (await conversation.status()).cost_usd
            return evidence

    return [one for one in await asyncio.gather(*map(of, storm.stories)) if one]


async def collectors_problems(storm: Storm) -> list[str]:
    """What is wrong with the histories of those who gathered the batches."""
    query = f"WorkflowType = '{names.BATCHES}' AND TaskQueue = '{storm.client.task_queue}'"
    problems = []
    async for run in storm.client.temporal.list_workflows(query):
        history = await storm.client.temporal.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        failures = [failure for event in history.events for failure in _task_failures(event)]
        problems += [f"a workflow task failed: {failure}" for failure in failures]
        if divergence := await _divergence(storm, history):
            problems.append(f"its history does not replay: {divergence}")
    return problems


async def _divergence(storm: Storm, history: WorkflowHistory) -> str:
    """Why a replay fails. It is not for a mutant's."""
    if storm.mutant:
        return ""
    replayer = Replayer(workflows=[ConversationWorkflow, BatchCollectorWorkflow], data_converter=data_converter)
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return str(result.replay_failure or "")


async def _read_histories(storm: Storm, evidence: Evidence) -> None:
    temporal, conversation_id = storm.client.temporal, evidence.story.id
    # A conversation that was revived is several chains of runs, and nothing in a history names the chain before it. The
    # index may not know a run yet, after a database that was gone: what took effect names its chain, by its first run.
    left = [workflow.run_id async for workflow in temporal.list_workflows(f"WorkflowId = '{conversation_id}'")]
    named = {effect.key.split(":")[1] for effects in evidence.effects.values() for effect in effects}
    left += named
    left.append((await temporal.get_workflow_handle(conversation_id).describe()).run_id)
    while left:
        run_id = left.pop()
        if not run_id or run_id in evidence.runs:
            continue
        try:
            history = await temporal.get_workflow_handle(conversation_id, run_id=run_id).fetch_history()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND and run_id in named:
                continue  # a key that nothing made: the invariants say so
            raise
        evidence.runs.append(run_id)
        started = history.events[0].workflow_execution_started_event_attributes
        left.append(started.continued_execution_run_id)
        evidence.chains[run_id] = started.first_execution_run_id
        _read(history, run_id, evidence)
        evidence.divergence = evidence.divergence or await _divergence(storm, history)


def _read(history: WorkflowHistory, run_id: str, evidence: Evidence) -> None:
    scheduled: dict[int, Run] = {}
    evidence.events += len(history.events)
    for event in history.events:
        at = event.event_time.ToDatetime(tzinfo=UTC).timestamp()
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                activity = event.activity_task_scheduled_event_attributes
                given = json.loads(activity.input.payloads[0].data)
                scheduled[event.event_id] = Run(run_id, activity.activity_id, activity.activity_type.name, given)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                started = event.activity_task_started_event_attributes
                scheduled[started.scheduled_event_id].tries = started.attempt
                scheduled[started.scheduled_event_id].started_at = at
                # Only the last try has an event; it says how the one before it ended.
                evidence.lost += started.last_failure.HasField("timeout_failure_info")
                evidence.lost += started.last_failure.application_failure_info.type == "WorkerLost"
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                _end(scheduled, event.activity_task_completed_event_attributes.scheduled_event_id, at, "completed")
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                kind = failed.failure.application_failure_info.type
                how = "never began" if kind == names.NEVER_STARTED else "failed"
                _end(scheduled, failed.scheduled_event_id, at, how)
                evidence.lost += kind in (names.WORKER_LOST, names.NEVER_STARTED)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                _end(scheduled, event.activity_task_timed_out_event_attributes.scheduled_event_id, at, "timed out")
                evidence.lost += 1
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                evidence.task_times.append(at)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                evidence.task_timeouts += 1
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                evidence.task_failures += _task_failures(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                given = event.workflow_execution_continued_as_new_event_attributes.input.payloads[0].data
                evidence.handed_on.append(len(json.loads(given)["carry"].get("inbox", ())))
            case _:
                for call_id, edited in _approvals(event):
                    evidence.approvals.setdefault(call_id, []).append(edited)
    evidence.activities += scheduled.values()


def _end(scheduled: dict[int, Run], event_id: int, at: float, how: str) -> None:
    scheduled[event_id].ended_at, scheduled[event_id].how = at, how


def _task_failures(event: HistoryEvent) -> Iterator[str]:
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return
    failed = event.workflow_task_failed_event_attributes
    # New events came in while the task ran, and it is done again: Temporal's everyday business.
    if failed.cause != WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND:
        yield f"{WorkflowTaskFailedCause.Name(failed.cause)}: {failed.failure.message}"


def _approvals(event: HistoryEvent) -> Iterator[tuple[str, Any]]:
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
        update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        name, payloads = update.name, update.args.payloads
    elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
        signal = event.workflow_execution_signaled_event_attributes
        name, payloads = signal.signal_name, signal.input.payloads
    else:
        return
    if name == "approve":
        given = json.loads(payloads[0].data)
        yield given["call_id"], given.get("arguments")


@dataclass(frozen=True)
class Line:
    """Of a worker's log, about a model turn."""

    turn: int
    at: str
    """HH:MM:SS"""
    waited: float
    """How many seconds the try had waited for the model's rate limit."""


def lines_of(log: str, conversation_id: str) -> Iterator[Line]:
    for line in log.splitlines():
        told = re.search(r"^(\d\d:\d\d:\d\d) .* (?:turn|prefix)\.\S+ conversation=(\S+) turn=(\d+) ", line)
        if told and told[2] == conversation_id:
            waited = re.search(r" waited_seconds=([\d.]+)", line)
            yield Line(int(told[3]), told[1], float(waited[1]) if waited else 0.0)


def _logged(lines: list[Line], since: float) -> Iterator[float]:
    """When a worker had a turn in hand, as the lines after this time tell. They name no day, and no part of a second.
    The model may have been asked much later, or never: the worker waited for its limit, or the connection broke."""
    day = 24 * 60 * 60
    for line in lines:
        hours, minutes, seconds = map(int, line.at.split(":"))
        then = time.localtime(since)
        later = (hours - then.tm_hour) * 3600 + (minutes - then.tm_min) * 60 + seconds - then.tm_sec
        if 0 < later % day < day / 2:
            yield int(since) + later % day - line.waited


def resumed_at(hit: Hit, killed_at: float, evidence: Evidence) -> float | None:
    """When what a killed worker had been doing was taken up again; None where it needed no other hand."""
    run = next(
        (
            activity
            for activity in evidence.activities
            if (activity.run_id, activity.activity_id) == (hit.run_id, hit.activity_id)
        ),
        None,
    )
    if run is None or (run.how == "completed" and (run.ended_at or 0) < killed_at):
        return None  # it was over when the worker died; the server had not said so yet
    if run.name == "call_model" and evidence.story.is_batched:
        times = [run.started_at]
    elif run.name == "call_model":
        # Requests hold the replies before them; whose turn it is follows from how many.
        times = [one.at for one in evidence.asked if one.turn == run.input["turn"] - 1]
        times += _logged([line for line in evidence.lines if line.turn == run.input["turn"]], killed_at)
    elif run.tries <= 1 and run.how in ("timed out", "failed", "never began"):
        # A once tool: it is taken up when a person is asked, or, if it had not begun, sent again.
        times = [at for at in evidence.task_times if at >= (run.ended_at or 0)]
    else:
        times = [effect.at for effect in evidence.effects.get(run.input.get("call_id", ""), ()) if effect.attempt > 1]
    return min((at for at in times if at > killed_at), default=None)
