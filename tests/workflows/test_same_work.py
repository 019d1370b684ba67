"""The same id is the same work: what a second start under an id gives, at every door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import mcp
import pytest
from temporalio.worker import Replayer, Worker

from everturn import Agent, Client, Conversation, EverturnPlugin, Image, Message, Text, tool
from everturn.errors import AlreadyStarted, Ended, OtherWorkflow, Refused
from everturn.history.same_work import is_begun
from everturn.mcp_server.server import AgentServer
from everturn.payloads import Notify, Start
from everturn.testing import ScriptedModel, call
from everturn.web.requests import StartRequest
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.shell import Shell
from tests.support.side_by_side import side_by_side
from tests.support.waiting import eventually, waiting
from tests.workflows.application import Repeats

Scripted = Callable[..., ScriptedModel]

ASKED = "Charge 100."


@pytest.fixture
def charged() -> list[int]:
    return []


@pytest.fixture
def agent(scripted: Scripted, charged: list[int]) -> Agent:
    @tool(effect="once", needs_approval=lambda arguments: arguments["cents"] > 1_000)
    def charge(cents: int) -> str:
        charged.append(cents)
        return "Charged."

    @tool(effect="read")
    def look() -> str:
        return "Nothing was charged."

    def script(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] == "tool":
            return "Done."
        return call("charge", {"cents": 9_999 if "slowly" in str(messages[-1]["content"]) else 100})

    return agent_on(scripted(script), tools=[charge, look])


async def test_a_job_that_is_run_again_has_the_same_outcome_and_charges_once(
    client: Client, agent: Agent, charged: list[int]
) -> None:
    name = f"{client.task_queue}-job"
    async with hosting(client, agent):
        first = await client.run(agent, ASKED, id=name)
        assert await client.run(agent, ASKED, id=name) == first
    assert await client.run(agent.name, [Text(text=ASKED)], id=name) == first, "without a worker, too"
    assert charged == [100]
    assert first.id == name


async def test_whoever_joins_a_conversation_reads_in_the_log_which_options_are_not_its_own(
    client: Client, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Rules that were given and do not hold: the charge ran that they deny."""
    work: dict[str, Any] = {"message": ASKED, "id": f"{client.task_queue}-job", "keep_open": timedelta(minutes=1)}
    ask = {"tool": "charge", "then": "ask"}
    await client.start(agent, **work, policy=[ask])
    await Client(client.temporal, task_queue=client.task_queue, by="another").start(agent, **work, policy=[ask])
    assert "conversation.joined" not in caplog.text
    await client.start(agent, **work, policy=[{"tool": "charge", "then": "deny"}], metadata={"user": "ann"})
    assert "its own policy, metadata hold" in caplog.text
    async with hosting(client, agent):
        conversation = client.conversation(work["id"])
        await waiting(conversation)
        await conversation.close()
        await conversation.outcome()


async def test_the_same_tools_in_any_order_and_the_same_transcript_are_the_same_work(
    client: Client, agent: Agent, charged: list[int]
) -> None:
    earlier = [{"role": "user", "content": "I am Ann."}, {"role": "assistant", "content": "Hello, Ann."}]
    work: dict[str, Any] = {"message": ASKED, "id": f"{client.task_queue}-job"}
    async with hosting(client, agent):
        for tools in (["charge", "look"], ["look", "charge"]):  # as a set has them, in another process
            conversation = await client.start(agent.name, **work, transcript=earlier, tools=tools)
            assert ((await conversation.outcome()).status, charged) == ("completed", [100])
    with pytest.raises(AlreadyStarted, match="after the earlier transcript"):
        await client.start(agent.name, **work, transcript=earlier[:1], tools=["look", "charge"])


