"""One gate for every kind of call: the table of docs/reference/gate.md, and each of its cells on the real thing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
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
    names,
    nexus_tool,
    tool,
)
from everturn.errors import Ended, NotFound, OutcomeUnknown, Refused
from everturn.events import AnswerRequested, ApprovalRequested, Decided, Event, HandedOff, ToolFinished, ToolStarted
from everturn.history.event_reader import EventReader
from everturn.history.reader import read_steps
from everturn.hooks import AskApproval, DenyCall, Hooks, after_tool, before_tool
from everturn.payloads import Status, WaitingCall
from everturn.policy import Rule
from everturn.records import Text, ToolResult
from everturn.temporal.ids import child_id
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.mcp_shop_server import McpShop
from tests.support.nexus_endpoints import endpoint_to
from tests.support.operators import signal
from tests.support.side_by_side import side_by_side
from tests.support.transcripts import results_of
from tests.support.waiting import QUERY_SECONDS, eventually, waiting

Scripted = Callable[..., ScriptedModel]
Options = dict[str, Any]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "reference" / "gate.md"


def cells() -> dict[str, dict[str, str]]:
    """What the page says: by the kind of call, in words that can be a call's id, and by the guard."""
    table = TABLE.read_text().partition("<!-- gate -->")[2].partition("<!-- end of gate -->")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.split("\n") if line[:1] == "|"]
    header, _, *rows = lines
    kinds = [re.sub(r"\W+", "_", row[0]).strip("_") for row in rows]
    return {kind: dict(zip(header[1:], row[1:], strict=True)) for kind, row in zip(kinds, rows, strict=True)}


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
    made = tool(refund, name="refund_locally", effect="read", local=True, timeout=timedelta(seconds=5), **option)
    return of_tool(made)


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
async def greeting(client: Client) -> AsyncIterator[str]:
    """The name of an endpoint, for as long as its operations are handled."""
    queue = f"shop-{uuid4().hex[:8]}"
    theirs = await TemporalClient.connect(client.temporal.service_client.config.target_host)
    async with TemporalWorker(theirs, task_queue=queue, nexus_service_handlers=[Greeter()]):
        yield await endpoint_to(client, queue)


async def nexus_operation(world: World, **option: Any) -> Made:
    greet = nexus_tool(Greetings.greet, endpoint=world.endpoint, service=Greetings, **option)
    return replace(of_tool(greet, {"input": "Ada"}), misfit={"input": ["no", "text"]})


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
    raw = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
    return Made({"tools": [raw]}, raw["name"], {"command": "view"}, misfit={})


async def clients(world: World, **option: Any) -> Made:
    return of_tool(tool(refund, name="refund_there", runs_on="client", effect="once", **option))


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
    "local_function": local,
    "your_activity": your_activity,
    "Nexus_operation": nexus_operation,
    "MCP_tool": mcp_tool,
    "provider_s_tool_with_a_handler": handler,
    "provider_s_tool_without_one": no_handler,
    "client_s_tool": clients,
    "ask_user": question,
    "sub_agent": sub_agent,
    "handoff": handoff,
    "loop_manual": manual,
}

ALONE = ("handoff", "loop_manual")
"""A handoff ends its agent's turn, and a loop is the agent's. Calls of all other kinds stand in one reply."""

GROUPS: dict[str, list[str]] = {
    "in one reply": [kind for kind in KINDS if kind not in ALONE],
    **{kind: [kind] for kind in ALONE},
}

OUTSIDE = {
    "provider_s_tool_without_one": "runs_outside",
    "client_s_tool": "runs_outside",
    "ask_user": "asks_user",
    "loop_manual": "runs_outside",
}
"""Kinds that wait for an answer, and what that is called."""

BY_WORKERS = ("function", "local_function", "MCP_tool", "provider_s_tool_with_a_handler")
"""Kinds whose activity looks at arguments that a person put in, before it runs the tool."""

# ---------------------------------------------------------------- the world


