"""The front ends over plain HTTP: who may come in, what is refused and why, and what is taken once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from everturn import Client, Conversation, Image, tool, ui
from everturn.errors import InvalidSetting, NotFound, Refused
from everturn.testing import ScriptedModel, call, say
from everturn.ui.chats import Chat
from tests.support.agents import agent_on, hosting
from tests.support.leaving import leave_in_the_middle
from tests.support.pages import serving
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

REFUND = call("refund", {"order_id": "81", "cents": 500}, id="r")


async def whose(request: Any, chat_id: str) -> ui.Visitor | None:
    name = request.headers.get("x-user")
    if name == "guest":
        return ui.Visitor(name="ann", tenant="acme", decides=False)
    tenant = request.headers.get("x-tenant", "acme")
    return ui.Visitor(name=name, tenant=tenant, metadata={"user": name}) if name else None


@pytest.fixture
async def http(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(
        routes=[
            Mount("/chat", ui.ai_sdk(client, agent="clerk", authorize=whose, max_body_bytes=10_000)),
            Mount("/ag-ui", ui.ag_ui(client, agent="clerk", authorize=whose, max_body_bytes=10_000)),
        ]
    )
    async with (
        serving(app) as address,
        httpx.AsyncClient(base_url=address, headers={"x-user": "ann"}, timeout=180) as http,
    ):
        yield http


@pytest.fixture
def chat() -> str:
    return uuid4().hex


def user(text: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}], **more}


def chunks(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(told: list[dict[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in told if chunk["type"] == "text-delta")


DEEP = "[" * 5_000 + "]" * 5_000


POSTS: list[tuple[Any, dict[str, str], int, str]] = [
    ({"id": "c", "messages": [user("Hi")]}, {"x-user": ""}, 403, "not yours"),
    ({"id": "a:b", "messages": [user("Hi")]}, {}, 400, "A chat's id"),
    ({"id": "../c", "messages": [user("Hi")]}, {}, 400, "A chat's id"),
    ({"id": "c", "messages": []}, {}, 400, "messages"),
    ({"id": "c", "messages": ["Hi"]}, {}, 400, "can't be read"),
    ({"id": "c", "messages": [user("Hi", "")]}, {}, 400, "no id"),
    ({"id": "c", "messages": [user(" ")]}, {}, 422, "empty"),
    ({"id": "c", "messages": [user("Hi")], "messageId": "m1"}, {}, 409, "can't be edited"),
    (
        {"id": "c", "messages": [{"id": "a", "role": "assistant"}], "trigger": "regenerate-message"},
        {},
        400,
        "made anew",
    ),
    ({"id": "c", "messages": [{"id": "s", "role": "system", "parts": []}]}, {}, 400, "user's or the assistant's"),
    (
        {"id": "c", "messages": [user("", parts=[{"type": "file", "url": "file:///etc/passwd"}])]},
        {},
        400,
        "data: URL",
    ),
    (
        {"id": "c", "messages": [user("", parts=[{"type": "file", "url": "data:image/png;base64,?"}])]},
        {},
        400,
        "64",
    ),
    ({"id": "c", "messages": [user("x" * 20_000)]}, {}, 413, "10,000"),
    ({"id": "c", "messages": [user("Hi")]}, {"content-type": "text/plain"}, 415, "application/json"),
    (b'{"id": "c", "messages": [' + DEEP.encode() + b"]}", {}, 413, "10,000"),
    (b'{"id": "c", "messages": [' + DEEP.encode()[3_000:-3_000] + b"]}", {}, 400, "can't be read"),
    (b'{"id": "c", "messages": "\\ud800"}', {}, 400, "can't be read"),
    (b"\xff", {}, 400, "can't be read"),
]


async def test_what_a_page_may_not_post_is_refused_with_the_reason(http: httpx.AsyncClient) -> None:
    raw = [body if isinstance(body, bytes) else json.dumps(body).encode() for body, *_ in POSTS]
    answers = [
        await http.post("/chat/", content=content, headers={"content-type": "application/json", **headers})
        for content, (_, headers, _, _) in zip(raw, POSTS, strict=True)
    ]
    assert _as_they_were_refused(answers, [(status, why) for _, _, status, why in POSTS]) == []


def _as_they_were_refused(answers: list[httpx.Response], wanted: list[tuple[int, str]]) -> list[str]:
    """The answers that are others than these, each with its request."""
    return [
        f"{status} {why!r}, and not: {answer.status_code} {answer.text}; to {answer.request.content[:200]!r}"
        for answer, (status, why) in zip(answers, wanted, strict=True)
        if answer.status_code != status or why not in answer.text
    ]


SAID = {"id": "m", "role": "user", "content": "Hi"}


RUNS: list[tuple[dict[str, Any], int, str]] = [
    ({"threadId": "a:b"}, 400, "A chat's id"),
    ({"runId": ""}, 400, "runId"),
    ({"messages": [{"id": "", "role": "user", "content": "Hi"}]}, 400, "no id"),
    ({"messages": [{"id": "m", "role": "user", "content": 5}]}, 400, "a text or a list"),
    ({"messages": [{"id": "m", "role": "user", "content": [{"type": "video"}]}]}, 400, "'video'"),
    ({"resume": [{"interruptId": "r.1", "status": "resolved", "payload": {"approved": "yes"}}]}, 400, "approved"),
    (
        {"resume": [{"interruptId": "r.1", "status": "resolved", "payload": {"approved": True, "editedArgs": 1}}]},
        400,
        "editedArgs",
    ),
    ({"resume": [{"interruptId": "r.1", "status": "cancelled"}]}, 404, "no conversation"),
    ({"messages": [SAID], "tools": [{"name": "a b"}]}, 400, "'a b'"),
    ({"messages": [SAID], "tools": [{"name": "a"}, {"name": "a"}]}, 400, "twice"),
    ({"messages": [SAID], "tools": [{"name": f"t{number}"} for number in range(101)]}, 400, "at most 100"),
    ({"messages": [SAID], "tools": [{"name": "a", "parameters": {"type": "array"}}]}, 400, "type object"),
    ({"messages": [SAID], "tools": [{"name": "a", "parameters": {"required": [{}]}}]}, 400, "required"),
    ({"messages": [SAID], "context": ["the order"]}, 400, "can't be read"),
]


async def test_what_a_run_may_not_ask_is_refused_with_the_reason(http: httpx.AsyncClient) -> None:
    run = {"threadId": "never-heard-of", "runId": "r", "messages": []}
    answers = [await http.post("/ag-ui/", json={**run, **change}) for change, *_ in RUNS]
    assert _as_they_were_refused(answers, [(status, why) for _, status, why in RUNS]) == []


async def test_nobody_opens_the_chat_of_another(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    others = ({"x-user": "bob"}, {"x-tenant": "globex"})  # who has an Ann, too
    async with hosting(client, agent_on(scripted(["For Ann alone."]))):
        await http.post("/chat/", json={"id": chat, "messages": [user("Hi")]})
        assert (await http.get(f"/chat/{chat}")).json()[-1]["parts"][-1]["text"] == "For Ann alone."
        for other in others:
            assert (await http.get(f"/chat/{chat}", headers=other)).json() == []
            assert (await http.get(f"/chat/{chat}/stream", headers=other)).status_code == 204
            assert (await http.post(f"/chat/{chat}/stop", headers=other, json={})).status_code == 204
        assert (await http.get(f"/chat/{chat}", headers={"x-user": ""})).status_code == 403


@pytest.mark.parametrize("said", [{"decides": "no"}, {"decides": 0}, {"decides": None}, {"name": 5}, {"name": None}])
def test_what_a_visitor_may_is_said_in_so_many_words(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        ui.Visitor(**{"name": "ann", **said})


def test_no_two_visitors_meet_in_one_conversation() -> None:
    visitors = [
        ui.Visitor(name=name, tenant=tenant)
        for name in ("ann", "acme:ann", "acme%3Aann", "", ":")
        for tenant in (None, "", "acme", "acme:ann", "acme%3Aann")
    ]
    assert len({visitor.conversation_id("clerk", "chat") for visitor in visitors}) == len(visitors)
    assert ui.Visitor(name="ann").conversation_id("clerk", "chat") == "clerk:ann:chat"


@pytest.mark.parametrize(
    "answered",
    [
        {"messages": [{"id": "t1", "role": "tool", "toolCallId": "gone", "content": "x"}]},
        {"resume": [{"interruptId": "gone.1", "status": "resolved", "payload": {"approved": True}}]},
    ],
)
async def test_a_thread_of_a_conversation_that_is_no_more_goes_on_with_what_is_new(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, answered: dict[str, Any]
) -> None:
    """An AG-UI client sends what it has answered again with each run, and can't take it back."""
    said = [*answered.get("messages", ()), {"id": "u1", "role": "user", "content": "Hi"}]
    body = {**answered, "threadId": chat, "runId": "r", "messages": said}
    async with hosting(client, agent_on(scripted(["Hello."]))):
        answer = await http.post("/ag-ui/", json=body)
    assert answer.status_code == 200, answer.text
    assert "Hello." in answer.text