async def test_who_starts_while_it_runs_joins_it(client: Client, agent: Agent, charged: list[int]) -> None:
    name, asked = f"{client.task_queue}-job", "Charge slowly."
    async with hosting(client, agent):
        runs = [asyncio.create_task(client.run(agent, asked, id=name)) for _ in range(4)]
        conversation = client.conversation(name)
        (call_id,) = await eventually(lambda: _waiting_in(conversation))
        joined = await client.start(agent, asked, id=name, again=True)  # it is not over: there is nothing to start anew
        await joined.approve(call_id)
        outcomes = await asyncio.gather(*runs)
    assert charged == [9_999]
    assert {outcome.text for outcome in outcomes} == {"Done."}


async def _waiting_in(conversation: Conversation) -> tuple[str, ...]:
    try:
        return tuple(call.call_id for call in (await conversation.status()).waiting)
    except Exception:  # noqa: BLE001 - it is not there yet
        return ()


async def test_again_starts_anew_what_is_over(client: Client, agent: Agent, charged: list[int]) -> None:
    name = f"{client.task_queue}-job"
    async with hosting(client, agent):
        await client.run(agent, ASKED, id=name)
        assert (await client.run(agent, f"{ASKED} Please.", id=name, again=True)).text == "Done."
        with pytest.raises(AlreadyStarted):
            await client.run(agent, ASKED, id=name)
    assert charged == [100, 100]


async def test_other_work_under_an_id_is_an_error_that_names_both(client: Client, scripted: Scripted) -> None:
    others: list[tuple[str, dict[str, Any], str]] = [
        ("clerk", {"message": "Refund 100."}, "agent 'clerk' with the message 'Hello'.* message 'Refund 100.'"),
        ("judge", {}, "agent 'clerk' .* agent 'judge' with"),
        ("clerk", {"message": [Text(text="Hello"), Image(url="https://example.com/a.png")]}, "was begun as"),
        ("clerk", {"tenant": "other"}, "tenant 'acme', and not for 'other'"),
        ("clerk", {"tools": []}, "with only these tools: none"),
        ("clerk", {"transcript": [Message.user("I am Ann.")]}, "after the earlier transcript"),
    ]
    model = scripted(["Hi."])
    agents = {name: agent_on(model, name=name) for name in ("clerk", "judge")}
    async with hosting(client, *agents.values()):

        async def refuses(kept: timedelta | None) -> None:
            conversation = await client.start(agents["clerk"], "Hello", keep_open=kept, tenant="acme")
            await conversation.reply()
            for other, options, problem in others:
                with pytest.raises(AlreadyStarted, match=problem):
                    await client.start(agents[other], **{"message": "Hello", **options}, id=conversation.id)
            # What else is asked for holds as it was when it began.
            more: dict[str, Any] = {"model": "scripted:x", "metadata": {"a": 1}}
            same = await client.start(agents["clerk"], "Hello", id=conversation.id, **more)
            assert await same.reply() == "Hi."
            if kept:
                await conversation.close()
                await conversation.outcome()

        await side_by_side(refuses, {"over": None, "idle": timedelta(minutes=1)})
    assert len(model.requests) == 2, "each of both was answered once"


