"""The people of the crash test: they talk, decide, help where a conversation is stalled, and may vanish at any moment.

Whoever comes in the place of one who vanished knows nothing but the conversation's id and the story.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio.service import RPCError

from everturn import Client, Conversation
from everturn.errors import Ended, EverturnError, NotFound, Refused, Stalled, Unreachable
from everturn.events import AnswerRequested, ApprovalRequested
from everturn.temporal import temporal_errors
from tests.crash.stories import Story

T = TypeVar("T")

RETRY_SECONDS = 0.2
KEEP_OPEN = timedelta(hours=1)
NO_WAIT = {"before": 0, "after": 0, "size": 0}


class People:
    """What they all share: the client, and what they noted for the report."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.seed = seed
        self.rng = random.Random(f"{seed}/people")
        self.repeats = 0.2
        self.decides: Iterator[str] = self._at_random()
        """What is done about the next call that waits for approval."""
        self.told: Counter[str] = Counter()
        """What they were told, and did, by kind."""
        self.rough: Counter[str] = Counter()
        """Errors that a client should never see, since they are not everturn's."""

    async def live(self, story: Story) -> None:
        """One person's part in a conversation, from wherever it stands to its end. May be cancelled anywhere."""
        conversation = await self._say(story, 0)
        deciding = asyncio.create_task(self._decide_until_cancelled(conversation))
        try:
            for number in range(len(story.messages)):
                if number:
                    conversation = await self._say(story, number)
                # Now and then, the next message comes while the answer is still under way.
                waits = self.rng.random() > 0.3 and not story.burst
                if story.revived or number == len(story.messages) - 1 or waits:
                    await self._reply(conversation)
                if story.revived or len(story.messages) == 1:
                    await self._patiently(conversation.outcome)
            if len(story.messages) > 1 and not story.revived:
                await self._try("close", conversation.close)
            await self._patiently(conversation.outcome)
        finally:
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)

    # ------------------------------------------------------------ talking

    async def _say(self, story: Story, number: int) -> Conversation:
        keep_open = KEEP_OPEN if len(story.messages) > 1 and not story.revived else None
        send = partial(
            self.client.send,
            story.agent,
            story.messages[number],
            id=story.id,
            keep_open=keep_open,
            message_id=f"m{number}",
        )
        conversation = await self._patiently(send)
        # It is safe to repeat, and a client that did not hear the answer does.
        return await self._patiently(send) if self.rng.random() < self.repeats else conversation

    async def _reply(self, conversation: Conversation) -> None:
        while True:
            try:
                await self._patiently(conversation.reply)
            except Stalled:
                self.told["stalled"] += 1
                await self._try("resume", conversation.resume)
            except Ended:
                return
            else:
                return

    # ------------------------------------------------------------ deciding

    async def _decide_until_cancelled(self, conversation: Conversation) -> None:
        cursor: str | None = None
        chain = ""
        while True:
            try:
                first = await self._first_run(conversation)
                if first != chain:
                    chain, cursor = first, None  # it was revived: another chain of runs, with events of its own
                async for event in conversation.events(since=cursor):
                    cursor = event.cursor
                    if isinstance(event, ApprovalRequested | AnswerRequested):
                        await self._decide(conversation, event)
            except Unreachable:
                self.told["unreachable"] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, somebody has to go on deciding
                self.rough[f"events: {type(error).__name__} {error}"] += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def _first_run(self, conversation: Conversation) -> str:
        handle = self.client.temporal.get_workflow_handle(conversation.id)
        described = await self._patiently(handle.describe)
        return described.raw_description.workflow_execution_info.first_run_id

    async def _decide(self, conversation: Conversation, event: ApprovalRequested | AnswerRequested) -> None:
        call_id = event.call.call_id
        while True:
            try:
                await self._patiently(lambda: self._decide_at_random(conversation, event))
            except Refused as error:
                status = await self._status(conversation)
                waits = status is not None and any(call_id == waiting.call_id for waiting in status.waiting)
                if "was already decided" in str(error) and not waits:
                    return
                if status is None or status.turn > event.turn or status.state in ("idle", "done"):
                    return
                if waits and "No call" in str(error):
                    self.told["refused, although the events said that it waits"] += 1
            except Ended:
                return
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _status(self, conversation: Conversation) -> Any:
        try:
            return await self._patiently(conversation.status)
        except Ended:
            return None

    async def _decide_at_random(self, conversation: Conversation, event: ApprovalRequested | AnswerRequested) -> None:
        call_id = event.call.call_id
        doubtful = event.reason == "outcome_unknown"
        if doubtful:
            self.told["outcome unknown"] += 1
        if isinstance(event, AnswerRequested):
            await conversation.answer(call_id, answer_to(call_id))
            return
        handle = self.client.temporal.get_workflow_handle(conversation.id)
        match next(self.decides):
            case "approve":
                await conversation.approve(call_id)
            case "edit":
                await conversation.approve(call_id, arguments=NO_WAIT, note="quickly")
            case "misedit":
                await conversation.approve(call_id, arguments={"before": "soon"})
            case "deny":
                await conversation.deny(call_id, reason="not today")
            case "answer":
                await conversation.answer(call_id, answer_to(call_id))
            case "signal":
                with temporal_errors.explained(self.client.temporal, conversation.id):
                    await handle.signal("approve", {"call_id": call_id, "by": "signal"})
                raise Refused("a signal is not answered: look whether it was taken")
            case "both":
                both = (conversation.approve(call_id), conversation.deny(call_id, reason="at the same time"))
                taken = await asyncio.gather(*both, return_exceptions=True)
                if errors := [one for one in taken if isinstance(one, BaseException)]:
                    raise errors[0]
                self.told["both of two decisions were taken"] += 1

    def _at_random(self) -> Iterator[str]:
        kinds = {"approve": 8, "edit": 2, "misedit": 1, "deny": 2, "answer": 2, "signal": 2, "both": 1}
        while True:
            yield self.rng.choices([*kinds], [*kinds.values()])[0]

    # ------------------------------------------------------------ patience

    async def _try(self, what: str, do: Callable[[], Awaitable[Any]]) -> None:
        try:
            await self._patiently(do)
        except (Refused, Ended) as error:
            self.told[f"{what}: {type(error).__name__}"] += 1

    async def _patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Asks again while nobody is there to answer, as a person would."""
        while True:
            try:
                return await do()
            except Unreachable:
                self.told["unreachable"] += 1
                if (task := asyncio.current_task()) and task.cancelling():
                    self.rough["a cancellation came out as Unreachable"] += 1
                    raise asyncio.CancelledError from None
            except NotFound as error:
                # It was started, and nobody removes it.
                self.rough[f"NotFound: {error.__cause__}"] += 1
            except EverturnError:
                raise
            except RPCError as error:
                self.rough[f"{error.status.name} {error.message}"] += 1
            await asyncio.sleep(RETRY_SECONDS)


def answer_to(call_id: str) -> str:
    return f"the answer to {call_id}"
