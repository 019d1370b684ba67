"""What one try leaves to the next, and how many were lost, over the life of a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from everturn import names
from everturn.activities.agent_lookup import handed_back
from everturn.activities.patience import SPENT
from everturn.calls.causes import cause_of
from everturn.lost_workers import poison_calls
from everturn.lost_workers.poison_calls import ALONE, AT, LOST, RAN, LostTries
from everturn.records import ToolCall
from everturn.workflows.tool_results import as_activity_error, could_not_run_result


class Server:
    """One activity, as Temporal keeps it: the attempt, and the last details that came."""

    def __init__(self, count: str = "lost_tries") -> None:
        self.attempt = 0
        self.details: tuple[Any, ...] = ()
        self._count = count

    async def run(self, try_: str) -> int:
        """One more try: how many were lost before it."""
        self.attempt += 1
        info = replace(
            ActivityEnvironment.default_info(),
            workflow_type=names.CONVERSATION,
            attempt=self.attempt,
            heartbeat_details=list(self.details),
        )
        if try_ == "swallowed":
            return 0  # by the open poll of a frozen worker
        environment, seen, count = ActivityEnvironment(client=self), [], self._count  # type: ignore[arg-type]
        environment.info = info
        environment.on_heartbeat = lambda *details: self._keep(details)

        class Tool(ActivityInboundInterceptor):
            def __init__(self) -> None: ...

            async def execute_activity(self, _: ExecuteActivityInput) -> Any:
                seen.append(getattr(poison_calls, count)())
                if try_ == "fails":
                    raise ApplicationError("it failed")
                if try_ == "fails and has spent":
                    poison_calls.leave_details(**{SPENT: 3.0})
                    raise ApplicationError("it failed")
                if try_.startswith("alone"):
                    ran = try_ == "alone, lost while it ran"
                    facts = {LOST: poison_calls.lost_tries(), ALONE: poison_calls._lost_alone()}
                    poison_calls.leave_details(**facts, **{AT: activity.info().attempt, RAN: ran})

        request = ExecuteActivityInput(fn=lambda: None, args=[], executor=None, headers={})
        try:
            await environment.run(LostTries().intercept_activity(Tool()).execute_activity, request)
        except ApplicationError as error:
            if error.type == names.WORKER_LOST:
                raise
        return int(seen[-1])

    def get_async_activity_handle(self, *, task_token: bytes) -> Server:
        return self

    async def heartbeat(self, *details: Any) -> None:
        self._keep(details)

    def _keep(self, details: tuple[Any, ...]) -> None:
        self.details = tuple(dict(detail) for detail in details)


@pytest.mark.parametrize(
    ("tries", "lost"),
    [
        ([], 0),
        (["lost"], 1),
        (["lost", "lost"], 2),
        (["fails"], 0),
        (["fails", "fails and has spent", "fails"], 0),
        (["lost", "fails"], 1),
        (["fails", "lost", "fails", "lost"], 2),
        (["fails and has spent", "lost", "lost"], 2),
        (["lost", "lost", "alone, lost while it waited"], 2),
        (["lost", "lost", "alone, lost while it waited", "alone, lost while it ran"], 3),
        (["lost", "lost", "alone, lost while it ran", "lost"], 4),
        (["lost", "lost", "alone, lost while it ran", "fails"], 3),
        (["swallowed"], 1),
        (["lost", *["swallowed"] * 20], 1),
        (["lost", "lost", *["swallowed"] * 20, "lost", "swallowed"], 3),
        (["lost", "fails", "swallowed", "lost", "swallowed", "fails"], 2),
        (["fails", "swallowed", "swallowed"], 1),
        (["lost", "lost", "alone, lost while it ran", "swallowed", "swallowed"], 3),
    ],
)
async def test_lost_tries_are_those_that_left_no_word(tries: list[str], lost: int) -> None:
    server = Server()
    for attempt in tries:
        await server.run(attempt)
    assert await server.run("looks") == lost


@pytest.mark.parametrize(
    ("tries", "blamed"),
    [
        (["lost"], 1),
        (["lost", "lost"], 2),
        (["lost", "lost", "lost", "lost"], 2),
        (["lost", "lost", "alone, lost while it waited", "lost"], 2),
        (["lost", "lost", "alone, lost while it ran"], 3),
        (["lost", "lost", "alone, lost while it ran", "lost", "alone, lost while it ran"], 4),
        (["lost", "lost", "alone, lost while it ran", "fails", "alone, lost while it ran"], 4),
        (["lost", "lost", "alone, fails"], 2),
    ],
)
async def test_a_call_is_blamed_for_its_first_losses_and_for_those_when_it_ran_alone(
    tries: list[str], blamed: int
) -> None:
    server = Server("blamed_tries")
    for attempt in tries:
        await server.run(attempt)
    assert await server.run("looks") == blamed


async def test_what_was_spent_is_kept_beside_it() -> None:
    server = Server()
    for one in ("fails and has spent", "fails"):
        await server.run(one)
    assert server.details[0][SPENT] == 3.0


async def test_an_activity_that_is_lost_again_and_again_fails_in_the_end() -> None:
    server = Server()
    for _ in range(poison_calls.MOST_OF_AN_ACTIVITY):
        await server.run("lost")
    with pytest.raises(ApplicationError, match=f"lost {poison_calls.MOST_OF_AN_ACTIVITY} times") as raised:
        await server.run("lost")
    assert raised.value.non_retryable


async def test_an_operators_reset_begins_anew() -> None:
    server = Server()
    for one in ("lost", "lost", "fails"):
        await server.run(one)
    server.attempt = 0
    assert await server.run("looks") == 0


@pytest.mark.parametrize(("lost", "attempt"), [(False, 1), (False, 2), (True, 3), (True, 1)])
async def test_a_call_that_is_handed_back_says_whether_a_try_of_it_was_lost(lost: bool, attempt: int) -> None:
    """After `attempt` tries that said that they failed; if `lost`, with one more that said nothing."""
    env = ActivityEnvironment(client=Server())  # type: ignore[arg-type]
    left = {LOST: 0, AT: attempt, RAN: False, ALONE: 0}
    info = replace(env.info, workflow_type=names.CONVERSATION, attempt=attempt + 1 + lost)
    env.info = replace(info, heartbeat_details=[left])

    class Ends(ActivityInboundInterceptor):
        def __init__(self) -> None:
            pass

        async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
            raise handed_back("No worker has it.", "Start one.", None)

    run = LostTries().intercept_activity(Ends()).execute_activity
    with pytest.raises(ApplicationError) as error:
        await env.run(run, ExecuteActivityInput(fn=run, args=[], executor=None, headers={}))
    assert cause_of(error.value).lost is lost


@pytest.mark.parametrize("begun", [False, True])
def test_a_call_that_no_worker_could_finish_may_have_taken_effect(begun: bool) -> None:
    error = ApplicationError("No worker has it.", type=names.NOT_HOSTED)
    told = could_not_run_result(
        ToolCall(call_id="c1", name="slow", arguments={}), as_activity_error(error, "slow"), begun=begun
    ).text
    assert ("It may or may not have taken effect." in told) is begun
    assert ".." not in told
