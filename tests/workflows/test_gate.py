"""One gate for every kind of call: the table of docs/reference/gate.md, and each of its cells on the real thing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import nexusrpc
import nexusrpc.handler
import pytest
from temporalio import activity
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError
from temporalio.worker import Worker as TemporalWorker

from everturn import (
    Agent,
    Approvals,
    Client,
    Conversation,
    HandOff,
    McpServer,
    McpTool,
    Model,
    Reviewer,
    ToolCall,
    ToolContext,
    activity_tool,
    ask_user,
    nexus_tool,
    tool,
)
from everturn.errors import NotFound, OutcomeUnknown, Refused
from everturn.events import ApprovalRequested, Event
from everturn.history.event_reader import EventReader
from everturn.history.reader import read_steps
from everturn.hooks import AskApproval, DenyCall, Hooks, after_tool, before_tool
from everturn.payloads import Status
from everturn.policy import Rule
from everturn.records import Text, ToolResult
from everturn.temporal.ids import child_id
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.mcp_shop_server import McpShop
from tests.support.nexus_endpoints import endpoint_to
from tests.support.transcripts import results_of
from tests.support.waiting import QUERY_SECONDS, eventually, waiting

Scripted = Callable[..., ScriptedModel]
Options = dict[str, Any]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "reference" / "gate.md"


def cells() -> dict[str, dict[str, str]]:
    """What the page says: by the kind of call, and by the guard."""
    table = TABLE.read_text().partition("<!-- gate -->")[2].partition("<!-- end of gate -->")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.split("\n") if line[:1] == "|"]
    header, _, *rows = lines
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


CELLS = cells()

# ---------------------------------------------------------------- the kinds of calls


@dataclass
class Made:
    """An agent's options that make a kind of call, and the call."""

    options: Options
    name: str
    arguments: Options
    misfit: Options = field(default_factory=lambda: {"order_id": ["no", "text"]})
    """Arguments that its tool does not take; empty if it takes all."""
    beside: AbstractAsyncContextManager[None] | None = None


async def refund(order_id: str) -> str:
    """Refunds."""
    return f"refunded {order_id}"


@activity.defn(name="refund_by_activity")
async def refund_by_activity(order_id: str) -> str:
    """Refunds."""
    return f"refunded {order_id}"


def of_tool(made: Any, arguments: Options | None = None, **options: Any) -> Made:
    return Made({"tools": [made], **options}, made.name, arguments or {"order_id": "81"})


async def function(world: World, **option: Any) -> Made:
    return of_tool(tool(refund, **option))


async def local(world: World, **option: Any) -> Made:
    return of_tool(tool(refund, effect="read", local=True, timeout=timedelta(seconds=5), **option))


async def your_activity(world: World, **option: Any) -> Made:
    return of_tool(activity_tool(refund_by_activity, **option))


@nexusrpc.service(name="Greetings")
class Greetings:
    greet: nexusrpc.Operation[str, str]


@nexusrpc.handler.service_handler(service=Greetings)
class Greeter:
    @nexusrpc.handler.sync_operation
    async def greet(self, ctx: nexusrpc.handler.StartOperationContext, given: str) -> str:
        return f"Hello {given}"


@asynccontextmanager
async def handling(client: Client, queue: str) -> AsyncIterator[None]:
    theirs = await TemporalClient.connect(client.temporal.service_client.config.target_host)
    async with TemporalWorker(theirs, task_queue=queue, nexus_service_handlers=[Greeter()]):
        yield


async def nexus_operation(world: World, **option: Any) -> Made:
    queue = f"shop-{uuid4().hex[:8]}"
    endpoint = await endpoint_to(world.client, queue)
    made = of_tool(nexus_tool(Greetings.greet, endpoint=endpoint, service=Greetings, **option), {"input": "Ada"})
    return replace(made, misfit={"input": ["no", "text"]}, beside=handling(world.client, queue))


async def mcp_tool(world: World, **option: Any) -> Made:
    assert world.shop
    shop = world.shop.model_copy(update={"overrides": {"find": McpTool(**option)}})
    return Made({"tools": [shop]}, "find", {"name": "lamp"}, misfit={"title": "lamp"})


