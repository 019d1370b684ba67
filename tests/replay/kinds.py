"""Conversations of every kind, to be recorded: each a function that runs one and returns its id."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nexusrpc
import nexusrpc.handler
import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.api.nexus.v1 import EndpointSpec, EndpointTarget
from temporalio.api.operatorservice.v1 import CreateNexusEndpointRequest
from temporalio.worker import Worker as TemporalWorker

from everturn import (
    Agent,
    Client,
    Conversation,
    HandOff,
    Image,
    Limits,
    McpServer,
    McpTool,
    Model,
    ModelSettings,
    NeedsApproval,
    Shown,
    ToolCall,
    ToolContext,
    ToolResult,
    TurnContext,
    Webhook,
    Worker,
    ask_user,
    nexus_tool,
    tool,
)
from everturn.activities.tool_times import FEWEST_RUNS
from everturn.agent_settings import Approvals
from everturn.errors import Ended, NotFound, Refused, Stalled, Unreachable
from everturn.events import ApprovalRequested, TextDelta
from everturn.guardrails import Pattern
from everturn.hooks import (
    AskApproval,
    DenyCall,
    ModelInput,
    StallWith,
    StopWith,
    after_model,
    after_tool,
    before_model,
    before_tool,
)
from everturn.records import Reply
from everturn.testing import ScriptedModel, call, fail, slow
from everturn.tools.context_ask import AsksPerson, current_answer
from tests.crash.workers import workers
from tests.support.agents import hosting
from tests.support.background_server import BackgroundServer, is_kept, says
from tests.support.batch_server import BatchServer
from tests.support.bounds import lowered, settable
from tests.support.provider_server import ProviderServer, in_order, message_item, response
from tests.support.waiting import eventually, says_why, waiting
from tests.support.webhook_receiver import SECRET, Receiver

Kind = Callable[[Client, Path], Awaitable[str]]
KINDS: dict[str, Kind] = {}

SUGGESTED_EVENTS = 60
"""What the recording server takes for a long history: it then suggests to continue as new, and the history says so."""

KEEP_OPEN = timedelta(minutes=5)


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


@tool(effect="read")
def look_up(word: str, chars: int = 10) -> str:
    return (f"{word} means {word}. " * chars)[:chars]


@tool
async def note(text: str) -> str:
    return f"noted: {text}"


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    return f"{cents} back for {order_id}"


@tool
async def linger(seconds: float = 60) -> str:
    await asyncio.sleep(seconds)
    return "lingered"


@tool
def stumble() -> str:
    raise RuntimeError("a stone")


look: dict[str, Any] = {"name": "look", "description": "Look at the screen.", "parameters": {"type": "object"}}
REFUND = [call("refund", {"order_id": "81", "cents": 5}, id="a"), "Done."]


@asynccontextmanager
async def clerk(client: Client, script: Any, *, more: Sequence[Any] = (), **options: Any) -> AsyncIterator[Agent]:
    with ScriptedModel(script) as model:
        tools = [look_up, note, refund, linger, stumble, look, *more]
        agent = Agent("clerk", model=Model("scripted:demo", base_url=model.base_url), tools=tools, **options)
        async with hosting(client, agent):
            yield agent


async def whole(conversation: Conversation) -> str:
    await conversation.outcome()
    return conversation.id


@tool(needs_approval=True, effect="once")
def book(table: str) -> str:
    answer = current_answer()
    if answer is None or not answer.text:
        raise AsksPerson(f"Which day for {table}?", carried={"asked": True})
    return f"{table} on {answer.text}"


@kind
async def tool_asks(client: Client, _: Path) -> str:
    async with clerk(client, [call("book", {"table": "4"}, id="a"), "Done."], more=[book]) as agent:
        conversation = await client.start(agent, "Book")
        await waiting(conversation)
        await conversation.approve("a", arguments={"table": "7"})
        for answer in ("", "Monday"):
            await eventually(lambda: _asks(conversation))
            await conversation.answer("a", answer)
        return await whole(conversation)


@tool(effect="read", local=True, timeout=timedelta(seconds=10))
def peek(context: ToolContext) -> str:
    return f"{context.ask('What do you see?')} at {context.ask('What time is it?')}"


@kind
async def local_tool_asks(client: Client, _: Path) -> str:
    async with clerk(client, [call("peek", {}, id="a"), "Done."], more=[peek]) as agent:
        conversation = await client.start(agent, "Look")
        for answer in ("A bird", "noon"):
            await eventually(lambda: _asks(conversation))
            await conversation.answer("a", answer)
        return await whole(conversation)


@kind
async def local_tool_slows_down(client: Client, _: Path) -> str:
    @tool(effect="read", local="auto")
    async def glance() -> str:
        if activity.info().is_local:
            await asyncio.Event().wait()
        return "seen"

    script = [*[call("glance")] * FEWEST_RUNS, [call("glance", {}, id="a"), call("glance", {}, id="b")], "Done."]
    with lowered(hurried=timedelta(seconds=0.3)):
        async with clerk(client, script, more=[glance]) as agent:
            return await whole(await client.start(agent, "Look"))


async def _asks(conversation: Conversation) -> bool:
    return any(waiting_call.reason == "tool_asks" for waiting_call in (await conversation.status()).waiting)


@nexusrpc.service
class Shop:
    greet: nexusrpc.Operation[str, str]


@nexusrpc.handler.service_handler(service=Shop)
class ShopHandler:
    @nexusrpc.handler.sync_operation
    async def greet(self, context: nexusrpc.handler.StartOperationContext, given: str) -> str:
        if given == "nobody":
            raise nexusrpc.OperationError("nobody is here", state=nexusrpc.OperationErrorState.FAILED)
        return f"Hello {given}"


@kind
async def nexus_operation(client: Client, folder: Path) -> str:
    """One that nobody begins for a while, and one that fails."""
    worker = EndpointTarget.Worker(namespace=client.temporal.namespace, task_queue="shop")
    spec = EndpointSpec(name="shop", target=EndpointTarget(worker=worker))
    await client.temporal.operator_service.create_nexus_endpoint(CreateNexusEndpointRequest(spec=spec), retry=True)
    greet = nexus_tool(Shop.greet, endpoint="shop", service=Shop)
    calls = [call("greet", {"input": name}, id=name) for name in ("Ada", "nobody")]
    with lowered(started_within=timedelta(seconds=0.5)):
        async with clerk(client, [calls, "Done."], more=[greet]) as agent:
            conversation = await client.start(agent, "Greet")
            await eventually(lambda: _awaited(conversation))
            async with TemporalWorker(client.temporal, task_queue="shop", nexus_service_handlers=[ShopHandler()]):
                return await whole(conversation)


async def _awaited(conversation: Conversation) -> bool:
    return bool((await conversation.status()).cause)


@kind
async def plain_reply(client: Client, folder: Path) -> str:
    async with clerk(client, ["Hello."]) as agent:
        return await whole(await client.start(agent, "Hi"))


@kind
async def parallel_tools(client: Client, folder: Path) -> str:
    calls = [call("look_up", {"word": "durable", "chars": 3000}), call("note", {"text": "x"}), call("stumble")]
    async with clerk(client, [calls, [*calls[:1], call("note", {"text": "y"})], "Done."]) as agent:
        return await whole(await client.start(agent, "Look it up"))


@kind
async def more_calls_than_slots(client: Client, folder: Path) -> str:
    calls = [call("note", {"text": str(number)}) for number in range(5)]
    async with clerk(client, [calls, "Done."], limits=Limits(max_parallel_calls=2)) as agent:
        return await whole(await client.start(agent, "Note it all"))


@kind
async def refused_calls(client: Client, folder: Path) -> str:
    calls = [call("no_such_tool"), call("note", {"text": 7}), call("note", "{not json"), call("note", {"text": "z"})]
    async with clerk(client, [calls, "Done."]) as agent:
        return await whole(await client.start(agent, "Try"))


async def _decided(client: Client, decide: Callable[[Conversation], Awaitable[Any]]) -> str:
    async with clerk(client, REFUND) as agent:
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await decide(conversation)
        return await whole(conversation)


@kind
async def approval_approved(client: Client, folder: Path) -> str:
    return await _decided(client, lambda conversation: conversation.approve("a", note="fine"))


@kind
async def approval_edited(client: Client, folder: Path) -> str:
    return await _decided(client, lambda one: one.approve("a", arguments={"order_id": "81", "cents": 4}))


@kind
async def approval_edited_in_vain(client: Client, folder: Path) -> str:
    async def twice(conversation: Conversation) -> None:
        await conversation.approve("a", arguments={"order_id": "81", "cents": "many"})
        await waiting(conversation)
        await conversation.approve("a")

    return await _decided(client, twice)


@kind
async def approval_denied(client: Client, folder: Path) -> str:
    return await _decided(client, lambda conversation: conversation.deny("a", reason="not ours"))


@kind
async def approval_answered(client: Client, folder: Path) -> str:
    return await _decided(client, lambda conversation: conversation.answer("a", {"refunded": 5}))


@kind
async def approval_by_signal(client: Client, folder: Path) -> str:
    async def signal(conversation: Conversation) -> None:
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("approve", {"call_id": "nobody"})
        await handle.signal("approve", "nonsense")
        await handle.signal("approve", {"call_id": "*", "by": "ann"})

    return await _decided(client, signal)


@kind
async def approval_expired(client: Client, folder: Path) -> str:
    approvals = Approvals(expire_after=timedelta(seconds=1), remind_before=timedelta(seconds=0.5))
    async with clerk(client, REFUND, approvals=approvals) as agent:
        return await whole(await client.start(agent, "Refund 81"))


@kind
async def approval_by_a_policy(client: Client, folder: Path) -> str:
    async with clerk(client, REFUND, approvers=lambda _, decision: decision.by == "ann") as agent:
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await conversation.approve("a")
        await waiting(conversation)
        ann = Client(client.temporal, task_queue=client.task_queue, by="ann")
        await ann.conversation(conversation.id).approve("a")
        return await whole(conversation)


async def _outcome_unknown(client: Client, folder: Path, decide: Callable[[Conversation], Awaitable[Any]]) -> str:
    """A worker process is killed in the middle of a payment."""
    folder.mkdir()
    with ScriptedModel([call("pay", id="p"), "Done."]) as model, workers(client, model, folder) as start:
        doomed = start()
        conversation = await client.start("clerk", "Pay")
        await eventually((folder / "effects").exists, what="it pays")
        doomed.kill()
        start()
        async for event in conversation.events():
            if isinstance(event, ApprovalRequested):
                break
        (folder / "may-end").touch()
        await eventually(lambda: _taken(conversation, decide))
        return await whole(conversation)


async def _taken(conversation: Conversation, decide: Callable[[Conversation], Awaitable[Any]]) -> bool:
    # The event can be there a moment before the conversation itself knows of it.
    try:
        await decide(conversation)
    except Refused:
        return False
    return True


@kind
async def outcome_unknown_approved(client: Client, folder: Path) -> str:
    return await _outcome_unknown(client, folder, lambda conversation: conversation.approve("p"))


@kind
async def outcome_unknown_denied(client: Client, folder: Path) -> str:
    return await _outcome_unknown(client, folder, lambda conversation: conversation.deny("p"))


@kind
async def client_tool(client: Client, folder: Path) -> str:
    async with clerk(client, [call("look", id="l"), "I see."]) as agent:
        conversation = await client.start(agent, "Look")
        await waiting(conversation)
        await conversation.answer("l", "a cat")
        return await whole(conversation)


@kind
async def client_tool_run_here(client: Client, folder: Path) -> str:
    calls = [call("look", id="l"), call("ask_user", {"question": "Which?"}, id="q")]
    async with clerk(client, [calls, "I see."], more=[ask_user]) as agent:
        conversation = await client.start(agent, "Look")
        await waiting(conversation, calls=2)
        await conversation.answer("q", "the red one")
        picture = Image(data="aGVsbG8=", media_type="image/png")
        await conversation.call_tool(ToolCall(call_id="l", name="look"), tool(lambda: picture, name="look"))
        return await whole(conversation)


@kind
async def client_tool_timed_out(client: Client, folder: Path) -> str:
    hurry = replace(ask_user, timeout=timedelta(seconds=1))
    async with clerk(client, [call("ask_user", {"question": "Which?"}), "Well."], more=[hurry]) as agent:
        return await whole(await client.start(agent, "Ask"))


@kind
async def manual_loop(client: Client, folder: Path) -> str:
    calls = [call("note", {"text": "x"}, id="n"), call("no_such_tool", id="o")]
    async with clerk(client, [calls, "Done."], loop="manual") as agent:
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=2)
        await conversation.call_tool(ToolCall(call_id="n", name="note", arguments={"text": "x"}), note)
        await conversation.answer("o", "no such tool", is_error=True)
        return await whole(conversation)


@asynccontextmanager
async def editor(client: Client, script: Any, **options: Any) -> AsyncIterator[Agent]:
    """An agent that asks the clerk."""
    with ScriptedModel(script) as below, ScriptedModel([call("clerk", {"message": "Help"}, id="c"), "Done."]) as model:
        tools = [note, refund, linger]
        helper = Agent("clerk", model=Model("scripted:demo", base_url=below.base_url), tools=tools, **options)
        agent = Agent("editor", model=Model("scripted:demo", base_url=model.base_url), tools=[helper])
        async with hosting(client, agent):
            yield agent


async def _below(client: Client, conversation: Conversation) -> Conversation:
    """The clerk's conversation, once a call waits there."""
    child = client.conversation(f"{conversation.id}.c")

    async def waits() -> bool:
        try:
            return bool((await child.status()).waiting)
        except NotFound:
            return False

    await eventually(waits)
    return child


