"""Nothing that can't be read ends or freezes a conversation: it waits for a person, and says for what."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.common.v1 import Payloads as PayloadsProto
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.common import RawValue
from temporalio.converter import JSONProtoPayloadConverter, PayloadCodec
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from everturn import Client, Conversation, EverturnPlugin, errors, tool
from everturn.devserver import DevServer
from everturn.errors import ConversationError
from everturn.events import Stalled, Switched
from everturn.records import Message
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel, call, slow
from everturn.worker.deploy_check import find_conflicts
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import leave_out
from tests.support.operators import complete, goes_on, running
from tests.support.side_by_side import side_by_side
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.fixture(autouse=True)
def _one_try(bounds: Bounds) -> None:
    """The server waits 10 s before a workflow task is tried for the third time."""
    bounds(unreadable_tries=1)


async def stalls(conversation: Conversation) -> tuple[str, str]:
    status = await reaches(conversation, "stalled")
    return status.cause or "", status.cure or ""


async def stalls_told(conversation: Conversation) -> list[str]:
    """Of a conversation that is over: the causes, as its events have them. Each was followed by what ended it."""
    told = [event async for event in conversation.events() if isinstance(event, Stalled | Switched)]
    stalled = [number for number, event in enumerate(told) if isinstance(event, Stalled)]
    assert all(isinstance(told[number + 1], Switched) for number in stalled)
    return [event.cause for event in told if isinstance(event, Stalled)]


OTHERS = {"message": {"role": "assistant", "parts": []}, "facts": {"limits": {"max_turns": -5}}}
"""What a worker said of itself, as another version's limits may be."""


RESULTS: dict[str, Any] = {
    "a text": "x",
    "nothing": None,
    "parts that nobody knows": {"message": {"role": "assistant", "parts": [{"kind": "hologram"}]}},
    "another version's facts": OTHERS,
}


