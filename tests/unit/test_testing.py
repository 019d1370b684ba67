"""The scripted model: a real server that says what a script tells it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from everturn import testing
from everturn.testing import Script, ScriptedModel, call, cut, fail, garbage, say, slow

USER = {"role": "user", "content": "hi"}
ASSISTANT = {"role": "assistant", "content": "..."}


@contextmanager
def asking(script: Script, **options: Any) -> Iterator[Any]:
    """A function that posts messages and returns the response; it has the model as `.model`."""
    with ScriptedModel(script, **options) as model, httpx.Client(base_url=model.base_url, trust_env=False) as client:

        def ask(*messages: dict[str, Any], **more: Any) -> httpx.Response:
            return client.post("/chat/completions", json={"model": "demo", "messages": [*messages], **more})

        ask.model = model  # type: ignore[attr-defined]
        ask.client = client  # type: ignore[attr-defined]
        yield ask


def text_of(response: httpx.Response) -> Any:
    return response.json()["choices"][0]["message"]["content"]


def test_a_list_is_indexed_by_the_replies_so_far_and_not_by_arrival() -> None:
    with asking(["first", "second"]) as ask:
        assert text_of(ask(USER, ASSISTANT, USER)) == "second"
        assert text_of(ask(USER)) == "first"
        assert text_of(ask(USER)) == "first"
        assert text_of(ask({"role": "user", "content": "another conversation"})) == "first"


def test_a_list_can_be_gone_through_by_arrival() -> None:
    with asking(["first", "second"], order="arrival") as ask:
        assert [text_of(ask(USER)), text_of(ask(USER))] == ["first", "second"]
        assert ask(USER).json()["error"]["code"] == "script_ended"


def test_the_scripts_end_says_so_and_asks_for_no_retry() -> None:
    with asking(["only"]) as ask:
        response = ask(USER, ASSISTANT, USER)
    assert response.status_code == 500
    assert "holds 1 replies, and this request asks for number 2" in response.json()["error"]["message"]
    assert response.headers["x-should-retry"] == "false"


def test_what_is_no_reply_comes_once_before_the_next_reply_in_each_conversation() -> None:
    other = {"role": "user", "content": "another conversation"}
    with asking([fail(503), fail(429), "first", "second"]) as ask:
        assert [ask(USER).status_code for _ in range(4)] == [503, 429, 200, 200]
        assert ask(other).status_code == 503
        assert text_of(ask(USER, ASSISTANT, USER)) == "second"


def test_what_is_no_reply_repeats_at_the_end_of_the_list() -> None:
    with asking([fail(503), fail(401)]) as ask:
        assert [ask(USER).status_code for _ in range(4)] == [503, 401, 401, 401]


def test_a_function_sees_the_messages_and_the_body_if_it_wants() -> None:
    with asking(lambda messages: f"{len(messages)} messages") as ask:
        assert text_of(ask(USER, USER)) == "2 messages"
    with asking(lambda _, body: body["model"]) as ask:
        assert text_of(ask(USER)) == "demo"


def test_a_function_may_be_async() -> None:
    async def script(messages: list[dict[str, Any]]) -> str:
        return "async"

    with asking(script) as ask:
        assert text_of(ask(USER)) == "async"


def test_a_function_that_raises_says_so() -> None:
    def script(messages: list[dict[str, Any]]) -> str:
        raise KeyError("oops")

    with asking(script) as ask:
        response = ask(USER)
    assert response.status_code == 500
    assert "the script raised KeyError: 'oops'" in response.json()["error"]["message"]


@pytest.mark.parametrize("reply", [None, 7, [7]])
def test_a_reply_that_is_none_says_so(reply: Any) -> None:
    with asking(lambda _: reply) as ask:
        response = ask(USER)
    assert response.status_code == 500
    assert "the script's reply is invalid" in response.json()["error"]["message"]


def test_a_reply_may_be_text_and_calls_together() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    with asking([[say("a", usage=usage, thinking="t"), call("f", {"x": 1}), call("g", "{bad", id="mine")]]) as ask:
        body = ask(USER).json()
    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"], body["usage"]) == ("a", "t", usage)
    assert [(entry["id"], entry["function"]) for entry in message["tool_calls"]] == [
        ("call_0_0", {"name": "f", "arguments": '{"x":1}'}),
        ("mine", {"name": "g", "arguments": "{bad"}),
    ]
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_the_same_request_gets_the_same_bytes() -> None:
    with asking([[call("f"), call("f")]]) as ask:
        assert ask(USER).content == ask(USER).content
        assert ask(USER, stream=True).content == ask(USER, stream=True).content


def test_a_stream_is_events_and_ends_with_done() -> None:
    with asking([[say("x" * 100), call("f", {"x": 1})]]) as ask:
        response = ask(USER, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"] == "text/event-stream"
    *events, last = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    chunks = [json.loads(event) for event in events]
    assert last == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "x" * 100
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_cut_reply_breaks_the_connection(stream: bool) -> None:
    with asking([cut(after=2)]) as ask, pytest.raises(httpx.RemoteProtocolError):
        ask(USER, stream=stream)


def test_garbage_goes_out_as_it_is() -> None:
    with asking([garbage(b"\xff\x00", content_type="image/png")]) as ask:
        response = ask(USER)
    assert (response.status_code, response.content, response.headers["content-type"]) == (200, b"\xff\x00", "image/png")


@pytest.mark.parametrize(("stream", "reply"), [(False, slow("x", seconds=0.1)), (True, slow("x" * 99, per_chunk=0.02))])
def test_a_slow_reply_takes_its_time(stream: bool, reply: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(testing.scripted_model, "time", SimpleNamespace(sleep=paused.append))
    with asking([reply]) as ask:
        ask(USER, stream=stream)
    assert sum(paused) >= 0.09


@pytest.mark.parametrize(("keep", "kept"), [(None, [1, 2, 3]), (2, [2, 3]), (0, [])])
def test_the_last_requests_are_kept(keep: int | None, kept: list[int]) -> None:
    with asking(["x"], keep=keep) as ask:
        for number in (1, 2, 3):
            ask(USER, n=number)
        assert [body["n"] for body in ask.model.requests] == kept


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"messages": 7}'])
def test_what_is_no_request_is_refused(content: bytes) -> None:
    with asking(["x"]) as ask:
        assert ask.client.post("/chat/completions", content=content).status_code == 400
        assert ask.client.post("/elsewhere", content=content).status_code == 404
        assert ask.client.get("/elsewhere").status_code == 404


def test_it_lists_its_models() -> None:
    with asking(["x"]) as ask:
        assert ask.client.get("/models").json()["data"][0]["id"] == "demo"


def test_a_keepalive_connection_does_not_wait_for_acknowledgements() -> None:
    """Nagle's algorithm would make each reply 40 ms."""
    with asking(lambda _: "x" * 5000) as ask:
        ask(USER, stream=True)
        (connection,) = ask.model._server._connections
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_stops_and_starts_again_on_the_same_port() -> None:
    model = ScriptedModel(["x"])
    for _ in range(2):
        with model, httpx.Client(base_url=model.base_url, trust_env=False) as client:
            first = model.base_url
            client.post("/chat/completions", json={"messages": [USER]})
    assert model.base_url == first
    model.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "everturn-scripted-model"]


