"""An agent with the tools of MCP servers: real ones, over stdio and HTTP, that are killed now and then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Client, Conversation, Image, McpServer, McpTool, Text
from everturn.errors import InvalidTool
from everturn.events import AnswerRequested
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.mcp_shop_server import McpShop
from tests.support.ports import free_port
from tests.support.prepared import Program, command_of
from tests.support.transcripts import results_of, texts, told
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(tmp_path: Path) -> McpShop:
    return McpShop(tmp_path)


async def activities(client: Client, conversation: Conversation) -> list[str]:
    """The types of the latest run's activities, in their order."""
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_a_servers_tools_are_the_agents(client: Client, scripted: Scripted, shop: McpShop, over: str) -> None:
    with shop.http() if over == "http" else nullcontext(shop.stdio()) as server:
        await _finds(client, scripted, shop, server)
        if over == "http":  # and in the protocol of before
            await _finds(client, scripted, shop, server.model_copy(update={"protocol": "legacy"}))


async def _finds(client: Client, scripted: Scripted, shop: McpShop, server: McpServer) -> None:
    calls = [call("find", {"name": "lamp"}), call("shop_count"), call("show"), call("fail")]
    model = scripted([calls, "Done."])
    agent = agent_on(model, tools=[server])
    async with hosting(client, agent):
        conversation = await client.start(agent, "What is there?")
        assert (await conversation.outcome()).text == "Done."

    offered = {tool["function"]["name"]: tool["function"] for tool in model.requests[0]["tools"]}
    assert offered["find"]["description"] == "Finds what is in the shop."
    assert offered["find"]["parameters"]["required"] == ["name"]
    assert (await activities(client, conversation))[1:5] == ["find", "shop_count", "show", "fail"]
    found, counted, shown, failed = results_of(await conversation.transcript())
    assert found.text == "one lamp"
    assert counted.text.replace(" ", "").replace("\n", "") == '{"lamps":3}'
    assert [type(part) for part in shown.content] == [Text, Image, Text, Text]
    assert shown.text == "Here:\nA red lamp.\n[resource blue (text/plain) at shop://lamps/2]"
    assert failed.is_error
    assert [type(part) for part in failed.content] == [Text, Image]
    assert "no such lamp" in failed.text
    conversation_id, chain_id, call_id = shop.lines("find")[-1].split()[2].split(":")
    assert (conversation_id, call_id) == (conversation.id, found.call_id)
    assert chain_id


