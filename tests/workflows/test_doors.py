"""Who may say what, at which door: the table of docs/reference/doors.md, and each of its cells on the real thing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import mcp
import pytest
from starlette.requests import Request
from temporalio import workflow
from temporalio.client import WorkflowUpdateFailedError
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.worker import Worker as TemporalWorker

import everturn
from everturn import Client, Conversation, tool
from everturn.errors import EverturnError, NotFound, OutcomeUnknown, Refused, Unreachable
from everturn.mcp_server.server import AgentServer
from everturn.payloads import Status, WaitingCall
from everturn.policy import Rule
from everturn.testing import ScriptedModel, call
from everturn.ui import Visitor, ag_ui, ai_sdk
from everturn.ui.narrator import question_id
from everturn.web.app import Inbox
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell
from tests.support.transcripts import results_of
from tests.support.waiting import QUERY_SECONDS, eventually

Scripted = Callable[..., ScriptedModel]

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "doors.md"
TOKEN = "t0ken-of-this-test-f00dcafe"
KEEP_OPEN = timedelta(minutes=5)


def cells() -> dict[str, dict[str, str]]:
    """What the page says: by the door, and by what is said there."""
    table = TABLE.read_text().partition("<!-- doors -->")[2].partition("<!-- end of doors -->")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.split("\n") if line[:1] == "|"]
    header, _, *rows = lines
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


CELLS = cells()

# ---------------------------------------------------------------- the world


@tool(needs_approval=True, effect="once")
def pay(cents: int) -> str:
    """Pays."""
    return f"paid {cents}"


@tool(needs_approval=True, effect="once")
def wire(cents: int) -> str:
    """Wires."""
    raise OutcomeUnknown("the line was cut")


@tool(runs_on="client")
def locate() -> str:
    """Where the customer is."""
    return "here"


def script(messages: list[Any]) -> Any:
    if messages[-1]["role"] == "tool":
        return "Done."
    words, turn = str(messages[-1]["content"]), len(messages)
    called = [name for name in ("pay", "wire", "locate") if name in words]
    return [call(name, {} if name == "locate" else {"cents": 5}, id=f"{name}{turn}") for name in called] or "Hi."


@dataclass(frozen=True)
class Place:
    """A conversation, and how a page calls it."""

    conversation: Conversation
    agent: str
    chat: str

    @property
    def id(self) -> str:
        return self.conversation.id


@dataclass
class Door:
    """`say`: what can be said there, by its name in the table; each raises if it is refused. `begin`: begins a
    conversation that is the door's own, if only the door itself can."""

    say: dict[str, Callable[..., Awaitable[Any]]]
    begin: Callable[[str, str], Awaitable[str]] | None = None


@dataclass
class World:
    client: Client
    shell: Shell
    count: int = 0
    door: Door = field(default_factory=lambda: Door({}))

    def another(self, *, mine: bool = True, agent: str = "") -> Place:
        """A conversation that has not begun: Ann's, of an agent that is offered; or Bob's, of one that is not."""
        self.count += 1
        whose = "ann" if mine else "bob"
        chat = f"{whose}-{self.count}-{uuid4().hex[:6]}"
        agent = agent or ("clerk" if mine else "other")
        return Place(self.client.conversation(f"clerk:{whose}:{chat}"), agent, chat)

    async def begun(self, what: str, *, mine: bool = True, agent: str = "") -> Place:
        """One that is there, and was told this."""
        place = self.another(mine=mine, agent=agent)
        if self.door.begin and mine:
            place = Place(self.client.conversation(await self.door.begin(place.agent, what)), place.agent, place.chat)
        else:
            await self.client.start(place.agent, what, id=place.id, keep_open=KEEP_OPEN)
        return place


async def is_in(place: Place, state: str) -> bool:
    with suppress(NotFound):
        return (await place.conversation.status()).state == state
    return False


