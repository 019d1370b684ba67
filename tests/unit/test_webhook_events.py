"""Which events of a conversation webhooks are told, whose, and what of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

from everturn import names
from everturn.calls.causes import Stall
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import CarryOver, QuestionToPerson, WorkerFacts
from everturn.payloads import AskedAgent, Start, WaitingCall, WebhookTarget
from everturn.plans import RunTool
from everturn.records import Message, Outcome, ToolCall
from everturn.sizes import MAX_WEBHOOK_BYTES, MAX_WEBHOOK_TEXT_BYTES, size_of
from everturn.state import State
from everturn.webhooks import conversation_events
from everturn.webhooks.conversation_events import MOST_AGENTS, MOST_CALLS, Webhooks, fitting_data
from everturn.webhooks.records import WebhookFacts
from tests.support.activity_errors import activity_error

ALL_EVENTS = ("waiting", "stalled", "done")
HELPER = AskedAgent(call_id="h1", agent="helper", conversation_id="talk-h1")
TARGET = WebhookTarget(agent="clerk", events=ALL_EVENTS, include=("arguments", "text"), conversation_id="talk")


def waits_for_approval(call_id: str, **arguments: Any) -> PendingCall:
    question = QuestionToPerson(call_id=call_id, reason="needs_approval", why="pay costs money", since=5.0)
    return PendingCall(ToolCall(call_id=call_id, name="pay", arguments=arguments), RunTool(call_id=call_id), question)


class Told:
    """A conversation whose webhooks are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[Any] = []
        self.options: list[Any] = []
        self.run_id = "run"
        self.error: FailureError | None = None
        self.logged: list[Any] = []
        monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_id="talk", run_id=self.run_id))
        monkeypatch.setattr(workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
        monkeypatch.setattr(workflow, "execute_local_activity", self._begin)
        monkeypatch.setattr(workflow, "wait_condition", self._wait)
        monkeypatch.setattr(conversation_events, "workflow_log", self._log)

    async def _begin(self, name: str, message: Any, **options: Any) -> None:
        await asyncio.sleep(0)
        assert name == names.BEGIN_WEBHOOK
        self.messages.append(message)
        self.options.append(options)
        if self.error:
            raise self.error

    def _log(self, event: str, **facts: Any) -> None:
        self.logged.append((event, facts))

    @staticmethod
    async def _wait(condition: Any) -> None:
        for _ in range(50):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it waits for ever")

    def state(self, *targets: WebhookTarget, **start: Any) -> State:
        state = State(Start(agent="clerk", webhooks=targets, keep_open=1.0, **start), run_began=0.0)
        state.turn = 3
        return state

    async def events(self, webhooks: Webhooks) -> list[str]:
        """What is told after the conversation has looked once more."""
        before = len(self.messages)
        webhooks.send_if_new()
        await webhooks.all_begun()
        return [message.type for message in self.messages[before:]]

    @property
    def last(self) -> dict[str, Any]:
        data: dict[str, Any] = self.messages[-1].data
        return data


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


# ---------------------------------------------------------------- what is told, and when


async def test_calls_that_begin_to_wait_are_told_together_and_once(told: Told) -> None:
    state = told.state(TARGET)
    state.answering = True
    webhooks = Webhooks(state, announced=("a",))
    state.pending = {call_id: waits_for_approval(call_id) for call_id in "abc"}
    webhooks.send_if_new()
    assert await told.events(webhooks) == ["conversation.waiting"]
    assert [call["call_id"] for call in told.last["waiting"]] == ["b", "c"]
    assert await told.events(webhooks) == []


async def test_what_is_about_to_be_told_keeps_the_run_from_ending(told: Told) -> None:
    state = told.state(TARGET)
    webhooks = Webhooks(state, announced=())
    state.pending, state.answering = {"a": waits_for_approval("a")}, True
    assert not webhooks.is_busy
    webhooks.send_if_new()
    assert webhooks.is_busy
    await asyncio.sleep(0)
    assert (webhooks.is_busy, told.messages) == (True, [])
    await webhooks.all_begun()
    assert (webhooks.is_busy, len(told.messages)) == (False, 1)


async def test_a_stall_is_told_once_and_another_one_again(told: Told) -> None:
    state = told.state(TARGET)
    state.answering = True
    webhooks = Webhooks(state, announced=())
    state.stall = Stall("no key", "Set it.")
    assert await told.events(webhooks) == ["conversation.stalled"]
    assert (told.last["cause"], told.last["cure"], told.last["state"]) == ("no key", "Set it.", "stalled")
    assert await told.events(webhooks) == []
    state.stall = None
    assert await told.events(webhooks) == []
    state.stall = Stall("no key", "Set it.")
    assert await told.events(webhooks) == ["conversation.stalled"]


async def test_an_answer_is_told_once_the_conversation_idles(told: Told) -> None:
    state = told.state(TARGET)
    webhooks = Webhooks(state, announced=())
    assert await told.events(webhooks) == [], "it was answered in the run before"
    state.turn = 4
    state.last_reply.text = "Done."
    state.totals.tool_calls, state.totals.cost_usd = 2, 0.5
    assert await told.events(webhooks) == ["conversation.done"]
    facts = {"status": "answered", "reason": None, "stop": "end", "turns": 4, "tool_calls": 2, "cost_usd": 0.5}
    assert told.last["outcome"] == facts | {"text": "Done."}
    assert await told.events(webhooks) == []


async def test_an_answer_that_the_run_before_began_is_owed(told: Told) -> None:
    state = told.state(TARGET, carry=CarryOver(owed=True, turn=3))
    webhooks = Webhooks(state, announced=())
    state.answering = False
    assert await told.events(webhooks) == ["conversation.done"]


async def test_an_answer_that_was_cancelled_before_its_first_turn_is_told(told: Told) -> None:
    state = told.state(TARGET)
    webhooks = Webhooks(state, announced=())
    webhooks.owe_answer()
    state.cancelled = "ada cancelled it"
    assert await told.events(webhooks) == ["conversation.done"]
    assert (told.last["outcome"]["status"], told.last["outcome"]["reason"]) == ("cancelled", "ada cancelled it")


@pytest.mark.parametrize(
    ("changed", "tells"),
    [
        ({}, True),
        ({"waiting": False}, False),
        ({"final": False}, False),
        ({"final": False, "cancelled": "ada"}, True),
        ({"final": False, "cancelled": "ada", "abandoned": True}, False),
        ({"turn": 3}, False),
        ({"turn": 3, "owed": True}, True),
        ({"targets": ()}, False),
    ],
)
async def test_an_answer_is_told_before_the_next_message_is_taken_up(
    changed: dict[str, Any], tells: bool, told: Told
) -> None:
    facts: dict[str, Any] = {"waiting": True, "final": True, "cancelled": "", "abandoned": False, "turn": 4}
    facts |= {"owed": False, "targets": (TARGET,)} | changed
    state = told.state(*facts["targets"])
    webhooks = Webhooks(state, announced=())
    if facts["owed"]:
        webhooks.owe_answer()
    if facts["waiting"]:
        state.receive_message(Message.user("And now?"))
    state.turn, state.last_reply.final = facts["turn"], facts["final"]
    state.cancelled, state.abandoned = facts["cancelled"], facts["abandoned"]
    webhooks.send_answer_before_next()
    webhooks.send_answer_before_next()
    await webhooks.all_begun()
    assert [message.type for message in told.messages] == ["conversation.done"] * tells


# ---------------------------------------------------------------- how an answer ended


async def outcome_of_answer(told: Told, change: Any) -> dict[str, Any]:
    state = told.state(TARGET)
    webhooks = Webhooks(state, announced=())
    state.turn = 4
    state.last_reply.text, state.last_reply.cut_text, state.last_reply.final = "an earlier text", "cut", True
    change(state)
    await told.events(webhooks)
    outcome: dict[str, Any] = told.last["outcome"]
    return outcome


async def test_an_answer_that_was_cut_off_says_so(told: Told) -> None:
    def cut(state: State) -> None:
        state.last_reply.stop = "length"

    outcome = await outcome_of_answer(told, cut)
    assert (outcome["status"], outcome["stop"]) == ("answered", "length")
    assert "cut off" in outcome["reason"]


async def test_an_answer_that_does_not_fit_the_output_type_has_failed(told: Told) -> None:
    def unfit(state: State) -> None:
        state.last_reply.output_problem = "total is missing"

    outcome = await outcome_of_answer(told, unfit)
    assert outcome["status"] == "failed"
    assert outcome["reason"] == "the last reply does not fit the output type: total is missing"


@pytest.mark.parametrize(("final", "text", "stop"), [(True, "an earlier text", "length"), (False, "cut", "end")])
async def test_an_answer_that_was_cancelled_has_the_text_of_its_own_replies(
    final: bool, text: str, stop: str, told: Told
) -> None:
    def cancel(state: State) -> None:
        state.cancelled, state.last_reply.final, state.last_reply.stop = "ada cancelled it", final, "length"

    outcome = await outcome_of_answer(told, cancel)
    assert (outcome["status"], outcome["reason"]) == ("cancelled", "ada cancelled it")
    assert (outcome["text"], outcome["stop"]) == (text, stop)


@pytest.mark.parametrize(
    ("status", "in_answer", "text", "stop"),
    [
        ("completed", False, "said", "length"),
        ("cancelled", True, "said", "length"),
        ("cancelled", False, "cut", "end"),
    ],
)
async def test_the_end_is_told_before_the_conversation_ends(
    status: Any, in_answer: bool, text: str, stop: str, told: Told
) -> None:
    state = told.state(TARGET)
    state.last_reply.in_answer, state.last_reply.cut_text = in_answer, "cut"
    outcome = Outcome(status=status, text="said", stop="length", reason="why", turns=3, tool_calls=2, cost_usd=0.5)
    await Webhooks(state, announced=()).send_end(outcome)
    (message,) = told.messages
    facts = {"status": status, "reason": "why", "turns": 3, "tool_calls": 2, "cost_usd": 0.5}
    assert (message.type, message.data["outcome"]) == ("conversation.done", facts | {"text": text, "stop": stop})


async def test_a_conversation_that_is_cancelled_while_its_end_is_told_ends_as_it_would_have(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(_: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(workflow, "wait_condition", cancelled)
    await Webhooks(told.state(TARGET), announced=()).send_end(Outcome(status="completed"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [message.type for message in told.messages] == ["conversation.done"]


async def test_without_a_webhook_the_end_is_nobodys_business(told: Told) -> None:
    await Webhooks(told.state(), announced=()).send_end(Outcome(status="completed", text=""))
    assert told.messages == []


# ---------------------------------------------------------------- who is told


async def test_each_webhook_is_told_of_its_own_events_and_none_of_how_a_sub_agent_ended(told: Told) -> None:
    beside = TARGET.model_copy(update={"agent": "asker", "path": (HELPER,), "conversation_id": "asks"})
    only_stalls = TARGET.model_copy(update={"agent": "third", "events": ("stalled",)})
    state = told.state(TARGET, beside, only_stalls)
    webhooks = Webhooks(state, announced=())
    state.turn = 4
    await told.events(webhooks)
    assert [(message.agent, message.type) for message in told.messages] == [("clerk", "conversation.done")]
    told.messages.clear()
    state.stall = Stall("no key")
    await told.events(webhooks)
    assert [message.agent for message in told.messages] == ["clerk", "asker", "third"]
    first, second, _ = (message.data for message in told.messages)
    assert (second["conversation_id"], second["path"]) == ("asks", [HELPER.model_dump()])
    assert (first["conversation_id"], "path" in first) == ("talk", False)


async def test_the_agents_own_webhook_is_known_from_a_worker_or_from_a_turn_that_failed(told: Told) -> None:
    state = told.state()
    webhooks = Webhooks(state, announced=())
    assert webhooks.targets_for(HELPER) == ()
    assert not webhooks.is_busy
    webhooks.take_failure(activity_error(ApplicationError("no key")))
    webhooks.take_failure(activity_error(ApplicationError("no key", {"webhook": {"agent": 7}})))
    webhooks.send_if_new()
    assert not webhooks.is_busy, "nobody is to be told"
    failed = {"webhook": {"agent": "of the failure", "events": ["stalled"]}}
    webhooks.take_failure(activity_error(ApplicationError("no key", failed)))
    (target,) = webhooks.targets_for(HELPER)
    assert (target.agent, target.conversation_id, target.path) == ("of the failure", "talk", (HELPER,))
    state.facts = WorkerFacts(webhook=WebhookFacts(agent="of the worker"))
    assert [target.agent for target in webhooks.targets_for(HELPER)] == ["of the worker"]
    state.facts = WorkerFacts()
    assert webhooks.targets_for(HELPER) == (), "it has none any more"


async def test_of_a_long_path_of_agents_the_last_are_named(told: Told) -> None:
    path = tuple(HELPER.model_copy(update={"call_id": str(number)}) for number in range(MOST_AGENTS))
    state = told.state(TARGET.model_copy(update={"path": path}))
    (target,) = Webhooks(state, announced=()).targets_for(HELPER)
    assert target.path == (*path[1:], HELPER)


# ---------------------------------------------------------------- the message


async def test_a_message_says_whose_it_is_and_has_an_id_of_its_own(told: Told) -> None:
    state = told.state(TARGET, tenant="acme")
    webhooks = Webhooks(state, announced=())
    ids = []
    for run_id in ("run", "run", "other"):
        told.run_id, state.stall = run_id, Stall("no key")
        await told.events(webhooks)
        ids.append(told.messages[-1].id)
    heading = {"conversation_id": "talk", "agent": "clerk", "tenant": "acme", "state": "stalled", "turn": 3}
    assert told.last == heading | {"cause": "no key", "cure": None}
    assert len(set(ids)) == 3
    assert ids[0] == "msg_0206945c906ac8f428a1c023182da837", "in every version: another one may take the task again"
    assert all(len(message_id) == len("msg_") + 32 and message_id.startswith("msg_") for message_id in ids)
    assert told.messages[0].timestamp == "2026-01-01T00:00:00+00:00"
    told.run_id, state.stall = "run", Stall("no key")
    await told.events(Webhooks(state, announced=()))
    assert told.messages[-1].id == ids[0], "the same one, if the task is taken again"


async def test_a_delivery_that_can_not_begin_is_tried_three_times_and_logged(told: Told) -> None:
    state = told.state(TARGET)
    state.stall = Stall("no key")
    told.error = ApplicationError("the server is away")
    await told.events(Webhooks(state, announced=()))
    (options,) = told.options
    assert (options["summary"], options["retry_policy"].maximum_attempts) == ("conversation.stalled", 3)
    ((event, facts),) = told.logged
    assert (event, facts["level"], facts["type"]) == ("webhook.not_begun", "error", "conversation.stalled")
    assert "the server is away" in facts["cause"]


WAITS = WaitingCall(call_id="c1", tool="pay", arguments={"cents": 5}, reason="needs_approval", why="pay costs money")


def test_a_waiting_call_is_sent_with_its_arguments_if_the_webhook_is_to_have_them() -> None:
    target = TARGET.model_copy(update={"path": (HELPER,)})
    (call,) = fitting_data({}, {"waiting": [WAITS]}, target)["waiting"]
    assert (call["arguments"], call["why"], call["address"]) == ({"cents": 5}, "pay costs money", "/h1/c1")
    assert "path" not in call
    (call,) = fitting_data({}, {"waiting": [WAITS]}, target.model_copy(update={"include": ("text",)}))["waiting"]
    assert ("arguments" in call, call["why"], call["call_id"]) == (False, "pay costs money", "c1")
    asks = WAITS.model_copy(update={"reason": "asks_user", "why": "the model asks: where?"})
    (call,) = fitting_data({}, {"waiting": [asks]}, target.model_copy(update={"include": ()}))["waiting"]
    assert call["why"] == "the model has a question"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (None, None),
        ("ada cancelled it", "ada cancelled it"),
        (
            "the last reply does not fit the output type: 'secret' is no number",
            "the last reply does not fit the output type",
        ),
    ],
)
def test_a_webhook_that_is_to_have_no_text_has_none_in_the_reason_either(reason: str | None, shown: str | None) -> None:
    outcome = {"status": "failed", "reason": reason, "text": "secret"}
    plain = TARGET.model_copy(update={"include": ("arguments",)})
    assert fitting_data({}, {"outcome": outcome}, plain)["outcome"] == {"status": "failed", "reason": shown}
    assert fitting_data({}, {"outcome": outcome}, TARGET)["outcome"] == outcome


HEADING = {"conversation_id": "talk", "path": [HELPER.model_dump()]}


@pytest.mark.parametrize("beside", [0, 1])
def test_a_message_of_as_many_bytes_as_may_be_is_whole(beside: int) -> None:
    facts = {"cause": "", "cure": None}
    facts["cause"] = "x" * (MAX_WEBHOOK_BYTES + beside - size_of({**HEADING, **facts}))
    data = fitting_data(HEADING, facts, TARGET)
    if not beside:
        assert data == HEADING | facts
        return
    assert (data["conversation_id"], "path" in data, data["cut"], data["cure"]) == ("talk", False, True, None)
    assert data["cause"].startswith("xxx")
    assert len(data["cause"].encode()) <= MAX_WEBHOOK_TEXT_BYTES


def test_of_calls_that_are_too_large_together_the_first_are_named_and_all_are_counted() -> None:
    calls = [WAITS.model_copy(update={"call_id": f"c{n}", "why": "y" * 1_000}) for n in range(MOST_CALLS + 5)]
    data = fitting_data(HEADING, {"waiting": calls}, TARGET)
    assert (data["calls"], len(data["waiting"]), data["cut"]) == (MOST_CALLS + 5, MOST_CALLS, True)
    assert data["waiting"][0].keys() == {"call_id", "tool", "needs", "reason", "since", "expires_at"}
    assert data["waiting"][0]["call_id"] == "c0"


def test_of_an_outcome_that_is_too_large_the_text_is_left_out_and_the_reason_is_short() -> None:
    outcome = {"status": "failed", "turns": 3, "reason": "r" * MAX_WEBHOOK_BYTES, "text": "t"}
    data = fitting_data(HEADING, {"outcome": outcome}, TARGET)
    assert data["cut"]
    assert (data["outcome"]["status"], data["outcome"]["turns"], "text" in data["outcome"]) == ("failed", 3, False)
    assert len(data["outcome"]["reason"].encode()) <= MAX_WEBHOOK_TEXT_BYTES
    assert "waiting" not in data