async def test_a_model_turn_that_an_operator_completes_with_something_else_stalls(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    completed = threading.Event()
    agent = agent_on(scripted([slow("Hello.", until=completed)]))

    async def begun(result: Any) -> Conversation:
        conversation = await client.start(agent, "Hi")
        await complete(client, conversation, "call_model", result)
        return conversation

    async def goes_on_once_resumed(conversation: Conversation) -> None:
        cause, cure = await stalls(conversation)
        assert cause.startswith("The reply of turn 1 can't be read: ")
        assert "resume" in cure
        with pytest.raises(errors.Stalled, match="turn 1 can't be read"):
            await conversation.reply()
        await conversation.resume()
        assert (await conversation.outcome()).text == "Hello."
        told = [event async for event in conversation.events() if event.kind == "stalled"]
        assert [(one.cause, one.cure) for one in told] == [(cause, cure)], "the status and events agree"

    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversations = await side_by_side(begun, RESULTS)
        completed.set()
        await side_by_side(goes_on_once_resumed, conversations)


def of_call(call_id: str) -> dict[str, Any]:
    return {"kind": "tool_result", "call_id": call_id, "name": "refund", "content": [{"kind": "text", "text": "5"}]}


@pytest.mark.parametrize(
    ("effect", "with_what", "why"),
    [
        ("idempotent", "x", "can't be read: "),
        ("once", "x", "can't be read: "),
        ("once", of_call("another"), "belongs to another call, 'another'"),
        ("once", of_call("yet another"), "belongs to another call, 'yet another'"),
    ],
    ids=["idempotent", "once", "of a call before", "of a call after"],
)
async def test_a_tool_that_an_operator_completes_with_something_else_waits_for_a_person(
    client: Client, scripted: Scripted, cached_conversations: int, effect: Any, with_what: Any, why: str
) -> None:
    runs: list[int] = []

    @tool(effect=effect)
    async def refund() -> str:
        runs.append(1)
        if len(runs) == 1:
            await asyncio.sleep(60)
        return "refunded"

    agent = agent_on(scripted([call("refund"), "Done."]), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Refund")
        await eventually(lambda: runs)
        await complete(client, conversation, "refund", with_what)
        (call_id,) = await waiting(conversation)
        (shown,) = (await conversation.status()).waiting
        assert shown.reason == "outcome_unknown"
        assert shown.why.startswith(f"outcome unknown: The result of refund {why}")
        await conversation.answer(call_id, "It was refunded by hand.")
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
        asked = [event async for event in conversation.events() if event.kind == "approval_requested"]
    assert result.text == "It was refunded by hand."
    assert [(one.reason, one.why) for one in asked] == [(shown.reason, shown.why)]


async def test_what_a_failure_has_to_say_may_be_unreadable(client: Client, scripted: Scripted) -> None:
    failed = threading.Event()
    agent = agent_on(scripted([slow("Hello.", until=failed)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        handle = client.temporal.get_async_activity_handle(
            workflow_id=conversation.id, run_id=None, activity_id=await running(client, conversation, "call_model")
        )
        garbage = Payload(metadata={"encoding": b"json/plain"}, data=b"not json")
        await handle.fail(ApplicationError("An operator's word", RawValue(garbage), non_retryable=True))
        failed.set()
        cause, _ = await stalls(conversation)
        assert cause == "An operator's word"
        await conversation.resume()
        assert await conversation.reply() == "Hello."


# ---------------------------------------------------------------- storages


async def signal_raw(client: Client, conversation: Conversation, name: str, payload: Payload) -> None:
    execution = WorkflowExecution(workflow_id=conversation.id)
    await client.temporal.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=execution,
            signal_name=name,
            request_id=uuid4().hex,
            input=PayloadsProto(payloads=[payload]),
        ),
        retry=True,
    )


def claim() -> Payload:
    """A payload that says that it is in a storage, where nobody has stored it."""
    reference = JSONProtoPayloadConverter().to_payload(
        ExternalStorageReference(driver_name="everturn.directory", claim_data={"sha256": "0" * 64})
    )
    assert reference
    reference.external_payloads.add().size_bytes = 300_000
    return reference


@pytest.mark.parametrize("storage", [False, True], ids=["no storage", "storage"])
async def test_a_signal_that_claims_what_nobody_stored_freezes_nobody(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path, cached_conversations: int, *, storage: bool
) -> None:
    stores = await Client.connect(
        server.address, task_queue=client.task_queue, storage=tmp_path if storage else None, by="tester"
    )
    agent = agent_on(scripted(["Hello.", "Bye."]))
    async with hosting(stores, agent, cached_conversations=cached_conversations):
        conversation = await stores.start(agent, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Hello."
        await signal_raw(client, conversation, "message", claim())
        cause, cure = await stalls(conversation)
        assert cause.startswith("A 'message' signal can't be read: ")
        assert "EVERTURN_STORAGE" in cure
        await conversation.resume()
        await conversation.send("Bye")
        assert await conversation.reply() == "Bye."
        await conversation.close()
        await conversation.outcome()
        assert await stalls_told(conversation) == ["A 'message' signal can't be read: it could not, when it came"]
    leave_out(client)  # the replayer of the fixture has no storage


async def test_a_reply_in_another_storage_stalls_and_is_read_again_once_it_is_there(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    """A worker with another EVERTURN_STORAGE: what it has stored, the others lack."""
    here = await Client.connect(server.address, task_queue=client.task_queue, storage=tmp_path / "here", by="tester")
    there = await Client.connect(server.address, task_queue=client.task_queue, storage=tmp_path / "there", by="tester")
    never = threading.Event()
    model = scripted([slow("Asked for again.", until=never)])
    agent = agent_on(model)
    said = {"role": "assistant", "parts": [{"kind": "text", "text": "x" * 500_000}]}
    async with hosting(here, agent, drain_timeout=timedelta(0)):
        conversation = await here.start(agent, "Hi", keep_open=timedelta(minutes=5))
        await eventually(lambda: len(model.requests) == 1)
        await complete(there, conversation, "call_model", {"message": said})
        cause, cure = await stalls(conversation)
        assert "lacks the payload" in cause
        assert "EVERTURN_STORAGE" in cure
    shutil.copytree(tmp_path / "there", tmp_path / "here", dirs_exist_ok=True)
    async with hosting(here, agent):
        await conversation.resume()
        assert len(await here.conversation(conversation.id).reply()) == 500_000
        await conversation.close()
        await conversation.outcome()
    assert len(model.requests) == 1
    never.set()
    leave_out(client)


async def test_a_worker_without_the_storage_leaves_the_task_to_one_that_has_it(
    server: DevServer, client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    stores = await Client.connect(server.address, task_queue=client.task_queue, storage=tmp_path, by="tester")
    agent = agent_on(scripted(["Hello.", "Bye."]))
    async with hosting(stores, agent):
        conversation = await stores.start(agent, "x" * 300_000, keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Hello."
        async with hosting(client, agent):
            await conversation.send("Bye" + "x" * 300_000)
            assert await conversation.reply() == "Bye."
        await conversation.close()
        await conversation.outcome()
    leave_out(client)


# ---------------------------------------------------------------- codecs


class Key(PayloadCodec):
    """Encodes with a key, and decodes only what was encoded with it."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"keyed"}, data=self.key + payload.SerializeToString())
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        decoded = []
        for payload in payloads:
            if payload.metadata.get("encoding") != b"keyed" or not payload.data.startswith(self.key):
                raise ValueError("the key does not fit")
            decoded.append(Payload.FromString(payload.data[len(self.key) :]))
        return decoded


async def test_a_signal_that_the_codec_cannot_decode_freezes_nobody(
    server: DevServer, client: Client, scripted: Scripted
) -> None:
    keyed = dataclasses.replace(data_converter, payload_codec=Key(b"ours"))
    ours = await Client.connect(server.address, task_queue=client.task_queue, by="tester", data_converter=keyed)
    agent = agent_on(scripted(["Hello.", "Bye."]))
    async with hosting(ours, agent):
        conversation = await ours.start(agent, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Hello."
        await signal_raw(client, conversation, "message", Payload(metadata={"encoding": b"json/plain"}, data=b"{}"))
        cause, _ = await stalls(conversation)
        assert cause == "A 'message' signal can't be read: the key does not fit"
        await conversation.resume()
        await conversation.send("Bye")
        assert await conversation.reply() == "Bye."
        assert [conflict async for conflict in find_conflicts(ours, [agent])] == [], (
            "a deploy has nothing to fear of it"
        )
        await conversation.close()
        await conversation.outcome()
        theirs = ours.conversation(conversation.id)
        assert await stalls_told(theirs) == ["A 'message' signal can't be read: it could not, when it came"]
    leave_out(client)
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    await Replayer(workflows=[], data_converter=keyed, plugins=[EverturnPlugin()]).replay_workflow(history)


# ---------------------------------------------------------------- depth


async def test_arguments_that_are_nested_too_deeply_are_named_to_the_model(client: Client, scripted: Scripted) -> None:
    @tool
    def keep(things: Any) -> str:
        return "kept"

    def nested(levels: int) -> Any:
        return call("keep", f'{{"things": {"[" * (levels - 1) + "]" * (levels - 1)}}}', id=f"levels_{levels}")

    agent = agent_on(scripted([[*map(nested, (101, 150, 190, 195, 197, 198, 199, 200))], "Done."]), tools=[keep])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "Done."
        results = results_of(await conversation.transcript())
    begins = "The arguments are nested more than 100 levels deep."
    assert [result.call_id for result in results if not result.text.startswith(begins)] == []
    assert len(results) == 8


# ---------------------------------------------------------------- another version of the code


HANDED: list[dict[str, Any]] = [
    {"earlier": {"kind": "hologram"}, "inbox": [{"role": "user", "parts": []}]},
    {"facts": {"limits": {"max_turns": -5}}, "inbox": [{"role": "user", "parts": []}]},
]


@pytest.mark.parametrize("carried", HANDED, ids=["its messages", "its limits"])
async def test_a_run_that_cannot_read_what_it_was_handed_waits_for_code_that_can(
    client: Client, scripted: Scripted, cached_conversations: int, carried: dict[str, Any]
) -> None:
    """After a rollback: the run before wrote what this code does not know."""
    agent = agent_on(scripted(["Hello."]))
    handed = {"agent": "clerk", "carry": carried}
    temporal, name = client.temporal, f"rollback-{client.task_queue}"
    async with hosting(client, agent, cached_conversations=cached_conversations):
        await temporal.start_workflow("Conversation", handed, id=name, task_queue=client.task_queue)
        conversation = client.conversation(name)
        cause, _ = await stalls(conversation)
        assert cause.startswith("The carry-over of the earlier run can't be read: carry.")
        first = await conversation.latest_run()
        await conversation.resume()

        await goes_on(conversation, first)
        await stalls(conversation)
        await conversation.close()
        assert (await conversation.outcome()).status == "cancelled"
        assert await stalls_told(conversation) == [cause, cause]


@pytest.mark.parametrize("command", ["close", "resume"])
async def test_what_came_before_such_a_run_could_begin_is_followed(
    client: Client, scripted: Scripted, cached_conversations: int, command: str
) -> None:
    handed = {"agent": "clerk", "carry": HANDED[0]}
    temporal, name = client.temporal, f"early-{command}-{client.task_queue}"
    handle = await temporal.start_workflow("Conversation", handed, id=name, task_queue=client.task_queue)
    await handle.signal(command, {})
    conversation = client.conversation(name)
    first = await conversation.latest_run()
    async with hosting(client, agent_on(scripted(["Hello."])), cached_conversations=cached_conversations):
        if command == "resume":
            await goes_on(conversation, first)
            await stalls(conversation)
            await conversation.close()
        assert (await conversation.outcome()).status == "cancelled"
        assert len(await stalls_told(conversation)) == {"close": 0, "resume": 2}[command]


async def test_earlier_messages_that_other_code_packed_stall_the_turn_that_needs_them(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    """After a rollback: as for what is not packed, but nobody looks into the pack before it is needed."""
    bounds(events=12)  # the next run is due with the first resume
    data = b64encode(zlib.compress(b'[{"role":"user","parts":[{"kind":"hologram"}]}]')).decode()
    carried = {"earlier": {"kind": "packed", "data": data}, "length": 1, "inbox": [Message.user("And?").model_dump()]}
    temporal, name = client.temporal, f"packed-{client.task_queue}"
    async with hosting(client, agent_on(scripted(["Hello."])), cached_conversations=cached_conversations):
        start = {"agent": "clerk", "carry": carried}
        await temporal.start_workflow("Conversation", start, id=name, task_queue=client.task_queue)
        conversation = client.conversation(name)
        cause, cure = await stalls(conversation)
        assert cause.startswith(f"The earlier messages of conversation '{name}' can't be read: 0.parts.0: ")
        assert "newer version" in cure
        with pytest.raises(ConversationError, match="earlier messages"):
            await conversation.transcript()
        first = await conversation.latest_run()
        await conversation.resume()

        await goes_on(conversation, first)
        assert await stalls(conversation) == (cause, cure)
        await conversation.close()
        assert (await conversation.outcome()).status == "cancelled"
