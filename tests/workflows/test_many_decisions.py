"""Decisions on many calls at once: of one conversation or of many, by tool and by argument."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from everturn import Agent, Client, Conversation, Message, tool
from everturn.client.many_decisions import AT_ONCE, DecisionForMany, decide_all
from everturn.errors import Refused
from everturn.payloads import WaitingCall
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    """Refunds."""
    return f"{cents} back"


@tool(needs_approval=True)
def ship(order_id: str) -> str:
    """Ships."""
    return "shipped"


def asks(messages: list[dict[str, Any]]) -> Any:
    """Calls for what the user writes: `refund 5 3000, ship`."""
    if messages[-1]["role"] != "user":
        return "Done."
    refunds, _, ships = messages[-1]["content"].partition(",")
    made = [call("refund", {"order_id": "81", "cents": int(one)}, id=f"c{one}") for one in refunds.split()[1:]]
    return [*made, *([call("ship", {"order_id": "81"}, id="s")] if ships else [])]


@asynccontextmanager
async def two_that_wait(
    client: Client, scripted: Scripted, **options: Any
) -> AsyncIterator[tuple[Agent, Conversation, Conversation]]:
    """Of an agent of their own, and listed by now."""
    agent = agent_on(scripted(asks), tools=[refund, ship], name=f"clerk-{uuid4().hex[:8]}")
    async with hosting(client, agent, **options):
        first = await client.start(agent, "refund 5 3000, ship")
        second = await client.start(agent, "refund 7")
        await waiting(first, calls=3)
        await waiting(second)

        async def listed() -> bool:
            return (
                len(
                    [
                        conversation
                        async for conversation in client.conversations(status="awaiting_approval", agent=agent.name)
                    ]
                )
                == 2
            )

        await eventually(listed)
        yield agent, first, second


async def still_waiting(*conversations: Conversation) -> list[list[str]]:
    return [[waiting_call.call_id for waiting_call in (await it.status()).waiting] for it in conversations]


async def test_every_call_of_a_tool_whose_arguments_fit_is_decided_on_wherever_it_waits(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    async with two_that_wait(client, scripted, cached_conversations=cached_conversations) as (agent, first, second):
        done = await client.approve_all(agent=agent.name, tool="refund", where={"cents": {"at_most": 2000}})
        assert sorted((one.conversation_id, one.call_id, one.refused) for one in done) == sorted(
            [(first.id, "c5", ""), (second.id, "c7", "")]
        )
        assert await second.reply() == "Done."
        assert (await still_waiting(first))[0] == ["c3000", "s"]
        denied = await client.deny_all(ids=[first.id, first.id], reason="not today")
        assert sorted(one.call_id for one in denied) == ["c3000", "s"]
        outcome = await first.outcome()
        await second.outcome()
    assert outcome.text == "Done."
    results = [part for message in await first.transcript() for part in message.tool_results]
    assert [part.is_error for part in results] == [False, True, True]
    assert "not today" in results[1].text


async def test_many_may_be_decided_for_always(client: Client, scripted: Scripted) -> None:
    async with two_that_wait(client, scripted) as (agent, first, second):
        await client.approve_all(agent=agent.name, where={"cents": {"at_most": 2000}}, always=True)
        await second.outcome()
        [rule] = (await first.status()).policy
        assert (rule.tool, rule.then, rule.where["cents"].at_most) == ("refund", "approve", 2000)
        await first.deny()
        await first.outcome()


async def test_from_the_command_line(client: Client, scripted: Scripted, shell: Shell) -> None:
    def run(*words: str) -> Any:
        return asyncio.to_thread(shell.run, *words)

    async with two_that_wait(client, scripted) as (agent, first, second):
        refunds = ["--all", "--agent", agent.name, "--tool", "refund", "--where", '{"cents": {"below": 6}}']
        done = await run("approve", *refunds)
        assert (done.returncode, done.stdout) == (0, f'approved: {first.id} c5 refund(order_id="81", cents=5)\n')
        assert (await run("approve", *refunds)).stdout == (
            "No waiting call matches. `everturn list --status awaiting_approval` lists who waits.\n"
        )
        done = await run("deny", first.id, "c3000", "s", "--reason", "no", "--within", "60")
        assert (done.returncode, done.stdout) == (0, "denied: c3000, s\n")
        done = await run("approve", second.id, "c7", "--always", "--where", '{"cents": {"at_most": 2000}}')
        assert (done.returncode, done.stdout) == (0, "approved: c7\n")
        await first.outcome()
        await second.outcome()
        late = await run("approve", "--all", "--agent", agent.name, "--json")
    assert (late.returncode, late.stdout.strip()) == (0, "[]")


@pytest.mark.parametrize("reason", ["outcome_unknown", "invalid_edit", "has_not_run", "tool_asks"])
def test_what_may_have_run_or_was_edited_is_not_decided_on_with_others(reason: Any) -> None:
    many = DecisionForMany.from_options("approve", tool=None, where={}, words=None, always=False, within=None)
    assert many._is_about(WaitingCall(call_id="a", tool="refund", reason="needs_approval"))
    assert not many._is_about(WaitingCall(call_id="a", tool="refund", reason=reason))


async def test_a_conversation_is_read_from_the_list_when_there_is_room_for_it() -> None:
    """A namespace may have a hundred thousand that wait."""
    taken: list[int] = []
    may_end = asyncio.Event()

    async def listed() -> AsyncIterator[Any]:
        for number in range(10 * AT_ONCE):
            taken.append(number)
            yield number

    class Slow(DecisionForMany):
        async def decide(self, conversation: Any) -> Any:
            await may_end.wait()
            return [conversation]

    deciding = asyncio.create_task(
        decide_all(Slow.from_options("deny", tool=None, where={}, words=None, always=False, within=None), listed())
    )
    for _ in range(10 * AT_ONCE):
        await asyncio.sleep(0)
    assert taken == [*range(AT_ONCE)]
    may_end.set()
    assert await deciding == [*range(10 * AT_ONCE)]


def test_conditions_that_are_none_are_refused() -> None:
    with pytest.raises(Refused, match="no condition 'atmost'"):
        DecisionForMany.from_options(
            "approve", tool=None, where={"cents": {"atmost": 5}}, words=None, always=False, within=None
        )


async def test_a_policy_that_a_conversation_starts_with_decides_from_its_first_turn_on(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(asks), tools=[refund, ship])
    small = {"tool": "refund", "then": "approve", "where": {"cents": {"at_most": 2000}}}
    policy = [small, {"tool": "ship", "then": "deny"}]
    async with hosting(client, agent, cached_conversations=cached_conversations):
        plain = await client.start(agent, "refund 5, ship", policy=policy)
        began = await client.start(agent, "refund 5, ship", policy=policy, transcript=[Message.user("Hello")])
        for conversation in (plain, began):
            assert (await conversation.outcome()).text == "Done."
        [rule, _] = (await plain.by_history()).state.policy
        assert (rule.by, rule.tool) == ("tester", "refund")
        with pytest.raises(Refused, match="This is not a policy"):
            await client.start(agent, "Hi", policy=[{"tool": "ship"}])
        with pytest.raises(Refused, match="101 rules"):
            await client.start(agent, "Hi", policy=[{"tool": f"t{number}", "then": "ask"} for number in range(101)])
