"""Webhooks, on the real server, to a receiver that checks their signatures."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everturn import Client, Conversation, Limits, Webhook, names, tool
from everturn.corrections import MAX_CORRECTIONS, UNFIT_OUTPUT
from everturn.errors import InvalidAgent
from everturn.evals import rerun
from everturn.payloads import WaitingCall, WebhookTarget
from everturn.sizes import MAX_WEBHOOK_BYTES, size_of
from everturn.temporal.ids import webhooks_prefix
from everturn.testing import ScriptedModel, call, fail, say, slow
from everturn.webhooks.conversation_events import fitting_data
from everturn.webhooks.delivery_attempts import _send_once, _try_again
from everturn.webhooks.records import WebhookMessage
from everturn.webhooks.signing import signing_keys
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.prepared import Program
from tests.support.waiting import eventually, reaches, waiting
from tests.support.webhook_receiver import SECRET, Receiver

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

WORKER = """
import asyncio, sys
from everturn import Agent, Client, Model, Webhook, Worker

async def main():
    address, task_queue, model, url = sys.argv[1:]
    client = await Client.connect(address, task_queue=task_queue)
    agent = Agent("clerk", model=Model("scripted:demo", base_url=model), webhook=Webhook(url=url, secret_env="SECRET"))
    await Worker(client, agents=[agent]).run()

