"""Durations are timedeltas above zero, wherever they are written. What is none is refused, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Limits, Patience, Worker, tool
from everturn.agent_settings import Approvals
from everturn.errors import InvalidSetting, InvalidTool
from everturn.payloads import Start
from everturn.plans import RunTool
from everturn.validation.durations import LONGEST
from everturn.workflows.timeouts import local_options, tool_activity_options
from tests.support.agents import nowhere

WRONG = [30, 1.5, "30", "a minute", True, timedelta(), timedelta(seconds=-1)]


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    "made",
    [
        lambda value: Limits(max_duration=value),
        lambda value: Patience(model=value),
        lambda value: Patience(turn_timeout=value),
        lambda value: Patience(max_retry_delay=value),
        lambda value: Approvals(expire_after=value),
        lambda value: Approvals(remind_before=value),
        lambda value: tool(print_it, timeout=value),
        lambda value: tool(print_it, patience=value),
    ],
)
def test_a_setting_takes_no_other(made: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises((InvalidSetting, InvalidTool), match=r"[Ww]rite (a )?timedelta"):
        made(value)


@pytest.mark.parametrize("value", WRONG)
async def test_a_conversation_is_kept_open_for_no_other(value: Any) -> None:
    client = nowhere()
    for start in (client.start("clerk", "Hi", keep_open=value), client.send("clerk", "Hi", id="81", keep_open=value)):
        with pytest.raises(InvalidSetting, match=r"keep_open=.*[Ww]rite (a )?timedelta"):
            await start


@pytest.mark.parametrize("option", ["drain_timeout", "stream_every"])
def test_a_worker_takes_no_other(option: str) -> None:
    client = nowhere()
    agents = [Agent("clerk", model="scripted:demo")]
    with pytest.raises(InvalidSetting, match=rf"{option}=30.*timedelta\(seconds=30\)"):
        Worker(client, agents=agents, **{option: 30})


def test_seconds_that_seem_to_be_meant_are_named() -> None:
    with pytest.raises(InvalidTool, match=r"30 has no unit. Write timedelta\(seconds=30\)"):
        tool(print_it, timeout=30)  # type: ignore[call-overload]


def test_what_is_longer_than_temporal_counts_is_a_century() -> None:
    patience = Patience(model=timedelta.max, turn_timeout=timedelta.max, max_retry_delay=timedelta.max)
    assert {patience.model, patience.turn_timeout, patience.max_retry_delay} == {LONGEST}
    endless = timedelta.max.total_seconds()
    plan = RunTool(call_id="c1", timeout=endless, patience=endless)
    given = [*tool_activity_options(plan).values(), *local_options(plan).values()]
    times = [value for value in given if isinstance(value, timedelta)]
    assert max(times) < timedelta(days=292 * 365)


def test_on_the_wire_they_are_seconds() -> None:
    for written in (90, 90.0, "PT90S"):
        start = Start.model_validate({"agent": "clerk", "limits": {"max_duration": written}})
        assert start.limits
        assert start.limits.max_duration == timedelta(seconds=90)
        assert Start.model_validate_json(start.model_dump_json()) == start


def test_limits_travel_as_far_as_they_were_set() -> None:
    start = Start(agent="clerk", limits=Limits(max_turns=50))
    assert start.model_dump(mode="json")["limits"] == {"max_turns": 50}
    read = Start.model_validate_json(start.model_dump_json())
    assert read.limits
    assert read.limits.model_fields_set == {"max_turns"}


def print_it() -> None:
    """Print it."""