def test_it_breaks_its_connections_when_it_stops() -> None:
    with ScriptedModel(["x"]) as model, httpx.Client(base_url=model.base_url, trust_env=False) as client:
        client.post("/chat/completions", json={"messages": [USER]})
        model.stop()
        with pytest.raises(httpx.TransportError):
            client.post("/chat/completions", json={"messages": [USER]})


def test_it_runs_as_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from everturn.testing import say\n\nscript = [say('from a file')]\n")
    command = [sys.executable, "-m", "everturn.testing", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        base_url = process.stdout.readline().strip()
        response = httpx.post(f"{base_url}/chat/completions", json={"messages": [USER]}, trust_env=False)
        assert text_of(response) == "from a file"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(5) == 0


def test_a_file_without_a_script_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    command = [sys.executable, "-m", "everturn.testing", str(tmp_path / "empty.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "defines no `script`" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.py"], "There is no file nowhere.py. Check the path: everturn looked for "),
        (["broken.py"], "broken.py, line 1: "),
        (["script.py", "--port", "{taken}"], "Port {taken} at 127.0.0.1 can't be listened on: Address already in use."),
        (["script.py", "--port", "70000"], "Port 70000 at 127.0.0.1 can't be listened on: "),
        (["script.py", "--host", "192.0.2.1"], "Port 0 at 192.0.2.1 can't be listened on: "),
    ],
)
def test_what_can_not_be_served_is_said_in_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "script.py").write_text("script = []\n")
    (tmp_path / "broken.py").write_text("script = [\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        command = [sys.executable, "-m", "everturn.testing", *(argument.format(taken=taken) for argument in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(told.format(taken=taken))