@kind
async def agent_as_tool(client: Client, folder: Path) -> str:
    async with editor(client, [call("note", {"text": "x"}), "Long. " * 500]) as agent:
        return await whole(await client.start(agent, "Go", id="asks"))


@kind
async def agent_that_is_asked(client: Client, folder: Path) -> str:
    async with editor(client, REFUND) as agent:
        child = await _below(client, await client.start(agent, "Go", id="asks-for-it"))
        await child.approve("a")
        return await whole(child)


@kind
async def agent_lost(client: Client, folder: Path) -> str:
    async with editor(client, REFUND) as agent:
        conversation = await client.start(agent, "Go", id="asks-in-vain")
        child = await _below(client, conversation)
        await client.temporal.get_workflow_handle(child.id).terminate()
        return await whole(conversation)


@kind
async def agent_whose_id_runs(client: Client, folder: Path) -> str:
    async with editor(client, REFUND) as agent:
        await client.start(agent, "Mine", id="taken.c", keep_open=KEEP_OPEN)
        return await whole(await client.start(agent, "Go", id="taken"))


@kind
async def agent_cancelled(client: Client, folder: Path) -> str:
    async with editor(client, REFUND) as agent:
        conversation = await client.start(agent, "Go", id="cancels", keep_open=KEEP_OPEN)
        child = await _below(client, conversation)
        await conversation.cancel_turn()
        await child.outcome()
        await conversation.send("Go on")
        await conversation.reply()
        await conversation.close()
        return await whole(conversation)


