"""A worker in a program of one's own: what it reads, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everturn import Client, Worker
from everturn.errors import InvalidSetting
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting

Scripted = Callable[..., ScriptedModel]


async def test_a_second_worker_on_one_client_and_queue_is_refused_by_name(client: Client, scripted: Scripted) -> None:
    """A notebook's cell that is run twice. temporalio's own error is a RuntimeError with a backtrace of Rust."""
    agent = agent_on(scripted(["Hi."] * 2))
    async with hosting(client, agent) as first:
        second = Worker(client, agents=[agent])
        with pytest.raises(InvalidSetting, match=rf"queue '{client.task_queue}'.*\n?.*one worker for each") as refused:
            await second.start()
        assert "Py_RunMain" not in str(refused.value)
        assert (await client.run(agent, "Go")).text == "Hi."
        await first.stop()
        await second.start()
        assert (await client.run(agent, "Go")).text == "Hi."
        await second.stop()


async def test_settings_of_a_workers_process_are_no_secret_of_the_command(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """EVERTURN_ROLES counts here, too. EVERTURN_METRICS can't: Temporal's runtime is there before a worker is."""
    monkeypatch.setenv("EVERTURN_METRICS", "127.0.0.1:9464")
    agent = agent_on(scripted(["Hi."]))
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "Hi."
    (line,) = [message for record in caplog.records if "metrics.off" in (message := record.getMessage())]
    assert "EVERTURN_METRICS=127.0.0.1:9464" in line
    assert "expose('127.0.0.1:9464')" in line
    monkeypatch.setenv("EVERTURN_ROLES", "workflows")
    assert Worker(client, agents=[agent])._plugin.hosted.roles == {"workflows"}
