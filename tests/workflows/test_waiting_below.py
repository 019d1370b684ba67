"""A call that waits in a sub-agent's conversation is shown at its parent, with the agents that led to it, and decided
there by its own id: whatever it waits for, and however deep it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp
import pytest
from mcp import types

from everturn import Client, Conversation, ask_user, tool
from everturn.cli.follow import Follower
from everturn.cli.terminal import Screen
from everturn.errors import NotFound, OutcomeUnknown, Refused
from everturn.events import Event, Replied, ToolFinished
from everturn.history import steps
from everturn.mcp_server.server import AgentServer
from everturn.payloads import WaitingCall
from everturn.subagents.followed import FollowedAgents
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell
from tests.support.transcripts import results_of
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]

paid: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@tool(needs_approval=True, effect="once")
def refund(cents: int) -> str:
    """Pays back."""
    paid.append(cents)
    return f"Paid {cents}."


@tool(effect="once")
def wire(cents: int) -> str:
    """Nobody knows what came of it, the first time."""
    paid.append(cents)
    if len(paid) == 1:
        raise OutcomeUnknown("the line broke")
    return f"Wired {cents}."


@tool(runs_on="client")
def locate(cents: int) -> str:
    """Where the customer is."""
    return f"{cents} steps away"


@asynccontextmanager
async def asking(
    client: Client, scripted: Scripted, *calls: Any, deep: bool = False, own: Any = (), **options: Any
) -> AsyncIterator[tuple[Conversation, Conversation]]:
    """A conversation whose agent has asked `helper`, which makes these calls; and the helper's. With `deep`, another
    agent stands between the two."""
    tools = [refund, wire, locate, ask_user]
    below = agent_on(scripted([list(calls), "I am done."]), name="helper", tools=tools, **options)
    ids = ["h"]
    if deep:
        middle = [call("helper", {"message": "Do it."}, id="h"), "It is done."]
        below, ids = agent_on(scripted(middle), name="middle", tools=[below]), ["m", "h"]
    asks = [call(below.name, {"message": "Do it."}, id=ids[0]), *own]
    top = agent_on(scripted([asks, "Done."]), tools=[below, refund])
    async with hosting(client, top):
        conversation = await client.start(top, "Order 81")
        child = client.conversation(".".join([conversation.id, *ids]))
        await shown(conversation, len(calls) + len(own))
        yield conversation, child


async def shown(conversation: Conversation, calls: int = 1) -> tuple[WaitingCall, ...]:
    async def enough() -> tuple[WaitingCall, ...]:
        waiting = (await conversation.status()).waiting
        return waiting if len(waiting) == calls else ()

    return tuple(await eventually(enough))


async def helpers_results(child: Conversation) -> list[str]:
    return [result.text for result in results_of(await child.transcript())]


REFUND = call("refund", {"cents": 5}, id="x")
DECISIONS = {
    "approve": (REFUND, "approval", lambda one: one.approve("x"), ["Paid 5."], [5]),
    "edit": (REFUND, "approval", lambda one: one.approve("x", {"cents": 4}, expected={"cents": 5}), ["Paid 4."], [4]),
    "every call": (REFUND, "approval", lambda one: one.approve(), ["Paid 5."], [5]),
    "deny": (REFUND, "approval", lambda one: one.deny("x", "no"), ["no"], []),
    "answer in its place": (REFUND, "approval", lambda one: one.answer("x", "paid in cash"), ["paid in cash"], []),
    "question": (
        call("ask_user", {"question": "Which?"}, id="x"),
        "answer",
        lambda one: one.answer("x", "the red one"),
        ["the red one"],
        [],
    ),
    "client tool": (
        call("locate", {"cents": 5}, id="x"),
        "answer",
        lambda one: one.answer("x", "home"),
        ["home"],
        [],
    ),
    "outcome unknown": (
        call("wire", {"cents": 5}, id="x"),
        "approval",
        lambda one: one.approve("x"),
        ["Wired 5."],
        [5, 5],
    ),
}


# How deep a call is, and what is decided on it, meet in one place: where a handle finds the call's conversation.
@pytest.mark.long_if(lambda deep: deep)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("what", DECISIONS)
async def test_a_call_of_a_sub_agent_is_shown_and_decided_at_its_parent(
    client: Client, scripted: Scripted, what: str, deep: bool
) -> None:
    calls, needs, decide, results, effects = DECISIONS[what]
    async with asking(client, scripted, calls, deep=deep) as (conversation, child):
        [waits] = await shown(conversation)
        assert (waits.call_id, waits.needs, waits.path[-1].conversation_id) == ("x", needs, child.id)
        assert [asked.agent for asked in waits.path] == (["middle", "helper"] if deep else ["helper"])
        assert await decide(conversation) == ("x",)
        assert await conversation.reply() == "Done."
        [result] = await helpers_results(child)
        decided = [event.by async for event in child.events(deltas=False) if event.kind == "decided"]
    assert results[0] in result
    assert (paid, decided) == (effects, [client.by])


async def test_the_status_without_sub_agents_is_the_conversations_own(client: Client, scripted: Scripted) -> None:
    async with asking(client, scripted, REFUND) as (conversation, child):
        status = await conversation.status()
        own = await conversation.status(children=False)
        assert (status.state, len(status.waiting), own.waiting) == ("running", 1, ())
        assert status.as_json()["waiting"][0]["path"] == [status.agents[0].model_dump()]
        # So do the Temporal CLI and the Web UI decide: an update to the parent is refused, and says where to send it.
        with pytest.raises(Refused, match=rf"No call 'x' waits.*at work are {re.escape(repr(child.id))}\.$"):
            await conversation.approve("x", children=False)
        await conversation.close()


async def test_equal_ids_are_told_apart_by_their_addresses(client: Client, scripted: Scripted) -> None:
    """The parent's own call, the helper's and nobody else's: each is named beyond doubt."""
    own = [call("refund", {"cents": 7}, id="x")]
    async with asking(client, scripted, REFUND, own=own) as (conversation, _):
        assert sorted(one.address for one in await shown(conversation, 2)) == ["/h/x", "/x"]
        with pytest.raises(
            Refused, match=r"2 calls with the id 'x' wait: '/x': refund of this agent; '/h/x': refund of h"
        ):
            await conversation.approve("x")
        assert paid == []
        await conversation.deny("/x", "not that one")
        await conversation.approve("x")  # only the helper's is left
        assert await conversation.reply() == "Done."
    assert paid == [5]