async def handler(world: World, **option: Any) -> Made:
    made = tool(refund, **option) if option else refund
    raw = {"type": "bash_20250124", "name": "bash"}
    return Made({"tools": [raw], "handlers": {"bash": made}}, "bash", {"order_id": "81"}, misfit={})


async def no_handler(world: World, **option: Any) -> Made:
    assert not option
    raw = {"type": "bash_20250124", "name": "bash"}
    return Made({"tools": [raw]}, "bash", {"command": "ls"}, misfit={})


async def clients(world: World, **option: Any) -> Made:
    return of_tool(tool(refund, runs_on="client", effect="once", **option))


async def question(world: World, **option: Any) -> Made:
    made = of_tool(replace(ask_user, **option), {"question": "Which lamp?"})
    return replace(made, misfit={"question": ["no", "text"]})


async def sub_agent(world: World, **option: Any) -> Made:
    assert not option
    helper = agent_on(world.scripted(["I am done."] * 20), name=world.another_name())
    return Made({"tools": [helper]}, helper.name, {"message": "Help"}, misfit={"message": ["no", "text"]})


async def handoff(world: World, **option: Any) -> Made:
    other = agent_on(world.scripted(lambda _: "Done."), name=world.another_name())
    on = HandOff(other, **option)
    return Made({"handoff_to": [on]}, on.name, {"message": "Help"}, misfit={"message": ["no", "text"]})


async def manual(world: World, **option: Any) -> Made:
    return of_tool(tool(refund, **option), loop="manual")


KINDS: dict[str, Callable[..., Any]] = {
    "function": function,
    "local function": local,
    "your activity": your_activity,
    "Nexus operation": nexus_operation,
    "MCP tool": mcp_tool,
    "provider's tool, with a handler": handler,
    "provider's tool, without one": no_handler,
    "client's tool": clients,
    "`ask_user`": question,
    "sub-agent": sub_agent,
    "handoff": handoff,
    '`loop="manual"`': manual,
}

OUTSIDE = ("provider's tool, without one", "client's tool", "`ask_user`", '`loop="manual"`')
"""Kinds that wait for an answer."""

BY_WORKERS = ("function", "local function", "MCP tool", "provider's tool, with a handler")
"""Kinds whose activity looks at arguments that a person put in, before it runs the tool."""

# ---------------------------------------------------------------- the world


