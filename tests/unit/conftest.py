from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.fake_sdk import FakeSdk, ReplyParts, settle
from tests.support.watched_tasks import watched_tasks


@pytest.fixture
async def fake_sdk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeSdk]:
    """What a test leaves under way ends with the test. No task may fail unnoticed."""
    before = asyncio.all_tasks()
    unnoticed: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unnoticed.append(context))
    with watched_tasks() as tasks:
        sdk = FakeSdk(monkeypatch)
        yield sdk
        for _ in range(2):  # some wait for their end when they are cancelled
            for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
                task.cancel()
            await settle()
    loop.set_exception_handler(None)
    tasks += [scheduled.task for scheduled in (*sdk.activities, *sdk.children)]
    assert [task for task in tasks if task.failed_unnoticed] == []
    assert unnoticed == []


@pytest.fixture
async def reply(fake_sdk: FakeSdk) -> ReplyParts:
    """Its calls are still to begin."""
    return ReplyParts(fake_sdk)
