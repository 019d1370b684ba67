"""Decides on the waiting calls of many conversations at once."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from everturn.calls.pending_calls import RULED
from everturn.errors import ConversationError, EverturnError, Refused, Unreachable
from everturn.payloads import WaitingCall
from everturn.policy import ANY_TOOL, Rule
from everturn.records import ApproveOrDeny
from everturn.system.bounded_concurrency import in_order
from everturn.validation.explaining import explain

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation

AT_ONCE = 8
"""How many conversations are worked on at the same time."""


@dataclass(frozen=True)
class DecidedCall:
    """A call, and whether the decision on it was accepted."""

    conversation_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    refused: str = ""
    """Why the decision was not accepted; empty if it was."""


@dataclass(frozen=True)
class DecisionForMany:
    """A decision, and which calls it is for."""

    verdict: ApproveOrDeny
    rule: Rule
    """Which tool and which arguments it is for."""
    words: str | None
    """What the model reads: the note of an approval, or the reason of a denial."""
    always: bool
    within: timedelta | None
    children: bool = False
    """It is also for the calls of the conversations' sub-agents."""
    _claimed: set[tuple[str, str]] = field(default_factory=set)
    """The conversations and ids of the calls that were decided on: a sub-agent's may be found by way of several."""

    @classmethod
    def from_options(
        cls,
        verdict: ApproveOrDeny,
        *,
        tool: str | None,
        where: Mapping[str, Any],
        words: str | None,
        always: bool,
        within: timedelta | None,
        children: bool = False,
    ) -> DecisionForMany:
        """Raises Refused for invalid conditions."""
        try:
            rule = Rule.model_validate({"tool": tool or ANY_TOOL, "then": verdict, "where": dict(where)})
        except ValueError as error:
            raise Refused(f"Invalid decision: {explain(error)}.", cure="See everturn.policy.Condition.") from None
        return cls(verdict, rule, words, always, within, children)

    async def decide(self, conversation: Conversation) -> list[DecidedCall]:
        """Decides on the matching calls of a conversation. Each decision holds only for the arguments read here."""
        try:
            waiting = (await conversation.status(children=self.children)).waiting
        except ConversationError:  # it has ended, or is gone, since it was listed
            return []
        decided: list[DecidedCall] = []
        for call in waiting:
            place = conversation.where(call)
            if self._is_about(call) and (place.id, call.call_id) not in self._claimed:
                self._claimed.add((place.id, call.call_id))
                decided.append(await self._decide_call(place, call))
        return decided

    def _is_about(self, waits: WaitingCall) -> bool:
        return is_decidable(waits) and self.rule.applies(waits.tool, waits.arguments) is True

    async def _decide_call(self, conversation: Conversation, waits: WaitingCall) -> DecidedCall:
        always: bool | dict[str, Any] = self.always
        if self.always and self.rule.where:
            always = self.rule.model_dump(mode="json")["where"]
        refused = await decide_one(
            conversation,
            self.verdict,
            waits.call_id,
            words=self.words,
            expected=waits,
            always=always,
            within=self.within,
        )
        return DecidedCall(conversation.id, waits.call_id, waits.tool, waits.arguments, refused)


def is_decidable(waits: WaitingCall) -> bool:
    """Whether it may be decided on together with other calls. A person decides one by one on calls that may have run
    already, on calls whose edited arguments were invalid, and on questions."""
    return waits.needs == "approval" and waits.reason in RULED


async def decide_one(
    conversation: Conversation,
    verdict: ApproveOrDeny,
    call_id: str,
    *,
    words: str | None,
    expected: WaitingCall | dict[str, JsonValue],
    always: bool | dict[str, Any] = False,
    within: timedelta | None = None,
) -> str:
    """Decides on a call of the conversation itself. Returns why the decision was not accepted; empty if it was.
    `expected`: the call as it was seen; or its arguments, which only an approval depends on."""
    options: dict[str, Any] = {"always": always, "within": within, "children": False}
    try:
        if verdict == "approve":
            await conversation.approve(call_id, note=words, expected=expected, **options)
        else:
            seen = expected if isinstance(expected, WaitingCall) else None
            await conversation.deny(call_id, words, expected=seen, **options)
    except Unreachable as error:  # it says nothing of the call: it may be decided once that is over
        return f"{error.message} {error.cure}".strip()
    except EverturnError as error:
        return error.message
    return ""


async def decide_all(many: DecisionForMany, conversations: AsyncIterable[Conversation]) -> list[DecidedCall]:
    """All decided calls, in the order of the conversations. A call of a sub-agent that was named beside its parent is
    decided once."""
    decided = await in_order(conversations, many.decide, max_running=AT_ONCE)
    return [call for calls in decided for call in calls]
