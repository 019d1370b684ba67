"""`everturn codec`: asked by Temporal's own command line, by a browser's rules, and by those who get no answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from everturn import Client, Encryption
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.storage.codecs import with_encryption
from everturn.storage.data_converter import data_converter, with_storage
from everturn.testing import ScriptedModel
from everturn.web.codec_server import MAX_CODEC_BODY_BYTES, CodecServer
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.leaving import leave_in_the_middle
from tests.support.prepared import Program, run

KEY = b"k" * 32
KEYS = f"key-1:{b64encode(KEY).decode()}"
TOKEN = "a-token-of-some-length"
UI = "http://localhost:8233"

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")


def server_of(**options: object) -> CodecServer:
    return CodecServer(with_encryption(data_converter, Encryption({"key-1": KEY})), **options)  # type: ignore[arg-type]


@asynccontextmanager
async def asking(codec_server: CodecServer, *, at: str = "http://localhost:8089") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=codec_server.app)
    async with httpx.AsyncClient(transport=transport, base_url=at) as client:
        yield client


def body(*payloads: Payload) -> dict[str, object]:
    return json_format.MessageToDict(Payloads(payloads=payloads))


def payloads_in(answer: httpx.Response) -> list[Payload]:
    assert answer.status_code == 200, answer.text
    return [*json_format.ParseDict(answer.json(), Payloads()).payloads]


PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"secret"')


async def test_what_is_encoded_is_decoded_at_any_depth_of_the_path() -> None:
    async with asking(server_of()) as client:
        [made] = payloads_in(await client.post("/encode", json=body(PLAIN)))
        assert made.metadata["encoding"] == b"binary/encrypted"
        for path in ("/decode", "/default/decode", "/a/b/decode?preserveStorageRefs=true", "/download"):
            assert payloads_in(await client.post(path, json=body(made, PLAIN))) == [PLAIN, PLAIN]


async def test_one_payload_that_no_key_opens_does_not_hide_the_others() -> None:
    [lost] = await Encryption({"lost": b"l" * 32}).encode([PLAIN])
    [made] = await Encryption({"key-1": KEY}).encode([PLAIN])
    async with asking(server_of()) as client:
        assert payloads_in(await client.post("/decode", json=body(lost, made))) == [lost, PLAIN]
        refused = await client.post("/decode", json=body(lost))
        assert refused.status_code == 400
        assert "encrypted with the key 'lost'" in refused.json()["error"]


async def test_a_payload_in_external_storage_is_fetched_unless_its_reference_is_asked_for(tmp_path: Path) -> None:
    converter = with_storage(with_encryption(data_converter, Encryption({"key-1": KEY})), tmp_path)
    [reference] = await converter.encode(["x" * 300_000])
    assert reference.external_payloads
    async with asking(CodecServer(converter)) as client:
        assert payloads_in(await client.post("/decode?preserveStorageRefs=true", json=body(reference))) == [reference]
        for path in ("/decode", "/download?preserveStorageRefs=true"):
            [found] = payloads_in(await client.post(path, json=body(reference)))
            assert json.loads(found.data) == "x" * 300_000


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"payloads": 3}', 400),
        (b"\xff", 400),
        (b'{"payloads": [{"data": 3}]}', 400),
        (b"{}", 200),
    ],
)
async def test_a_body_that_is_none_is_refused(content: bytes, status: int) -> None:
    async with asking(server_of()) as client:
        assert (await client.post("/decode", content=content)).status_code == status


async def test_a_body_without_an_end_is_refused(bounds: Bounds) -> None:
    bounds(codec_body_bytes=1000)
    assert MAX_CODEC_BODY_BYTES > 100_000_000
    async with asking(server_of()) as client:
        refused = await client.post("/decode", content=b" " * 2000)
        assert (refused.status_code, "more than 1,000 bytes" in refused.text) == (400, True)


@pytest.mark.parametrize("path", ["/", "/decoded", "/encode/x", "/favicon.ico"])
async def test_nothing_else_is_served(path: str) -> None:
    async with asking(server_of()) as client:
        assert (await client.post(path, json={})).status_code == 404


# ---------------------------------------------------------------- who may ask


async def test_the_web_ui_may_ask_and_other_pages_may_not() -> None:
    async with asking(server_of()) as client:
        asked = {"origin": UI, "access-control-request-method": "POST"}
        preflight = await client.options("/decode", headers=asked)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == UI
        assert preflight.headers["access-control-allow-credentials"] == "true"
        allowed = preflight.headers["access-control-allow-headers"]
        assert {"x-namespace", "content-type", "authorization"} <= {*allowed.split(", ")}
        answer = await client.post("/decode", json=body(PLAIN), headers={"origin": UI, "x-namespace": "default"})
        assert answer.headers["access-control-allow-origin"] == UI
        for origin in ("http://evil.example", "null", "http://localhost:8233.evil.example"):
            refused = await client.post("/decode", json=body(PLAIN), headers={"origin": origin})
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers


async def test_without_a_token_only_this_machine_is_answered() -> None:
    async with asking(server_of(), at="http://rebound.example:8089") as client:
        assert (await client.post("/decode", json=body(PLAIN))).status_code == 400


async def test_a_token_is_asked_for_in_the_header_or_by_the_cookie_of_who_signed_in() -> None:
    async with asking(server_of(token=TOKEN, origins=["https://ui.example"]), at="https://codec.example") as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"cookie": "x=y"}):
            assert (await client.post("/decode", json=body(PLAIN), headers=headers)).status_code == 401
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.post("/decode", json=body(PLAIN), headers=bearer)).status_code == 200
        assert (await client.get("/", params={"token": "wrong"})).status_code == 401
        signed_in = await client.get("/", params={"token": TOKEN})
        cookie = signed_in.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "Secure" in cookie
        assert "SameSite=none" in cookie
        assert TOKEN not in cookie + signed_in.text
        answer = await client.post("/decode", json=body(PLAIN), headers={"origin": "https://ui.example"})
        assert answer.status_code == 200
        assert (await client.post("/decode", json={}, headers={"origin": UI})).status_code == 403


def test_a_converter_without_a_codec_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"has no codec.*EVERTURN_ENCRYPTION_KEYS"):
        CodecServer(data_converter)


# ---------------------------------------------------------------- the command


async def test_temporals_command_line_reads_and_writes_through_it(
    server: DevServer, scripted: Callable[..., ScriptedModel]
) -> None:
    client = await Client.connect(
        server.address, task_queue=f"q-{uuid4().hex[:8]}", encryption=Encryption({"key-1": KEY})
    )
    agent = agent_on(scripted(["It is a secret.", "Another."]))
    environment = {**os.environ, "EVERTURN_ENCRYPTION_KEYS": KEYS, "EVERTURN_CODEC_TOKEN": TOKEN}
    command = ("-m", "everturn", "codec", "--port", "0")
    with (
        Program(*command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as codec,
        ExitStack() as at_the_end,
    ):
        at_the_end.callback(codec.kill)
        said = ""
        assert codec.stderr
        while not (found := re.search(r"Codec server\s+(http://\S+)", said)):
            line = await asyncio.to_thread(codec.stderr.readline)
            assert line, said
            said += line
        conversation_id = f"told-{uuid4().hex}"
        given = {"agent": agent.name, "message": "What is the plan?"}
        async with hosting(client, agent):
            await _temporal(server, found[1], "start", "--type", "Conversation", "--task-queue", client.task_queue,
                            "--workflow-id", conversation_id, "--input", json.dumps(given))  # fmt: skip
            conversation = client.conversation(conversation_id)
            assert (await conversation.outcome()).text == "It is a secret."
        history = await client.temporal.get_workflow_handle(conversation_id).fetch_history()
        assert "binary/encrypted" in _encodings(history.events[0])  # what the command line sent was encoded
        show = ("show", "--workflow-id", conversation_id, "--output", "json")
        assert "It is a secret." in _decoded(await _temporal(server, found[1], *show))
        assert "It is a secret." not in _decoded(await _temporal(server, "", *show))
        codec.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(codec.communicate, timeout=180)
    assert TOKEN not in said + out + err


async def _temporal(server: DevServer, endpoint: str, *arguments: str) -> str:
    program = str(Path(sys.executable).parent / "temporal")
    through = ["--codec-endpoint", endpoint, "--codec-auth", f"Bearer {TOKEN}"] if endpoint else []
    process = await asyncio.create_subprocess_exec(
        program, "workflow", *arguments, "--address", server.address, *through,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode()


def _encodings(event: object) -> str:
    started = event.workflow_execution_started_event_attributes  # type: ignore[attr-defined]
    return str([payload.metadata["encoding"].decode() for payload in started.input.payloads])


def _decoded(shown: str) -> str:
    """With what the command prints as base64 read."""
    from base64 import b64decode

    pieces = re.findall(r'"data": "([A-Za-z0-9+/=]+)"', shown)
    return shown + "".join(b64decode(piece).decode("utf-8", "replace") for piece in pieces)


def test_the_command_refuses_to_open_to_others_without_a_token_and_to_start_without_keys() -> None:
    for arguments, keys, said in (
        (["--host", "0.0.0.0"], KEYS, "Other machines can reach this codec server at '0.0.0.0'"),
        ([], "", "The codec server has no codec"),
    ):
        environment = {**os.environ} | ({"EVERTURN_ENCRYPTION_KEYS": keys} if keys else {})
        ran = run("-m", "everturn", "codec", "--port", "0", *arguments, env=environment)
        assert ran.returncode == 1
        assert said in ran.stderr


async def test_who_leaves_before_the_request_is_whole_leaves_no_traceback() -> None:
    await leave_in_the_middle(server_of().app, "/decode", {"host": "localhost"})
