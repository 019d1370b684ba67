"""A nightly job: a Temporal Schedule starts a conversation every night at three.

python nightly_report.py          makes the schedule, and hosts the agent
python nightly_report.py now      the same, and runs it once now
"""

import asyncio
import os
import sys

from temporalio.client import (
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)

from everturn import Agent, Client, Worker, tool


@tool(effect="read")
def orders_of_today() -> list[dict[str, str | int]]:
    """The orders of today, with their state."""
    return [{"order_id": "81", "cents": 3490, "state": "returned"}, {"order_id": "82", "cents": 450, "state": "sent"}]


@tool(effect="idempotent")
def send_report(text: str) -> str:
    """Send the report to the team."""
    print("To the team:", text)
    return "It is sent."


reporter = Agent(
    "reporter",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Send the team a report of two sentences about the orders of today.",
    tools=[orders_of_today, send_report],
)


async def make_schedule(client: Client) -> None:
    action = ScheduleActionStartWorkflow(
        "Conversation",  # the workflow that every conversation is
        {"agent": "reporter", "message": "Write the report of today."},
        id="nightly-report",  # Temporal adds the time of each run
        task_queue=client.task_queue,
    )
    nightly = Schedule(
        action=action,
        spec=ScheduleSpec(cron_expressions=["0 3 * * *"], time_zone_name="Europe/Berlin"),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),  # never two at the same time
    )
    try:
        await client.temporal.create_schedule("nightly-report", nightly)
    except ScheduleAlreadyRunningError:
        print("The schedule is there already.")


async def run_now(client: Client) -> None:
    schedule = client.temporal.get_schedule_handle("nightly-report")
    await schedule.trigger()
    while not (actions := (await schedule.describe()).info.recent_actions):  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(0.2)
    started = actions[-1].action
    assert isinstance(started, ScheduleActionExecutionStartWorkflow)
    conversation = client.conversation(started.workflow_id)
    print((await conversation.outcome()).text)


async def main(*arguments: str) -> None:
    client = await Client.connect()
    async with Worker(client, agents=[reporter]):
        await make_schedule(client)
        if "now" in arguments:
            await run_now(client)
        else:
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
