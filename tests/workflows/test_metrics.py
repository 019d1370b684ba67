"""A worker's numbers, read as Prometheus reads them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.settings import Settings
from everturn.testing import ScriptedModel, call, fail
from everturn.worker.metrics import expose

AGENTS = """
from everturn import Agent, Model, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

clerk = Agent("clerk", model=Model("scripted:demo", base_url={url!r}), tools=[add])
"""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def read(metrics: str) -> dict[str, float]:
    """Ours, by name and the labels that tell them apart."""
    found = {}
    for name, labels, value in re.findall(r"^(everturn_\w+)\{(.*)\} (\S+)$", metrics, re.MULTILINE):
        kept = re.findall(r'(agent|tool|outcome|kind|activity)="(\w+)"', labels)
        found[" ".join([name, *(value for _, value in kept)])] = float(value)
    return found


async def test_a_worker_shows_what_it_does(server: DevServer, client: Client, tmp_path: Path) -> None:
    address = f"localhost:{free_port()}"
    replies = [call("add", {"a": 1, "b": 2}), fail(503, headers={"retry-after": "0"}), call("add", {"a": 3, "b": 4})]
    with ScriptedModel([*replies, call("nosuch"), "Done."]) as model:
        file = tmp_path / "agents.py"
        file.write_text(AGENTS.format(url=model.base_url))
        environment = {
            **os.environ,
            "TEMPORAL_ADDRESS": server.address,
            "EVERTURN_TASK_QUEUE": client.task_queue,
            "EVERTURN_AGENTS": str(file),
            "EVERTURN_METRICS": address,
        }
        with subprocess.Popen([sys.executable, "worker.py"], env=environment, cwd=Path(__file__).parents[2]) as worker:
            try:
                conversation = await client.start("clerk", "Add")
                assert await conversation.reply() == "Done."
                async with httpx.AsyncClient() as http:
                    metrics = (await http.get(f"http://{address}/metrics")).text
            finally:
                worker.terminate()
    found = read(metrics)
    assert found.pop("everturn_prefix_cache_bytes") > 0
    assert found.pop("everturn_tokens clerk input") > 0
    assert found.pop("everturn_tokens clerk output") > 0
    assert found.pop("everturn_tokens clerk cached", 0) == 0
    assert found == {
        "everturn_turns clerk ok": 4,
        "everturn_turns clerk retried": 1,
        "everturn_tool_calls clerk ok add": 2,
        "everturn_retries call_model": 1,
        "everturn_prefix_cache_hits": 4,
        "everturn_prefix_cache_misses": 0,
    }
    assert f'task_queue="{client.task_queue}"' in metrics
    assert "temporal_activity_execution_latency" in metrics


@pytest.mark.parametrize("address", ["8080", "http://localhost:8080", "localhost:port"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("EVERTURN_METRICS", address)
    with pytest.raises(InvalidSetting, match="EVERTURN_METRICS"):
        Settings.load()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidSetting, match=f"{address}.*in use.*EVERTURN_METRICS"):
            expose(address)
