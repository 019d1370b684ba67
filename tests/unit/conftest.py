from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.played_run import PlayedReply, PlayedRun, settle


@pytest.fixture
async def played_run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlayedRun]:
    """A run without Temporal; what a test leaves under way in it ends with the test. No task may fail unnoticed."""
    before = asyncio.all_tasks()
    unnoticed: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unnoticed.append(context))
    yield PlayedRun(monkeypatch)
    for _ in range(2):  # some wait for their end when they are cancelled
        for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
            task.cancel()
        await settle()
    loop.set_exception_handler(None)
    assert unnoticed == []


@pytest.fixture
async def reply(played_run: PlayedRun) -> PlayedReply:
    """The calls of a reply in that run."""
    return PlayedReply(played_run)