@kind
async def agent_closed(client: Client, folder: Path) -> str:
    async with editor(client, REFUND) as agent:
        conversation = await client.start(agent, "Go", id="closes")
        await _below(client, conversation)
        await conversation.close()
        return await whole(conversation)


@kind
async def stalled_and_resumed(client: Client, folder: Path) -> str:
    async with clerk(client, [fail(401), fail(500), "Here."]) as agent:
        conversation = await client.start(agent, "Go")
        with suppress(Stalled):
            await conversation.reply()
        await conversation.resume()
        return await whole(conversation)


@kind
async def fallback_model(client: Client, folder: Path) -> str:
    with ScriptedModel(["Here."]) as well:
        spare = Model("scripted:spare", base_url=well.base_url)
        async with clerk(client, [fail(400)], fallback_models=[spare]) as agent:
            return await whole(await client.start(agent, "Go"))


@kind
async def stalled_after_a_fallback(client: Client, folder: Path) -> str:
    """`resume` begins with the first model again, and another one that a person names stays the first."""
    with ScriptedModel([fail(401), fail(401), fail(401), "Here.", "Again."]) as spare_one:
        spare = Model("scripted:spare", base_url=spare_one.base_url)
        async with clerk(client, [fail(400), fail(400), fail(400)], fallback_models=[spare]) as agent:
            conversation = await client.start(agent, "Go", keep_open=KEEP_OPEN)
            for model in (None, "scripted:demo"):
                with suppress(Stalled):
                    await conversation.reply()
                await conversation.resume(model=model)
            with suppress(Stalled):
                await conversation.reply()
            await conversation.resume()
            await conversation.reply()
            await conversation.close()
            return await whole(conversation)


