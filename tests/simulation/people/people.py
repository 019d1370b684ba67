"""People: they talk, decide, steer and help, at any moment, twice, and with what makes no sense.

What they were told is remembered: it is what the conversation has to keep.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.client.conversation import Conversation
from everturn.errors import AlreadyStarted, Ended, EverturnError, NotFound, Refused, Stalled, Unreachable
from everturn.limits import Limits
from everturn.payloads import AskedAgent, Status, WaitingCall
from everturn.subagents.call_addresses import shortest_name
from tests.simulation.agents.cast import CHOOSING, tools_for
from tests.simulation.people import moves
from tests.simulation.situations.situation import USUAL, Habits
from tests.simulation.temporal.dispatch import QUEUE
from tests.simulation.temporal.resets import points

if TYPE_CHECKING:
    from everturn import Client
    from tests.simulation.temporal.server import Server

JUNK: tuple[tuple[str, Any], ...] = (
    ("approve", {"call_id": "nobody"}),
    ("approve", {"call_id": 7}),
    ("answer", {"call_id": "*"}),
    ("message", {}),
    ("message", {"text": 5}),
    ("resume", {"model": "nonsense"}),
    ("cancel_turn", [1]),
    ("unheard_of", {}),
    ("withdraw", {"update_id": "none"}),
)


EARLIER = ({"role": "user", "content": "said before"}, {"role": "assistant", "content": "answered before"})
"""What conversations begin with, if they begin with a transcript."""

WAITS = "waits"
"""The signal that tells of calls that wait, of conversations that were started to send it."""

MOST_RESETS = 6
"""Of one conversation: each copies its history."""

LONGEST_LOOK = 120.0
"""Seconds between two looks, while nothing changes."""


@dataclass
class Acknowledged:
    """What the people of one conversation were told."""

    said: dict[str, str] = field(default_factory=dict)
    """Messages that were acknowledged, by their ids."""
    maybe: dict[str, str] = field(default_factory=dict)
    """Those that may have come through."""
    decided: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Decisions that were acknowledged: the verdict, the call, what went with it."""
    terminated: bool = False
    ended: bool = False
    """Somebody closed, cancelled or ended it."""
    reset: bool = False
    """An operator went back to an earlier point: what came after it is undone."""
    resets: int = 0
    replies: list[tuple[str, str]] = field(default_factory=list)
    """What was answered, as reply() has it, to what was said."""
    given_up: list[tuple[str, str]] = field(default_factory=list)
    """What reply() gave up on, and why."""
    notes: list[str] = field(default_factory=list)
    """Each of one decision."""
    not_taken: list[str] = field(default_factory=list)
    """Those of decisions that somebody was told were not taken."""
    crowded: bool = False
    """Many people spoke at once, so that their messages have no order."""
    began_with: bool = False
    """It was started with the transcript EARLIER."""
    rough: list[str] = field(default_factory=list)
    """Errors that nobody should see."""


@dataclass
class Character:
    """How often somebody does what."""

    messages: int
    impatience: float
    """How often they do something while nobody asks for it."""
    seconds: float
    """Between two looks."""
    resets: float
    """How often a disturbance is an operator's reset."""
    waits: float
    """How often somebody waits for the answer to what they said."""
    limits: tuple[tuple[str, int], ...]
    """Those that the conversation is started with."""
    habits: Habits = USUAL


def labels(conversation_id: str) -> dict[str, Any]:
    """What a conversation is started with beside its message."""
    return {"tenant": f"tenant of {conversation_id}", "metadata": {"user": conversation_id, "level": 3}}


