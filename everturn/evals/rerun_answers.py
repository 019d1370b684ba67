"""The hook that answers the calls of a rerun from what was recorded: no tool that may have an effect runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from everturn.agent import Agent
from everturn.client.client import Client
from everturn.evals.candidates import harmless_settings, may_read
from everturn.evals.cases import CASE
from everturn.evals.matching_calls import choose_place
from everturn.evals.recorded import Recorded, RecordedCall, read_recorded
from everturn.hooks import LONGEST_TIMEOUT, Hooks, ModelInput, StopWith
from everturn.records import Message, Text, ToolCall, ToolResult
from everturn.tools.context import ToolContext, TurnContext

RERUN_OF: Final = "everturn_rerun_of"
"""The key of a rerun's metadata that has the id of the recorded conversation."""
AT_TURN: Final = "everturn_rerun_at_turn"
"""The key for the turn whose reply alone is asked for."""

HOOK_NAME: Final = "everturn-rerun"

Matcher = Callable[[ToolCall, ToolCall], bool]
"""Whether a call of the candidate's (first) may be answered with the result of a recorded one (second)."""

Answer = ToolResult | str | None
V = TypeVar("V")

StandIn = Callable[[ToolCall, ToolContext], Answer | Awaitable[Answer]]
"""Plays a tool whose call is not recorded: returns its result, or None to end the rerun there."""


@dataclass
class _AnsweredCalls:
    """Which calls of a rerun were answered by which recorded ones."""

    earlier: list[int] = field(default_factory=list)
    """Places of recorded calls that answered calls of turns before those that this process has seen."""
    by_try: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By turn and attempt: the places that its reply's calls have taken."""

    def taken_calls(self, turn: int, attempt: int) -> set[int]:
        """By earlier turns, the last attempt at each, and by this attempt."""
        last: dict[int, list[int]] = {}
        for (of_turn, of_attempt), places in sorted(self.by_try.items()):
            if of_turn < turn or (of_turn, of_attempt) == (turn, attempt):
                last[of_turn] = places
        return {*self.earlier, *(place for places in last.values() for place in places)}

    def passed(self, turn: int) -> int:
        """The last place that earlier turns have taken; -1 if there is none."""
        return max(self.taken_calls(turn, 0), default=-1)


