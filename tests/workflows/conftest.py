"""What tests of the command line share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.temporal.namespace import Namespace
from everturn.testing import ScriptedModel
from tests.support.shell import TOOLS, Shell
from tests.support.tenant_budgets import replays


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """A shell where no Temporal is configured."""
    (tmp_path / "tools.py").write_text(TOOLS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    return Shell(tmp_path, {**kept, "XDG_STATE_HOME": str(tmp_path / "state")})


@pytest.fixture
def shell(alone: Shell, server: DevServer) -> Shell:
    alone.environment |= {"TEMPORAL_ADDRESS": server.address, "EVERTURN_TASK_QUEUE": f"cli-{uuid4().hex[:8]}"}
    return alone


@pytest.fixture
def model(alone: Shell, scripted: Callable[..., ScriptedModel]) -> Callable[[Any], None]:
    def serve(script: Any) -> None:
        alone.environment["SCRIPTED_BASE_URL"] = scripted(script).base_url

    return serve


class _Forgetful(Namespace):
    async def retention(self) -> float:
        return 1.0


@pytest.fixture
def forgetful(client: Client) -> None:
    """Workers believe that histories are deleted a second after their run, and keep what they need of them in time."""
    client.namespace = _Forgetful(client.temporal)


@pytest.fixture
def name() -> str:
    return f"cli-{uuid4().hex[:8]}"


@pytest.fixture
async def tenant(client: Client) -> AsyncIterator[str]:
    """One that no other test has. Afterwards, the runs of its budget are replayed."""
    name = f"acme-{uuid4().hex[:8]}"
    yield name
    await replays(client, name)
