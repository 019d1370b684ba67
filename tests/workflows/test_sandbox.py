"""everturn in a user's own workflow file, which Temporal loads in its sandbox."""

from __future__ import annotations

import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.worker import Worker

import everturn
from everturn import Client
from tests.support.doc_pages import PAGES
from tests.workflows.sandboxed import Mine, agent

MODULES = [
    found.name
    for found in pkgutil.walk_packages(everturn.__path__, "everturn.")
    if not found.name.endswith(".__main__")  # programs
]

DOCUMENTED_IMPORT = r"^from everturn\.\S+ import (?:\([^)]*\)|[^(\n]+)$|^import everturn\..+$"

DOCUMENTED = sorted(
    {line.strip() for page in PAGES for line in re.findall(DOCUMENTED_IMPORT, page.read_text(), re.MULTILINE)}
)

WORKFLOW = """\
import sys

from temporalio import workflow

{imports}

@workflow.defn(name="Mine")
class Mine:
    @workflow.run
    async def run(self) -> dict[str, int]:
        return {{name: id(module) for name, module in sys.modules.items() if name.startswith("everturn.")}}
"""


async def test_a_users_sandboxed_workflow_file_may_define_agents_and_tools(client: Client) -> None:
    queue = f"mine-{uuid4().hex}"
    async with Worker(client.temporal, task_queue=queue, workflows=[Mine]):
        said = await client.temporal.execute_workflow(Mine.run, "says", id=queue, task_queue=queue)
    assert said == "clerk says ToolFailed"
    assert isinstance(agent, everturn.Agent)


@pytest.mark.parametrize(
    "imports", [DOCUMENTED, [f"import {name}" for name in MODULES]], ids=["documented", "every module"]
)
async def test_a_sandboxed_workflow_file_may_import_every_module_and_gets_the_process_s(
    client: Client, imports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(imports) > 10
    module = f"sandboxed_{uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(WORKFLOW.format(imports="\n".join(imports)))
    monkeypatch.syspath_prepend(tmp_path)
    mine = import_module(module).Mine
    async with Worker(client.temporal, task_queue=module, workflows=[mine]):
        found = await client.temporal.execute_workflow("Mine", id=module, task_queue=module)
    wanted = {re.split(r"\s", line)[1] for line in imports}
    assert wanted <= found.keys()
    copies = [name for name, identity in found.items() if identity != id(sys.modules[name])]
    assert copies == []


PASSED = """\
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from everturn import Agent
{top}

@workflow.defn(name="Mine")
class Mine:
    @workflow.run
    async def run(self) -> int:
        {inside}
        return id({ask})
"""


@pytest.mark.parametrize(
    ("top", "inside", "ask"),
    [
        ("from everturn.workflow import ask", "pass", "ask"),
        pytest.param(
            "",
            "from everturn.workflow import ask",
            "ask",
            # The SDK's, of each plain import in a run that is a module's first in this sandbox.
            marks=pytest.mark.filterwarnings(
                "ignore:Module everturn.workflow was imported after initial workflow load"
            ),
        ),
    ],
)
async def test_a_file_that_passes_everturn_through_may_import_its_modules_plainly(
    client: Client, top: str, inside: str, ask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"sandboxed_{uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(PASSED.format(top=top, inside=inside, ask=ask))
    monkeypatch.syspath_prepend(tmp_path)
    mine = import_module(module).Mine
    async with Worker(
        client.temporal, task_queue=module, workflows=[mine], workflow_failure_exception_types=[Exception]
    ):
        found = await client.temporal.execute_workflow("Mine", id=module, task_queue=module)
    assert found == id(everturn.workflow.ask)
