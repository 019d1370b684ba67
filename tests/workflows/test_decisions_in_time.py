"""Decisions and time: what comes early, late, often or all at once is taken, refused, or said to be under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Interceptor, OutboundInterceptor, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from everturn import Approvals, Client, Conversation, ToolCall, events, names, tool
from everturn.errors import Refused, Unreachable
from everturn.records import Decision
from everturn.temporal import temporal_errors
from everturn.testing import ScriptedModel, call, fail
from everturn.workflows import web_ui
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import reset_to_the_last_workflow_task, signal
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import WAIT_SECONDS, busy_taking, eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def file(document: str) -> str:
    return f"{len(document)} characters filed"


@pytest.mark.long
async def test_what_waits_is_written_down_when_somebody_looks_however_many_calls_begin_to_wait(
    client: Client, scripted: Scripted, cached_conversations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 400 calls had all 400 written down again: it took seconds, again and again."""
    drawn: list[int] = []
    details = web_ui.current_details

    def counting(status: Any, **options: Any) -> str:
        drawn.append(len(status.waiting))
        return details(status, **options)

    monkeypatch.setattr(web_ui, "current_details", counting)
    calls = [call("file", {"document": "x" * 1000}, id=f"c{number}") for number in range(400)]
    agent = agent_on(scripted([calls, "Done."]), tools=[file])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "File them")
        ids = await waiting(conversation, calls=400)
        assert drawn == [], "nobody has looked"
        handle = client.temporal.get_workflow_handle(conversation.id)
        shown: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        assert "400 calls wait" in shown.current_details
        assert drawn == [400]
        assert set(await conversation.deny("*", reason="no")) == set(ids)
        assert await conversation.reply() == "Done."
    assert len(results_of(await conversation.transcript())) == 400


