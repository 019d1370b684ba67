"""MCP servers of a simulated world: what their tools do there, and how they are away, change and fail.

`everturn.tools.mcp.transports.streams` is what is simulated, and nothing above it: the SDK's client, everturn's
connections, lists, calls, questions and tasks are those of production. The SDK's own in-memory transport has a server
of the SDK's at its end, which does not know the tasks of either protocol, never lies, and is never away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.types import INVALID_PARAMS

from everturn.names import MCP_IDEMPOTENCY_KEY
from everturn.tools.mcp import transports
from tests.simulation.agents.ledger import Effect
from tests.simulation.agents.mcp_connections import Json, Line, Refusal, unknown
from tests.simulation.chance import Chances

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from everturn import McpServer
    from everturn.tools.mcp.limits import Overflow
    from everturn.tools.mcp.transports import ProgramStderr
    from tests.simulation.temporal.server import Server

STAND, PRESS = "stand", "press"
"""A program of each worker's own, of the protocol with a handshake; and one behind an address, of that of 2026."""

MOST_CHANGES = 12
"""Of a world: then its servers are there, and stay as they are."""

HINTS: dict[str, Json | None] = {
    "read": {"readOnlyHint": True},
    "put": {"idempotentHint": True, "destructiveHint": False},
    "sell": None,
    "burn": {"destructiveHint": True},
    "ask": None,
    "build": None,
    "rebuild": {"idempotentHint": True, "destructiveHint": False},
    "show": {"readOnlyHint": True},
    "odd": {"readOnlyHint": True},
    "mood": {"readOnlyHint": True},
}
"""The tools. `odd` is there in every other version of the list; in those without it, `mood` has no hints."""

TASKS = ("build", "rebuild")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

QUESTION = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@dataclass
class McpTask:
    number: str
    call: Json
    asks: bool
    ready_at: float
    answer: Json | None = None
    known: bool = False
    """Temporal knows of it: whoever takes the call over can attach to it."""


@dataclass
class Called:
    """A call that a server has taken up."""

    conversation_id: str
    call_id: str
    tool: str
    key: str
    at: float
    listed: bool
    """The tool is on one of the last lists that its worker was given."""
    activity: tuple[str, str]
    """Its run's id, and its own."""
    attempt: int


@dataclass
class McpServers:
    """All of a world."""

    temporal: Server
    chances: Chances
    trouble: float
    """How often something goes wrong with a request."""
    changes: float
    """How often in a minute one of them goes away, or has another list."""
    ponders: float = 0.0
    """Seconds, at the most, until a program asks its question; then it hears late of what was given up. 0: at once."""
    calls: list[Called] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.all = {name: SimulatedMcp(name, self) for name in (STAND, PRESS)}

    @asynccontextmanager
    async def streams(
        self, server: McpServer, stderr: ProgramStderr, overflow: Overflow
    ) -> AsyncIterator[TransportStreams]:
        """In the place of the one in transports.py."""
        line = await self.all[server.label].connected()
        self.lines.append(line)
        try:
            yield line.client_reads, line.client_writes
        finally:
            line.close()

    async def live(self) -> None:
        chance = self.chances.of("mcp")
        for _ in range(MOST_CHANGES if self.changes else 0):
            await asyncio.sleep(chance.expovariate(self.changes / 60.0))
            one = chance.choice([*self.all.values()])
            if chance.random() < 0.5:
                one.change()
            else:
                one.leave()
                await asyncio.sleep(chance.choice((0.3, 3.0, 20.0, 60.0, 300.0)))
                one.away = False

    def forget(self) -> None:
        for line in self.lines:
            line.forget()

    def drop(self, worker: Any) -> None:
        """It is gone, and its connections with it."""
        for one in self.all.values():
            for line in [line for line in one.lines if line.worker is worker]:
                line.close()


