"""How an answer can end, and what a page is left with: a page of the AI SDK sends by itself as long as the last step of
the last message has finished calls only, so no end may leave it so."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from everturn import Client, Conversation, Limits, tool, ui
from everturn.corrections import MAX_CORRECTIONS
from everturn.testing import ScriptedModel, call, fail, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.pages import serving
from tests.support.tools import refund
from tests.support.waiting import WAIT_SECONDS, eventually

Scripted = Callable[..., ScriptedModel]

NEVER = threading.Event()

LOOK = call("look_up", id="l")


@tool(effect="read")
def look_up() -> str:
    return "A desk lamp."


@tool(effect="read")
async def nap() -> str:
    await asyncio.sleep(WAIT_SECONDS)
    return "Rested."


@tool
def statistics() -> dict[str, float]:
    return {"mean": float("nan"), "most": float("inf")}


@pytest.fixture
async def http(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    options: Any = {"agent": "clerk", "authorize": ui.anybody}
    app = Starlette(routes=[Mount("/chat", ui.ai_sdk(client, **options)), Mount("/ag-ui", ui.ag_ui(client, **options))])
    async with serving(app) as address, httpx.AsyncClient(base_url=address, timeout=WAIT_SECONDS) as http:
        yield http


@pytest.fixture
def chat() -> str:
    return uuid4().hex


@pytest.fixture
def conversation(client: Client, chat: str) -> Conversation:
    return client.conversation(f"clerk::{chat}")


def user(text: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}], **more}


async def told(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: {")]
    return [json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) for line in lines]


async def says(http: httpx.AsyncClient, chat: str, *messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return await told(http, "/chat/", {"id": chat, "messages": list(messages), **more})


STATES = {
    "tool-input-available": "input-available",
    "tool-output-available": "output-available",
    "tool-output-error": "output-error",
    "tool-output-denied": "output-denied",
    "tool-approval-request": "approval-requested",
}


def parts_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps and calls, as the SDK makes them of the chunks."""
    parts: list[dict[str, Any]] = []
    for chunk in chunks:
        if chunk["type"] == "start-step":
            parts.append({"type": "step-start"})
        elif chunk["type"] == "tool-input-start":
            parts.append({"type": "tool", "toolCallId": chunk["toolCallId"], "state": "input-streaming"})
        elif state := STATES.get(chunk["type"]):
            part = next(part for part in parts if part.get("toolCallId") == chunk["toolCallId"])
            part["state"] = state
    return parts


def would_send(parts: list[dict[str, Any]]) -> bool:
    """lastAssistantMessageIsCompleteWithToolCalls of `ai` 5, 6 and 7."""
    start = max(place for place, part in enumerate(parts) if part["type"] == "step-start")
    states = [part["state"] for part in parts[start:] if "toolCallId" in part]
    return bool(states) and all(state in ("output-available", "output-error") for state in states)


def states(parts: list[dict[str, Any]]) -> list[str]:
    return [part["state"] for part in parts if "toolCallId" in part]


Act = Callable[[Conversation], Any]

ENDS: list[Any] = [
    pytest.param(
        [LOOK, slow("A lamp.", until=NEVER)], lambda one: one.cancel_turn(), {}, "output-available", id="stop"
    ),
    pytest.param([call("nap", id="n"), "Done."], lambda one: one.cancel_turn(), {}, "output-error", id="stop-a-tool"),
    pytest.param([LOOK, slow("A lamp.", until=NEVER)], None, {}, "output-available", id="terminated"),
    pytest.param([call("nap", id="n"), "Done."], None, {}, "output-error", id="terminated-in-a-tool"),
    pytest.param([LOOK, ""], "", {}, "output-available", id="no-words"),
    pytest.param([LOOK, call("look_up"), ""], "", {"max_turns": 2}, "output-available", id="most-turns"),
    pytest.param([call("look_up"), LOOK], "", {"max_total_tokens": 1}, "output-error", id="most-tokens"),
    pytest.param([LOOK, fail(401, "No such key")], "", {}, "output-available", id="stalled"),
]