async def seen(place: Place, tool_name: str) -> WaitingCall:
    """The call of that tool, once it waits."""

    async def waits() -> WaitingCall | None:
        with suppress(Unreachable, NotFound):  # its worker, or its start, is yet to come
            status = await place.conversation.status()
            return next((waits for waits in status.waiting if waits.tool == tool_name), None)
        return None

    call: WaitingCall = await eventually(waits, what=f"a call of {tool_name} waits", pause=QUERY_SECONDS)
    return call


# ---------------------------------------------------------------- the doors


@asynccontextmanager
async def python(world: World) -> AsyncIterator[Door]:
    client = world.client
    yield Door(
        {
            "start": lambda place, text: client.start(place.agent, text, id=place.id, keep_open=KEEP_OPEN),
            "send": lambda place, text: place.conversation.send(text),
            "approve, deny": lambda place, verb, call: getattr(place.conversation, verb)(call.call_id, expected=call),
            "answer": lambda place, call: place.conversation.answer(call.call_id, "here"),
            "stop": lambda place: place.conversation.cancel_turn(),
            "close": lambda place: place.conversation.close(),
            "rules": lambda place, call: place.conversation.set_policy([Rule(tool="other", then="deny")]),
            "read": lambda place: place.conversation.status(),
        }
    )


@asynccontextmanager
async def run_tools(world: World) -> AsyncIterator[Door]:
    yield Door(
        {
            "approve, deny": lambda place, verb, call: place.conversation.call_tool(call, pay),
            "answer": lambda place, call: place.conversation.run_tools([locate]),
        }
    )


@asynccontextmanager
async def command_line(world: World) -> AsyncIterator[Door]:
    world.shell.environment["EVERTURN_TASK_QUEUE"] = world.client.task_queue

    async def run(*words: str) -> str:
        done = await asyncio.to_thread(world.shell.run, *words)
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    yield Door(
        {
            "start": lambda place, text: run("run", text, "--agent", place.agent, "--id", place.id),
            "send": lambda place, text: run("send", place.id, text),
            "approve, deny": lambda place, verb, call: run(verb, place.id, call.call_id),
            "answer": lambda place, call: run("answer", place.id, call.call_id, "here"),
            "stop": lambda place: run("cancel-turn", place.id),
            "close": lambda place: run("close", place.id),
            "rules": lambda place, call: run("approve", place.id, call.call_id, "--always"),
            "read": lambda place: run("show", place.id),
        }
    )


def inbox(token: str) -> Callable[[World], Any]:
    @asynccontextmanager
    async def opened(world: World) -> AsyncIterator[Door]:
        app = Inbox(world.client, token=TOKEN).app
        headers = {"authorization": f"Bearer {token}"}
        async with http_client(app, headers=headers) as web:

            async def post(verb: str, place: Place, **body: Any) -> Any:
                named = {} if verb == "start" else {"conversation": place.id}
                return (await web.post(f"/api/{verb}", json={**named, **body})).raise_for_status().json()

            async def read(place: Place) -> Any:
                return (await web.get("/api/status", params={"conversation": place.id})).raise_for_status().json()

            def decide(place: Place, verb: str, call: WaitingCall) -> Any:
                shown = {"expected": call.arguments} if verb == "approve" else {}
                return post(verb, place, call_id=call.call_id, question=call.question, **shown)

            yield Door(
                {
                    "start": lambda place, text: post("start", place, agent=place.agent, message=text, id=place.id),
                    "send": lambda place, text: post("message", place, text=text, message_id=uuid4().hex),
                    "approve, deny": decide,
                    "answer": lambda place, call: post("answer", place, call_id=call.call_id, content="here"),
                    "stop": lambda place: post("cancel_turn", place),
                    "close": lambda place: post("close", place),
                    "read": read,
                }
            )

    return opened


def http_client(app: Any, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost", timeout=180, **options
    )


def visitor(*, decides: bool) -> Callable[[Request, str], Visitor | None]:
    def authorize(request: Request, chat_id: str) -> Visitor | None:
        name = request.headers["x-user"]
        return Visitor(name=name, decides=decides) if chat_id.startswith(f"{name}-") else None

    return authorize


