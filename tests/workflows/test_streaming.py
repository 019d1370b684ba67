"""Text while it is written: events between those of the history, and not one event of the history for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.converter import PayloadCodec

from everturn import Client, Conversation, ToolContext, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.events import Event, Replied, TextDelta, ThinkingDelta, ToolProgress, TurnRetried, TurnStarted
from everturn.history.reader import read_steps
from everturn.history.steps import TurnScheduled
from everturn.live.live_activities import LiveActivities
from everturn.sizes import RECENT_BYTES
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel, call, cut, fail, say, slow
from tests.crash.workers import workers
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.half_told import CHARS, HALF, STORY, half_told, joined, until_told
from tests.support.waiting import WAIT_SECONDS, eventually

Scripted = Callable[..., ScriptedModel]

LIVE = {"text_delta", "thinking_delta", "tool_progress", "turn_retried", "turn_limited"}


async def told(events: AsyncIterator[Event]) -> list[Event]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [event async for event in events]


async def kinds_in_history(conversation: Conversation) -> list[str]:
    """The types of its history's events; workflow tasks come in any number, so without those."""
    history = await conversation._handle.fetch_history()
    kinds = [EventType.Name(event.event_type) for event in history.events]
    return [kind for kind in kinds if "WORKFLOW_TASK" not in kind]


async def streamed_turns(client: Client, conversation: Conversation) -> list[bool]:
    steps = read_steps(client.temporal, conversation.id)
    return [step.request.stream async for step in steps if isinstance(step, TurnScheduled)]


