"""Vercel's AI SDK on a durable conversation: the real Chat of @ai-sdk/react, against a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from everturn import Client, tool, ui
from everturn.testing import ScriptedModel, call, cut, fail, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.pages import Page, State, needs_node, page, serving
from tests.support.tools import refund

pytestmark = needs_node

Scripted = Callable[..., ScriptedModel]

LOOK: dict[str, Any] = {
    "name": "look",
    "description": "Look at the screen.",
    "parameters": {"type": "object", "properties": {"screen": {"type": "integer"}}},
}

REFUND = call("refund", {"order_id": "81", "cents": 500}, id="r")


@pytest.fixture
def chat() -> str:
    return uuid4().hex


@asynccontextmanager
async def chatting(client: Client, chat: str, **options: Any) -> AsyncIterator[Page]:
    """A page of Ann's on a chat with the clerk."""
    app = ui.ai_sdk(client, agent="clerk", authorize=by_header, **options)
    async with serving(app) as address, anns_page(address, chat) as shown:
        yield shown


def anns_page(address: str, chat: str) -> AbstractAsyncContextManager[Page]:
    return page("ai_sdk.mjs", f"{address}/", chat, **{"x-user": "ann"})


def by_header(request: Any, chat_id: str) -> ui.Visitor | None:
    name = request.headers.get("x-user")
    return ui.Visitor(name=name) if name else None


def parts(state: State, kind: str = "") -> list[dict[str, Any]]:
    """Of the last message."""
    return [part for part in state["messages"][-1]["parts"] if part["type"].startswith(kind)]


def text(state: State) -> str:
    return "".join(part["text"] for part in parts(state, "text"))


TEXT = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen."


def begins(state: State) -> bool:
    return bool(state["messages"]) and "One" in text(state) and text(state) != TEXT


def is_ready(state: State) -> bool:
    return bool(state["status"] == "ready" and state["messages"] and state["messages"][-1]["role"] == "assistant")


async def test_a_text_is_streamed_and_the_next_message_goes_on_with_the_conversation(
    client: Client, scripted: Scripted, chat: str
) -> None:
    released = threading.Event()
    model = scripted([slow(say("Good \u2028morning!", thinking="A greeting."), after=2, until=released), "And you?"])
    async with hosting(client, agent_on(model)), chatting(client, chat) as shown:
        shown.do("send", message={"text": "Hello", "messageId": None})
        released.set()
        # It is ready a moment before its onFinish is called.
        state = await shown.shows(lambda now: is_ready(now) and now["finished"], what="it is answered")
        assert text(state) == "Good \u2028morning!"
        assert [part["text"] for part in parts(state, "reasoning")] == ["A greeting."]
        assert state["finished"][-1]["finishReason"] == "stop"
        shown.do("send", message={"text": "Fine"})
        state = await shown.shows(lambda now: is_ready(now) and len(now["messages"]) == 4, what="and once more")
        assert text(state) == "And you?"
        texts = [message.text for message in await client.conversation(f"clerk:ann:{chat}").transcript()]
        assert texts == ["Hello", "Good \u2028morning!", "Fine", "And you?"]


async def test_a_call_is_approved_or_denied_on_the_page(client: Client, scripted: Scripted) -> None:
    """Each on a page of its own, both at once."""
    agent = agent_on(scripted([[say("Let me see."), REFUND], "Done."]), tools=[refund])

    async def decided(address: str, approved: bool) -> Any:
        chat = uuid4().hex
        async with anns_page(address, chat) as shown:
            shown.do("send", message={"text": "Refund order 81"})
            state = await shown.shows(
                lambda now: is_ready(now) and parts(now, "tool-")[0]["state"] == "approval-requested", what="it asks"
            )
            [asks] = parts(state, "tool-")
            shown.do("approve", id=asks["approval"]["id"], approved=approved, reason="as agreed")
            state = await shown.shows(lambda now: is_ready(now) and "Done." in text(now), what="it goes on")
        [part] = parts(state, "tool-")
        [decision] = [result.decision for message in await told(client, chat) for result in message.tool_results]
        return {
            "asks": asks["input"],
            "messages": len(state["messages"]),
            "texts": [part["text"] for part in parts(state, "text")],
            "call": part["state"],
            "decision": decision and (decision.by, decision.note),
        }

    async with hosting(client, agent), serving(ui.ai_sdk(client, agent="clerk", authorize=by_header)) as address:
        seen = await asyncio.gather(decided(address, True), decided(address, False))
    everywhere = {
        "asks": {"order_id": "81", "cents": 500}, "messages": 2, "texts": ["Let me see.", "Done."],
        "decision": ("ann", "as agreed"),
    }  # fmt: skip
    assert seen == [{**everywhere, "call": "output-available"}, {**everywhere, "call": "output-denied"}]