async def test_annotations_say_what_a_tool_means_and_overrides_say_otherwise(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    model = scripted([[call("at_wipe", {"shelf": "a"}), call("at_charge", {"cents": 5})], "Done."])
    server = shop.stdio(
        prefix="at",
        allow=["wipe", "charge", "find"],
        deny=["find"],
        overrides={"charge": McpTool(effect="idempotent", needs_approval=lambda asked: asked["cents"] > 3)},
    )
    agent = agent_on(model, tools=[server])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Clear the shelf")
        await waiting(conversation, calls=2)
        assert [tool["function"]["name"] for tool in model.requests[0]["tools"]] == ["at_charge", "at_wipe"]
        await conversation.deny((await waiting(conversation, calls=2))[0], "Leave it")
        await conversation.approve((await waiting(conversation))[0])
        assert (await conversation.outcome()).text == "Done."
    denied, charged = await texts(conversation)
    assert "Leave it" in denied
    assert charged == "took 5"
    assert shop.lines("wipe") == []


@pytest.mark.parametrize(("over", "cached_conversations"), [("auto", 1000), ("legacy", 0)])
async def test_what_a_server_asks_waits_for_a_person_without_a_connection(
    client: Client, scripted: Scripted, shop: McpShop, over: Any, cached_conversations: int
) -> None:
    model = scripted([call("order", {"what": "lamp"}), "Done."])
    agent = agent_on(model, tools=[shop.stdio(protocol=over)])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Order a lamp")
        status = await reaches(conversation, "awaiting_answer")
        [asked] = status.waiting
        assert (asked.reason, asked.needs) == ("tool_asks", "answer")
        assert asked.why == "Which size? (answer with size: a whole number)"
    # Another worker, and another server: the answers are in the history.
    async with hosting(client, agent, cached_conversations=cached_conversations):
        await conversation.answer(asked.call_id, "large")
        refused = await eventually(lambda: _asked(conversation, "the answer does not fit"))
        assert "large" in refused
        await conversation.answer(asked.call_id, "7")
        assert await eventually(lambda: _asked(conversation, "Which colour?"))
        await conversation.answer(asked.call_id, {"colour": "red", "gift": True})
        assert (await conversation.outcome()).text == "Done."
    assert await texts(conversation) == ["ordered lamp, 7, red, gift: True"]
    assert len(shop.lines("order")) == 1
    questions = [event.why for event in await told(conversation) if isinstance(event, AnswerRequested)]
    assert len(questions) == 3


async def _asked(conversation: Conversation, words: str) -> str:
    status = await conversation.status()
    return next((waiting_call.why for waiting_call in status.waiting if words in waiting_call.why), "")


async def test_two_calls_that_ask_in_the_old_way_are_told_apart_or_refused(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    both = [call("wrap", {"what": "a", "beside": "b"}), call("wrap", {"what": "b", "beside": "a"})]
    model = scripted([[call("wrap", {"what": "lamp"}), call("slow")], both, "Done."])
    agent = agent_on(model, tools=[shop.stdio(protocol="legacy")])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Wrap it")
        await eventually(lambda: shop.lines("wrap") and shop.lines("slow"))
        shop.go()
        for _ in range(2):
            [asking] = await waiting(conversation)
            await conversation.deny(asking, "No paper")
            await eventually(lambda: _has_gone_on(conversation, after=asking))  # noqa: B023 - awaited right here
        assert (await conversation.outcome()).text == "Done."
    lamp, packed, *two = results_of(await conversation.transcript())
    assert (lamp.text, packed.text) == ("decline: none", "packed")
    assert sorted(one.is_error for one in two) == [False, True], "it does not say which of them asks"


async def _has_gone_on(conversation: Conversation, *, after: str) -> bool:
    return after not in [waiting_call.call_id for waiting_call in (await conversation.status()).waiting]


async def test_a_server_that_dies_in_the_middle_is_started_again_and_the_call_runs_again(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    agent = agent_on(scripted([call("slow"), "Done."]), tools=[shop.stdio()])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pack it")
        [first] = await eventually(lambda: shop.lines("slow"))
        os.kill(int(first.split()[1]), signal.SIGKILL)
        await eventually(lambda: len(shop.lines("slow")) == 2)
        shop.go()
        assert (await conversation.outcome()).text == "Done."
    assert await texts(conversation) == ["packed"]
    one, other = shop.lines("slow")
    assert one.split()[2] == other.split()[2], "one key for both tries"


async def test_a_run_once_call_whose_server_dies_waits_for_a_person(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    agent = agent_on(scripted([call("pay", {"cents": 5}), "Done."]), tools=[shop.stdio()])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pay it")
        [first] = await eventually(lambda: shop.lines("pay"))
        os.kill(int(first.split()[1]), signal.SIGKILL)
        [call_id] = await waiting(conversation)
        [asked] = (await conversation.status()).waiting
        assert asked.reason == "outcome_unknown"
        assert len(shop.lines("pay")) == 1
        shop.go()
        await conversation.approve(call_id)
        assert (await conversation.outcome()).text == "Done."
    assert await texts(conversation) == ["paid 5"]


async def test_an_http_server_that_is_gone_is_tried_again_and_then_the_model_is_told(
    client: Client, scripted: Scripted, shop: McpShop, bounds: Bounds
) -> None:
    bounds(mcp_listing_wait_seconds=0.05, mcp_call_wait_seconds=0.05)
    model = scripted([call("shop_count"), call("find", {"name": "bulb"}), call("charge", {"cents": 5}), "Done."])
    port = free_port()
    brief: Any = {"timeout": timedelta(seconds=1), "patience": timedelta(seconds=1), "needs_approval": True}
    asking = McpTool(needs_approval=True)
    overrides = {"shop.count": McpTool(**brief), "find": asking, "charge": asking}
    # In the protocol with sessions: the server that comes back has forgotten ours.
    with shop.http(port, overrides=overrides, protocol="legacy") as server:
        agent = agent_on(model, tools=[server])
        worker = hosting(client, agent)
        await worker.__aenter__()
        conversation = await client.start(agent, "Count, and find a bulb")
        [counting] = await waiting(conversation)
    await conversation.approve(counting)  # the server is gone now
    [bulb] = await eventually(lambda: other_than(conversation, counting))
    with shop.http(port):
        await conversation.approve(bulb)
        [charge] = await eventually(lambda: other_than(conversation, bulb))
    await conversation.approve(charge)
    assert (await conversation.outcome()).text == "Done."
    await worker.__aexit__()
    gone, found, charged = results_of(await conversation.transcript())
    assert gone.is_error
    assert "127.0.0.1 can't be reached" in gone.text
    assert "It was tried" in gone.text
    assert found.text == "one bulb"
    assert charged.is_error
    assert charged.text.endswith("The call was not made.")


async def other_than(conversation: Conversation, known: str) -> list[str]:
    return [
        waiting_call.call_id for waiting_call in (await conversation.status()).waiting if waiting_call.call_id != known
    ]


@pytest.mark.parametrize("over", ["auto", "legacy"])
async def test_a_list_that_changes_is_asked_with_from_the_next_turn_on(
    client: Client, scripted: Scripted, shop: McpShop, over: Any
) -> None:
    model = scripted([call("learn"), call("dance"), "Done."])
    agent = agent_on(model, tools=[shop.stdio(protocol=over)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Dance")
        assert (await conversation.outcome()).text == "Done."
    assert await texts(conversation) == ["learnt to dance", "danced"]
    named = [{tool["function"]["name"] for tool in request["tools"]} for request in model.requests]
    assert "dance" not in named[0]
    assert "dance" in named[1]


async def test_a_turn_waits_for_a_server_that_is_not_there_yet_and_optional_ones_are_gone_without(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    model = scripted([call("find", {"name": "lamp"}), "Done."])
    port = free_port()
    away = McpServer(url=f"http://127.0.0.1:{free_port()}/mcp", optional=True)
    agent = agent_on(model, tools=[McpServer(url=f"http://127.0.0.1:{port}/mcp"), away])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Find a lamp")
        handle = client.temporal.get_workflow_handle(conversation.id)

        async def fails() -> bool:
            pending = (await handle.describe()).raw_description.pending_activities
            return any("can't be listed" in entry.last_failure.message for entry in pending)

        await eventually(fails)
        with shop.http(port):
            assert (await conversation.outcome()).text == "Done."
    assert await texts(conversation) == ["one lamp"]


async def test_a_server_that_never_comes_stalls_the_conversation_and_says_so(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    short: Any = {"timeout": timedelta(seconds=1), "patience": timedelta(seconds=1)}
    broken = McpServer(command=[sys.executable, "-c", "raise SystemExit('no shop today')"], name="shop", **short)
    agent = agent_on(scripted(["Done."]), tools=[broken])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Find a lamp")
        status = await reaches(conversation, "stalled")
        assert status.cause is not None
        assert "MCP server 'shop'" in status.cause
        assert "no shop today" in status.cause
        assert "optional=True" in (status.cure or "")
        await conversation.close()


WORKER = """
from everturn import Agent, McpServer

shop = McpServer(command={command!r}, cwd={root!r})
clerk = Agent("clerk", model="scripted:demo", tools=[shop])
"""


async def test_a_worker_that_is_killed_in_the_middle_of_a_call_leaves_it_to_another(
    client: Client, scripted: Scripted, shop: McpShop
) -> None:
    model = scripted([call("slow"), "Done."])
    file = shop.folder / "shop_agents.py"
    file.write_text(WORKER.format(command=command_of(*shop.arguments), root=str(ROOT)))
    environment = {
        **os.environ,
        "TEMPORAL_ADDRESS": client.temporal.service_client.config.target_host,
        "EVERTURN_TASK_QUEUE": client.task_queue,
        "EVERTURN_AGENTS": str(file),
        "SCRIPTED_BASE_URL": model.base_url,
    }
    with Program(str(ROOT / "worker.py"), env=environment, stderr=subprocess.DEVNULL) as worker:
        conversation = await client.start("clerk", "Pack it")
        [first] = await eventually(lambda: shop.lines("slow"))
        worker.kill()
    await eventually(lambda: not alive(int(first.split()[1])), what="its server has ended with it")
    agent = agent_on(model, tools=[shop.stdio()])
    async with hosting(client, agent):
        await eventually(lambda: len(shop.lines("slow")) == 2)
        shop.go()
        assert (await conversation.outcome()).text == "Done."
    one, other = shop.lines("slow")
    assert one.split()[2] == other.split()[2], "one key for both tries"
    assert await texts(conversation) == ["packed"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_that_lacks_a_tool_hands_its_call_to_one_that_has_it(
    client: Client, scripted: Scripted, shop: McpShop, bounds: Bounds
) -> None:
    bounds(quietly=timedelta(seconds=0.3))
    model = scripted([call("find", {"name": "lamp"}), "Done."])
    ask = {"find": McpTool(needs_approval=True)}
    has, lacks = (agent_on(model, tools=[shop.stdio(overrides=ask, **more)]) for more in ({}, {"allow": ["charge"]}))
    async with hosting(client, has):
        conversation = await client.start(has, "Find a lamp")
        [call_id] = await waiting(conversation)
    async with hosting(client, lacks):
        await conversation.approve(call_id)

        async def awaited() -> bool:
            return "has the tool 'find'" in ((await conversation.status()).cause or "")

        await eventually(awaited)
    async with hosting(client, has):
        assert (await conversation.outcome()).text == "Done."
    assert await texts(conversation) == ["one lamp"]


async def test_a_result_of_any_size_is_cut_as_every_tools_is(client: Client, scripted: Scripted, shop: McpShop) -> None:
    model = scripted([call("catalogue", {"chars": 3_000_000}), "Done."])
    agent = agent_on(model, tools=[shop.stdio()])
    async with hosting(client, agent):
        conversation = await client.start(agent, "What is there?")
        assert (await conversation.outcome()).text == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text.startswith("lamp lamp")
    assert "[Cut: 200,000 of 3,000,000 characters" in result.text
    assert len(result.text) <= agent.limits.max_result_chars + 500


async def test_a_server_that_speaks_nonsense_is_not_believed(client: Client, scripted: Scripted) -> None:
    short: Any = {"timeout": timedelta(seconds=1), "patience": timedelta(seconds=1)}
    chatty = "import sys\nfor line in sys.stdin: print('hello'); print('[1,2'); print('{\"jsonrpc\": 5}', flush=True)"
    nonsense = McpServer(
        command=[sys.executable, "-c", chatty], name="chatty", start_timeout=timedelta(seconds=2), **short
    )
    agent = agent_on(scripted(["Done."]), tools=[nonsense])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello")
        status = await reaches(conversation, "stalled")
        assert status.cause is not None
        assert "MCP server 'chatty'" in status.cause
        await conversation.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "command"),
        ({"command": ["x"], "url": "http://x"}, "write either"),
        ({"command": "npx server"}, "write a list"),
        ({"url": "ftp://x"}, "https://"),
        ({"url": "http://x", "env": {"A": "b"}}, "belong to a command"),
        ({"command": ["x"], "headers": {"A": "b"}}, "belong to a url"),
        ({"command": ["x"], "prefix": "9 "}, "prefix"),
        ({"command": ["x"], "overrides": {"a": {"effect": "twice"}}}, "effect"),
        ({"command": ["x"], "timeout": 5}, "no unit"),
    ],
)
def test_what_can_be_no_server_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        McpServer(**options)


def test_secrets_come_from_the_workers_environment_and_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret")
    server = McpServer(url="http://x/mcp", headers_env={"Authorization": "Bearer $SHOP_TOKEN", "X-Key": "SHOP_TOKEN"})
    assert server.all_headers() == {"Authorization": "Bearer s3cret", "X-Key": "s3cret"}
    assert "s3cret" not in repr(server)
    monkeypatch.delenv("SHOP_TOKEN")
    with pytest.raises(InvalidTool, match="SHOP_TOKEN, which is not set on this worker"):
        server.all_headers()
