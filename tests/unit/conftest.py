from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.played_run import PlayedReply, PlayedRun, settle


@pytest.fixture
async def played_run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlayedRun]:
    """A run without Temporal; what a test leaves under way in it ends with the test."""
    before = asyncio.all_tasks()
    yield PlayedRun(monkeypatch)
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
    await settle()


@pytest.fixture
async def reply(played_run: PlayedRun) -> PlayedReply:
    """The calls of a reply in that run."""
    return PlayedReply(played_run)