def ai_sdk_page(*, decides: bool) -> Callable[[World], Any]:
    @asynccontextmanager
    async def opened(world: World) -> AsyncIterator[Door]:
        app = ai_sdk(world.client, agent="clerk", authorize=visitor(decides=decides), keep_open=KEEP_OPEN)
        async with http_client(app, headers={"x-user": "ann"}) as web:

            async def post(path: str, **body: Any) -> Any:
                return (await web.post(path, json=body)).raise_for_status()

            def says(place: Place, text: str) -> Any:
                message = {"id": uuid4().hex, "role": "user", "parts": [{"type": "text", "text": text}]}
                return post("/", id=place.chat, messages=[message])

            async def answers(place: Place, call: WaitingCall, **part: Any) -> None:
                parts = [{"toolCallId": call.call_id, "type": f"tool-{call.tool}", "input": call.arguments, **part}]
                message = {"id": uuid4().hex, "role": "assistant", "parts": parts}
                streamed = (await post("/", id=place.chat, messages=[message])).text
                if '"type":"error"' in streamed.replace(" ", ""):
                    raise Refused(streamed)

            def decide(place: Place, verb: str, call: WaitingCall) -> Any:
                approval = {"id": question_id(call), "approved": verb == "approve"}
                return answers(place, call, state="approval-responded", approval=approval)

            def answer(place: Place, call: WaitingCall) -> Any:
                return answers(place, call, state="output-available", output="here")

            async def read(place: Place) -> Any:
                return (await web.get(f"/{place.chat}")).raise_for_status().json()

            yield Door(
                {
                    "start": says,
                    "send": says,
                    "approve, deny": decide,
                    "answer": answer,
                    "stop": lambda place: post(f"/{place.chat}/stop"),
                    "read": read,
                }
            )

    return opened


def ag_ui_page(*, decides: bool) -> Callable[[World], Any]:
    @asynccontextmanager
    async def opened(world: World) -> AsyncIterator[Door]:
        app = ag_ui(world.client, agent="clerk", authorize=visitor(decides=decides), keep_open=KEEP_OPEN)
        async with http_client(app, headers={"x-user": "ann"}) as web:

            async def run(place: Place, **body: Any) -> str:
                asked = {"threadId": place.chat, "runId": uuid4().hex, "messages": [], **body}
                streamed = (await web.post("/", json=asked)).raise_for_status().text
                if "RUN_ERROR" in streamed:
                    raise Refused(streamed)
                return streamed

            def says(place: Place, text: str) -> Any:
                return run(place, messages=[{"id": uuid4().hex, "role": "user", "content": text}])

            def decide(place: Place, verb: str, call: WaitingCall) -> Any:
                payload = {"approved": verb == "approve"}
                return run(place, resume=[{"interruptId": question_id(call), "status": "resolved", "payload": payload}])

            def answer(place: Place, call: WaitingCall) -> Any:
                return run(place, messages=[{"id": "t", "role": "tool", "toolCallId": call.call_id, "content": "here"}])

            async def stop(place: Place) -> None:
                (await web.post(f"/{place.chat}/stop", json={})).raise_for_status()

            yield Door(
                {"start": says, "send": says, "approve, deny": decide, "answer": answer, "stop": stop, "read": run}
            )

    return opened


def mcp_server(*offered: str, decisions: bool = True) -> Callable[[World], Any]:
    @asynccontextmanager
    async def opened(world: World) -> AsyncIterator[Door]:
        server = AgentServer(world.client, dict.fromkeys(offered, ""), decisions=decisions)
        async with mcp.Client(server.mcp) as caller:

            async def use(name: str, place: Place, **arguments: Any) -> Any:
                result = await caller.call_tool(name, {"conversation_id": place.id, **arguments})
                if result.is_error:
                    raise Refused(str(result.content))
                return result.structured_content

            yield Door(
                {
                    "start": lambda place, text: use("start", place, agent=place.agent, message=text),
                    "send": lambda place, text: use("send", place, message=text),
                    "approve, deny": lambda place, verb, call: use(
                        verb, place, call_id=call.call_id, question=call.question
                    ),
                    "answer": lambda place, call: use("answer", place, call_id=call.call_id, content="here"),
                    "close": lambda place: use("close", place),
                    "read": lambda place: use("status", place),
                }
            )

    return opened