async def test_text_is_told_while_it_is_written_and_all_of_it_before_the_reply(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([slow(say(STORY, thinking="Hm. " * 20), per_chunk=0.02, after=14, until=go_on)]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        following = conversation.events()
        events = [await anext(following)]
        async with asyncio.timeout(WAIT_SECONDS):
            while events[-1].kind != "text_delta":
                events.append(await anext(following))
        go_on.set()
        events += await told(following)
        kinds = [event.kind for event in events]
        assert kinds.count("text_delta") >= 2
        assert (kinds[:2], kinds[-2:]) == (["message_received", "turn_started"], ["replied", "done"])
        replied = next(event for event in events if isinstance(event, Replied))
        assert joined(events) == replied.message.text == STORY
        assert joined(events, ThinkingDelta) == "Hm. " * 20
        assert kinds.index("text_delta") > kinds.index("thinking_delta")
        assert {event.cursor for event in events if isinstance(event, TextDelta)} == {events[1].cursor}
        assert sorted(event.at for event in events) == [event.at for event in events]

        afterwards = await told(conversation.events())
        assert afterwards == await told(conversation.events(deltas=False)) == [e for e in events if e.kind not in LIVE]
        unwatched = await client.start(agent, "Tell me a story")
        await unwatched.outcome()
    assert await kinds_in_history(conversation) == await kinds_in_history(unwatched), "streaming costs no event"


async def test_without_asking_for_it_text_comes_with_the_ordinary_beats(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([half_told(go_on)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story")
        events = conversation.events()
        seen = await until_told(events, HALF)
        go_on.set()
        seen += await told(events)
    *deltas, replied, done = [event.kind for event in seen][2:]
    assert ({*deltas}, replied, done) == ({"text_delta"}, "replied", "done")
    assert 2 <= len(deltas) <= 6, "one for each half, if the machine is quick"
    assert joined(seen) == STORY


async def test_who_comes_back_in_the_middle_is_told_the_text_of_the_turn_again(
    client: Client, scripted: Scripted, go_on: threading.Event, cached_conversations: int
) -> None:
    agent = agent_on(scripted([half_told(go_on)]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        async with aclosing(conversation.events()) as first:
            seen = await until_told(first, HALF)
        again = conversation.events(since=seen[-1].cursor)
        assert {event.kind for event in await until_told(again, HALF)} == {"text_delta"}
        go_on.set()
        rest = await told(again)
        assert HALF + joined(rest) == STORY
        assert [event.kind for event in rest][-2:] == ["replied", "done"]


async def test_who_comes_late_is_told_all_that_was_written(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    long = "".join(f"Chapter {number}. {STORY}" for number in range(10))
    written = long[: 200 * CHARS]
    assert len(written) > RECENT_BYTES, "more than a quick beat holds"
    agent = agent_on(scripted([slow(long, after=201, until=go_on)]))
    async with hosting(client, agent):
        conversation = await client.send(agent, "Tell me a story", id=f"{client.task_queue}-late", stream=True)
        async with aclosing(conversation.events()) as first:
            await until_told(first, written)
        late = conversation.events()
        seen = await until_told(late, written)
        go_on.set()
        assert joined([*seen, *await told(late)]) == long


async def test_a_watcher_asks_no_more_than_it_has_to(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    look = LiveActivities.look_at_heartbeats

    async def counted(self: LiveActivities) -> Any:
        looks.append(self.due is not None and self.due <= self.clock())
        return await look(self)

    monkeypatch.setattr(LiveActivities, "look_at_heartbeats", counted)
    agent = agent_on(scripted([slow(STORY, per_chunk=0.03)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        await told(conversation.events())
        assert looks
        assert all(looks), "only when there may be more"
        looks.clear()
        service, described = client.temporal.workflow_service, 0
        describe = service.describe_workflow_execution

        async def counting(*args: Any, **options: Any) -> Any:
            nonlocal described
            described += 1
            return await describe(*args, **options)

        monkeypatch.setattr(service, "describe_workflow_execution", counting)
        await told(conversation.events())
        assert (looks, described) == ([], 1), "nothing runs any more: once, to learn which run is the latest"


async def test_a_turn_that_is_tried_again_starts_its_text_over(
    client: Client, scripted: Scripted, go_on: threading.Event, cached_conversations: int
) -> None:
    agent = agent_on(
        scripted([cut("This was another story. " * 40, after=11, until=go_on), slow(STORY, per_chunk=0.02)])
    )
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        events = conversation.events()
        await until_told(events, ("This was another story. " * 40)[: 10 * CHARS])
        go_on.set()
        retried, *rest = await told(events)
    assert isinstance(retried, TurnRetried)
    assert (retried.turn, retried.attempt) == (1, 2)
    assert joined(rest) == STORY
    assert {event.kind for event in rest} == {"text_delta", "replied", "done"}


async def test_a_turn_whose_worker_is_killed_starts_its_text_over(
    client: Client, scripted: Scripted, go_on: threading.Event, tmp_path: Path
) -> None:
    with workers(client, scripted([half_told(go_on)]), tmp_path) as start:
        doomed = start()
        await eventually(lambda: doomed.started)
        conversation = await client.start("clerk", "Tell me a story", stream=True)
        events = conversation.events()
        await until_told(events, HALF)
        doomed.kill()
        start()
        seen = await until_told(events, HALF)
        go_on.set()
        seen += await told(events)
    assert [event.attempt for event in seen if isinstance(event, TurnRetried)] == [2]
    assert isinstance(seen[0], TurnRetried)
    assert joined(seen) == STORY


async def test_a_fallback_starts_the_turn_and_its_text_over(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    first, second = scripted([cut(STORY, after=11, until=go_on), fail(401)]), scripted([slow(STORY, per_chunk=0.02)])
    agent = agent_on(first, fallback_models=[agent_on(second).model.model_copy(update={"name": "scripted:second"})])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        events = conversation.events()
        await until_told(events, HALF)
        go_on.set()
        rest = await told(events)
    started = next(number for number, event in enumerate(rest) if isinstance(event, TurnStarted))
    assert joined(rest[:started]) == ""
    assert joined(rest[started:]) == STORY


@pytest.mark.long
async def test_streaming_goes_on_in_the_next_run_until_somebody_says_no(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=25)
    agent = agent_on(scripted([STORY] * 7))
    async with hosting(client, agent):
        conversation = await client.start(agent, "0", keep_open=timedelta(minutes=1))
        for number, stream in enumerate([True, None, None, None, False, None], start=1):
            await conversation.reply()
            await conversation.send(str(number), stream=stream)
        await conversation.reply()
        await conversation.close()
        events = await told(conversation.events())
    runs = list(dict.fromkeys(event.cursor.partition("/")[0] for event in events))
    assert len(runs) > 1
    flags: list[bool] = []
    for run in runs:
        steps = read_steps(client.temporal, conversation.id, run_id=run)
        flags += [step.request.stream async for step in steps if isinstance(step, TurnScheduled)]
    assert flags == [False, True, True, True, True, False, False]


@pytest.mark.long
async def test_one_follower_sees_the_text_of_every_run(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int
) -> None:
    bounds(events=12)

    @tool
    def note(number: int) -> str:
        return "noted"

    script = [
        slow([say(f"{number}. {STORY}"), call("note", {"number": number})], per_chunk=0.01) for number in range(4)
    ]
    agent = agent_on(scripted([*script, slow(STORY, per_chunk=0.01)]), tools=[note])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me stories", stream=True)
        events = await told(conversation.events())
    assert len({event.cursor.partition("/")[0] for event in events}) > 1
    for turn in range(1, 6):
        (reply,) = [event.message.text for event in events if isinstance(event, Replied) and event.turn == turn]
        assert joined([event for event in events if getattr(event, "turn", 0) == turn]) == reply
    assert await streamed_turns(client, conversation) != [], "the last run has turns of its own"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_tool_that_says_how_far_it_is_is_heard(client: Client, scripted: Scripted, stream: bool) -> None:
    may_end = asyncio.Event()

    @tool
    async def copy_files(context: ToolContext) -> str:
        context.heartbeat({"copied": 1, "of": 2})
        await may_end.wait()
        return "copied"

    agent = agent_on(scripted([call("copy_files"), "Done."]), tools=[copy_files])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Copy", stream=stream)
        events: list[Event] = []
        async with asyncio.timeout(WAIT_SECONDS):
            async for event in conversation.events():
                events.append(event)
                if isinstance(event, ToolProgress):
                    may_end.set()
    (progress,) = [event for event in events if isinstance(event, ToolProgress)]
    assert (progress.turn, progress.tool, progress.progress) == (1, "copy_files", {"copied": 1, "of": 2})
    kinds = [event.kind for event in events]
    assert kinds.index("tool_started") < kinds.index("tool_progress") < kinds.index("tool_finished")


class Hidden(PayloadCodec):
    """Not a cipher, but nothing that can be read either."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        whole = (payload.SerializeToString() for payload in payloads)
        return [Payload(metadata={"encoding": b"hidden"}, data=bytes(255 - byte for byte in one)) for one in whole]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(bytes(255 - byte for byte in payload.data)) for payload in payloads]


async def test_what_is_told_goes_through_the_payload_codec(
    server: DevServer, client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    hidden = replace(data_converter, payload_codec=Hidden())
    hiding = await Client.connect(server.address, task_queue=f"{client.task_queue}-hidden", data_converter=hidden)
    agent = agent_on(scripted([half_told(go_on)]))
    async with hosting(hiding, agent):
        conversation = await hiding.start(agent, "Tell me a story", stream=True)
        events = conversation.events()
        await until_told(events, HALF)
        described = (await conversation._handle.describe()).raw_description
        (running,) = described.pending_activities
        assert b"Once upon" not in running.SerializeToString()

        stranger = client.conversation(conversation.id).events()
        go_on.set()
        assert HALF + joined(await told(events)) == STORY
        with pytest.raises(InvalidSetting, match="EVERTURN_DATA_CONVERTER"):  # who lacks the codec is told so
            await told(stranger)


async def test_the_text_of_a_cancelled_turn_stops_and_the_next_one_is_told(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([half_told(go_on), slow(STORY, per_chunk=0.02)], order="arrival"))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
        events = conversation.events()
        await until_told(events, HALF)
        await conversation.cancel_turn()
        await conversation.send("Another one")
        seen = await until_told(events, STORY)
        await conversation.reply()  # its text is told before the history has it
        await conversation.close()
        seen += await told(events)
    kinds = [event.kind for event in seen]
    assert kinds.index("switched") < kinds.index("turn_started") < kinds.index("text_delta")
    assert kinds[-3:] == ["replied", "switched", "done"]
