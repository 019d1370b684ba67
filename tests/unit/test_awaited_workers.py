"""How a conversation waits for a worker that hosts its agent or has its tool: what it says, asks for, and when it stops
waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from everturn import names
from everturn.payloads import Start, ToolRequest
from everturn.state import State
from everturn.workflows.awaited_worker import AwaitedWorker, with_hand_back_for, with_remaining_details
from everturn.workflows.eager_dispatch import _by_the_queue
from tests.support.activity_errors import activity_error

REQUEST = ToolRequest(agent="clerk", turn=1, call_id="a", arguments={})
SHOWN = "{} Waiting for one since 2026-01-01T00:00:00+00:00."


def handed_back(message: str = "No worker hosts it.", **details: Any) -> ActivityError:
    return activity_error(ApplicationError(message, {"cure": "Start one.", **details}, type=names.NOT_HOSTED))


FAILED = activity_error(ApplicationError("It is broken.", type="Broken"))


class Waits:
    """Waits for workers. `tries` are what the activity comes to, one after the other; each try is noted with what it is
    given, what is shown then, and whether it is for any worker of the queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tries: list[Any] = []
        self.seen: list[Any] = []
        self.pauses: list[float] = []
        self.changes = 0
        self.given_up_after: int | None = None
        self.stalls: list[Any] = []
        self.close_in_stall = False
        self.state = State(Start(agent="clerk"), run_began=0.0)
        stalls_and_pauses: Any = self
        self.awaited = AwaitedWorker(self.state, stalls_and_pauses, self._count)
        monkeypatch.setattr(workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
        monkeypatch.setattr(workflow, "wait_condition", self._wait)

    def _count(self) -> None:
        self.changes += 1

    async def _wait(self, condition: Any, *, timeout: float, timeout_summary: str) -> None:
        assert timeout_summary == "until a worker has the tool"
        self.pauses.append(timeout)
        if not condition():
            raise TimeoutError

    async def wait_while_stalled(self, cause: str, cure: str | None) -> None:
        self.stalls.append((cause, cure))
        self.state.closing = self.close_in_stall

    async def start(self, seconds: float | None) -> str:
        self.seen.append((seconds, self.awaited.cause, _by_the_queue.get()))
        came_to = self.tries.pop(0)
        if isinstance(came_to, Exception):
            raise came_to
        return str(came_to)

    def given_up(self) -> bool:
        return self.given_up_after is not None and len(self.seen) + len(self.pauses) > self.given_up_after

    @property
    def given(self) -> list[float | None]:
        """Each try's `hand_back_for`."""
        return [seconds for seconds, _, _ in self.seen]

    async def run(self, *tries: Any, **options: Any) -> str:
        self.tries += tries
        return await self.awaited.run_when_hosted("call a", self.start, given_up=self.given_up, **options)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


async def test_what_a_worker_takes_at_once_is_waited_for_without_a_word(waits: Waits) -> None:
    assert await waits.run("done") == "done"
    assert (waits.seen, waits.changes, waits.awaited.cure) == ([(None, None, False)], 0, None)


@pytest.mark.parametrize(("patience", "seconds"), [(None, 1_800.0), (7.0, 7.0), (0.0, 0.0)])
async def test_what_is_handed_back_waits_in_the_queue_for_as_long_as_its_patience(
    patience: float | None, seconds: float, waits: Waits
) -> None:
    assert await waits.run(handed_back(), "done", patience=patience) == "done"
    assert waits.seen == [(None, None, False), (seconds, SHOWN.format("No worker hosts it."), True)]
    assert (waits.changes, waits.awaited.cause, _by_the_queue.get()) == (2, None, False)


async def test_what_is_handed_back_again_is_not_shown_any_more(waits: Waits) -> None:
    with pytest.raises(ActivityError, match="it failed"):
        await waits.run(handed_back(), handed_back())
    assert (waits.changes, waits.awaited.cause) == (2, None)


@pytest.mark.parametrize("retried", [True, False])
async def test_what_fails_for_another_reason_is_not_waited_for(*, retried: bool, waits: Waits) -> None:
    with pytest.raises(ActivityError):
        await waits.run(FAILED, "done", retried=retried)
    assert (waits.given, waits.changes) == ([None], 0)


async def test_what_nobody_wants_any_more_is_not_begun_again(waits: Waits) -> None:
    waits.given_up_after = 0
    with pytest.raises(ActivityError):
        await waits.run(handed_back(), "done")
    assert (waits.given, waits.changes) == ([None], 0)


async def test_of_several_that_wait_the_first_is_shown_with_its_cure(waits: Waits) -> None:
    with waits.awaited.show_waiting("a", "Nobody answers.", "Start one."):
        assert (waits.awaited.cause, waits.awaited.cure) == (SHOWN.format("Nobody answers."), "Start one.")
        with waits.awaited.show_waiting("b", "Another.", "Start another."):
            assert (waits.awaited.cause, waits.awaited.cure) == (SHOWN.format("Nobody answers."), "Start one.")
        assert waits.changes == 3
    assert (waits.awaited.cause, waits.awaited.cure, waits.changes) == (None, None, 4)


async def test_the_cure_of_what_is_handed_back_is_shown_while_it_waits(waits: Waits) -> None:
    async def start(seconds: float | None) -> str:
        if seconds is None:
            raise handed_back()
        return str(waits.awaited.cure)

    assert await waits.awaited.run_when_hosted("call a", start) == "Start one."


# ---------------------------------------------------------------- what Temporal does not try again by itself


async def test_what_runs_once_is_begun_again_in_rounds_that_get_longer(waits: Waits) -> None:
    """The first is after a second, none is longer than two minutes."""
    tries = [handed_back()] * 10
    assert await waits.run(*tries, "done", patience=1e6, retried=False) == "done"
    assert waits.pauses == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]
    assert set(waits.given) == {None}, "a worker that lacks it hands it back after its own time"
    assert waits.seen[1][2], "any worker of the queue may take it"