@pytest.mark.long
async def test_everything_is_decided_at_once_and_once(client: Client, scripted: Scripted) -> None:
    calls = [call("refund", {"cents": cents}, id=f"x{cents}") for cents in (1, 2)]
    own = [call("refund", {"cents": 7}, id="own")]
    async with asking(client, scripted, *calls, own=own, deep=True) as (conversation, child):
        with pytest.raises(NotFound, match="no conversation 'nobody'"):
            await client.approve_all(ids=[conversation.id, "nobody"])
        decided = await client.approve_all(ids=[conversation.id, child.id], where={"cents": {"at_most": 2}})
        assert sorted((one.conversation_id, one.call_id, one.refused) for one in decided) == [
            (child.id, "x1", ""),
            (child.id, "x2", ""),
        ]
        [waits] = await shown(conversation)
        assert waits.call_id == "own"
        assert [one.call_id for one in await client.deny_all(ids=[conversation.id])] == ["own"]
        assert await conversation.reply() == "Done."
    assert sorted(paid) == [1, 2]


async def test_who_may_decide_is_asked_of_the_agent_that_asked(client: Client, scripted: Scripted) -> None:
    def nobody(*_: object) -> str:
        return "only the auditor may"

    async with asking(client, scripted, REFUND, approvers=nobody) as (conversation, _):
        await conversation.approve("x")

        async def refused() -> bool:
            return any(
                "only the auditor may" in waiting_call.why for waiting_call in (await conversation.status()).waiting
            )

        await eventually(refused)
        await conversation.close()
    assert paid == []


