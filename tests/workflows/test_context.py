"""What a conversation was started with beside its message reaches the user's code, and stays with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, ValidationInfo

from everturn import Client, ToolContext, tool
from everturn.errors import Ended, Refused
from everturn.records import Decision, ToolCall
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

METADATA = {"user": "u-7", "roles": ["support"], "vip": True}


class Seen:
    """A tool, its predicate, its validator and an approver, which note what they are given."""

    def __init__(self) -> None:
        self.by: dict[str, tuple[str, str | None, Any, int]] = {}
        self.tool = tool(self.refund, needs_approval=self.asks)

    def note(self, who: str, context: ToolContext) -> None:
        self.by[who] = (context.agent, context.tenant, dict(context.metadata), context.turn)

    def checked(self, order: str, info: ValidationInfo) -> str:
        self.note("validator", info.context)
        return order

    def asks(self, arguments: dict[str, Any], context: ToolContext) -> bool:
        self.note("predicate", context)
        return True

    def may(self, call: ToolCall, decision: Decision, context: ToolContext) -> bool:
        self.note("approver", context)
        return bool(context.tenant == "acme")

    def refund(self, order: str, context: ToolContext) -> str:
        """Gives the money back."""
        self.note("tool", context)
        return "done"


def seeing() -> Seen:
    seen = Seen()
    order = Annotated[str, AfterValidator(seen.checked)]

    def refund(order: order, context: ToolContext) -> str:  # type: ignore[valid-type]
        return seen.refund(order, context)

    seen.tool = tool(refund, needs_approval=seen.asks)
    return seen


async def test_tools_predicates_validators_and_approvers_are_given_tenant_metadata_and_agent(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    seen = seeing()
    agent = agent_on(scripted([call("refund", {"order": "81"}), "Done."]), tools=[seen.tool], approvers=seen.may)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "It broke", tenant="acme", metadata=METADATA)
        [call_id] = await waiting(conversation)
        await conversation.approve(call_id)
        assert await conversation.reply() == "Done."
    wanted = ("clerk", "acme", METADATA, 1)
    assert seen.by == dict.fromkeys(("validator", "predicate", "approver", "tool"), wanted)


@pytest.mark.long
async def test_they_stay_with_it_through_later_runs_a_revival_and_a_fork_and_go_to_agents_that_it_asks(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=30)
    seen: list[tuple[str, str | None, Any]] = []

    @tool
    def look_up(context: ToolContext) -> str:
        seen.append((context.conversation_id, context.tenant, dict(context.metadata)))
        return "a lamp"

    below = agent_on(scripted([call("look_up"), "A lamp."]), name="researcher", tools=[look_up])
    script = [
        *(call("look_up", id=f"c{turn}") for turn in range(6)),
        *(call("researcher", {"message": "What?"}, id="r"), "Done."),
        *(call("look_up", id="revived"), "Again."),
    ]
    agent = agent_on(scripted(script), tools=[look_up, below])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", tenant="acme", metadata=METADATA)
        assert (await conversation.outcome()).text == "Done."
        assert len(await runs_of(client, conversation)) > 1
        await client.send(agent, "And?", id=conversation.id)
        assert await conversation.reply() == "Again."
        fork = await conversation.fork(at_turn=1)
        await fork.send("Otherwise?")
        assert await fork.reply() == "Done."
        ids = [name for one in (conversation.id, fork.id) for name in (one, f"{one}.r")]
        memos = [await (await client.temporal.get_workflow_handle(id_).describe()).memo() for id_ in ids]
    assert {one for one, _, _ in seen} == set(ids)
    assert all((tenant, metadata) == ("acme", METADATA) for _, tenant, metadata in seen)
    assert all((memo["tenant"], memo["metadata"]) == ("acme", METADATA) for memo in memos)


async def test_metadata_that_is_too_large_is_refused_before_it_is_sent(client: Client) -> None:
    with pytest.raises(Refused, match=r"metadata: it has 5,0\d\d bytes of JSON, and the limit is 4,096"):
        await client.start("clerk", "Hi", metadata={"text": "x" * 5_000})
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    with pytest.raises(Refused, match=r"metadata: .* nested more than 100 levels deep"):
        await client.start("clerk", "Hi", metadata={"deep": deep})
    with pytest.raises(Refused, match="metadata"):
        await client.start("clerk", "Hi", metadata={"a set": {1, 2}})


async def test_a_start_by_wire_with_too_much_fails_and_says_why(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        given = {"agent": "clerk", "message": "Hi", "metadata": {"text": "x" * 5_000}}
        handle = await client.temporal.start_workflow(
            "Conversation", given, id=f"wire-{client.task_queue}", task_queue=client.task_queue
        )
        with pytest.raises(Ended, match=r"the limit is 4,096"):
            await client.conversation(handle.id).outcome()


async def test_a_predicate_with_a_default_of_its_own_is_not_given_a_context(client: Client, scripted: Scripted) -> None:
    asked: list[int] = []

    def over(arguments: dict[str, Any], limit: int = 20) -> bool:
        asked.append(limit)
        return bool(arguments["cents"] > limit)

    @tool(needs_approval=over)
    def refund(cents: int) -> str:
        return f"{cents} back"

    agent = agent_on(scripted([call("refund", {"cents": 10}), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Done."
        await conversation.close()
    assert asked == [20]