@pytest.mark.parametrize(
    ("patience", "pauses"), [(5.0, [1, 2, 2]), (3.0, [1, 2]), (1.5, [1, 0.5]), (1.0, [1]), (0.5, [0.5]), (0.0, [0.001])]
)
async def test_the_last_round_is_when_patience_is_over(patience: float, pauses: list[float], waits: Waits) -> None:
    errors = [handed_back(str(number)) for number in range(len(pauses) + 1)]
    with pytest.raises(ActivityError) as raised:
        await waits.run(*errors, "too late", patience=patience, retried=False)
    assert (waits.pauses, raised.value) == (pauses, errors[-1])
    assert waits.given == [None] * len(pauses) + [0.0], "the last one is handed back at once"
    assert waits.changes == 2


async def test_the_last_round_may_find_a_worker(waits: Waits) -> None:
    assert await waits.run(handed_back(), "done", patience=1.0, retried=False) == "done"


async def test_another_failure_ends_the_rounds(waits: Waits) -> None:
    with pytest.raises(ActivityError) as raised:
        await waits.run(handed_back(), FAILED, "done", patience=100.0, retried=False)
    assert (raised.value, len(waits.pauses)) == (FAILED, 1)


async def test_rounds_end_without_another_try_once_nobody_wants_it(waits: Waits) -> None:
    errors = [handed_back(str(number)) for number in range(3)]
    waits.given_up_after = 3  # two tries and a pause, and another pause
    with pytest.raises(ActivityError) as raised:
        await waits.run(*errors, patience=100.0, retried=False)
    assert (raised.value, len(waits.given), waits.pauses) == (errors[1], 2, [1, 2])


# ---------------------------------------------------------------- stalls


@pytest.mark.parametrize("retried", [True, False])
async def test_once_patience_is_over_the_conversation_stalls_until_a_person_resumes(
    *, retried: bool, waits: Waits
) -> None:
    waits.tries = [handed_back(), handed_back("Still none."), handed_back(), "done"]
    run = waits.awaited.run_or_stall("call a", waits.start, patience=1.0, retried=retried)
    assert await run == "done"
    assert waits.stalls == [("Still none.", "Start one.")]
    last = 1.0 if retried else 0.0
    assert waits.given == [None, last, None, last]


async def test_another_failure_is_no_reason_to_stall(waits: Waits) -> None:
    waits.tries = [FAILED]
    with pytest.raises(ActivityError):
        await waits.awaited.run_or_stall("call a", waits.start)
    assert waits.stalls == []


async def test_a_conversation_that_closes_waits_for_no_worker(waits: Waits) -> None:
    waits.tries, waits.state.closing = [handed_back(), "done"], True
    with pytest.raises(ActivityError):
        await waits.awaited.run_or_stall("call a", waits.start)
    assert (waits.given, waits.stalls) == ([None], [])


async def test_a_conversation_that_is_closed_while_it_stalls_does_not_try_again(waits: Waits) -> None:
    waits.tries, waits.close_in_stall = [handed_back(), handed_back(), "done"], True
    with pytest.raises(ActivityError):
        await waits.awaited.run_or_stall("call a", waits.start)
    assert (len(waits.stalls), len(waits.given)) == (1, 2)


# ---------------------------------------------------------------- what is handed on


def test_a_request_says_how_long_it_is_handed_on_only_if_that_is_decided() -> None:
    assert with_hand_back_for(None, REQUEST) is REQUEST
    assert with_hand_back_for(0.0, REQUEST).hand_back_for == 0.0


async def test_what_tries_before_have_left_goes_along_when_a_call_is_handed_back() -> None:
    given: list[Any] = []
    outcomes = [handed_back(left={"step": 2}), handed_back(), FAILED]

    async def begin(request: ToolRequest) -> str:
        given.append((request.left, request.hand_back_for))
        raise outcomes[len(given) - 1]

    start = with_remaining_details(REQUEST, begin)
    for seconds in (None, 5.0, 0.0):
        with pytest.raises(ActivityError):
            await start(seconds)
    assert given == [({}, None), ({"step": 2}, 5.0), ({"step": 2}, 0.0)]


async def test_what_a_call_leaves_that_failed_for_itself_is_not_handed_on() -> None:
    given: list[Any] = []

    async def begin(request: ToolRequest) -> str:
        given.append(request.left)
        raise activity_error(ApplicationError("It asks.", {"left": {"step": 2}}, type="Asks"))

    start = with_remaining_details(REQUEST, begin)
    for _ in range(2):
        with pytest.raises(ActivityError):
            await start(None)
    assert given == [{}, {}]
