"""A short run of the crash test; `make crash` is the long one. And: its judges do find what they look for."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everturn.records import Message, Text, ToolCall, ToolResult
from tests.crash.evidence import Evidence, Run, lines_of
from tests.crash.invariants import RULES, broken
from tests.crash.ledger import Effect
from tests.crash.report import report
from tests.crash.resumes import late, resumes
from tests.crash.stories import Asked, Story
from tests.crash.storm import Hit, Kill, Plan, Restart, Storm


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_nothing_is_lost_and_nothing_done_twice_while_workers_and_the_server_are_killed(tmp_path: Path) -> None:
    """One test: of two, another process would take one, and have the storm once more."""
    seed = int(os.environ.get("SEED", "5"))
    # How soon what was lost is taken up again is measured at full length, by `make crash`, with the machine to itself.
    plan = Plan(seed=seed, conversations=12, kills=4, restarts=1, pace=2.0, at_once=12, patience=240.0, resume=math.inf)
    storm = Storm(plan, tmp_path)
    await storm.run()
    assert broken(storm) == [], report(storm)
    assert (len(storm.kills), len(storm.restarts), len(storm.ended)) == (4, 1, 12)
    # And it hit something.
    assert any(run.tries > 1 for evidence in storm.evidence for run in evidence.activities), report(storm)
    assert storm.vanished
    assert storm.clients_killed == 2
    assert any(one.served != "reply" for one in storm.author.asked)


# ---------------------------------------------------------------- the judges


def sound() -> Evidence:
    """A conversation of two turns and a payment, as it should be."""
    story = Story(0, ("story 0 message 0",), (), revived=False, id="s")
    call = ToolCall(call_id="c", name="pay", arguments={"size": 0})
    result = ToolResult(call_id="c", name="pay", content=(Text(text="receipt 1 of s:r:c"),))
    transcript = (
        Message.user("story 0 message 0"),
        Message(role="assistant", parts=(call,)),
        Message(role="tool", parts=(result,)),
        Message(role="assistant", parts=(Text(text="Done."),)),
    )
    activities = [
        Run("r", "1", "call_model", {"turn": 1}, tries=1, ended_at=1.0, how="completed"),
        Run("r", "2", "pay", {"call_id": "c"}, tries=1, ended_at=2.0, how="completed"),
        Run("r", "3", "call_model", {"turn": 2}, tries=1, ended_at=3.0, how="completed"),
    ]
    asked = [Asked(0.5, 0, 0, ("a",), "reply"), Asked(2.5, 0, 1, ("a", "b", "c"), "reply")]
    effects = {"c": [Effect(1, "pay", "s:r:c", 1, 7, 1.5, '{"size": 0}')]}
    found = Evidence(story, ["r"], activities, transcript=transcript, asked=asked, effects=effects)
    found.chains["r"] = "r"
    return found


def judged(evidence: Evidence) -> str:
    return "; ".join(what for rule in RULES for what in rule(evidence))


def test_a_sound_conversation_breaks_no_rule() -> None:
    assert judged(sound()) == ""


def test_a_model_call_that_is_asked_again_is_found() -> None:
    evidence = sound()
    evidence.asked.append(Asked(3.5, 0, 1, ("a", "b", "c"), "reply"))
    assert "turn 2 was asked 2 times in 1 tries" in judged(evidence)
    assert "turn 2 was asked again 0.50 s after its reply was recorded" in judged(evidence)


def test_a_model_turn_that_is_recorded_twice_is_found() -> None:
    evidence = sound()
    evidence.activities.append(replace(evidence.activities[0], activity_id="4"))
    assert "turn 1 has 2 completed model calls" in judged(evidence)


def test_another_prompt_than_before_is_found() -> None:
    evidence = sound()
    evidence.asked[1] = replace(evidence.asked[1], told=("a", "x"))
    evidence.asked.append(replace(evidence.asked[1], told=("b", "x", "c")))
    assert "does not begin with the one before it" in judged(evidence)


def test_a_payment_that_is_made_twice_is_found() -> None:
    evidence = sound()
    evidence.effects["c"].append(Effect(2, "pay", "s:r:c", 1, 8, 1.7, '{"size": 0}'))
    assert "pay c took effect 2 times, and 1 were allowed" in judged(evidence)
    evidence.approvals["c"] = [None]
    evidence.activities.append(replace(evidence.activities[1], activity_id="4"))
    assert judged(evidence) == ""


def test_more_effects_than_tries_are_found() -> None:
    evidence = sound()
    evidence.effects["c"].append(Effect(2, "pay", "s:r:c", 1, 8, 1.7, '{"size": 0}'))
    evidence.approvals["c"] = [None]
    assert judged(evidence) == "pay c took effect 2 times in 1 tries"


def test_arguments_that_nobody_gave_are_found() -> None:
    evidence = sound()
    evidence.effects["c"] = [replace(evidence.effects["c"][0], arguments='{"size": 7}')]
    assert judged(evidence) == "pay c ran with {'size': 7}, and was to run with [{'size': 0}]"
    evidence.approvals["c"] = [{"size": 7}]
    assert judged(evidence) == ""


def test_another_key_than_the_calls_own_is_found() -> None:
    evidence = sound()
    evidence.effects["c"] = [replace(evidence.effects["c"][0], key="s:q:c")]
    assert "c took effect under the keys ['s:q:c'], not ['s:r:c']" in judged(evidence)


def test_results_in_another_order_than_their_calls_are_found() -> None:
    evidence = sound()
    user, asks, told, done = evidence.transcript
    calls = (*asks.parts, ToolCall(call_id="d", name="screen"))
    results = (ToolResult(call_id="d", name="screen"), *told.parts)
    evidence.transcript = (user, replace_parts(asks, calls), replace_parts(told, results), done)
    assert "the calls ['c', 'd'] have their results in another order: ['d', 'c']" in judged(evidence)


def replace_parts(message: Message, parts: Any) -> Message:
    return message.model_copy(update={"parts": parts})


def test_an_approval_that_nothing_came_of_is_found() -> None:
    evidence = sound()
    evidence.approvals["d"] = [None]
    assert judged(evidence) == "d was approved, and nothing came of it"


def test_a_once_tool_that_is_tried_again_by_itself_is_found() -> None:
    evidence = sound()
    evidence.activities[1] = replace(evidence.activities[1], tries=2)
    assert "pay c was tried again by itself" in judged(evidence)


def test_a_result_that_the_ledger_does_not_have_is_found() -> None:
    evidence = sound()
    evidence.effects = {}
    assert "its result is 'receipt 1 of s:r:c', and the ledger has []" in judged(evidence)


def test_an_effect_without_a_call_is_found() -> None:
    evidence = sound()
    evidence.effects["d"] = []
    assert "effects of calls that there are not: ['d']" in judged(evidence)


@pytest.mark.parametrize(("times", "found"), [(0, "pay c has 0 results"), (2, "pay c has 2 results")])
def test_a_call_without_exactly_one_result_is_found(times: int, found: str) -> None:
    evidence = sound()
    user, asks, told, done = evidence.transcript
    evidence.transcript = (user, asks, *[told] * times, done)
    assert found in judged(evidence)


def test_a_lost_or_doubled_message_is_found() -> None:
    evidence = sound()
    evidence.transcript = (evidence.transcript[0], *evidence.transcript)
    assert "stand in the transcript as" in judged(evidence)


def test_a_failed_workflow_task_and_a_history_that_diverges_are_found(tmp_path: Path) -> None:
    evidence = sound()
    evidence.task_failures.append("NON_DETERMINISTIC_ERROR: it")
    evidence.divergence = "it"
    assert judged(evidence) == "a workflow task failed: NON_DETERMINISTIC_ERROR: it; its history does not replay: it"


def test_what_is_taken_up_again_too_late_is_found() -> None:
    evidence = sound()
    evidence.activities[0] = replace(evidence.activities[0], tries=2, ended_at=22.0)
    evidence.asked.append(Asked(21.0, 0, 0, ("a",), "reply"))
    kill = Kill(10.0, 7, hits=[Hit("s", "r", "1", "call_model")])
    storm: Any = SimpleNamespace(plan=Plan(), kills=[kill], restarts=[], evidence=[evidence])
    (found,) = late(storm)
    assert found.startswith("call_model of s was taken up again 11.0 s after the last that happened to it")
    assert "10 s are allowed" in found
    # Time without a server does not count, and another kill begins anew.
    storm.restarts = [Restart(10.5, 12.0)]
    assert not list(late(storm))
    storm.restarts, storm.kills = [], [kill, Kill(12.0, 8)]
    assert not list(late(storm))


def test_a_worker_that_has_a_turn_in_hand_may_ask_late() -> None:
    evidence = sound()
    evidence.activities[0] = replace(evidence.activities[0], tries=2, ended_at=22.0)
    evidence.asked.append(Asked(21.0, 0, 0, ("a",), "reply"))
    kill = Kill(10.5, 7, hits=[Hit("s", "r", "1", "call_model")])
    storm: Any = SimpleNamespace(plan=Plan(), kills=[kill], restarts=[], evidence=[evidence])

    def logged(at: float, line: str) -> str:
        return f"{time.strftime('%H:%M:%S', time.localtime(at))} [info     ] {line}"

    others = [
        logged(9.0, "turn.failed conversation=s turn=1 attempt=1"),  # before it was killed
        logged(10.0, "prefix.read conversation=s turn=1 attempt=1"),  # perhaps before
        logged(13.0, "prefix.read conversation=t turn=1 attempt=2"),
        logged(13.0, "prefix.read conversation=s turn=2 attempt=2"),
        logged(13.0, "tool.finished conversation=s turn=1 call=c attempt=2"),
    ]
    for told, seconds in [
        (logged(22.0, "turn.finished conversation=s turn=1 attempt=2 seconds=9.5 waited_seconds=9.0"), 2.5),
        (logged(14.0, "prefix.read conversation=s turn=1 attempt=2 messages=2"), 3.5),
        ("", 10.5),
    ]:
        evidence.lines = list(lines_of("\n".join([*others, told]), "s"))
        (resume,) = resumes(storm)
        assert resume.seconds == seconds
    assert list(late(storm))
