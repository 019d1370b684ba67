"""A worker's numbers, read as Prometheus reads them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.settings import Settings
from everturn.testing import ScriptedModel, call, fail
from everturn.worker.metrics import expose
from tests.support.ports import free_port
from tests.support.prepared import Program
from tests.support.waiting import eventually

AGENTS = """
from everturn import Agent, Model, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

clerk = Agent("clerk", model=Model("scripted:demo", base_url={url!r}), tools=[add])
"""


DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy/grafana-dashboard.json").read_text())


def queries_of(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def names_in(dashboard: dict[str, Any]) -> set[str]:
    asked = re.findall(r"\b(?:everturn|gen_ai_client|temporal)_\w+(?=[\[{)])", " ".join(queries_of(dashboard)))
    agents = dashboard["templating"]["list"][1]["query"]["query"]
    return {*asked, *re.findall(r"label_values\((\w+),", agents)}


def labels_in(dashboard: dict[str, Any]) -> set[str]:
    told = " ".join(queries_of(dashboard))
    grouped = {label for found in re.findall(r"by \((.*?)\)", told) for label in found.split(", ")}
    return grouped | set(re.findall(r"(\w+)(?:=~|!=|=)\"", told))


def gen_ai(metrics: str, name: str) -> dict[str, float]:
    """By operation, model, and what else tells them apart."""
    found = {}
    for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", metrics, re.MULTILINE):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        wanted = ("operation_name", "request_model", "tool_name", "token_type")
        parts = [*(told.get(f"gen_ai_{one}", "") for one in wanted), told.get("error_type", "")]
        found[" ".join(filter(None, parts))] = float(value)
    return found


def read(metrics: str) -> dict[str, float]:
    """Ours, by name and the labels that tell them apart."""
    found = {}
    for name, labels, value in re.findall(r"^(everturn_\w+)\{(.*)\} (\S+)$", metrics, re.MULTILINE):
        kept = re.findall(r'(agent|tool|tenant|outcome|kind|activity)="(\w+)"', labels)
        found[" ".join([name, *(value for _, value in kept)])] = float(value)
    return found


@asynccontextmanager
async def worked(server: DevServer, client: Client, folder: Path) -> AsyncIterator[str]:
    """Where a worker process shows its numbers, after a conversation."""
    address = f"localhost:{free_port()}"
    replies = [call("add", {"a": 1, "b": 2}), fail(503, headers={"retry-after": "0"}), call("add", {"a": 3, "b": 4})]
    with ScriptedModel([*replies, call("nosuch"), *["Done."] * 3], order="arrival") as model:
        file = folder / "agents.py"
        file.write_text(AGENTS.format(url=model.base_url))
        environment = {
            **os.environ,
            "TEMPORAL_ADDRESS": server.address,
            "EVERTURN_TASK_QUEUE": client.task_queue,
            "EVERTURN_AGENTS": str(file),
            "EVERTURN_METRICS": address,
            "EVERTURN_TENANTS_IN_METRICS": "1",
        }
        with Program("worker.py", env=environment, cwd=Path(__file__).parents[2]) as worker:
            try:
                conversation = await client.start("clerk", "Add")
                assert await conversation.reply() == "Done."
                for tenant in ("acme", "beta"):
                    await client.run("clerk", "Add", tenant=tenant)
                yield address
            finally:
                worker.terminate()


async def test_a_worker_shows_what_it_does(server: DevServer, client: Client, tmp_path: Path) -> None:
    async with worked(server, client, tmp_path) as address, httpx.AsyncClient(timeout=180) as http:
        metrics = (await http.get(f"http://{address}/metrics")).text
    found = read(metrics)
    assert found.pop("everturn_prefix_cache_bytes") > 0
    assert found.pop("everturn_tokens_total clerk input") > 0
    assert found.pop("everturn_tokens_total clerk output") > 0
    assert found.pop("everturn_tokens_total clerk cached", 0) == 0
    for tenant in ("acme", "other"):  # so many have a label of their own, and no more
        assert found.pop(f"everturn_tokens_total clerk input {tenant}") > 0
        assert found.pop(f"everturn_tokens_total clerk output {tenant}") > 0
        assert found.pop(f"everturn_tokens_total clerk cached {tenant}", 0) == 0
    assert found == {
        "everturn_turns_total clerk ok": 4,
        "everturn_turns_total clerk ok acme": 1,
        "everturn_turns_total clerk ok other": 1,
        "everturn_turns_total clerk retried": 1,
        "everturn_tool_calls_total clerk ok add": 2,
        "everturn_retries_total call_model": 1,
        "everturn_prefix_cache_hits_total": 4,
        "everturn_prefix_cache_misses_total": 0,
    }
    assert f'task_queue="{client.task_queue}"' in metrics
    assert "temporal_activity_execution_latency" in metrics
    assert gen_ai(metrics, "gen_ai_client_operation_duration_seconds_count") == {
        "chat demo": 6,
        "chat demo Unavailable": 1,
        "execute_tool demo add": 2,
    }
    assert gen_ai(metrics, "gen_ai_client_token_usage_count") == {"chat demo input": 6, "chat demo output": 6}
    assert "gen_ai_client_operation_duration_seconds_bucket" in metrics
    assert ',le="81.92"}' in metrics
    unknown = [name for name in sorted(names_in(DASHBOARD)) if not re.search(rf"^{name}\{{", metrics, re.MULTILINE)]
    assert unknown == [], "the dashboard shows what no worker has"
    labels = set(re.findall(r'[{,](\w+)="', metrics)) | {"instance"}  # which Prometheus itself adds
    assert labels_in(DASHBOARD) <= labels


PROMETHEUS = shutil.which("prometheus")


@pytest.mark.long
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
async def test_prometheus_has_something_to_show_in_each_panel_of_the_dashboard(
    server: DevServer, client: Client, tmp_path: Path
) -> None:
    assert PROMETHEUS
    at = f"127.0.0.1:{free_port()}"
    async with worked(server, client, tmp_path) as address:
        scrapes = [{"job_name": "everturn", "scrape_interval": "500ms", "static_configs": [{"targets": [address]}]}]
        config = tmp_path / "prometheus.yml"
        config.write_text(json.dumps({"scrape_configs": scrapes}))  # which is YAML, too
        command = [PROMETHEUS, f"--config.file={config}", f"--web.listen-address={at}", "--log.level=warn"]
        with subprocess.Popen([*command, f"--storage.tsdb.path={tmp_path / 'data'}"]) as prometheus:
            try:
                async with httpx.AsyncClient(base_url=f"http://{at}", timeout=180) as http:

                    async def shown(query: str) -> bool:
                        try:
                            said = await http.get("/api/v1/query", params={"query": query})
                        except httpx.TransportError:
                            return False  # it is yet to start
                        if said.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                            return False  # likewise
                        answer = said.json()
                        assert answer["status"] == "success", answer
                        return bool(answer["data"]["result"])

                    for query in queries_of(DASHBOARD):
                        asked = query.replace("$agent", "clerk").replace("$__rate_interval", "1m")
                        await eventually(lambda asked=asked: shown(asked), what=query)
            finally:
                prometheus.terminate()


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