async def test_a_tool_of_the_page_runs_once_it_is_approved(client: Client, scripted: Scripted, chat: str) -> None:
    """The SDK gives a call to `onToolCall` as soon as its input is there: that came before the approval."""

    @tool(runs_on="client", needs_approval=True, effect="once")
    def look(screen: int) -> str:  # type: ignore[empty-body]
        """Look at the screen."""

    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "A cat."]), tools=[look])
    async with hosting(client, agent), chatting(client, chat) as shown:
        shown.do("send", message={"text": "What is there?"})
        state = await shown.shows(
            lambda now: is_ready(now) and parts(now, "tool-")[0]["state"] == "approval-requested", what="it asks"
        )
        [part] = parts(state, "tool-")
        assert (part["input"], state["given"]) == ({"screen": 1}, [])
        shown.do("approve", id=part["approval"]["id"], approved=True)
        state = await shown.shows(
            lambda now: is_ready(now) and parts(now, "tool-")[0]["state"] == "input-available", what="it may run"
        )
        assert state["given"] == [["look", {"screen": 1}]]
        shown.do("output", tool="look", toolCallId="l", output={"animal": "cat"})
        state = await shown.shows(lambda now: is_ready(now) and text(now) == "A cat.", what="it goes on")
        assert len(state["given"]) == 1


async def told(client: Client, chat: str) -> tuple[Any, ...]:
    return await client.conversation(f"clerk:ann:{chat}").transcript()


async def test_a_tool_of_the_page_gives_its_result(client: Client, scripted: Scripted, chat: str) -> None:
    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "A cat."]), tools=[LOOK])
    async with hosting(client, agent), chatting(client, chat) as shown:
        shown.do("send", message={"text": "What is there?"})
        await shown.shows(
            lambda now: is_ready(now) and parts(now, "tool-")[0]["state"] == "input-available", what="it asks"
        )
        shown.do("output", tool="look", toolCallId="l", output={"animal": "cat"})
        state = await shown.shows(lambda now: is_ready(now) and text(now) == "A cat.", what="it goes on")
        assert len(state["messages"]) == 2
        [result] = [tool_result for message in await told(client, chat) for tool_result in message.tool_results]
        assert result.text == '{"animal": "cat"}'


async def test_a_page_that_is_loaded_in_the_middle_shows_what_was_and_goes_on(
    client: Client, scripted: Scripted, chat: str
) -> None:
    released = threading.Event()
    script = [REFUND, slow(TEXT, after=3, until=released)]
    agent = agent_on(scripted(script), tools=[refund])
    async with hosting(client, agent), serving(ui.ai_sdk(client, agent=agent, authorize=by_header)) as address:
        async with anns_page(address, chat) as first:
            first.do("send", message={"text": "Refund order 81"})
            state = await first.shows(lambda now: is_ready(now) and parts(now, "tool-"), what="it asks")
        async with anns_page(address, chat) as second:
            second.do("load")
            state = await second.shows(lambda now: now["messages"], what="it is loaded")
            [part] = parts(state, "tool-")
            assert part["state"] == "approval-requested"
            second.do("resume")  # nothing runs
            second.do("approve", id=part["approval"]["id"], approved=True)
            await second.shows(begins, what="it writes")
        async with anns_page(address, chat) as third:
            third.do("load")
            await third.shows(lambda now: now["messages"], what="it is loaded")
            third.do("resume")
            await third.shows(begins, what="it is told what was written")
            released.set()
            state = await third.shows(lambda now: is_ready(now) and text(now) == TEXT, what="all")
            assert [message["role"] for message in state["messages"]] == ["user", "assistant"]
            assert [part["state"] for part in parts(state, "tool-")] == ["output-available"]


async def test_words_of_a_try_that_failed_are_marked_as_withdrawn(
    client: Client, scripted: Scripted, chat: str
) -> None:
    go_on = threading.Event()
    model = scripted([cut(TEXT, after=3, until=go_on), "Something else."])
    async with hosting(client, agent_on(model)), chatting(client, chat) as shown:
        shown.do("send", message={"text": "Count"})
        await shown.shows(begins, what="it writes")
        go_on.set()
        state = await shown.shows(lambda now: is_ready(now) and "else." in text(now), what="the other words")
        first, second = parts(state, "text")
        assert (TEXT.startswith(first["text"]), second["text"]) == (True, "Something else.")
        assert first["providerMetadata"] == {"everturn": {"withdrawn": True}}
        assert "providerMetadata" not in second