@dataclass
class World:
    client: Client
    scripted: Scripted
    shop: McpServer | None
    names: int = 0
    agents: list[Agent] = field(default_factory=list)
    """One for each case: one worker hosts them all."""
    beside: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What runs beside that worker."""

    def another_name(self) -> str:
        self.names += 1
        return f"agent{self.names}"

    async def case(self, kind: str, *hooks: Hooks, option: Options | None = None, **more: Any) -> Case:
        made: Made = await KINDS[kind](self, **(option or {}))
        if "reviewer" in more:
            more["reviewer"] = more["reviewer"].model_copy(update={"tools": (made.name,)})
        asks = call(made.name, made.arguments, id="c")

        def script(messages: list[Any]) -> Any:
            return "Done." if messages[-1]["role"] == "tool" else asks

        agent = agent_on(self.scripted(script), name=self.another_name(), hooks=hooks, **made.options, **more)
        self.agents.append(agent)
        if made.beside:
            await self.beside.enter_async_context(made.beside)
        return Case(self.client, agent, made)


@dataclass
class Case:
    client: Client
    agent: Agent
    made: Made

    async def begin(self, *rules: Rule) -> Conversation:
        return await self.client.start(self.agent, "Go", policy=rules)

    def rule(self, then: Any, **more: Any) -> Rule:
        return Rule(tool=self.made.name, then=then, reason="so it is", **more)


async def waits_for(conversation: Conversation, reason: str) -> Status:
    async def there() -> Status | None:
        status = await conversation.status()
        assert status.state != "done", await result(conversation)
        return status if [waiting_call.reason for waiting_call in status.waiting] == [reason] else None

    status: Status = await eventually(there, what=f"it waits: {reason}", pause=QUERY_SECONDS)
    return status


async def result(conversation: Conversation) -> ToolResult:
    """Of the call, once the conversation has gone on."""
    await conversation.outcome()
    return next(result for result in results_of(await conversation.transcript()) if result.call_id == "c")


async def events_of(conversation: Conversation) -> list[Event]:
    reader, steps = EventReader(), read_steps(conversation._temporal, conversation.id)
    return [event async for step in steps for event in reader.read_step(step, run_id="")]


BEGUN = ("tool_started", "answer_requested", "handed_off")


async def started(conversation: Conversation) -> bool:
    """Whether the call was begun, or handed out."""
    return any(event.kind in BEGUN for event in await events_of(conversation))


async def begun(conversation: Conversation) -> bool:
    """Whether it was, or has a result that is no error."""
    return any(
        event.kind in BEGUN or (event.kind == "tool_finished" and not event.result.is_error)
        for event in await events_of(conversation)
    )


async def goes_on(conversation: Conversation, kind: str) -> None:
    """After its approval, the call runs, or waits for its answer."""
    if kind in OUTSIDE:
        await waits_for(conversation, "asks_user" if kind == "`ask_user`" else "runs_outside")
        await conversation.answer("c", "here it is")
    assert not (await result(conversation)).is_error
    assert await begun(conversation)


async def asks_and_goes_on(conversation: Conversation, kind: str) -> None:
    assert (await waits_for(conversation, "needs_approval")).state == "awaiting_approval"
    assert not await begun(conversation)
    if kind in OUTSIDE:
        with pytest.raises(Refused, match="waits for an approval"):
            await conversation.answer("c", "too early")
    await conversation.approve("c")
    await goes_on(conversation, kind)


async def is_denied(conversation: Conversation, why: str) -> None:
    assert re.search(why, (await result(conversation)).text)
    assert not await begun(conversation)


# ---------------------------------------------------------------- the guards
#
# Each makes its agents, for the one worker of the kind, and yields; it goes on once that worker runs.

Guard = AsyncGenerator[None]

WITH_FURTHER_CASES = ("function", "client's tool", "sub-agent", "handoff", '`loop="manual"`')
"""Each guard stands before every kind. What it does beyond that, such as with a rule for another agent, is asked of one
kind of each way that a call takes through the gate. The other kinds take one of these ways: planning has one for all
(`_gate_of`) and one for manual loops (`_plan_manual`), and a workflow has one for calls that workers, activities and
operations run (`_run_when_allowed`, in which handoffs have a branch), one for those that wait for an answer, and one
for sub-agents."""


async def needs_approval(world: World, kind: str) -> Guard:
    further = [lambda _: None] if kind in WITH_FURTHER_CASES else []
    cases = [await world.case(kind, option={"needs_approval": asks}) for asks in (True, *further)]
    yield
    for case in cases:
        await asks_and_goes_on(await case.begin(), kind)


async def reviewer(world: World, kind: str) -> Guard:
    """It decides where only `needs_approval` asks; a rule goes before it, and `approvers` may refuse it."""

    async def reviewed(verdict: str, **options: Any) -> Case:
        judge = world.scripted(lambda _: json.dumps({"verdict": verdict, "reason": "as I see it"}))
        rules = Reviewer(model=Model("scripted:judge", base_url=judge.base_url), instructions="Lamps only.")
        return await world.case(kind, option={"needs_approval": True}, reviewer=rules, **options)

    approving, denying = await reviewed("approve"), await reviewed("deny")
    refused = await reviewed("deny", approvers=lambda call, decision: "no models")
    yield
    conversation, denied = await approving.begin(), await denying.begin()
    await goes_on(conversation, kind)
    decision = (await result(conversation)).decision
    assert decision or kind == "handoff"
    assert not decision or (decision.by, decision.by_model) == ("model:scripted:judge", True)
    await is_denied(denied, "by the reviewer model:scripted:judge .* Reason: as I see it")
    for verdict, decided_on in (("approve", conversation), ("deny", denied)):
        decided = next(event for event in await events_of(decided_on) if event.kind == "decided")
        assert (decided.verdict, decided.by_model, decided.by_policy) == (verdict, True, False)
    if kind in WITH_FURTHER_CASES:
        await asks_and_goes_on(await approving.begin(approving.rule("ask")), kind)
        conversation = await refused.begin()
        assert "no models" in (await waits_for(conversation, "not_allowed")).waiting[0].why
        await conversation.close()
        await conversation.outcome()


async def rule_asks(world: World, kind: str) -> Guard:
    case = await world.case(kind)
    yield
    await asks_and_goes_on(await case.begin(case.rule("ask")), kind)
    if kind in WITH_FURTHER_CASES:
        released = await case.begin(case.rule("ask"))
        await waits_for(released, "needs_approval")
        await released.set_policy([])
        await goes_on(released, kind)
        other = await case.begin(case.rule("ask", agent="somebody_else"))
        await goes_on(other, kind)


async def rule_denies(world: World, kind: str) -> Guard:
    case = await world.case(kind)
    yield
    await is_denied(await case.begin(case.rule("deny")), "policy of tester and did not run. Reason: so it is")
    if kind in WITH_FURTHER_CASES:
        live = await case.begin(case.rule("ask"))
        await waits_for(live, "needs_approval")
        await live.set_policy([case.rule("deny")])
        await is_denied(live, "policy of tester and did not run")


async def hook_denies(world: World, kind: str) -> Guard:
    @before_tool
    def no(call: Any, context: Any) -> DenyCall:
        return DenyCall("not today")

    case = await world.case(kind, no)
    yield
    await is_denied(await case.begin(), "denied by no and did not run. Reason: not today")


async def hook_asks(world: World, kind: str) -> Guard:
    @before_tool
    def maybe(call: Any, context: Any) -> AskApproval:
        return AskApproval("who knows")

    case = await world.case(kind, maybe)
    yield
    await asks_and_goes_on(await case.begin(), kind)


async def hook_answers(world: World, kind: str) -> Guard:
    """Nothing runs, with arguments of the model's or of a person's. A rule and a hook that asks hold all the same."""

    @before_tool
    def maybe(call: ToolCall, context: Any) -> AskApproval | None:
        return AskApproval("who knows") if context.metadata.get("asks") else None

    @before_tool
    def answers(call: ToolCall, context: Any) -> ToolResult | None:
        known = "!" not in str(call.arguments) or "!!" in str(call.arguments)
        return ToolResult(call_id=call.call_id, content=(Text(text="as before"),)) if known else None

    @after_tool
    def seen(call: ToolCall, result: ToolResult, context: Any) -> str:
        return f"{result.text}, seen"

    option = {} if CELLS[kind]["`needs_approval`"] != "yes" else {"needs_approval": True}
    case = await world.case(kind, maybe, answers, seen, option=option)
    yield
    given = await result(conversation := await case.begin())
    assert (given.text, given.by_hook, given.decision) == ("as before, seen", True, None)
    assert not await started(conversation)
    if kind in WITH_FURTHER_CASES:
        await is_denied(await case.begin(case.rule("deny")), "policy of tester and did not run")
    conversation = await case.client.start(case.agent, "Go", metadata={"asks": "yes"})
    await waits_for(conversation, "needs_approval")
    await conversation.approve("c", {name: f"{value}!" for name, value in case.made.arguments.items()})
    await waits_for(conversation, "invalid_edit")
    await conversation.approve("c", {name: f"{value}!!" for name, value in case.made.arguments.items()})
    given = await result(conversation)
    assert given.text.endswith("as before, seen")
    assert given.decision
    assert kind in BY_WORKERS or not await started(conversation)


async def approvers(world: World, kind: str) -> Guard:
    case = await world.case(kind, approvers=lambda call, decision: decision.note == "please" or "not you")
    yield
    conversation = await case.begin(case.rule("ask"))
    await waits_for(conversation, "needs_approval")
    await conversation.approve("c")
    assert "not you" in (await waits_for(conversation, "not_allowed")).waiting[0].why
    assert not await begun(conversation)
    await conversation.approve("c", note="please")
    await goes_on(conversation, kind)


async def edits_are_checked(world: World, kind: str) -> Guard:
    case = await world.case(kind)
    yield
    conversation = await case.begin(case.rule("ask"))
    await waits_for(conversation, "needs_approval")
    if case.made.misfit:
        await conversation.approve("c", case.made.misfit)
        assert "do not fit" in (await waits_for(conversation, "invalid_edit")).waiting[0].why
        assert kind in BY_WORKERS or not await begun(conversation)
    edited = {name: f"{value}!" for name, value in case.made.arguments.items()}
    await conversation.approve("c", edited)
    if kind in OUTSIDE:
        status = await waits_for(conversation, "asks_user" if kind == "`ask_user`" else "runs_outside")
        assert status.waiting[0].arguments == edited
    await goes_on(conversation, kind)
    decision = (await result(conversation)).decision
    assert decision
    assert (decision.verdict, decision.arguments) == ("approve", edited)


async def expires(world: World, kind: str) -> Guard:
    case = await world.case(kind, approvals=Approvals(expire_after=timedelta(seconds=0.2)))
    yield
    await is_denied(await case.begin(case.rule("ask")), "Nobody decided within")


async def hook_after(world: World, kind: str) -> Guard:
    @after_tool
    def seen(call: Any, result: Any, context: Any) -> str:
        return "seen by a hook"

    case = await world.case(kind, seen)
    yield
    conversation = await case.begin()
    await goes_on(conversation, kind)
    assert ((await result(conversation)).text == "seen by a hook") is (CELLS[kind]["`after_tool`"] == "yes")


GUARDS: dict[str, Callable[[World, str], Guard]] = {
    "`needs_approval`": needs_approval,
    "`reviewer`": reviewer,
    "rule: ask": rule_asks,
    "rule: deny": rule_denies,
    "`before_tool` denies": hook_denies,
    "`before_tool` asks": hook_asks,
    "`before_tool` answers": hook_answers,
    "`approvers`": approvers,
    "edits are checked": edits_are_checked,
    "expires": expires,
    "`after_tool`": hook_after,
}


def test_the_page_has_each_kind_of_call_and_each_guard() -> None:
    assert [*CELLS] == [*KINDS]
    assert all([*row] == [*GUARDS] for row in CELLS.values())


@pytest.mark.parametrize("kind", KINDS)
async def test_each_guard_stands_before_each_kind_of_call(
    client: Client, scripted: Scripted, tmp_path: Path, kind: str
) -> None:
    checked = {"yes", "no"}
    with McpShop(tmp_path).http() if kind == "MCP tool" else nullcontext() as shop:
        world = World(client, scripted, shop)
        guards = [guard(world, kind) for name, guard in GUARDS.items() if CELLS[kind][name] in checked]
        async with world.beside:
            for guard in guards:
                await anext(guard)
            async with hosting(client, *world.agents):
                await asyncio.gather(*(anext(guard, None) for guard in guards))


# ---------------------------------------------------------------- what holds beside the table


@tool(needs_approval=True, effect="once")
def pay(cents: int) -> str:
    """Pays."""
    return f"paid {cents}"


async def test_what_a_hook_makes_of_a_persons_arguments_is_shown_to_the_person_first(
    client: Client, scripted: Scripted
) -> None:
    @before_tool
    def doubles(call: ToolCall, context: ToolContext) -> ToolCall:
        return call.model_copy(update={"arguments": {"cents": call.arguments["cents"] * 2}})

    agent = agent_on(scripted([call("pay", {"cents": 100}, id="c"), "Done."]), tools=[pay], hooks=[doubles])
    async with hosting(client, agent, cached_conversations=0):
        conversation = await client.start(agent, "Go")
        [shown] = (await waits_for(conversation, "needs_approval")).waiting
        assert shown.arguments == {"cents": 200}
        await conversation.approve("c", {"cents": 300}, expected={"cents": 200})
        [shown] = (await waits_for(conversation, "invalid_edit")).waiting
        assert shown.arguments == {"cents": 600}
        assert "doubles would change them" in shown.why
        with pytest.raises(Refused, match="different arguments now"):
            await conversation.approve("c", expected={"cents": 200})
        await conversation.approve("c", expected={"cents": 600})
        outcome = await result(conversation)
    assert outcome.text.endswith("paid 600")
    assert outcome.decision
    assert outcome.decision.arguments == {"cents": 600}


@pytest.mark.parametrize("verdict", ["approve", "deny", "answer"])
@pytest.mark.parametrize("seen_in", ["status", "event"])
async def test_a_decision_is_about_the_call_as_it_was_seen(
    client: Client, scripted: Scripted, verdict: str, seen_in: str
) -> None:
    """A tab that was left open shows the same arguments, but the call may have run since."""

    @tool(needs_approval=True, effect="once")
    def send(to: str) -> str:
        """Sends."""
        sent.append(to)
        raise OutcomeUnknown("the line was cut")

    sent: list[str] = []
    agent = agent_on(scripted([call("send", {"to": "Ann"}, id="c"), "Done."]), tools=[send])
    async with hosting(client, agent, cached_conversations=0):
        conversation = await client.start(agent, "Go")
        seen = await as_seen(conversation, "needs_approval", seen_in)
        content = {"content": "sent"} if verdict == "answer" else {}
        decide = getattr(conversation, verdict)
        await conversation.approve("c", expected=seen)
        again = await as_seen(conversation, "outcome_unknown", seen_in)
        assert again.question not in ("", seen.question)
        with pytest.raises(Refused, match=r"is asked about call 'c' now: outcome unknown: .*the line was"):
            await decide("c", expected=seen, **content)
        await decide("c", expected=again, **content)
        if verdict == "approve":
            await eventually(lambda: len(sent) == 2)
            await waits_for(conversation, "outcome_unknown")
            await conversation.deny("c")
        await conversation.outcome()


async def as_seen(conversation: Conversation, reason: str, seen_in: str) -> Any:
    [waits] = (await waits_for(conversation, reason)).waiting
    if seen_in == "status":
        return waits
    async for event in conversation.events(deltas=False):
        if isinstance(event, ApprovalRequested) and event.reason == reason:
            assert event.question == waits.question, "it is the same question, however it is read"
            return event
    raise AssertionError("nobody is asked")


async def test_an_edit_that_changes_nothing_is_not_seen_by_hooks_again(client: Client, scripted: Scripted) -> None:
    """As pages send them, which repeat the arguments that they were shown."""

    @before_tool
    def doubles(call: ToolCall, context: ToolContext) -> ToolCall:
        return call.model_copy(update={"arguments": {"cents": call.arguments["cents"] * 2}})

    agent = agent_on(scripted([call("pay", {"cents": 100}, id="c"), "Done."]), tools=[pay], hooks=[doubles])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waits_for(conversation, "needs_approval")
        await conversation.approve("c", {"cents": 200})
        assert (await result(conversation)).text.endswith("paid 200")


async def test_approvers_that_say_neither_yes_nor_no_let_nothing_through(client: Client, scripted: Scripted) -> None:
    odd: dict[str, Any] = {"a": "", "b": " ", "c": 5, "d": None, "e": ("yes",), "f": 1.0, "g": {"allowed": True}}
    answers = {**odd, "last": True}
    model = scripted([call("pay", {"cents": 1}, id="c"), "Done."])
    agent = agent_on(model, tools=[pay], approvers=lambda call, decision: answers[decision.by])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waits_for(conversation, "needs_approval")
        handle = client.temporal.get_workflow_handle(conversation.id)
        for by in answers:
            await handle.execute_update("approve", {"call_id": "c", "by": by})
            if by in odd:
                await eventually(lambda by=by: _says(conversation, f"{by} may not decide: the policy returned"))
        assert (await result(conversation)).text == "paid 1"


async def _says(conversation: Conversation, words: str) -> bool:
    return any(words in waiting_call.why for waiting_call in (await conversation.status()).waiting)


@pytest.mark.parametrize("answer", [None, 0, "", "no", [], 1.0])
async def test_a_predicate_that_says_neither_yes_nor_no_asks_a_person(answer: Any) -> None:
    assert await tool(refund, needs_approval=lambda _: answer).needs_decision({"order_id": "81"})


async def test_what_failed_to_be_checked_is_not_approved_by_an_expiry(client: Client, scripted: Scripted) -> None:
    @before_tool
    def breaks(call: ToolCall, context: ToolContext) -> None:
        raise RuntimeError("no directory")

    approvals = Approvals(expire_after=timedelta(seconds=0.1), on_expiry="approve")
    model = scripted([call("pay", {"cents": 1}, id="c"), "Done."])
    agent = agent_on(model, tools=[pay], hooks=[breaks], approvals=approvals)
    async with hosting(client, agent):
        assert "Nobody decided" in (await result(await client.start(agent, "Go"))).text


@pytest.mark.parametrize("then", ["deny", "ask"])
async def test_a_rule_that_comes_while_a_client_has_the_call_holds_it_back(
    client: Client, scripted: Scripted, then: Any
) -> None:
    ran = asyncio.Event()

    @tool(runs_on="client")
    def send(to: str) -> str:
        """Sends."""
        ran.set()
        return f"sent to {to}"

    agent = agent_on(scripted([call("send", {"to": "Ann"}, id="c"), "Done."]), tools=[send])
    rule = Rule(tool="send", then=then)
    async with hosting(client, agent, cached_conversations=0):
        conversation, late = await client.start(agent, "Go"), await client.start(agent, "Go")
        for one in (conversation, late):
            await waits_for(one, "runs_outside")
            await one.set_policy([rule])
        if then == "deny":
            assert "may have run it" in (await result(conversation)).text
            return
        await waits_for(conversation, "needs_approval")
        with pytest.raises(Refused, match="waits for an approval"):
            await conversation.call_tool((await conversation.status()).waiting[0], send)
        assert not ran.is_set()
        serving = asyncio.create_task(conversation.run_tools([send]))
        await conversation.approve("c")
        assert await serving == "Done."
        await waits_for(late, "needs_approval")
        await late.answer("c", "sent before that")  # by a client that had begun it
        assert (await result(late)).text == "sent before that"


async def test_what_a_person_approved_is_what_goes_to_the_client_in_each_run(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    send = tool(refund, runs_on="client", needs_approval=True)
    agent = agent_on(scripted([call("refund", {"order_id": "81"}, id="c"), "Done."]), tools=[send])
    bounds(events=10)
    async with hosting(client, agent, cached_conversations=0):
        conversation = await client.start(agent, "Go")
        await waits_for(conversation, "needs_approval")
        await conversation.approve("c", {"order_id": "82"}, note="the other one")
        [waits] = (await waits_for(conversation, "runs_outside")).waiting
        assert waits.arguments == {"order_id": "82"}
        await eventually(lambda: _runs(client, conversation, 2))
        [waits] = (await waits_for(conversation, "runs_outside")).waiting
        assert waits.arguments == {"order_id": "82"}
        assert await conversation.run_tools([send]) == "Done."
        given = await result(conversation)
    assert given.text.startswith("[")
    assert given.text.endswith("refunded 82")
    assert given.decision
    assert (given.decision.verdict, given.decision.note) == ("approve", "the other one")


async def _runs(client: Client, conversation: Conversation, count: int) -> bool:
    return len(await runs_of(client, conversation)) >= count


async def test_a_sub_agent_goes_by_the_rules_of_who_asked_also_by_later_ones(
    client: Client, scripted: Scripted
) -> None:
    """Two levels deep."""
    pays = lambda messages: "I am done." if messages[-1]["role"] == "tool" else call("pay", {"cents": 5})  # noqa: E731
    helper = agent_on(scripted(pays), tools=[pay], name="helper")
    middle = agent_on(scripted([call("helper", {"message": "Pay"}), "Helped."] * 3), tools=[helper], name="middle")
    top = agent_on(scripted([call("middle", {"message": "Pay"}), "Done."] * 3), tools=[middle])
    async with hosting(client, top, cached_conversations=0):
        conversation = await client.start(top, "Go", policy=[Rule(tool="pay", then="deny", reason="at once")])
        await conversation.outcome()
        assert "policy of tester" in await _childs_result(client, conversation)
        conversation = await client.start(top, "Go")
        child = await eventually(lambda: _grandchild(client, conversation))
        await waits_for(child, "needs_approval")
        await conversation.set_policy([Rule(tool="pay", then="deny", agent="helper", reason="stop")])
        await conversation.outcome()
        assert "policy of tester and did not run. Reason: stop" in await _childs_result(client, conversation)
        assert (await child.by_history()).state.inherited


async def _grandchild(client: Client, conversation: Conversation) -> Conversation | None:
    for asked in (await conversation.status()).agents:
        with suppress(NotFound):  # it is asked, and its conversation has not begun
            for further in (await client.conversation(asked.conversation_id).status()).agents:
                return client.conversation(further.conversation_id)
    return None


async def _childs_result(client: Client, conversation: Conversation) -> str:
    below = conversation
    for _ in range(2):
        [called] = results_of(await below.transcript())
        below = client.conversation(child_id(below.id, called.call_id))
    [paid] = results_of(await below.transcript())
    return paid.text


async def test_a_decision_for_always_is_about_the_tool_of_the_agent_that_called_it(
    client: Client, scripted: Scripted
) -> None:
    others = tool(refund, name="pay", needs_approval=True)
    asks = call("pay", {"order_id": "81"}, id="b")
    second = agent_on(scripted(["", "", asks, "Done."]), tools=[others], name="second")
    script = [call("pay", {"cents": 5}, id="a"), call("transfer_to_second", {}, id="h")]
    first = agent_on(scripted(script), tools=[pay], handoff_to=[second])
    async with hosting(client, first, second):
        conversation = await client.start(first, "Go")
        await waiting(conversation)
        await conversation.approve("a", always=True)
        assert await waiting(conversation) == ("b",), "another agent's tool of that name"
        [rule] = (await conversation.status()).policy
        assert (rule.tool, rule.agent) == ("pay", "clerk")
        fork = await conversation.fork(at_turn=2)
        assert await waiting(fork) == ("b",)


async def test_a_word_that_is_misspelt_changes_nothing(client: Client, scripted: Scripted) -> None:
    """A signal is logged; who asks for an answer reads what is wrong."""
    agent = agent_on(scripted([call("pay", {"cents": 5}, id="a"), "Done."]), tools=[pay])
    async with hosting(client, agent):
        with pytest.raises(Refused, match="wher"):
            await client.start(
                agent, "Go", policy=[{"tool": "pay", "then": "approve", "wher": {"cents": {"below": 5}}}]
            )
        conversation = await client.start(agent, "Go", policy=[Rule(tool="pay", then="ask", reason="asked")])
        await waiting(conversation)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("approve", {"call_id": "a", "argument": {"cents": 0}})
        await handle.signal("set_policy", {"rules": [{"tool": "pay", "then": "approve", "agents": "x"}]})
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("approve", {"call_id": "a", "approved": False})
        assert "approved" in str(refused.value.cause)
        status = await conversation.status()
        assert [rule.reason for rule in status.policy] == ["asked"]
        assert [waits.call_id for waits in status.waiting] == ["a"]
        await conversation.deny("a")
        await conversation.outcome()


async def test_a_fork_goes_by_the_rules_of_today(client: Client, scripted: Scripted) -> None:
    script = lambda messages: "Done." if messages[-1]["role"] == "tool" else call("pay", {"cents": 5})  # noqa: E731
    agent = agent_on(scripted(script), tools=[pay])
    async with hosting(client, agent):
        rule = {"tool": "pay", "then": "approve"}
        conversation = await client.start(agent, "Go", policy=[rule], keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.set_policy([Rule(tool="pay", then="deny", reason="All refunds stop.")])
        for turn in (0, 2):
            fork = await conversation.fork(at_turn=turn, message="Again")
            await fork.reply()
            assert "All refunds stop." in results_of(await fork.transcript())[-1].text
            await fork.close()


async def test_hooks_see_the_calls_of_a_manual_loop_or_a_person_does(client: Client, scripted: Scripted) -> None:
    @before_tool
    def no(call: ToolCall, context: ToolContext) -> DenyCall:
        return DenyCall("not today")

    calls = [call("pay", {"cents": 1}, id="a"), call("nothing", {}, id="b"), call("pay", {"cents": []}, id="c")]
    agent = agent_on(scripted([calls, "Done."]), tools=[pay], hooks=[no], loop="manual")
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert await waiting(conversation, calls=2) == ("b", "c")
        assert {waiting_call.reason for waiting_call in (await conversation.status()).waiting} == {"needs_approval"}
        await conversation.deny("*")
        assert "not today" in results_of(await _transcript_of(conversation))[0].text


async def _transcript_of(conversation: Conversation) -> Any:
    await conversation.outcome()
    return await conversation.transcript()