@dataclass
class World:
    client: Client
    scripted: Scripted
    shop: McpServer | None
    endpoint: str
    names: int = 0
    agents: list[Agent] = field(default_factory=list)
    """One for each case: one worker hosts them all."""

    def another_name(self) -> str:
        self.names += 1
        return f"agent{self.names}"

    async def case(self, kinds: list[str], *hooks: Hooks, option: Options | None = None, **more: Any) -> Case:
        """An agent whose reply has a call of each of these kinds, with the call's kind as its id."""
        calls: dict[str, Made] = {}
        options: Options = {}
        for kind in kinds:
            takes_option = CELLS[kind]["`needs_approval`"] == "yes"
            calls[kind] = await KINDS[kind](self, **((option or {}) if takes_option else {}))
            for name, value in calls[kind].options.items():
                options[name] = [*options.get(name, []), *value] if isinstance(value, list) else value
        if "reviewer" in more:
            names = tuple(made.name for made in calls.values())
            more["reviewer"] = more["reviewer"].model_copy(update={"tools": names})
        asks = [call(made.name, made.arguments, id=kind) for kind, made in calls.items()]

        def script(messages: list[Any]) -> Any:
            return "Done." if messages[-1]["role"] == "tool" else asks

        agent = agent_on(self.scripted(script), name=self.another_name(), hooks=hooks, **options, **more)
        self.agents.append(agent)
        return Case(self.client, agent, calls)


@dataclass
class Case:
    client: Client
    agent: Agent
    calls: dict[str, Made]
    """By their kind."""

    async def begin(self, *rules: Rule, **options: Any) -> Conversation:
        return await self.client.start(self.agent, "Go", policy=rules, **options)

    def rules(self, then: Any, **more: Any) -> list[Rule]:
        return [Rule(tool=made.name, then=then, reason="so it is", **more) for made in self.calls.values()]

    def edited(self, kind: str, mark: str) -> Options:
        return {name: f"{value}{mark}" for name, value in self.calls[kind].arguments.items()}


async def wait_for(conversation: Conversation, reasons: dict[str, str]) -> dict[str, WaitingCall]:
    """What waits, by its id, once that is these calls, each for its reason."""

    async def there() -> Status | None:
        status = await conversation.status()
        assert status.state != "done", await results(conversation)
        return status if {waits.call_id: waits.reason for waits in status.waiting} == reasons else None

    status: Status = await eventually(there, what=f"it waits: {reasons}", pause=QUERY_SECONDS)
    if "needs_approval" in reasons.values():
        assert status.state == "awaiting_approval"
    return {waits.call_id: waits for waits in status.waiting}


async def waits_for(conversation: Conversation, reason: str) -> Status:
    """The status, once the call waits for that."""
    await wait_for(conversation, {"c": reason})
    return await conversation.status()


async def results(conversation: Conversation) -> dict[str, ToolResult]:
    """Of the calls, once the conversation has gone on."""
    await conversation.outcome()
    return {result.call_id: result for result in results_of(await conversation.transcript())}


async def result(conversation: Conversation) -> ToolResult:
    return (await results(conversation))["c"]


async def events_of(conversation: Conversation) -> list[Event]:
    reader, steps = EventReader(), read_steps(conversation._temporal, conversation.id)
    return [event async for step in steps for event in reader.read_step(step, run_id="")]


def started(events: list[Event]) -> set[str]:
    """The calls that were begun, or handed out."""
    calls = {event.call_id for event in events if isinstance(event, ToolStarted | AnswerRequested)}
    return calls | {"handoff" for event in events if isinstance(event, HandedOff)}


def begun(events: list[Event]) -> set[str]:
    """Those, and who has a result that is no error."""
    finished = [event.result for event in events if isinstance(event, ToolFinished)]
    return started(events) | {result.call_id for result in finished if not result.is_error}


async def go_on(conversation: Conversation, case: Case) -> dict[str, ToolResult]:
    """After their approval, the calls run, or wait for their answers."""
    if outside := {kind: OUTSIDE[kind] for kind in case.calls if kind in OUTSIDE}:
        await wait_for(conversation, outside)
        await asyncio.gather(*(conversation.answer(kind, "here it is") for kind in outside))
    given = await results(conversation)
    assert [*given] == [*case.calls]
    assert not [result for result in given.values() if result.is_error]
    assert begun(await events_of(conversation)) == {*case.calls}
    return given


async def ask_and_go_on(conversation: Conversation, case: Case) -> None:
    await wait_for(conversation, dict.fromkeys(case.calls, "needs_approval"))
    assert not begun(await events_of(conversation))
    for kind in case.calls:
        if kind in OUTSIDE:
            with pytest.raises(Refused, match="waits for an approval"):
                await conversation.answer(kind, "too early")
    await approve(conversation, case)
    await go_on(conversation, case)


async def approve(conversation: Conversation, case: Case, **more: Any) -> None:
    await asyncio.gather(*(conversation.approve(kind, **more) for kind in case.calls))


