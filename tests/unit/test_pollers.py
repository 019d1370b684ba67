"""Who polls, by the server's times: our own clock may be hours away from them."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo

from everturn.client.pollers import recent

NOON = 1_800_000_000


@pytest.mark.parametrize("ahead", [0, 2 * 3600, -2 * 3600], ids=["right", "ahead", "behind"])
def test_a_worker_that_polls_is_seen_whatever_our_clock_says(ahead: int) -> None:
    working = _seen("works", NOON - 20)
    assert recent([working], now=NOON + ahead) == [working]


def test_one_that_has_gone_is_not() -> None:
    working, gone = _seen("works", NOON - 20), _seen("gone", NOON - 200)
    assert recent([working, gone], now=NOON) == [working]
    assert recent([gone], now=NOON) == []
    assert recent([working, gone], now=NOON + 7200) == [working]
    assert recent([], now=NOON) == []


def _seen(identity: str, at: int) -> PollerInfo:
    return PollerInfo(identity=identity, last_access_time=Timestamp(seconds=at))