@pytest.mark.parametrize("make", [ui.ai_sdk, ui.ag_ui])
async def test_who_leaves_before_the_request_is_whole_leaves_no_traceback(client: Client, make: Any) -> None:
    app = make(client, agent="clerk", authorize=ui.anybody)
    await leave_in_the_middle(app, "/", {"content-type": "application/json"})


async def test_a_request_that_is_sent_twice_says_it_once(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    body = {"id": chat, "messages": [user("Hi")]}
    async with hosting(client, agent_on(scripted(["Hello.", "Never said."]))):
        first, second = await asyncio.gather(http.post("/chat/", json=body), http.post("/chat/", json=body))
        third = await http.post("/chat/", json=body)
        assert [text_of(chunks(one)) for one in (first, second, third)] == ["Hello."] * 3
        assert first.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert first.text.endswith("data: [DONE]\n\n")
        assert len(await client.conversation(f"clerk:acme:ann:{chat}").transcript()) == 2


async def test_an_answer_that_is_made_anew_twice_is_asked_for_once(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    body = {"id": chat, "messages": [user("Hi")], "trigger": "regenerate-message"}
    async with hosting(client, agent_on(scripted(["One.", "Two.", "Never said."]))):
        assert text_of(chunks(await http.post("/chat/", json=body))) == "One."  # it had never arrived
        body["messageId"] = "reply-1"
        both = await asyncio.gather(http.post("/chat/", json=body), http.post("/chat/", json=body))
        third = await http.post("/chat/", json=body)
        assert [text_of(chunks(one)) for one in (*both, third)] == ["Two."] * 3
        assert len(await client.conversation(f"clerk:acme:ann:{chat}").transcript()) == 4


async def test_a_message_whose_request_never_arrived_goes_along_with_the_next(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    """The page shows it, with an error, and keeps it."""
    unreadable = {**user("?", "m0"), "parts": [{"type": "file", "url": "ftp://a"}]}
    lost, newest = user("I am Ann.", "m1"), user("Who am I?", "m2")
    body = {"id": chat, "messages": [unreadable, lost, newest]}
    async with hosting(client, agent_on(scripted(lambda messages: f"I read {len(messages)}."))):
        for _ in range(2):
            await http.post("/chat/", json=body)
        conversation = client.conversation(f"clerk:acme:ann:{chat}")
        await conversation.close()
        await conversation.outcome()
    transcript = await conversation.transcript()
    assert [message.text for message in transcript if message.role == "user"] == ["I am Ann.", "Who am I?"]


def responded(chunk: dict[str, Any], *, approved: bool = True, **more: Any) -> dict[str, Any]:
    part = {
        "type": "tool-refund",
        "toolCallId": "r",
        "state": "approval-responded",
        "input": {"order_id": "81", "cents": 500},
        "approval": {"id": chunk["approvalId"], "approved": approved},
        **more,
    }
    return {"id": "reply-1", "role": "assistant", "parts": [part]}


async def test_a_decision_counts_for_the_question_and_the_arguments_that_were_shown(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    async with hosting(client, agent_on(scripted([REFUND, "Done."]), tools=[refund])):
        told = chunks(await http.post("/chat/", json={"id": chat, "messages": [user("Refund 81")]}))
        [asked] = [one for one in told if one["type"] == "tool-approval-request"]
        conversation = client.conversation(f"clerk:acme:ann:{chat}")

        async def post(message: dict[str, Any]) -> list[dict[str, Any]]:
            return chunks(await http.post("/chat/", json={"id": chat, "messages": [message]}))

        # Another question's name, and a result in the place of an approval: neither is a decision.
        told = await post(responded({"approvalId": "r.0123456789abcdef"}))
        assert told[-1]["finishReason"] == "tool-calls"
        await post(responded(asked, state="output-available", output="It is paid.", approval=None))
        assert await waiting(conversation) == ("r",)
        # Other arguments than the call has: the person is asked again, and told why.
        told = await post(responded(asked, input={"order_id": "81", "cents": 5}))
        assert [one["type"] for one in told] == ["start", "tool-approval-request", "error"]
        assert await waiting(conversation) == ("r",)
        # Somebody who may not decide here.
        refused = await http.post(
            "/chat/", json={"id": chat, "messages": [responded(asked)]}, headers={"x-user": "guest"}
        )
        assert refused.status_code == 403
        # Posted twice: it runs once.
        both = await asyncio.gather(post(responded(asked)), post(responded(asked)))
        assert [text_of(one) for one in both] == ["Done.", "Done."]
        assert [one["output"] for one in both[0] if one["type"] == "tool-output-available"] == ["500 back for 81"]


async def test_who_may_not_decide_waits_for_who_may(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    async with hosting(client, agent_on(scripted([REFUND, "Done."]), tools=[refund])):
        body = {"id": chat, "messages": [user("Refund 81")]}
        posting = asyncio.create_task(http.post("/chat/", json=body, headers={"x-user": "guest"}))
        conversation = client.conversation(f"clerk:acme:ann:{chat}")
        assert await waiting(await _there(conversation)) == ("r",)
        await conversation.approve("r")
        told = chunks(await posting)
        assert text_of(told) == "Done."
        assert "tool-approval-request" not in [one["type"] for one in told]


async def _there(conversation: Conversation) -> Conversation:
    async def there() -> bool:
        try:
            await conversation.cursor()
        except NotFound:
            return False
        return True

    await eventually(there, what="it has begun")
    return conversation


@tool
def draw() -> list[Image | str]:
    return ["A dot.", Image(data="aGVsbG8=", media_type="image/png")]


async def test_pictures_and_files_go_both_ways(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    picture = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGVsbG8="}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "https://example.com/a.pdf", "filename": "a.pdf"}
    said = user("", parts=[{"type": "text", "text": "Look"}, picture, pdf, {"type": "data-mine", "data": 1}])
    async with hosting(client, agent_on(scripted([call("draw", id="d"), "A dot."]), tools=[draw])):
        told = chunks(await http.post("/chat/", json={"id": chat, "messages": [said]}))
        [output] = [one["output"] for one in told if one["type"] == "tool-output-available"]
        assert output == [{"type": "text", "text": "A dot."}, picture]
        first, answer = (await http.get(f"/chat/{chat}")).json()
        assert first["parts"] == said["parts"]
        assert answer["id"] == told[0]["messageId"] == "reply-1"
        run = {"threadId": chat, "runId": "r", "messages": []}
        [snapshot] = [
            chunk for chunk in chunks(await http.post("/ag-ui/", json=run)) if chunk["type"] == "MESSAGES_SNAPSHOT"
        ]
        source = {"type": "data", "value": "aGVsbG8=", "mimeType": "image/png"}
        assert snapshot["messages"][0]["content"][1] == {"type": "image", "source": source}


async def test_a_conversation_that_is_over_goes_on_with_the_next_message(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    async with hosting(client, agent_on(scripted(["One.", "Two."]))):
        await http.post("/chat/", json={"id": chat, "messages": [user("Hi")]})
        conversation = client.conversation(f"clerk:acme:ann:{chat}")
        await conversation.close()
        await conversation.outcome()
        assert (await http.get(f"/chat/{chat}/stream")).status_code == 204
        told = chunks(await http.post("/chat/", json={"id": chat, "messages": [user("And?", "m2")]}))
        assert text_of(told) == "Two."
        shown = [message["parts"][-1]["text"] for message in (await http.get(f"/chat/{chat}")).json()]
        assert shown == ["Hi", "One.", "And?", "Two."]


@pytest.mark.parametrize("make", [ui.ai_sdk, ui.ag_ui])
def test_it_is_not_made_without_somebody_who_says_who_may(make: Any) -> None:
    client = cast("Client", object.__new__(Client))
    with pytest.raises(InvalidSetting, match="anybody"):
        make(client, agent="clerk", authorize=None)
    with pytest.raises(InvalidSetting, match=r"Client\.connect"):
        make("localhost:7233", agent="clerk", authorize=ui.anybody)
    with pytest.raises(InvalidSetting, match="'authorize'"):
        make(client, agent="clerk", authorise=ui.anybody)


@pytest.mark.parametrize("door", ["chat", "ag-ui"])
async def test_who_may_not_decide_may_not_end_a_call_that_waits_by_stopping(
    client: Client,
    scripted: Scripted,
    http: httpx.AsyncClient,
    chat: str,
    door: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = agent_on(scripted([REFUND, "Done."]), tools=[refund])
    check = Chat._check_nothing_waits
    unseen = [True]

    async def look(self: Chat) -> None:
        """It does not see the call that is about to wait the first time."""
        if unseen:
            unseen.clear()
        else:
            await check(self)

    monkeypatch.setattr(Chat, "_check_nothing_waits", look)

    async with hosting(client, agent):
        conversation = await client.send("clerk", "Refund 81", id=f"clerk:acme:ann:{chat}")
        (call_id,) = await waiting(conversation)
        stopped = await http.post(f"/{door}/{chat}/stop", headers={"x-user": "guest"}, json={})
        assert (stopped.status_code, "you may not decide" in stopped.text) == (403, True)
        assert not unseen
        with pytest.raises(Refused, match="A call waits for somebody's decision"):
            await conversation._close_without_deciding(None)
        for signal in ("cancel_turn", "close"):
            handle = client.temporal.get_workflow_handle(conversation.id)
            await handle.signal(signal, {"without_deciding": True})
        assert [waiting_call.call_id for waiting_call in (await conversation.status()).waiting] == [call_id]
        assert [*(await conversation.by_history()).state.pending] == [call_id]
        assert (await http.post(f"/{door}/{chat}/stop", json={})).status_code == 204
        assert (await conversation.outcome()).status == "cancelled"


@pytest.mark.parametrize(("finish", "reason"), [("length", "length"), ("content_filter", "content-filter")])
async def test_a_page_is_told_that_an_answer_is_not_whole(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, finish: str, reason: str
) -> None:
    async with hosting(client, agent_on(scripted([say("The refund is 34.", finish=finish)] * 2))):
        told = chunks(await http.post("/chat/", json={"id": chat, "messages": [user("How much?")]}))
        assert told[-1]["finishReason"] == reason
        run = {"threadId": f"{chat}2", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "How much?"}]}
        told = chunks(await http.post("/ag-ui/", json={**run, "state": {}, "tools": [], "context": []}))
        (status,) = [event["value"] for event in told if event.get("name") == "status"]
        assert status["state"] == "cut_off"


@pytest.mark.parametrize("taken", ["everturn-budget:acme", "order-81"])
async def test_a_page_opens_no_workflow_that_is_no_conversation(client: Client, taken: str) -> None:
    def authorize(request: Any, chat_id: str) -> ui.Visitor:
        return ui.Visitor(name="ann", conversation=taken)

    other = await client.temporal.start_workflow("Order", id=taken, task_queue=f"{client.task_queue}-nobody")
    try:
        async with (
            serving(ui.ai_sdk(client, agent="clerk", authorize=authorize)) as address,
            httpx.AsyncClient(base_url=address, timeout=180) as http,
        ):
            answer = await http.post("/", json={"id": "c", "messages": [user("Hi")]})
        assert (answer.status_code, "type 'Order'" in answer.text) == (404, True), answer.text
        assert not [event async for event in other.fetch_history_events() if event.event_type == 26], "no signal"
    finally:
        await other.terminate()
