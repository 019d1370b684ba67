"""What has come of each call of a reply, and what the next run and the next turn are told of it."""

from __future__ import annotations

from everturn.carryover import OpenReply, QuestionToPerson
from everturn.plans import RunTool
from everturn.records import ToolCall, ToolResult
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.chain import RunChain
from tests.support.fake_sdk import FakeSdk

CALLS = tuple(ToolCall(call_id=call_id, name="pay") for call_id in "abc")
RESULT = ToolResult(call_id="b", name="pay")


async def test_a_reply_that_the_run_before_left_open_goes_on(fake_sdk: FakeSdk) -> None:
    waits = (QuestionToPerson(call_id="a", chain_id="before"), QuestionToPerson(call_id="c"))
    plan = (RunTool(call_id="a"), RunTool(call_id="c"))
    ledger = CallLedger(OpenReply(calls=CALLS, plan=plan, waits=waits, results=(RESULT,)), RunChain(""))
    assert (ledger.calls, ledger.results, ledger.recorded) == (CALLS, {"b": RESULT}, {"b"})
    assert ledger.chain_ids == {"a": "before"}
    assert (ledger.to_come, ledger.all_settled, ledger.in_events) == (2, False, ("b",))


async def test_a_new_reply_knows_nothing_of_the_one_before(fake_sdk: FakeSdk) -> None:
    ledger = CallLedger(OpenReply(), RunChain(""))
    assert ledger.all_settled
    ledger.begin_reply(CALLS)
    ledger.results["b"] = RESULT
    for known in (ledger.running, ledger.lost, ledger.recorded, ledger.from_outputs):
        known.add("b")
    ledger.chain_ids["b"] = "run"
    ledger.begin_reply(CALLS)
    assert (ledger.results, ledger.running, ledger.lost, ledger.chain_ids) == ({}, set(), set(), {})
    assert (ledger.in_events, ledger.to_come, ledger.all_settled) == ((), 3, False)


async def test_a_reply_is_settled_once_each_call_has_its_result(fake_sdk: FakeSdk) -> None:
    ledger = CallLedger(OpenReply(), RunChain(""))
    ledger.begin_reply(CALLS[:2])
    for call_id, settled in (("b", False), ("a", True)):
        ledger.results[call_id] = RESULT
        assert ledger.all_settled is settled


async def test_results_of_either_kind_are_in_events(fake_sdk: FakeSdk) -> None:
    ledger = CallLedger(OpenReply(), RunChain(""))
    ledger.begin_reply(CALLS)
    ledger.results = dict.fromkeys("abc", RESULT)
    ledger.recorded, ledger.from_outputs = {"a"}, {"c"}
    assert ledger.in_events == ("a", "c")


async def test_calls_without_a_result_are_cut_short_and_those_that_began_may_have_run(fake_sdk: FakeSdk) -> None:
    ledger = CallLedger(OpenReply(), RunChain(""))
    calls = tuple(ToolCall(call_id=call_id, name="pay") for call_id in "abcd")
    ledger.begin_reply(calls)
    ledger.results["b"] = RESULT
    ledger.running.add("a")
    ledger.lost.add("c")
    results = ledger.close_reply("enough")
    assert results[1] == RESULT
    assert ["taken effect" in results[index].text for index in (0, 2, 3)] == [True, True, False]
    assert [result.call_id for result in results] == [*"abcd"]
    assert (ledger.calls, ledger.all_settled) == ((), True)


async def test_a_reset_gives_calls_another_key(fake_sdk: FakeSdk) -> None:
    assert (RunChain("").id, RunChain("carried").id, RunChain("", reset_run="r").reset_run) == ("run", "carried", "r")
    fake_sdk.info.original_execution_run_id = "before"
    chain = RunChain("carried", reset_run="r")
    assert (chain.id, chain.reset_run) == ("run", "run")
