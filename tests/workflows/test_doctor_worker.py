"""`everturn doctor --worker`: what the settings of an application's own worker cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from everturn.cli.doctor_worker import worker_findings
from everturn.devserver import DevServer

PROGRAM = """
from temporalio.client import Client
from temporalio.worker import Worker
from everturn import Agent, EverturnPlugin

async def made(**options):
    client = await Client.connect({address!r})
    return Worker(client, task_queue="shop", **options)

def plugins():
    return [EverturnPlugin(agents=[Agent("clerk", model="scripted:demo")])]

async def good():
    return await made(plugins=plugins())

async def slow():
    return await made(plugins=plugins(), max_cached_workflows=2, disable_eager_activity_execution=True)

async def without():
    return await made(workflows=[__import__("tests.workflows.application").workflows.application.Checkout])

async def broken():
    raise KeyError("DATABASE_URL")

def other():
    return 3
"""


@pytest.fixture
def program(server: DevServer, tmp_path: Path) -> Path:
    file = tmp_path / "shop_worker.py"
    file.write_text(PROGRAM.format(address=server.address))
    return file


async def test_it_names_each_setting_that_costs_something(program: Path) -> None:
    assert [finding.state for finding in await worker_findings(f"{program}:good")] == ["ok"]
    findings = await worker_findings(f"{program}:slow")
    assert [(finding.state, finding.detail.partition(":")[0]) for finding in findings] == [
        ("note", "max_cached_workflows=2"),
        ("note", "disable_eager_activity_execution=True"),
    ]
    assert all(finding.cure for finding in findings)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("without", "hosts no agents"),
        ("broken", "KeyError('DATABASE_URL')"),
        ("other", "is a int"),
        ("nothing", "There is no 'nothing'"),
    ],
)
async def test_it_says_what_is_wrong_with_what_is_no_such_worker(program: Path, name: str, said: str) -> None:
    (finding,) = await worker_findings(f"{program}:{name}")
    assert finding.state == "wrong"
    assert said in finding.detail
    assert finding.cure
