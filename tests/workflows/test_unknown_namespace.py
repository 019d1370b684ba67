"""A namespace that does not exist is said in one line, with what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from everturn import Agent, Client, Worker
from everturn.devserver import DevServer
from everturn.errors import Unreachable
from everturn.exporting.reading import read_conversation
from everturn.testing import ScriptedModel
from everturn.testing.replay import read_histories
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell

AGENTS = """
from everturn import Agent

desk = Agent("desk", model="scripted:demo")
"""
TOLD = "has no namespace 'nope'. Check TEMPORAL_NAMESPACE, or make it: temporal operator namespace create"


def test_a_worker_does_not_start(shell: Shell) -> None:
    (shell.folder / "desk.py").write_text(AGENTS)
    shell.environment["TEMPORAL_NAMESPACE"] = "nope"
    done = shell.run("worker", "--agents", "desk.py")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert TOLD in done.stderr


def test_the_doctor_says_what_to_do_once(shell: Shell) -> None:
    shell.environment["TEMPORAL_NAMESPACE"] = "nope"
    done = shell.run("doctor", "--json")
    wrong = [record for record in json.loads(done.stdout) if record["state"] == "wrong"]
    assert [one["part"] for one in wrong] == ["namespace"]
    assert TOLD in f"{wrong[0]['detail']} {wrong[0]['cure']}"


async def test_a_worker_in_a_program_says_so(server: DevServer) -> None:
    client = await Client.connect(server.address, namespace="nope")
    with pytest.raises(Unreachable, match="has no namespace 'nope'"):
        await asyncio.wait_for(Worker(client, agents=[Agent("desk", model="scripted:demo")]).run(), 60)


async def test_nothing_is_taken_for_gone_or_over_because_the_namespace_is_missing(server: DevServer) -> None:
    """The status is the one for a conversation that is not there, and a server short of CPU gives it in passing."""
    client = await Client.connect(server.address, namespace="nope")
    desk = Agent("desk", model="scripted:demo")
    there = client.conversation("there")
    calls: list[Callable[[], Any]] = [
        there.status,
        there.outcome,
        there.transcript,
        there.approve,
        there.cancel_turn,
        lambda: client.erase("there"),
        lambda: there.fork(1),
        lambda: there.send("Hello"),
        lambda: client.run(desk, "Hello", id="there"),
        lambda: client.send(desk, "Hello", id="there"),
        lambda: client.budget("acme"),
        lambda: client.set_budget("acme", None),
        lambda: client.approve_all(ids=["there"]),
        lambda: read_conversation(client, "there"),
        lambda: read_histories(client, "there"),
    ]
    for call in calls:
        with pytest.raises(Unreachable, match="has no namespace 'nope'"):
            await asyncio.wait_for(call(), 60)


async def test_who_follows_outlasts_a_namespace_that_is_missing_in_passing(
    client: Client, scripted: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = await Client.connect(client.temporal.service_client.config.target_host, namespace="nope")
    with pytest.raises(RPCError) as missing:
        await elsewhere.temporal.get_workflow_handle("there").describe()
    assert missing.value.grpc_status.details[0].Is(NamespaceNotFoundFailure.DESCRIPTOR)
    fetch = WorkflowHandle.fetch_history_events
    failures = [missing.value, missing.value]

    async def failing() -> AsyncIterator[Any]:
        raise failures.pop()
        yield

    def fetch_after_failures(self: Any, **options: Any) -> Any:
        if failures and options.get("wait_new_event"):
            return failing()
        return fetch(self, **options)

    async with hosting(client, agent := agent_on(scripted(["Done."]))):
        monkeypatch.setattr(WorkflowHandle, "fetch_history_events", fetch_after_failures)
        assert (await client.run(agent, "Hello")).text == "Done."
    assert not failures
