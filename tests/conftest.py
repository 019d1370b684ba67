"""What the tests share: a real Temporal server, a real model server, and workers as users start them."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import temporalio.worker._worker
from hypothesis import settings

from everturn import Client
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel

# Their assertions say as much as those of a test.
pytest.register_assert_rewrite("tests.support", "tests.providers", "tests.ui")

from tests.support.bounds import Bounds, put_back, set_for_good, settable  # noqa: E402
from tests.support.certificates import read_once  # noqa: E402
from tests.support.histories import check_all  # noqa: E402
from tests.support.order import PAGES, in_pieces, may_have_long_ones  # noqa: E402
from tests.support.ports import ports_of_this_process  # noqa: E402
from tests.support.skips import watch_skips  # noqa: E402

set_for_good(ports=ports_of_this_process())
read_once()
# For the servers, which are written in Go: they live for minutes, and need not look for garbage all the time, nor have
# stacks that begin small and are copied as they grow; and each process of xdist has one, so that they need not use all
# the cores at once, too.
os.environ |= {"GOGC": "300", "GODEBUG": "adaptivestackstart=1", "GOMEMLIMIT": "1500MiB", "GOMAXPROCS": "1"}

# A worker of the SDK's own that is given none hashes all modules for it, read from the disk: over a second of CPU.
temporalio.worker._worker._default_build_id = "tests"

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
    """`make test`, `make pages` and `make long` import no file that has none of their tests."""
    if not collection_path.match("test_*.py"):
        return None
    is_page = collection_path.relative_to(config.rootpath).as_posix().startswith(PAGES)
    match config.option.markexpr:
        case "long":
            has_some = may_have_long_ones(collection_path)
        case "not long and not pages":
            has_some = not is_page
        case "pages and not long":
            has_some = is_page
        case _:
            has_some = True
    return None if has_some else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()  # ten thousand tests and what they import stay


def pytest_collection_finish() -> None:
    _leave_out_what_stays()
    gc.set_threshold(10_000, 20, 20)
    gc.callbacks.append(_watch_collections)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """A vendor's library that a test has imported stays, too."""
    if _modules_that_stay and len(sys.modules) > _modules_that_stay + 50:  # none: xdist's process without tests
        gc.collect()
        _leave_out_what_stays()


SLOW_SECONDS = 0.1


def _watch_collections(phase: str, info: dict[str, int]) -> None:
    """What a look through all there is takes long for stays, too, such as the syntax trees that tests of the code keep.
    Each later look would take as long, also those that tests ask for."""
    global _began  # noqa: PLW0603
    if info["generation"] < 2:
        return
    if phase == "start":
        _began = time.perf_counter()
    elif time.perf_counter() - _began > SLOW_SECONDS:
        gc.freeze()


_began = 0.0
_modules_that_stay = 0


def _leave_out_what_stays() -> None:
    """Else Python would look through it for garbage again and again, which takes seconds each time."""
    global _modules_that_stay  # noqa: PLW0603 - as garbage collection is the process's
    _modules_that_stay = len(sys.modules)
    gc.freeze()


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
    """How many conversations a worker keeps in memory. CACHED=0, in CI: none, so that every workflow task replays the
    history, for a sixth more CPU; in `make test` each history is replayed once, at the end of its test."""
    return int(os.environ.get("CACHED", "1000"))
