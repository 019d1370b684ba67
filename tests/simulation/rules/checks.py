"""What has to be true of every conversation, after each workflow task and at the end. What is not is a sentence."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import WorkflowExecutionStatus

from everturn import Client, names
from everturn.client.conversation import Conversation
from everturn.errors import EverturnError, Unreachable
from everturn.events import Event
from everturn.history import steps
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import BATCHED_STATUS, Status
from everturn.records import Message
from everturn.sizes import MAX_PAGE_BYTES, size_of
from everturn.state import State
from tests.simulation.agents.ledger import Ledger
from tests.simulation.agents.mcp_servers import Called
from tests.simulation.rules.acknowledged import SAID_RULES
from tests.simulation.rules.after_each_task import TASK_RULES, Moment
from tests.simulation.rules.carried import CARRIED_RULES
from tests.simulation.rules.chains import (
    CHAIN_RULES,
    keys_are_new_after_a_reset,
    once_is_once,
    what_a_terminated_life_had_is_kept,
    what_activities_brought_is_told,
)
from tests.simulation.rules.conversations import AFTER_RESETS, AFTER_TERMINATION, RULES, Evidence
from tests.simulation.rules.cut_replies import CUT_RULES, what_was_told_live_is_replied
from tests.simulation.rules.decided_beside import BESIDE_RULES
from tests.simulation.rules.events import EVENT_RULES, Returning, commands_are_told_by_name
from tests.simulation.rules.hooks import HOOK_RULES
from tests.simulation.rules.local_tools import LOCAL_RULES
from tests.simulation.rules.mcp import MCP_RULES
from tests.simulation.rules.policies import POLICY_RULES
from tests.simulation.rules.steering import STEERING_RULES
from tests.simulation.rules.tool_retries import RETRY_RULES
from tests.simulation.rules.turns import TURN_RULES
from tests.simulation.rules.waits import WAIT_RULES, Waits, untold
from tests.simulation.temporal.clock import EPOCH
from tests.simulation.temporal.instances import at_once
from tests.simulation.temporal.runs import Run
from tests.simulation.temporal.sdk_core import CachedRun
from tests.simulation.temporal.sealing import converter
from tests.simulation.temporal.server import Server
from tests.support.agreement import OF_A_TURN_WITHOUT_EVENTS, Told, ends_in_a_turn_without_events, facts

if TYPE_CHECKING:
    from tests.simulation.agents.model import SimulatedModel
    from tests.simulation.people.people import Person


FROM_EVERYWHERE = 0.06
"""How often events are read from each place there is; from one place, always."""

REPLAYED = 3
"""One run in so many replays at the end on a worker that has never seen it."""

LAST_MESSAGES = 3
"""Of a transcript, after each task: more must not follow them."""

LONGEST_LOCAL_SECONDS = 60.0
"""A workflow's clock goes on by what its local tools take; its history has only when its tasks began."""

ALL_RULES = (
    *RULES,
    *STEERING_RULES,
    *CHAIN_RULES,
    *EVENT_RULES,
    *HOOK_RULES,
    *POLICY_RULES,
    *RETRY_RULES,
    *WAIT_RULES,
    *TURN_RULES,
    *LOCAL_RULES,
    *MCP_RULES,
    *CUT_RULES,
    *SAID_RULES,
    *CARRIED_RULES,
    *BESIDE_RULES,
)
AFTER_A_TERMINATION = (*AFTER_TERMINATION, what_a_terminated_life_had_is_kept, what_activities_brought_is_told)
AFTER_A_RESET = (*AFTER_RESETS, commands_are_told_by_name, once_is_once, keys_are_new_after_a_reset)


class ReadRun:
    """A run's history, read as it grows."""

    def __init__(self, run: Run, *, sealed: bool = False) -> None:
        self.run = run
        self.seen = 0
        self.steps: list[steps.Step] = []
        self.by_history = StateByHistory(run_id=run.id)
        self._reader = HistoryReader(converter(sealed=sealed))
        self._told = Told()
        self._passed_over: set[str] = set()

    def read(self) -> None:
        events = self.run.history.events
        while self.seen < len(events):
            step = at_once(self._reader.read_event(events[self.seen]))
            self.seen += 1
            self.steps.append(step)
            if ends_in_a_turn_without_events(step, self.by_history.state):
                self._passed_over = OF_A_TURN_WITHOUT_EVENTS
            self.by_history.take_step(step)
            self._told.take(step)

    def differences(self, held: dict[str, Any]) -> dict[str, Any]:
        read = facts(self.by_history.state)
        compared = (name for name in held if name not in self._passed_over)
        found = {name: (held[name], read[name]) for name in compared if held[name] != read[name]}
        if "started_at" in found and abs(held["started_at"] - read["started_at"]) < LONGEST_LOCAL_SECONDS:
            del found["started_at"]
        return found | self._told.differences(self.by_history.state)