async def are_denied(conversation: Conversation, case: Case, why: str) -> None:
    given = await results(conversation)
    assert [*given] == [*case.calls]
    assert not [result for result in given.values() if not re.search(why, result.text)]
    assert not begun(await events_of(conversation))


# ---------------------------------------------------------------- the guards
#
# Each makes its agents, for the one worker of the kinds, and yields; it goes on once that worker runs.

Guard = AsyncGenerator[None]

WITH_FURTHER_CASES = ("function", "client_s_tool", "sub_agent", "handoff", "loop_manual")
"""Each guard stands before every kind. What it does beyond that, such as with a rule for another agent, is asked of one
kind of each way that a call takes through the gate. The other kinds take one of these ways: planning has one for all
(`_gate_of`) and one for manual loops (`_plan_manual`), and a workflow has one for calls that workers, activities and
operations run (`_run_when_allowed`, in which handoffs have a branch), one for those that wait for an answer, and one
for sub-agents."""


def further(kinds: list[str]) -> list[str]:
    return [kind for kind in kinds if kind in WITH_FURTHER_CASES]


async def needs_approval(world: World, kinds: list[str]) -> Guard:
    case = await world.case(kinds, option={"needs_approval": True})
    asked = [kind for kind in further(kinds) if CELLS[kind]["`needs_approval`"] == "yes"]
    perhaps = await world.case(asked, option={"needs_approval": lambda _: None})
    yield
    await ask_and_go_on(await case.begin(), case)
    await ask_and_go_on(await perhaps.begin(), perhaps)


async def reviewer(world: World, kinds: list[str]) -> Guard:
    """It decides where only `needs_approval` asks; a rule goes before it, and `approvers` may refuse it."""

    async def reviewed(verdict: str, reviewed_kinds: list[str], **options: Any) -> Case:
        judge = world.scripted(lambda _: json.dumps({"verdict": verdict, "reason": "as I see it"}))
        rules = Reviewer(model=Model("scripted:judge", base_url=judge.base_url), instructions="Lamps only.")
        return await world.case(reviewed_kinds, option={"needs_approval": True}, reviewer=rules, **options)

    approving, denying = await reviewed("approve", kinds), await reviewed("deny", kinds)
    passed_over = await reviewed("approve", further(kinds))
    refused = await reviewed("deny", further(kinds), approvers=lambda call, decision: "no models")
    yield
    conversation, denied = await approving.begin(), await denying.begin()
    given = await go_on(conversation, approving)
    for kind, result in given.items():
        assert result.decision or kind == "handoff"
        assert not result.decision or (result.decision.by, result.decision.by_model) == ("model:scripted:judge", True)
    await are_denied(denied, denying, "by the reviewer model:scripted:judge .* Reason: as I see it")
    for verdict, decided_on in (("approve", conversation), ("deny", denied)):
        decisions = [event for event in await events_of(decided_on) if isinstance(event, Decided)]
        decided = {event.call_id: event for event in reversed(decisions)}  # the first one on each call counts
        assert {*decided} == {*kinds}
        for event in decided.values():
            assert (event.verdict, event.by_model, event.by_policy) == (verdict, True, False)
    await ask_and_go_on(await passed_over.begin(*passed_over.rules("ask")), passed_over)
    conversation = await refused.begin()
    waiting_calls = await wait_for(conversation, dict.fromkeys(refused.calls, "not_allowed"))
    assert all("no models" in waits.why for waits in waiting_calls.values())
    await conversation.close()
    await conversation.outcome()


async def rule_asks(world: World, kinds: list[str]) -> Guard:
    case, live = await world.case(kinds), await world.case(further(kinds))
    yield
    await ask_and_go_on(await case.begin(*case.rules("ask")), case)
    released = await live.begin(*live.rules("ask"))
    await wait_for(released, dict.fromkeys(live.calls, "needs_approval"))
    await released.set_policy([])
    await go_on(released, live)
    await go_on(await live.begin(*live.rules("ask", agent="somebody_else")), live)


async def rule_denies(world: World, kinds: list[str]) -> Guard:
    case, live = await world.case(kinds), await world.case(further(kinds))
    yield
    await are_denied(await case.begin(*case.rules("deny")), case, "policy of tester and did not run. Reason: so it is")
    waiting_for_it = await live.begin(*live.rules("ask"))
    await wait_for(waiting_for_it, dict.fromkeys(live.calls, "needs_approval"))
    await waiting_for_it.set_policy(live.rules("deny"))
    await are_denied(waiting_for_it, live, "policy of tester and did not run")