class RecordedAnswers(Hooks):
    """Answers each call of a rerun: with the recorded result of the same call, with a stand-in's, or with the end of
    the rerun. Only what says that it reads may run, and only if `run_reads`."""

    name = HOOK_NAME
    timeout = LONGEST_TIMEOUT

    def __init__(
        self,
        source: Client,
        host: Client,
        *,
        run_reads: bool = False,
        matches: Matcher | None = None,
        stand_in: StandIn | None = None,
    ) -> None:
        self._source = source
        self._host = host
        self._run_reads = run_reads
        self._matches = matches
        self._stand_in = stand_in
        self._recorded: dict[str, asyncio.Future[Recorded]] = {}
        self._answered: dict[str, asyncio.Future[_AnsweredCalls]] = {}
        self._ends: set[tuple[str, str]] = set()
        """Calls that end their rerun, by its id and theirs."""
        self.agents: Mapping[str, Agent] = {}
        """The candidate and the agents that it knows, by name."""
        self.times_spoken: dict[str, int] = {}
        """How often people have spoken in a rerun by now, by its id."""

    def remember_recorded(self, recorded: Recorded) -> None:
        """Spares reading it once more. A case can't be read elsewhere: its calls wait for this."""
        known = self._recorded.setdefault(recorded.key or recorded.id, asyncio.get_running_loop().create_future())
        if not known.done():
            known.set_result(recorded)

    def before_model(self, given: ModelInput, context: TurnContext) -> ModelInput | None:  # noqa: ARG002 - as of Hooks
        """Hooks of the candidate's may have changed the settings."""
        settings = harmless_settings(given.settings)
        if settings is given.settings:
            return None
        return replace(given, settings=settings)

    async def before_tool(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        if AT_TURN in context.metadata:
            return self._end_rerun(call, context, "Only this reply was asked for.")
        agent = self.agents.get(context.agent)
        if agent and agent.handoff(call.name):
            return None  # another agent takes over, which has this hook as well
        recorded = await self._find_recorded(str(context.metadata[RERUN_OF]))
        answered = await self._read_once(
            self._answered, context.conversation_id, lambda _: self._read_on(recorded, context)
        )
        place = self._find_call(
            recorded,
            call,
            answered.taken_calls(context.turn, context.attempt),
            passed=answered.passed(context.turn),
            times_spoken=self.times_spoken.get(context.conversation_id, 1),
        )
        if place is not None:
            answered.by_try.setdefault((context.turn, context.attempt), []).append(place)
            return _as_result(call, recorded.calls[place].result_for(call))
        tool = agent.tool(call.name) if agent else None
        if self._run_reads and may_read(tool):
            return None
        if tool is not None and tool.effect == "read" and (same := _last_same(recorded, call)) is not None:
            return _as_result(call, same.result_for(call))  # it was read before, and is read once more
        played = await self._play_tool(call, context)
        return played or self._end_rerun(call, context, f"{call.name} was not called like this.")

    def after_tool(self, call: ToolCall, result: ToolResult, context: ToolContext) -> StopWith | None:
        if (context.conversation_id, call.call_id) in self._ends:
            return StopWith(f"The rerun ends here: {result.text}")
        return None

    # ------------------------------------------------------------ underneath

    async def _find_recorded(self, key: str) -> Recorded:
        if key.startswith(CASE):
            # A rerun that an earlier process began may go on before this one has come to its case.
            loop = asyncio.get_running_loop()
            return await asyncio.shield(self._recorded.setdefault(key, loop.create_future()))
        return await self._read_once(self._recorded, key, self._read_source)

    def _find_call(
        self, recorded: Recorded, call: ToolCall, used: set[int], *, passed: int, times_spoken: int
    ) -> int | None:
        places = [
            place
            for place, known in enumerate(recorded.calls)
            if place not in used and known.result is not None and self._fits_call(call, known)
        ]
        return choose_place(recorded.calls, places, passed=passed, times_spoken=times_spoken)

    def _fits_call(self, call: ToolCall, known: RecordedCall) -> bool:
        if known.is_same(call) or self._matches is None or call.name != known.call.name:
            return known.is_same(call)
        match = self._matches(call, known.call)
        if not isinstance(match, bool):  # what is not clearly a yes would give a call another one's result
            raise TypeError(f"matches= returned {match!r:.100}, and not True or False")
        return match

    async def _play_tool(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        if self._stand_in is None:
            return None
        given = self._stand_in(call, context)
        if inspect.isawaitable(given):
            given = await given
        return _as_result(call, given)

    def _end_rerun(self, call: ToolCall, context: ToolContext, reason: str) -> ToolResult:
        self._ends.add((context.conversation_id, call.call_id))
        return ToolResult(call_id=call.call_id, name=call.name, content=(Text(text=reason),), is_error=True)

    async def _read_source(self, conversation_id: str) -> Recorded:
        return await read_recorded(self._source, conversation_id)

    async def _read_on(self, recorded: Recorded, context: ToolContext) -> _AnsweredCalls:
        """What earlier turns of the rerun took, if another process had run them."""
        answered = _AnsweredCalls()
        if context.turn > 1:
            rerun = await read_recorded(self._host, context.conversation_id)
            passed, turn = -1, 0
            for earlier in rerun.calls:
                if earlier.turn > turn:
                    passed, turn = max(answered.earlier, default=-1), earlier.turn
                if earlier.turn < context.turn and earlier.result and earlier.result.by_hook:
                    used = set(answered.earlier)
                    place = self._find_call(
                        recorded, earlier.call, used, passed=passed, times_spoken=earlier.times_spoken
                    )
                    if place is not None:
                        answered.earlier.append(place)
        return answered

    @staticmethod
    async def _read_once(known: dict[str, asyncio.Future[V]], key: str, read: Callable[[str], Awaitable[V]]) -> V:
        """What `read` returns: read once, also if several calls want it at the same time."""
        if key not in known:
            known[key] = asyncio.ensure_future(read(key))
        try:
            return await asyncio.shield(known[key])
        except BaseException:
            if known[key].done():
                known.pop(key, None)
            raise


def _as_result(call: ToolCall, given: Answer) -> ToolResult | None:
    """As the result of this call, which has an id of its own."""
    if given is None:
        return None
    if isinstance(given, str):
        return ToolResult(call_id=call.call_id, name=call.name, content=(Text(text=given),))
    if not isinstance(given, ToolResult):
        raise TypeError(f"stand_in= returned {given!r:.100}, and not a ToolResult, a text or None")
    return ToolResult(call_id=call.call_id, name=call.name, content=given.content, is_error=given.is_error)


def _last_same(recorded: Recorded, call: ToolCall) -> RecordedCall | None:
    return next((known for known in reversed(recorded.calls) if known.result and known.is_same(call)), None)


def ended_at(messages: tuple[Message, ...]) -> ToolCall | None:
    """The call at which a rerun ended, since nothing recorded answers it; None if it went to its end."""
    calls = {call.call_id: call for message in messages for call in message.tool_calls}
    for message in messages:
        for result in message.tool_results:
            if ends_rerun(result):
                return calls.get(result.call_id)
    return None


def ends_rerun(result: ToolResult) -> bool:
    return any(action.hook == HOOK_NAME and action.did == "stopped" for action in result.hooks)