asyncio.run(main())
"""


@tool(needs_approval=True)
def refund(order_id: str) -> str:
    return f"refunded {order_id}"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def hooked(receiver: Receiver, **options: Any) -> Webhook:
    return Webhook(url=f"{receiver.base_url}/hook", secret_env="SECRET", **options)


async def deliveries_of(client: Client, conversation_id: str) -> list[WorkflowHandle[Any, Any]]:
    query = f"WorkflowType = '{names.WEBHOOK}' AND WorkflowId STARTS_WITH '{webhooks_prefix(conversation_id)}'"
    return [client.temporal.get_workflow_handle(row.id) async for row in client.temporal.list_workflows(query)]


async def test_it_hears_what_waits_and_how_it_ends_once_without_content_and_no_history_has_the_secret(
    client: Client, scripted: Scripted, receiver: Receiver, cached_conversations: int
) -> None:
    webhook = hooked(receiver, link="https://inbox.example.com/#{conversation_id}")
    model = scripted([[call("refund", {"order_id": "81"}), call("refund", {"order_id": "82"})], "Both are refunded."])
    agent = agent_on(model, tools=[refund], webhook=webhook)
    receiver.answers = [503, 429]
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund both.", tenant="acme")
        calls = await waiting(conversation, calls=2)
        await eventually(lambda: receiver.kinds == ["waiting"])
        for call_id in calls:
            await conversation.approve(call_id)
        await conversation.outcome()
        await eventually(lambda: receiver.kinds == ["waiting", "done"])
    assert [status for status, _, _ in receiver.tries] == [503, 429, 204, 204]
    assert len({webhook_id for _, webhook_id, _ in receiver.tries[:3]}) == 1, "a receiver can tell that it is the same"
    waits, done = receiver.messages
    assert waits["data"] | {"waiting": None} == {
        "conversation_id": conversation.id,
        "agent": "clerk",
        "tenant": "acme",
        "state": "awaiting_approval",
        "turn": 1,
        "waiting": None,
        "next": {
            "command": f"everturn approve {conversation.id}",
            "url": f"https://inbox.example.com/#{conversation.id}",
        },
    }
    assert [waiting_call["call_id"] for waiting_call in waits["data"]["waiting"]] == list(calls)
    assert all("arguments" not in waiting_call for waiting_call in waits["data"]["waiting"])
    assert done["data"]["outcome"] == {
        "status": "completed",
        "reason": None,
        "stop": "end",
        "turns": 2,
        "tool_calls": 2,
        "cost_usd": None,
    }
    for handle in (*await deliveries_of(client, conversation.id), client.temporal.get_workflow_handle(conversation.id)):
        history = str(await handle.fetch_history())
        assert SECRET not in history
        assert receiver.base_url not in history


async def test_it_hears_of_a_stall_before_the_first_reply_of_an_answer_and_of_each_end(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    model = scripted(
        [fail(401, "no such key"), "Hello.", say("Hello ag", finish="length"), call("refund", {"order_id": "81"})]
    )
    agent = agent_on(model, tools=[refund], webhook=hooked(receiver, include=["arguments", "text"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(hours=1))
        await reaches(conversation, "stalled")
        await eventually(lambda: receiver.kinds == ["stalled"])
        await conversation.resume()
        await eventually(lambda: len(receiver.kinds) == 2)
        await conversation.send("Hi again")
        await eventually(lambda: len(receiver.kinds) == 3)
        await conversation.send("Refund it.")
        await eventually(lambda: len(receiver.kinds) == 4)
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        await eventually(lambda: len(receiver.kinds) == 5)
    stalled, first, second, waits, end = (message["data"] for message in receiver.messages)
    assert "401" in stalled["cause"]
    assert stalled["next"]["command"] == f"everturn resume {conversation.id}"
    answers = [data["outcome"] for data in (first, second)]
    assert [(answer["status"], answer["text"], answer["stop"]) for answer in answers] == [
        ("answered", "Hello.", "end"),
        ("answered", "Hello ag", "length"),
    ]
    assert "is cut off" in answers[1]["reason"]
    assert waits["waiting"][0]["arguments"] == {"order_id": "81"}
    assert (end["state"], end["outcome"]["status"]) == ("done", "cancelled")


@pytest.mark.parametrize("include", [[], ["text"]])
async def test_an_answer_that_never_fitted_the_output_type_has_failed(
    client: Client, scripted: Scripted, receiver: Receiver, include: list[Any]
) -> None:
    """It was told as answered, without a reason."""
    model = scripted([*["much"] * (1 + MAX_CORRECTIONS), "7"], order="arrival")
    agent = agent_on(model, output=int, webhook=hooked(receiver, include=include))
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much?", keep_open=timedelta(hours=1))
        await eventually(lambda: len(receiver.messages) == 1)
        await conversation.send("And now?")
        await eventually(lambda: len(receiver.messages) == 2)
    failed, answered = (message["data"] for message in receiver.messages)
    assert (failed["state"], failed["outcome"]["status"]) == ("idle", "failed")
    assert (answered["outcome"]["status"], answered["outcome"]["reason"]) == ("answered", None)
    reason = failed["outcome"]["reason"]
    assert reason.startswith(UNFIT_OUTPUT)
    assert (reason != UNFIT_OUTPUT) == bool(include), "what follows may quote the reply"


@pytest.mark.parametrize("closed", [False, True])
async def test_each_answer_is_told_with_its_own_text_also_if_the_next_message_came_during_its_turn(
    client: Client, scripted: Scripted, receiver: Receiver, closed: bool
) -> None:
    go = threading.Event()
    model = scripted([slow("First answer", after=3, until=go), "Second answer"])
    agent = agent_on(model, webhook=hooked(receiver, include=["text"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "One")
        await eventually(lambda: model.requests)
        if closed:  # the message is for the next run
            await conversation.close()
        await client.temporal.get_workflow_handle(conversation.id).signal(names.MESSAGE, {"text": "Two"})
        go.set()
        await conversation.outcome()
        await eventually(lambda: len(receiver.messages) == 2)
    outcomes = sorted(
        (message["data"]["outcome"] for message in receiver.messages), key=lambda outcome: outcome["turns"]
    )
    assert [(outcome["status"], outcome["turns"], outcome["text"]) for outcome in outcomes] == [
        ("answered", 1, "First answer"),
        ("completed", 2, "Second answer"),
    ]


async def test_an_answer_that_is_cancelled_in_a_later_run_than_it_began_is_told(
    client: Client, scripted: Scripted, receiver: Receiver, bounds: Bounds
) -> None:
    bounds(events=5)
    model = scripted([call("refund", {"order_id": "81"})])
    agent = agent_on(model, tools=[refund], webhook=hooked(receiver, events=["done"], include=["text"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund it.", keep_open=timedelta(hours=1))
        await waiting(conversation)
        await eventually(lambda: is_in_a_later_run(client, conversation.id))
        await conversation.cancel_turn()
        await eventually(lambda: receiver.messages)
    [told] = receiver.messages
    assert (told["data"]["outcome"]["status"], told["data"]["outcome"]["text"]) == ("cancelled", "")


async def is_in_a_later_run(client: Client, conversation_id: str) -> bool:
    described = await client.temporal.get_workflow_handle(conversation_id).describe()
    info = described.raw_description.workflow_execution_info
    return info.first_run_id != info.execution.run_id


async def test_what_is_cancelled_never_has_the_text_of_an_earlier_answer(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    replies = ["Hello.", call("refund", {"order_id": "81"}), say("Hello ag", finish="length"), fail(401, "no such key")]
    agent = agent_on(scripted(replies), tools=[refund], webhook=hooked(receiver, events=["done"], include=["text"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(hours=1))
        await conversation.reply()
        await conversation.send("Refund it.")
        await waiting(conversation)
        await conversation.cancel_turn()
        await reaches(conversation, "idle")
        await conversation.send("Hi again")
        await conversation.reply()
        await conversation.send("And now?")
        await reaches(conversation, "stalled")
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        await conversation.outcome()
        await eventually(lambda: len(receiver.messages) == 4)
    outcomes = sorted(
        (message["data"]["outcome"] for message in receiver.messages), key=lambda outcome: outcome["turns"]
    )
    assert [(outcome["status"], outcome["turns"], outcome["stop"], outcome["text"]) for outcome in outcomes] == [
        ("answered", 1, "end", "Hello."),
        ("cancelled", 2, "end", ""),
        ("answered", 3, "length", "Hello ag"),
        ("cancelled", 4, "end", ""),
    ]


async def test_an_answer_that_is_cancelled_before_its_first_turn_is_told_though_the_next_message_is_there(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    agent = agent_on(scripted(["One is 1.", "Three is 3."], order="arrival"), webhook=hooked(receiver, events=["done"]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "One", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.pause()
        await conversation.send("Two")
        await eventually(lambda: is_answering(conversation), what="it has taken the message")
        await conversation.send("Three")
        await conversation.cancel_turn()
        assert await conversation.reply() == "Three is 3."
        await conversation.close()
        await conversation.outcome()
        await eventually(lambda: len(receiver.messages) == 4)
    statuses = sorted(message["data"]["outcome"]["status"] for message in receiver.messages)
    assert statuses == ["answered", "answered", "cancelled", "completed"]


async def is_answering(conversation: Conversation) -> bool:
    return (await conversation.by_history()).state.answering


async def test_a_limit_is_an_end_and_what_the_receiver_refuses_is_final_and_harms_nobody(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    @tool
    def look() -> str:
        return "nothing"

    agent = agent_on(
        scripted([[say("I look."), call("look")], call("look")]),
        tools=[look],
        limits=Limits(max_turns=1, conclude=False),
        webhook=hooked(receiver, events=["done"], include=["text"]),
    )
    receiver.answers = [301]
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look.")
        assert (await conversation.outcome()).status == "limit_reached"
        deliveries = await eventually(lambda: deliveries_of(client, conversation.id))

        async def given_up() -> bool:
            described = await deliveries[0].describe()
            return described.status is WorkflowExecutionStatus.FAILED

        await eventually(given_up)
    ((status, _, body),) = receiver.tries
    outcome = body["data"]["outcome"]
    assert (status, outcome["status"], outcome["text"]) == (301, "limit_reached", "I look.")


async def test_a_worker_that_is_killed_while_it_tries_is_followed_by_another_with_the_same_message(
    client: Client, scripted: Scripted, receiver: Receiver, tmp_path: Path
) -> None:
    address = client.temporal.service_client.config.target_host
    log = tmp_path / "log"
    command = ["-c", WORKER, address, client.task_queue, scripted(["Hello."]).base_url]
    command.append(f"{receiver.base_url}/hook")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    receiver.answers = [500]
    with log.open("w") as errors, Program(*command, env=environment, stderr=errors) as first:
        conversation = await client.start("clerk", "Hi")
        await eventually(lambda: f"webhook.retried conversation={conversation.id!r}" in log.read_text())
        first.kill()
    assert (await conversation.outcome()).text == "Hello."
    with Program(*command, env=environment) as second:
        await eventually(lambda: receiver.messages)
        second.kill()
    (_, refused_id, refused), (_, webhook_id, taken) = receiver.tries
    assert (refused_id, refused) == (webhook_id, taken)


async def test_a_worker_that_has_no_webhook_yet_hands_the_message_on_in_the_middle_of_a_deploy(
    client: Client, scripted: Scripted, receiver: Receiver, bounds: Bounds
) -> None:
    bounds(webhook_delay=timedelta(seconds=0.2))
    model = scripted(["Hello."])
    receiver.answers = [503]
    deployed = agent_on(model, webhook=hooked(receiver))
    async with hosting(client, deployed):
        conversation = await client.start(deployed, "Hi")
        await eventually(lambda: receiver.tries)
    [delivery] = await deliveries_of(client, conversation.id)

    async def has_no_webhook() -> bool:
        (sending,) = (await delivery.describe()).raw_description.pending_activities
        return "no webhook on this worker" in sending.last_failure.message

    async with hosting(client, agent_on(model)):
        await eventually(has_no_webhook)
    async with hosting(client, deployed):
        await delivery.result()
    assert receiver.kinds == ["done"]


async def test_no_value_of_an_argument_is_sent_unasked_also_not_by_why_an_edit_did_not_fit(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    @tool(needs_approval=True)
    def pay(cents: int) -> str:
        return f"paid {cents}"

    agent = agent_on(scripted([call("pay", {"cents": 5}, id="c1"), "Paid."]), tools=[pay], webhook=hooked(receiver))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pay.")
        await waiting(conversation)
        await conversation.approve("c1", arguments={"cents": "s3cr3t"})
        await eventually(lambda: len(receiver.messages) == 2)
        [call_waiting] = (await conversation.status()).waiting
        assert "s3cr3t" in call_waiting.why
        await conversation.deny("c1")
        await conversation.outcome()
    [sent] = receiver.messages[1]["data"]["waiting"]
    assert (sent["reason"], sent["why"]) == ("invalid_edit", "the edited arguments are not taken")
    assert "s3cr3t" not in str(receiver.messages)


@pytest.mark.parametrize(
    ("reason", "why", "arguments", "sent"),
    [
        ("needs_approval", "refund needs approval", {}, "refund needs approval"),
        ("asks_user", "Is s3cr3t yours?", {"question": "Is s3cr3t yours?"}, "the model has a question"),
        (
            "outcome_unknown",
            "outcome unknown: it was lost (the edited arguments do not fit: s3cr3t)",
            {},
            "outcome unknown: it was lost (the edited arguments are not taken)",
        ),
        ("needs_approval", "its hooks can't see it: got s3cr3t", {}, "its hooks can't see it"),
        (
            "needs_approval",
            "the hook 'h' failed: its arguments do not fit: got s3cr3t",
            {},
            "the hook 'h' failed: its arguments do not fit",
        ),
        (
            "needs_approval",
            "click needs approval: s3cr3t",
            {"safety_decision": {"explanation": "s3cr3t"}},
            "click needs approval",
        ),
    ],
)
def test_a_reason_is_sent_without_what_it_quotes(reason: Any, why: str, arguments: dict[str, Any], sent: str) -> None:
    tool_name = why.partition(" ")[0]
    call_waiting = WaitingCall(call_id="c", tool=tool_name, reason=reason, why=why, arguments=arguments)
    target = WebhookTarget(agent="clerk", conversation_id="x")
    with_arguments = target.model_copy(update={"include": ("arguments",)})
    assert fitting_data({}, {"waiting": [call_waiting]}, target)["waiting"][0]["why"] == sent
    assert fitting_data({}, {"waiting": [call_waiting]}, with_arguments)["waiting"][0]["why"] == why
    problem = {"reason": "the last reply does not fit the output type: got s3cr3t", "text": "s3cr3t"}
    assert "s3cr3t" not in str(fitting_data({}, {"outcome": problem}, target))


async def test_a_sub_agents_call_is_told_under_its_parents_path_once_also_across_runs(
    client: Client, scripted: Scripted, receiver: Receiver, bounds: Bounds
) -> None:
    bounds(events=5)
    webhook = hooked(receiver)
    cashier = agent_on(
        scripted([call("refund", {"order_id": "81"}, id="c1"), "Done."]),
        name="cashier",
        tools=[refund],
        webhook=webhook,
    )
    agent = agent_on(
        scripted([call("cashier", {"message": "Refund 81."}, id="a1"), "It is refunded."]),
        tools=[cashier],
        webhook=webhook,
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81.")
        await eventually(lambda: receiver.messages)
        child = client.conversation(f"{conversation.id}.a1")
        await waiting(child)
        await child.approve("c1")
        await conversation.outcome()
        await eventually(lambda: len(receiver.kinds) > 1)
    waits, done = (message["data"] for message in receiver.messages)
    assert (waits["conversation_id"], waits["agent"]) == (conversation.id, "cashier")
    assert waits["path"] == [{"call_id": "a1", "agent": "cashier", "conversation_id": child.id}]
    assert [waiting_call["address"] for waiting_call in waits["waiting"]] == ["/a1/c1"]
    assert (done["conversation_id"], done["outcome"]["status"]) == (conversation.id, "completed")


async def test_large_waits_are_cut_reruns_are_nobodys_news_and_what_was_sent_is_erased(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    calls = [call("refund", {"order_id": "8" * 1_000}, id=f"call-{number}") for number in range(80)]
    agent = agent_on(
        scripted(lambda body: "Refunded." if "refunded" in json.dumps(body) else calls),
        tools=[refund],
        webhook=hooked(receiver, include=["arguments"]),
        limits=Limits(max_tool_calls=100),
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund them all.")
        await waiting(conversation, calls=80)
        await eventually(lambda: receiver.messages)
        await conversation.approve("*")
        await conversation.outcome()
        await eventually(lambda: len(receiver.messages) == 2)
    (waits, _) = receiver.messages
    assert waits["data"]["cut"]
    assert waits["data"]["calls"] == 80
    assert size_of(waits) <= MAX_WEBHOOK_BYTES + 1_000
    reruns = await rerun(client, conversation.id, agent=agent)
    assert not await deliveries_of(client, reruns.comparisons[0].rerun.id)
    assert len(receiver.messages) == 2
    erased = await client.erase(conversation.id)
    assert [belonging.was for belonging in erased.conversations].count("webhook") == 2
    assert not await deliveries_of(client, conversation.id)


@pytest.mark.parametrize("asked_to_wait", [1e14, 604_800.0, 259_200.0, 3600.0])
async def test_a_receiver_that_asks_for_more_than_is_left_is_asked_once_more_at_the_end(asked_to_wait: float) -> None:
    webhook = Webhook(url="https://example.com", secret_env="SECRET")
    message = WebhookMessage(id="m", agent="clerk", type="conversation.done", timestamp="")
    environment = ActivityEnvironment()

    def try_twice() -> list[ApplicationError]:
        failed = [_try_again("it answered 429", webhook, message, wait=asked_to_wait)]
        if asked_to_wait > 3600:
            failed.append(_try_again("it answered 429", webhook, message, wait=asked_to_wait))
        return failed

    first, *last = environment.run(try_twice)
    assert first.next_retry_delay
    assert first.next_retry_delay.total_seconds() == pytest.approx(min(asked_to_wait, 259_199.0), abs=0.5)
    for given_up in last:
        assert given_up.non_retryable
        assert given_up.message.endswith("it answered 429 (asked 2 times, for 2 days, 23:59:59).")


async def test_a_worker_without_the_secret_looks_again_soon_however_often_the_receiver_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SECRET")
    webhook = Webhook(url="https://example.com", secret_env="SECRET")
    message = WebhookMessage(id="m", agent="clerk", type="conversation.done", timestamp="")
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=12)
    with pytest.raises(ApplicationError, match="was not asked") as raised:
        await environment.run(_send_once, webhook, message)
    assert raised.value.next_retry_delay
    assert raised.value.next_retry_delay <= timedelta(minutes=1)


async def test_receivers_that_hang_leave_conversations_nearly_all_of_a_worker(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(webhook_turn_delay=timedelta(seconds=0.2))
    go = threading.Event()
    with Receiver(hangs_until=go) as receiver:
        agent = agent_on(scripted(lambda _: "Hello."), webhook=hooked(receiver))
        async with hosting(client, agent, max_concurrent_activities=4):
            for number in range(8):
                await client.start(agent, "Hi", id=f"{client.task_queue}-{number}")
            await eventually(lambda: receiver.asked)
            await client.run(agent, "Hi")
            assert receiver.asked == 1
            go.set()
            await eventually(lambda: len(receiver.messages) == 9)


async def test_a_receiver_that_hangs_does_not_delay_what_others_are_sent(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(webhook_turn_delay=timedelta(seconds=0.2))
    go = threading.Event()
    model = scripted(lambda _: "Hello.")
    with Receiver(hangs_until=go) as hangs, Receiver() as answers:
        stuck = agent_on(model, name="stuck", webhook=hooked(hangs))
        quick = agent_on(model, name="quick", webhook=hooked(answers))
        async with hosting(client, stuck, quick, max_concurrent_activities=40):
            for _ in range(6):
                await client.run(stuck, "Hi")
            await eventually(lambda: hangs.asked == 2)
            for count in (1, 2, 3):
                await client.run(quick, "Hi")
                await eventually(lambda: len(answers.messages) == count)  # noqa: B023 - waited for here
            assert hangs.asked == 2
            go.set()
            await eventually(lambda: len(hangs.messages) == 6)


def test_what_can_never_be_sent_or_signed_is_refused_at_once() -> None:
    urls = ["ftp://example.com", "https://", "https://user:pass@example.com", "https://example.com:x"]
    for url in (*urls, "https://a b.com", "https://a\nb.com", "https://a..b.com", "https://a.com/\ud800"):
        with pytest.raises(InvalidAgent):
            Webhook(url=url, secret_env="SECRET")
    for secrets in ("", "whsec_", "whsec_c2hvcnQ=", SECRET.removeprefix("whsec_"), f"{SECRET} whsec_*"):
        with pytest.raises(ValueError):
            signing_keys(secrets)
    assert len(signing_keys(f"{SECRET} {SECRET}")) == 2
