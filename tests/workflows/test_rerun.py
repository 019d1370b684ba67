"""Reruns: recorded conversations against a candidate, without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel
from temporalio import activity

from everturn import Agent, Client, Conversation, Limits, ToolCall, activity_tool, ask_user, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidAgent, NotFound, Refused
from everturn.evals import Thresholds, cases_of, read_recorded, rerun
from everturn.hooks import AskApproval, before_tool
from everturn.testing import ScriptedModel, call, fail, say
from tests.support.agents import agent_on, hosting, nowhere
from tests.support.histories import check_all
from tests.support.mcp_shop_server import McpShop
from tests.support.scripts import by_turn
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool(effect="read")
def find_order(order_id: str) -> str:
    """Finds an order."""
    ran.append(f"find {order_id}")
    return f"order {order_id}: 1200 cents"


@tool(effect="once")
def pay(order_id: str, cents: int) -> str:
    """Pays."""
    ran.append(f"pay {order_id}")
    return f"paid {cents}"


FIND = call("find_order", {"order_id": "81"})
PAY = call("pay", {"order_id": "81", "cents": 1200})


async def paid(client: Client, scripted: Scripted) -> tuple[Agent, str]:
    agent = agent_on(scripted(by_turn(FIND, PAY, "Paid.")), tools=[find_order, pay])
    async with hosting(client, agent):
        order = (await client.run(agent, "Pay order 81")).id
    assert ran == ["find 81", "pay 81"]
    ran.clear()
    return agent, order


@pytest.fixture(scope="module")
async def order(server: DevServer) -> str:
    """A conversation that found order 81 and paid it, for tests that read it only: their candidates differ."""
    client = await Client.connect(server.address, task_queue=f"recorded-{uuid4().hex[:8]}", by="tester")
    with ScriptedModel(by_turn(FIND, PAY, "Paid.")) as model:
        agent = agent_on(model, tools=[find_order, pay])
        async with hosting(client, agent):
            recorded = (await client.run(agent, "Pay order 81")).id
    await check_all(client)
    return recorded


async def test_a_candidate_that_pays_twice_and_skips_a_look_up_is_found_and_nothing_runs(
    client: Client, scripted: Scripted
) -> None:
    _, order = await paid(client, scripted)
    careless = agent_on(scripted(by_turn(PAY, PAY, "Paid.")), tools=[find_order, pay])
    reruns = await rerun(client, order, agent=careless)
    [compared] = reruns.comparisons
    assert ran == []
    assert compared.verdict == "diverged"
    assert [one.call.name for one in compared.missing] == ["find_order"]
    assert [one.call.name for one in compared.extra] == ["pay"]
    assert compared.diverged
    assert compared.diverged.made.name == "pay"
    assert results_of(compared.rerun.messages)[0].text == "paid 1200"
    assert reruns.failures() == ["same calls: 0% of the reruns; at least 100% are wanted"]
    assert "diverged here: pay(" in reruns.as_table()
    assert "missing find_order" in reruns.as_markdown()
    assert reruns.as_json()["comparisons"][0]["extra"][0]["tool"] == "pay"
    listed = [conversation.id async for conversation in client.conversations()]
    assert [one for one in listed if one.startswith("rerun:")] == []
    again = await rerun(client, order, agent=careless)
    assert again.comparisons[0].rerun.id == compared.rerun.id
    assert again.comparisons[0].rerun.ended_at == compared.rerun.ended_at, "it was begun anew"
    await client.erase(order)
    with pytest.raises(NotFound):
        await client.conversation(compared.rerun.id).transcript()


@pytest.mark.long
async def test_the_same_candidate_makes_the_same_calls_through_all_messages_and_decisions(
    client: Client, scripted: Scripted
) -> None:
    @tool(effect="once", needs_approval=True)
    def refund(cents: int) -> str:
        """Refunds."""
        ran.append(f"refund {cents}")
        return f"refunded {cents}"

    script = by_turn(
        [call("refund", {"cents": 5}, id="a"), call("refund", {"cents": 7}, id="b")],
        "Half of it.",
        call("refund", {"cents": 5}, id="c"),
        "All of it.",
    )
    agent = agent_on(scripted(script), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund", id="both", keep_open=timedelta(minutes=1))
        await waiting(conversation, calls=2)
        await conversation.approve("a", {"cents": 4})
        await conversation.deny("b", "too much")
        await conversation.reply()
        await conversation.send("The rest")
        await waiting(conversation)
        await conversation.approve("c")
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    before = [result.text for result in results_of(await conversation.transcript())]
    ran.clear()
    reruns = await rerun(client, "both", agent=agent_on(scripted(script), tools=[refund]))
    [compared] = reruns.comparisons
    assert (compared.verdict, compared.answers) == ("same calls", ("All of it.", "All of it."))
    assert [result.text for result in results_of(compared.rerun.messages)] == before
    assert not reruns.failures(Thresholds(same_calls=1, same_text=1, turn_ratio=1))
    assert ran == []


@activity.defn(name="pay_by_activity")
async def pay_by_activity(order_id: str) -> str:
    """Pays."""
    ran.append("activity")
    return "paid"


async def test_no_kind_of_call_runs_whatever_the_candidate_does(
    client: Client, scripted: Scripted, tmp_path: Path, order: str
) -> None:
    """Once, idempotent, local, read; an activity; a client's; a question; a sub-agent; MCP; a provider's, with a
    handler and without; of a function for the turn's tools; behind a hook that asks; with a manual loop."""

    def named(name: str, **options: Any) -> Any:
        def run(order_id: str) -> str:
            """Does something."""
            ran.append(name)
            return "done"

        return tool(run, name=name, **options)

    def bash(command: str) -> str:
        ran.append("bash")
        return "done"

    helper = agent_on(scripted(lambda _: ran.append("helper") or "Done."), name="helper")
    own = [
        named("charge", effect="once"),
        named("charge_again", effect="idempotent"),
        named("look", effect="read", needs_approval=True),
        activity_tool(pay_by_activity),
        named("sign", runs_on="client", effect="once"),
        ask_user,
        helper,
        McpShop(tmp_path).stdio(),
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp", "server_label": "shop", "server_url": "https://shop.example/mcp"},
    ]
    arguments: dict[str, Any] = {"ask_user": {"question": "Which?"}, "helper": {"message": "Pay"}}
    arguments |= {"find": {"name": "lamp"}, "bash": {"command": "pay"}}
    called = ["charge", "charge_again", "look", "pay_by_activity", "sign", "ask_user", "helper", "find", "bash"]
    calls = [call(name, arguments.get(name, {"order_id": "1"}), id=name) for name in called]

    @before_tool(tools=["charge"])
    def careful(made: ToolCall, context: Any) -> AskApproval:
        return AskApproval("who knows")

    candidate = agent_on(
        scripted(by_turn(calls, "Done.")),
        tools=own,
        handlers={"bash": bash},
        hooks=[careful],
    )
    reruns = await rerun(client, order, agent=candidate, run_reads=True)
    [compared] = reruns.comparisons
    assert ran == []
    assert not compared.problem
    assert {one.call.name for one in compared.extra} == set(called)
    assert [result.text for result in results_of(compared.rerun.messages) if not result.by_hook] == []
    assert reruns.left_out == ("mcp",)
    late = call("late", {"order_id": "1"})
    chosen = agent_on(
        scripted(by_turn(late, "Done.")), prepare_tools=lambda context, tools: [*tools, named("late", effect="once")]
    )
    other = agent_on(scripted(by_turn("", PAY, PAY)), tools=[pay], name="other")
    handing_on = agent_on(scripted(by_turn(call("transfer_to_other", {"message": "Pay"}))), handoff_to=[other])
    manual = agent_on(
        scripted(by_turn(PAY, call("pay", {"order_id": "2", "cents": 1}), "Done.")), tools=[pay], loop="manual"
    )
    for others in (chosen, handing_on, manual):
        [compared] = (await rerun(client, order, agent=others)).comparisons
        assert (compared.verdict, compared.problem, ran) == ("diverged", "", [])


