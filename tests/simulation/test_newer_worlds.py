"""Worlds about what everturn has learned since: each holds, and a mistake in what it is about is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from temporalio import workflow

from everturn import Agent
from everturn.activities import planning, turn_agent, turn_request
from everturn.activities.hook_runs import CallVerdict, HookRuns
from everturn.activities.kept_response_ids import KeptResponse
from everturn.activities.tool_contexts import ToolContexts
from everturn.batching import sending
from everturn.batching.waits import BatchWaits
from everturn.calls import pending_calls
from everturn.client import earlier_transcript, listing
from everturn.formats.any_format import read_any
from everturn.history import decisions_by_history
from everturn.history.event_reader import EventReader
from everturn.lost_workers.journal import Journal
from everturn.payloads import Start
from everturn.state import State
from everturn.storage.encryption import Encryption
from everturn.workflows import tool_calls, tool_results
from tests.simulation.situations import cut_replies, worded
from tests.simulation.temporal.history import kind
from tests.simulation.world import run, seeds_of

SOME = 60

Mistake = Callable[[pytest.MonkeyPatch], None]


def _hooks_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def before_tool(_: Any, call: Any, *__: Any) -> CallVerdict:
        return CallVerdict(call)

    monkeypatch.setattr(HookRuns, "before_tool", before_tool)


def _no_rule_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_calls, "rule_for", lambda *_: None)


def _all_is_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    of_call = ToolContexts.of_call
    monkeypatch.setattr(ToolContexts, "of_call", lambda *given, **more: replace(of_call(*given, **more), approved=True))


def _nobody_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Start, "labels", property(lambda _: {}))


def _nothing_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encryption, "_encrypt_payload", lambda _, payload: payload)


def _lists_say_that_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = listing.read_listed
    monkeypatch.setattr(listing, "read_listed", lambda execution: replace(listed(execution), status="running"))


def _whoever_began_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "follow_handoffs", lambda *_: None)


def _tools_are_those_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepared(agent: Agent, _: Any) -> Agent:
        return agent

    monkeypatch.setattr(turn_agent, "with_its_tools", prepared)


def _calls_are_forced_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_request, "settings_for", lambda settings, _: settings)


def _nobody_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_doubts_of_provider", lambda _: "")


def _no_response_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptResponse, "response_id", "")


def _half_of_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_transcript, "read_any", lambda transcript: read_any([*transcript][1:]))


def _the_machines_clock_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "now", lambda: datetime.fromtimestamp(time.time(), UTC))


def _local_tools_have_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    options, less = tool_calls.local_options, {"start_to_close_timeout": timedelta(seconds=2)}
    monkeypatch.setattr(tool_calls, "local_options", lambda plan: {**options(plan), **less})


def _what_was_hurried_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_results, "delay_after_hurried_try", lambda _: None)


def _nobody_reads_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hand_back(*_: Any) -> int:
        return 0

    monkeypatch.setattr(Journal, "hand_back", hand_back)


def _readers_follow_each_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_by_history, "decision_problem", lambda *_, **__: None)


def _each_message_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventReader, "_is_new", lambda *_: True)


def _no_word_is_left_of_a_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave_for_certain(**_: Any) -> None: ...

    monkeypatch.setattr(sending, "leave_for_certain", leave_for_certain)


def _nobody_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchWaits, "_leave", lambda *_: None)


@pytest.mark.long  # what it tests is the simulation itself, and it takes the time of all of its other tests
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("situation", "mistake"),
    [
        ("hooks", _hooks_say_nothing),
        ("policies", _no_rule_applies),
        ("asks in the middle", _all_is_approved),
        ("context", _nobody_says_for_whom),
        ("sealed", _nothing_is_encrypted),
        ("lists", _lists_say_that_it_runs),
        ("handoffs", _whoever_began_goes_on),
        ("decided at run time", _tools_are_those_of_the_agent),
        ("forced calls", _calls_are_forced_for_ever),
        ("a provider's own tools", _nobody_doubts),
        ("in the background", _no_response_is_known),
        ("a transcript to begin with", _half_of_it_is_forgotten),
        ("wrong clocks", _the_machines_clock_is_asked),
        ("long local tools", _local_tools_have_less_time),
        ("tools that were quick", _what_was_hurried_is_over),
        ("one machine", _nobody_reads_journals),
        ("refused signals", _readers_follow_each_decision),
        ("refused signals", _each_message_is_told),
        ("batches", _no_word_is_left_of_a_creation),
        ("batches", _nobody_leaves),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_mistake_is_found(situation: str, mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [*islice(seeds_of([situation]), SOME)]
    assert run(seeds[0]).broken == []
    mistake(monkeypatch)
    assert any(run(seed).broken for seed in seeds)


@pytest.mark.timeout(600)
def test_a_world_holds_through_a_server_that_nobody_reaches() -> None:
    worlds = [run(seed) for seed in islice(seeds_of(["no server"]), 4)]
    assert [world.broken for world in worlds if world.broken] == []
    assert any(world.counts.get("outages") for world in worlds)


def test_worlds_have_local_tools_that_hold_their_workflow_tasks() -> None:
    worlds = [run(seed) for seed in islice(seeds_of(["long local tools", "tools that were quick"]), 24)]
    assert [world.broken for world in worlds if world.broken] == []
    for what in ("tasks held by local activities", "local backoffs", "local time-outs"):
        assert any(world.counts.get(what) for world in worlds), what


def test_a_kill_is_noticed_by_the_journal_of_its_worker() -> None:
    worlds = [run(seed) for seed in islice(seeds_of(["one machine"]), 5)]
    assert [world.broken for world in worlds if world.broken] == []
    assert any(world.counts.get("journals of killed workers") for world in worlds)
    assert run(worlds[0].seed).counts == worlds[0].counts


def test_worlds_cut_replies_short_while_people_see_them() -> None:
    worlds = [run(seed) for seed in islice(seeds_of([*cut_replies.CUT_SHORT]), 8)]
    assert [world.broken for world in worlds if world.broken] == []
    assert sum(world.counts.get("turns cut short", 0) for world in worlds) >= 8


@pytest.mark.timeout(600)
def test_worlds_are_about_what_people_say() -> None:
    worlds = [run(seed, keep=True) for seed in islice(seeds_of([*worded.WORDED]), 8)]
    assert [world.broken for world in worlds if world.broken] == []
    kinds = {kind(event) for world in worlds for _, events in world.histories for event in events}
    assert "signal_external_workflow_execution_initiated" in kinds, "nobody was told of calls that wait"
    assert any("tardy" in what for world in worlds for _, what in world.notes), "no tool asked to be tried again"


@pytest.mark.timeout(600)
def test_worlds_ask_by_batches_through_kills_and_resets() -> None:
    worlds = [run(seed) for name, count in (("batches", 1), ("batches and resets", 1)) for seed in _first(name, count)]
    assert [world.broken for world in worlds if world.broken] == []
    for what in ("batches cancelled", "kills", "resets"):
        assert any(world.counts.get(what) for world in worlds), what


@pytest.mark.timeout(600)
@pytest.mark.parametrize("situation", ["tools with a message", "reviewed"])
def test_worlds_are_about_what_decides_beside_the_agent(situation: str) -> None:
    worlds = [run(seed, keep=True) for seed in _first(situation, 4)]
    assert [world.broken for world in worlds if world.broken] == []
    words = {"tools with a message": "There is no tool", "reviewed": "model:scripted:second"}[situation]
    assert any(words in str(event) for world in worlds for _, events in world.histories for event in events)


def _first(name: str, count: int) -> list[int]:
    return [*islice(seeds_of([name]), count)]
