"""AG-UI on a durable conversation: the real HttpAgent of @ag-ui/client, against a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from everturn import Client, Conversation, tool, ui
from everturn.testing import ScriptedModel, call, cut, fail, say, slow
from everturn.ui.ag_ui_request import RunInput, read_run
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
def thread() -> str:
    return str(uuid4())


def by_header(request: Any, thread_id: str) -> ui.Visitor | None:
    name = request.headers.get("x-user")
    return ui.Visitor(name=name) if name else None


@asynccontextmanager
async def talking(client: Client, thread: str, **options: Any) -> AsyncIterator[Page]:
    """A page of Ann's on a thread with the clerk."""
    app = ui.ag_ui(client, agent="clerk", authorize=by_header, **options)
    async with serving(app) as address, anns_page(address, thread) as shown:
        yield shown


def anns_page(address: str, thread: str) -> AbstractAsyncContextManager[Page]:
    return page("ag_ui.mjs", f"{address}/", thread, **{"x-user": "ann"})


def conversation_of(client: Client, thread: str) -> Conversation:
    return client.conversation(f"clerk:ann:{thread}")


def words(state: State) -> list[tuple[str, Any]]:
    return [(message["role"], message.get("content", "")) for message in state["messages"]]


def outcome(state: State) -> Any:
    last = state["events"][-1]
    return last.get("outcome", {}).get("type", last["type"])


TEXT = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen."


def begins(state: State) -> bool:
    role, text = words(state)[-1]
    return bool(role == "assistant" and text and TEXT.startswith(text) and text != TEXT)


def ended(runs: int) -> Callable[[State], bool]:
    return lambda now: now["runs"] == runs


async def test_a_text_is_streamed_and_the_next_message_goes_on_with_the_conversation(
    client: Client, scripted: Scripted, thread: str
) -> None:
    model = scripted([say("Good \u2028morning!", thinking="A greeting."), "And you?"])
    async with hosting(client, agent_on(model)), talking(client, thread) as shown:
        shown.do("send", message={"id": "m1", "content": "Hello"})
        state = await shown.shows(ended(1), what="it is answered")
        assert words(state) == [
            ("user", "Hello"),
            ("reasoning", "A greeting."),
            ("assistant", "Good \u2028morning!"),
        ]
        assert outcome(state) == "success"
        shown.do("send", message={"id": "m2", "content": [{"type": "text", "text": "Fine"}]})
        state = await shown.shows(ended(2), what="and once more")
        assert words(state)[-1] == ("assistant", "And you?")
    texts = [message.text for message in await conversation_of(client, thread).transcript()]
    assert texts == ["Hello", "Good \u2028morning!", "Fine", "And you?"]


ANSWERS: dict[str, dict[str, Any]] = {
    "500 back for 81": {"status": "resolved", "payload": {"approved": True}},
    "7 back for 81": {
        "status": "resolved",
        "payload": {"approved": True, "editedArgs": {"order_id": "81", "cents": 7}},
    },
    "too much": {"status": "resolved", "payload": {"approved": False, "reason": "too much"}},
    "cancelled by the user": {"status": "cancelled"},
}
"""How an interrupt may be answered, by what stands in the result then."""


async def test_an_interrupt_asks_for_an_approval_and_its_answer_decides(client: Client, scripted: Scripted) -> None:
    """Each answer on a page of its own, all at once."""
    agent = agent_on(scripted([[say("Let me see."), REFUND], "Done."]), tools=[refund])

    async def answered(address: str, entry: dict[str, Any]) -> dict[str, Any]:
        thread = str(uuid4())
        async with anns_page(address, thread) as shown:
            shown.do("send", message={"id": "m1", "content": "Refund order 81"})
            state = await shown.shows(ended(1), what="it asks")
            [interrupt] = state["interrupts"]
            asks = (interrupt["reason"], interrupt["toolCallId"])
            shown.do("resume", resume=[{"interruptId": interrupt["id"], **entry}])
            state = await shown.shows(ended(2), what="it goes on")
        [decision] = [
            result.decision
            for message in await conversation_of(client, thread).transcript()
            for result in message.tool_results
        ]
        return {
            "asks": asks,
            "outcome": outcome(state),
            "results": [message["content"] for message in state["messages"] if message["role"] == "tool"],
            "replies": [text for role, text in words(state) if role == "assistant"],
            "by": decision and decision.by,
        }

    async with hosting(client, agent), serving(ui.ag_ui(client, agent="clerk", authorize=by_header)) as address:
        seen = dict(
            zip(ANSWERS, await asyncio.gather(*(answered(address, entry) for entry in ANSWERS.values())), strict=True)
        )
    results = {given: case.pop("results") for given, case in seen.items()}
    everywhere = {
        "asks": ("tool_call", "r"), "outcome": "success", "replies": ["Let me see.", "Done."], "by": "ann",
    }  # fmt: skip
    assert seen == dict.fromkeys(ANSWERS, everywhere)
    assert {given: len(texts) for given, texts in results.items()} == dict.fromkeys(ANSWERS, 1)
    assert {given: text for given, [text] in results.items() if given not in text} == {}