async def test_who_decides_second_sees_what_the_first_decided(client: Client, scripted: Scripted, chat: str) -> None:
    agent = agent_on(scripted([REFUND, "Done."]), tools=[refund])
    asks = lambda now: is_ready(now) and parts(now, "tool-")  # noqa: E731
    async with (
        hosting(client, agent),
        serving(ui.ai_sdk(client, agent=agent, authorize=by_header)) as address,
        anns_page(address, chat) as first,
        anns_page(address, chat) as second,
    ):
        first.do("send", message={"text": "Refund order 81"})
        state = await first.shows(asks, what="it asks")
        second.do("load")
        await second.shows(lambda now: now["messages"], what="it asks here, too")
        question = parts(state, "tool-")[0]["approval"]["id"]
        first.do("approve", id=question, approved=True)
        await first.shows(lambda now: is_ready(now) and text(now) == "Done.", what="it is done")
        second.do("approve", id=question, approved=False)
        state = await second.shows(lambda now: is_ready(now) and text(now) == "Done.", what="it is told")
        [part] = parts(state, "tool-")
        assert (part["state"], part["output"], state["error"]) == ("output-available", "500 back for 81", "")


async def test_who_stops_it_stops_it_for_all_and_who_leaves_stops_nothing(
    client: Client, scripted: Scripted, chat: str
) -> None:
    never = threading.Event()
    model = scripted([slow(TEXT, after=3, until=never)])
    try:
        async with (
            hosting(client, agent_on(model)),
            serving(ui.ai_sdk(client, agent="clerk", authorize=by_header)) as address,
            anns_page(address, chat) as shown,
            httpx.AsyncClient(headers={"x-user": "ann"}, timeout=180) as http,
        ):
            shown.do("send", message={"text": "Count"})
            await shown.shows(begins, what="it writes")
            shown.do("leave")
            await shown.shows(lambda now: now["finished"], what="it left")
            assert (await client.conversation(f"clerk:ann:{chat}").status()).state == "running"
            shown.do("resume")
            await shown.shows(lambda now: now["status"] == "streaming", what="it is back")
            assert (await http.post(f"{address}/{chat}/stop", json={})).status_code == 204
            await shown.shows(is_ready, what="it is stopped")
            assert (await client.conversation(f"clerk:ann:{chat}").status()).state == "idle"
    finally:
        never.set()


async def test_what_went_wrong_is_shown_and_regenerate_tries_it_again(
    client: Client, scripted: Scripted, chat: str
) -> None:
    model = scripted([fail(401, "No such key: sk-secret"), "Good morning!"])
    async with hosting(client, agent_on(model)), chatting(client, chat) as shown:
        shown.do("send", message={"text": "Hello"})
        state = await shown.shows(lambda now: now["status"] == "error" and now["error"], what="it failed")
        assert state["error"] == "This needs help from somebody. It goes on once that has come."
        shown.do("regenerate")
        await shown.shows(lambda now: is_ready(now) and text(now) == "Good morning!", what="it is tried again")
        assert [one.text for one in await told(client, chat)] == ["Hello", "Good morning!"]


async def test_regenerate_goes_on_with_what_runs_and_asks_once_more_what_was_answered(
    client: Client, scripted: Scripted, chat: str
) -> None:
    released = threading.Event()
    model = scripted([slow(TEXT, after=3, until=released), "Two.", "Three."])
    async with hosting(client, agent_on(model)), chatting(client, chat) as shown:
        shown.do("send", message={"text": "Count"})
        await shown.shows(begins, what="it writes")
        shown.do("leave")
        await shown.shows(lambda now: now["finished"], what="it left")
        shown.do("regenerate")
        await shown.shows(lambda now: now["status"] == "streaming" and begins(now), what="it is back")
        released.set()
        await shown.shows(lambda now: is_ready(now) and text(now) == TEXT, what="all")
        for answer in ("Two.", "Three."):
            shown.do("regenerate")
            state = await shown.shows(lambda now, answer=answer: is_ready(now) and text(now) == answer, what=answer)
            assert len(state["messages"]) == 2
        assert [one.text for one in await told(client, chat)] == ["Count", TEXT, "Count", "Two.", "Count", "Three."]


def asked_of_a_helper(scripted: Scripted, *calls: Any, own: tuple[Any, ...] = (), tools: Any = (refund,)) -> Any:
    """An agent that asks another, which asks a helper, which makes these calls."""
    helper = agent_on(scripted([[*calls], "I am done."]), name="helper", tools=tools)
    middle = agent_on(
        scripted([call("helper", {"message": "Go"}, id="h"), "Done below."]), name="middle", tools=[helper]
    )
    asks = [call("middle", {"message": "Go"}, id="m"), *own]
    return agent_on(scripted([asks, "Done."]), tools=[middle, refund])


