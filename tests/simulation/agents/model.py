"""The model of the simulation: replies, calls tools, fails in every way, is slow; and what it was shown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity

from everturn import Patience, errors
from everturn.providers.base import Delta, Request
from everturn.providers.call_ids import call_ids
from everturn.records import Message, Reply, Text, Thinking, ToolCall, Usage
from tests.simulation.agents.cast import HANDING, RENAMED
from tests.simulation.agents.local_tools import LINGERS
from tests.simulation.agents.mcp import MCP_TOOLS
from tests.simulation.agents.words import words_of
from tests.simulation.chance import Chances

FAILURES: dict[str, Callable[[], Exception]] = {
    "rate": lambda: errors.RateLimited("429", status=429, retry_after=3.0),
    "rate, long": lambda: errors.RateLimited("429", status=429, retry_after=600.0),
    "unavailable": lambda: errors.Unavailable("503", status=503),
    "connection": lambda: errors.ConnectionFailed("the connection broke"),
    "invalid": lambda: errors.InvalidReply("it is not JSON"),
    "key": lambda: errors.KeyRefused("401", status=401),
    "missing": lambda: errors.ModelNotFound("404", status=404),
    "refused": lambda: errors.RequestRefused("400", status=400),
    "quota": lambda: errors.QuotaExhausted("no money is left", status=429),
    "window": lambda: errors.ContextTooLong("too long", status=400),
    "fault": lambda: KeyError("a fault of the provider's module"),
}

RARER: dict[str, Callable[[], Exception]] = {
    "busy": lambda: errors.Unavailable("503", status=503, retry_after=5.0),
    "busy, a while": lambda: errors.Unavailable("503", status=503, retry_after=20.0),
}
"""Failures of situations that name them: in the other worlds, which failure it is depends on how many there are."""

LONGEST_WAIT_SECONDS = Patience().max_retry_delay.total_seconds()
"""Whatever a provider says."""


@dataclass(frozen=True)
class Asked:
    """What a model was shown, and by which worker."""

    conversation_id: str
    messages: tuple[Message, ...]
    worker: str
    instructions: str = ""
    tools: tuple[str, ...] = ()
    tool_choice: str | None = None
    run_id: str | None = None


@dataclass
class SimulatedModel:
    chances: Chances
    """By conversation."""
    trouble: float
    """How often a turn fails."""
    calls: float
    """How likely a reply is to ask for tools."""
    turns: float
    """The fewer, the sooner a reply is the last one."""
    tools: tuple[str, ...] = ()
    """Those that it asks for; empty: any."""
    failures: tuple[str, ...] = tuple(FAILURES)
    """The ways in which it fails."""
    words: float = 0.0
    """Seconds that it takes for a word, at the most. Then it says a lot, and may break off; 0: all at once."""
    ids: str = ""
    """Of calls: new ones, or those that another conversation, another turn or the time before a reset may have."""
    large: bool = False
    """Its tools return about as much as may be, or more."""
    asked: list[Asked] = field(default_factory=list)
    _count: int = 0
    _said_when: dict[tuple[str | None, str, int], tuple[str, float]] = field(default_factory=dict)
    """By run, turn and try: how it failed, and when it may be asked again."""
    _responses: dict[str, Reply] = field(default_factory=dict)
    """What the provider works on, or has worked on, by itself."""

    async def __call__(self, request: Request, on_delta: Any = None, on_start: Any = None, kept: Any = None) -> Reply:
        worker = activity.client().service_client._worker  # type: ignore[attr-defined]
        self._see_whether_it_was_waited_for(worker)
        if worker.alive:
            told = tuple(request.messages), worker.name, request.instructions
            with_tools = tuple(tool.name for tool in request.tools), request.settings.tool_choice
            run_id = activity.info().workflow_run_id
            self.asked.append(Asked(request.conversation_id or "", *told, *with_tools, run_id))
        chance = self._chance(request)
        await asyncio.sleep(chance.choice((0.0, 0.05, 0.2, 1.0, 4.0)))
        if chance.random() < self.trouble:
            if chance.random() < 0.1:
                await asyncio.sleep(200.0)  # it hangs
            raise self._failure(worker, chance)
        reply = await self._in_background(request, kept, worker) if kept else self._reply(request)
        if on_start:
            on_start(lambda: Usage(input_tokens=reply.usage.input_tokens))
        if on_delta:
            for part in reply.message.parts:
                if self.words and isinstance(part, Text):
                    await self._say(part.text, on_delta, chance, worker)
                elif isinstance(part, Text | Thinking):
                    on_delta(Delta("text" if isinstance(part, Text) else "thinking", part.text))
                    await asyncio.sleep(0.3)
        return reply

    def _failure(self, worker: Any, chance: random.Random) -> Exception:
        failure = {**FAILURES, **RARER}[chance.choice(self.failures)]()
        info, seconds = activity.info(), getattr(failure, "retry_after", None) or 0.0
        until = worker.server.loop.time() + min(seconds, LONGEST_WAIT_SECONDS)
        self._said_when[info.workflow_run_id, info.activity_id, info.attempt] = type(failure).__name__, until
        return failure

    def _see_whether_it_was_waited_for(self, worker: Any) -> None:
        """A turn that failed is not tried again sooner than the model said, if the server heard of that: its worker may
        have been lost. Within a try, it is the rate limiter that waits, and looks now and then."""
        info, server = activity.info(), worker.server
        kind, until = self._said_when.get((info.workflow_run_id, info.activity_id, info.attempt - 1), ("", 0.0))
        if server.loop.time() >= until or not worker.alive:
            return
        known = (
            activity for activity in server.runs[info.workflow_run_id].activities.values() if activity.worker is worker
        )
        failed = next((one.last_failure for one in known if one.asked.activity_id == info.activity_id), None)
        if failed and failed.application_failure_info.type == kind:
            early = until - server.loop.time()
            server.wrong(f"{info.workflow_id}: turn {info.activity_id} is tried {early:.1f} s sooner than it was told")

    async def _say(self, text: str, on_delta: Any, chance: random.Random, worker: Any) -> None:
        seconds, breaks = chance.uniform(0.0, self.words), chance.random() < self.trouble
        words = text.split(" ")
        for place, word in enumerate(words):
            on_delta(Delta("text", f" {word}" if place else word))
            await asyncio.sleep(seconds)
            if breaks and place > len(words) // 2:
                raise self._failure(worker, chance)

    async def _in_background(self, request: Request, kept: Any, worker: Any) -> Reply:
        """The provider works on it by itself: whoever knows its id waits for it."""
        if not (known := kept.response_id):
            _check_unpaid(worker.server)
            self._count += 1
            known = f"resp_{self._count}"
            self._responses[known] = self._reply(request)
            await kept.keep(known)
        await asyncio.sleep(self._chance(request).choice((0.0, 2.0, 8.0, 20.0)))
        return self._responses[known]

    async def cancel(self, _: Any, response_id: str) -> None:
        """Nobody waits for it any more."""
        self._responses.pop(response_id, None)

    def _chance(self, request: Request) -> random.Random:
        return self.chances.of(request.conversation_id or "")

    def _reply(self, request: Request) -> Reply:
        self._count += 1
        chance, number = self._chance(request), self._count
        turns = sum(message.role == "assistant" for message in request.messages)
        wants = chance.random() < self.calls / (1 + turns / self.turns) or request.settings.tool_choice == "required"
        usage = Usage(input_tokens=10 * len(request.messages), output_tokens=5)
        if request.conclude or not wants:
            text = chance.choice((f"said {number}", f"{number}", "", "long " * 300))
            if self.words:
                text = words_of(number)
            stop = chance.choice(("end", "end", "end", "end", "length", "paused")) if not request.conclude else "end"
            message = Message(role="assistant", parts=(Text(text=text),) if text else ())
            return Reply(message=message, stop=stop, usage=usage, model=request.model.name)  # type: ignore[arg-type]
        calls = tuple(self._call(chance, number, place) for place in range(chance.choice((1, 1, 1, 2, 3, 5))))
        offered = {tool.name for tool in request.tools}
        calls = tuple(
            call.model_copy(update={"name": new}) if (new := RENAMED.get(call.name)) in offered and new else call
            for call in calls
        )
        calls = self._named(calls, request, chance) if self.ids else calls
        said = (Text(text=f"so I call {number}"),) if chance.random() < 0.3 else ()
        if self.words:
            said = (Text(text=words_of(number)),)
        message = Message(role="assistant", parts=(*said, *calls))
        return Reply(message=message, stop="tool_calls", usage=usage, model=request.model.name)

    def _named(self, calls: Sequence[ToolCall], request: Request, chance: random.Random) -> tuple[ToolCall, ...]:
        """By ids that repeat, as providers' modules read them."""
        turns = sum(message.role == "assistant" for message in request.messages)
        given = [f"t{turns}-{place}" for place in range(len(calls))]
        if self.ids == "few":
            given = [chance.choice(("one", "two", "three")) for _ in calls]
        read = call_ids(given, request.messages, response_id="", hidden=request.hidden_ids)
        return tuple(
            call.model_copy(update={"call_id": call_id, "provider_id": provider_id})
            for call, (call_id, provider_id) in zip(calls, read, strict=True)
        )

    def _call(self, chance: random.Random, number: int, place: int) -> ToolCall:
        possible: tuple[tuple[str, dict[str, Any]], ...] = (
            ("look", {"number": number}),
            ("peek", {"number": number}),
            ("peek", {"number": number}),
            ("note", {"text": f"n{number}"}),
            ("refund", {"order_id": f"{number}", "cents": number}),
            ("refund", {"order_id": f"{number}", "cents": number}),
            ("pay", {"cents": number}),
            ("pay", {"cents": number}),
            ("gift", {"cents": chance.choice((5, 50))}),
            ("flaky", {"times": chance.choice((0, 1, 3))}),
            ("slow", {"seconds": chance.choice((0.1, 1.0, 7.0, 60.0))}),
            ("fails", {"how": chance.choice(("kindly", "badly"))}),
            ("long", {"size": chance.choice((10, 3_000, 30_000))}),
            ("outside", {"where": "there"}),
            ("helper", {"message": f"help with {number}"}),
            ("no_such_tool", {}),
            ("refund", {"order_id": "81"}),
        )
        if self.tools:
            more = ("wire", {"cents": number}), ("ship", {"cents": number}), ("peep", {"number": number})
            more += ("borrow", {"cents": 5 + number % 2 * 50}), ("inquire", {"number": number})
            more += ("extra", {"number": number}), ("shell", {"commands": [f"echo {number}"]}), ("computer", {})
            more += (
                ("linger", {"seconds": LINGERS[number % 4]}),
                ("waver", {"times": number % 4}),
                ("glance", {"number": number}),
            )
            more += (("tardy", {"times": number % 3}),)
            more += tuple((f"transfer_to_{name}", {"message": f"take over {number}"}) for name in HANDING)
            more += tuple((name, {"number": number}) for name in MCP_TOOLS)
            possible = tuple(one for one in (*possible, *more) if one[0] in self.tools)
        name, arguments = chance.choice(possible)
        if self.large and "size" in arguments:
            arguments = {"size": chance.choice((30_000, 190_000, 900_000, 3_000_000))}
        if self.ids and "size" in arguments:
            arguments = {"size": arguments["size"] + 3 * number}  # so that no other call has the same result
        checks = [{"message": "odd"}] if name == "shell" and number % 3 == 0 else []
        extra: dict[str, Any] = {"extra": {"type": f"{name}_call", "pending_safety_checks": checks}} if checks else {}
        return ToolCall(call_id=f"c{number}-{place}", name=name, arguments=arguments, **extra)


def _check_unpaid(server: Any) -> None:
    """A response that the server knows of is waited for, and not paid once more."""
    info = activity.info()
    run = server.runs[info.workflow_run_id]
    for one in run.activities.values():
        if one.asked.activity_id == info.activity_id and b"resp_" in one.details.SerializeToString():
            server.wrong(f"turn {info.activity_id} of {run.workflow_id} is paid twice: its response was known")