async def test_a_message_for_one_tenant_does_not_reach_another_ones_conversation(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(["Hi.", "Hi again."])
    agent = agent_on(model)
    async with hosting(client, agent):

        async def refuses(kept: timedelta | None) -> None:
            conversation = await client.send(agent, "Hello", id=f"c-{uuid4().hex}", keep_open=kept, tenant="acme")
            await conversation.reply()
            with pytest.raises(AlreadyStarted, match="it is for tenant 'acme', and not for 'other'"):
                await client.send(agent, "What did they say?", id=conversation.id, tenant="other")
            more = await client.send(agent, "And?", id=conversation.id, tenant="acme")
            assert await more.reply() == "Hi again."

        await side_by_side(refuses, {"over": None, "idle": timedelta(minutes=1)})
    assert "What did they say?" not in str(model.requests)
    assert len(model.requests) == 4


async def _long(conversation: Conversation, client: Client, agent: Agent) -> None:
    for text in ("Two", "Three"):
        await conversation.send(text)
        await conversation.reply()


async def _revived(conversation: Conversation, client: Client, agent: Agent) -> None:
    await conversation.close()
    await conversation.outcome()
    await client.send(agent, "And?", id=conversation.id, keep_open=timedelta(minutes=1))
    await conversation.reply()


async def _paused(conversation: Conversation, client: Client, agent: Agent) -> None:
    await conversation.pause()


async def _terminated(conversation: Conversation, client: Client, agent: Agent) -> None:
    await client.temporal.get_workflow_handle(conversation.id).terminate(reason="an operator's doing")


async def test_whatever_became_of_it_it_is_not_begun_twice(client: Client, scripted: Scripted, bounds: Bounds) -> None:
    bounds(events=10)  # each answer is a run of its own
    model = scripted(lambda messages: f"reply {len(messages)}")
    agent = agent_on(model)

    async def asked_again(became: Callable[[Conversation, Client, Agent], Awaitable[None]]) -> None:
        hello = f"Hello from {became.__name__}"

        def asked() -> int:
            return sum(hello in str(request["messages"]) for request in model.requests)

        conversation = await client.start(agent, hello, keep_open=timedelta(minutes=1))
        await conversation.reply()
        await became(conversation, client, agent)
        before = asked()
        again = await client.start(agent, hello, id=conversation.id)
        with pytest.raises(AlreadyStarted, match=f"message '{hello}'"):
            await client.start(agent, "And?", id=conversation.id)
        if became is _terminated:
            with pytest.raises(Ended, match=r"an operator's doing.*again=True"):
                await client.run(agent, hello, id=conversation.id)
        else:
            await again.resume() if became is _paused else None
            await again.close()
            await again.outcome()
        assert asked() == before > 0

    async with hosting(client, agent):
        await side_by_side(asked_again, {became.__name__: became for became in (_long, _revived, _paused, _terminated)})


async def test_a_fork_is_work_of_its_own(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        origin = await client.start(agent, "Hello")
        await origin.outcome()
        fork = await origin.fork(at_turn=1, message="And?")
        with pytest.raises(AlreadyStarted, match=f"a fork of '{origin.id}'"):
            await client.start(agent, "Hello", id=fork.id)
        assert (await client.start(agent, "Hello", id=origin.id)).id == origin.id
        await fork.outcome()


@pytest.mark.long
async def test_what_is_erased_may_begin_anew(client: Client, agent: Agent, charged: list[int]) -> None:
    name = f"{client.task_queue}-job"
    async with hosting(client, agent):
        await client.run(agent, ASKED, id=name)
        await client.erase(name)
        assert (await client.run(agent, ASKED, id=name)).text == "Done."
    assert charged == [100, 100]


async def test_an_id_of_our_own_workflows_is_reserved(client: Client) -> None:
    for begins in ("everturn-budget:", "rerun:"):  # of reruns, which no list has
        workflow_id = f"{begins}{client.task_queue}"
        for start in (client.start, client.send, client.run):
            with pytest.raises(Refused, match=f"'{workflow_id}' begins with '{begins}'.* Use another one"):
                await start("clerk", "Hello", id=workflow_id)


async def test_an_id_that_a_sub_agent_may_get_can_not_be_chosen_by_strangers(client: Client, agent: Agent) -> None:
    """The call of that sub-agent would find its id taken, and the stranger's answer would be taken for its own."""
    async with hosting(client, agent):
        parent = await client.start(agent, ASKED, id=f"{client.task_queue}.order")
        name = f"{parent.id}.call_0.1"
        async with mcp.Client(AgentServer(client, {agent.name: ""}).mcp) as stranger:
            arguments = {"agent": agent.name, "message": "Hi", "conversation_id": name}
            refused = await stranger.call_tool("start", arguments)
            assert refused.is_error
            assert f"sub-agent of the conversation '{parent.id}'" in str(refused.content)
        post = StartRequest(agent=agent.name, message="Hi", id=name)
        with pytest.raises(Refused, match=f"sub-agent of the conversation '{parent.id}'"):
            await post.carry_out(client)
        with pytest.raises(Refused, match="more than 16 dots"):
            await post.model_copy(update={"id": "." * 99}).carry_out(client)
        dotted = f"{client.task_queue}.another"
        assert await post.model_copy(update={"id": dotted}).carry_out(client) == {"id": dotted}


async def test_an_id_of_a_workflow_that_is_no_conversation_is_taken(client: Client) -> None:
    name = f"{client.task_queue}-order"
    order = await client.temporal.start_workflow("Order", id=name, task_queue=name)
    try:
        with pytest.raises(AlreadyStarted, match="a workflow of type 'Order', which is no conversation"):
            await client.start("clerk", "Hello", id=name)
        with pytest.raises(OtherWorkflow, match="a workflow of type 'Order'"):
            await client.send("clerk", "Hello", id=name)
    finally:
        await order.terminate()


async def test_the_command_line_gives_the_same_answer_again(
    shell: Shell, model: Callable[[Any], None], name: str
) -> None:
    model(lambda messages: f"re: {messages[-1]['content']}")
    run = ("run", "-m", "scripted:x", "--id", name)
    first = shell.json(*run, "Hello")
    assert (first["text"], first["id"]) == ("re: Hello", name)
    assert shell.json(*run, "Hello") == first
    other = shell.run(*run, "Goodbye")
    assert other.returncode == 1
    for part in (f"Conversation '{name}' is other work", f"`everturn send {name} TEXT`", "--again"):
        assert part in other.stderr
    assert shell.json(*run, "Goodbye", "--again")["text"] == "re: Goodbye"


@pytest.mark.long_if(lambda first_door: first_door == "client")
@pytest.mark.parametrize("first_door", ["workflow", "client"])
async def test_a_workflow_that_asks_under_an_id_gets_what_was_begun(
    client: Client, agent: Agent, charged: list[int], first_door: str
) -> None:
    name, plugin = f"{client.task_queue}-job", EverturnPlugin(agents=[agent])
    async with Worker(client.temporal, task_queue=client.task_queue, workflows=[Repeats], plugins=[plugin]):

        async def asks(number: int, message: str = ASKED, *, again: bool = False) -> Any:
            return await client.temporal.execute_workflow(
                "Repeats", args=[name, message, again], id=f"{name}-own-{number}", task_queue=client.task_queue
            )

        first = await asks(1) if first_door == "workflow" else ["Done.", (await client.run(agent, ASKED, id=name)).id]
        assert first == ["Done.", name]
        assert await asks(2) == ["Done.", name]
        assert charged == [100]
        assert await asks(3, "Charge slowly.") == ["AlreadyStarted", "agent 'clerk' with the message 'Charge 100.'"]
        assert await asks(4, again=True) == ["Done.", name]
        assert charged == [100, 100]
        for number in (2, 3):
            history = await client.temporal.get_workflow_handle(f"{name}-own-{number}").fetch_history()
            await Replayer(workflows=[Repeats]).replay_workflow(history)


async def test_a_workflow_joins_what_runs_and_may_speak_to_it(client: Client, agent: Agent) -> None:
    name, plugin = f"{client.task_queue}-job", EverturnPlugin(agents=[agent])
    async with Worker(client.temporal, task_queue=client.task_queue, workflows=[Repeats], plugins=[plugin]):
        conversation = await client.start(agent, "Charge slowly.", id=name)
        (call_id,) = await waiting(conversation)
        notify = Notify(workflow_id=f"{name}-own", signal="waits")
        wanted = Start(agent="clerk", message="Charge slowly.", notify=notify)
        with pytest.raises(AlreadyStarted, match="would not be sent its signal"):
            await is_begun(client.temporal, name, wanted)  # it would wait for a notice that never comes
        handle = await client.temporal.start_workflow(
            "Repeats", args=[name, "Charge slowly.", False], id=f"{name}-own", task_queue=client.task_queue
        )
        await handle.signal("decide", call_id)
        assert await handle.result() == ["Done.", name]
        assert await is_begun(client.temporal, name, wanted), "it is over, and needs no notice"