class SimulatedMcp:
    def __init__(self, name: str, world: McpServers) -> None:
        self.name, self.world = name, world
        self.modern = name == PRESS
        self.away = False
        self.obstinate = self._chance().random() < 0.3 and not world.ponders
        """It goes on with calls that were cancelled."""
        self.version = 0
        self.lines: dict[Line, None] = {}
        self.count = 0
        self._tasks: dict[str, McpTask] = {}
        self._given: dict[Any, list[set[str]]] = {}
        """The last two lists that each worker was given: it may call by one while it reads the next."""
        self._answers: dict[tuple[str, str], Json] = {}

    @property
    def now(self) -> float:
        return self.world.temporal.loop.time()

    async def connected(self) -> Line:
        await asyncio.sleep(self._chance("connect").choice((0.0, 0.1, 1.0, 1.0, 8.0, 40.0)))
        if self.away and not self.modern:
            raise ConnectionError("nobody is there")
        line = Line(self)
        self.lines[line] = None
        return line

    def leave(self) -> None:
        self.world.temporal.count("MCP servers away")
        self.away = True
        for line in list(self.lines):
            line.close(why=transports.LOST if self.modern else 0)

    def change(self) -> None:
        self.world.temporal.count("MCP lists changed")
        self.version += 1
        for line in list(self.lines):
            line.notify("notifications/tools/list_changed")

    def _chance(self, *about: Any) -> random.Random:
        return self.world.chances.of("mcp", self.name, *about)

    # ------------------------------------------------------------ requests

    async def handle(self, line: Line, method: str, params: Json) -> Json:
        if self.away:
            raise Refusal(transports.NOT_SENT, "the connection was refused")
        match method:
            case "initialize" if not self.modern:
                return self._greeting() | {"protocolVersion": "2025-11-25"}
            case "server/discover" if self.modern:
                return self._greeting() | {"supportedVersions": ["2026-07-28"]}
            case "tools/list":
                return await self._list(line, params)
            case "tools/call":
                return await self._call(line, params)
            case "tasks/get":
                self._look(self._task(params))
                return self._state(self._task(params)) | self._done(params)
            case "tasks/result" if not self.modern:
                return self._worked(self._task(params).call)
            case "tasks/update" if self.modern:
                task = self._task(params)
                [answer] = params["inputResponses"].values()
                if self._answered(task.call, answer) and answer["action"] == "accept":
                    self._effect(task.call, None)
                task.answer = answer
                return {"resultType": "complete"}
            case "tasks/cancel":
                self._tasks.pop(params["taskId"], None)
                return {"resultType": "complete"}
            case _:
                raise unknown(method)

    def _greeting(self) -> Json:
        tasks: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        if not self.modern:
            tasks = {"tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}}
        about = {"name": self.name, "version": "1"}
        return {
            "capabilities": {"tools": {"listChanged": True}, **tasks},
            "serverInfo": about,
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }

    def names(self) -> list[str]:
        return [name for name in HINTS if name != "odd" or self.version % 2]

    async def _list(self, line: Line, params: Json) -> Json:
        await asyncio.sleep(self._chance("list").choice((0.0, 0.0, 0.2, 3.0, 20.0)))
        half = len(names := self.names()) // 2
        page = names[half:] if params.get("cursor") else names[:half]
        if params.get("cursor"):
            self._given[line.worker] = [*self._given.get(line.worker, ())[-1:], set(names)]
        following = {} if params.get("cursor") else {"nextCursor": "the rest"}
        whole = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **following}
        return {"tools": [self._tool(name) for name in page], **whole}

    def _tool(self, name: str) -> Json:
        hints = HINTS[name] if name != "mood" or self.version % 2 == 0 else None
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
        tool: Json = {"name": name, "description": f"Does {name}.", "inputSchema": schema}
        if hints is not None:
            tool["annotations"] = hints
        if name in TASKS and not self.modern:
            tool["execution"] = {"taskSupport": "optional"}
        return tool

    # ------------------------------------------------------------ calls

    async def _call(self, line: Line, params: Json) -> Json:
        name, told = params["name"], params["_meta"]["about"]
        chance = self._chance(told["conversation_id"], told["call_id"])
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.1, 2.0)))
        if name not in self.names():
            raise Refusal(INVALID_PARAMS, f"there is no tool {name}")
        self._refuse(chance)
        listed = any(name in one for one in self._given.get(line.worker, ()))
        key = params["_meta"][MCP_IDEMPOTENCY_KEY]
        whose, tried = (told["conversation_id"], told["call_id"]), (tuple(told["activity"]), told["attempt"])
        self.world.calls.append(Called(*whose, name, key, self.now, listed, *tried))
        self.world.temporal.count("MCP calls")
        self.world.temporal.ledger.begun.add((told["conversation_id"], told["call_id"]))
        if name == "ask":
            return await self._ask(line, params)
        if name in TASKS and (self.modern or params.get("task")):
            return self._begin(params, chance)
        self._effect(params, line)
        for part in range(chance.choice((0, 0, 3))):
            self._progress(line, params, part)
            await asyncio.sleep(1.0)
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.3, 2.0, 9.0, 60.0)))
        self._break(line, chance)
        return self._worked(params)

    def _refuse(self, chance: random.Random) -> None:
        """Before anything has run."""
        if chance.random() < self.world.trouble:
            busy = {"status": chance.choice((503, 429, 403)), "retry_after": None}
            if self.modern and chance.random() < 0.7:
                raise Refusal(transports.HTTP_STATUS, f"HTTP {busy['status']}", busy)
            raise Refusal(INVALID_PARAMS, "it is closed")

    def _break(self, line: Line, chance: random.Random) -> None:
        """After it has run."""
        if chance.random() >= self.world.trouble:
            return
        if self.modern:
            lost = (transports.LOST, "the line broke", None), (transports.HTTP_STATUS, "HTTP 500", {"status": 500})
            raise Refusal(*chance.choice(lost))
        self.world.temporal.count("MCP programs ended")
        line.close()

    def _progress(self, line: Line, params: Json, part: int) -> None:
        if (token := params["_meta"].get("progressToken")) is not None:
            line.notify("notifications/progress", {"progressToken": token, "progress": part, "message": f"part {part}"})

    def _worked(self, params: Json) -> Json:
        name, told = params["name"], params["_meta"]["about"]
        text = f"{self.name}_{name} {told['call_id']} did its work"
        chance = self._chance(told["conversation_id"], told["call_id"])
        whole: Json = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
        if name == "read" and chance.random() < 0.2:
            return whole | {"content": [{"type": "text", "text": "it can't be done"}], "isError": True}
        if name == "read" and chance.random() < self.world.trouble / 3:
            return {"content": 7, "resultType": "complete"}
        if name == "show":
            seen = [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]
            if chance.random() < 0.5:
                return whole | {"content": seen, "structuredContent": {"result": text}}
            return whole | {"content": [*whole["content"], *seen]}
        if name == "ask" or params.get("asked"):
            answer = self._answers.get((params["_meta"][MCP_IDEMPOTENCY_KEY], name), {})
            heard = f"{text} ({answer['content']['word']})" if answer.get("action") == "accept" else "not done"
            return whole | {"content": [{"type": "text", "text": f"{told['call_id']}: {heard}"}]}
        return whole

    def _effect(self, params: Json, line: Line | None) -> None:
        told = params["_meta"]["about"]
        made = (
            told["conversation_id"],
            f"{self.name}_{params['name']}",
            told["call_id"],
            params["_meta"][MCP_IDEMPOTENCY_KEY],
        )
        worker = line.worker.name if line and line.worker else ""
        for_whom = told["tenant"], told["metadata"]
        where = worker, self.now, told["activity"][0]
        self.world.temporal.ledger.effects.append(
            Effect(*made, told["attempt"], params["arguments"], *where, *for_whom)
        )

    # ------------------------------------------------------------ questions

    async def _ask(self, line: Line, params: Json) -> Json:
        """Which word? Whoever declines is done with it."""
        given, about = params.get("inputResponses"), self._asked_about(params)
        self.world.temporal.count("MCP questions")
        if self.modern and not given:
            request = {"method": "elicitation/create", "params": about}
            return {"resultType": "input_required", "inputRequests": {"word": request}, "requestState": "asked"}
        if self.world.ponders and not given:
            await asyncio.sleep(self._chance("ponders").uniform(0.0, self.world.ponders))
        answer = given["word"] if given else await line.ask(about)
        if answer["action"] == "refused":
            raise Refusal(INVALID_PARAMS, "nobody answers")
        if answer["action"] == "cancel" and not self.modern:
            return self._worked(params)  # nobody hears that: the call was given up
        self._answered(params, answer)
        if answer["action"] == "accept":
            self._effect(params, line)
        return self._worked(params)

    def _asked_about(self, params: Json) -> Json:
        message = f"which word for {params['_meta']['about']['call_id']}?"
        return {"mode": "form", "message": message, "requestedSchema": QUESTION}

    def _answered(self, params: Json, answer: Json) -> bool:
        """It is told the same, however often it is told. True for the first time."""
        where = params["_meta"][MCP_IDEMPOTENCY_KEY], params["name"]
        known = where in self._answers
        if self._answers.setdefault(where, answer) != answer:
            self.world.temporal.wrong(f"{where} was answered with {self._answers[where]}, and then with {answer}")
        return not known

    # ------------------------------------------------------------ tasks

    def _begin(self, params: Json, chance: random.Random) -> Json:
        about = params["_meta"]["about"]
        for task in self._tasks.values():
            if task.known and task.call["_meta"]["about"]["activity"] == about["activity"]:
                self.world.temporal.wrong(f"{about['call_id']} began another task, and {task.number} was known")
        self.count += 1
        self.world.temporal.count("MCP tasks")
        asks = self.modern and chance.random() < 0.3
        ready_at = self.now + chance.choice((0.0, 1.0, 5.0, 40.0))
        task = McpTask(f"{self.name}-task-{self.count}-end", {**params, "asked": asks}, asks, ready_at)
        self._tasks[task.number] = task
        if not asks:
            self._effect(params, None)
        state = self._state(task)
        return {**state, "resultType": "task"} if self.modern else {"task": state}

    def _look(self, task: McpTask) -> None:
        run = self.world.temporal.runs[task.call["_meta"]["about"]["activity"][0]]
        details = (activity.details.SerializeToString() for activity in run.activities.values())
        task.known = task.known or any(task.number.encode() in detail for detail in details)

    def _task(self, params: Json) -> McpTask:
        if task := self._tasks.get(params["taskId"]):
            return task
        raise Refusal(INVALID_PARAMS, "there is no such task")

    def _state(self, task: McpTask) -> Json:
        status = "working" if self.now < task.ready_at else "completed"
        more: Json = {}
        if status == "completed" and task.asks and task.answer is None:
            request = {"method": "elicitation/create", "params": self._asked_about(task.call)}
            status, more = "input_required", {"inputRequests": {"word": request}}
        at = "2026-01-01T00:00:00Z"
        times = {"createdAt": at, "lastUpdatedAt": at, "ttl": 600_000, "pollInterval": 1_000}
        return {"taskId": task.number, "status": status, "resultType": "complete", **times, **more}

    def _done(self, params: Json) -> Json:
        task = self._task(params)
        done = self.modern and self._state(task)["status"] == "completed"
        return {"result": self._worked(task.call)} if done else {}