class Checks:
    def __init__(self, server: Server, ledger: Ledger, *, deploys: bool, loses_workers: bool) -> None:
        self.sealed = False
        self.mcp_calls: list[Called] = []
        """What is in histories is encrypted."""
        self.below = False
        """Who watches is told of the calls of agents that were asked, too."""
        self.number = 0
        """The world's: which runs are replayed at the end depends on it."""
        self.deploys = deploys
        self.loses_workers = loses_workers
        self.server = server
        self.ledger = ledger
        self.read_runs: dict[str, ReadRun] = {}
        self.watched: dict[str, list[Event]] = {}
        """What somebody saw who watched from the beginning."""
        self.transcripts: dict[str, tuple[Message, ...]] = {}
        self.events: dict[str, list[Event]] = {}
        """Of the last life of each conversation."""
        self.waits = Waits()
        self.client: Client | None = None
        """Of who looks at lists."""

    # ------------------------------------------------------------ after each workflow task

    def after_task(self, run: Run) -> None:
        if run.type != names.CONVERSATION:
            return
        try:
            self._look(run)
        except Exception as error:  # noqa: BLE001 - nobody awaits the worker's task: it would be lost
            at = traceback.extract_tb(error.__traceback__)[-1]
            self.server.wrong(f"a rule failed: {type(error).__name__}: {error}, in {at.name}, line {at.lineno}")

    def _look(self, run: Run) -> None:
        """The workflow's own state is that which its history says, and what its events tell."""
        if run.id not in self.read_runs:
            self.read_runs[run.id] = ReadRun(run, sealed=self.sealed)
        read = self.read_runs[run.id]
        before = len(read.steps)
        read.read()
        for step in read.steps[before:]:
            self.waits.take(run.workflow_id, step)
        last = read.steps[-1]
        if isinstance(last, steps.RunClosed) and not (last.outcome or last.next_run_id):
            return  # it failed: nothing was come to
        holder = next((worker.runs[run.id] for worker in self.server.workers if _is_at(worker, run)), None)
        if holder is None:
            return
        self.server.count("states compared")
        place = f"{run.workflow_id}, event {len(run.history)}"
        if found := read.differences(facts(holder.state)):
            self.server.wrong(f"{place}: the workflow's state (or what its events tell), the history's: {found}")
        self._shown(place, run, holder, read.by_history.transcript.messages)
        self._ruled(place, run, holder, read.by_history.transcript.messages)

    def _shown(self, place: str, run: Run, holder: CachedRun, read: Sequence[Message]) -> None:
        """What lists and queries say is what it is."""
        status = run.attributes.indexed_fields.get(names.EVERTURN_STATUS)
        known = holder.state.facts is not None and holder.state.facts.indexed
        known = known and not any(
            activity.name == names.EXTEND_PREFIX for activity in run.activities.values()
        )  # it moves on
        if status is not None and known and not run.next_run_id and json.loads(status.data) != _listed(holder):
            self.server.wrong(f"{place}: it is {holder.state.name}, and lists show it as {status.data!r}")
        if status is not None and known and not run.next_run_id:
            self._listed_as(place, run, holder.state)
        wanted = holder.state.prefix.position + len(holder.state.unseen.messages)
        page = holder.instance._object.transcript({"from": max(0, wanted - LAST_MESSAGES), "limit": 1000})
        last = [*read[-LAST_MESSAGES:], *holder.state.unseen.messages]  # as many as fit are in the page
        whole = page["from"] + len(page["messages"]) == wanted
        if page["total"] != wanted or not (whole or size_of(last) > MAX_PAGE_BYTES):
            self.server.wrong(f"{place}: the transcript query says {page['total']} messages, and there are {wanted}")
        elif whole and not _is_a_part(_said(page["messages"]), _said(read), holder.state):
            found, had = _said(page["messages"]), _said(read)
            self.server.wrong(f"{place}: the transcript query says {found}, and its history {had}")
        self._asked(place, holder)

    def _listed_as(self, place: str, run: Run, state: State) -> None:
        """What else lists say: they are written whenever the state's name or its agent changes."""
        found = {name: json.loads(one.data) for name, one in run.attributes.indexed_fields.items() if one.data}
        agent, tokens = found.get(names.EVERTURN_AGENT), found.get(names.EVERTURN_TOKENS, 0)
        if agent is not None and names.unversioned(agent) != names.unversioned(state.agent):
            self.server.wrong(f"{place}: {state.agent} is in charge, and lists show {agent}")
        if tokens > state.totals.usage.total_tokens:
            self.server.wrong(f"{place}: it used {state.totals.usage.total_tokens} tokens, and lists show {tokens}")

    def _asked(self, place: str, holder: CachedRun) -> None:
        """The status query says what the state is."""
        state, said = holder.state, holder.instance._object.status()
        wanted = {
            "state": state.name,
            "agent": state.agent,
            "turn": state.turn,
            "usage": state.totals.usage.model_dump(mode="json"),
            "waiting": [*state.pending],
            "policy": len(state.policy),
            **({"cause": state.stall.cause} if state.stall else {}),
        }
        told = Status.model_validate(said)
        found = {
            "state": told.state,
            "agent": told.agent,
            "turn": told.turn,
            "usage": told.usage.model_dump(mode="json"),
            "waiting": [waiting_call.call_id for waiting_call in told.waiting],
            "policy": len(told.policy),
            **({"cause": told.cause} if state.stall else {}),
        }
        if found != wanted:
            differ = {name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]}
            self.server.wrong(f"{place}: the status query says the first, and its state is the second: {differ}")

    def _ruled(self, place: str, run: Run, holder: CachedRun, read: list[Message]) -> None:
        moment = Moment(
            run,
            holder.state,
            self.ledger,
            EPOCH + self.server.loop.time(),
            seen=_last_start(run),
            was_reset=self.was_reset,
            quiet=not self.loses_workers,
            read=read,
            is_batched=_listed(holder) == BATCHED_STATUS,
        )
        for rule in TASK_RULES:
            for what in rule(moment):
                self.server.wrong(f"{place}: {what}")
        start = next((step.start for step in self.read_runs[run.id].steps if isinstance(step, steps.RunStarted)), None)
        untold_of = untold(run, start, holder.state) if start else ()
        moved = () if self.was_reset else self.waits.moved(run.workflow_id, holder.state.pending)
        for what in (*moved, *untold_of):
            self.server.wrong(f"{place}: {what}")

    @property
    def was_reset(self) -> bool:
        return any(run.base for run in self.server.runs.values())

    @property
    def _came_back(self) -> bool:
        """An operator has reset one that was over: who watched had gone by then."""
        bases = [self.server.runs[run.base[0]] for run in self.server.runs.values() if run.base]
        return any(run.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED for run in bases)

    # ------------------------------------------------------------ those who watch

    async def watch(self, conversation: Conversation, chance: random.Random) -> None:
        """Some follow the text as it is written, and some lose their connection now and then, and come back."""
        seen = self.watched[conversation.id] = []
        deltas, breaks = chance.random() < 0.5, chance.choice((0.0, 0.0, 0.2))
        broke = True
        while broke:
            since = next((one.cursor for one in reversed(seen) if not _is_live(one)), None)
            broke, before = False, len(seen)
            try:
                below = None if self.below else False
                async with aclosing(conversation.events(since=since, deltas=deltas, children=below)) as events:
                    async for event in events:
                        seen.append(event)
                        if broke := chance.random() < breaks:
                            break
            except Unreachable:  # they come back
                broke = True
                await asyncio.sleep(1.0)
            own = [event for event in seen[before:] if not event.child]
            for what in () if self.was_reset else what_was_told_live_is_replied(own):
                self.server.wrong(f"{conversation.id}: {what}")

    async def read(self, conversation: Conversation, chance: random.Random) -> None:
        """Reads a conversation that is over, with all that its readers have."""
        transcript = self.transcripts[conversation.id] = await conversation.transcript()
        whole = [event async for event in conversation.events(deltas=False)]
        was_reset = self.was_reset  # who was there saw what was undone, too
        await self._since_before(conversation, whole)
        self.events[conversation.id] = whole
        if whole and not was_reset:
            place = chance.randrange(len(whole))
            cursor, after = whole[place].cursor, whole[place + 1 :]
            rest = [event async for event in conversation.events(since=cursor, deltas=False)]
            if rest != after:
                self.server.wrong(f"{conversation.id}: events since {cursor} are {_kinds(rest)}, not {_kinds(after)}")
            if chance.random() < FROM_EVERYWHERE:
                self._from_everywhere(conversation.id, whole)
        lasting, ended = [], False
        for _ in range(6):  # on the way over a reset, some requests may take their time, one after the other
            await asyncio.sleep(5.0)
            lasting = [one for one in self.watched.get(conversation.id, []) if not _is_live(one)]
            ended = not lasting or bool(self.server.retention) or self._saw_the_end(lasting, whole)
            if ended:
                break
        self.watched.pop(conversation.id, None)
        if not ended:
            self.server.wrong(f"{conversation.id}: it is over, and who watched is told nothing after {_kinds(lasting)}")
        if self.server.index:
            await self._listed(conversation, chance)
        same_life = not was_reset and bool(lasting and whole) and lasting[0].cursor == whole[0].cursor
        if same_life and [one.cursor for one in lasting] != [one.cursor for one in whole]:
            self.server.wrong(f"{conversation.id}: watched live, {_kinds(lasting)}; read afterwards, {_kinds(whole)}")
        await self._at_its_end(conversation)
        if not transcript:
            self.server.wrong(f"{conversation.id}: its transcript is empty")

    async def _at_its_end(self, conversation: Conversation) -> None:
        """What status() and outcome() say of one that is over."""
        status, outcome = await conversation.status(), None
        if status.state != "done":
            self.server.wrong(f"{conversation.id}: it is over, and its status is {status.state}")
        run = self.server.find(conversation.id)
        read = self.read_runs.get(run.id)
        closed = read.by_history.finished if read else None
        with suppress(EverturnError):  # of one that failed or was reset
            outcome = await conversation.outcome()
        if closed is None or closed.outcome is None or self.server.find(conversation.id) is not run:
            return
        if outcome.model_dump() != closed.outcome.model_dump():  # with the type that its client knows
            self.server.wrong(f"{conversation.id}: outcome() is {outcome}, and its history ends with {closed.outcome}")
        if (status.turn, status.usage) != (closed.outcome.turns, closed.outcome.usage):
            found = f"turn {status.turn} and {status.usage}"
            self.server.wrong(f"{conversation.id}: its status says {found}, and its history {closed.outcome}")

    def _saw_the_end(self, lasting: list[Event], whole: list[Event]) -> bool:
        """Of this life: whoever watched an earlier one has seen its end."""
        before = self._life_of(lasting[-1]) != self._life_of(whole[-1])
        return lasting[-1].cursor == whole[-1].cursor or ((before or self._came_back) and _is_done(lasting))

    def _life_of(self, event: Event) -> str:
        """The first run of it: a message may revive what has just ended."""
        return self.server.runs[event.cursor.partition("/")[0]].first_run_id

    async def _listed(self, conversation: Conversation, chance: random.Random) -> None:
        """What the index says once it has heard of all."""
        assert self.client
        latest = self.server.find(conversation.id)
        how = "terminated" if latest.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED else "done"
        asked = chance.choice((None, "done")) if self.server.indexed and how == "done" else None
        begun = latest.history.events[0].event_time.ToDatetime(UTC)
        found = [one async for one in self.client.conversations(status=asked) if one.id == conversation.id]
        if not self.server.indexed:
            how = how if how == "terminated" else "completed"
        if [one.status for one in found if one.started_at == begun] != [how]:
            self.server.wrong(f"{conversation.id}: it is {how}, and listed as {[one.status for one in found]}")
        if any(one.ended_at is None for one in found):
            self.server.wrong(f"{conversation.id}: it is over, and a list has it as one that goes on: {found}")

    async def _since_before(self, conversation: Conversation, whole: list[Event]) -> None:
        """Whoever has a cursor of the life before is told all of this one."""
        before = self.events.get(conversation.id, [])
        if len(before) < 2 or self.server.retention or self.was_reset:
            return
        cursor = before[-2].cursor
        rest = [event.cursor async for event in conversation.events(since=cursor, deltas=False)]
        if rest[-1:] != [whole[-1].cursor]:
            self.server.wrong(f"{conversation.id}: events since {cursor} end before those of its next life")

    def _from_everywhere(self, conversation_id: str, whole: list[Event]) -> None:
        """Whoever comes back has what follows, whichever event they saw last."""
        runs = [read for read in self.read_runs.values() if read.run.workflow_id == conversation_id]
        for read in runs:
            read.read()
        returning = Returning([(read.run.id, read.steps) for read in runs])
        for place, event in enumerate(whole):
            rest = returning.told(event.cursor)
            if rest != whole[place + 1 :]:
                found = f"are {_kinds(rest)}, not {_kinds(whole[place + 1 :])}"
                self.server.wrong(f"{conversation_id}: events since {event.cursor} {found}")
                return

    # ------------------------------------------------------------ at the end

    def at_the_end(self, people: Person, model: SimulatedModel) -> list[str]:
        found = list(self._replays())
        for conversation_id in self.transcripts:
            evidence = self._evidence(conversation_id, people, model)
            told = evidence.told
            rules = AFTER_A_TERMINATION if told.terminated else AFTER_A_RESET if told.reset else ALL_RULES
            found += [f"{conversation_id}: {what}" for rule in rules for what in rule(evidence)]
            found += [f"{conversation_id}: {what}" for what in people.of(conversation_id).rough]
        return found

    def _evidence(self, conversation_id: str, people: Person, model: SimulatedModel) -> Evidence:
        own = [read for read in self.read_runs.values() if read.run.workflow_id == conversation_id]
        for read in own:
            read.read()
        return Evidence(
            id=conversation_id,
            agent=own[0].by_history.state.start.agent,
            transcript=self.transcripts[conversation_id],
            runs=[(read.run, read.steps) for read in own],
            asked=[asked for asked in model.asked if asked.conversation_id == conversation_id],
            effects=self.ledger.of(conversation_id),
            told=people.of(conversation_id),
            deploys=self.deploys,
            events=self.events[conversation_id],
            seen=self.server.seen.get(conversation_id, ()),
            begun=frozenset(call_id for known, call_id in self.ledger.begun if known == conversation_id),
            labelled=people.labelled,
            sealed=self.sealed,
            tries=[tried for tried in self.ledger.tries if tried.conversation_id == conversation_id],
            quiet=not self.loses_workers,
            mcp_calls=[called for called in self.mcp_calls if called.conversation_id == conversation_id],
        )

    def _replays(self) -> Iterator[str]:
        """Some runs replay on a worker that has never seen them, and come to the same. Others have: those whose workers
        were lost, or had no room for them."""
        for number, run in enumerate(self.server.runs.values(), self.number):
            if number % REPLAYED:
                continue
            fresh = CachedRun(run.id, sealed=self.sealed)
            try:
                fresh.replay(run.history.events)
            except Exception as error:  # noqa: BLE001 - whatever it is, a real one would not go on
                yield f"run {run.id} of {run.workflow_id} does not replay: {type(error).__name__}: {error}"
                continue
            self.server.count("replays at the end")
            read = self.read_runs.get(run.id)
            if read and fresh.instance and run.closed and read.by_history.finished and read.seen == len(run.history):
                last = read.by_history.finished
                if (last.outcome or last.next_run_id) and (found := read.differences(facts(fresh.state))):
                    yield f"run {run.id} of {run.workflow_id}, replayed: {found}"
            fresh.evict()


