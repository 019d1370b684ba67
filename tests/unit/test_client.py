"""A client: what it keeps for all who act through it."""

from __future__ import annotations

from tests.support.agents import nowhere


def test_a_client_for_another_person_shares_what_is_known_of_the_server_and_the_settings() -> None:
    client = nowhere()
    before = client.by
    bob = client.acting_as("Bob")
    assert (client.by, bob.by, bob.task_queue) == (before, "Bob", client.task_queue)
    assert bob.namespace is client.namespace
    assert bob._settings is client._settings
