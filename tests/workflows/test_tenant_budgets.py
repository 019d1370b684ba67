"""Tenants' budgets on the real server: who is over waits, goes on by itself, and who has none pays nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.service import RPCError

from everturn import Budget, Client, tool
from everturn.budgets.calls import BudgetCalls
from everturn.budgets.records import Spending, SpendingBatch
from everturn.client.pollers import find_pollers
from everturn.errors import InvalidSetting, OtherWorkflow
from everturn.history import event_types
from everturn.testing import ScriptedModel, call, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.shell import Shell
from tests.support.tenant_budgets import budget_of, eventually_none, spent, worker_process
from tests.support.waiting import eventually, reaches, until, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.mark.long
async def test_over_budget_is_a_stall_with_cause_and_cure_and_a_larger_budget_resumes_it(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    await client.set_budget(tenant, Budget(tokens_per_day=1))
    async with hosting(client, agent):
        first = await client.start(agent, "Hi", tenant=tenant)
        assert (await first.outcome()).text == "Hello."
        used = await spent(client, tenant)
        assert used.turns == 1
        assert used.tokens == (await first.outcome()).usage.total_tokens
        second = await client.start(agent, "Hi", tenant=tenant)
        status = await reaches(second, "stalled")
        assert status.cause == f"Tenant {tenant!r} has used {used.tokens} tokens today, and may use 1."
        assert status.cure
        assert f"everturn budget {tenant} --tokens-per-day" in status.cure
        # A person's `resume` asks again, and is told the same.
        await second.resume()
        await reaches(second, "stalled")
        other = await client.start(agent, "Hi", tenant=f"{tenant}-other")
        assert (await other.outcome()).text == "Hello."
        await client.set_budget(tenant, Budget(tokens_per_day=1_000_000))
        assert (await second.outcome()).text == "Hello."
        await client.set_budget(tenant, None)
        assert await eventually_none(client, tenant)
        third = await client.start(agent, "Hi", tenant=tenant)
        assert (await third.outcome()).text == "Hello."


@pytest.mark.long
async def test_only_so_many_are_at_work_at_once_and_the_next_goes_on_by_itself(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    go_on = threading.Event()

    def reply(messages: list[dict[str, Any]]) -> str:
        go_on.wait(60)
        return "Done."

    agent = agent_on(scripted(reply))
    await client.set_budget(tenant, Budget(conversations=1))
    async with hosting(client, agent):
        try:
            first = await client.start(agent, "Hi", tenant=tenant, keep_open=timedelta(hours=1))
            await eventually(lambda: at_work(client, tenant))
            second = await client.start(agent, "Hi", tenant=tenant)
            status = await reaches(second, "stalled")
            assert status.cause == f"Tenant {tenant!r} has 1 conversations at work, and may have 1."
            # Who is paused stays so, whoever is resumed meanwhile.
            third = await client.start(agent, "Hi", tenant=tenant)
            await reaches(third, "stalled")
            await third.pause()
        finally:
            go_on.set()
        assert await first.reply() == "Done."  # it is idle now, and not at work
        assert (await second.outcome()).text == "Done."
        await reaches(third, "paused")
        await third.resume()
        assert (await third.outcome()).text == "Done."
        assert (await spent(client, tenant)).at_work == 0
        await first.close()


@pytest.mark.parametrize("said", ["", "Wait a moment, please: I look for it. "])
async def test_a_cancelled_turn_gives_its_place_back(
    client: Client, scripted: Scripted, tenant: str, said: str
) -> None:
    never = threading.Event()
    model = scripted([slow([said, "Never."] if said else "Never.", until=never), "Done."], order="arrival")
    agent = agent_on(model)
    await client.set_budget(tenant, Budget(conversations=1))
    try:
        async with hosting(client, agent):
            first = await client.start(agent, "Hi", tenant=tenant, keep_open=timedelta(hours=1))
            await eventually(lambda: model.requests)
            assert await at_work(client, tenant) == 1
            await first.cancel_turn()

            async def free() -> bool:
                return await at_work(client, tenant) == 0

            await eventually(free)
            never.set()
            await first.send("Again")
            assert await first.reply() == "Done."
            await first.close()
    finally:
        never.set()


async def at_work(client: Client, tenant: str) -> int:
    return (await spent(client, tenant)).at_work


async def test_a_terminated_conversation_gives_its_place_back_when_its_lease_is_over(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    def reply(messages: list[dict[str, Any]]) -> Any:
        return call("pay") if messages[-1]["content"] == "Pay" else "Done."

    agent = agent_on(scripted(reply), tools=[pay])
    await client.set_budget(tenant, Budget(conversations=1, lease=timedelta(seconds=3)))
    async with hosting(client, agent):
        first = await client.start(agent, "Pay", tenant=tenant)
        await waiting(first)
        second = await client.start(agent, "Hi", tenant=tenant)
        await client.temporal.get_workflow_handle(first.id).terminate()
        assert (await second.outcome()).text == "Done."


async def test_it_goes_from_run_to_run_and_workers_that_come_and_go_without_losing_count(
    client: Client, scripted: Scripted, tenant: str, bounds: Bounds
) -> None:
    bounds(events=40)
    agent = agent_on(scripted(lambda messages: "Hello."))
    await client.set_budget(tenant, Budget(tokens_per_day=1_000_000, conversations=2))
    began = (await budget_of(client, tenant).describe()).run_id
    tokens = 0
    for _ in range(2):
        async with hosting(client, agent, cached_conversations=0):
            for _ in range(4):
                outcome = await client.run(agent, "Hi", tenant=tenant)
                tokens += outcome.usage.total_tokens
            assert (await spent(client, tenant)).tokens == tokens
    assert (await budget_of(client, tenant).describe()).run_id != began


async def test_an_agent_that_another_asks_is_a_part_of_its_place_and_its_tokens_count_once(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    below = agent_on(scripted(["A lamp."]), name="researcher")
    agent = agent_on(scripted([call("researcher", {"message": "What?"}), "Done."]), tools=[below])
    await client.set_budget(tenant, Budget(conversations=1))
    async with hosting(client, agent):
        outcome = await client.run(agent, "Go", tenant=tenant)
        used = await spent(client, tenant)
    assert outcome.text == "Done."
    assert (used.turns, used.tokens) == (3, outcome.usage.total_tokens)


async def test_a_budget_costs_a_conversation_no_event(client: Client, scripted: Scripted, tenant: str) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    await client.set_budget(tenant, Budget(tokens_per_day=1_000_000, conversations=5))
    async with hosting(client, agent):
        histories = []
        for whose in (None, f"{tenant}-without", tenant):
            conversation = await client.start(agent, "Hi", tenant=whose)
            await conversation.outcome()
            history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
            histories.append([event.event_type for event in history.events])
        assert histories[0] == histories[1] == histories[2]
        assert (await spent(client, tenant)).turns == 1


@pytest.mark.long
async def test_twenty_turns_of_an_answer_cost_the_budget_three_updates(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    @tool(effect="read")
    def look() -> str:
        return "nothing"

    def reply(messages: list[dict[str, Any]]) -> Any:
        return call("look") if len(messages) < 2 * 19 else "Done."

    agent = agent_on(scripted(reply), tools=[look])
    await client.set_budget(tenant, Budget(tokens_per_day=1_000_000, conversations=5))
    async with hosting(client, agent):
        outcome = await client.run(agent, "Hi", tenant=tenant)
        used = await spent(client, tenant)
    assert (used.turns, used.tokens) == (20, outcome.usage.total_tokens)
    history = await budget_of(client, tenant).fetch_history()
    assert [event.event_type for event in history.events].count(event_types.WORKFLOW_EXECUTION_UPDATE_ACCEPTED) == 3


async def test_what_the_workers_settings_say_holds_from_the_first_turn_on(
    client: Client, scripted: Scripted, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    async with hosting(client, agent, budgets={tenant: Budget(tokens_per_day=1)}):
        assert (await client.run(agent, "Hi", tenant=tenant)).text == "Hello."
        assert (await spent(client, tenant)).declared
        second = await client.start(agent, "Hi", tenant=tenant)
        await reaches(second, "stalled")
    async with hosting(client, agent, budgets={tenant: Budget(tokens_per_day=1_000_000)}):
        await second.resume()
        await second.outcome()


async def test_a_turn_waits_for_a_budget_that_does_not_answer(client: Client, scripted: Scripted, tenant: str) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    elsewhere = Client(client.temporal, task_queue=f"{client.task_queue}-budgets")
    await elsewhere.set_budget(tenant, Budget(tokens_per_day=1_000_000))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", tenant=tenant)
        handle = client.temporal.get_workflow_handle(conversation.id)

        async def told() -> bool:
            pending = (await handle.describe()).raw_description.pending_activities
            return any("does not answer" in entry.last_failure.message for entry in pending)

        await eventually(told)
        async with hosting(elsewhere, agent):
            assert (await conversation.outcome()).text == "Hello."
            assert (await spent(elsewhere, tenant)).turns == 1


@pytest.mark.long
async def test_a_worker_that_is_killed_takes_no_count_and_no_place_with_it(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    go_on = threading.Event()
    model = scripted([*["Hello."] * 2, slow("Never.", until=go_on), *["Hello."] * 2], order="arrival")
    await client.set_budget(tenant, Budget(tokens_per_day=1_000_000, conversations=1))
    agent, outcomes = agent_on(model), []
    try:
        async with worker_process(client, model):
            outcomes += [await client.run(agent, "Hi", tenant=tenant) for _ in range(2)]
            killed = await client.start(agent, "Hi", tenant=tenant)
            await eventually(lambda: len(model.requests) == 3)
            second = await client.start(agent, "Hi", tenant=tenant)
            await reaches(second, "stalled")
        async with hosting(client, agent):
            outcomes += [await killed.outcome(), await second.outcome()]
            used = await spent(client, tenant)
    finally:
        go_on.set()
    assert (used.turns, used.tokens) == (4, sum(outcome.usage.total_tokens for outcome in outcomes))
    assert (used.at_work, used.waiting) == (0, 0)


def test_the_command_sets_shows_and_takes_away(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    model(lambda messages: "Hello.")
    (shell.folder / "desk.py").write_text("from everturn import Agent\ndesk = Agent('desk', model='scripted:x')\n")
    missing = shell.run("budget", name)
    assert missing.returncode == 1
    assert f"Tenant {name!r} has no budget" in missing.stderr
    with shell.start("worker", "--agents", "desk.py") as worker:
        try:
            said = shell.run("budget", name, "--tokens-per-day", "1000", "--conversations", "2", "--lease-minutes", "5")
            assert "1,000" in said.stdout, said.stderr
            until(lambda: shell.run("doctor").returncode == 0)  # the worker polls
            assert shell.run("run", "Hi", "--agent", "desk", "--tenant", name).returncode == 0
            found = shell.json("budget", name, "--usd-per-day", "2.5", "--conversations", "0")
            assert found["turns"] == 1
            limits = dict.fromkeys(("tokens_per_month", "usd_per_month", "tokens_total", "usd_total", "conversations"))
            assert found["budget"] == {"tokens_per_day": 1000, "usd_per_day": 2.5, **limits, "lease": 300.0}
            table = shell.run("budget", name, "--tokens-per-month", "9000", "--usd-total", "7").stdout
            assert f"tokens in {found['month']}" in table
            assert "dollars in all" in table
            shell.run("budget", name, "--tokens-total", str(found["tokens_total"]), "--usd-per-month", "8")
            stalled = shell.run("run", "Hi", "--agent", "desk", "--tenant", name)
            assert f"Tenant {name!r} has used {found['tokens_total']:,} tokens in all" in stalled.stderr
            assert shell.run("budget", name, "--remove").returncode == 0
            assert "alone" in shell.run("budget", name, "--remove", "--usd-per-day", "5").stderr
            until(lambda: shell.run("budget", name).returncode == 1)
        finally:
            worker.terminate()


async def test_a_budget_is_taken_away_though_no_worker_of_its_task_queue_runs(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    elsewhere = Client(client.temporal, task_queue=f"gone-{client.task_queue}")
    await elsewhere.set_budget(tenant, Budget(tokens_per_day=1))
    await elsewhere.set_budget(tenant, None)
    assert await elsewhere.budget(tenant) is None
    await elsewhere.set_budget(tenant, None)
    agent = agent_on(scripted(lambda messages: "Hello."))
    async with hosting(client, agent):
        assert (await client.run(agent, "Hi", tenant=tenant)).status == "completed"


async def test_a_question_that_was_in_a_budget_when_it_ended_is_not_put_for_ever(client: Client, tenant: str) -> None:
    """The server says of it, each time that it comes again: aborted by closing."""
    elsewhere = Client(client.temporal, task_queue=f"gone-{client.task_queue}")
    await elsewhere.set_budget(tenant, Budget(tokens_per_day=1))
    ended = budget_of(client, tenant)
    asks = BudgetCalls(client.temporal, tenant, ended.id, client.task_queue, None, find_pollers)
    question = SpendingBatch(worker="w", number=1, items=(Spending(conversation="one", asks=True),))
    answer = asyncio.create_task(asks.count_spending(question))
    for _ in range(5):
        await ended.describe()  # meanwhile the question arrives
    await ended.terminate()
    assert await answer is None
    assert await asks.count_spending(question) is None


async def test_what_is_no_budget_is_refused(client: Client) -> None:
    with pytest.raises(InvalidSetting, match="is no tenant"):
        await client.set_budget("", Budget())
    with pytest.raises(InvalidSetting, match="Give a Budget"):
        await client.set_budget("acme", 5)  # type: ignore[arg-type]
    assert await client.budget(f"nobody-{uuid4().hex[:6]}") is None


async def test_what_makes_no_sense_is_refused_and_changes_nothing(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    await client.set_budget(tenant, Budget(tokens_per_day=5))
    handle = budget_of(client, tenant)
    for nonsense in ({"budget": {"tokens_per_day": "many"}}, 7, {"budget": 7}):
        await handle.signal("set_budget", nonsense)
    async with hosting(client, agent):
        with pytest.raises(Exception, match="Workflow update failed"):
            await handle.execute_update("count_spending", {"items": 7})
        assert (await spent(client, tenant)).budget.tokens_per_day == 5


async def test_a_workflow_of_another_type_under_a_budgets_id_is_no_budget(client: Client, scripted: Scripted) -> None:
    """A program of somebody's own has started it: everturn starts no conversation with such an id."""
    tenant = f"acme-{uuid4().hex[:8]}"
    taker = await client.temporal.start_workflow("Order", id=f"everturn-budget:{tenant}", task_queue="nobody-polls")
    agent = agent_on(scripted(lambda messages: "Hello."))
    try:
        async with hosting(client, agent):
            with pytest.raises(OtherWorkflow, match=r"can't be set: a workflow of type 'Order'.* End that workflow"):
                await client.set_budget(tenant, Budget(tokens_per_day=1))
            with pytest.raises(OtherWorkflow):
                await client.set_budget(tenant, None)
            assert await client.budget(tenant) is None
            assert (await client.run(agent, "Hi", tenant=tenant)).text == "Hello.", "it has no budget"
        declared = {tenant: Budget(tokens_per_day=1_000)}
        async with hosting(client, agent, budgets=declared):
            waits = await client.start(agent, "Hi", tenant=tenant)

            async def its_cause() -> str:
                return (await waits.status()).cause or ""

            assert "a workflow of type 'Order' has its id" in await eventually(its_cause)
            await taker.terminate()
            assert (await waits.outcome()).text == "Hello."
            await client.set_budget(tenant, None)
    finally:
        with suppress(RPCError):
            await taker.terminate()
