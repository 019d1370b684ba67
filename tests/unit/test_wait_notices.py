"""Who is told when calls begin to wait for a person, and what of them."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from everturn.calls.pending_calls import PendingCall
from everturn.carryover import QuestionToPerson
from everturn.payloads import Notify, Start, WaitingCall, WaitNotice
from everturn.plans import RunTool
from everturn.records import ToolCall
from everturn.sizes import MAX_NOTICE_BYTES, MAX_NOTICE_WHY_BYTES, size_of
from everturn.state import State
from everturn.workflows.new_waits import NewWaits
from everturn.workflows.wait_notices import WaitNotices, notice_of
from tests.support.fake_sdk import FakeSdk, settle


def pending(call_id: str) -> PendingCall:
    question = QuestionToPerson(call_id=call_id, reason="needs_approval", why="it asks", since=7.0)
    return PendingCall(ToolCall(call_id=call_id, name="pay"), RunTool(call_id=call_id), question)


def state(*, notify: bool = True) -> State:
    told = Notify(workflow_id="boss", signal="waits") if notify else None
    return State(Start(agent="clerk", notify=told), run_began=0.0)


async def test_calls_of_one_reply_are_told_together_and_each_once(fake_sdk: FakeSdk) -> None:
    one = state()
    notices = WaitNotices(one, announced=["old"])
    for call_id in ("old", "a", "b"):
        one.pending[call_id] = pending(call_id)
        notices.send_if_new()
    await settle()
    notices.send_if_new()
    await settle()
    ((workflow_id, signal, notice),) = fake_sdk.signals
    assert (workflow_id, signal, notice.conversation_id, notice.agent) == ("boss", "waits", "talk", "clerk")
    assert [call.call_id for call in notice.waiting] == ["a", "b"]
    one.pending["c"] = pending("c")
    notices.send_if_new()
    await settle()
    assert [call.call_id for call in fake_sdk.signals[1][2].waiting] == ["c"]


async def test_nobody_is_told_of_nothing(fake_sdk: FakeSdk) -> None:
    WaitNotices(state(), announced=()).send_if_new()
    silent = state(notify=False)
    notices = WaitNotices(silent, announced=())
    silent.pending["a"] = pending("a")
    notices.send_if_new()
    await settle()
    assert fake_sdk.signals == []


async def test_whoever_is_over_by_now_need_not_be_told(fake_sdk: FakeSdk) -> None:
    one = state()
    notices = WaitNotices(one, announced=())
    fake_sdk.signal_error = ApplicationError("it is over")
    one.pending["a"] = pending("a")
    notices.send_if_new()
    await settle()
    assert fake_sdk.signals == []


async def test_it_is_looked_at_once_for_all_that_changed(fake_sdk: FakeSdk) -> None:
    looked: list[bool] = []
    waits = NewWaits(state(), announced=(), look=lambda: looked.append(waits.is_due))
    for round_ in (1, 2):
        waits.look_soon()
        waits.look_soon()
        assert waits.is_due
        await settle()
        assert looked == [False] * round_


@pytest.mark.parametrize(("beside", "whole"), [(0, True), (1, False)])
def test_a_large_notice_has_no_arguments_and_short_reasons(beside: int, *, whole: bool) -> None:
    def call(size: int) -> WaitingCall:
        return WaitingCall(call_id="a", tool="pay", arguments={"text": "x" * size}, why="y" * 1_000)

    empty = WaitNotice(conversation_id="talk", agent="clerk", waiting=(call(0),))
    large = call(MAX_NOTICE_BYTES - size_of(empty) + beside)
    notice = notice_of([large], conversation_id="talk", agent="clerk")
    (told,) = notice.waiting
    assert (told == large) is whole
    if not whole:
        assert (told.arguments, told.tool, len(told.why) <= MAX_NOTICE_WHY_BYTES) == ({}, "pay", True)
        assert told.why.startswith("yyy")