@pytest.mark.long
async def test_client_tools_of_sub_agents_run_where_the_parents_do(client: Client, scripted: Scripted) -> None:
    calls = [call("locate", {"cents": cents}, id=f"x{cents}") for cents in (1, 2)]
    async with asking(client, scripted, *calls, deep=True) as (conversation, child):
        assert await conversation.run_tools([locate.function]) == "Done."
        assert await helpers_results(child) == ["1 steps away", "2 steps away"]


@pytest.mark.long
async def test_events_tell_what_waits_below_while_it_waits(client: Client, scripted: Scripted) -> None:
    async with asking(client, scripted, REFUND, deep=True) as (conversation, child):
        live: list[Event] = []

        async def follow() -> None:
            async for event in conversation.events(deltas=False):
                live.append(event)
                if event.kind == "approval_requested":
                    await conversation.approve(event.call.call_id)

        following = asyncio.create_task(follow())
        assert await conversation.reply() == "Done."
        await following
        below = [event for event in live if event.child]
        assert [(event.kind, event.child) for event in below] == [
            ("approval_requested", child.id),
            ("decided", child.id),
        ]
        assert [asked.agent for asked in below[0].path] == ["middle", "helper"]
        own = [event async for event in conversation.events(deltas=False)]
        assert own == [event for event in live if not event.child]
        assert {event.cursor for event in below} <= {event.cursor for event in own}
        whole = [event async for event in conversation.events(deltas=False, children=True)]
        assert [asked.agent for asked in whole[-3].path] in ([], ["middle"], ["middle", "helper"])
        assert {(event.child, event.path[-1].conversation_id) for event in whole if event.child} == {
            (child.id, child.id),
            (f"{conversation.id}.m", f"{conversation.id}.m"),
        }
        assert [event async for event in conversation.events(deltas=False, children=False)] == own


async def test_what_does_not_go_on_below_is_in_the_status(client: Client, scripted: Scripted) -> None:
    async with asking(client, scripted, REFUND) as (conversation, child):
        await child.pause()
        await conversation.approve("x")

        async def paused() -> Any:
            status = await conversation.status()
            return status if status.cause else None

        status = await eventually(paused)
        assert status.cause == f"The agent 'helper', in conversation {child.id!r}, is paused."
        assert status.cure == f"`everturn resume {child.id}`."
        await child.resume()
        assert await conversation.reply() == "Done."


@asynccontextmanager
async def connected(client: Client, **options: Any) -> AsyncIterator[mcp.Client]:
    """The SDK's client of a server that offers the clerk."""
    async with mcp.Client(AgentServer(client, {"clerk": ""}).mcp, **options) as caller:
        yield caller


async def used(caller: mcp.Client, name: str, **arguments: Any) -> Any:
    result = await caller.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.long
async def test_an_mcp_caller_is_shown_what_waits_below_and_decides_there(client: Client, scripted: Scripted) -> None:
    async with (
        asking(client, scripted, REFUND, deep=True) as (conversation, child),
        connected(client) as caller,
    ):
        status = await used(caller, "status", conversation_id=conversation.id, wait_seconds=30)
        [waits] = status["waiting"]
        assert [asked["agent"] for asked in waits["path"]] == ["middle", "helper"]
        seen = await used(caller, "events", conversation_id=conversation.id)
        requests = [event for event in seen["events"] if event["kind"] == "approval_requested"]
        assert [(event["child"], event["call"]["call_id"]) for event in requests] == [(child.id, "x")]
        await used(caller, "approve", conversation_id=conversation.id, call_id="x")
        status = await used(caller, "status", conversation_id=conversation.id, wait_seconds=30)
    assert (status["text"], paid) == ("Done.", [5])