def _said(messages: Sequence[Message]) -> list[tuple[str, str, list[str]]]:
    """Whether a message is cut does not matter here."""
    return [
        (message.role, message.text[:20], [result.call_id for result in message.tool_results]) for message in messages
    ]


def _is_a_part(page: list[Any], read: list[Any], state: State) -> bool:
    """Whether a page is what a reader of the history has, but for results that no turn was asked with yet, and for
    messages that wait for their turn."""
    for unseen in range(min(len(state.unseen.messages), len(page)) + 1):
        known = page[: len(page) - unseen]
        for waiting in range(min(len(state.inbox.messages) + len(state.unseen.messages), len(read)) + 1):
            end = len(read) - waiting
            if read[max(0, end - len(known)) : end] == known[-end:] if end else not known:
                return True
    return False


def _listed(holder: CachedRun) -> str:
    """What lists say of it."""
    is_batched = holder.state.name == "running" and holder.instance._object._batches.cause
    return BATCHED_STATUS if is_batched else str(holder.state.name)


def _is_at(worker: Any, run: Run) -> bool:
    """This worker has just done the run's last task."""
    cached = worker.runs.get(run.id)
    return cached is not None and cached.instance is not None and cached.done == _last_start(run)


def _last_start(run: Run) -> int:
    for event in reversed(run.history.events):
        if event.HasField("workflow_task_completed_event_attributes"):
            return int(event.workflow_task_completed_event_attributes.started_event_id)
    return 0


def _is_live(event: Event) -> bool:
    live = ("text_delta", "thinking_delta", "tool_progress", "turn_retried", "turn_limited")
    return event.kind in live or bool(event.child)


def _kinds(events: list[Event]) -> str:
    return ", ".join(event.kind for event in events)


def _is_done(events: list[Event]) -> bool:
    return events[-1].kind == "done"
