"""A client: what it keeps for all who act through it, and what it refuses before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import Message
from everturn.client.earlier_transcript import begun_with
from everturn.errors import Refused
from everturn.temporal.filter_values import quoted, quoted_time
from everturn.tenants.priorities import Order
from tests.support.agents import nowhere

HALF = "half an emoji: \ud800"


def test_a_client_for_another_person_shares_what_is_known_of_the_server_and_the_settings() -> None:
    client = nowhere()
    before = client.by
    bob = client.acting_as("Bob")
    assert (client.by, bob.by, bob.task_queue) == (before, "Bob", client.task_queue)
    assert bob.namespace is client.namespace
    assert bob._settings is client._settings


@pytest.mark.parametrize(
    "give",
    [
        lambda: nowhere().acting_as(HALF),
        lambda: begun_with([Message.user(HALF)]),
        lambda: quoted(HALF),
        lambda: Order(fairness_key=HALF),
    ],
    ids=["by", "transcript", "filter", "fairness key"],
)
def test_what_can_not_be_written_is_refused_in_our_words(give: Callable[[], Any]) -> None:
    with pytest.raises(Refused, match="can't be written as UTF-8"):
        give()


def test_what_is_no_time_is_refused_in_our_words() -> None:
    with pytest.raises(Refused, match="Give a datetime"):
        quoted_time("yesterday")  # type: ignore[arg-type]
