"""What a conversation has cost: `everturn cost`, and what it is worked out from."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from everturn import Client, tool
from everturn.cli import run_command
from everturn.client.costs import BYTES_PER_GB, ConversationCost, costs_of
from everturn.devserver import DevServer
from everturn.heartbeats.profiles import QUICK, THRIFTY, HeartbeatProfile
from everturn.history.billed_actions import ordinary_heartbeats
from everturn.temporal.temporal_prices import TemporalPrices
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on, hosting
from tests.support.operators import delete, reset_to, reset_to_the_last_workflow_task
from tests.support.waiting import eventually, reaches

Scripted = Callable[..., ScriptedModel]

SPOKEN = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@tool
def look_up(word: str) -> str:
    return word


async def test_the_agents_that_a_conversation_asked_are_counted_beside_it(
    server: DevServer,
    client: Client,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    helper = agent_on(
        scripted([call("look_up", {"word": "a"}), say("Found.", usage=SPOKEN)]), name="helper", tools=[look_up]
    )
    agent = agent_on(scripted([call("helper", {"message": "?"}), say("Done.", usage=SPOKEN)]), tools=[helper])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.")
        assert await conversation.reply() == "Done."
    own, asked = await costs_of(client.temporal, conversation.id)
    assert (own.id, own.turns, asked.turns) == (conversation.id, 2, 2)
    assert (own.runs, asked.runs) == (1, 1)
    assert own.actions["activities"] == 2, "the call of the other agent is none of its activities"
    assert (own.actions["sub-agents"], asked.actions["activities"]) == (1, 3)
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    assert own.events == len(history.events)
    assert own.bytes > 1000
    assert own.model_usd is None, "nobody knows what a scripted model costs"

    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    command = ["cost", conversation.id, "--json", "--actions-per-million", "25"]
    assert await asyncio.to_thread(run_command, command) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["actions"] == own.actions.total() + asked.actions.total()
    assert said["usage"]["output_tokens"] == own.usage.output_tokens + asked.usage.output_tokens
    assert [conversation["id"] for conversation in said["conversations"]] == [own.id, asked.id]
    assert said["prices"]["per_million_actions"] == 25
    assert said["prices"]["source"] == "as given"
    assert await asyncio.to_thread(run_command, ["cost", conversation.id]) == 0
    shown = capsys.readouterr().out
    assert [word for word in (own.id, asked.id, "docs.temporal.io/cloud/pricing") if word not in shown] == []


async def test_what_a_reset_copies_is_not_counted_again(client: Client, scripted: Scripted) -> None:
    """The reset is an action by itself; a signal that it brings along is not one again."""
    model = scripted(lambda _: say("Yes.", usage=SPOKEN))
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.", keep_open=timedelta(minutes=5))
        await conversation.reply()
        for text in ("One.", "Two."):
            await conversation.send(text)
            await conversation.reply()
        await reaches(conversation, "idle")
        [before] = await costs_of(client.temporal, conversation.id)
        first = await conversation.latest_run()
        await reset_to_the_last_workflow_task(client, conversation)
        await reaches(conversation, "idle")
        [after] = await costs_of(client.temporal, conversation.id)
        assert (before.turns, before.usage.total_tokens, before.runs) == (3, 330, 1)
        assert (after.turns, after.usage.total_tokens, after.runs) == (3, 330, 2)
        assert after.actions - before.actions == +Counter(
            {"resets": 1, "search attributes": 1, "timers": 1}  # its last step was made again
        )
        assert after.bytes > 1.5 * before.bytes, "what is copied is stored twice"

        # All of it again: a turn is really asked, with the messages that are brought along.
        await reset_to(client, conversation, task=0)
        await eventually(lambda: len(model.requests) > 3)
        await reaches(conversation, "idle")
        [again] = await costs_of(client.temporal, conversation.id)
        assert (again.turns, again.runs) == (len(model.requests), 3)
        assert (again.actions["resets"], again.actions["signals"], again.actions["starts"]) == (2, 2, 1)

        # Once what was left is gone, what it counted is counted where the copy is.
        await delete(client, conversation, first)
        [left] = await costs_of(client.temporal, conversation.id)
        assert (left.turns, left.runs, left.actions["starts"]) == (again.turns, 2, 1)
        await conversation.close()


async def test_conversations_that_had_the_same_id_are_added_up_and_counted(
    server: DevServer,
    client: Client,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`again=True` begins another one; a revival goes on with the one that there is."""
    agent = agent_on(scripted(lambda _: say("Yes.", usage=SPOKEN)))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.")
        await conversation.outcome()
        await conversation.send("And now?", revive=True)
        await conversation.outcome()

        async def has(runs: int, beginnings: int) -> bool:
            [cost] = await costs_of(client.temporal, conversation.id)
            return (cost.runs, cost.turns, cost.beginnings) == (runs, runs, beginnings)

        await eventually(partial(has, 2, 1), what="the index knows of the revival")
        await (await client.start(agent, "Go.", id=conversation.id, again=True)).outcome()
        await eventually(partial(has, 3, 2), what="the index knows of the new one")
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    assert await asyncio.to_thread(run_command, ["cost", conversation.id, "--json"]) == 0
    total = json.loads(capsys.readouterr().out)
    assert (total["beginnings"], total["conversations"][0]["beginnings"]) == (2, 2)
    assert await asyncio.to_thread(run_command, ["cost", conversation.id]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 conversations have had this id, one after the other." in shown


async def test_a_conversation_that_there_is_not_is_said(
    server: DevServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    assert await asyncio.to_thread(run_command, ["cost", "nobody's"]) == 1
    assert 'There is no conversation "nobody\'s"' in capsys.readouterr().err


def test_dollars_are_those_of_actions_and_of_storage_open_and_kept() -> None:
    cost = ConversationCost("a", bytes=BYTES_PER_GB, open_byte_hours=2.0 * BYTES_PER_GB)
    cost.actions.update(activities=900_000, starts=100_000)
    prices = TemporalPrices(per_million_actions=50, active_gb_hour=3, retained_gb_hour=0.5, retention_days=1)
    assert cost.temporal_usd(prices) == pytest.approx(50 + 2 * 3 + 24 * 0.5)


@pytest.mark.parametrize(
    ("profile", "seconds", "beats"),
    [(QUICK, 1.4, 0), (QUICK, 8, 5), (THRIFTY, 8, 0), (THRIFTY, 10.5, 1), (THRIFTY, 600, 60)],
)
def test_heartbeats_follow_from_how_long_an_activity_ran(profile: HeartbeatProfile, seconds: float, beats: int) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    scheduled = HistoryEvent(event_id=5, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    scheduled.activity_task_scheduled_event_attributes.heartbeat_timeout.FromTimedelta(profile.timeout)
    started = HistoryEvent(event_id=6, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    started.event_time.FromDatetime(began)
    started.activity_task_started_event_attributes.scheduled_event_id = 5
    ended = HistoryEvent(event_id=7, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    ended.event_time.FromDatetime(began + timedelta(seconds=seconds))
    ended.activity_task_completed_event_attributes.scheduled_event_id = 5
    assert ordinary_heartbeats([scheduled, started, ended]) == beats