async def test_reads_run_if_they_may_and_a_stand_in_plays_what_is_not_recorded(
    client: Client, scripted: Scripted, order: str
) -> None:
    other, twice = call("find_order", {"order_id": "82"}), call("pay", {"order_id": "82", "cents": 5})
    candidate = agent_on(scripted(by_turn(FIND, FIND, other, twice, PAY, "Paid.")), tools=[find_order, pay])
    reruns = await rerun(client, order, agent=candidate, run_reads=True, stand_in=lambda call, context: "played")
    [compared] = reruns.comparisons
    assert ran == ["find 81", "find 82"]
    texts = [result.text for result in results_of(compared.rerun.messages)]
    assert texts == ["order 81: 1200 cents"] * 2 + ["order 82: 1200 cents", "played", "paid 1200"]
    assert compared.verdict == "other calls"


async def never(call: ToolCall, recorded: ToolCall) -> bool:
    return False


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"matches": lambda call, recorded: "no"}, "matches= returned 'no'"),
        ({"stand_in": lambda call, context: {"paid": True}}, "stand_in= returned {'paid': True}"),
    ],
)
async def test_what_says_nothing_clear_ends_a_rerun(
    client: Client, scripted: Scripted, order: str, option: dict[str, Any], problem: str
) -> None:
    candidate = agent_on(
        scripted(by_turn(call("pay", {"order_id": "82", "cents": 5}), "Paid.")), tools=[find_order, pay]
    )
    [compared] = (await rerun(client, order, agent=candidate, **option)).comparisons
    assert (compared.verdict, ran) == ("stuck", [])
    assert problem in compared.problem