@pytest.mark.long_if(lambda approved, loaded: approved == loaded)
@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("loaded", [False, True])
async def test_a_call_of_a_sub_agent_is_decided_on_the_page(
    client: Client, scripted: Scripted, chat: str, approved: bool, loaded: bool
) -> None:
    agent = asked_of_a_helper(scripted, REFUND)
    app = ui.ai_sdk(client, agent=agent, authorize=by_header)

    def asks(now: State) -> bool:
        return bool(is_ready(now) and any(part.get("approval") for part in parts(now, "tool-refund")))

    async with hosting(client, agent), serving(app) as address:
        async with anns_page(address, chat) as shown:
            shown.do("send", message={"text": "Refund order 81"})
            state = await shown.shows(asks, what="it asks")
            if not loaded:
                await _decided_below(shown, state, approved)
        if loaded:
            async with anns_page(address, chat) as shown:
                shown.do("load")
                again = await shown.shows(
                    lambda now: now["messages"] and parts(now, "tool-refund"), what="it is loaded"
                )
                assert parts(again, "tool-") == parts(state, "tool-")
                await _decided_below(shown, again, approved)
    child = client.conversation(f"clerk:ann:{chat}.m.h")
    [result] = [tool_result for message in await child.transcript() for tool_result in message.tool_results]
    assert result.decision
    assert (result.decision.by, result.decision.verdict) == ("ann", "approve" if approved else "deny")


async def _decided_below(shown: Page, state: State, approved: bool) -> None:
    [asking, below] = parts(state, "tool-")
    assert (asking["type"], asking["output"]["everturnWaitsFor"][0]["toolCallId"]) == (
        "tool-middle",
        below["toolCallId"],
    )
    assert (below["input"], below["state"]) == ({"order_id": "81", "cents": 500}, "approval-requested")
    assert below["callProviderMetadata"]["everturn"]["agents"] == ["middle", "helper"]
    shown.do("approve", id=below["approval"]["id"], approved=approved, reason="as agreed")
    state = await shown.shows(lambda now: is_ready(now) and "Done." in text(now), what="it goes on")
    [asking, below] = parts(state, "tool-")
    assert (asking["state"], asking["output"]) == ("output-available", "Done below.")
    assert below["state"] == ("output-available" if approved else "output-denied")


async def test_equal_calls_of_an_agent_and_its_sub_agent_are_told_apart_on_the_page(
    client: Client, scripted: Scripted, chat: str
) -> None:
    agent = asked_of_a_helper(scripted, REFUND, own=(call("refund", {"order_id": "7", "cents": 1}, id="r"),))

    def ask(now: State) -> bool:
        asked = [part["input"]["order_id"] for part in parts(now, "tool-refund") if part.get("approval")]
        return bool(is_ready(now) and sorted(asked) == ["7", "81"])

    async with hosting(client, agent), chatting(client, chat) as shown:
        shown.do("send", message={"text": "Refund both"})
        state = await shown.shows(ask, what="both ask")
        for part in parts(state, "tool-refund"):
            shown.do("approve", id=part["approval"]["id"], approved=part["input"]["order_id"] == "81")
        state = await shown.shows(lambda now: is_ready(now) and "Done." in text(now), what="it goes on")
        states = {part["input"]["order_id"]: part["state"] for part in parts(state, "tool-refund")}
    assert states == {"7": "output-denied", "81": "output-available"}


async def test_a_tool_of_the_page_is_run_for_a_sub_agent(client: Client, scripted: Scripted, chat: str) -> None:
    agent = asked_of_a_helper(scripted, call("look", {"screen": 1}, id="l"), tools=[LOOK])
    async with hosting(client, agent), chatting(client, chat) as shown:
        shown.do("send", message={"text": "What is there?"})
        state = await shown.shows(lambda now: is_ready(now) and parts(now, "tool-look"), what="it asks")
        [part] = parts(state, "tool-look")
        shown.do("output", tool="look", toolCallId=part["toolCallId"], output={"animal": "cat"})
        await shown.shows(lambda now: is_ready(now) and text(now) == "Done.", what="it goes on")
    child = client.conversation(f"clerk:ann:{chat}.m.h")
    [result] = [tool_result for message in await child.transcript() for tool_result in message.tool_results]
    assert result.text == '{"animal": "cat"}'
