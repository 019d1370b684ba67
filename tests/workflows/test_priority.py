"""Priority and fairness are Temporal's, of a conversation, its activities and its children."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.common import Priority
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from everturn import Client, EverturnPlugin, tool
from everturn.devserver import FAIR, DevServer
from everturn.errors import InvalidSetting
from everturn.tenants.priorities import priority_of, read_weights
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


class Noting(Interceptor):
    def __init__(self) -> None:
        self.seen: list[tuple[str, Priority]] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Noted(next, self)


class _Noted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, noting: Noting) -> None:  # noqa: A002
        super().__init__(next)
        self._noting = noting

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        self._noting.seen.append((activity.info().activity_type, activity.info().priority))
        return await self.next.execute_activity(input)


@pytest.mark.long
async def test_turns_tools_later_runs_and_asked_agents_have_the_conversations_priority(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=30)

    @tool
    def look_up() -> str:
        return "a lamp"

    below = agent_on(scripted([call("look_up"), "A lamp."]), name="researcher", tools=[look_up])
    script = [*(call("look_up", id=f"c{turn}") for turn in range(6)), call("researcher", {"message": "What?"}, id="r")]
    agent, noting = agent_on(scripted([*script, "Done."]), tools=[look_up, below]), Noting()
    worker = Worker(
        client.temporal,
        task_queue=client.task_queue,
        plugins=[EverturnPlugin(agents=[agent], drain_timeout=timedelta(seconds=20))],
        interceptors=[noting],
        disable_eager_activity_execution=True,  # what goes from hand to hand waits in no queue, and has no priority
    )
    async with worker:
        conversation = await client.start(agent, "Go", tenant="acme", priority=2, fairness_weight=3.0)
        assert (await conversation.outcome()).text == "Done."
        assert len(await runs_of(client, conversation)) > 1
        handles = [client.temporal.get_workflow_handle(one) for one in (conversation.id, f"{conversation.id}.r")]
        described = [(await handle.describe()).raw_description.workflow_execution_info for handle in handles]
    wanted = Priority(priority_key=2, fairness_key="acme", fairness_weight=3.0)
    assert {Priority._from_proto(one.priority) for one in described} == {wanted}
    assert {priority for _, priority in noting.seen} == {wanted}
    assert {name for name, _ in noting.seen} == {"call_model", "look_up"}


async def test_the_tenant_is_the_fairness_key_unless_another_is_given(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        for options, key in (
            ({"tenant": "acme"}, "acme"),
            ({"tenant": "acme", "fairness_key": "others"}, "others"),
            ({}, ""),
        ):
            conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1), **options)
            described = await client.temporal.get_workflow_handle(conversation.id).describe()
            assert described.raw_description.workflow_execution_info.priority.fairness_key == key
            await conversation.reply()
            await conversation.close()


async def test_run_and_send_take_them_and_what_goes_on_keeps_them(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))

    async def priority_of_run(conversation_id: str) -> Priority:
        described = await client.temporal.get_workflow_handle(conversation_id).describe()
        return Priority._from_proto(described.raw_description.workflow_execution_info.priority)

    given = Priority(priority_key=2, fairness_key="acme", fairness_weight=3.0)
    options: dict[str, Any] = {"priority": 2, "fairness_key": "acme", "fairness_weight": 3.0}
    async with hosting(client, agent):
        ran = f"{client.task_queue}-ran"
        await client.run(agent, "Hi", id=ran, **options)
        assert await priority_of_run(ran) == given
        sent = await client.send(agent, "Hi", id=f"{client.task_queue}-sent", **options)
        await sent.outcome()
        assert await priority_of_run(sent.id) == given
        # Revived: as it was, unless said otherwise.
        await client.send(agent, "And?", id=sent.id)
        await sent.outcome()
        assert await priority_of_run(sent.id) == given
        await client.send(agent, "And?", id=sent.id, priority=5)
        await sent.outcome()
        assert await priority_of_run(sent.id) == Priority(priority_key=5, fairness_key="acme", fairness_weight=3.0)
        forked = await sent.fork(at_turn=1, fairness_key="others")
        assert await priority_of_run(forked.id) == Priority(priority_key=5, fairness_key="others", fairness_weight=3.0)
        await forked.close()
        with pytest.raises(InvalidSetting, match="priority=0"):
            await sent.fork(at_turn=1, priority=0)
        with pytest.raises(InvalidSetting, match="priority=0"):
            await client.send(agent, "And?", id=sent.id, priority=0)


def test_a_long_tenant_has_a_key_of_its_own() -> None:
    one, other = (priority_of(None, None, None, tenant="t" * 200 + end).fairness_key for end in "ab")
    assert one != other
    assert one is not None
    assert len(one) == 32


@pytest.mark.long
async def test_a_tenant_does_not_wait_for_all_that_another_one_asks_for(scripted: Scripted) -> None:
    asked: list[str] = []
    full = threading.Event()

    def reply(messages: list[dict[str, Any]]) -> str:
        asked.append(messages[-1]["content"])
        full.wait(60)
        return "Done."

    agent = agent_on(scripted(reply))
    # It is fair in each of a queue's partitions, four unless told otherwise.
    partitions = {f"matching.numTaskqueue{kind}Partitions": "1" for kind in ("Read", "Write")}
    async with DevServer(dynamic_config={**FAIR, **partitions}) as server:
        client = await Client.connect(server.address, task_queue="fair", by="tester")
        many = [await client.start(agent, f"many {number}", tenant="many") for number in range(30)]
        few = [await client.start(agent, f"few {number}", tenant="few") for number in range(3)]
        worker = Worker(
            client.temporal,
            task_queue="fair",
            plugins=[EverturnPlugin(agents=[agent], drain_timeout=timedelta(seconds=20))],
            max_concurrent_activities=1,
            disable_eager_activity_execution=True,
        )
        async with worker:
            try:
                for one in (*many, *few):  # all turns wait in the queue, but for the first
                    await eventually(lambda one=one: _has_a_turn(client, one.id))
            finally:
                full.set()
            for one in (*many, *few):
                await one.outcome()
    places = [place for place, text in enumerate(asked) if text.startswith("few")]
    assert len(places) == 3
    assert max(places) < 15, "without fairness, they are the last ones of 33"


async def _has_a_turn(client: Client, conversation_id: str) -> bool:
    described = await client.temporal.get_workflow_handle(conversation_id).describe()
    return bool(described.raw_description.pending_activities)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 0}, "priority=0"),
        ({"priority": True}, "priority=True"),
        ({"fairness_weight": 0.0}, "fairness_weight=0.0"),
        ({"fairness_weight": float("nan")}, "fairness_weight=nan"),
        ({"fairness_key": "ü" * 33}, "66 bytes"),
    ],
)
async def test_what_temporal_does_not_take_is_refused(
    client: Client, scripted: Scripted, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said):
        await client.start("clerk", "Hi", **options)


async def test_a_tenant_has_the_weight_that_the_settings_give_it(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_TENANT_WEIGHTS", "acme=4, free=0.5")
    agent = agent_on(scripted(["Done."]))
    starts: list[tuple[dict[str, Any], Priority]] = [
        ({"tenant": "acme"}, Priority(fairness_key="acme", fairness_weight=4)),
        ({"tenant": "free"}, Priority(fairness_key="free", fairness_weight=0.5)),
        ({"tenant": "free", "fairness_weight": 2.0}, Priority(fairness_key="free", fairness_weight=2)),
        ({"tenant": "free", "fairness_key": "other"}, Priority(fairness_key="other")),
        ({"tenant": "new"}, Priority(fairness_key="new")),
        ({}, Priority()),
    ]
    async with hosting(client, agent):
        for given, priority in starts:
            conversation = await client.start(agent, "Go", **given)
            described = await client.temporal.get_workflow_handle(conversation.id).describe()
            info = described.raw_description.workflow_execution_info
            found = Priority._from_proto(info.priority)
            assert (found.fairness_key or None, found.fairness_weight or None) == (
                priority.fairness_key,
                priority.fairness_weight,
            )
            await conversation.outcome()


@pytest.mark.parametrize("written", ["acme", "acme=", "acme=0", "acme=nan", "acme=many", "=4", "acme=5000"])
def test_a_weight_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(InvalidSetting, match="not a tenant's weight"):
        read_weights(written)