async def test_a_tool_of_the_front_end_gives_its_result(client: Client, scripted: Scripted, thread: str) -> None:
    agent = agent_on(scripted([call("look", {"screen": 1}, id="l"), "A cat."]), tools=[LOOK])
    async with hosting(client, agent), talking(client, thread) as shown:
        shown.do("send", message={"id": "m1", "content": "What is there?"})
        state = await shown.shows(ended(1), what="it asks")
        assert state["events"][-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["l"]}
        shown.do("output", id="o1", toolCallId="l", content='{"animal": "cat"}')
        state = await shown.shows(ended(2), what="it goes on")
        assert words(state)[-1] == ("assistant", "A cat.")
        assert [role for role, _ in words(state)] == ["user", "assistant", "tool", "assistant"]


def shown_calls(state: State) -> list[str]:
    return [tool_call["id"] for message in state["messages"] for tool_call in message.get("toolCalls", ())]


@pytest.mark.long_if(lambda comes_back, approved: comes_back != approved)
@pytest.mark.parametrize("comes_back", [False, True], ids=["stays", "comes back"])
@pytest.mark.parametrize(("approved", "given"), [(True, '{"animal": "cat"}'), (False, "not that screen")])
async def test_a_tool_of_the_front_end_is_shown_once_it_is_approved(
    client: Client, scripted: Scripted, thread: str, comes_back: bool, approved: bool, given: str
) -> None:
    """CopilotKit runs a call's tool as soon as it has the call, whatever the interrupts say. What an interrupt with a
    toolCallId is answered it writes down as the call's result."""

    @tool(runs_on="client", needs_approval=True, effect="once")
    def look(screen: int) -> str:  # type: ignore[empty-body]
        """Look at the screen."""

    model = scripted([[say("Let me see."), call("look", {"screen": 1}, id="l")], "A cat."])
    async with (
        hosting(client, agent_on(model, tools=[look])),
        serving(ui.ag_ui(client, agent="clerk", authorize=by_header)) as address,
        AsyncExitStack() as pages,
    ):
        client_page = await pages.enter_async_context(anns_page(address, thread))
        client_page.do("send", message={"id": "m1", "content": "What is there?"})
        state = await client_page.shows(ended(1), what="it asks")
        if comes_back:
            client_page = await pages.enter_async_context(anns_page(address, thread))
            client_page.do("back")
            state = await client_page.shows(ended(1), what="it asks again")
        [interrupt] = state["interrupts"]
        assert (shown_calls(state), "toolCallId" in interrupt) == ([], False)
        assert interrupt["metadata"]["everturn"]["arguments"] == {"screen": 1}
        payload = {"approved": approved, "reason": "not that screen"}
        client_page.do("resume", resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}])
        state = await client_page.shows(ended(2), what="it goes on")
        assert shown_calls(state) == ["l"]
        if approved:
            assert state["events"][-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["l"]}
            client_page.do("output", id="o1", toolCallId="l", content=given)
            state = await client_page.shows(ended(3), what="it has the answer")
        assert words(state)[:2] == [("user", "What is there?"), ("assistant", "Let me see.")]
        assert words(state)[-1] == ("assistant", "A cat.")
        [result] = [message for message in state["messages"] if message["role"] == "tool"]
        assert given in result["content"]
    [recorded] = [
        result_of_call
        for message in await conversation_of(client, thread).transcript()
        for result_of_call in message.tool_results
    ]
    assert given in recorded.text


