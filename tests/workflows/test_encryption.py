"""Encryption, on a real server with a database file: what was said is nowhere in it, and all else works as before."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from temporalio.client import Client as TemporalClient

from everturn import Agent, Client, Encryption, Limits, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.testing import ScriptedModel, call, record_history, replay_history
from tests.support.agents import agent_on, hosting
from tests.support.operators import reset_to_the_last_workflow_task
from tests.support.shell import Shell
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting
from tests.ui.inbox import served

Scripted = Callable[..., ScriptedModel]

KEY, OTHER_KEY = b"k" * 32, b"o" * 32

PLACES = ["message", "argument", "result", "note", "reason", "error", "edit", "reply", "artifact", "stored"]
PLACES += ["agent", "by"]
"""Where something is said: each has a word of its own."""


class Secrets:
    """A word for each place, such as `note-3f9c...`, which stands nowhere else."""

    def __init__(self) -> None:
        self.words = {place: f"{place}{uuid4().hex}" for place in PLACES}

    def __getattr__(self, place: str) -> str:
        return self.words[place]

    def found_in(self, *folders: Path) -> set[str]:
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        assert files
        return {place for file in files for place, word in self.words.items() if word.encode() in file.read_bytes()}


@pytest.fixture(scope="module")
async def filed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A server with a database file, in a folder of its own."""
    async with DevServer(db_filename=tmp_path_factory.mktemp("db") / "temporal.db") as running:
        yield running


def agent_with(said: Secrets, scripted: Scripted) -> Agent:
    @tool(needs_approval=True)
    def look_up(name: str) -> str:
        return f"{name}: {said.result}"

    @tool
    def breaks() -> str:
        raise RuntimeError(said.error)

    @tool(effect="read", local=True, timeout=timedelta(seconds=5))
    def lists() -> str:
        return said.artifact * 200

    def reply(messages: list[dict[str, Any]]) -> Any:
        step = sum(message["role"] == "assistant" for message in messages)
        script = [
            call("look_up", {"name": said.argument}),
            call("look_up", {"name": "denied"}),
            call("breaks"),
            call("lists"),
            said.reply,
        ]
        return script[min(step, len(script) - 1)]

    model = scripted(reply)
    return agent_on(model, name=said.agent, tools=[look_up, breaks, lists], limits=Limits(max_result_chars=1_000))


async def talk(client: Client, agent: Agent, said: Secrets, *, folder: Path) -> str:
    """A conversation that says something in each place; its id."""
    async with hosting(client, agent, artifacts=folder / "artifacts", journals=folder / "journals"):
        conversation = await client.start(
            agent, said.message + "." * 300_000 + said.stored, id=f"talk-{uuid4().hex}", keep_open=timedelta(minutes=5)
        )
        [first] = await waiting(conversation)
        with pytest.raises(Exception, match="do not fit"):
            await _edit(conversation, first, said)
        await conversation.approve(first, {"name": said.argument}, note=said.note)
        second = await eventually(lambda: _another(conversation, first))
        await conversation.deny(second, reason=said.reason)
        assert await conversation.reply() == said.reply
        await conversation.close(said.reason)
        await conversation.outcome()
    return conversation.id


async def _edit(conversation: Any, call_id: str, said: Secrets) -> None:
    """Arguments that do not fit: the failure of the tool's activity quotes them."""
    await conversation.approve(call_id, {"name": {"not a text": said.edit}})
    status = await eventually(lambda: _refused(conversation))
    raise ValueError(status.waiting[0].why)


async def _refused(conversation: Any) -> Any:
    status = await conversation.status()
    return status if status.waiting and status.waiting[0].reason == "invalid_edit" else None


async def _another(conversation: Any, first: str) -> str:
    return next(
        (
            waiting_call.call_id
            for waiting_call in (await conversation.status()).waiting
            if waiting_call.call_id != first
        ),
        "",
    )


async def client_of(server: DevServer, said: Secrets, folder: Path, **options: Any) -> Client:
    return await Client.connect(
        server.address, task_queue=f"q-{uuid4().hex[:8]}", by=said.by, storage=folder / "stored", **options
    )


@pytest.mark.long
async def test_without_encryption_what_was_said_is_in_the_database(
    filed: DevServer, scripted: Scripted, tmp_path: Path
) -> None:
    """So the tests after this one can fail."""
    said = Secrets()
    await talk(await client_of(filed, said, tmp_path), agent_with(said, scripted), said, folder=tmp_path)
    assert filed.db_filename
    assert said.found_in(filed.db_filename.parent, tmp_path) == {*PLACES}


