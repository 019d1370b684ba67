"""Handoffs: who is in charge of a conversation, what that agent is shown, and what it is told when it takes over."""

from __future__ import annotations

from typing import Any

from everturn import names
from everturn.carryover import CarryOver, TranscriptView
from everturn.plans import RunHandoff
from everturn.records import Decision, Successor, Text, ToolCall, ToolResult
from everturn.sizes import MAX_HANDOFF_BYTES
from everturn.text.shortening import shortened

MAX_VIEWS = 16
"""How many agents' views are kept, for when they are in charge again. An agent whose view was dropped sees what its
predecessor sees."""


class InCharge:
    """The agent in charge of a conversation, and how the agents before it were shown the transcript."""

    def __init__(self, first_agent: str, model: str | None, carry: CarryOver) -> None:
        self.first_agent = first_agent
        """The agent that the conversation was started with."""
        self._first_model = model or ""
        """The model that was chosen for it at the start."""
        self.agent = carry.agent or first_agent
        self.handoffs = carry.handoffs
        """How many there were since a user last said something."""
        self.views_by_agent = dict(carry.views)

    @property
    def handed_on(self) -> bool:
        """Whether another agent is in charge than the one that it was started with."""
        return self.agent != self.first_agent

    @property
    def author(self) -> str:
        """The `author` of its messages."""
        if not self.handed_on:
            return ""
        return self.agent

    @property
    def model(self) -> str:
        """The model to ask in place of the agent's own; empty if nobody chose one."""
        if self.handed_on:
            return ""
        return self._first_model

    @property
    def carried(self) -> dict[str, Any]:
        """What the next run is told of this."""
        return {"agent": self.author, "handoffs": self.handoffs, "views": self.views_by_agent}

    def handoffs_left(self, most: int | None) -> int | None:
        """How often it may still be handed over before a user says something; None if nothing limits that."""
        if most is None:
            return None
        return max(0, most - self.handoffs)

    def pin(self, agent: str) -> None:
        """The conversation stays with this version of the agent in charge. `agent`: its full name."""
        if names.unversioned(agent) != self.agent:
            return  # it is of another agent, or of another version than the one that was asked for
        if not self.handed_on:
            self.first_agent = agent
        self.agent = agent

    def hand_over(self, to: Successor, view: TranscriptView | None) -> TranscriptView | None:
        """Puts another agent in charge; returns how that one is shown the transcript. `view`: how the last one was.

        An agent that was in charge before sees again what it saw, and what came since. Any other agent sees no more
        than the last one did. Both see less if the handoff says so.
        """
        self.views_by_agent[self.agent] = view or TranscriptView()
        known = (name for name in (self.first_agent, *self.views_by_agent) if names.unversioned(name) == to.agent)
        agent = next(known, to.agent)  # who was in charge before is so in the version that it was in
        begins = self.views_by_agent.pop(agent, None) or view or TranscriptView()
        self.agent = agent
        self.handoffs += 1
        while len(self.views_by_agent) > MAX_VIEWS:
            self.views_by_agent.pop(next(iter(self.views_by_agent)))
        changes: dict[str, int | None] = {"tools_from": max(begins.tools_from, to.tools_from)}
        if to.keep_from > begins.keep_from:  # a summary stands for what comes before
            changes |= {"keep_from": to.keep_from, "summary_at": None}
        narrowed = begins.model_copy(update=changes)
        if narrowed == TranscriptView():
            return None
        return narrowed


def result_of(
    call: ToolCall, plan: RunHandoff, *, handoffs_left: int | None, decision: Decision | None = None
) -> ToolResult:
    """What both agents find in the transcript; the one that takes over reads it next. `handoffs_left`: how often the
    conversation may yet be handed on before a user says something; None: without a limit."""
    if handoffs_left is not None and handoffs_left <= 0:
        text = "Not handed over: there were too many handoffs since the user's last message. Answer the user yourself."
        return ToolResult(
            call_id=call.call_id, name=call.name, content=(Text(text=text),), is_error=True, decision=decision
        )
    agent = plan.successor.agent
    message = plan.says(call, edited=decision.arguments if decision else None)
    words = [f"The conversation was handed over. You are {agent!r} now: continue with what the user asked for last."]
    if message.strip():
        words.append(f"The agent before you says: {shortened(message, max_bytes=MAX_HANDOFF_BYTES)}")
    if plan.note:
        words.append(plan.note)
    return ToolResult(
        call_id=call.call_id,
        name=call.name,
        content=(Text(text="\n\n".join(words)),),
        decision=decision,
        successor=plan.successor,
    )
