"""examples/application: an application with a workflow, an activity, an interceptor, an encrypting data converter and
OpenTelemetry of its own, with one line added."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import temporalio.client
from temporalio.client import WorkflowExecutionStatus

from everturn import Client, Conversation
from everturn.devserver import DevServer
from everturn.errors import Unreachable
from everturn.testing import ScriptedModel, call
from tests.support.operators import reset_to_the_last_workflow_task
from tests.support.otlp import Receiver
from tests.support.prepared import Program
from tests.support.shell import Shell
from tests.support.waiting import eventually, waiting
from tests.ui.inbox import served

Scripted = Callable[..., ScriptedModel]

FOLDER = Path(__file__).parents[2] / "examples" / "application"

KEY = "5e" * 32

SECRET = "a lamp for order"

ITS_ENVIRONMENT = {
    **{name: text for name, text in os.environ.items() if name.startswith(("HOME", "TMPDIR", "LANG", "LC_", "PY"))},
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "MODEL": "scripted:demo",
}


@asynccontextmanager
async def running(*command: str, log: Path, **environment: str) -> AsyncIterator[Program]:
    """A program of the application's folder, as its developers run it."""
    with log.open("wb") as written:
        program = Program(*command, cwd=FOLDER, env={**ITS_ENVIRONMENT, **environment}, stdout=written, stderr=written)
    try:
        yield program
    finally:
        program.kill()
        await asyncio.to_thread(program.wait, 60)


async def test_its_own_tests_pass_in_the_sandbox_with_time_skipped() -> None:
    command = [sys.executable, "-m", "pytest", "test_shop.py", "-n0", "-q", "-p", "no:cacheprovider"]
    options: dict[str, Any] = {"cwd": FOLDER, "env": ITS_ENVIRONMENT, "capture_output": True, "text": True}
    done = await asyncio.to_thread(subprocess.run, command, timeout=180, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout or "100%" in done.stdout


@pytest.fixture
async def company(server: DevServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client with the company's data converter, as its other programs have it."""
    monkeypatch.setenv("COMPANY_KEY", KEY)
    monkeypatch.syspath_prepend(str(FOLDER))
    from company import converter

    return await temporalio.client.Client.connect(server.address, data_converter=converter())


async def test_workflow_and_conversation_run_side_by_side_with_all_that_it_has(
    server: DevServer, scripted: Scripted, company: temporalio.client.Client, tmp_path: Path, alone: Shell
) -> None:
    from shop import Checkout, Order

    queue, log = f"shop-{uuid4().hex[:8]}", tmp_path / "worker.log"

    def reply(messages: list[dict[str, Any]]) -> Any:
        done = sum(message["role"] == "tool" for message in messages)
        return [call("look_up", {"order_id": "81"}), call("refund", {"order_id": "81", "cents": 5}), SECRET][
            min(done, 2)
        ]

    with Receiver() as receiver:
        environment = {
            "TEMPORAL_ADDRESS": server.address,
            "SHOP_QUEUE": queue,
            "COMPANY_KEY": KEY,
            "SCRIPTED_BASE_URL": scripted(reply).base_url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "EVERTURN_TRACES": "on",
        }
        client = Client(company, task_queue=queue, by="ada")
        async with running("shop_worker.py", log=log, **environment) as first:
            checkout = await company.start_workflow(
                Checkout.run, Order("81", 3490), id=f"checkout-{queue}", task_queue=queue
            )
            conversation = await client.start("clerk", f"I want {SECRET} 81", keep_open=timedelta(minutes=5))
            await eventually(lambda: _answers(conversation), seconds=60)
            [call_id] = await waiting(conversation)
            await eventually(lambda: f"audit: checkout-{queue} charge" in log.read_text())
            first.kill()  # in the middle: both go on with the next one
            await asyncio.to_thread(first.wait, 60)
        async with running("shop_worker.py", log=tmp_path / "second.log", **environment) as second:
            await eventually(lambda: _answers(conversation), seconds=60)
            await _approve_in_the_inbox(client, conversation, call_id)
            assert await conversation.reply() == SECRET
            await reset_to_the_last_workflow_task(client, conversation)
            assert await conversation.reply() == SECRET
            forked = await conversation.fork(at_turn=1)
            [again] = await waiting(forked)
            await forked.deny(again)
            assert await forked.reply() == SECRET
            for one in (conversation, forked):
                await one.close()
                assert (await one.outcome()).text == SECRET
            assert (await checkout.describe()).status is WorkflowExecutionStatus.RUNNING, "it waits for two weeks"
            second.terminate()
            assert await asyncio.to_thread(second.wait, 180) == 0, (tmp_path / "second.log").read_text()
    audited = log.read_text() + (tmp_path / "second.log").read_text()
    for name in ("call_model", "look_up", "refund"):
        assert f"audit: {conversation.id} {name}" in audited
    alone.environment |= {
        "TEMPORAL_ADDRESS": server.address,
        "COMPANY_KEY": KEY,
        "EVERTURN_TASK_QUEUE": queue,
        "EVERTURN_DATA_CONVERTER": f"{FOLDER / 'company.py'}:Encrypting",
    }
    exported = alone.run("export", conversation.id)
    assert SECRET in exported.stdout, exported.stderr
    for one in (conversation.id, forked.id, checkout.id):
        history = (await company.get_workflow_handle(one).fetch_history()).to_json()
        assert SECRET not in history
        assert "binary/company" in history or "YmluYXJ5L2NvbXBhbnk=" in history
    await checkout.terminate()
    names = {span.name for span in receiver.spans}
    assert {"invoke_agent clerk", "execute_tool look_up", "await_approval refund"} <= names, "everturn's"
    assert {"StartActivity:charge", "RunActivity:charge"} <= names, "Temporal's, by the application's plugin"
    ids = [span.span_id for span in receiver.spans if span.scope == "everturn"]
    assert len(ids) == len({*ids}), "nothing is said twice"


async def _answers(conversation: Conversation) -> bool:
    """Its worker has started."""
    try:
        return bool((await conversation.status()).state)
    except Unreachable:
        return False


async def _approve_in_the_inbox(client: Client, conversation: Conversation, call_id: str) -> None:
    async with served(client) as address, httpx.AsyncClient(base_url=address, timeout=180) as web:
        said = await web.get("/api/status", params={"conversation": conversation.id})
        assert SECRET in said.text or call_id in said.text, said.text
        given = {"conversation": conversation.id, "call_id": call_id}
        decided = await web.post("/api/approve", json=given, headers={"origin": address})
        assert decided.status_code == 200, decided.text