class Counting(Interceptor):
    """How many updates are under way at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        counted = self

        class Counted(OutboundInterceptor):
            async def start_workflow_update(self, input: Any) -> Any:  # noqa: A002
                counted.now += 1
                counted.most = max(counted.most, counted.now)
                try:
                    return await super().start_workflow_update(input)
                finally:
                    counted.now -= 1

        return Counted(next)


@pytest.mark.long
async def test_more_decisions_at_once_than_the_server_takes_wait_for_their_turn(
    client: Client, scripted: Scripted
) -> None:
    """Temporal has 10 updates of a workflow under way, and turns the others away."""
    counting = Counting()
    deciding = await Client.connect(client.temporal.service_client.config.target_host, interceptors=[counting])
    agent = agent_on(
        scripted([[call("file", {"document": "x"}, id=f"c{n}") for n in range(40)], "Done."]), tools=[file]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "File them")
        ids = await waiting(conversation, calls=40)
        handles = [deciding.conversation(conversation.id) for _ in ids]
        taken = await asyncio.gather(*(handle.approve(call_id) for handle, call_id in zip(handles, ids, strict=True)))
        assert taken == [(call_id,) for call_id in ids]
        assert await conversation.reply() == "Done."
    assert 1 < counting.most <= 10


# ---------------------------------------------------------------- early


@pytest.mark.parametrize(
    ("name", "payload", "said"),
    [
        ("approve", {"call_id": "a", "by": "ada"}, "5 back for 81"),
        ("deny", {"call_id": "a", "reason": "too late"}, "too late"),
        ("answer", {"call_id": "a", "content": "paid in cash"}, "paid in cash"),
    ],
)
async def test_a_decision_by_signal_that_a_reset_applies_again_before_its_call_waits_is_taken(
    client: Client, scripted: Scripted, cached_conversations: int, name: str, payload: Any, said: str
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
    await signal(conversation, name, payload)
    await reset_to_the_last_workflow_task(client, conversation)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert said in result.text


async def test_a_resume_by_signal_that_a_reset_applies_again_before_the_stall_is_taken(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted([fail(401), "Hello."]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi")
        await reaches(conversation, "stalled")
    await signal(conversation, "resume", {})
    await reset_to_the_last_workflow_task(client, conversation)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert (await conversation.outcome()).text == "Hello."


async def test_a_decision_by_signal_waits_while_another_persons_is_checked(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def approvers(call: ToolCall, decision: Decision) -> bool:
        asked.set()
        await asyncio.wait_for(go.wait(), WAIT_SECONDS)
        return decision.by == "boss"

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await signal(conversation, "approve", {"call_id": "a", "by": "clerk"})
        for by in ("intern", "boss"):  # the first may come before the check begins, too
            await signal(conversation, "approve", {"call_id": "a", "by": by})
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        await signal(conversation, "deny", {"call_id": "a", "by": "boss", "reason": "late"})
        go.set()
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert (result.text, result.decision and result.decision.by) == ("5 back for 81", "boss")


@pytest.mark.long
async def test_an_approval_from_before_does_not_run_again_what_may_have_run(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """The second click on a button, which came while the call ran, is no word on a doubt that arose later."""
    runs: list[str] = []
    begun, over = asyncio.Event(), asyncio.Event()

    @tool(needs_approval=True, effect="once", timeout=timedelta(seconds=2))
    async def pay() -> str:
        runs.append("paid")
        begun.set()
        await over.wait()
        return "never"

    agent = agent_on(scripted([call("pay", id="a"), "Done."]), tools=[pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay")
        await waiting(conversation)
        await signal(conversation, "approve", {"call_id": "a"})
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        await signal(conversation, "approve", {"call_id": "a"})
        await waiting(conversation)
        (call_waiting,) = (await conversation.status()).waiting
        assert call_waiting.why.startswith("outcome unknown")
        await conversation.deny("a")
        assert await conversation.reply() == "Done."
    assert runs == ["paid"]


async def test_a_call_that_may_already_have_run_never_expires(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """The clock may approve what has not run. Whether it runs again is for a person to say, however long that takes."""
    runs: list[str] = []
    over = asyncio.Event()

    @tool(needs_approval=True, effect="once", timeout=timedelta(seconds=1))
    async def pay() -> str:
        runs.append("paid")
        await over.wait()
        return "never"

    trusting = Approvals(expire_after=timedelta(seconds=2), on_expiry="approve")
    agent = agent_on(scripted([call("pay", id="a"), "Done."]), tools=[pay], approvals=trusting)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay")
        await waiting(conversation)
        (unasked,) = (await conversation.status()).waiting
        assert unasked.expires_at
        await eventually(lambda: runs == ["paid"])  # the clock has approved it
        await waiting(conversation)
        (doubt,) = (await conversation.status()).waiting
        assert (doubt.reason, doubt.expires_at) == ("outcome_unknown", None)
        await asyncio.sleep(3)
        assert (await conversation.status()).waiting == (doubt,)
        await conversation.deny("a")
        assert await conversation.reply() == "Done."
    assert runs == ["paid"]


# ---------------------------------------------------------------- late

COMMANDS: dict[str, Callable[[Conversation], Any]] = {
    "approve": lambda it: it.approve("a"),
    "deny": lambda it: it.deny("a"),
    "answer": lambda it: it.answer("a", "paid in cash"),
    "pause": lambda it: it.pause(),
    "cancel_turn": lambda it: it.cancel_turn(),
    "close": lambda it: it.close(),
}


@pytest.fixture
def impatient(bounds: Bounds) -> Callable[..., AbstractContextManager[None]]:
    """Whoever asks within it waits for no worker. Outside of it, one that is there has its time."""
    usual = temporal_errors.WORKER_TIMEOUT_SECONDS

    @contextmanager
    def impatiently(seconds: float = 0.5) -> Iterator[None]:
        bounds(answer_seconds=seconds)
        yield
        bounds(answer_seconds=usual)

    return impatiently


async def test_what_was_reported_as_not_taken_is_not_carried_out_when_a_worker_comes(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    impatient: Callable[..., AbstractContextManager[None]],
) -> None:
    agent = agent_on(scripted([*ONE, fail(401), "Never."]), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81", keep_open=timedelta(minutes=5))
        await waiting(conversation)
        before = await conversation.status()
    with impatient():
        told = await asyncio.gather(*(given_up(conversation, name) for name in COMMANDS))
    assert all(f"The {name} was withdrawn: it will not be carried out later." in why for name, why in told)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert await status_of(conversation) == before
        await conversation.approve("a", note="again")
        assert await conversation.reply() == "Done."
        await conversation.send("More")
        await reaches(conversation, "stalled")
    (result,) = results_of(await conversation.transcript())
    assert result.decision is not None
    assert result.decision.note == "again"
    with impatient():
        _, why = await given_up(conversation, "resume", lambda it: it.resume())
    assert "The resume was withdrawn" in why
    async with hosting(client, agent, cached_conversations=cached_conversations):
        assert (await status_of(conversation)).state == "stalled"
        await conversation.close()
        await conversation.outcome()
    switches = [event async for event in conversation.events(deltas=False) if isinstance(event, events.Switched)]
    assert [switch.name for switch in switches] == ["close"], "no event tells of what was withdrawn"


async def given_up(
    conversation: Conversation, name: str, command: Callable[[Conversation], Any] | None = None
) -> tuple[str, str]:
    with pytest.raises(Unreachable, match=f"No worker took the {name}") as error:
        await (command or COMMANDS[name])(conversation)
    return name, str(error.value)


async def status_of(conversation: Conversation) -> Any:
    """As soon as the worker that has just come says it."""

    async def answered() -> Any:
        with suppress(Unreachable):
            return await conversation.status()

    return await eventually(answered)


async def test_what_a_slow_worker_has_taken_already_is_reported_as_taken(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    monkeypatch: pytest.MonkeyPatch,
    impatient: Callable[..., AbstractContextManager[None]],
) -> None:
    busy = busy_taking(monkeypatch, names.APPROVE, seconds=3.5)
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        with impatient(2.0):  # so much time the worker has to take it
            assert await conversation.approve("a") == ("a",)
        assert busy.is_set()
        assert await conversation.reply() == "Done."


async def test_what_can_not_be_withdrawn_may_still_be_carried_out_and_the_error_says_so(
    client: Client,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    impatient: Callable[..., AbstractContextManager[None]],
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise RPCError("the server is away", RPCStatusCode.UNAVAILABLE, b"")

    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
    with monkeypatch.context() as patched:
        patched.setattr(WorkflowHandle, "signal", away)
        with impatient(), pytest.raises(Unreachable, match="may still be carried out later"):
            await conversation.approve("a")
    async with hosting(client, agent):
        assert await conversation.reply() == "Done."


# ---------------------------------------------------------------- often


@pytest.mark.long
async def test_a_stall_that_is_resumed_again_and_again_never_uses_up_the_updates(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(updates=3)
    failures = iter(range(7))
    agent = agent_on(scripted(lambda _: fail(401) if next(failures, None) is not None else "Hello."))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        runs = set()
        for _ in range(7):
            await reaches(conversation, "stalled")
            runs.add(await conversation.latest_run())
            await conversation.resume()
        assert await conversation.reply() == "Hello."
        assert len(runs) == 3
        assert (await conversation.status()).turn == 1, "it is one turn, which was asked again"
        assert [message.text for message in await conversation.transcript()] == ["Hi", "Hello."]


async def test_edits_that_do_not_fit_are_tried_a_bounded_number_of_times_and_other_decisions_are_taken(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(refused_edits=2)
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        for number in range(2):
            await conversation.approve("a", {"cents": f"{number} cents"})
            await eventually(lambda: waits_for_an_edit(conversation))
        with pytest.raises(Refused, match="2 edits did not fit in this turn"):
            await conversation.approve("a", {"cents": 4})
        await conversation.approve("a")
        assert await conversation.reply() == "Done."


async def waits_for_an_edit(conversation: Conversation) -> bool:
    return any("do not fit" in waiting_call.why for waiting_call in (await conversation.status()).waiting)
