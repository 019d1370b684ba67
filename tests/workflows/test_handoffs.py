"""An agent hands its conversation on to another, which answers from then on: with the same transcript, the same counts,
and instructions and tools of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from everturn import (
    Agent,
    Client,
    Conversation,
    HandOff,
    Limits,
    Message,
    Model,
    ModelSettings,
    Shown,
    ToolContext,
    Worker,
    tool,
)
from everturn.cli.render import transcript_lines
from everturn.errors import InvalidAgent, Stalled
from everturn.events import HandedOff, Replied, TurnStarted
from everturn.exporting import read_conversation, to_markdown
from everturn.testing import ScriptedModel, call
from everturn.worker.deploy_check import find_conflicts
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.provider_server import ProviderServer, claude, in_order, response
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]

KEEP_OPEN = timedelta(minutes=5)

TRANSFER = call("transfer_to_billing", {"message": "They want order 81 refunded."}, id="t1")


TRANSFER_3 = call("transfer_to_billing_3", {}, id="t1")


def said_to(model: ScriptedModel, number: int = -1) -> str:
    """What a request told the model, as one text."""
    return str(model.requests[number]["messages"])


def tools_of(model: ScriptedModel, number: int = -1) -> list[str]:
    return [one["function"]["name"] for one in model.requests[number].get("tools", [])]


@tool
def look_up(order_id: str) -> str:
    """Looks an order up."""
    return f"order {order_id}: one lamp"


@tool
def refund(order_id: str, context: ToolContext) -> str:
    """Gives the money back."""
    return f"{context.agent} refunded {order_id}"


async def test_the_agent_that_takes_over_answers_with_its_own_instructions_and_tools(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    first = scripted([[call("look_up", {"order_id": "81"}, id="l1"), TRANSFER]], order="arrival")
    second = scripted([call("refund", {"order_id": "81"}, id="r1"), "Refunded."], order="arrival")
    billing = agent_on(second, name="billing", instructions="You refund.", tools=[refund], description="Money.")
    triage = agent_on(first, name="triage", instructions="You sort.", tools=[look_up], handoff_to=[billing])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Order 81 arrived broken")
        assert await conversation.reply() == "Refunded."
        outcome, messages = await conversation.outcome(), await conversation.transcript()
        told = [event async for event in conversation.events()]
        status = await conversation.status()
    # The calls beside the handoff ran for the agent that made them; its results are in order.
    looked, handed, refunded = results_of(messages)
    assert looked.text == "order 81: one lamp"
    assert "You are 'billing' now" in handed.text
    assert "They want order 81 refunded." in handed.text
    assert refunded.text == "billing refunded 81"
    assert (tools_of(first), tools_of(second, 0)) == (["look_up", "transfer_to_billing"], ["refund"])
    assert ("You sort." in said_to(second, 0), "You refund." in said_to(second, 0)) == (False, True)
    assert "order 81: one lamp" in said_to(second, 0)
    assert (outcome.turns, outcome.tool_calls, outcome.text) == (3, 3, "Refunded.")
    assert [message.author for message in messages if message.role == "assistant"] == ["", "billing", "billing"]
    assert [event.agent for event in told if isinstance(event, TurnStarted)] == ["triage", "billing", "billing"]
    assert [event.agent for event in told if isinstance(event, Replied)] == ["triage", "billing", "billing"]
    [changed] = [event for event in told if isinstance(event, HandedOff)]
    assert (changed.turn, changed.by, changed.agent) == (1, "triage", "billing")
    kinds = [event.kind for event in told]
    assert kinds.index("handed_off") < [number for number, kind in enumerate(kinds) if kind == "turn_started"][1]
    assert status.agent == "billing"


async def test_whoever_took_over_answers_the_next_message_and_hands_it_back(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    first = scripted([TRANSFER, "Welcome back."], order="arrival")
    second = scripted(["Refunded.", "Yes.", call("transfer_to_triage", {}, id="t2")], order="arrival")
    billing = agent_on(second, name="billing", handoff_to=["triage"])
    triage = agent_on(first, name="triage", handoff_to=[billing])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81", keep_open=KEEP_OPEN)
        assert await conversation.reply() == "Refunded."
        await conversation.send("Really?")
        assert await conversation.reply() == "Yes."
        assert (await reaches(conversation, "idle")).agent == "billing"
        await conversation.send("Something else")
        assert await conversation.reply() == "Welcome back."
        assert (await reaches(conversation, "idle")).agent == "triage"
        await conversation.close()
        await conversation.outcome()
        told = [(event.by, event.agent) async for event in conversation.events() if isinstance(event, HandedOff)]
    assert told == [("triage", "billing"), ("billing", "triage")]
    # The one who began it has no name beside its words.
    authors = [message.author for message in await conversation.transcript() if message.role == "assistant"]
    assert authors == ["", "billing", "billing", "billing", ""]


@pytest.mark.parametrize("events", [8, 14])
async def test_a_new_run_right_at_the_handoff_knows_who_is_in_charge(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int, events: int
) -> None:
    bounds(events=events)
    first = scripted([[call("look_up", {"order_id": "81"}, id="l1"), TRANSFER]], order="arrival")
    second = scripted([call("refund", {"order_id": "81"}, id="r1"), "Refunded."], order="arrival")
    billing = agent_on(second, name="billing", tools=[refund])
    triage = agent_on(first, name="triage", tools=[look_up], handoff_to=[HandOff(billing, filter=Shown(tools=False))])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81")
        assert await conversation.reply() == "Refunded."
        told = [event.agent async for event in conversation.events() if isinstance(event, Replied)]
        assert [event.agent async for event in conversation.events() if isinstance(event, HandedOff)] == ["billing"]
    assert told == ["triage", "billing", "billing"]
    assert len(await runs_of(client, conversation)) > 1
    assert "one lamp" not in said_to(second, 0) + said_to(second, 1)


async def test_a_new_run_while_a_call_beside_the_handoff_waits_hands_it_over_all_the_same(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int
) -> None:
    bounds(events=8)

    @tool(needs_approval=True)
    def note(text: str) -> str:
        return f"noted {text}"

    first = scripted([[TRANSFER, call("note", {"text": "it"}, id="n1")]], order="arrival")
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    triage = agent_on(first, name="triage", tools=[note], handoff_to=[billing])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81")
        await waiting(conversation)
        await eventually(lambda: _has_runs(client, conversation, 2))
        assert (await conversation.status()).agent == "triage"
        await conversation.approve("n1")
        assert await conversation.reply() == "Refunded."
        assert [result.text for result in results_of(await conversation.transcript())][1] == "noted it"


async def _has_runs(client: Client, conversation: Conversation, count: int) -> bool:
    return len(await runs_of(client, conversation)) >= count


@pytest.mark.long
async def test_forks_and_revivals_go_on_with_the_agent_that_took_over(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    first = scripted(lambda _: [call("look_up", {"order_id": "81"}), call("transfer_to_billing", {})])
    answers = iter(["Refunded.", "Again.", "Forked.", "Once more."])
    second = scripted(lambda _: next(answers))
    billing = agent_on(second, name="billing", instructions="You refund.")
    triage = agent_on(first, name="triage", tools=[look_up], handoff_to=[billing])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81")
        assert (await conversation.outcome()).text == "Refunded."
        revived = await client.send(triage, "And 82?", id=conversation.id)
        assert await revived.reply() == "Again."
        assert (await revived.outcome()).text == "Again."
        fork = await conversation.fork(at_turn=1)  # the turn that handed it on
        assert (await fork.outcome()).text == "Forked."
        assert (await fork.status()).agent == "billing"
        later = await conversation.fork(at_turn=3)
        await later.send("Hello?")
        assert await later.reply() == "Once more."
        await later.close()
        await later.outcome()
    assert len(first.requests) == 1
    authors = [message.author for message in await later.transcript() if message.role == "assistant"]
    assert authors == ["", "billing", "billing", "billing"]


async def test_of_several_handoffs_in_a_reply_the_first_counts(client: Client, scripted: Scripted) -> None:
    both = [call("transfer_to_billing", {}, id="t1"), call("transfer_to_sales", {}, id="t2")]
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    sales = agent_on(scripted([]), name="sales")
    triage = agent_on(scripted([both], order="arrival"), name="triage", handoff_to=[billing, sales])
    async with hosting(client, triage):
        conversation = await client.start(triage, "Refund 81")
        assert await conversation.reply() == "Refunded."
        _, refused = results_of(await conversation.transcript())
        status = await conversation.status()
    assert (refused.is_error, status.agent) == (True, "billing")
    assert "only the first handoff of a reply counts" in refused.text


async def test_agents_that_hand_on_to_each_other_for_ever_are_told_to_answer(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    def passing(to: str) -> Callable[[list[dict[str, Any]]], Any]:
        return lambda messages: "I answer." if "Not handed over" in str(messages[-1]) else call(f"transfer_to_{to}", {})

    one = agent_on(scripted(passing("two")), name="one", handoff_to=["two"], limits=Limits(max_handoffs=3))
    two = agent_on(scripted(passing("one")), name="two", handoff_to=["one"])
    async with hosting(client, one, two, cached_conversations=cached_conversations):
        conversation = await client.start(one, "Go", keep_open=KEEP_OPEN)
        assert await conversation.reply() == "I answer."
        assert (await reaches(conversation, "idle")).turn == 5
        await conversation.send("Once more")  # which counts anew
        assert await conversation.reply() == "I answer."
        assert (await reaches(conversation, "idle")).turn == 10
        await conversation.close()
        await conversation.outcome()


async def test_limits_are_the_conversations_whoever_answers(client: Client, scripted: Scripted) -> None:
    second = scripted([call("refund", {"order_id": str(number)}) for number in range(5)] + ["Done."], order="arrival")
    billing = agent_on(second, name="billing", tools=[refund], limits=Limits(max_turns=2, max_tool_calls=1))
    first = scripted([TRANSFER], order="arrival")
    triage = agent_on(first, name="triage", handoff_to=[billing], limits=Limits(max_turns=5, conclude=False))
    async with hosting(client, triage):
        conversation = await client.start(triage, "Refund all")
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit_reached", "the limit of 5 turns", 5)


async def test_the_output_is_of_the_last_agents_type_and_each_has_its_own_model(
    client: Client, scripted: Scripted
) -> None:
    class Refund(BaseModel):
        cents: int

    second = scripted(['{"cents": 1200}'], order="arrival")
    billing = agent_on(second, name="billing", output=Refund)
    triage = agent_on(scripted([TRANSFER], order="arrival"), name="triage", handoff_to=[billing])
    async with hosting(client, triage):
        outcome = await (await client.start(triage, "Refund 81", keep_open=None)).outcome()
    assert outcome.output == {"cents": 1200}


# ---------------------------------------------------------------- what the next one is shown


async def handed_with(
    client: Client, scripted: Scripted, shown: Any, *, cached_conversations: int = 1000
) -> tuple[str, Conversation]:
    """What the second agent is told, after two messages, a call and its result."""
    first = scripted([call("look_up", {"order_id": "81"}, id="l1"), "One lamp.", TRANSFER], order="arrival")
    second = scripted(["Refunded.", "Still."], order="arrival")
    billing = agent_on(second, name="billing")
    triage = agent_on(first, name="triage", tools=[look_up], handoff_to=[HandOff(billing, filter=shown)])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "What is in 81?", keep_open=KEEP_OPEN)
        assert await conversation.reply() == "One lamp."
        await conversation.send("Refund it")
        assert await conversation.reply() == "Refunded."
        await conversation.send("Sure?")
        assert await conversation.reply() == "Still."
        await conversation.close()
        await conversation.outcome()
    # With each turn anew, and with what was said since.
    assert "Sure?" in said_to(second)
    begun = [str(message) for message in second.requests[0]["messages"]]
    assert [str(message) for message in second.requests[1]["messages"]][: len(begun)] == begun
    return said_to(second, 0), conversation


async def test_it_sees_everything_unless_a_filter_says_less(client: Client, scripted: Scripted) -> None:
    told, _ = await handed_with(client, scripted, None)
    assert all(words in told for words in ("What is in 81?", "order 81: one lamp", "One lamp.", "Refund it"))


async def test_it_may_see_no_tools_but_the_handoff(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    shown = Shown(tools=False)
    told, _ = await handed_with(client, scripted, shown, cached_conversations=cached_conversations)
    assert all(words in told for words in ("What is in 81?", "One lamp.", "Refund it", "transfer_to_billing"))
    assert "look_up" not in told
    assert "order 81" not in told.replace("They want order 81 refunded", "")


async def test_it_may_see_the_last_message_only_and_a_note_that_a_function_writes(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    asked: list[tuple[int, str]] = []

    async def last_one(messages: Sequence[Message], context: ToolContext) -> Shown:
        asked.append((len(messages), context.agent))
        return Shown(last=1, note="Before: they asked what is in an order.")

    told, conversation = await handed_with(client, scripted, last_one, cached_conversations=cached_conversations)
    assert asked == [(5, "triage")]
    assert "Refund it" in told
    assert "Before: they asked" in told
    assert not any(words in told for words in ("What is in 81?", "one lamp", "One lamp."))
    assert "What is in 81?" in [message.text for message in await conversation.transcript()]


async def test_who_is_back_in_charge_sees_what_it_saw_and_others_no_more_than_the_one_before(
    client: Client, scripted: Scripted
) -> None:
    first = scripted([call("transfer_to_billing", {}), "Back."], order="arrival")
    second = scripted([call("transfer_to_sales", {}), call("transfer_to_triage", {})], order="arrival")
    third = scripted([call("transfer_to_billing", {})], order="arrival")
    billing = agent_on(second, name="billing", handoff_to=["sales", "triage"])
    sales = agent_on(third, name="sales", handoff_to=["billing"])
    away = HandOff(billing, filter=Shown(last=1))
    triage = agent_on(first, name="triage", handoff_to=[away])
    async with hosting(client, triage, sales):
        conversation = await client.start(
            triage, "Thanks", transcript=[Message.user("SECRET"), Message(role="assistant", parts=())]
        )
        assert await conversation.reply() == "Back."
    assert ["SECRET" in said_to(model) for model in (first, second, third)] == [True, False, False]


@pytest.mark.parametrize("problem", ["raises", "returns"])
async def test_a_filter_that_fails_hands_nothing_on_and_stalls(
    client: Client, scripted: Scripted, problem: str
) -> None:
    mended = asyncio.Event()

    def broken(messages: Sequence[Message]) -> Any:
        if not mended.is_set() and problem == "raises":
            raise ValueError("no such order")
        return Shown() if mended.is_set() else list(messages)

    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    first = scripted([TRANSFER, TRANSFER], order="arrival")
    triage = agent_on(first, name="triage", handoff_to=[HandOff(billing, filter=broken)])
    async with hosting(client, triage):
        conversation = await client.start(triage, "Refund 81")
        with pytest.raises(Stalled, match="filter of agent 'triage' for its handoff to 'billing' failed"):
            await conversation.reply()
        assert (await conversation.status()).agent == "triage"
        mended.set()
        await conversation.resume()
        assert await conversation.reply() == "Refunded."


# ---------------------------------------------------------------- who may


async def test_a_handoff_may_wait_for_a_persons_word(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    first = scripted([TRANSFER, "Then I answer.", TRANSFER], order="arrival")
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    triage = agent_on(first, name="triage", handoff_to=[HandOff(billing, needs_approval=True)])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81", keep_open=KEEP_OPEN)
        await waiting(conversation)
        await conversation.deny("t1", "not yet")
        assert await conversation.reply() == "Then I answer."
        assert (await reaches(conversation, "idle")).agent == "triage"
        await conversation.send("Now")
        [again] = await waiting(conversation)
        await conversation.approve(again)
        assert await conversation.reply() == "Refunded."
        await conversation.close()
        await conversation.outcome()


async def test_a_handoff_that_was_approved_before_its_turn_was_cancelled_takes_place(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """Both come in one workflow task: no worker is there when they are sent."""
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    triage = agent_on(
        scripted([TRANSFER], order="arrival"), name="triage", handoff_to=[HandOff(billing, needs_approval=True)]
    )
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81", keep_open=KEEP_OPEN)
        await waiting(conversation)
    handle = client.temporal.get_workflow_handle(conversation.id)
    await handle.signal("approve", {"call_id": "t1"})
    await handle.signal("cancel_turn", {})
    async with hosting(client, triage, cached_conversations=cached_conversations):
        assert (await reaches(conversation, "idle")).agent == "billing"
        await conversation.send("Well?")
        assert await conversation.reply() == "Refunded."
        await conversation.close()
        await conversation.outcome()


async def test_policies_decide_on_handoffs_too(client: Client, scripted: Scripted) -> None:
    billing = agent_on(scripted([]), name="billing")
    triage = agent_on(scripted([TRANSFER, "I can't."], order="arrival"), name="triage", handoff_to=[billing])
    rule = {"tool": "transfer_to_billing", "then": "deny", "reason": "closed today"}
    async with hosting(client, triage):
        start = {"agent": "triage", "message": "Refund 81", "policy": [rule]}
        id = f"ruled-{client.task_queue}"  # noqa: A001
        await client.temporal.start_workflow("Conversation", start, id=id, task_queue=client.task_queue)
        conversation = client.conversation(id)
        assert await conversation.reply() == "I can't."
        [denied] = results_of(await conversation.transcript())
    assert "closed today" in denied.text


# ---------------------------------------------------------------- workers


async def test_an_agent_that_no_worker_hosts_stalls_with_its_name_until_one_does(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int
) -> None:
    bounds(quietly=timedelta(seconds=0.2), host_patience=timedelta(seconds=0.5))
    triage = agent_on(scripted([TRANSFER], order="arrival"), name="triage", handoff_to=["billing"])
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Refund 81")
        with pytest.raises(Stalled, match="has the agent 'billing'"):
            await conversation.reply()
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    async with hosting(client, triage, billing, cached_conversations=cached_conversations):
        await conversation.resume()
        assert await conversation.reply() == "Refunded."


async def test_the_search_attributes_name_the_agent_in_charge(client: Client, scripted: Scripted) -> None:
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    triage = agent_on(scripted([TRANSFER], order="arrival"), name="triage", handoff_to=[billing])
    async with hosting(client, triage):
        conversation = await client.start(triage, "Refund 81", keep_open=KEEP_OPEN)
        assert await conversation.reply() == "Refunded."

        async def listed() -> bool:
            return conversation.id in [conversation.id async for conversation in client.conversations(agent="billing")]

        await eventually(listed)
        await conversation.close()
        await conversation.outcome()


# ---------------------------------------------------------------- what can't be


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"handoff_to": "billing"}, "not a list"),
        ({"handoff_to": ["triage"]}, "to itself"),
        ({"handoff_to": ["billing", "billing"]}, "more than once"),
        ({"handoff_to": [7]}, "was given 7"),
        ({"handoff_to": ["no such name"]}, "not an agent's name"),
        ({"handoff_to": ["billing"], "loop": "manual"}, "loop='manual'"),
    ],
)
def test_what_can_be_no_handoff_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidAgent, match=why):
        Agent("triage", model="scripted:demo", **options)


@pytest.mark.parametrize(
    "options",
    [{"last": 0}, {"last": True}, {"tools": 1}, {"note": "x" * 24_001}, {"note": "\x00" * 4_001}, {"note": None}],
)
def test_what_can_be_no_shown_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidAgent, match="Shown has"):
        Shown(**options)


def test_a_note_that_can_not_be_written_is_mended() -> None:
    assert Shown(note="half an emoji: \ud800").note == "half an emoji: \ufffd"
    assert Shown(note="語" * 8_000).note, "as many letters as ever"


@pytest.mark.parametrize("wrong", [7, lambda: None, lambda one, two, three: Shown()])
def test_what_can_be_no_filter_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidAgent, match="HandOff has filter"):
        HandOff("billing", filter=wrong)


# ---------------------------------------------------------------- two providers


async def test_what_one_provider_alone_may_see_goes_to_no_other_and_back_to_itself(client: Client) -> None:
    thought = {"type": "thinking", "thinking": "To billing.", "signature": "SIGNED"}
    transfer = {"type": "tool_use", "id": "toolu_1", "name": "transfer_to_billing", "input": {}}
    back = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "transfer_to_triage", "arguments": "{}"}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}
    first = in_order(claude(thought, transfer, stop="tool_use"), claude({"type": "text", "text": "Hello again."}))
    second = in_order(response(reasoning, back))
    with ProviderServer(first) as one, ProviderServer(second) as two:
        whole = ModelSettings(stream=False)
        billing = Agent(
            "billing", model=Model("openai:gpt-5.5", base_url=two.base_url), handoff_to=["triage"], settings=whole
        )
        triage = Agent(
            "triage",
            model=Model("anthropic:claude-sonnet-5", base_url=one.base_url),
            handoff_to=[billing],
            settings=whole,
        )
        async with hosting(client, triage):
            conversation = await client.start(triage, "Hi")
            assert await conversation.reply() == "Hello again."
        asked, answered = str(two.bodies[0]), str(one.bodies[1])
    assert "transfer_to_billing" in asked
    assert "SIGNED" not in asked
    assert "SIGNED" in answered
    assert "SEALED" not in answered
    assert "You are 'triage' now" in answered


async def test_an_agent_of_a_store_takes_over_by_its_version(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    first, second = scripted([TRANSFER_3], order="arrival"), scripted(["Refunded."], order="arrival")

    def find(name: str, version: str | None) -> Agent | None:
        if name == "billing" and version == "3":
            return agent_on(second, name="billing", instructions="Version 3.")
        return agent_on(first, name="triage", handoff_to=["billing@3"]) if name == "triage" else None

    options: dict[str, Any] = {"drain_timeout": timedelta(seconds=20), "cached_conversations": cached_conversations}
    async with Worker(client, agents=find, **options):
        conversation = await client.start("triage", "Refund 81")
        assert await conversation.reply() == "Refunded."
        assert (await conversation.status()).agent == "billing@3"
    assert "Version 3." in said_to(second)


# ---------------------------------------------------------------- seen from outside


async def test_exports_the_terminal_and_the_deploy_check_say_who_speaks(client: Client, scripted: Scripted) -> None:
    billing = agent_on(scripted(["Refunded."], order="arrival"), name="billing")
    triage = agent_on(scripted([TRANSFER], order="arrival"), name="triage", handoff_to=["billing"])
    async with hosting(client, triage, billing):
        conversation = await client.start(triage, "Refund 81", keep_open=KEEP_OPEN)
        assert await conversation.reply() == "Refunded."
        await reaches(conversation, "idle")
        exported = await read_conversation(client, conversation.id)
        lines = [line.plain for line in transcript_lines(exported.messages, width=100)]
        problems = [conflict.problem async for conflict in find_conflicts(client, [triage])]
        assert [conflict async for conflict in find_conflicts(client, [triage, billing])] == []
        await conversation.close()
        await conversation.outcome()
    assert [turn.agent for turn in exported.turns] == ["triage", "billing"]
    assert "Agent triage, then billing" in to_markdown(exported)
    assert "## billing" in to_markdown(exported)
    assert "billing:" in lines
    assert len(problems) == 1
    assert "its agent 'billing' is not hosted" in problems[0]