@pytest.mark.parametrize(("script", "act", "limits", "last"), ENDS)
async def test_no_end_of_an_answer_leaves_a_page_that_sends_by_itself(
    client: Client,
    scripted: Scripted,
    http: httpx.AsyncClient,
    chat: str,
    conversation: Conversation,
    script: Any,
    act: Any,
    limits: dict[str, int],
    last: str,
) -> None:
    agent = agent_on(scripted(script), tools=[look_up, nap], limits=Limits(**limits))
    async with hosting(client, agent):
        posting = asyncio.create_task(says(http, chat, user("Go")))
        if act != "":
            await eventually(lambda: _goes_on(conversation, script), what="it is in the middle")
            if act:
                await act(conversation)
            else:
                await client.temporal.get_workflow_handle(conversation.id).terminate("an operator")
        chunks = await posting
        [answer] = [message for message in (await http.get(f"/chat/{chat}")).json() if message["role"] == "assistant"]
    streamed = parts_of(chunks)
    assert (would_send(streamed), would_send(answer["parts"])) == (False, False)
    assert states(streamed) == states(answer["parts"])
    assert states(streamed)[-1] == last
    assert chunks[0]["messageId"] == answer["id"]


async def _goes_on(conversation: Conversation, script: list[Any]) -> bool:
    """Whether the last thing that the script does before somebody stops it has begun."""
    try:
        status = await conversation.status()
    except Exception:  # noqa: BLE001 - it is about to begin
        return False
    if script[0] is LOOK:
        return status.turn == 2
    # "running" is it also while the model is still asked.
    return status.turn == 1 and bool([message for message in await conversation.transcript() if message.tool_calls])