@kind
async def ignored_signals(client: Client, folder: Path) -> str:
    """They change nothing: no event tells them."""
    async with clerk(client, REFUND) as agent:
        conversation = await client.start(agent, "Refund 81", keep_open=KEEP_OPEN)
        await waiting(conversation)
        handle = client.temporal.get_workflow_handle(conversation.id)
        late = {"call_id": "a", "valid_until": 1.0}
        for name, payload in (
            ("approve", {**late, "by": "ann"}),
            ("deny", {**late, "call_id": "*", "by": "ann"}),
            ("answer", {**late, "content": "No.", "by": "ann"}),
            ("approve", {"call_id": "a", "expected": {"order_id": "1"}, "by": "ann"}),
            ("deny", {"call_id": "nobody"}),
            ("resume", {"by": "ann"}),
        ):
            await handle.signal(name, payload)
            await conversation.status()  # it has been taken in
        await conversation.approve("a")
        await conversation.reply()
        await conversation.pause()
        await handle.signal("cancel_turn", {"by": "ann"})  # there is no turn
        await conversation.status()
        await conversation.resume()
        await conversation.close()
        return await whole(conversation)


@kind
async def paused(client: Client, folder: Path) -> str:
    async with clerk(client, [call("linger", {"seconds": 0.3}), "Done."]) as agent:
        conversation = await client.start(agent, "Go")
        await conversation.pause("lunch")
        await eventually(lambda: _is_paused(conversation))
        await conversation.resume()
        return await whole(conversation)


async def _is_paused(conversation: Conversation) -> bool:
    status = await conversation.status()
    return status.state == "paused"


@kind
async def limit_reached(client: Client, folder: Path) -> str:
    script: Sequence[Any] = [call("note", {"text": "x"})] * 5
    async with clerk(client, script, limits=Limits(max_turns=2)) as agent:
        return await whole(await client.start(agent, "Go on"))


async def _lingering(client: Client, agent: Agent) -> Conversation:
    conversation = await client.start(agent, "Linger", keep_open=KEEP_OPEN)
    handle = client.temporal.get_workflow_handle(conversation.id)

    async def lingers() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return any(entry.activity_type.name == "linger" and entry.HasField("last_started_time") for entry in pending)

    await eventually(lingers)
    return conversation


