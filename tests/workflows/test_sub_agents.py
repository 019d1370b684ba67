"""Agents as tools: a call of theirs is a conversation of its own, and its last word is the call's result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from everturn import Agent, Client, Conversation, Limits, Worker, tool
from everturn.errors import InvalidAgent, InvalidTool
from everturn.payloads import AskedAgent, Status
from everturn.testing import ScriptedModel, call, fail, say
from everturn.worker.deploy_check import find_conflicts
from everturn.workflows import web_ui
from tests.support.agents import agent_on, hosting
from tests.support.side_by_side import side_by_side
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

ASK = call("researcher", {"message": "What is a lamp?"}, id="c1")


@asynccontextmanager
async def editor_with(
    client: Client,
    scripted: Scripted,
    script: Any,
    *,
    cached_conversations: int = 1000,
    **researcher: Any,
) -> AsyncIterator[tuple[Agent, Worker]]:
    """An editor that asks a researcher; the worker is given the editor only."""
    editor = an_editor(scripted, script, **researcher)
    async with hosting(client, editor, cached_conversations=cached_conversations) as worker:
        yield editor, worker


def an_editor(
    scripted: Scripted, script: Any, *, number: int = 0, message: str = "What is a lamp?", **researcher: Any
) -> Agent:
    """Of several on one worker, each has a number, and a researcher of its own."""
    below = agent_on(scripted(script), name=f"researcher{number or ''}", **researcher)
    asks = call(below.name, {"message": message}, id="c1")
    return agent_on(scripted([asks, "Done."]), name=f"editor{number or ''}", tools=[below])


def child_of(client: Client, conversation: Conversation, call_id: str = "c1") -> Conversation:
    return client.conversation(f"{conversation.id}.{call_id}")


async def test_another_agent_answers_a_call_in_a_conversation_of_its_own(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool
    def look_up(word: str) -> str:
        return f"{word} means {word}"

    script = [call("look_up", {"word": "lamp"}), "It gives light."]
    async with editor_with(client, scripted, script, tools=[look_up], cached_conversations=cached_conversations) as (
        editor,
        _,
    ):
        conversation = await client.start(editor, "Explain lamps")
        assert await conversation.reply() == "Done."
        outcome = await conversation.outcome()
        child = child_of(client, conversation)
        below = await child.outcome()
        (result,) = results_of(await conversation.transcript())
        told = [event async for event in conversation.events() if event.kind.startswith("tool_")]
        parent_turns = [event.usage async for event in conversation.events() if event.kind == "replied"]
    assert (result.call_id, result.name, result.text, result.is_error) == ("c1", "researcher", "It gives light.", False)
    assert [message.text for message in await child.transcript() if message.role == "user"] == ["What is a lamp?"]
    assert [event.kind for event in told] == ["tool_called", "tool_started", "tool_finished"]
    assert (told[1].conversation_id, told[1].tool, told[1].call_id) == (child.id, "researcher", "c1")
    assert told[2].result == result
    # What the child cost counts for the parent, its turns and calls do not.
    assert (outcome.turns, outcome.tool_calls, below.turns, below.tool_calls) == (2, 1, 2, 1)
    assert outcome.usage == parent_turns[0] + parent_turns[1] + below.usage


async def test_a_model_is_offered_an_agent_as_a_tool_with_one_message(client: Client, scripted: Scripted) -> None:
    model = scripted(["Hello."])
    below = agent_on(model, name="researcher", description="Knows all about lamps.")
    unnamed = agent_on(model, name="helper")
    async with hosting(client, agent_on(model, tools=[below, unnamed])):
        await client.run("clerk", "Hi")
    first, second = (tool["function"] for tool in model.requests[0]["tools"])
    assert (first["name"], first["description"]) == ("researcher", "Knows all about lamps.")
    assert list(first["parameters"]["properties"]) == first["parameters"]["required"] == ["message"]
    assert second["description"] == "Ask the agent helper and get its answer."


async def test_approvals_within_are_taken_there_and_the_parent_says_where(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool(needs_approval=True)
    def buy(lamp: str) -> str:
        return f"bought {lamp}"

    script = [call("buy", {"lamp": "red"}, id="b"), "I bought it."]
    async with editor_with(client, scripted, script, tools=[buy], cached_conversations=cached_conversations) as (
        editor,
        _,
    ):
        conversation = await client.start(editor, "Get a lamp")
        child = client.conversation(f"{conversation.id}.c1")
        await eventually(lambda: _exists(child))
        assert await waiting(child) == ("b",)
        status = await conversation.status()
        assert (status.state, [agent.model_dump() for agent in status.agents]) == (
            "running",
            [{"call_id": "c1", "agent": "researcher", "conversation_id": child.id}],
        )
        await child.approve("b")
        assert await conversation.reply() == "Done."
        assert (await conversation.status()).agents == ()
        (result,) = results_of(await conversation.transcript())
    assert result.text == "I bought it."


def test_the_current_details_say_where_to_look() -> None:
    asked = AskedAgent(call_id="c1", agent="researcher", conversation_id="order-81.c1")
    details = web_ui.current_details(
        Status(state="running", agents=(asked,)), conversation_id="order-81", agent="editor"
    )
    assert "`researcher` is at work: see conversation `order-81.c1`" in details


async def _exists(conversation: Conversation) -> bool:
    try:
        await conversation._describe()
    except Exception:  # noqa: BLE001 - not yet
        return False
    return True


async def test_a_long_answer_enters_the_history_once_and_is_found_by_a_worker_without_memory(
    client: Client, scripted: Scripted
) -> None:
    limit = 200_000

    def answer(messages: list[dict[str, Any]]) -> str:
        return "needle " + "light " * (int(messages[-1]["content"]) // 6)

    def ask(messages: list[dict[str, Any]]) -> Any:
        [size, *_] = (message["content"] for message in messages if message["role"] == "user")
        replies = (call("researcher", {"message": size}, id="c1"), "Done.", "Still.")
        return replies[sum(message["role"] == "assistant" for message in messages)]

    model = scripted(ask)
    below = agent_on(scripted(answer), name="researcher")
    editor = agent_on(model, name="editor", tools=[below])
    async with hosting(client, editor) as worker:

        async def answered(size: int) -> None:
            text = answer([{"content": size}])
            conversation = await client.start(editor, str(size), keep_open=timedelta(minutes=5))
            await conversation.reply()
            worker.prefixes.clear()
            await conversation.send("And?")
            assert await conversation.reply() == "Still."
            (result,) = results_of(await conversation.transcript())
            await conversation.close()
            await conversation.outcome()
            history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
            assert result.text.startswith(text[:limit])
            assert ("[Cut: 200,000 of" in result.text) == (size > limit)
            requests = [request["messages"] for request in model.requests if str(size) in str(request["messages"][:2])]
            for messages in requests[1:]:
                assert [message["content"] for message in messages if message["role"] == "tool"] == [result.text]
            assert len(requests) == 3
            written = b"".join(event.SerializeToString() for event in history.events)
            assert written.count(b"needle") == 1

        await side_by_side(answered, {"short": 3_000, "cut": 201_000})


class Verdict(BaseModel):
    good: bool


@pytest.mark.long
async def test_however_the_other_agent_ends_the_model_is_told(client: Client, scripted: Scripted) -> None:
    @tool
    def look_up(word: str) -> str:
        return word

    cut_off = "As far as I got.\n[researcher4 did not finish: the limit of 1 turns.]"
    ends: dict[str, tuple[list[Any], dict[str, Any], str, bool]] = {
        "text": (["It gives light."], {}, "It gives light.", False),
        "output": (['{"good": true}'], {"output": Verdict}, '{"good": true}', False),
        "no output": (
            ["no json"] * 3, {"output": Verdict}, "did not finish: the last reply does not fit the output type", True
        ),
        "limit": (
            [call("look_up", {"word": "x"}), "As far as I got."], {"limits": Limits(max_turns=1)}, cut_off, False
        ),
    }  # fmt: skip
    editors = {
        end: an_editor(scripted, script, number=number, tools=[look_up], **options)
        for number, (end, (script, options, *_)) in enumerate(ends.items(), 1)
    }

    async def ended(end: str) -> None:
        *_, told, is_error = ends[end]
        conversation = await client.start(editors[end], "Explain")
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
        assert told in result.text
        assert result.is_error is is_error

    async with hosting(client, *editors.values()):
        await side_by_side(ended, {end: end for end in ends})


async def _running_child(client: Client, scripted: Scripted, editor: Agent) -> tuple[Conversation, Conversation]:
    conversation = await client.start(editor, "Explain", keep_open=timedelta(minutes=5))
    child = client.conversation(f"{conversation.id}.c1")
    await eventually(lambda: _exists(child))
    return conversation, child


async def test_an_agent_that_can_not_answer_is_an_error_for_the_model(client: Client, scripted: Scripted) -> None:
    fits = an_editor(scripted, [fail(401)])
    empty = an_editor(scripted, [fail(401)], number=2, message="")

    async def no_answer(how: str) -> tuple[str, list[str]]:
        """What the model was told, and the kinds of events."""
        taken = f"{client.task_queue}-taken"
        if how == "id taken":
            await client.start(fits, "I am here", id=f"{taken}.c1", keep_open=timedelta(minutes=5))
        conversation = await client.start(
            empty if how == "bad arguments" else fits, "Explain", id=taken if how == "id taken" else None
        )
        handle = client.temporal.get_workflow_handle(f"{conversation.id}.c1")
        if how in ("terminated", "cancelled"):
            child = client.conversation(handle.id)
            await eventually(lambda: _exists(child))
            await eventually(lambda: _stalled(child))
            await (handle.terminate("enough") if how == "terminated" else handle.cancel())
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
        if how == "id taken":
            await handle.terminate()
        assert result.is_error
        return result.text, [event.kind async for event in conversation.events()]

    why = {
        "terminated": "terminated",
        "cancelled": "was cancelled",
        "id taken": "already",
        "bad arguments": "message:",
    }
    async with hosting(client, fits, empty):
        told = await side_by_side(no_answer, {how: how for how in why})
    assert [how for how, (text, _) in told.items() if why[how] not in text] == []
    assert {how for how, (_, kinds) in told.items() if "tool_lost" in kinds} == {"terminated", "id taken"}


async def _state(conversation: Conversation) -> str:
    return (await conversation.status()).state


@pytest.mark.long
async def test_what_ends_the_parent_ends_the_agents_below(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """Two levels of them, and the lowest waits for an approval."""

    @tool(needs_approval=True)
    def buy() -> str:
        return "never"

    lowest = agent_on(scripted([call("buy", id="b"), "Not bought."]), name="buyer", tools=[buy])
    middle = agent_on(scripted([call("buyer", {"message": "Buy"}, id="m"), "Not done."]), name="middle", tools=[lowest])
    top = agent_on(scripted([call("middle", {"message": "Do"}, id="t"), "Well."]), name="top", tools=[middle])

    async def below_one_that(how: str) -> list[str]:
        conversation = await client.start(top, "Go", keep_open=timedelta(minutes=5))
        children = [client.conversation(f"{conversation.id}.{ids}") for ids in ("t", "t.m")]
        await eventually(lambda: _exists(children[1]))
        await waiting(children[1])
        handle = client.temporal.get_workflow_handle(conversation.id)
        if how == "cancel_turn":
            await conversation.cancel_turn()
            await eventually(lambda: _is_idle(conversation))
        elif how == "close":
            await conversation.close()
            await conversation.outcome()
        elif how == "cancel":
            await handle.cancel()
            assert (await conversation.outcome()).status == "cancelled"
        else:
            await handle.terminate()
        below = [(await child.outcome()).status for child in children]
        if how == "cancel_turn":
            await conversation.close()
            await conversation.outcome()
        return below

    async with hosting(client, top, cached_conversations=cached_conversations):
        came_to = await side_by_side(
            below_one_that, {how: how for how in ("cancel_turn", "close", "cancel", "terminate")}
        )
    assert came_to == {
        "cancel_turn": ["cancelled"] * 2,
        "close": ["completed"] * 2,
        "cancel": ["cancelled"] * 2,
        "terminate": ["cancelled"] * 2,
    }


async def test_who_asked_an_agent_that_was_closed_between_its_turns_is_told_so(
    client: Client, scripted: Scripted
) -> None:
    @tool(needs_approval=True)
    def buy() -> str:
        return "never"

    buyer = agent_on(scripted([[say("I buy it."), call("buy")], "Not bought."]), name="buyer", tools=[buy])
    top = agent_on(scripted([call("buyer", {"message": "Buy"}, id="t"), "Well."]), name="top", tools=[buyer])
    async with hosting(client, buyer, top):
        conversation = await client.start(top, "Go")
        child = client.conversation(f"{conversation.id}.t")
        await waiting(child)
        await child.close()
        await conversation.outcome()
        [result] = results_of(await conversation.transcript())
        outcome = await child.outcome()
    closed = "the conversation was closed before it was answered"
    assert result.text == f"I buy it.\n[buyer's answer is not whole: {closed}.]"
    assert (outcome.status, outcome.reason) == ("completed", closed)


async def _is_idle(conversation: Conversation) -> bool:
    return await _state(conversation) == "idle"


@pytest.mark.long
async def test_agents_count_among_the_calls_that_run_at_once(client: Client, scripted: Scripted) -> None:
    begun, running, most = 0, 0, 0

    @tool
    async def work() -> str:
        nonlocal begun, running, most
        begun, running = begun + 1, running + 1
        most, mine = max(most, running), begun
        await eventually(lambda: begun > mine or begun == 3)  # so that the next one begins while this one runs
        running -= 1
        return "worked"

    below = agent_on(scripted([call("work"), "Done."]), name="researcher", tools=[work])
    calls = [call("researcher", {"message": str(number)}, id=f"c{number}") for number in range(3)]
    editor = agent_on(scripted([calls, "All done."]), name="editor", tools=[below])
    async with hosting(client, editor):
        conversation = await client.start(editor, "Go", limits=Limits(max_parallel_calls=2))
        assert await conversation.reply() == "All done."
        results = results_of(await conversation.transcript())
    assert [result.call_id for result in results] == [f"c{number}" for number in range(3)]
    assert {result.text for result in results} == {"Done."}
    assert most == 2


async def test_a_fork_behind_an_agents_answer_counts_what_it_cost(client: Client, scripted: Scripted) -> None:
    async with editor_with(client, scripted, ["It gives light."]) as (editor, _):
        conversation = await client.start(editor, "Explain")
        outcome = await conversation.outcome()
        fork = await conversation.fork(at_turn=1)
        assert (await fork.outcome()).usage == outcome.usage
        assert await fork.transcript() == await conversation.transcript()


async def test_the_deploy_gate_knows_the_agents_below(client: Client, scripted: Scripted) -> None:
    async with editor_with(client, scripted, [fail(401)]) as (editor, _):
        conversation, child = await _running_child(client, scripted, editor)
        await eventually(lambda: _stalled(child))

        async def listed() -> bool:
            query = f"TaskQueue = '{client.task_queue}' AND ExecutionStatus = 'Running'"
            return len([workflow async for workflow in client.temporal.list_workflows(query)]) == 2

        await eventually(listed)
        assert [conflict async for conflict in find_conflicts(client, [editor])] == []
        problems = [
            conflict.problem async for conflict in find_conflicts(client, [agent_on(scripted(["x"]), name="editor")])
        ]
        await conversation.close()
        await conversation.outcome()
    assert problems == ["its agent 'researcher' is not hosted; these are: editor"]


async def _stalled(conversation: Conversation) -> bool:
    return await _state(conversation) == "stalled"


def _agent(name: str, *tools: Any) -> Agent:
    return Agent(name, model="openai:gpt-5.5", tools=tools)


def test_agents_that_can_not_be_told_apart_are_refused_at_construction() -> None:
    leaf = _agent("leaf")
    assert _agent("top", leaf, _agent("middle", leaf)).agents[0] is leaf
    with pytest.raises(InvalidAgent, match="'leaf' has an agent of its own name among its tools"):
        _agent("leaf", _agent("middle", leaf))
    with pytest.raises(InvalidAgent, match="Two agents are called 'leaf'"):
        _agent("top", leaf, _agent("middle", _agent("leaf")))
    with pytest.raises(
        InvalidTool, match=r"tools\[0\] of Agent 'top': 'v1\.leaf' is not a valid name for a tool.*Give the agent"
    ):
        _agent("top", _agent("v1.leaf"))
    with pytest.raises(InvalidTool, match="is called 'leaf', like an earlier one"):
        _agent("top", leaf, leaf)


async def test_a_conversation_with_the_longest_id_may_ask_too(client: Client, scripted: Scripted) -> None:
    """Its child's id would be longer than Temporal takes, and the workflow task would fail for ever."""
    async with editor_with(client, scripted, ["It gives light."]) as (editor, _):
        name = f"{client.task_queue}-".ljust(1000, "x")
        conversation = await client.start(editor, "Explain lamps", id=name)
        assert await conversation.reply() == "Done."
        (started,) = [event async for event in conversation.events() if event.kind == "tool_started"]
        assert (await client.conversation(started.conversation_id).outcome()).text == "It gives light."