def on_the_wire(send: str) -> Callable[[World], Any]:
    @asynccontextmanager
    async def opened(world: World) -> AsyncIterator[Door]:
        temporal, task_queue = world.client.temporal, world.client.task_queue

        async def tell(place: Place, name: str, **payload: Any) -> Any:
            return await getattr(temporal.get_workflow_handle(place.id), send)(name, payload)

        async def start(place: Place, text: str) -> Any:
            begins = {"agent": place.agent, "message": text, "keep_open": 300}
            return await temporal.start_workflow("Conversation", begins, id=place.id, task_queue=task_queue)

        yield Door(
            {
                "start": start,
                "send": lambda place, text: tell(place, "message", text=text),
                "approve, deny": lambda place, verb, call: tell(
                    place, verb, call_id=call.call_id, question=call.question
                ),
                "answer": lambda place, call: tell(place, "answer", call_id=call.call_id, content="here"),
                "stop": lambda place: tell(place, "cancel_turn"),
                "close": lambda place: tell(place, "close"),
                "rules": lambda place, call: tell(place, "set_policy", rules=[{"tool": "other", "then": "deny"}]),
                "read": lambda place: temporal.get_workflow_handle(place.id).query("status"),
            }
        )

    return opened


@workflow.defn
class Desk:
    """An application's own workflow, which has one conversation and says what it is told to say there."""

    def __init__(self) -> None:
        self.todo: list[list[Any]] = []

    @workflow.run
    async def run(self, agent: str, text: str, conversation_id: str, task_queue: str) -> None:
        conversation = await everturn.workflow.start(
            agent, text, id=conversation_id, keep_open=timedelta(minutes=5), task_queue=task_queue
        )
        while True:
            await workflow.wait_condition(lambda: bool(self.todo))
            verb, arguments, seen_call = self.todo.pop(0)
            expected = {"expected": WaitingCall.model_validate(seen_call)} if seen_call else {}
            await getattr(conversation, verb)(*arguments, **expected)

    @workflow.signal
    def do(self, verb: str, arguments: list[Any], seen_call: dict[str, Any] | None) -> None:
        self.todo.append([verb, arguments, seen_call])


@asynccontextmanager
async def own_workflow(world: World) -> AsyncIterator[Door]:
    temporal, desks = world.client.temporal, f"desk-{uuid4().hex[:8]}"

    async def begin(agent: str, text: str, conversation_id: str = "") -> str:
        conversation_id = conversation_id or f"desks-{uuid4().hex[:8]}"
        arguments = [agent, text, conversation_id, world.client.task_queue]
        await temporal.start_workflow(Desk.run, args=arguments, id=f"desk-of-{conversation_id}", task_queue=desks)

        async def is_there() -> bool:
            with suppress(NotFound):
                return bool(await world.client.conversation(conversation_id).status())
            return False

        await eventually(is_there)
        return conversation_id

    async def tell(place: Place, verb: str, *arguments: Any, call: WaitingCall | None = None) -> None:
        if ":bob:" in place.id:
            raise NotFound("A workflow has handles of the conversations that it has started.")
        handle = temporal.get_workflow_handle(f"desk-of-{place.id}")
        shown = call.model_dump(mode="json") if call else None
        await handle.signal(Desk.do, args=[verb, list(arguments), shown])

    runner = UnsandboxedWorkflowRunner()
    async with TemporalWorker(temporal, task_queue=desks, workflows=[Desk], workflow_runner=runner):
        yield Door(
            {
                "start": lambda place, text: begin(place.agent, text, place.id),
                "send": lambda place, text: tell(place, "send", text),
                "approve, deny": lambda place, verb, call: tell(place, verb, call.call_id, call=call),
                "answer": lambda place, call: tell(place, "answer", call.call_id, "here"),
                "stop": lambda place: tell(place, "cancel_turn"),
                "close": lambda place: tell(place, "close"),
            },
            begin=begin,
        )


