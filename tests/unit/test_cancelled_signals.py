"""Tasks of workflows that are cancelled while they signal another workflow."""

from __future__ import annotations

import asyncio

from everturn.workflows.cancellation import send_signal


async def test_who_is_cancelled_while_its_signal_is_under_way_is_cancelled_and_the_signal_arrives() -> None:
    answer = asyncio.Event()
    arrived: list[str] = []

    async def signal() -> None:
        """As temporalio's: it goes on waiting for the server's answer, whoever is cancelled."""
        try:
            await answer.wait()
        except asyncio.CancelledError:
            await answer.wait()
        arrived.append("signal")

    task = asyncio.create_task(send_signal(signal()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    answer.set()
    await asyncio.sleep(0.01)
    assert arrived == ["signal"]