async def test_an_mcp_client_is_asked_about_what_waits_below(client: Client, scripted: Scripted) -> None:
    asked: list[str] = []

    async def decide(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    helper = agent_on(scripted([REFUND, "I am done."]), name="helper", tools=[refund])
    asks = [call("helper", {"message": "Do it."}, id="h"), call("refund", {"cents": 7}, id="x")]
    top = agent_on(scripted([asks, "Done."]), tools=[helper, refund])
    async with hosting(client, top), connected(client, elicitation_callback=decide) as caller:
        result = await caller.call_tool("clerk", {"message": "Order 81"})
    assert [block.text for block in result.content if isinstance(block, types.TextContent)] == ["Done."]
    assert sorted(asked) == [
        'clerk › helper: refund needs approval: refund({"cents": 5})',
        'clerk: refund needs approval: refund({"cents": 7})',
    ]
    assert sorted(paid) == [5, 7]


@pytest.mark.long
async def test_commands_show_what_waits_below_and_decide_there(
    client: Client, scripted: Scripted, shell: Shell
) -> None:
    calls = [call("refund", {"cents": cents}, id=f"x{cents}") for cents in (1, 2)]

    def run(*words: str) -> Any:
        return asyncio.to_thread(shell.run, *words)

    async with asking(client, scripted, *calls, deep=True) as (conversation, child):
        page = (await run("show", conversation.id)).stdout
        assert "middle › helper › refund (x1) waits: refund needs approval" in page
        assert f"everturn approve {conversation.id} x1" in page
        assert (await run("deny", conversation.id, "x1", "--reason", "no")).stdout == "denied: x1\n"
        assert (await run("approve", conversation.id)).stdout == "approved: x2\n"
        assert await conversation.reply() == "Done."
        assert paid == [2]
        assert len(await helpers_results(child)) == 2


async def test_whoever_follows_in_the_terminal_is_asked_about_what_waits_below(
    client: Client, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `everturn chat` and `everturn run`."""

    class Ada(Screen):
        async def ask_line(self, *_: Any, **__: Any) -> str:
            return "y"

    screen = Ada()
    screen.can_ask = True
    async with asking(client, scripted, REFUND, deep=True) as (conversation, _):
        follower = Follower(conversation, screen=screen, temporal=client.temporal)
        assert isinstance(await follower.next_stop(), Replied)
    assert paid == [5]
    assert "◆ middle › helper › refund(cents=5) waits: refund needs approval" in capsys.readouterr().err


async def test_results_below_are_told_though_their_agent_was_over_before_its_end_was_heard_of(
    client: Client, scripted: Scripted
) -> None:
    """A page that sends a decision looks for the sub-agent in that moment, and it may be over by then."""
    async with asking(client, scripted, call("refund", {"cents": 5}, id="r"), deep=True) as (conversation, child):
        await child.deny("r")
        assert await conversation.reply() == "Done."
        steps_of_parent = [step async for _, step in conversation._runs.follow_all()]
    agents_below = FollowedAgents(client.conversation, conversation.id, shown_addresses=["/m/h/r"])
    try:
        end = next(i for i, step in enumerate(steps_of_parent) if isinstance(step, steps.ToolCompleted))
        for step in steps_of_parent[:end]:
            agents_below.take_step(step)
        await agents_below.wait_for_events()  # it was looked at, and can't be told from an earlier one of its id
        assert agents_below.caught_up
        agents_below.take_step(steps_of_parent[end])
        events_below: list[Event] = []
        while not agents_below.caught_up:
            events_below += await agents_below.wait_for_events()
    finally:
        agents_below.close()
    results = [event.result for event in events_below if isinstance(event, ToolFinished) and len(event.path) == 2]
    assert [result.call_id for result in results] == ["r"]