async def hook_denies(world: World, kinds: list[str]) -> Guard:
    @before_tool
    def no(call: Any, context: Any) -> DenyCall:
        return DenyCall("not today")

    case = await world.case(kinds, no)
    yield
    await are_denied(await case.begin(), case, "denied by no and did not run. Reason: not today")


async def hook_asks(world: World, kinds: list[str]) -> Guard:
    @before_tool
    def maybe(call: Any, context: Any) -> AskApproval:
        return AskApproval("who knows")

    case = await world.case(kinds, maybe)
    yield
    await ask_and_go_on(await case.begin(), case)


async def hook_answers(world: World, kinds: list[str]) -> Guard:
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

    case = await world.case(kinds, maybe, answers, seen, option={"needs_approval": True})
    ruled = await world.case(further(kinds), maybe, answers, seen, option={"needs_approval": True})
    yield
    given = await results(conversation := await case.begin())
    assert [*given] == [*kinds]
    for result in given.values():
        assert (result.text, result.by_hook, result.decision) == ("as before, seen", True, None)
    assert not started(await events_of(conversation))
    await are_denied(await ruled.begin(*ruled.rules("deny")), ruled, "policy of tester and did not run")
    conversation = await case.begin(metadata={"asks": "yes"})
    await wait_for(conversation, dict.fromkeys(kinds, "needs_approval"))
    await asyncio.gather(*(conversation.approve(kind, case.edited(kind, "!")) for kind in kinds))
    await wait_for(conversation, dict.fromkeys(kinds, "invalid_edit"))
    await asyncio.gather(*(conversation.approve(kind, case.edited(kind, "!!")) for kind in kinds))
    given = await results(conversation)
    assert [*given] == [*kinds]
    for result in given.values():
        assert result.text.endswith("as before, seen")
        assert result.decision
    assert started(await events_of(conversation)) <= {*BY_WORKERS}


async def approvers(world: World, kinds: list[str]) -> Guard:
    case = await world.case(kinds, approvers=lambda call, decision: decision.note == "please" or "not you")
    yield
    conversation = await case.begin(*case.rules("ask"))
    await wait_for(conversation, dict.fromkeys(kinds, "needs_approval"))
    await approve(conversation, case)
    waiting_calls = await wait_for(conversation, dict.fromkeys(kinds, "not_allowed"))
    assert all("not you" in waits.why for waits in waiting_calls.values())
    assert not begun(await events_of(conversation))
    await approve(conversation, case, note="please")
    await go_on(conversation, case)


async def edits_are_checked(world: World, kinds: list[str]) -> Guard:
    case = await world.case(kinds)
    misfits = {kind: made.misfit for kind, made in case.calls.items() if made.misfit}
    yield
    conversation = await case.begin(*case.rules("ask"))
    await wait_for(conversation, dict.fromkeys(kinds, "needs_approval"))
    await asyncio.gather(*(conversation.approve(kind, misfit) for kind, misfit in misfits.items()))
    reasons = {kind: "invalid_edit" if kind in misfits else "needs_approval" for kind in kinds}
    waiting_calls = await wait_for(conversation, reasons)
    assert all("do not fit" in waiting_calls[kind].why for kind in misfits)
    assert begun(await events_of(conversation)) <= {*BY_WORKERS}
    edited = {kind: case.edited(kind, "!") for kind in kinds}
    await asyncio.gather(*(conversation.approve(kind, arguments) for kind, arguments in edited.items()))
    if outside := {kind: reason for kind, reason in OUTSIDE.items() if kind in kinds}:
        waiting_calls = await wait_for(conversation, outside)
        assert {kind: waits.arguments for kind, waits in waiting_calls.items()} == {
            kind: edited[kind] for kind in outside
        }
    for kind, result in (await go_on(conversation, case)).items():
        assert result.decision
        assert (result.decision.verdict, result.decision.arguments) == ("approve", edited[kind])


async def expires(world: World, kinds: list[str]) -> Guard:
    case = await world.case(kinds, approvals=Approvals(expire_after=timedelta(seconds=0.2)))
    yield
    await are_denied(await case.begin(*case.rules("ask")), case, "Nobody decided within")


async def hook_after(world: World, kinds: list[str]) -> Guard:
    @after_tool
    def seen(call: Any, result: Any, context: Any) -> str:
        return "seen by a hook"

    case = await world.case(kinds, seen)
    yield
    given = await go_on(await case.begin(), case)
    for kind, result in given.items():
        assert (result.text == "seen by a hook") is (CELLS[kind]["`after_tool`"] == "yes"), kind