@pytest.mark.parametrize("visibility", ["full", "minimal"])
async def test_nothing_that_was_said_is_in_the_database_or_beside_it(
    filed: DevServer, scripted: Scripted, tmp_path: Path, visibility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_VISIBILITY", visibility)
    said = Secrets()
    client = await client_of(filed, said, tmp_path, encryption=Encryption({"key-1": KEY}))
    conversation = await talk(client, agent_with(said, scripted), said, folder=tmp_path)
    assert filed.db_filename
    for folder in (tmp_path / "artifacts", tmp_path / "stored"):
        assert any(file.is_file() for file in folder.rglob("*")), folder
    # Search attributes can't be encrypted: by them, conversations are listed by agent.
    assert said.found_in(filed.db_filename.parent, tmp_path) == ({"agent"} if visibility == "full" else set())
    history = await client.temporal.get_workflow_handle(conversation).fetch_history()
    for failed in (event.activity_task_failed_event_attributes.failure for event in history.events):
        assert failed.message in ("", "Encoded failure")
        assert failed.stack_trace == ""


@pytest.mark.long
async def test_everything_else_works_with_it(
    filed: DevServer, scripted: Scripted, tmp_path: Path, alone: Shell
) -> None:
    said = Secrets()
    encryption = Encryption({"key-1": KEY}, compression="zstd")
    client = await client_of(filed, said, tmp_path, encryption=encryption)
    agent = agent_with(said, scripted)
    conversation = client.conversation(await talk(client, agent, said, folder=tmp_path))
    transcript = await conversation.transcript()
    assert said.note in results_of(transcript)[0].text
    assert said.reason in results_of(transcript)[1].text
    assert said.error in results_of(transcript)[2].text
    events = [event async for event in conversation.events()]
    [closed] = [event for event in events if event.kind == "done"]
    assert closed
    assert any(said.edit in getattr(event, "cause", "") or said.edit in getattr(event, "why", "") for event in events)
    described = await client.temporal.get_workflow_handle(conversation.id).describe()
    assert await described.static_summary() != ""

    async def listed() -> bool:
        return (conversation.id, "done") in [
            (conversation.id, conversation.status) async for conversation in client.conversations(agent=said.agent)
        ]

    await eventually(listed, what="the index says that it is done")
    (file,) = await record_history(client, conversation.id, tmp_path / "recorded.json")
    assert said.message not in file.read_text()
    assert await replay_history(file, data_converter=client.temporal.data_converter) > 3
    async with hosting(client, agent, artifacts=tmp_path / "artifacts"):
        forked = await conversation.fork(at_turn=1)
        assert (await forked.transcript())[0].text.startswith(said.message)
        await forked.close()
        await forked.outcome()
        assert await client.send(agent, "And?", id=conversation.id)  # revived
        assert await conversation.reply() == said.reply
    # The command line, by its setting.
    alone.environment |= {
        "TEMPORAL_ADDRESS": filed.address,
        "EVERTURN_ENCRYPTION_KEYS": f"key-1:{b64encode(KEY).decode()}",
        "EVERTURN_STORAGE": str(tmp_path / "stored"),
    }
    assert said.reply in alone.run("export", conversation.id).stdout
    findings = {record["part"]: record for record in json.loads(alone.run("doctor", "--json").stdout)}
    assert findings["encryption"]["detail"] == "AES-GCM; key 'key-1' encrypts"
    del alone.environment["EVERTURN_ENCRYPTION_KEYS"]
    refused = alone.run("export", conversation.id)
    assert refused.returncode == 1
    assert "encrypted with the key 'key-1', which this process does not have" in refused.stderr


async def test_the_inbox_and_a_reset_work_with_it(filed: DevServer, scripted: Scripted, tmp_path: Path) -> None:
    said = Secrets()
    client = await client_of(filed, said, tmp_path, encryption=Encryption({"key-1": KEY}))

    @tool(needs_approval=True)
    def look_up(name: str) -> str:
        return f"{name}: {said.result}"

    def reply(messages: list[dict[str, Any]]) -> Any:
        return said.reply if messages[-1]["role"] == "tool" else call("look_up", {"name": said.argument}, id="c")

    agent = agent_on(scripted(reply), tools=[look_up])
    async with hosting(client, agent):
        conversation = await client.start(agent, said.message, keep_open=timedelta(minutes=5))
        [call_id] = await waiting(conversation)
        async with served(client) as address, httpx.AsyncClient(base_url=address, timeout=180) as web:
            about = {"conversation": conversation.id}
            shown = await web.get("/api/status", params=about)
            assert said.argument in shown.text
            given = {**about, "call_id": call_id, "note": said.note}
            decided = await web.post("/api/approve", json=given, headers={"origin": address})
            assert decided.status_code == 200, decided.text
            assert await conversation.reply() == said.reply
        await reset_to_the_last_workflow_task(client, conversation)
        assert await conversation.reply() == said.reply
        assert said.result in results_of(await conversation.transcript())[0].text
        await conversation.close()
        await conversation.outcome()
    assert filed.db_filename
    assert said.found_in(filed.db_filename.parent) == set()


async def test_conversations_of_before_go_on_and_stay_readable(
    filed: DevServer, scripted: Scripted, tmp_path: Path
) -> None:
    agent = agent_on(scripted(["First.", "Second.", "Third."]))
    before = await Client.connect(filed.address, task_queue=f"q-{uuid4().hex[:8]}")
    async with hosting(before, agent):
        old = await before.start(agent, "One", keep_open=timedelta(minutes=5))
        assert await old.reply() == "First."
    after = await Client.connect(
        filed.address, task_queue=before.task_queue, encryption=Encryption({"key-1": KEY, "key-0": OTHER_KEY})
    )
    async with hosting(after, agent) as worker:
        conversation = after.conversation(old.id)
        await conversation.send("Two")
        assert await conversation.reply() == "Second."
        assert worker.prefixes.misses == 0  # it has replayed what came before
        await old.send("Three")  # by a client that does not encrypt yet
        await eventually(lambda: _has_turns(conversation, 3))
        assert await conversation.reply() == "Third."
        assert [message.text for message in await conversation.transcript()] == [
            *("One", "First.", "Two", "Second.", "Three", "Third."),
        ]
        with pytest.raises(InvalidSetting, match="the key 'key-1', which this process does not have"):
            await old.transcript()
        rotated = await Client.connect(filed.address, encryption=Encryption({"key-2": b"2" * 32, "key-0": OTHER_KEY}))
        with pytest.raises(InvalidSetting, match=r"the key 'key-1'.* It has 'key-2', 'key-0'"):
            await rotated.conversation(old.id).transcript()
        await conversation.close()
        await conversation.outcome()


async def _has_turns(conversation: Any, turns: int) -> bool:
    return bool((await conversation.status()).turn == turns)


async def test_a_worker_without_the_key_says_which_and_one_that_has_it_goes_on(
    filed: DevServer, scripted: Scripted
) -> None:
    agent, queue = agent_on(scripted(["Done."])), f"q-{uuid4().hex[:8]}"
    client = await Client.connect(filed.address, task_queue=queue, encryption=Encryption({"key-1": KEY}))
    lacking = await Client.connect(filed.address, task_queue=queue, encryption=Encryption({"key-2": OTHER_KEY}))
    conversation = await client.start(agent, "Hi")
    handle = lacking.temporal.get_workflow_handle(conversation.id)

    async def failures() -> str:
        history = await handle.fetch_history()
        return "".join(str(event.workflow_task_failed_event_attributes.failure) for event in history.events)

    async with hosting(lacking, agent):
        await eventually(failures, what="its workflow task fails")
    async with hosting(client, agent):
        assert (await conversation.outcome()).text == "Done."


@pytest.mark.parametrize("ours", [True, False], ids=["our-converter", "temporals-converter"])
async def test_a_client_without_the_key_is_told_which_it_lacks(
    ours: bool, filed: DevServer, scripted: Scripted
) -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"{amount} paid"

    agent = agent_on(scripted([call("pay", {"amount": 5}), "Done."]), tools=[pay])
    queue = f"q-{uuid4().hex[:8]}"
    client = await Client.connect(filed.address, task_queue=queue, encryption=Encryption({"key-1": KEY}))
    plain = (
        await Client.connect(filed.address, task_queue=queue)
        if ours
        else Client(await TemporalClient.connect(filed.address), task_queue=queue)
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await waiting(conversation)
        keyless = plain.conversation(conversation.id)
        for ask in (keyless.status, keyless.transcript, keyless.reply):
            with pytest.raises(InvalidSetting, match="'key-1'"):
                await ask()
        with pytest.raises(InvalidSetting, match="The approve was carried out") as raised:
            await keyless.approve()
        assert "EVERTURN_ENCRYPTION_KEYS" in raised.value.cure
        assert await conversation.reply() == "Done."


async def test_a_summary_in_any_letters_fits_with_what_encryption_adds(filed: DevServer, scripted: Scripted) -> None:
    @tool
    def look_up(what: str) -> str:
        return "答え"

    agent = agent_on(scripted([call("look_up", {"what": "語" * 300}), "Done."]), tools=[look_up])
    client = await Client.connect(
        filed.address, task_queue=f"q-{uuid4().hex[:8]}", encryption=Encryption({"k" * 40: KEY}, compression="zstd")
    )
    async with hosting(client, agent):
        assert (await client.run(agent, "語" * 300)).text == "Done."
