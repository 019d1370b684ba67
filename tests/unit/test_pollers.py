"""Who polls, by the server's times: our own clock may be hours away from them."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo

from everturn.client.pollers import recent_pollers
from everturn.client.worker_reports import AnnouncedWorker, _read_report, plugin_name
from everturn.temporal.worker_roles import ALL

NOON = 1_800_000_000


@pytest.mark.parametrize("ahead", [0, 2 * 3600, -2 * 3600], ids=["right", "ahead", "behind"])
def test_a_worker_that_polls_is_seen_whatever_our_clock_says(ahead: int) -> None:
    working = _seen("works", NOON - 20)
    assert recent_pollers([working], now=NOON + ahead) == [working]


def test_one_that_has_gone_is_not() -> None:
    working, gone = _seen("works", NOON - 20), _seen("gone", NOON - 200)
    assert recent_pollers([working, gone], now=NOON) == [working]
    assert recent_pollers([gone], now=NOON) == []
    assert recent_pollers([working, gone], now=NOON + 7200) == [working]
    assert recent_pollers([], now=NOON) == []


def test_one_that_said_that_it_stops_or_is_not_heard_of_any_more_is_not() -> None:
    polled = _seen("it", NOON - 50)
    stopped = AnnouncedWorker("it", stopped=True, beat_at=NOON - 40, agents=None)
    works = AnnouncedWorker("it", stopped=False, beat_at=NOON - 30, agents=None)
    assert recent_pollers([polled], now=NOON, workers=[stopped]) == []
    assert recent_pollers([polled], now=NOON, workers=[stopped, works]) == [polled]
    begun_again = _seen("it", NOON - 30)  # in the same process, and not heard of yet
    assert recent_pollers([begun_again], now=NOON, workers=[stopped]) == [begun_again]
    at_once = _seen("it", NOON - 40, milliseconds=300)  # in the same second
    said_at_200 = AnnouncedWorker("it", stopped=True, beat_at=NOON - 40 + 0.2, agents=None)
    assert recent_pollers([at_once], now=NOON, workers=[said_at_200]) == [at_once]

    silent = AnnouncedWorker("it", stopped=False, beat_at=NOON - 100, agents=None)
    killed, slow = _seen("it", NOON - 90), _seen("it", NOON - 70)
    assert recent_pollers([killed], now=NOON, workers=[silent]) == []
    assert recent_pollers([slow], now=NOON, workers=[silent]) == [slow]
    assert recent_pollers([killed], now=NOON, workers=[]) == [
        killed
    ]  # its SDK sends no heartbeats, or the server keeps none


@pytest.mark.parametrize("agents", [None, ["billing", "clerk"], ['"', "Ärger"]])
def test_what_a_worker_says_of_its_agents_is_read_as_it_was_said(agents: list[str] | None) -> None:
    named = None if agents is None else frozenset(agents)
    assert _read_report(plugin_name(agents)) == (named, ALL)
    assert _read_report(plugin_name(agents, roles=frozenset({"models"}))) == (named, frozenset({"models"}))


def test_of_too_many_agents_none_is_named() -> None:
    assert _read_report(plugin_name(f"agent-{number}" for number in range(1_000))) == (None, ALL)
    assert _read_report("OpenTelemetryPlugin") is None
    assert _read_report("[]") is None


def _seen(identity: str, at: int, *, milliseconds: int = 0) -> PollerInfo:
    return PollerInfo(identity=identity, last_access_time=Timestamp(seconds=at, nanos=milliseconds * 1_000_000))