GUARDS: dict[str, Callable[[World, list[str]], Guard]] = {
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


@pytest.mark.long_if(lambda group: group == "loop_manual")
@pytest.mark.parametrize("group", GROUPS)
async def test_each_guard_stands_before_each_kind_of_call(
    client: Client, scripted: Scripted, tmp_path: Path, group: str
) -> None:
    checked = {"yes", "no"}
    guarded = {name: [kind for kind in GROUPS[group] if CELLS[kind][name] in checked] for name in GUARDS}
    with McpShop(tmp_path).http() if "MCP_tool" in GROUPS[group] else nullcontext() as shop:
        async with greeting(client) if "Nexus_operation" in GROUPS[group] else nullcontext("") as endpoint:
            world = World(client, scripted, shop, endpoint)
            guards = [guard(world, guarded[name]) for name, guard in GUARDS.items() if guarded[name]]
            for guard in guards:
                await anext(guard)
            async with hosting(client, *world.agents):
                await asyncio.gather(*(anext(guard, None) for guard in guards))


# ---------------------------------------------------------------- what holds beside the table


@tool(needs_approval=True, effect="once")
def pay(cents: int) -> str:
    """Pays."""
    return f"paid {cents}"


@pytest.mark.long
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


@pytest.mark.long_if(lambda verdict, seen_in: (verdict, seen_in) not in (("answer", "status"), ("deny", "event")))
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


def _rules(*then: str) -> tuple[str, dict[str, Any]]:
    return names.SET_POLICY, {"rules": [{"tool": "send", "then": each} for each in then]}


APPROVE = (names.APPROVE, {"call_id": "c"})
ANSWER = (names.ANSWER, {"call_id": "c", "content": "sent"})

AFTER_THE_RULE = {
    "nothing": ([], "needs_approval"),
    "close": ([(names.CLOSE, {})], "denied"),
    "deny": ([(names.DENY, {"call_id": "c"})], "denied"),
    "approve": ([APPROVE], "runs_outside"),
    "answer": ([ANSWER], "sent"),
    "taken back": ([_rules()], "runs_outside"),
    "taken back, and set again": ([_rules(), _rules("ask")], "needs_approval"),
    "taken back, and another one": ([_rules(), _rules("deny")], "denied"),
    "approve, answer": ([APPROVE, ANSWER], "sent"),
    "approve, deny always": ([APPROVE, _rules("deny")], "denied"),
    "approve, close": ([APPROVE, (names.CLOSE, {})], "denied"),
    "cancel, answer": ([(names.CANCEL_TURN, {}), ANSWER], "cut short"),
}
"""Commands that come in one workflow task with a rule that holds back what a client has; what the call waits for then,
or what the model is told."""


async def test_what_comes_together_with_a_rule_that_asks_counts(client: Client, scripted: Scripted) -> None:
    @tool(runs_on="client")
    def send() -> str:
        """Sends."""
        return "sent"

    model = scripted(lambda sent: "Done." if any(m["role"] == "tool" for m in sent) else call("send", id="c"))
    agent = agent_on(model, tools=[send])

    async def begin(_: str) -> Conversation:
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await waits_for(conversation, "runs_outside")
        return conversation

    async with hosting(client, agent, cached_conversations=0):
        conversations = await side_by_side(begin, {case: case for case in AFTER_THE_RULE})
    for case, (commands, _) in AFTER_THE_RULE.items():
        for name, payload in [_rules("ask"), *commands]:
            await signal(conversations[case], name, payload)

    async def end(case: str) -> None:
        conversation = conversations[case]
        _, comes_to = AFTER_THE_RULE[case]
        still_waits = comes_to in ("needs_approval", "runs_outside")
        if still_waits:
            waiting_calls = (await waits_for(conversation, comes_to)).waiting
            by_history = (await conversation.by_history()).state.pending.values()
            assert [call.question for call in waiting_calls] == [pending.question for pending in by_history]
        with suppress(Ended):  # it is closed in some cases
            await conversation.close()
        await conversation.outcome()
        [result] = results_of(await conversation.transcript())
        assert still_waits or comes_to in result.text

    async with hosting(client, agent, cached_conversations=0):
        await side_by_side(end, {case: case for case in AFTER_THE_RULE})


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
    paying = call("pay", {"cents": 5}, id="c")
    helper = agent_on(
        scripted(lambda messages: "I am done." if messages[-1]["role"] == "tool" else paying),
        tools=[pay],
        name="helper",
    )
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
