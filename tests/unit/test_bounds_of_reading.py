"""What comes from outside is bounded before it is read: in size, in number, and in the time that reading takes."""

from __future__ import annotations

import os
import zlib
from base64 import b64encode
from pathlib import Path

import pytest
import typer
from temporalio.converter import StorageDriverClaim

from everturn import devserver, packed_messages
from everturn.cli.approval_prompt import NotEdited, parse_arguments
from everturn.cli.approve import _json_or_text, _parse_object
from everturn.http.retry_after import seconds_to_wait
from everturn.models import Model
from everturn.packed_messages import pack, unpack
from everturn.providers import failures
from everturn.providers.catalog import resolve_endpoint, without_password
from everturn.providers.media import medium_of
from everturn.records import Image, Message, Text, ToolResult
from everturn.storage import directory
from everturn.storage.artifacts import Artifacts, name_of
from everturn.storage.external import DirectoryDriver
from everturn.tools.output_type import InvalidOutput, OutputType
from tests.support.bounds import Bounds

LONG = 200_000
"""Characters: what is quadratic in them takes minutes, and so the test's time limit."""


@pytest.mark.parametrize(
    "text",
    [
        "```json\n[1]\n```",
        "\n\n ```  \n[1]\n  ```\n",
        "```\n\n[1]\n\n```",
        "[1]",
    ],
)
def test_json_is_found_in_a_code_block(text: str) -> None:
    assert OutputType.from_type(list[int]).parse_reply(text) == [1]


@pytest.mark.parametrize(
    "text", ["```", "```\n```", "```[1]```", "```json\n[1]", "```python\n[1]\n```", "", "```\n" + "\n" * LONG + "x"]
)
def test_what_is_no_code_block_is_read_as_it_is_and_at_once(text: str) -> None:
    with pytest.raises(InvalidOutput):
        OutputType.from_type(list[int]).parse_reply(text)


@pytest.mark.parametrize(
    ("url", "media_type", "data"),
    [
        ("data:image/png;base64,aGk=", "image/png", "aGk="),
        ("data:text/plain;charset=utf-8;base64,aGk=", "text/plain", "aGk="),
        ("data:image/png;base64,", "image/png", ""),
        ("data:image/png,aGk=", "image/png", "YUdrPQ=="),  # without ;base64 it is percent-encoded text (RFC 2397)
        ("data:;base64,aGk=", "text/plain", "aGk="),  # the type that RFC 2397 gives it
        ("data:a/" + "a" * LONG, "", None),
        ("data:" + "a/" * LONG + ",", "", None),
    ],
)
def test_a_data_url_is_opened_at_once(url: str, media_type: str, data: str | None) -> None:
    assert medium_of(Image(url=url)) == (media_type, data)


@pytest.mark.parametrize("page", ["<title" * LONG, "<title>" * LONG, "<html><title>" + "x" * LONG])
def test_an_error_page_is_put_into_words_at_once(page: str) -> None:
    endpoint = resolve_endpoint(Model("openai:gpt-5"), environ={"OPENAI_API_KEY": "sk-0123456789"})
    body = f"<html>{page}".encode()
    assert "HTML page" in str(failures.of_response(endpoint, status=502, headers={}, body=body))


@pytest.mark.parametrize("offset", ["+99999999999999999", "+" + "9" * 5000, "-99999", "+2460", "GMT" * 100])
def test_a_date_to_wait_for_that_is_none_counts_as_absent(offset: str) -> None:
    waited = seconds_to_wait({"retry-after": f"Mon, 01 Jan 2024 00:00:00 {offset}"})
    assert waited is None or waited == 0


def test_packed_messages_are_bounded(bounds: Bounds) -> None:
    messages = tuple(Message.user(f"{number}") for number in range(50))
    assert unpack(pack(messages)) == messages
    bomb = zlib.compress(b" " * (packed_messages.MAX_UNPACKED_BYTES + 1) + b"[]", 9)
    with pytest.raises(ValueError, match="larger than any transcript"):
        unpack(b64encode(bomb).decode())
    bounds(packed_objects=60)
    with pytest.raises(ValueError, match="than any transcript has"):
        unpack(pack(messages))


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


async def test_a_stored_payload_is_a_file_of_a_payloads_size(tmp_path: Path) -> None:
    driver, digest = DirectoryDriver(tmp_path), "ab" + "0" * 62
    sparse(tmp_path / "ab" / digest, directory.MAX_FILE_BYTES + 1)
    with pytest.raises(OSError, match="the limit is"):
        await driver.retrieve(None, [StorageDriverClaim({"sha256": digest})])  # type: ignore[arg-type]
    (tmp_path / "ab" / digest).unlink()
    pipe(tmp_path / "ab" / digest)
    with pytest.raises(OSError, match="not a regular file"):
        await driver.retrieve(None, [StorageDriverClaim({"sha256": digest})])  # type: ignore[arg-type]


def test_an_artifact_is_a_file_of_bounded_size(tmp_path: Path, bounds: Bounds) -> None:
    store = Artifacts.at(tmp_path)
    result = ToolResult(call_id="a", name="look", content=(Text(text="x" * 1000),))
    store.keep("c", result)
    assert store.read("c", "a") == result
    bounds(file_bytes=500)
    with pytest.raises(OSError, match="the limit is 500"):
        store.read("c", "a")
    pipe(tmp_path / name_of("c", "b"))
    with pytest.raises(OSError, match="not a regular file"):
        store.read("c", "b")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:secret@host/v1", "https://…@host/v1"),
        ("https://secret@host", "https://…@host"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://host/?x=//a@b", "https://host/?x=//…@b"),
        ("//" * LONG, "//" * LONG),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_temporal_server_that_we_start_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "EVERTURN_WEB_TOKEN", "TEMPORAL_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret-0123456789")
    environment = devserver._environment()
    assert "secret-0123456789" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]


def test_json_that_is_too_deep_is_none() -> None:
    deep = "[" * LONG
    with pytest.raises(typer.BadParameter, match="not JSON"):
        _parse_object(deep, "--arguments")
    with pytest.raises(NotEdited, match="not JSON"):
        parse_arguments(deep)
    assert _json_or_text(deep) == deep