OFFERED = ("clerk", "guarded")

DOORS: dict[str, Callable[[World], Any]] = {
    "Python client": python,
    "`run_tools`, `call_tool`": run_tools,
    "command line": command_line,
    "inbox": inbox(TOKEN),
    "inbox, without its token": inbox("guessed"),
    "AI SDK page": ai_sdk_page(decides=True),
    "AI SDK page, `decides=False`": ai_sdk_page(decides=False),
    "AG-UI page": ag_ui_page(decides=True),
    "AG-UI page, `decides=False`": ag_ui_page(decides=False),
    "`everturn mcp`": mcp_server(),
    "`everturn mcp --agent`": mcp_server(*OFFERED),
    "`everturn mcp --no-decisions`": mcp_server(decisions=False),
    "signal": on_the_wire("signal"),
    "update": on_the_wire("execute_update"),
    "your workflow": own_workflow,
}

# ---------------------------------------------------------------- what is said there, and what comes of it


SAID = ("start", "send", "read", "answer", "approve, deny", "stop", "rules", "close")


async def are_done(world: World, allowed: set[str], *, mine: bool) -> None:
    """What may be said comes about. What is needed besides, the client says."""
    say = world.door.say
    if "start" in allowed:
        other = world.another(mine=mine)
        await say["start"](other, "hello")
        await eventually(lambda: _exists(other), what="it has begun")
        with suppress(EverturnError):  # it is over already, if the door keeps none open
            await other.conversation.close()
    if allowed == {"start"}:
        return
    place = await world.begun("hello", mine=mine)
    conversation = place.conversation

    async def is_said() -> bool:
        return any("one thing more" in message.text for message in await conversation.transcript())

    if "send" in allowed:
        await say["send"](place, "one thing more")
        await eventually(is_said, what="it was said")
    if allowed & {"read", "answer"}:
        await conversation.send("locate")
        call = await seen(place, "locate")
        if "read" in allowed:
            read = await say["read"](place)
            assert "locate" in (str(read.as_json()) if isinstance(read, Status) else json.dumps(read))
        if "answer" in allowed:
            await say["answer"](place, call)
            await eventually(lambda: _has(place, "here"), what="it was answered")
        else:
            await conversation.answer(call.call_id, "here")
    if "approve, deny" in allowed:
        for verb, words in (("approve", "paid 5"), ("deny", "denied")):
            await conversation.send("pay")
            await say["approve, deny"](place, verb, await seen(place, "pay"))
            await eventually(lambda words=words: _has(place, words), what=verb)
    if "stop" in allowed:
        await conversation.send("pay")
        await seen(place, "pay")
        await say["stop"](place)
        await eventually(lambda: is_in(place, "idle"), what="it was stopped")
    if "rules" in allowed:
        await conversation.send("pay")
        await say["rules"](place, await seen(place, "pay"))
        await eventually(lambda: _has_rule(place), what="it has the rule")
    await (say["close"](place) if "close" in allowed else conversation.close())
    await eventually(lambda: is_in(place, "done"), what="it was closed")


async def _exists(place: Place) -> bool:
    with suppress(NotFound):
        return bool(await place.conversation.status())
    return False


async def _has(place: Place, words: str) -> bool:
    return any(words in result.text for result in results_of(await place.conversation.transcript()))


async def _has_rule(place: Place) -> bool:
    return bool((await place.conversation.status()).policy)