async def test_what_says_nothing_at_all_is_refused_before_anything_is_read(scripted: Scripted) -> None:
    agent = agent_on(scripted([]))
    for odd in ({"matches": never}, {"matches": 5}, {"stand_in": 5}, {"parallel": 0}, {"samples": 0}):
        with pytest.raises(Refused, match=next(iter(odd))):
            await rerun(nowhere(), "81", agent=agent, **odd)
    for threshold in ({"same_calls": float("nan")}, {"cost_ratio": float("nan")}, {"same_text": 95}):
        with pytest.raises(Refused, match=next(iter(threshold))):
            Thresholds(**threshold)


async def test_one_turn_is_asked_for_as_often_as_wanted_after_the_exact_transcript(
    client: Client, scripted: Scripted, order: str
) -> None:
    agent = agent_on(scripted(by_turn(FIND)), tools=[find_order, pay])
    model = scripted(by_turn("", PAY))
    reruns = await rerun(client, order, agent=agent_on(model, tools=[find_order, pay]), at_turn=2, samples=2)
    assert [comparison.verdict for comparison in reruns.comparisons] == ["same calls"] * 2
    assert ran == []
    first = await rerun(client, order, agent=agent, at_turn=1, instructions="Be quick.")
    assert first.comparisons[0].same_calls
    with pytest.raises(Refused, match="no reply of turn 9"):
        await rerun(client, order, agent=agent, at_turn=9)
    with pytest.raises(InvalidAgent, match="needs a candidate"):
        await rerun(client, order)


async def test_a_rerun_that_was_cut_short_goes_on_where_it_was(client: Client, scripted: Scripted) -> None:
    """Pays twice only after it was cut: what the first process had answered counts in the second."""
    _, order = await paid(client, scripted)
    gate, asked = asyncio.Event(), []

    def script(messages: list[Any]) -> Any:
        turn = sum(message["role"] == "assistant" for message in messages)
        asked.append(turn)
        if turn == 2 and not gate.is_set():
            return fail(503, headers={"retry-after": "1"})
        return [FIND, PAY, PAY][turn]

    candidate = agent_on(scripted(script), tools=[find_order, pay])
    first = asyncio.create_task(rerun(client, order, agent=candidate))
    await eventually(lambda: 2 in asked)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    gate.set()
    [compared] = (await rerun(client, order, agent=candidate)).comparisons
    assert compared.verdict == "diverged"
    assert (asked.count(0), asked.count(1), ran) == (1, 1, [])


