"""What has to be true of calls that wait for people: since when, until when, whose word counts, and who is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from everturn import names
from everturn.calls.pending_calls import PendingCall
from everturn.history import steps
from everturn.payloads import Start, WaitNotice
from everturn.state import State
from everturn.storage.data_converter import data_converter
from tests.simulation.agents.cast import AGENTS
from tests.simulation.people.people import WAITS
from tests.simulation.rules.conversations import Evidence
from tests.simulation.temporal.history import attributes, kind
from tests.simulation.temporal.runs import Run

PLAIN = {
    names.APPROVE: {"call_id", "by", "note"},
    names.DENY: {"call_id", "by", "reason"},
    names.ANSWER: {"call_id", "by", "content"},
}
"""What a plain word has: the first one about a call is the one that counts."""


ANSWERED = ("outside", "inquire", "computer")
"""Calls that wait for an answer, and not for an approval."""


class Waits:
    """Since when each call waits, through all runs of a conversation: what nobody has changed stays so."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[datetime, datetime | None]] = {}
        self._needs: dict[tuple[str, str], str] = {}
        """A client's call waits for its approval, then anew for its answer."""

    def take(self, conversation_id: str, step: steps.Step) -> None:
        match step:
            case steps.ToolRunFailed(request=request, kind=kind) if kind != names.INVALID_EDIT:
                self._known.pop((conversation_id, request.call_id), None)
            case steps.TurnCompleted() | steps.RunStarted(previous_run_id=""):
                for known in [key for key in self._known if key[0] == conversation_id]:
                    del self._known[known]
            case _:
                pass

    def moved(self, conversation_id: str, pending: Mapping[str, PendingCall]) -> Iterator[str]:
        for call_id, one in pending.items():
            if not one.asked.since or one.is_doubtful:
                continue
            now = (one.since, one.expires)
            if self._needs.get((conversation_id, call_id), one.needs) != one.needs:
                self._known.pop((conversation_id, call_id), None)
            self._needs[conversation_id, call_id] = one.needs
            before = self._known.setdefault((conversation_id, call_id), now)
            if now != before:
                yield f"{call_id} waits since {now[0]} until {now[1]}, and it was since {before[0]} until {before[1]}"


def the_first_word_counts(one: Evidence) -> Iterator[str]:
    """Of several plain decisions on a call that waits, the one that came first: where nobody else has a say, and while
    nothing else has happened to the call."""
    agent = AGENTS.get(one.agent)
    if agent is None or agent.approvers or agent.approvals.expire_after or one.agent == "hooked":
        return
    taken = {result.call_id: result.decision for message in one.transcript for result in message.tool_results}
    for call_id, said in _said_of_calls(one).items():
        decision = taken.get(call_id)
        if said and decision and decision.by == "me" and not decision.by_policy and decision.verdict != said[0]:
            yield f"{call_id} counts as {decision.verdict}, and people said {said}"


def _said_of_calls(one: Evidence) -> dict[str, list[str]]:
    """The verdicts on each call since its reply, if all of them are plain, and none is about every call."""
    said: dict[str, list[str]] = {}
    odd: set[str] = set()
    for _, taken in one.runs:
        for step in taken:
            match step:
                case steps.CommandSent(name=name, payload=payload) if name in names.DECISIONS:
                    call_id, by = str(payload.get("call_id")), payload.get("by")
                    if call_id == names.EVERY_CALL:
                        odd.update(said)
                    elif call_id not in said or by != "me" or not payload.keys() <= PLAIN.get(name, set()):
                        odd.add(call_id)
                    else:
                        said[call_id].append(name)
                case steps.CommandSent(name=names.SET_POLICY | names.CANCEL_TURN | names.CLOSE | names.WITHDRAW):
                    odd.update(said)
                case steps.CancelRequested():
                    odd.update(said)
                case steps.TurnCompleted(reply=reply):
                    # An approval is no word on a call that waits for its answer.
                    said |= {call.call_id: [] for call in reply.message.tool_calls if call.name not in ANSWERED}
                case steps.ToolRunFailed(request=request):
                    odd.add(request.call_id)
                case _:
                    pass
    return {call_id: verdicts for call_id, verdicts in said.items() if call_id not in odd}


# ------------------------------------------------------------ who is told


def _notices(run: Run) -> Iterator[tuple[datetime, WaitNotice]]:
    for event in run.history.events:
        if kind(event) == "signal_external_workflow_execution_initiated":
            sent = attributes(event)
            if sent.signal_name == WAITS:
                (said,) = data_converter.payload_converter.from_payloads([*sent.input.payloads], [dict])
                yield event.event_time.ToDatetime(), WaitNotice.model_validate(said)


def who_wants_to_be_told_is_told_once(one: Evidence) -> Iterator[str]:
    """Of each call that waits, and again if it waits again; also from run to run."""
    for run, taken in one.runs:
        start = next((step.start for step in taken if isinstance(step, steps.RunStarted)), None)
        if start is None or start.notify is None:
            continue
        again = Counter(
            step.request.call_id if isinstance(step, steps.ToolRunFailed) else step.check.call.call_id
            for step in taken
            if isinstance(step, steps.ToolRunFailed | steps.DecisionChecked)
        )
        handed = _handed(start)
        told = Counter(call.call_id for _, notice in _notices(run) for call in notice.waiting)
        for call_id, times in told.items():
            if times > again[call_id] + (call_id not in handed):
                yield f"run {run.id} told {times} times that {call_id} waits"


def untold(run: Run, start: Start, state: State) -> Iterator[str]:
    """After each task: what waits, and nobody was told of it, in this run or in the one before."""
    if start.notify is None:
        return
    handed = _handed(start)
    told = {call.call_id: call for _, notice in _notices(run) for call in notice.waiting}
    for call_id, one in state.pending.items():
        if one.asked.since and call_id not in told and call_id not in handed:
            yield f"{call_id} waits, and nobody was told of it"
        elif call_id in told and (told[call_id].tool, told[call_id].reason) != (one.call.name, one.asked.reason):
            yield f"{call_id} of {one.call.name} waits ({one.asked.reason}), and what was told last is {told[call_id]}"


def _handed(start: Start) -> set[str]:
    """The calls that waited in the run before."""
    left = start.carry.open if start.carry else None
    return {asked.call_id for asked in left.waits} if left else set()


WAIT_RULES = (the_first_word_counts, who_wants_to_be_told_is_told_once)