@kind
async def turn_cancelled(client: Client, folder: Path) -> str:
    calls = [call("linger"), call("refund", {"order_id": "1", "cents": 1}), call("note", {"text": "x"})]
    async with clerk(client, [calls, "Then not."]) as agent:
        conversation = await _lingering(client, agent)
        await conversation.cancel_turn("enough")
        with suppress(Ended):
            await conversation.reply()
        await conversation.send("And now?")
        await conversation.reply()
        await conversation.close()
        return await whole(conversation)


@kind
async def turn_cut_short(client: Client, folder: Path) -> str:
    held = threading.Event()
    story = "Once upon a time, a workflow lived by its history. " * 9
    with ScriptedModel([slow(story, after=6, until=held), "Shorter."], order="arrival") as model:
        agent = Agent("clerk", model=Model("scripted:demo", base_url=model.base_url))
        async with hosting(client, agent):
            conversation = await client.start(agent, "A story", keep_open=KEEP_OPEN, stream=True)
            async for event in conversation.events():
                if isinstance(event, TextDelta):
                    break
            await conversation.cancel_turn("enough")
            held.set()
            await conversation.send("Shorter, please")
            await conversation.reply()
            await conversation.close()
            return await whole(conversation)


@kind
async def turn_cut_short_by_signal(client: Client, folder: Path) -> str:
    """As the Web UI sends it, twice: its turn hands over what it has said."""
    held = threading.Event()
    story = "Once upon a time, a workflow lived by its history. " * 9
    with ScriptedModel([slow(story, after=6, until=held), "Shorter."], order="arrival") as model:
        agent = Agent("clerk", model=Model("scripted:demo", base_url=model.base_url))
        async with hosting(client, agent):
            conversation = await client.start(agent, "A story", keep_open=KEEP_OPEN, stream=True)
            async for event in conversation.events():
                if isinstance(event, TextDelta):
                    break
            handle = client.temporal.get_workflow_handle(conversation.id)
            await handle.signal("cancel_turn")
            await handle.signal("cancel_turn", {"reason": "enough"})
            await conversation.send("Shorter, please")
            await conversation.reply()
            held.set()
            await conversation.close()
            return await whole(conversation)


@kind
async def in_the_background(client: Client, folder: Path) -> str:
    """The worker that began the response ends in its middle, and the next one picks it up."""
    held = threading.Event()
    with (
        BackgroundServer(says("Once ", "upon a time.", go_on=held)) as provider,
        patch.dict(os.environ, {"OPENAI_API_KEY": "sk-test"}),
    ):
        model = Model("openai:gpt-5.5", base_url=provider.base_url)
        agent = Agent("clerk", model=model, settings=ModelSettings(background=True))
        async with hosting(client, agent, drain_timeout=timedelta(0)):
            conversation = await client.start(agent, "A story")
            await eventually(lambda: is_kept(client, conversation.id))
        held.set()
        async with hosting(client, agent):
            return await whole(conversation)


@kind
async def workflow_cancelled(client: Client, folder: Path) -> str:
    async with clerk(client, [[call("linger"), call("note", {"text": "x"})], "Never."]) as agent:
        conversation = await _lingering(client, agent)
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        return await whole(conversation)


@kind
async def closed_while_it_waits(client: Client, folder: Path) -> str:
    return await _decided(client, lambda conversation: conversation.close("late"))


@kind
async def kept_open(client: Client, folder: Path) -> str:
    async with clerk(
        client, ["One.", [call("note", {"text": "x"}), call("linger", {"seconds": 0.2})], "Two."]
    ) as agent:
        conversation = await client.start(agent, "1", keep_open=timedelta(seconds=2))
        await conversation.reply()
        await conversation.send("2", message_id="2")
        await conversation.send("2", message_id="2")
        await conversation.send("3")
        await conversation.reply()
        return await whole(conversation)  # it has idled long enough


@kind
async def continued_as_new(client: Client, folder: Path) -> str:
    calls = [call("look_up", {"word": str(number), "chars": 3000 if number % 4 == 0 else 10}) for number in range(12)]
    async with clerk(client, [*calls, "Read."]) as agent:
        return await whole(await client.start(agent, "Read it all"))


@kind
async def waited_across_runs(client: Client, folder: Path) -> str:
    """Edits that do not fit use up a run while calls wait; what is there by then goes along."""
    calls = [call("note", {"text": "x"}), call("look", {}, id="b"), REFUND[0], call("no_such_tool")]
    async with clerk(client, [calls, "Done."]) as agent:
        conversation = await client.start(agent, "Refund 81")
        first = await conversation.latest_run()
        for number in range(SUGGESTED_EVENTS):
            await waiting(conversation, calls=2)
            if await conversation.latest_run() != first:
                break
            await conversation.approve("a", {"cents": f"{number} cents"})
        await conversation.answer("b", "a screen")
        await conversation.approve("a", {"order_id": "81", "cents": 4})
        return await whole(conversation)