@pytest.mark.long
async def test_what_has_changed_since_is_rerun_anew_and_what_has_not_is_taken_as_it_is(
    client: Client, scripted: Scripted
) -> None:
    recorded_agent = agent_on(scripted(lambda messages: "Hello."))
    async with hosting(client, recorded_agent):
        conversation = await client.start(recorded_agent, "Hi", id="grows", keep_open=timedelta(minutes=1))
        await conversation.reply()

        def stand_in_of(style: str) -> Callable[[ToolCall, Any], str]:
            return lambda call, context: f"{style} {call.name}"

        def instructions_of(style: str) -> Callable[[Any], str]:
            return lambda context: f"Be {style}."

        async def rerun_id_with(style: str, stand_in: str = "real", **options: Any) -> str:
            candidate = agent_on(scripted(lambda messages: "Hello."), instructions=instructions_of(style), **options)
            vars(candidate).update(model=recorded_agent.model)
            [compared] = (
                await rerun(client, conversation.id, agent=candidate, stand_in=stand_in_of(stand_in))
            ).comparisons
            assert compared.verdict == "same calls"
            return compared.rerun.id

        first = await rerun_id_with("brief")
        assert await rerun_id_with("brief") == first, "as after a kill"
        changed = [
            await rerun_id_with("kind"),
            await rerun_id_with("brief", stand_in="odd"),
            await rerun_id_with("brief", limits=Limits(max_turns=9)),
        ]
        await conversation.send("Hi again")
        await conversation.reply()
        grown = await rerun_id_with("brief")
        await conversation.close()
    assert len({first, grown, *changed}) == 5