class Person:
    def __init__(self, client: Client, server: Server, chance: random.Random, character: Character) -> None:
        self.client = client
        self.server = server
        self.chance = chance
        self.character = character
        self.told: dict[str, Acknowledged] = {}
        self.started: set[str] = set()
        self.waiting: list[asyncio.Task[None]] = []
        self.large = False
        """What they say is about as long as may be, or longer."""
        self.earlier = False
        """They start conversations with a transcript."""
        self.labelled = False
        """They start conversations for a tenant, and with metadata."""
        self.notified = False
        """They start conversations that tell another workflow of calls that wait."""
        self.below = False
        """They decide on the calls of agents that were asked at the conversation that asked, and nowhere else."""
        self.expects_answers = False
        """Before they close a conversation that idles, they look whether everybody has their answer."""

    def of(self, conversation_id: str) -> Acknowledged:
        return self.told.setdefault(conversation_id, Acknowledged())

    async def say(self, agent: str, conversation_id: str, *, keep_open: timedelta | None) -> bool:
        """One message, and now and then the same once more. False if it is over."""
        told = self.of(conversation_id)
        number = len(told.said) + len(told.maybe)
        message_id, text = f"m{number}", f"message {number} of {conversation_id}"
        if self.large:
            text += " " + "x" * min(
                self.chance.choice((100, 100_000, 390_000, 450_000)), 450_000 if number else 390_000
            )
        told.maybe[message_id] = text
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            try:
                conversation = await self._send(
                    agent, text, id=conversation_id, keep_open=keep_open, message_id=message_id, first=number == 0
                )
            except (Refused, AlreadyStarted):
                return True
            except (Ended, Unreachable):
                return False
            if message_id in told.maybe:
                told.said[message_id] = told.maybe.pop(message_id)
                if self.chance.random() < self.character.waits:
                    task = asyncio.get_running_loop().create_task(
                        self._await_reply(conversation, text), name=conversation.id
                    )
                    self.waiting.append(task)
        return True

    async def _send(self, agent: str, text: str, *, first: bool, **options: Any) -> Conversation:
        limits = self.character.limits
        if agent == CHOOSING:
            options["tools"] = tools_for(text)
        if self.earlier and first and options["id"] not in self.started:
            self.started.add(options["id"])
            self.of(options["id"]).began_with = True
            return await self.client.start(agent, text, transcript=EARLIER, **options)
        if self.labelled:
            options |= labels(options["id"])
        if self.notified and first and options["id"] not in self.started:
            self.started.add(options["id"])
            return await self._start_elsewhere(agent, text, **options)
        if first and limits and options["id"] not in self.started:
            self.started.add(options["id"])
            return await self.client.start(agent, text, limits=Limits(**dict(limits)), **options)
        return await self.client.send(agent, text, stream=self.chance.choice((None, True, False)), **options)

    async def _start_elsewhere(self, agent: str, text: str, **options: Any) -> Conversation:
        """As another program does that knows the wire, and wants a workflow to be told of calls that wait."""
        keep_open, message_id = options["keep_open"], options["message_id"]
        told = {"workflow_id": self.chance.choice(("desk", options["id"])), "signal": WAITS}
        start = {"agent": agent, "message": text, "message_id": message_id, "notify": told}
        start |= {"keep_open": keep_open.total_seconds()} if keep_open else {}
        try:
            await self.client.temporal.start_workflow(names.CONVERSATION, start, id=options["id"], task_queue=QUEUE)
        except WorkflowAlreadyStartedError as error:
            raise AlreadyStarted(str(error)) from error
        return self.client.conversation(options["id"])

    async def _await_reply(self, conversation: Conversation, text: str) -> None:
        """What a program is told that says something and waits for the answer."""
        while True:
            try:
                self.of(conversation.id).replies.append((text, await conversation.reply()))
            except Stalled:
                await asyncio.sleep(30.0)
                continue
            except Ended as error:
                self.of(conversation.id).given_up.append((text, str(error)))
            except (NotFound, Unreachable):
                pass
            return

    async def look_after(self, conversation: Conversation, agent: str, *, keep_open: timedelta | None) -> None:
        """Sees to it that the conversation comes to its end."""
        patience, seconds, before = 0, self.character.seconds, None
        status: Status | None = None
        at: object = None
        while True:
            await asyncio.sleep(min(self.chance.expovariate(1.0 / seconds), 2 * LONGEST_LOOK))
            try:
                if status is None or status.agents or at != self.server.moment(conversation.id):
                    at = self.server.moment(conversation.id)
                    status = await conversation.status(children=self.below)
            except (Unreachable, NotFound):
                status = None
                patience += 1
                if patience > 2_000:
                    raise
                continue
            if status.state == "done":
                return
            for asked in status.agents:
                await self._help(self.client.conversation(asked.conversation_id), asked.agent)
            for waiting in status.waiting:
                if waiting.path:
                    await self._decide_below(conversation, waiting, status.waiting)
            if self.below and status.agents:
                await self._see_what_waits_below(conversation, status.agents[0])
            status = status.model_copy(
                update={"waiting": tuple(waiting_call for waiting_call in status.waiting if not waiting_call.path)}
            )
            now = (status.state, status.turn, len(status.waiting), bool(status.agents))
            seconds = min(2 * seconds, LONGEST_LOOK) if now == before else self.character.seconds
            before = now
            await self._act(conversation, status, agent, keep_open)

    async def _help(self, conversation: Conversation, agent: str) -> None:
        """Sees to what an agent's conversation waits for that was asked by another."""
        try:
            status = await conversation.status(children=False)
        except (Unreachable, NotFound):
            return
        if status.state == "stalled" or (status.state in ("awaiting_approval", "awaiting_answer") and not self.below):
            await self._act(conversation, status, agent, None)

    async def _see_what_waits_below(self, conversation: Conversation, asked: AskedAgent) -> None:
        """What waits in its conversation before and after somebody looks at the one that asked is seen there."""
        below = self.client.conversation(asked.conversation_id)
        try:
            before = await below.status(children=False)
            seen = await conversation.status()
            after = await below.status(children=False)
        except (Unreachable, NotFound):
            return
        shown = {call.call_id for call in seen.waiting if call.path and call.path[-1] == asked}
        left_out = {call.call_id for call in before.waiting} & {call.call_id for call in after.waiting} - shown
        if left_out and asked in seen.agents:
            self.server.wrong(f"{conversation.id}: its status has not that {sorted(left_out)} of {asked.agent} wait")

    async def _decide_below(
        self, conversation: Conversation, waiting: WaitingCall, among: Sequence[WaitingCall]
    ) -> None:
        """Decides on a call of an agent that was asked, at the conversation that asked it."""
        call_id, there = waiting.call_id, self.of(conversation.where(waiting).id)
        name = self.chance.choice((call_id, shortest_name(waiting, among)))
        match verdict := self.chance.choice(("approve", "approve", "deny", "answer")):
            case "deny":
                taken = await self._try(conversation, lambda: conversation.deny(name, reason="no"))
            case "answer":
                taken = await self._try(conversation, lambda: conversation.answer(name, f"A{call_id}"))
            case _:
                taken = await self._try(conversation, lambda: conversation.approve(name))
        self.server.note(f"somebody's {verdict} of {name} at {conversation.id} was taken for {taken or 'no call'}")
        if not taken:
            return
        there.decided.append((verdict, call_id, {}))
        below = conversation.where(waiting)
        after = await self._try(below, lambda: below.status(children=False))
        if after and any(call == waiting.model_copy(update={"path": ()}) for call in after.waiting):
            self.server.wrong(f"{below.id}: {call_id} was decided on at {conversation.id}, and waits as before")

    async def _act(self, conversation: Conversation, status: Status, agent: str, keep_open: timedelta | None) -> None:
        if self.chance.random() < self.character.impatience:
            await self._disturb(conversation, agent, keep_open)
            return
        match status.state:
            case "awaiting_approval" | "awaiting_answer":
                for waiting in status.waiting:
                    await self._decide(conversation, waiting)
            case "stalled" | "paused" if (what := self._one_of(self.character.habits.held)) != "resume":
                await moves.steer(self, what, conversation, agent, keep_open)
            case "stalled" | "paused":
                model = self.chance.choice((None, None, None, "scripted:chosen"))
                await self._try(conversation, lambda: conversation.resume(model=model))
            case "idle":
                if len(self.of(conversation.id).said) < self.character.messages:
                    await self.say(agent, conversation.id, keep_open=keep_open)
                else:
                    if self.expects_answers:
                        await self._see_who_waits(conversation)
                    self.of(conversation.id).ended = True
                    await self._try(conversation, conversation.close)
            case _:
                pass

    async def _see_who_waits(self, conversation: Conversation) -> None:
        """Nobody waits for an answer of a conversation that idles: what there is to say is said."""
        left = [task for task in self.waiting if not task.done() and task.get_name() == conversation.id]
        if left:
            before = self.server.moment(conversation.id)
            _, late = await asyncio.wait(left, timeout=LONGEST_LOOK)
            if late and before == self.server.moment(conversation.id):
                self.server.wrong(f"{conversation.id} idles, and somebody waits for its answer")

    async def _decide(self, conversation: Conversation, waiting: WaitingCall) -> None:
        call_id, chance, told = waiting.call_id, self.chance, self.of(conversation.id)
        if waiting.needs == "answer":
            if chance.random() < 0.2:
                await self._decided(conversation, "deny", call_id, lambda: conversation.deny(call_id))
            else:
                await self._decided(
                    conversation, "answer", call_id, lambda: conversation.answer(call_id, f"A{call_id}")
                )
            return
        match what := chance.choice(self.character.habits.decisions):
            case "approve":
                await self._decided(conversation, "approve", call_id, lambda: conversation.approve(call_id))
            case "edit":
                edited = {**waiting.arguments, "cents": 77} if "cents" in waiting.arguments else waiting.arguments
                await self._decided(
                    conversation, "approve", call_id, lambda: conversation.approve(call_id, arguments=edited), **edited
                )
            case "misedit":
                await self._decided(
                    conversation, "misedit", call_id, lambda: conversation.approve(call_id, arguments={"x": [1]})
                )
            case "deny":
                await self._decided(conversation, "deny", call_id, lambda: conversation.deny(call_id, reason="no"))
            case "answer":
                await self._decided(
                    conversation, "answer", call_id, lambda: conversation.answer(call_id, f"A{call_id}")
                )
            case "signal":
                by = chance.choice(("me", "stranger"))
                await self._signal(conversation, "approve", {"call_id": call_id, "by": by})
            case "every":
                await self._decided(conversation, "approve", "*", conversation.approve)
            case "twice":
                note = "break" if chance.random() < 0.3 else "again"
                for _ in range(2):
                    await self._decided(
                        conversation, "approve", call_id, lambda: conversation.approve(call_id, note=note)
                    )
            case "both":
                both = (conversation.approve(call_id), conversation.deny(call_id, reason="at the same time"))
                answers = await asyncio.gather(*both, return_exceptions=True)
                for answer in answers:
                    if isinstance(answer, Exception) and not isinstance(answer, EverturnError):
                        told.rough.append(f"{type(answer).__name__}: {answer}")
                if all(isinstance(answer, tuple) and call_id in answer for answer in answers):
                    told.decided.append(("both", call_id, {}))
            case _:
                await moves.decide(self, what, conversation, waiting)

    async def _decided(
        self, conversation: Conversation, verdict: str, call_id: str, do: Callable[[], Awaitable[Any]], **more: Any
    ) -> None:
        taken = await self._try(conversation, do)
        self.server.note(f"somebody's {verdict} of {call_id} {more or ''} was taken for {taken or 'no call'}")
        for one in taken or ():
            self.of(conversation.id).decided.append((verdict, one, more))

    async def _disturb(self, conversation: Conversation, agent: str, keep_open: timedelta | None) -> None:
        told, chance = self.of(conversation.id), self.chance
        if chance.random() < self.character.resets:
            await self._reset(conversation)
            return
        match what := chance.choice(self.character.habits.unasked):
            case "pause":
                await self._try(conversation, conversation.pause)
            case "resume":
                await self._try(conversation, conversation.resume)
            case "junk":
                await self._signal(conversation, *chance.choice(JUNK))
            case "say":
                await self.say(agent, conversation.id, keep_open=keep_open)
            case "burst":
                for _ in range(3):
                    await self._signal(conversation, "pause", {})
                    await self._signal(conversation, "resume", {})
            case "cancel_turn":
                await self._try(conversation, conversation.cancel_turn)
            case "close" if chance.random() < 0.4:
                told.ended = True
                await self._try(conversation, conversation.close)
            case "cancel" if chance.random() < 0.1:
                told.ended = told.terminated = True
                handle = self.client.temporal.get_workflow_handle(conversation.id)
                await self._try(conversation, lambda: handle.terminate("somebody did"))
            case "cancel" if chance.random() < 0.3:
                told.ended = True
                handle = self.client.temporal.get_workflow_handle(conversation.id)
                await self._try(conversation, handle.cancel)
            case "close" | "cancel":
                pass
            case _:
                await moves.steer(self, what, conversation, agent, keep_open)

    def _one_of(self, habits: tuple[str, ...]) -> str:
        return habits[0] if len(habits) == 1 else self.chance.choice(habits)

    async def _reset(self, conversation: Conversation) -> None:
        """An operator goes back to an earlier point."""
        service = self.client.temporal.workflow_service
        run_id = await conversation.latest_run()
        found = await self.client.temporal.get_workflow_handle(conversation.id, run_id=run_id).fetch_history()
        told = self.of(conversation.id)
        if (possible := list(points(found.events))) and told.resets < MOST_RESETS:
            told.resets += 1
            request = ResetWorkflowExecutionRequest(
                namespace="default",
                workflow_execution={"workflow_id": conversation.id, "run_id": run_id},  # type: ignore[arg-type]
                reason="the operator said so",
                workflow_task_finish_event_id=self.chance.choice(possible),
            )
            told.reset = True
            await self._try(conversation, lambda: service.reset_workflow_execution(request))

    async def _signal(self, conversation: Conversation, name: str, payload: Any) -> None:
        handle = self.client.temporal.get_workflow_handle(conversation.id)
        await self._try(conversation, lambda: handle.signal(name, payload))

    async def _try(self, conversation: Conversation, do: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await do()
        except (Refused, Ended, Unreachable, Stalled, NotFound, AlreadyStarted):
            return None
        except RPCError as error:
            over = "already completed" in error.message or "not found" in error.message
            away = error.status is RPCStatusCode.UNAVAILABLE and self.server.may_leave
            if not (over or away):
                self.of(conversation.id).rough.append(f"{error.status.name} {error.message}")
            return None