@kind
async def revived(client: Client, folder: Path) -> str:
    async with clerk(client, [call("note", {"text": "x"}), "One.", "Two."]) as agent:
        conversation = await client.start(agent, "1")
        await conversation.outcome()
        await client.send(agent, "2", id=conversation.id)
        return await whole(conversation)


@kind
async def forked(client: Client, folder: Path) -> str:
    async with clerk(client, [call("note", {"text": "x"}), "One.", "Two."]) as agent:
        conversation = await client.start(agent, "1")
        await conversation.outcome()
        return await whole(await conversation.fork(at_turn=1, id="forked-1"))


@kind
async def forked_and_large(client: Client, folder: Path) -> str:
    """Behind a final reply, and with a transcript that is too large for the start."""
    async with clerk(client, [call("note", {"text": "x"}), "One.", "Two."]) as agent:
        conversation = await client.start(agent, "1")
        await conversation.outcome()
        with lowered(begun_with_bytes=0):
            fork = await conversation.fork(at_turn=2, id="forked-2")
        await fork.send("2")
        await fork.reply()
        await fork.close()
        return await whole(fork)


@kind
async def refused_start(client: Client, folder: Path) -> str:
    async with clerk(client, ["Hello."]):
        handle = await client.temporal.start_workflow(
            "Conversation", {"agent": ""}, id="refused", task_queue=client.task_queue
        )
        with suppress(Ended):
            await client.conversation(handle.id).outcome()
        return handle.id


@kind
async def decided_at_run_time(client: Client, folder: Path) -> str:
    """Its instructions and tools are functions, its agent is a store's; it has a tenant and metadata."""

    async def find(name: str, version: str | None) -> Agent:
        return Agent(
            name,
            model=Model("scripted:demo", base_url=model.base_url),
            instructions=lambda context: f"For {context.tenant}, turn {context.turn}.",
            tools=[note, refund],
            prepare_tools=lambda context, tools: [tool for tool in tools if tool.name != context.metadata["without"]],
        )

    with ScriptedModel([call("note", {"text": "x"}), call("refund", {"order_id": "81", "cents": 5}), "Done."]) as model:
        async with Worker(client, agents=find):
            metadata = {"without": "refund"}
            conversation = await client.start("ada@2", "1", tenant="acme", metadata=metadata, id="decided-at-run-time")
            return await whole(conversation)


@before_tool
def bounded(call: ToolCall, context: ToolContext) -> DenyCall | AskApproval | ToolCall | None:
    text = call.arguments.get("text")
    if text == "ask":
        return AskApproval("asked")
    if text == "change":
        return call.model_copy(update={"arguments": {"text": "changed"}})
    return DenyCall("denied") if text == "deny" else None


@after_tool
def stop(call: ToolCall, result: ToolResult, context: ToolContext) -> StopWith | str | None:
    return StopWith("That is enough.") if result.text == "noted: stop" else result.text.upper()


@kind
async def hooked(client: Client, folder: Path) -> str:
    calls = [call("note", {"text": text}, id=text) for text in ("ask", "change", "deny")]
    script = [calls, [call("note", {"text": "stop"}, id="stop")], "Never said."]
    async with clerk(client, script, hooks=[bounded, stop]) as agent:
        conversation = await client.start(agent, "Note")
        await waiting(conversation)
        await conversation.approve("ask", arguments={"text": "change"})
        return await whole(conversation)


@kind
async def decided_by_policy(client: Client, folder: Path) -> str:
    refunds = [call("refund", {"order_id": "81", "cents": cents}, id=f"c{cents}") for cents in (1, 2, 3000)]
    later = [call("refund", {"order_id": "82", "cents": 4}, id="c4"), call("note", {"text": "x"}, id="n")]
    async with clerk(client, [refunds, later, "Done."]) as agent:
        conversation = await client.start(agent, "Refund")
        await waiting(conversation, calls=3)
        await conversation.approve("c1", always={"cents": {"at_most": 2000}})
        policy = (await conversation.status()).policy
        await conversation.set_policy(
            [
                *policy,
                {"tool": "refund", "then": "deny", "where": {"cents": {"above": 2000}}},
                {"tool": "note", "then": "ask"},
            ]
        )
        await waiting(conversation)
        await conversation.approve("n")
        return await whole(conversation)


