"""Large payloads in external storage: a directory, and a real S3 server. The history holds references only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext
from temporalio.worker import Replayer

from everturn import Client, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.storage.external import DirectoryDriver, open_storage
from everturn.testing import ScriptedModel, call
from everturn.workflows.conversation import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]

LARGE = "語" * 120_000  # 360 KB: over the SDK's 256 KiB, under what a message may have


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """A real S3 server with a bucket; the address."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket="payloads")
    yield address
    server.stop()


@pytest.fixture(params=["directory", "s3"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "payloads")
    for name, value in {
        "AWS_ENDPOINT_URL_S3": request.getfixturevalue("s3"),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return "s3://payloads"


@pytest.mark.long
async def test_a_conversation_with_large_payloads_runs_and_is_read(
    server: DevServer, client: Client, scripted: Scripted, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def dump(text: str) -> str:
        return text + LARGE

    monkeypatch.setenv("EVERTURN_STORAGE", storage)
    stores = await Client.connect(server.address, task_queue=f"{client.task_queue}-stored", by="tester")
    monkeypatch.delenv("EVERTURN_STORAGE")
    script = [call("dump", {"text": "first"}), call("dump", {"text": LARGE}), "Done.", "Again."]
    agent = agent_on(scripted(script), tools=[dump])
    async with hosting(stores, agent) as worker:
        conversation = await stores.start(agent, LARGE)
        assert (await conversation.outcome()).text == "Done."
    history = await stores.temporal.get_workflow_handle(conversation.id).fetch_history()
    events = [event async for event in conversation.events()]
    # Whoever lacks the setting is told so, and is not shown a conversation with holes.
    without = client.conversation(conversation.id)
    with pytest.raises(InvalidSetting, match=r"external storage.*Set EVERTURN_STORAGE"):
        await without.transcript()

    async with hosting(stores, agent) as second:  # reads the history to go on
        await stores.send(agent, "And?", id=conversation.id)
        assert (await conversation.outcome()).text == "Again."
        assert second.prefixes.misses == 1
    assert worker.prefixes.misses == 0

    transcript = await conversation.transcript()
    assert transcript[0].text == LARGE
    assert [len(result.text) for result in results_of(transcript)] == [120_005, 200_000 + len(cut_notice(transcript))]
    (first, _) = (event.result for event in events if event.kind == "tool_finished")
    assert first.text == f"first{LARGE}"
    assert max(event.ByteSize() for event in history.events) < 100_000
    replayer = Replayer(
        workflows=[ConversationWorkflow],
        data_converter=stores.temporal.data_converter,
    )
    await replayer.replay_workflow(history)


async def test_what_is_stored_goes_with_its_conversation_and_no_other_ones(
    server: DevServer, scripted: Scripted, storage: str
) -> None:
    stores = await Client.connect(server.address, task_queue=f"stored-{uuid4().hex[:8]}", storage=storage)
    agent = agent_on(scripted(lambda _: "Done."))
    async with hosting(stores, agent):
        first, second = [await stores.start(agent, LARGE) for _ in range(2)]
        for one in (first, second):
            await one.outcome()
    erased = await stores.erase(first.id)
    assert (erased.runs, erased.left) == (1, ())
    assert erased.payloads >= 1
    assert (await second.transcript())[0].text == LARGE  # the same text, and an object of its own
    assert (await stores.erase(first.id)).payloads == 0


def cut_notice(transcript: Any) -> str:
    return str(results_of(transcript)[1].text[200_000:])


async def test_a_worker_without_the_setting_says_so_and_another_goes_on(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    stores = await Client.connect(server.address, task_queue=f"{client.task_queue}-stored", storage=tmp_path)
    agent = agent_on(scripted(["Done."]))
    conversation = await stores.start(agent, LARGE)

    async def failure() -> str:
        handle = client.temporal.get_workflow_handle(conversation.id)
        causes = [
            event.workflow_task_failed_event_attributes.failure.message
            for event in (await handle.fetch_history()).events
        ]
        return "".join(causes)

    async with hosting(client, agent, task_queue=stores.task_queue):
        said = await eventually(failure)
    assert "externally stored payload" in said
    async with hosting(stores, agent):
        assert await conversation.reply() == "Done."


async def test_what_no_history_takes_goes_to_the_storage(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    stores = await Client.connect(server.address, task_queue=client.task_queue, storage=tmp_path)
    agent = agent_on(scripted(["Done."]))
    async with hosting(stores, agent):
        conversation = await stores.start(agent, "Go")
        await conversation.reply()
    assert await stores.temporal.data_converter.encode(["x" * 3_000_000])


# ---------------------------------------------------------------- the directory


def payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"binary/plain"}, data=data)


async def stored(driver: DirectoryDriver, *data: bytes) -> list[StorageDriverClaim]:
    return await driver.store(StorageDriverStoreContext(), [payload(one) for one in data])


async def retrieved(driver: DirectoryDriver, *claims: StorageDriverClaim) -> list[bytes]:
    return [one.data for one in await driver.retrieve(StorageDriverRetrieveContext(), claims)]


async def test_the_same_payload_is_stored_once(tmp_path: Path) -> None:
    driver = DirectoryDriver(tmp_path)
    claims = await stored(driver, b"one", b"two", b"one")
    assert await retrieved(driver, *claims) == [b"one", b"two", b"one"]
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


@pytest.mark.parametrize("claimed", ["../../etc/passwd", "", "f" * 63, "F" * 64, "/" + "f" * 63])
async def test_a_claim_names_nothing_but_payloads(tmp_path: Path, claimed: str) -> None:
    with pytest.raises(ValueError, match="is not a reference"):
        await retrieved(DirectoryDriver(tmp_path), StorageDriverClaim({"sha256": claimed}))


async def test_a_payload_that_is_gone_or_was_changed_is_named(tmp_path: Path) -> None:
    driver = DirectoryDriver(tmp_path)
    (claim,) = await stored(driver, b"one")
    digest = claim.claim_data["sha256"]
    file = tmp_path / digest[:2] / digest
    file.write_bytes(file.read_bytes() + b"!")
    with pytest.raises(ValueError, match=f"{digest}.*was changed"):
        await retrieved(driver, claim)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks the payload {digest}"):
        await retrieved(driver, claim)


@pytest.mark.parametrize("place", ["s3://", "s3://bucket/prefix", "ftp://somewhere", "/dev/null/here"])
def test_a_place_that_is_no_storage_is_refused(place: str) -> None:
    with pytest.raises(InvalidSetting, match=place):
        open_storage(place)


def test_google_cloud_storage_is_the_sdks_own() -> None:
    assert [driver.type() for driver in open_storage("gs://bucket").drivers] == ["gcp.gcsdriver"]
