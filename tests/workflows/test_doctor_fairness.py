"""`everturn doctor --fairness`: what a real server does, and not what it is set to."""

from __future__ import annotations

import json

import pytest
from temporalio.client import WorkflowExecutionStatus

from everturn import Client
from everturn.cli.doctor_fairness import WORKFLOW
from everturn.devserver import FAIR, DevServer
from tests.support.shell import Shell
from tests.support.waiting import eventually

FIRST_COME = {"matching.useNewMatcher": "false", "matching.enableFairness": "false"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "priorities", "fairness"),
    [(FAIR, "ok", "ok"), ({}, "ok", "note"), (FIRST_COME, "note", "note")],
    ids=["fair", "as it comes", "first come, first served"],
)
async def test_it_says_what_counts(settings: dict[str, str], priorities: str, fairness: str, alone: Shell) -> None:
    async with DevServer(dynamic_config=settings) as server:
        alone.environment |= {"TEMPORAL_ADDRESS": server.address}
        findings = {record["part"]: record for record in json.loads(alone.run("doctor", "--fairness", "--json").stdout)}
        client = await Client.connect(server.address)

        async def ended() -> bool:
            left = [workflow async for workflow in client.temporal.list_workflows(f"WorkflowType = '{WORKFLOW}'")]
            return len(left) == 4 and all(one.status is WorkflowExecutionStatus.TERMINATED for one in left)

        await eventually(ended, what="nothing of it goes on")
    assert (findings["priorities"]["state"], findings["fairness"]["state"]) == (priorities, fairness)
    for one in (findings["priorities"], findings["fairness"]):
        assert bool(one["cure"]) == (one["state"] == "note")


async def test_unless_it_is_asked_for_it_says_that_it_is_not_known(server: DevServer, alone: Shell) -> None:
    alone.environment |= {"TEMPORAL_ADDRESS": server.address}
    findings = {record["part"]: record for record in json.loads(alone.run("doctor", "--json").stdout)}
    assert findings["fairness"]["state"] == "note"
    assert "everturn doctor --fairness" in findings["fairness"]["cure"]
