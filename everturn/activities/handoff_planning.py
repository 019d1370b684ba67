"""Plans a handoff: its filter says what the agent that takes over is shown. The filter is user code, so it runs here,
once, in the activity of the turn that hands the conversation over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities import compaction
from everturn.agent import Agent
from everturn.logs import get_logger
from everturn.payloads import ModelRequest
from everturn.plans import PlannedCall, RefuseCall, RunHandoff
from everturn.records import Message, Reply, Successor, results_in
from everturn.tools import user_code
from everturn.tools.context import ToolContext
from everturn.tools.handoff import HandOff, Shown
from everturn.tools.results import safe_error_text
from everturn.tools.with_context import with_context

_log = get_logger("everturn.turn")


@dataclass(frozen=True)
class SaidBefore:
    """What was said before the reply that hands the conversation on."""

    messages: Sequence[Message] = ()
    request: ModelRequest | None = None

    def messages_shown(self) -> Sequence[Message]:
        """The messages as the agent that replied sees them."""
        return compaction.messages_shown(self.messages, self.request.view if self.request else None)

    def from_message(self, message_count: int | None) -> int:
        """The index at which the last messages of users begin, as many as `message_count` says; 0 if it is None."""
        if message_count is None:
            return 0
        positions = [
            place for place, message in enumerate(self.messages) if message.role == "user" and not message.author
        ]
        if len(positions) < message_count:
            return 0
        return positions[-message_count]


async def plan_handover(
    agent: Agent, handoff: HandOff, run: dict[str, Any], said_before: SaidBefore, context: ToolContext, *, careful: bool
) -> PlannedCall:
    """`run`: what all plans of calls that run have in common. Raises ApplicationError, which stalls the conversation,
    if the filter fails."""
    selection = handoff.filter
    if not isinstance(selection, Shown):
        if careful:
            text = (
                f"Not handed over: workers were lost with this reply, so the filter of {handoff.name} is not run again."
            )
            return RefuseCall(call_id=run["call_id"], text=text)
        selection = await _call_filter(agent, handoff, said_before, context)
    successor = Successor(
        agent=handoff.to,
        keep_from=said_before.from_message(selection.last),
        tools_from=0 if selection.tools else len(said_before.messages) + 1,  # the reply that hands on, too
    )
    return RunHandoff(**run, successor=successor, note=selection.note)


async def _call_filter(agent: Agent, handoff: HandOff, before: SaidBefore, context: ToolContext) -> Shown:
    """What the filter says. It decides what another agent may see, so if it fails, nothing is handed over."""
    try:
        call = with_context(cast("Any", handoff.filter), before.messages_shown(), context=context)
        selection = await user_code.call(call, seconds=user_code.QUICK_SECONDS)
        if isinstance(selection, Shown):
            return selection
        problem = f"it returned {user_code.class_name(selection)}, not a Shown"
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        problem = await safe_error_text(error)
    _log.error("handoff.filter_failed", agent=agent.name, to=handoff.to, error=problem)
    raise ApplicationError(
        f"The filter of agent {agent.name!r} for its handoff to {handoff.to!r} failed: {problem}",
        {"cure": "Fix it and deploy, then `resume`: the model is asked again."},
        type=names.FILTER_FAILED,
        non_retryable=True,
    )


def one_at_the_most(plans: Sequence[PlannedCall]) -> list[PlannedCall]:
    """The plans with only the first handoff of a reply: a conversation can't go on in two places."""
    handing = [plan for plan in plans if isinstance(plan, RunHandoff)]
    if len(handing) < 2:
        return list(plans)
    to = handing[0].successor.agent
    text = f"Not handed over: only the first handoff of a reply counts. The conversation goes to {to!r}."
    return [
        RefuseCall(call_id=plan.call_id, text=text) if isinstance(plan, RunHandoff) and plan is not handing[0] else plan
        for plan in plans
    ]


def sign_reply(reply: Reply, request: ModelRequest) -> Reply:
    """The reply with the name of the agent that wrote it, if others wrote before it."""
    if not request.signed:
        return reply
    return reply.model_copy(update={"message": reply.message.model_copy(update={"author": request.agent})})


def takes_over(delta: Iterable[Message]) -> bool:
    """Whether the agent takes over with this turn. Then its conversation does not know the agent's facts yet."""
    return any(result.successor for result in results_in(delta).values())
