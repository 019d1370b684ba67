"""The inbox over plain HTTP: who may come in, what is refused and why, and a stream that resumes without a gap."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.system.extras import install
from everturn.testing import ScriptedModel, call
from everturn.web.app import Inbox
from everturn.web.auth import check_token
from everturn.web.server import open_socket
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.leaving import leave_in_the_middle
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting
from tests.ui.inbox import everturn_web, served

Scripted = Callable[..., ScriptedModel]

TOKEN = "t0ken-of-this-test-f00dcafe"
JSON = {"content-type": "application/json"}


REFUND = [call("refund", {"order_id": "81", "cents": 5}, id="a"), "It is done."]


@pytest.fixture
async def web(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    async with served(client) as address, httpx.AsyncClient(base_url=address, timeout=180) as web:
        yield web


@pytest.fixture
async def guarded(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    async with served(client, token=TOKEN) as address, httpx.AsyncClient(base_url=address, timeout=180) as web:
        yield web


# ---------------------------------------------------------------- strangers' pages


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 200),
        ("/", {"host": "localhost:8234"}, 200),
        ("/", {"host": "[::1]:8234"}, 200),
        ("/", {"host": "evil.example:8234"}, 400),  # a name that was rebound to this machine
        ("/", {"host": "127.0.0.1.evil.example"}, 400),
        ("/", {"host": ""}, 400),
        ("/page/main.js", {"host": "evil.example"}, 400),
        ("/page/main.js", {}, 200),
        ("/page/../app.py", {}, 404),
        ("/page/%2e%2e/app.py", {}, 404),
        ("/api/status?conversation=none", {}, 404),
        ("/api/status?conversation=none", {"sec-fetch-site": "same-origin"}, 404),
        ("/api/status?conversation=none", {"sec-fetch-site": "cross-site"}, 403),
        ("/api/status?conversation=none", {"sec-fetch-site": "same-site"}, 403),  # another port of this machine
        ("/api/status?conversation=none", {"origin": "http://evil.example"}, 403),
        ("/api/stream", {"origin": "null"}, 403),
        ("/api/status?conversation=none", {"origin": "http://[::1"}, 403),  # no address at all
        ("/api/status?conversation=none", {"origin": "http://[evil]"}, 403),
        ("/api/status?conversation=%ed%a0%80", {}, 404),  # half of a surrogate pair
        ("/api/stream?conversation=%ff&since=%ff", {}, 400),
        ("/", {"host": "[::1"}, 400),
        ("/", {"host": "]"}, 400),
        ("/nothing", {}, 404),
    ],
)
async def test_only_the_inboxs_own_page_may_ask(
    web: httpx.AsyncClient, path: str, headers: dict[str, str], status: int
) -> None:
    answer = await web.get(path, headers=headers)
    assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON, 404),
        ({"content-type": "Application/JSON ; charset=utf-8"}, 404),
        ({**JSON, "origin": "OWN"}, 404),
        ({**JSON, "origin": "http://evil.example"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),  # what a form of another site could send
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
    ],
)
async def test_no_other_page_can_decide(web: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    own = {name: str(web.base_url).rstrip("/") if value == "OWN" else value for name, value in headers.items()}
    body = json.dumps({"conversation": "none", "call_id": "a"})
    answer = await web.post("/api/approve", content=body, headers=own)
    assert answer.status_code == status
    assert answer.json()["error"]


async def test_half_a_surrogate_pair_in_an_id_is_refused(web: httpx.AsyncClient) -> None:
    for verb, body in {
        "start": '{"agent": "clerk", "message": "Hi", "id": "\\ud800"}',
        "approve": '{"conversation": "\\ud800", "call_id": "a"}',
        "message": '{"conversation": "\\ud800", "text": "Hi", "message_id": "m"}',
    }.items():
        assert (await web.post(f"/api/{verb}", content=body, headers=JSON)).status_code in (400, 404)


async def test_who_leaves_before_the_request_is_whole_leaves_no_traceback(client: Client) -> None:
    await leave_in_the_middle(Inbox(client).app, "/api/approve", {"host": "localhost", **JSON})


# ---------------------------------------------------------------- the token


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 401),
        ("/?token=", {}, 401),
        ("/?token=wrong", {}, 401),
        ("/?token=%C3%A9%00", {}, 401),
        (f"/page/main.js?token={TOKEN}", {}, 401),  # the login is at / only
        ("/page/main.js", {}, 401),
        ("/api/stream", {}, 401),
        ("/api/status?conversation=none", {"authorization": f"Bearer {TOKEN}x"}, 401),
        ("/api/status?conversation=none", {"authorization": f"Basic {TOKEN}"}, 401),
        ("/api/status?conversation=none", {"cookie": f"everturn={TOKEN}"}, 401),
        ("/api/status?conversation=none", {"authorization": f"Bearer {TOKEN}"}, 404),
        ("/api/status?conversation=none", {"authorization": f"bearer {TOKEN}", "host": "inbox.example"}, 404),
        ("/api/status?conversation=none", {"authorization": f"Bearer {TOKEN}", "origin": "http://evil.example"}, 403),
        (f"/?token={TOKEN}", {}, 200),
    ],
)
async def test_with_a_token_nobody_comes_in_without_it(
    guarded: httpx.AsyncClient, path: str, headers: dict[str, str], status: int
) -> None:
    assert (await guarded.get(path, headers=headers)).status_code == status


async def test_the_login_link_sets_a_cookie_that_opens_the_inbox_and_does_not_tell_the_token(
    guarded: httpx.AsyncClient,
) -> None:
    login = await guarded.get(f"/?token={TOKEN}")
    cookie = login.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert TOKEN not in login.text
    assert (await guarded.get("/")).status_code == 200
    assert (await guarded.get("/api/status?conversation=none")).status_code == 404


@pytest.mark.parametrize(
    ("host", "token", "why"),
    [
        ("127.0.0.1", None, ""),
        ("::1", None, ""),
        ("localhost", None, ""),
        ("0.0.0.0", TOKEN, ""),
        ("0.0.0.0", None, "Set EVERTURN_WEB_TOKEN"),
        ("::", None, "Set EVERTURN_WEB_TOKEN"),
        ("192.168.1.7", None, "Set EVERTURN_WEB_TOKEN"),
        ("inbox.example", None, "Set EVERTURN_WEB_TOKEN"),
        ("0.0.0.0", "short", "has 5 characters"),
        ("127.0.0.1", "", "has 0 characters"),
        ("127.0.0.1", "passwörter-mit-umlaut", "printable ASCII"),
    ],
)
def test_beyond_this_machine_it_needs_a_token(host: str, token: str | None, why: str) -> None:
    if not why:
        check_token(token, host=host)
        return
    with pytest.raises(InvalidSetting, match=why):
        check_token(token, host=host)


def test_a_port_that_is_taken_is_named() -> None:
    with open_socket("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(InvalidSetting, match="Use another --port"):
            open_socket("127.0.0.1", first.getsockname()[1])


# ---------------------------------------------------------------- bad input

ID = {"conversation": "none"}


@pytest.mark.parametrize(
    ("verb", "body", "status", "why"),
    [
        ("approve", b"", 400, "Invalid JSON"),
        ("approve", b"{", 400, "Invalid JSON"),
        ("approve", b"[" * 100_000, 400, "recursion"),
        ("approve", b'{"conversation": "\xff", "call_id": "a"}', 400, "Invalid JSON"),
        ("approve", [], 400, "object"),
        ("approve", None, 400, "object"),
        ("approve", {}, 400, "conversation: Field required; call_id: Field required"),
        ("approve", {**ID, "call_id": 7}, 400, "call_id: Input should be a valid string"),
        ("approve", {**ID, "call_id": "a", "arguments": [1]}, 400, "arguments"),
        ("approve", {**ID, "call_id": "a", "argumens": {}}, 400, "argumens: Extra inputs"),
        ("approve", {**ID, "call_id": "a", "by": "x" * 201}, 400, "by: String should have at most 200"),
        ("approve", {**ID, "call_id": "a", "by": "a\nb"}, 400, "by"),
        ("approve", {**ID, "call_id": "a", "arguments": {"x": "y" * 500_000}}, 409, "the limit is 400,000"),
        ("approve", {**ID, "call_id": "a", "arguments": {"x": "y" * 2_100_000}}, 413, "2,000,000 bytes"),
        ("approve", {**ID, "call_id": "a"}, 404, "There is no conversation 'none'"),
        ("answer", {**ID, "call_id": "a"}, 400, "content: Field required"),
        ("message", {**ID, "text": "", "message_id": "1"}, 400, "text"),
        ("message", {**ID, "text": "Hi"}, 400, "message_id: Field required"),
        ("message", {**ID, "text": "Hi", "message_id": "1"}, 404, "There is no conversation"),
        ("start", {"agent": "", "message": "Hi"}, 400, "agent"),
        ("start", {"agent": "clerk", "message": "Hi", "id": "a\u0000b"}, 400, "id"),
        ("close", {"conversation": ""}, 400, "conversation"),
        ("terminate", ID, 404, "there are start, message"),
    ],
)
async def test_what_can_not_be_done_is_refused_with_the_reason(
    web: httpx.AsyncClient, verb: str, body: Any, status: int, why: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await web.post(f"/api/{verb}", content=content, headers=JSON)
    assert (answer.status_code, why in answer.json()["error"]) == (status, True), answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/status", 400),
        ("/api/stream?conversation=x&since=nonsense", 400),
        ("/api/stream?conversation=x&since=a/1%0aevent:", 400),
        ("/api/earlier", 400),
        ("/api/earlier?conversation=x&run=y&before=-1", 400),
        ("/api/earlier?conversation=x&run=y&before=many", 400),
        ("/api/earlier?conversation=x&run=00000000-0000-0000-0000-000000000000&before=1", 404),
        ("/api/approve", 405),
    ],
)
async def test_questions_that_make_no_sense_are_refused(web: httpx.AsyncClient, path: str, status: int) -> None:
    answer = await web.get(path)
    assert answer.status_code == status
    assert answer.json()["error"]


# ---------------------------------------------------------------- deciding


async def test_a_proxys_header_says_who_decides_whatever_the_page_says(client: Client, scripted: Scripted) -> None:
    # A second call waits on, so that the conversation is not over when the first is decided on again.
    both = [[REFUND[0], call("refund", {"order_id": "82", "cents": 6}, id="b")], "Done."]
    agent = agent_on(scripted(both), tools=[refund])
    async with hosting(client, agent), served(client, by_header="X-User") as address:
        conversation = await client.start(agent, "Refund both")
        await waiting(conversation, calls=2)
        async with httpx.AsyncClient(base_url=address, timeout=180) as web:
            body = {"conversation": conversation.id, "call_id": "a", "by": "somebody else"}
            assert (await web.post("/api/deny", json=body)).status_code == 403
            denied = await web.post("/api/deny", json=body, headers={"x-user": "ada@example.org"})
            assert denied.json() == {"call_ids": ["a"]}
            again = await web.post("/api/approve", json=body, headers={"x-user": "bob@example.org"})
            assert (again.status_code, "ada@example.org" in again.json()["error"]) == (409, True)
            await conversation.close()
            await conversation.outcome()
            late = await web.post("/api/approve", json=body, headers={"x-user": "bob@example.org"})
            decided = "Call 'a' was already decided: deny by ada@example.org at "
            over, more = f"Conversation '{conversation.id}' is over. {decided}", ". Your next message continues it."
            told = re.escape(over) + r"\S+" + re.escape(more)
            assert late.status_code == 409
            assert late.json().keys() == {"error"}
            assert re.fullmatch(told, late.json()["error"])


# ---------------------------------------------------------------- the stream


async def test_a_stream_that_is_cut_anywhere_goes_on_without_a_gap_or_a_repetition(
    web: httpx.AsyncClient, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(REFUND), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await conversation.approve()
        await conversation.outcome()
    whole = await told(web, conversation.id)
    kinds = [kind for kind, _ in whole]
    assert kinds[0] == "message_received"
    assert kinds[-1] == "done"
    assert {"replied", "tool_called", "approval_requested", "decided", "tool_finished"} <= {*kinds}
    for position, (_, cursor) in enumerate(whole):
        assert await told(web, conversation.id, since=cursor) == whole[position + 1 :]


async def test_pages_beyond_the_bound_are_refused_until_one_is_closed(web: httpx.AsyncClient, bounds: Bounds) -> None:
    bounds(pages=2)
    async with web.stream("GET", "/api/stream") as first, web.stream("GET", "/api/stream") as second:
        assert [await anext(page.aiter_lines()) for page in (first, second)] == ["retry: 1000"] * 2
        refused = await web.get("/api/stream")
        assert (refused.status_code, "2 pages are already open" in refused.json()["error"]) == (503, True)
    await eventually(lambda: _opens(web), what="there is room again")


async def test_pages_that_come_together_are_counted_at_once(client: Client, bounds: Bounds) -> None:
    """Each was counted with its first byte, which one that reads slowly has to wait for."""
    bounds(pages=2)
    app, statuses = Inbox(client).app, list[int]()

    async def slow(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            if message["status"] == 200:
                await asyncio.Event().wait()

    async def asked() -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/stream",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await app({**scope, "client": ("127.0.0.1", 1)}, asyncio.Event().wait, slow)

    pages = [asyncio.create_task(asked()) for _ in range(4)]
    await eventually(lambda: len(statuses) == 4)
    assert sorted(statuses) == [200, 200, 503, 503]
    for page in pages:
        page.cancel()
    await asyncio.gather(*pages, return_exceptions=True)
    again = asyncio.create_task(asked())
    await eventually(lambda: len(statuses) == 5)
    assert statuses[4] == 200, "those that left make room"
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def _opens(web: httpx.AsyncClient) -> bool:
    async with web.stream("GET", "/api/stream") as page:
        return page.status_code == 200


async def told(web: httpx.AsyncClient, conversation_id: str, since: str = "") -> list[tuple[str, str]]:
    """The kinds and cursors of all events that a page hears, to the end."""
    events: list[tuple[str, str]] = []
    headers = {"last-event-id": since} if since else {}
    async with web.stream("GET", "/api/stream", params={"conversation": conversation_id}, headers=headers) as stream:
        name = ""
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and not name:
                events += [(record["kind"], record["cursor"]) for record in json.loads(line.removeprefix("data: "))]
            elif not line:
                if name == "ended":
                    return events
                name = ""
    raise AssertionError(f"the stream broke off after {events}")


# ---------------------------------------------------------------- the command


async def test_the_command_serves_keeps_the_token_to_itself_and_stops_with_pages_open(server: DevServer) -> None:
    with everturn_web(server, EVERTURN_WEB_TOKEN=TOKEN, EVERTURN_LOG_LEVEL="debug") as web:
        assert web.stderr
        said = ""
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+/)\?token=\$EVERTURN_WEB_TOKEN", said)):
            said += await asyncio.to_thread(web.stderr.readline)
        async with httpx.AsyncClient(base_url=found[1], timeout=180) as browser:
            assert (await browser.get("/", params={"token": TOKEN})).status_code == 200
            async with browser.stream("GET", "/api/stream") as stream:
                assert (await anext(stream.aiter_lines())).startswith("retry:")
                web.send_signal(signal.SIGTERM)
                out, err = await asyncio.to_thread(web.communicate, timeout=180)
    assert web.returncode in (0, -signal.SIGTERM)
    assert TOKEN not in said + out + err


def test_the_command_refuses_to_open_to_others_without_a_token(server: DevServer) -> None:
    with everturn_web(server, "--host", "0.0.0.0") as web:
        _, err = web.communicate(timeout=180)
    assert web.returncode == 1
    assert err.startswith("everturn: Other machines can reach this inbox at '0.0.0.0'")
    assert len(err.splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(server: DevServer) -> None:
    blocked = (
        "import sys; sys.modules['uvicorn'] = None; import everturn.cli; sys.exit(everturn.cli.run_command(['web']))"
    )
    ran = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 1
    assert ran.stderr == f"everturn: The inbox needs uvicorn, which is not installed. {install('web')}\n"


LONG = 2512292042121000001


async def test_a_long_number_that_an_older_browser_rounded_is_the_calls_own(
    client: Client, scripted: Scripted, web: httpx.AsyncClient
) -> None:
    calls = [call("refund", {"order_id": "81", "cents": LONG}, id=call_id) for call_id in ("a", "b", "c", "d")]
    shown = {"order_id": "81", "cents": 2512292042121000000}
    agent = agent_on(scripted([calls, "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund order 81")
        assert await waiting(conversation) == ("a", "b", "c", "d")
        about = {"conversation": conversation.id, "by": "ann"}
        wrong = {**about, "call_id": "a", "expected": shown, "arguments": {**shown, "cents": 2512292042121001000}}
        refused = await web.post("/api/approve", json=wrong)
        assert (refused.status_code, "Browsers round" in refused.text) == (409, True), refused.text
        edited = {**shown, "order_id": "82"}
        for body in ({"call_id": "a", "expected": shown}, {"call_id": "b", "expected": shown, "arguments": edited}):
            answer = await web.post("/api/approve", json={**about, **body})
            assert answer.status_code == 200, answer.text
        exactly = {**about, "call_id": "d", "exact_numbers": True, "arguments": shown}
        stale = await web.post("/api/approve", json={**exactly, "expected": shown})
        assert (stale.status_code, "different arguments" in stale.text) == (409, True), stale.text
        answer = await web.post("/api/approve", json={**exactly, "expected": {**shown, "cents": LONG}})
        assert answer.status_code == 200, answer.text
        many = [{"conversation": conversation.id, "call_id": "c", "expected": shown}]
        answer = await web.post("/api/decide_many", json={"by": "ann", "verdict": "approve", "calls": many})
        assert answer.json()["calls"][0]["refused"] == ""
        await conversation.outcome()
    results = [result.text for message in await conversation.transcript() for result in message.tool_results]
    assert [text.split("\n")[-1] for text in results] == [
        f"{LONG} back for 81",
        f"{LONG} back for 82",
        f"{LONG} back for 81",
        "2512292042121000000 back for 81",
    ]