@kind
async def handed_on(client: Client, folder: Path) -> str:
    def transfer(to: str) -> Any:
        return call(f"transfer_to_{to}", {"message": "Order 81."})

    first = [[call("note", {"text": "x"}, id="n1"), transfer("billing")], [transfer("sales"), transfer("billing")]]
    second = ["Refunded.", transfer("clerk"), "Sold."]
    with ScriptedModel(first, order="arrival") as one, ScriptedModel(second, order="arrival") as two:
        there = Model("scripted:demo", base_url=two.base_url)
        billing, sales = (Agent(name, model=there, tools=[note], handoff_to=["clerk"]) for name in ("billing", "sales"))
        filtered = HandOff(billing, filter=lambda messages: Shown(last=1, tools=False, note=f"{len(messages)} before"))
        asked = HandOff(sales, needs_approval=True)
        clerk = Agent(
            "clerk",
            model=Model("scripted:demo", base_url=one.base_url),
            tools=[note],
            handoff_to=[filtered, asked],
        )
        async with Worker(client, agents=[clerk]):
            conversation = await client.start(clerk, "Refund", keep_open=timedelta(minutes=5), id="handed-on")
            await conversation.reply()
            await conversation.send("And sell me one")
            [waits] = await waiting(conversation)
            await conversation.approve(waits)
            await conversation.reply()
            await conversation.close()
            return await whole(conversation)


class Order(BaseModel):
    number: str
    urgent: bool = False


@kind
async def typed_inputs(client: Client, folder: Path) -> str:
    """An agent is asked, and another one takes over, each with input of a type."""
    first = [[call("stock", {"number": "81"}, id="s1")], [call("transfer_to_billing", {"number": "82"}, id="t1")]]
    second = ["There is one.", "Refunded."]
    with ScriptedModel(first, order="arrival") as one, ScriptedModel(second, order="arrival") as two:
        there = Model("scripted:demo", base_url=two.base_url)
        stock, billing = Agent("stock", model=there, input=Order), Agent("billing", model=there)
        handoff = HandOff(billing, input=Order)
        clerk = Agent("clerk", model=Model("scripted:demo", base_url=one.base_url), tools=[stock], handoff_to=[handoff])
        async with Worker(client, agents=[clerk]):
            return await whole(await client.start(clerk, "Refund", id="typed"))


@after_model
def discreet(reply: Reply, context: TurnContext) -> StopWith | None:
    return StopWith("No word of that.") if "secret" in reply.text else None


@kind
async def model_hooked(client: Client, _: Path) -> str:
    """Hooks stall a turn, change what the model is sent, and answer in its place; a guardrail redacts a result."""
    well = threading.Event()

    @before_model
    def in_the_mood(given: ModelInput, context: TurnContext) -> ModelInput | StallWith:
        if not well.is_set():
            return StallWith("it is not in the mood", cure="Wait. Then resume.")
        return replace(given, instructions="Be brief.")

    script = [call("note", {"text": "4242 4242 4242 4242"}, id="n"), "Noted.", "It is a secret."]
    hooks = [in_the_mood, discreet, Pattern(r"(?:\d{4} ?){4}", redact="[card number]", on="results")]
    async with clerk(client, script, hooks=hooks) as agent:
        conversation = await client.start(agent, "Note", keep_open=KEEP_OPEN)
        with suppress(Stalled):
            await conversation.reply()
        well.set()
        await conversation.resume()
        await conversation.reply()
        await conversation.send("And what is it?")
        await conversation.reply()
        await conversation.close()
        return await whole(conversation)


@tool(effect="once")
def spend(cents: int, context: ToolContext) -> str:
    if cents > 10 and not context.approved:
        raise NeedsApproval(f"{cents} cents is much")
    return f"spent {cents}"


@kind
async def tool_pauses_itself(client: Client, _: Path) -> str:
    """One is approved, one is denied, and one is approved for always, so that nobody is asked about the last."""
    cents = {"a": 5, "b": 50, "c": 60, "d": 70}
    first = [call("spend", {"cents": cents[name]}, id=name) for name in "abc"]
    script = [first, call("spend", {"cents": cents["d"]}, id="d"), "Done."]
    async with clerk(client, script, more=[spend]) as agent:
        conversation = await client.start(agent, "Spend")
        await waiting(conversation, calls=2)
        await conversation.deny("b", "too much")
        await conversation.approve("c", always={"cents": {"at_most": 80}})
        return await whole(conversation)


@kind
async def decided_too_late(client: Client, _: Path) -> str:
    """What a client gave up on is withdrawn; a decision by signal that came after its time is not taken."""
    async with clerk(client, REFUND) as agent:
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
    with pytest.MonkeyPatch.context() as patched:
        settable(patched)(answer_seconds=0.5)
        with suppress(Unreachable):
            await conversation.approve("a", within=timedelta(seconds=1))
    async with clerk(client, REFUND):
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("approve", {"call_id": "a", "valid_until": 1.0})
        await conversation.deny("a", "too late", within=timedelta(hours=1))
        return await whole(conversation)


@kind
async def begun_with_a_transcript(client: Client, _: Path) -> str:
    said = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4."}]
    async with clerk(client, [call("note", {"text": "x"}), "8."]) as agent:
        policy = [{"tool": "note", "then": "approve"}]
        return await whole(await client.start(agent, "And twice that?", transcript=said, policy=policy))


