"""Decisions on many calls at once, of whichever conversations wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from pydantic import JsonValue

from everturn.client.conversation import Conversation
from everturn.errors import ConversationError, EverturnError, Refused
from everturn.explaining import explain
from everturn.payloads import WaitingCall
from everturn.policy import ANY_TOOL, Rule
from everturn.waiting import RULED

AT_ONCE = 8
"""Conversations that are asked at the same time."""


@dataclass(frozen=True)
class DecidedCall:
    """One of many."""

    conversation_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    refused: str = ""
    """Why the decision was not taken; empty if it was."""


@dataclass(frozen=True)
class Many:
    """What is decided, and on which calls."""

    verdict: Literal["approve", "deny"]
    rule: Rule
    """The tool, and what holds of the arguments."""
    words: str | None
    """For the model: a note, or why not."""
    always: bool
    within: timedelta | None

    @classmethod
    def of(
        cls,
        verdict: Literal["approve", "deny"],
        *,
        tool: str | None,
        where: Mapping[str, Any],
        words: str | None,
        always: bool,
        within: timedelta | None,
    ) -> Many:
        """Raises Refused for conditions that are none."""
        try:
            rule = Rule.model_validate({"tool": tool or ANY_TOOL, "then": verdict, "where": dict(where)})
        except ValueError as error:
            why = f"Invalid decision: {explain(error)}."
            raise Refused(why, cure="See everturn.policy.Condition.") from None
        return cls(verdict, rule, words, always, within)

    async def decide(self, conversation: Conversation) -> list[DecidedCall]:
        """On those of its calls that it is about. Each is bound to the arguments that were looked at."""
        try:
            waiting = (await conversation.status()).waiting
        except ConversationError:  # it has ended, or is gone, since it was listed
            return []
        found = [one for one in waiting if self._is_about(one)]
        return [await self._decide(conversation, one) for one in found]

    def _is_about(self, waits: WaitingCall) -> bool:
        return is_decidable(waits) and self.rule.applies(waits.tool, waits.arguments) is True

    async def _decide(self, conversation: Conversation, waits: WaitingCall) -> DecidedCall:
        always: bool | dict[str, Any] = self.always
        if self.always and self.rule.where:
            always = self.rule.model_dump(mode="json")["where"]
        refused = await decide_one(
            conversation,
            self.verdict,
            waits.call_id,
            words=self.words,
            expected=waits.arguments,
            always=always,
            within=self.within,
        )
        return DecidedCall(conversation.id, waits.call_id, waits.tool, waits.arguments, refused)


def is_decidable(waits: WaitingCall) -> bool:
    """Whether it may be decided on together with others: calls that may have run already, those whose edited arguments
    did not fit, and questions have to be decided by themselves."""
    return waits.needs == "approval" and waits.reason in RULED


async def decide_one(
    conversation: Conversation,
    verdict: Literal["approve", "deny"],
    call_id: str,
    *,
    words: str | None,
    expected: dict[str, JsonValue],
    always: bool | dict[str, Any] = False,
    within: timedelta | None = None,
) -> str:
    """Why the decision was not taken; empty if it was. `expected`: the arguments that were seen."""
    try:
        if verdict == "approve":
            await conversation.approve(call_id, note=words, expected=expected, always=always, within=within)
        else:
            await conversation.deny(call_id, words, always=always, within=within)
    except EverturnError as error:
        return error.message
    return ""


async def decided(many: Many, conversations: AsyncIterable[Conversation]) -> list[DecidedCall]:
    """In the order of the conversations."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(conversation: Conversation) -> list[DecidedCall]:
        async with places:
            return await many.decide(conversation)

    tasks = [asyncio.create_task(one(conversation)) async for conversation in conversations]
    return [call for calls in await asyncio.gather(*tasks) for call in calls]