async def test_the_events_of_an_agent_that_works_come_through_its_parents(client: Client, scripted: Scripted) -> None:
    @tool(needs_approval=True)
    def look_up(word: str) -> str:
        return f"{word} means {word}"

    script = [call("look_up", {"word": "lamp"}, id="l1"), "It gives light."]
    async with editor_with(client, scripted, script, tools=[look_up]) as (editor, _):
        conversation = await client.start(editor, "Explain lamps")
        child = child_of(client, conversation)
        told, seen = [], ""
        async for event in conversation.events(deltas=False, children=True):
            told.append(event)
            if event.kind == "approval_requested":
                seen = event.cursor
                break
        assert (told[-1].child, told[-1].kind) == (child.id, "approval_requested")
        assert [event.kind for event in told if not event.child][-1] == "tool_started"
        again = []
        # Who comes back is told again what the agent at work did, and decides where it waits.
        async for event in conversation.events(seen, deltas=False, children=True):
            again.append(event)
            if event.kind == "approval_requested":
                await client.conversation(event.child).approve(event.call.call_id)
        whole = [event async for event in conversation.events(deltas=False, children=True)]
    assert [event.kind for event in again if not event.child][-1] == "done"
    theirs = [event for event in whole if event.child]
    assert {event.child for event in theirs} == {child.id}
    assert [event.message.text for event in theirs if event.kind == "replied"][-1] == "It gives light."
    assert [event.kind for event in theirs][-1] == "done"
    own = [event async for event in conversation.events(deltas=False)]
    assert [event for event in whole if not event.child] == own
    assert {event.cursor for event in theirs} <= {event.cursor for event in own}


async def test_agents_of_agents_tell_through_all_of_them(client: Client, scripted: Scripted) -> None:
    lowest = agent_on(scripted(["Light."]), name="lowest")
    middle = agent_on(scripted([call("lowest", {"message": "Light?"}, id="m1"), "Yes."]), name="middle", tools=[lowest])
    top = agent_on(scripted([call("middle", {"message": "Ask"}, id="c1"), "Done."]), name="top", tools=[middle])
    async with hosting(client, top):
        conversation = await client.start(top, "Go")
        told = [event async for event in conversation.events(deltas=False, children=True)]
    replies = [(event.child, event.message.text) for event in told if event.kind == "replied" and event.message.text]
    assert sorted(replies) == sorted(
        [("", "Done."), (f"{conversation.id}.c1", "Yes."), (f"{conversation.id}.c1.m1", "Light.")]
    )