@kind
async def forced_call(client: Client, _: Path) -> str:
    script = [call("note", {"text": "x"}), "Noted.", call("note", {"text": "y"}), "Noted, too."]
    async with clerk(client, script, settings=ModelSettings(tool_choice="required")) as agent:
        conversation = await client.start(agent, "Note x", keep_open=KEEP_OPEN)
        await conversation.reply()
        await conversation.send("Note y")
        await conversation.reply()
        await conversation.close()
        return await whole(conversation)


@kind
async def mcp_server_asks(client: Client, folder: Path) -> str:
    """A real server's tools: one that is approved, one that asks twice, one that fails, and two beside each other."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.support.mcp_shop", str(folder)]
    shop = McpServer(command=command, prefix="at", overrides={"charge": McpTool(needs_approval=True)})
    both = [call("at_find", {"name": "lamp"}, id="f"), call("at_show", {}, id="s")]
    later = [call("at_order", {"what": "lamp"}, id="o"), call("at_charge", {"cents": 5}, id="c")]
    async with clerk(client, [both, later, call("at_fail", {}, id="x"), "Done."], more=[shop]) as agent:
        conversation = await client.start(agent, "Order a lamp", id="at-the-shop")
        await waiting(conversation, calls=2)
        await conversation.approve("c")
        for answer in ("7", {"colour": "red", "gift": True}):
            await eventually(lambda: _asks(conversation))
            await conversation.answer("o", answer)
        return await whole(conversation)


SHOT = Image(data="iVBORw0KGgo=", media_type="image/png")


@kind
async def providers_own_tools(client: Client, _: Path) -> str:
    """A shell that a handler runs, a screen that waits for an answer, a safety check, and a request of a server's."""
    shell = {"type": "shell_call", "id": "sh_1", "call_id": "sh", "status": "completed", "action": {"commands": ["ls"]}}
    screen = {"type": "computer_call", "id": "cu_1", "call_id": "cu", "status": "completed"}
    screen |= {"actions": [{"type": "screenshot"}], "pending_safety_checks": []}
    again = {**screen, "id": "cu_2", "call_id": "again"}
    again["pending_safety_checks"] = [{"id": "cs_1", "code": "odd", "message": "Odd."}]
    asks = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "shop", "name": "buy", "arguments": "{}"}
    said = (
        response(shell, screen, id="resp_1"),
        response(again, asks, id="resp_2"),
        response(message_item("Done."), id="resp_3"),
    )
    with ProviderServer(in_order(*said)) as provider, patch.dict(os.environ, {"OPENAI_API_KEY": "sk-test"}):
        agent = Agent(
            "clerk",
            model=Model("openai:gpt-5.5", base_url=provider.base_url),
            tools=[
                {"type": "shell"},
                {"type": "computer"},
                {"type": "mcp", "server_label": "shop", "server_url": "https://shop.example/mcp"},
            ],
            handlers={"shell": lambda commands, **_: f"{commands[0]} ran"},
            settings=ModelSettings(stream=False),
        )
        async with hosting(client, agent):
            conversation = await client.start(agent, "Look")
            await waiting(conversation)
            await conversation.answer("cu", SHOT)
            await waiting(conversation, calls=2)
            await conversation.deny("mcpr_1", "not now")
            await conversation.answer("again", SHOT)
            return await whole(conversation)


@tool(needs_approval=True)
def ask_first(text: str) -> str:
    return f"noted: {text}"


@kind
async def batched_with_a_webhook(client: Client, _: Path) -> str:
    """Two turns that wait for batches, and a call that waits for a person, which a receiver is told."""

    def reply(body: dict[str, Any]) -> Any:
        return "Done." if "noted" in str(body) else ("call_1", "ask_first", {"text": "it"})

    settings = {"SECRET": SECRET, "EVERTURN_BATCH_SECONDS": "0.3", "OPENAI_API_KEY": "none"}
    with patch.dict(os.environ, settings), BatchServer(reply) as provider, Receiver() as receiver:
        agent = Agent(
            "clerk",
            model=provider.model("openai"),
            tools=[ask_first],
            settings=ModelSettings(batch=True),
            webhook=Webhook(url=f"{receiver.base_url}/hook", secret_env="SECRET"),
        )
        async with hosting(client, agent):
            conversation = await client.start(agent, "Note it.")
            for number in (1, 2):
                await eventually(lambda count=number: len(provider.batches) == count)
                await eventually(partial(says_why, conversation, f"batch_{number}"))
                provider.finish()
                if number == 1:
                    await waiting(conversation)
                    await conversation.approve("*")
            await conversation.outcome()
            await eventually(lambda: receiver.kinds == ["waiting", "done"])
    return conversation.id