async def test_an_approval_that_is_written_down_as_a_result_is_none(
    client: Client, scripted: Scripted, thread: str
) -> None:
    """As CopilotKit does: the answer to the interrupt stands in the thread as a tool's message, too."""
    agent = agent_on(scripted([REFUND, "Done."]), tools=[refund])
    async with hosting(client, agent), talking(client, thread) as client_page:
        client_page.do("send", message={"id": "m1", "content": "Refund order 81"})
        state = await client_page.shows(ended(1), what="it asks")
        [interrupt] = state["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        client_page.do("resume", resume=resume, tool={"id": "t1", "toolCallId": "r", "content": '{"approved":true}'})
        state = await client_page.shows(ended(2), what="it goes on")
        assert words(state)[-1] == ("assistant", "Done.")
        results = [event["content"] for event in state["events"] if event["type"] == "TOOL_CALL_RESULT"]
        assert results == ["500 back for 81"]


BRINGS: dict[str, Any] = {
    "tools": [LOOK, {"name": "refund", "description": "Mine now.", "parameters": {"type": "object"}}],
    "context": [{"description": "the open order", "value": "81"}],
    "state": {"cart": ["pen"]},
}


async def test_tools_that_the_front_end_declares_and_what_it_shows_stay_with_the_conversation(
    client: Client, scripted: Scripted, thread: str
) -> None:
    model = scripted([call("look", {"screen": 1}, id="l"), "A cat.", "Nothing to look with."])
    agent = agent_on(model, tools=[refund])
    async with talking(client, thread) as shown:
        async with hosting(client, agent):
            shown.do("send", message={"id": "m1", "content": "What is there?"}, **BRINGS)
            await shown.shows(ended(1), what="it asks")
        async with hosting(client, agent):  # another worker, which has only the history
            shown.do("output", id="o1", toolCallId="l", content="A cat, it says.")
            state = await shown.shows(ended(2), what="it goes on")
            assert words(state)[-1] == ("assistant", "A cat.")
            shown.do("back")
            state = await shown.shows(ended(3), what="it is given all")
            assert words(state)[0] == ("user", "What is there?")
            shown.do("send", message={"id": "m2", "content": "And now?"}, state={})
            await shown.shows(ended(4), what="it is answered")
    before, after, last = model.requests
    for request in (before, after):
        offered = {tool["function"]["name"]: tool["function"]["description"] for tool in request["tools"]}
        assert offered == {"look": LOOK["description"], "refund": refund.description}
    assert [tool["function"]["name"] for tool in last["tools"]] == ["refund"]
    assert '- the open order: 81\n- its state: {"cart": ["pen"]}' in before["messages"][-1]["content"]


async def test_a_client_that_comes_back_in_the_middle_is_given_all_and_goes_on(
    client: Client, scripted: Scripted, thread: str
) -> None:
    released = threading.Event()
    agent = agent_on(scripted([REFUND, slow(TEXT, after=3, until=released)]), tools=[refund])
    async with hosting(client, agent), serving(ui.ag_ui(client, agent=agent, authorize=by_header)) as address:
        async with anns_page(address, thread) as first:
            first.do("send", message={"id": "m1", "content": "Refund order 81"})
            await first.shows(ended(1), what="it asks")
        async with anns_page(address, thread) as second:
            second.do("back")
            state = await second.shows(ended(1), what="it is told what waits")
            [interrupt] = state["interrupts"]
            resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
            second.do("resume", resume=resume)
            await second.shows(begins, what="it writes")
        async with anns_page(address, thread) as third:
            third.do("back")
            await third.shows(begins, what="it is told what was written")
            released.set()
            state = await third.shows(ended(1), what="all")
            assert outcome(state) == "success"
            assert [role for role, _ in words(state)] == ["user", "assistant", "tool", "assistant"]
            assert words(state)[-1] == ("assistant", TEXT)
            third.do("back")  # nothing is said twice
            state = await third.shows(ended(2), what="the same once more")
            assert [role for role, _ in words(state)] == ["user", "assistant", "tool", "assistant"]


async def test_words_of_a_try_that_failed_are_taken_back(client: Client, scripted: Scripted, thread: str) -> None:
    go_on = threading.Event()
    model = scripted([cut(TEXT, after=3, until=go_on), "Something else."])
    async with hosting(client, agent_on(model)), talking(client, thread) as shown:
        shown.do("send", message={"id": "m1", "content": "Count"})
        await shown.shows(begins, what="it writes")
        go_on.set()
        state = await shown.shows(ended(1), what="the other words")
        assert words(state) == [("user", "Count"), ("assistant", "Something else.")]


async def test_who_decides_second_sees_what_the_first_decided(client: Client, scripted: Scripted, thread: str) -> None:
    agent = agent_on(scripted([REFUND, "Done."]), tools=[refund])
    async with (
        hosting(client, agent),
        serving(ui.ag_ui(client, agent=agent, authorize=by_header)) as address,
        anns_page(address, thread) as first,
        anns_page(address, thread) as second,
    ):
        first.do("send", message={"id": "m1", "content": "Refund order 81"})
        await first.shows(ended(1), what="it asks")
        second.do("back")
        state = await second.shows(ended(1), what="it asks here, too")
        [interrupt] = state["interrupts"]
        about = {"interruptId": interrupt["id"], "status": "resolved"}
        first.do("resume", resume=[{**about, "payload": {"approved": True}}])
        await first.shows(ended(2), what="it is done")
        second.do("resume", resume=[{**about, "payload": {"approved": False}}])
        state = await second.shows(ended(2), what="it is told")
        assert (outcome(state), state["error"]) == ("success", "")
        assert words(state)[-2:] == [("tool", "500 back for 81"), ("assistant", "Done.")]


async def test_it_is_stopped_and_what_goes_wrong_is_an_error(client: Client, scripted: Scripted, thread: str) -> None:
    never = threading.Event()
    model = scripted([slow(TEXT, after=3, until=never), fail(401, "No such key: sk-secret")])
    try:
        async with (
            hosting(client, agent_on(model)),
            serving(ui.ag_ui(client, agent="clerk", authorize=by_header)) as address,
            anns_page(address, thread) as shown,
            httpx.AsyncClient(headers={"x-user": "ann"}, timeout=180) as http,
        ):
            shown.do("send", message={"id": "m1", "content": "Count"})
            await shown.shows(begins, what="it writes")
            assert (await http.post(f"{address}/{thread}/stop", json={})).status_code == 204
            state = await shown.shows(ended(1), what="it is stopped")
            assert outcome(state) == "cancelled"
            shown.do("send", message={"id": "m2", "content": "Go on"})
            state = await shown.shows(lambda now: now["runs"] == 2 and now["error"], what="it is stalled")
            assert state["error"] == "This needs help from somebody. It goes on once that has come."
    finally:
        never.set()


async def test_a_call_of_a_sub_agent_is_an_interrupt_of_the_run(
    client: Client, scripted: Scripted, thread: str
) -> None:
    """Also after the client has come back."""
    helper = agent_on(
        scripted([[REFUND, call("look", {"screen": 1}, id="l")], "I am done."]), name="helper", tools=[refund, LOOK]
    )
    agent = agent_on(scripted([call("helper", {"message": "Go"}, id="h"), "Done."]), tools=[helper])
    async with hosting(client, agent), talking(client, thread) as shown:
        shown.do("send", message={"id": "m1", "content": "Refund order 81"})
        state = await shown.shows(ended(1), what="it asks")
        [interrupt] = state["interrupts"]
        assert interrupt["metadata"]["everturn"]["agents"] == ["helper"]
        calls = {
            one["id"]: one["function"]["name"] for message in state["messages"] for one in message.get("toolCalls", ())
        }
        assert calls[interrupt["toolCallId"]] == "refund"
        [look] = [call_id for call_id, name in calls.items() if name == "look"]
        shown.do(
            "resume", resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        )
        state = await shown.shows(ended(2), what="it still waits")
        assert state["events"][-1]["outcome"] == {"type": "success", "pendingToolCallIds": [look]}
        shown.do("output", id="o1", toolCallId=look, content='{"animal": "cat"}')
        state = await shown.shows(ended(3), what="it goes on")
        assert words(state)[-1] == ("assistant", "Done.")
        results = {
            message["toolCallId"]: message["content"] for message in state["messages"] if message["role"] == "tool"
        }
    assert results == {interrupt["toolCallId"]: "500 back for 81", look: '{"animal": "cat"}', "h": "I am done."}


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (True, True),
        (42, 42),
        ({"a": 1}, {"a": 1}),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([1], [1]),
        (None, ""),
    ],
)
def test_a_result_that_is_no_text_is_not_lost(content: Any, result: Any) -> None:
    """The protocol has texts; pages of one's own send what a tool gave."""
    messages = [
        {"id": "m1", "role": "user", "content": "Look."},
        {"id": "a1", "role": "assistant", "toolCalls": [{"id": "l"}]},
        {"id": "o1", "role": "tool", "toolCallId": "l", "content": content},
    ]
    [output] = read_run(RunInput(threadId="t", runId="r", messages=messages)).outputs
    assert output.content == result