async def test_a_candidate_that_may_have_changed_and_another_conversation_under_the_id_are_asked_anew(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    prompt = tmp_path / "prompt.md"
    questions: list[str] = []

    def script(messages: list[Any]) -> Any:
        if messages[-1]["role"] == "tool":
            return "Done."
        if "strict" in str(messages[0]["content"]):
            return "No."
        questions.append(messages[-1]["content"])
        return call("find_order", {"order_id": messages[-1]["content"]})

    def from_file(context: Any) -> str:
        return prompt.read_text()

    agent = agent_on(scripted(script), tools=[find_order])
    async with hosting(client, agent):
        await client.run(agent, "81", id="daily")
    verdicts = []
    for style in ("Be generous", "Be strict"):
        prompt.write_text(style)
        reruns = await rerun(client, "daily", agent=agent, instructions=from_file)
        verdicts += [comparison.verdict for comparison in reruns.comparisons]
        assert not reruns.earlier
    assert verdicts == ["same calls", "other calls"]
    first = [await rerun(client, "daily", agent=agent, at_turn=turn) for turn in (None, 2)]
    questions.clear()
    again = [await rerun(client, "daily", agent=agent, at_turn=turn) for turn in (None, 2)]
    assert [reruns.comparisons[0].rerun.id for reruns in again] == [reruns.comparisons[0].rerun.id for reruns in first]
    assert not questions
    assert all("1 of 1 reruns are earlier ones, the oldest of 20" in reruns.as_table() for reruns in again)
    assert "again=True (--again) asks anew" in again[0].as_markdown()
    assert again[0].as_json()["comparisons"][0]["earlier"]
    async with hosting(client, agent):
        await client.run(agent, "82", id="daily", again=True)
    for turn in (None, 2):
        [compared] = (await rerun(client, "daily", agent=agent, at_turn=turn)).comparisons
        assert (compared.verdict, compared.is_earlier) == ("same calls", False)
        assert compared.rerun.asked[0].text == "82"


async def test_no_rerun_is_on_a_queue_that_other_workers_poll(client: Client, scripted: Scripted, order: str) -> None:
    """They would run the tools of the reruns that they get."""
    agent = agent_on(scripted(by_turn(FIND, "Found.")), tools=[find_order, pay])
    other = Client(client.temporal, task_queue=f"{client.task_queue}-other")
    async with hosting(client, agent), hosting(other, agent):
        for queue, reason in ((client.task_queue, "that of the conversations"), (other.task_queue, "other workers")):
            with pytest.raises(Refused, match=f"{queue}'.*{reason}.*Leave out task_queue="):
                await rerun(client, order, agent=agent, task_queue=queue, samples=9)
    with pytest.raises(Refused, match="that of the conversations"):
        await rerun(client, order, agent=agent, task_queue=client.task_queue)
    for _ in range(2):  # the first one's worker has stopped
        reruns = await rerun(client, order, agent=agent, task_queue=f"{client.task_queue}-own", again=True)
        assert [compared.verdict for compared in reruns.comparisons] == ["other calls"]
    assert ran == []


class Answer(BaseModel):
    cents: int


async def test_how_it_ended_counts_unless_the_recorded_one_ended_the_same_way(
    client: Client, scripted: Scripted
) -> None:
    def candidate(*replies: Any, **options: Any) -> Agent:
        return agent_on(scripted(by_turn(FIND, *replies)), tools=[find_order], **options)

    bad = ["no JSON"] * 9
    cut = candidate(say("Paid 12", finish="length"), name="cut")
    failing = candidate(*bad, output=Answer, name="failing")
    good = candidate('{"cents": 1200}', name="good")
    async with hosting(client, good, cut, failing):
        for agent in (good, cut, failing):
            await client.start(agent, "Pay", id=agent.full_name)
        for agent in (good, cut, failing):
            await client.conversation(agent.full_name).outcome()
    tried: dict[str, dict[str, Any]] = {
        "length": {"agent": cut},
        "failed": {"agent": failing},
        "limit_reached": {"agent": good, "limits": Limits(max_turns=1)},
    }
    for ending, options in tried.items():
        reruns = await rerun(client, "good", **options)
        [compared] = reruns.comparisons
        assert (compared.same_calls, compared.verdict) == (True, "other ending"), ending
        assert compared.endings == ("completed", ending)
        assert reruns.failures() == ["same ending: 0% of the reruns; at least 100% are wanted"]
        assert f"ended otherwise: {ending}" in reruns.as_table()
        assert reruns.as_json()["other_ending"] == 1
        assert reruns.as_json()["comparisons"][0]["ending"] == ["completed", ending]
    at_turn = await rerun(client, "good", agent=cut, at_turn=2)
    assert at_turn.comparisons[0].endings == ("completed", "length")
    cases = {name: cases_of(await read_recorded(client, name))[0] for name in ("cut", "failing")}
    for agent, names in ((cut, ["cut"]), (failing, ["failing"]), (good, ["cut"])):
        sources = [source for name in names for source in (name, cases[name])]
        reruns = await rerun(client, sources, agent=agent)
        assert (len(reruns.comparisons), reruns.failures()) == (len(sources), [])


async def test_a_conversation_in_which_nobody_has_said_anything_gets_a_finding_and_the_others_go_on(
    client: Client, scripted: Scripted, order: str
) -> None:
    agent = agent_on(scripted(by_turn(FIND, PAY, "Paid.")), tools=[find_order, pay])
    silent = await client.start(agent, "Pay", id="silent")  # no worker has begun with it
    reruns = await rerun(client, [silent.id, order], agent=agent)
    assert [compared.verdict for compared in reruns.comparisons] == ["stuck", "same calls"]
    assert "silent: nobody has said anything in the recorded conversation yet" in reruns.as_table()
    assert reruns.failures() == ["same calls: 50% of the reruns; at least 100% are wanted"]
    at_turn = await rerun(client, [order, silent.id], agent=agent, at_turn=2)
    assert [compared.verdict for compared in at_turn.comparisons] == ["same calls", "stuck"]
    assert "no reply of turn 2. Its turns with a reply: none." in at_turn.comparisons[1].problem
    assert "silent" in reruns.as_markdown()


@tool(effect="once", needs_approval=True)
def refund(cents: int) -> str:
    """Refunds."""
    ran.append(f"refund {cents}")
    return f"refunded {cents}"


REFUND = call("refund", {"cents": 5})


@pytest.mark.long
async def test_a_call_that_was_denied_and_approved_after_a_look_up_is_the_approved_one_after_a_look_up(
    client: Client, scripted: Scripted
) -> None:
    def candidate(*replies: Any, name: str = "clerk") -> Agent:
        return agent_on(scripted(by_turn(*replies)), tools=[find_order, refund], name=name)

    hasty = candidate(REFUND, FIND, REFUND, "Done.", name="hasty")
    insistent = candidate(REFUND, "Denied.", REFUND, "Done.", name="insistent")
    async with hosting(client, hasty, insistent):
        conversation = await client.start(hasty, "Refund", id="learned")
        await waiting(conversation)
        await conversation.deny("*", "look it up first")
        await eventually(lambda: approved(conversation))
        await conversation.outcome()
        conversation = await client.start(insistent, "Refund", id="insistent", keep_open=timedelta(minutes=1))
        await waiting(conversation)
        await conversation.deny("*", "not yet")
        await conversation.reply()
        await conversation.send("Now")
        await eventually(lambda: approved(conversation))
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    ran.clear()
    careful = candidate(FIND, REFUND, "Done.")
    patient = candidate("When?", REFUND, "Done.")
    [case, *_] = cases_of(await read_recorded(client, "learned"))
    for sources, agent in ((["learned", case], careful), (["insistent"], patient)):
        comparisons = (await rerun(client, sources, agent=agent)).comparisons
        assert len(comparisons) == len(sources)
        for compared in comparisons:
            assert (compared.verdict, compared.uncorrected, compared.findings()) == ("same calls", (), [])
            assert results_of(compared.rerun.messages)[-1].text == "refunded 5"
    for source, agent in (("learned", hasty), ("insistent", insistent), ("learned", candidate(REFUND, "Done."))):
        [compared] = (await rerun(client, source, agent=agent)).comparisons
        assert len(compared.uncorrected) == 1
    assert ran == []


async def approved(conversation: Conversation) -> bool:
    """Whether a call waited, and is approved."""
    status = await conversation.status()
    if status.waiting:
        await conversation.approve("*")
    return bool(status.waiting)


@pytest.mark.long
async def test_a_recorded_conversation_that_waits_for_an_approval_is_compared_as_far_as_it_is(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(by_turn(FIND, REFUND, "Done.")), tools=[find_order, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund", id="waits")
        await waiting(conversation)
        ran.clear()
        [compared] = (await rerun(client, "waits", agent=agent)).comparisons
        assert (compared.verdict, compared.diverged, compared.findings()) == ("same calls", None, [])
        other = agent_on(scripted(by_turn(FIND, call("refund", {"cents": 6}), "Done.")), tools=[find_order, refund])
        [compared] = (await rerun(client, "waits", agent=other)).comparisons
        assert compared.verdict == "diverged"
        assert 'refund({"cents": 6}); recorded: refund({"cents": 5})' in compared.findings()[-1]
        await conversation.deny("*")
        await conversation.outcome()
    assert ran == []


async def test_messages_that_one_reply_answered_are_put_together(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(by_turn("One.", "Two and three.", "Four.")))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", id="chat", keep_open=timedelta(minutes=1))
        await conversation.reply()
    await conversation.send("2")
    await conversation.send("3")
    async with hosting(client, agent):
        await conversation.reply()
        await conversation.send("4")
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    assert [message.role for message in await conversation.transcript()] == [
        "user", "assistant", "user", "user", "assistant", "user", "assistant"
    ]  # fmt: skip
    [compared] = (await rerun(client, "chat", agent=agent)).comparisons
    assert [message.text for message in compared.rerun.asked] == ["1", "2\n3", "4"]
    assert (compared.rerun.turns, compared.same_text) == (3, True)