async def are_refused(world: World, refused: set[str], *, mine: bool) -> None:
    """Nothing comes of what may not be said."""
    unborn = world.another(mine=mine)
    place = await world.begun("pay, locate", mine=mine)
    pays, locates = await seen(place, "pay"), await seen(place, "locate")
    attempts: dict[str, list[tuple[Any, ...]]] = {
        "start": [(unborn, "hello")],
        "send": [(place, "one thing more")],
        "approve, deny": [(place, "approve", pays), (place, "deny", pays)],
        "answer": [(place, locates)],
        "rules": [(place, pays)],
    }
    before = await place.conversation.status(), await place.conversation.transcript()
    for what in SAID:
        if what in refused and what in world.door.say:
            for arguments in attempts.get(what, [(place,)]):
                with pytest.raises((EverturnError, httpx.HTTPStatusError)):
                    await world.door.say[what](*arguments)
                assert await place.conversation.status() == before[0], f"{what} was refused, and done"
    after = await place.conversation.status(), await place.conversation.transcript()
    assert after == before, "something was refused, and done"
    with pytest.raises(NotFound):
        await unborn.conversation.status()
    await place.conversation.close()


async def check_said(world: World, cells: dict[str, str]) -> None:
    assert {*cells.values()} <= {"any", "its own", "no"}
    by_cell = {cell: {what for what in SAID if cells[what] == cell} for cell in ("any", "its own", "no")}
    checks = []
    if by_cell["any"]:
        checks.append(are_done(world, by_cell["any"], mine=False))
    if by_cell["its own"]:
        checks += [
            are_done(world, by_cell["its own"], mine=True),
            are_refused(world, by_cell["its own"], mine=False),
        ]
    if by_cell["no"] & world.door.say.keys():
        checks.append(are_refused(world, by_cell["no"], mine=True))
    await asyncio.gather(*checks)


async def check_approvers(world: World, cell: str) -> None:
    """Whoever decides, the agent's `approvers` are asked."""
    if cell != "yes":
        assert cell == "no decisions"
        return
    place = await world.begun("pay", agent="guarded")
    call = await seen(place, "pay")
    with suppress(Refused):
        await world.door.say["approve, deny"](place, "approve", call)

    async def was_asked() -> bool:
        return [waits.reason for waits in (await place.conversation.status()).waiting] == ["not_allowed"]

    await eventually(was_asked, what="approvers were asked")
    await place.conversation.close()


async def check_seen(world: World, cell: str) -> None:
    """A call that was seen before it ran is not run again by that decision, though its arguments are the same."""
    if cell in ("no", "no decisions"):
        return
    assert cell in ("always", "if given")
    place = await world.begun("wire")
    before = await seen(place, "wire")
    await place.conversation.approve(before.call_id, expected=before)
    now = await eventually(lambda: _doubtful(place))
    with suppress(EverturnError, httpx.HTTPStatusError, WorkflowUpdateFailedError):
        await world.door.say["approve, deny"](place, "approve", before)
    # A second one, which comes after it, is about what is asked now.
    await place.conversation.deny(now.call_id, expected=now)
    assert not await _has(place, "wired")
    await place.conversation.close()


async def _doubtful(place: Place) -> WaitingCall | None:
    waits = (await place.conversation.status()).waiting
    return waits[0] if waits and waits[0].reason == "outcome_unknown" else None


def test_the_page_has_each_door_and_each_thing_that_is_said() -> None:
    assert [*CELLS] == [*DOORS]
    assert all({*row} == {*SAID, "asks `approvers`", "what was seen"} for row in CELLS.values())


@pytest.mark.parametrize("name", DOORS)
async def test_each_door_lets_through_what_the_page_says(
    client: Client, scripted: Scripted, shell: Shell, name: str
) -> None:
    model, tools = scripted(script), [pay, wire, locate]
    agents = [agent_on(model, tools=tools, name=agent) for agent in ("clerk", "other")]
    guarded = agent_on(model, tools=tools, name="guarded", approvers=lambda call, decision: "only the auditor may")
    world = World(client, shell)
    async with hosting(client, *agents, guarded), DOORS[name](world) as world.door:
        await asyncio.gather(
            check_said(world, {what: cell for what, cell in CELLS[name].items() if what in SAID}),
            check_approvers(world, CELLS[name]["asks `approvers`"]),
            check_seen(world, CELLS[name]["what was seen"]),
        )
