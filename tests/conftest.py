"""What the tests share: a real Temporal server, a real model server, and workers as users start them."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings

from everturn import Client
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel

# Their assertions say as much as those of a test.
pytest.register_assert_rewrite("tests.support", "tests.providers", "tests.ui")

from tests.support.bounds import Bounds, put_back, set_for_good, settable  # noqa: E402
from tests.support.histories import check_all  # noqa: E402
from tests.support.order import PAGES, in_pieces, may_have_long_ones  # noqa: E402
from tests.support.ports import ports_of_this_process  # noqa: E402
from tests.support.skips import watch_skips  # noqa: E402

set_for_good(ports=ports_of_this_process())
# For the servers, which are written in Go: they live for minutes, and need not look for garbage all the time; and each
# process of xdist has one, so that they need not use all the cores at once, too.
os.environ |= {"GOGC": "1000", "GOMEMLIMIT": "1500MiB", "GOMAXPROCS": "1"}

# What tests start is interrupted by them, also where whoever started the tests has them ignore it, as nohup and `&` do.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's business.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    watch_skips(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if item.nodeid.startswith(PAGES):
            item.add_marker("pages")
        for crossed in item.iter_markers("long_if"):
            (is_long,) = crossed.args
            given = item.callspec.params  # type: ignore[attr-defined]
            if is_long(**{name: given[name] for name in inspect.signature(is_long).parameters}):
                item.add_marker("long")
        if item.get_closest_marker("long") and not may_have_long_ones(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} is long by a mark that LONG in tests/support/order.py does not find."
            )
    yield  # `-m` leaves some of them out
    if processes := getattr(config, "workerinput", {}).get("workercount"):
        items[:] = in_pieces(items, processes)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make long` imports no file that has none of its tests."""
    if config.option.markexpr != "long" or not collection_path.match("test_*.py"):
        return None
    return None if may_have_long_ones(collection_path) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()  # ten thousand tests and what they import stay


def pytest_collection_finish() -> None:
    gc.freeze()  # else Python would look through them for garbage again and again
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("EVERTURN_", "TEMPORAL_")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _bounds_are_as_they_were() -> Iterator[None]:
    # It needs no other fixture: so it begins first, and looks when all the others have ended.
    yield
    assert not (left := put_back()), f"a test has to put back what it changes: {left}"


@pytest.fixture(autouse=True)
def _silence_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of this process that a full machine leaves no time is not taken for lost: a second try is legal, and no
    test that counts could allow it. Nor is it given up on by who asks it. Worker processes, which tests do kill, have
    the bounds as they are."""
    settable(monkeypatch)(heartbeat_timeout=timedelta(seconds=40), answer_seconds=60.0)


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> Bounds:
    return settable(monkeypatch)


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[DevServer]:
    settings = {
        # A run that continues as new within a second is held back until that is over: for tests, that is a long time.
        "history.workflowIdReuseMinimalInterval": '"0s"',
        # Five failures of a workflow task take 20 seconds.
        "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "2",
        # And each after the second waits for its time-out, and longer each time.
        "history.workflowTaskRetryMaxInterval": '"0.1s"',
        # A run is deleted once the queues of its shard say how far they are, which they do each half minute.
        "history.transferProcessorUpdateAckInterval": '"0.5s"',
        "history.visibilityProcessorUpdateAckInterval": '"0.5s"',
    }
    async with DevServer(dynamic_config=settings) as running:
        yield running


@pytest.fixture
async def client(server: DevServer) -> AsyncIterator[Client]:
    """A client with a task queue of its own. Afterwards, each run there is replayed and compared."""
    client = await Client.connect(server.address, task_queue=f"test-{uuid4().hex[:8]}", by="tester")
    yield client
    await check_all(client)


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedModel]]:
    """Starts scripted models: `model = scripted(["Hello."])`."""
    running: list[ScriptedModel] = []

    def start(script: Any, **options: Any) -> ScriptedModel:
        running.append(ScriptedModel(script, **options).start())
        return running[-1]

    yield start
    for model in running:
        model.stop()


@pytest.fixture
def stuck() -> Iterator[Callable[[], Any]]:
    """What blocks until the test is over."""
    released = threading.Event()
    yield released.wait
    released.set()


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """Model streams wait for it in their middle."""
    held = threading.Event()
    yield held
    held.set()


@pytest.fixture
def cached_conversations() -> int:
    """A worker keeps no conversation in memory: every workflow task replays the history. A test that does not ask for
    this keeps them, as workers do."""
    return int(os.environ.get("CACHED", "0"))