async def test_a_page_that_sends_what_is_over_once_more_gets_an_error_and_so_comes_to_rest(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    agent = agent_on(scripted([call("look_up"), LOOK]), tools=[look_up], limits=Limits(max_total_tokens=1))
    async with hosting(client, agent):
        await says(http, chat, user("Go"))
        [said, answer] = (await http.get(f"/chat/{chat}")).json()
        chunks = await says(http, chat, said, answer)
    assert "nothing new" in chunks[-1]["errorText"]


async def test_an_answer_that_never_fits_is_an_error_of_its_page_though_the_chat_goes_on(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    agent = agent_on(scripted(["much"] * (1 + MAX_CORRECTIONS)), output=list[int])
    async with hosting(client, agent):
        chunks = await says(http, chat, user("How much?"))
        told_again = await told(http, "/ag-ui/", {"threadId": chat, "runId": "r", "messages": []})
    assert chunks[-2]["messageMetadata"]["everturn"]["state"] == "unfit"
    assert chunks[-1] == {"type": "error", "errorText": "This answer does not have the form that was asked for."}
    end = told_again[-1]
    assert (end["type"], end["message"], end["code"]) == ("RUN_ERROR", chunks[-1]["errorText"], "unfit")


async def test_pages_get_json_and_ids_that_are_the_same_when_they_come_back(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str
) -> None:
    script = [[say("Let me see.", thinking="A question."), call("statistics", id="s")], "Done.", "Bye."]
    async with hosting(client, agent_on(scripted(script), tools=[statistics])):
        first = await says(http, chat, user("Go", metadata={"page": 1}))
        second = await says(http, chat, user("Thanks", "m2"))
        [output] = [chunk["output"] for chunk in first if chunk["type"] == "tool-output-available"]
        assert output == {"mean": "NaN", "most": "Infinity"}
        assert first[-1]["messageMetadata"]["usage"]["totalTokens"] > 0
        loaded = (await http.get(f"/chat/{chat}")).json()
        ids = [message["id"] for message in loaded]
        assert ids == ["m1", first[0]["messageId"], "m2", second[0]["messageId"]]
        assert len(set(ids)) == 4
        assert loaded[0] == user("Go", metadata={"page": 1})
        run = {"threadId": chat, "runId": "r", "messages": []}
        [snapshot] = [one for one in await told(http, "/ag-ui/", run) if one["type"] == "MESSAGES_SNAPSHOT"]
        roles = [message["role"] for message in snapshot["messages"]]
        assert roles == ["user", "reasoning", "assistant", "tool", "assistant", "user", "assistant"]
        assert [message["id"] for message in snapshot["messages"] if message["role"] == "user"] == ["m1", "m2"]


LONG = 2512292042121000001
CALLS = [
    call("refund", {"order_id": "81", "cents": 5}, id="small"),
    call("refund", {"order_id": "82", "cents": LONG}, id="large"),
    call("where", id="w"),
]

WHERE: dict[str, Any] = {"name": "where", "description": "Where?", "parameters": {"type": "object", "properties": {}}}


def responded(part: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": True}, **more}


async def test_what_a_page_sends_together_is_checked_together(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, conversation: Conversation
) -> None:
    async with hosting(client, agent_on(scripted([CALLS, "Done."]), tools=[refund, WHERE])):
        await says(http, chat, user("Refund both"))
        said, answer = (await http.get(f"/chat/{chat}")).json()
        small, large, where = (part for part in answer["parts"] if "toolCallId" in part)
        assert json.loads(large["approval"]["descriptor"]["exactArguments"])["cents"] == LONG
        no = {"approval": {**small["approval"], "approved": False}}
        refused: list[tuple[list[dict[str, Any]], str]] = [
            ([responded(small, toolCallId="*")], "'*'"),
            ([responded(small, toolCallId="large")], "'large'"),
            ([responded(small), responded(large, approval={**small["approval"], "approved": True})], "'large'"),
            ([responded(small), {**responded(small), **no}], "two different"),
            ([responded(small, input={"order_id": "81", "cents": 6})], "other arguments"),
        ]
        for parts, why in refused:
            chunks = await says(http, chat, said, {**answer, "parts": parts})
            assert (chunks[-1]["type"], why in chunks[-1]["errorText"]) == ("error", True), chunks[-1]
        # The name of a call that waits for a result is no question.
        await says(http, chat, said, {**answer, "parts": [responded(large, approval={"id": "w", "approved": True})]})
        assert {waiting_call.call_id for waiting_call in (await conversation.status()).waiting} == {
            "small",
            "large",
            "w",
        }
        # What a browser makes of the long number: it was not changed. The message that comes along is said, too.
        shown = {"order_id": "82", "cents": 2512292042121000000}
        answer = {**answer, "parts": [responded(small), responded(large, input=shown), where]}
        await says(http, chat, said, answer, user("Hurry", "m2"), messageId=answer["id"])
        waiting = (await conversation.status()).waiting
        assert [waiting_call.call_id for waiting_call in waiting] == ["w"]
        assert [one["id"] for one in (await http.get(f"/chat/{chat}")).json()] == ["m1", answer["id"], "m2"]
        done = {**where, "state": "output-available", "output": "At home"}
        chunks = await says(http, chat, said, {**answer, "parts": [done]})
        assert "Done." in "".join(chunk.get("delta", "") for chunk in chunks)
        results = {
            result.call_id: result.text
            for message in await conversation.transcript()
            for result in message.tool_results
        }
        assert results == {"small": "5 back for 81", "large": f"{LONG} back for 82", "w": "At home"}


@pytest.mark.parametrize("version", ["0.0.59", "1.0"])
async def test_an_ag_ui_client_is_answered_in_its_own_version(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, conversation: Conversation, version: str
) -> None:
    script = [CALLS[:2], [call("where", id="w")], "Done.", slow("On and on.", until=NEVER)]
    later = version == "1.0"
    spoken: dict[str, Any] = {"protocolVersion": "1.0"} if later else {}  # clients before 1.0 don't say it

    def run(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"threadId": chat, "runId": uuid4().hex, "messages": list(messages), **spoken, **more}

    bad = {"id": "m1", "role": "user", "content": [{"type": "hologram"}]}
    said = {"id": "m2", "role": "user", "content": "Refund both"}
    async with hosting(client, agent_on(scripted(script), tools=[refund, WHERE])):
        assert (await http.post("/ag-ui/", json=run(bad))).status_code == 400
        empty = {"id": "m0", "role": "user", "content": " "}
        events = await told(http, "/ag-ui/", run({"role": 5}, empty, bad, said))
        assert ("protocolVersion" in events[0]) is later
        small, large = events[-1]["outcome"]["interrupts"]
        edited = {"order_id": "83", "cents": 2512292042121000000}
        resume = [
            {"interruptId": small["id"], "status": "resolved", "payload": {"approved": True}},
            {"interruptId": large["id"], "status": "resolved", "payload": {"approved": True, "editedArgs": edited}},
        ]
        events = await told(http, "/ag-ui/", run(said, resume=resume))
        outcome = {"type": "success", **({"pendingToolCallIds": ["w"]} if later else {})}
        assert events[-1]["outcome"] == outcome
        assert events[-1]["usage"][0]["totalTokens"] > 0
        events = await told(
            http, "/ag-ui/", run(said, {"id": "o", "role": "tool", "toolCallId": "w", "content": "At home"})
        )
        assert events[-1]["outcome"] == {"type": "success"}
        posting = asyncio.create_task(told(http, "/ag-ui/", run({"id": "m3", "role": "user", "content": "More"})))
        await eventually(lambda: _is_at(conversation, turn=4), what="it speaks")
        await http.post(f"/ag-ui/{chat}/stop", json={})
        assert (await posting)[-1].get("outcome") == ({"type": "cancelled"} if later else None)
        results = [result.text for message in await conversation.transcript() for result in message.tool_results]
        assert [result.split("\n")[-1] for result in results] == [
            "5 back for 81",
            f"{LONG} back for 83",
            "At home",
        ]


async def _is_at(conversation: Conversation, *, turn: int) -> bool:
    return (await conversation.status()).turn == turn


async def test_a_call_that_is_over_while_others_wait_is_shown_as_over(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, conversation: Conversation
) -> None:
    calls = [call("refund", {"order_id": name, "cents": 5}, id=name) for name in ("denied", "answered", "open")]
    async with hosting(
        client, agent_on(scripted([[*calls, call("no_such_tool", id="refused")], "Done."]), tools=[refund])
    ):
        first = await says(http, chat, user("Refund all"))
        assert states(parts_of(first)) == [*["approval-requested"] * 3, "output-error"]
        await conversation.deny("denied", "Too late")
        await conversation.answer("answered", "As a voucher")
        loaded = (await http.get(f"/chat/{chat}")).json()
        denied, answered, waits, refused = (part for part in loaded[-1]["parts"] if "toolCallId" in part)
        assert denied["approval"] == {"id": "denied", "approved": False, "reason": "Too late"}
        assert (answered["state"], answered["output"]) == ("output-available", "As a voucher")
        assert (denied["state"], waits["state"], refused["state"]) == (
            "output-denied",
            "approval-requested",
            "output-error",
        )
        assert "no_such_tool" in refused["errorText"]
        again = parts_of(await says(http, chat, user("Refund all")))
        assert states(again) == ["output-error", "output-available", "approval-requested", "output-error"]
        run = {"threadId": chat, "runId": "r", "messages": []}
        [snapshot] = [event for event in await told(http, "/ag-ui/", run) if event["type"] == "MESSAGES_SNAPSHOT"]
        results = {
            message["toolCallId"]: message["content"] for message in snapshot["messages"] if message["role"] == "tool"
        }
        assert results.keys() == {"denied", "answered", "refused"}
        await conversation.approve("open")
        await conversation.reply()
        for result in [result for message in await conversation.transcript() for result in message.tool_results]:
            assert results.get(result.call_id, result.text) == result.text  # what the model was told
