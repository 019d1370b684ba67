"""A codec of the user's own, named by EVERTURN_DATA_CONVERTER: every command reads through it, and says if it can't."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import temporalio.client
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import InvalidFile, InvalidSetting
from everturn.storage.data_converter import Payloads, configured_converter, data_converter
from everturn.testing import ScriptedModel, record_history, replay_history
from tests.support.agents import agent_on, hosting
from tests.support.scripts import ONE
from tests.support.shell import Shell
from tests.support.tools import refund
from tests.support.waiting import waiting

CODEC = """
import base64
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec

class Codec(PayloadCodec):
    async def encode(self, payloads):
        return [
            Payload(metadata={"encoding": b"binary/hidden"}, data=base64.b85encode(payload.SerializeToString()))
            for payload in payloads
        ]

    async def decode(self, payloads):
        return [
            Payload.FromString(base64.b85decode(payload.data))
            if payload.metadata.get("encoding") == b"binary/hidden" else payload
            for payload in payloads
        ]

converter = DataConverter(payload_codec=Codec())
nothing = 3
"""


@pytest.fixture
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "hiding.py").write_text(CODEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("hiding", None)


@pytest.fixture
async def hidden(
    alone: Shell,
    server: DevServer,
    scripted: Callable[..., ScriptedModel],
    name: str,
    in_its_folder: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Client:
    """A client whose conversation, of the test's name, is over; all of it is hidden by the codec."""
    monkeypatch.setenv("EVERTURN_DATA_CONVERTER", "hiding:Codec")
    client = await Client.connect(server.address, task_queue=f"{name}-queue", by="tester")
    agent = agent_on(scripted(["It is a secret."]))
    async with hosting(client, agent):
        await client.run(agent, "What is it?", id=name)
    history = await client.temporal.get_workflow_handle(name).fetch_history()
    assert "secret" not in history.to_json()
    alone.environment.update(TEMPORAL_ADDRESS=server.address, EVERTURN_TASK_QUEUE=client.task_queue)
    return client


async def test_every_command_reads_through_the_converter(hidden: Client, alone: Shell, name: str) -> None:
    alone.environment["EVERTURN_DATA_CONVERTER"] = "hiding:converter"
    assert alone.json("show", name)["status"]["turn"] == 1
    assert "It is a secret." in alone.run("export", name).stdout
    assert "It is a secret." in alone.run("watch", name).stdout
    assert alone.run("replay", "--id", name).stdout.startswith("OK ")


async def test_a_command_without_the_converter_says_that_it_can_not_read(
    hidden: Client, alone: Shell, name: str
) -> None:
    for command in ("show", "export", "watch", "replay --id", "fork --at-turn 1", "send --text"):
        arguments = [name, "Hello"] if command.startswith("send") else [*command.split()[1:], name]
        done = alone.run(command.split()[0], *arguments)
        said = done.stdout + done.stderr
        assert done.returncode == 1, (command, said)
        assert "Payloads of this conversation can't be read: they are 'binary/hidden'" in said, command
        assert "Set EVERTURN_DATA_CONVERTER" in said


async def test_a_recorded_history_replays_with_the_converter(hidden: Client, name: str, tmp_path: Path) -> None:
    (file,) = await record_history(hidden, name, tmp_path / "hidden.json")
    assert await replay_history(file) > 3


class Broken(PayloadCodec):
    """As one whose key service does not answer."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        raise RuntimeError("no key comes")

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]


async def test_a_command_that_can_not_be_written_is_not_told_as_carried_out(
    client: Client, scripted: Callable[..., ScriptedModel]
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    options = client.temporal.config()
    options["data_converter"] = replace(client.temporal.data_converter, payload_codec=Broken())
    writer = Client(temporalio.client.Client(**options), task_queue=client.task_queue)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        [call_id] = await waiting(conversation)
        theirs = writer.conversation(conversation.id)
        for command in (theirs.approve, theirs.deny, theirs.pause, theirs.close):
            with pytest.raises(InvalidSetting, match=r"can't be written, and was not sent: .*no key comes"):
                await command()
        [decided] = await writer.deny_all(ids=[conversation.id])
        assert "was not sent" in decided.refused
        assert await waiting(conversation) == (call_id,)
        await conversation.deny()
        await conversation.outcome()


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("nowhere:codec", InvalidFile, "There is no module 'nowhere'"),
        ("hiding:codec", InvalidFile, "There is no 'codec' in hiding"),
        ("hiding", InvalidFile, "does not name an object in a module"),
        ("hiding:nothing", InvalidSetting, "is a int"),
    ],
)
def test_a_converter_that_is_none_is_refused(
    in_its_folder: None, monkeypatch: pytest.MonkeyPatch, spec: str, error: type[Exception], said: str
) -> None:
    monkeypatch.setenv("EVERTURN_DATA_CONVERTER", spec)
    with pytest.raises(error, match=said):
        configured_converter()


def test_a_codec_and_a_plain_converter_go_around_everturns_own(
    in_its_folder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert configured_converter() is data_converter
    for spec in ("hiding.py:Codec", "hiding:converter"):
        monkeypatch.setenv("EVERTURN_DATA_CONVERTER", spec)
        converter = configured_converter()
        assert converter.payload_converter_class is Payloads
        assert converter.payload_codec is not None
