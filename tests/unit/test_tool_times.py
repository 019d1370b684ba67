"""Which tools a worker takes for quick, by how long they took."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import Agent, Text, tool
from everturn.activities.tool_times import FEWEST_RUNS, LAST_RUNS, MOST_TOOLS, QUICK_SECONDS, ToolTimes
from everturn.errors import InvalidAgent, InvalidTool
from everturn.records import ToolResult
from everturn.sizes import LOCAL_BYTES
from everturn.tools.tool import Tool


def _look(**options: Any) -> Tool:
    return tool(lambda: "seen", name="look", description="Look.", **options)


def _agent(**options: Any) -> Agent:
    return Agent("clerk", model="scripted:demo", **options)


def _after(*seconds: float) -> ToolTimes:
    times = ToolTimes()
    for second in seconds:
        times.note_run(_agent(), "look", second, None)
    return times


QUICK = [0.01] * FEWEST_RUNS
SLOW = QUICK_SECONDS + 0.1


@pytest.mark.parametrize(
    ("seconds", "quick"),
    [
        ([], False),
        (QUICK[1:], False),
        (QUICK, True),
        ([*QUICK, SLOW], False),
        ([SLOW, *[0.01] * (LAST_RUNS - 1)], True),
        ([SLOW, SLOW, *[0.01] * (LAST_RUNS - 2)], False),
        ([SLOW, SLOW, *[0.01] * LAST_RUNS], True),
        ([QUICK_SECONDS] * FEWEST_RUNS, True),
    ],
)
def test_a_tool_is_quick_by_the_95th_percentile_of_its_last_runs(seconds: list[float], quick: bool) -> None:
    assert _after(*seconds).runs_hurried(_agent(), _look(effect="read", local="auto")) is quick


@pytest.mark.parametrize(
    ("effect", "of_tool", "of_agent", "of_worker", "hurries"),
    [
        ("read", None, None, False, False),
        ("read", None, None, "auto", True),
        ("read", None, "auto", False, True),
        ("read", None, False, "auto", False),
        ("read", "auto", False, False, True),
        ("read", False, "auto", "auto", False),
        ("idempotent", None, "auto", "auto", False),
        ("idempotent", "auto", None, False, True),
        ("once", None, "auto", "auto", False),
    ],
)
def test_the_tool_says_first_then_its_agent_then_the_setting(
    effect: Any, of_tool: Any, of_agent: Any, of_worker: Any, hurries: bool
) -> None:
    times = ToolTimes(local=of_worker)
    for one in QUICK:
        times.note_run(_agent(), "look", one, None)
    assert times.runs_hurried(_agent(local=of_agent), _look(effect=effect, local=of_tool)) is hurries


def test_a_tool_whose_results_are_large_is_not_quick() -> None:
    times = _after(*QUICK)
    large = ToolResult(call_id="a", name="look", content=(Text(text="x" * (LOCAL_BYTES + 1)),))
    times.note_run(_agent(), "look", 0.01, large)
    assert not times.runs_hurried(_agent(), _look(effect="read", local="auto"))


def test_tools_of_one_name_are_timed_by_their_agents() -> None:
    assert not _after(*QUICK).runs_hurried(Agent("other", model="scripted:demo"), _look(effect="read", local="auto"))


def test_what_is_remembered_is_bounded() -> None:
    times = _after(*QUICK)
    for number in range(MOST_TOOLS):
        times.note_run(_agent(), f"tool_{number}", 0.01, None)
    assert not times.runs_hurried(_agent(), _look(effect="read", local="auto"))
    assert len(times._seconds) == MOST_TOOLS


def test_what_runs_once_is_never_local() -> None:
    with pytest.raises(InvalidTool, match=r"'look' has local='auto' and effect='once'"):
        _look(effect="once", local="auto")


@pytest.mark.parametrize("local", ["yes", 1.5, "Auto"])
def test_local_is_true_false_or_auto(local: Any) -> None:
    with pytest.raises(InvalidTool, match="Write local=True, False or 'auto'"):
        _look(effect="read", local=local)
    with pytest.raises(InvalidAgent, match="Write local='auto' or local=False"):
        _agent(local=local)
