"""A namespace that does not exist is said in one line, with what to do."""

from __future__ import annotations

import asyncio
import json

import pytest

from everturn import Agent, Client, Worker
from everturn.devserver import DevServer
from everturn.errors import Unreachable
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
    wrong = [one for one in json.loads(done.stdout) if one["state"] == "wrong"]
    assert [one["part"] for one in wrong] == ["namespace"]
    assert TOLD in f"{wrong[0]['detail']} {wrong[0]['cure']}"


async def test_a_worker_in_a_program_says_so(server: DevServer) -> None:
    client = await Client.connect(server.address, namespace="nope")
    with pytest.raises(Unreachable, match="has no namespace 'nope'"):
        await asyncio.wait_for(Worker(client, agents=[Agent("desk", model="scripted:demo")]).run(), 60)
