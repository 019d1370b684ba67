"""The signals and updates of a run, before it is known what they mean."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.payloads import Control, Start
from everturn.sizes import MAX_NAME_CHARS
from everturn.storage.data_converter import NoValue
from everturn.workflows import eager_dispatch, message_dispatch
from everturn.workflows.message_dispatch import CommandType, Handlers


class Owner:
    """Of one command, which takes what it is given, or has a reason not to."""

    def __init__(self) -> None:
        self.objection: str | None = None
        self.taken: list[Control] = []
        self.held: list[Control] = []
        self.holds = False
        self.known_names = [names.PAUSE]

    def find_type(self, name: str) -> CommandType | None:
        if name not in self.known_names:
            return None
        return CommandType(
            Control,
            objection=lambda owner, _: owner.objection,
            take=lambda owner, payload: owner.taken.append(payload) or {"taken": True},
            hold=lambda owner, payload, _: owner.holds and owner.held.append(payload) is None,
        )


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(
        message_dispatch, "workflow_log", lambda event, **facts: lines.append({"event": event, **facts})
    )
    monkeypatch.setattr(workflow.unsafe, "is_replaying", lambda: False)
    monkeypatch.setattr(workflow, "patched", lambda _: True)
    monkeypatch.setattr(workflow, "current_update_info", lambda: SimpleNamespace(id="u"))
    return lines


@pytest.mark.parametrize(
    ("objection", "holds", "became"),
    [(None, False, "taken"), (None, True, "taken"), ("no", True, "held"), ("no", False, "ignored")],
)
async def test_a_signal_is_taken_held_or_ignored(
    objection: str | None, became: str, logged: list[dict[str, Any]], *, holds: bool
) -> None:
    owner = Owner()
    owner.objection, owner.holds = objection, holds
    Handlers(owner, {}).take_signal(names.PAUSE, ({"by": "ann"},))
    ignored = [line["why"] for line in logged]
    assert (len(owner.taken), len(owner.held), ignored) == (
        int(became == "taken"),
        int(became == "held"),
        ["no"] if became == "ignored" else [],
    )


async def test_what_can_not_be_read_is_not_held(logged: list[dict[str, Any]]) -> None:
    owner = Owner()
    owner.holds = True
    Handlers(owner, {}).take_signal(names.PAUSE, ({"by": 7},))
    assert (owner.held, [line["level"] for line in logged]) == ([], ["warning"])


async def test_a_listener_takes_its_signal_and_counts_it_not(logged: list[dict[str, Any]]) -> None:
    heard: list[tuple[Any, ...]] = []
    owner = Owner()
    handlers = Handlers(owner, {names.BATCH: lambda *inputs: heard.append(inputs)})
    handlers.take_signal(names.BATCH, (1, 2))
    handlers.take_signal(names.PAUSE, (NoValue("away", elsewhere=True),))
    assert heard == [(1, 2)]
    assert [lost.number for lost in handlers.lost] == [1]
    assert (owner.taken, [line["level"] for line in logged]) == ([], ["error"])


async def test_a_signal_that_no_worker_can_read_is_not_waited_for(logged: list[dict[str, Any]]) -> None:
    handlers = Handlers(Owner(), {})
    handlers.take_signal(names.PAUSE, (NoValue("it is broken"),))
    assert (handlers.lost, [line["why"] for line in logged]) == ([], ["it is broken"])


async def test_the_names_of_unknown_signals_are_shown_as_far_as_names_may_be_long(
    logged: list[dict[str, Any]],
) -> None:
    Handlers(Owner(), {}).take_signal("x" * 10_000, ())
    assert logged[0]["signal"] == "x" * MAX_NAME_CHARS
    assert logged[0]["why"] == "there is no such signal; there are pause"


def test_updates_are_checked_taken_and_counted(logged: list[dict[str, Any]]) -> None:
    owner = Owner()
    handlers = Handlers(owner, {})
    handlers.check_update(names.PAUSE, ({},))
    assert handlers.updates == 0
    assert handlers.take_update(names.PAUSE, ({"by": "ann"},)) == {"taken": True}
    assert (handlers.updates, owner.taken[0].by) == (1, "ann")
    owner.objection = "no"
    with pytest.raises(ApplicationError, match=r"no$") as refused:
        handlers.check_update(names.PAUSE, ({},))
    assert (refused.value.type, refused.value.non_retryable) == (names.REFUSED, True)
    handlers.take_signal(names.WITHDRAW, ({"update_id": "u"},))
    with pytest.raises(ApplicationError, match="withdrawn") as withdrawn:
        handlers.check_update(names.PAUSE, ({},))
    assert (withdrawn.value.type, withdrawn.value.non_retryable) == (names.WITHDRAWN, True)
    assert logged == []


def test_an_input_from_the_run_before_fails_the_task_if_it_can_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(continued_run_id=None)
    monkeypatch.setattr(workflow, "info", lambda: run)
    start, problem = message_dispatch.read_start(Start, ({"agent": "clerk"},))
    assert (start and start.agent, problem) == ("clerk", "")
    assert message_dispatch.read_start(Start, ({},)) == (None, "agent: Field required")
    with pytest.raises(ApplicationError, match=r"No start: agent: Field required$") as invalid:
        message_dispatch.require_input(Start, ({},), otherwise="No start")
    assert (invalid.value.type, invalid.value.non_retryable) == (names.INVALID_START, True)
    assert message_dispatch.require_input(Start, ({"agent": "clerk"},), otherwise="No start").agent == "clerk"
    run.continued_run_id = "r"
    assert message_dispatch.read_start(Start, ({"agent": "clerk"},))[1] == ""
    with pytest.raises(RuntimeError, match="What the run before handed over can't be read: agent: Field required"):
        message_dispatch.read_start(Start, ({},))


def test_a_signal_to_another_workflow_of_ours_is_read_or_logged(logged: list[dict[str, Any]]) -> None:
    read = message_dispatch.read_signal(Control, "tell", ({"by": "ann"},))
    assert (read and read.by, logged) == ("ann", [])
    assert message_dispatch.read_signal(Control, "tell", (7,)) is None
    assert [(line["signal"], line["level"]) for line in logged] == [("tell", "warning")]


def test_an_activity_that_was_not_to_be_eager_is_not() -> None:
    """Whoever asks for it outside of such a block."""
    begun: list[bool] = []
    below: Any = SimpleNamespace(start_activity=lambda given: begun.append(given.disable_eager_execution))
    inits: list[Any] = []
    inbound = eager_dispatch.EagerDispatch(SimpleNamespace(init=inits.append))  # type: ignore[arg-type]
    inbound.init(below)
    (outbound,) = inits
    for disabled in (True, False):
        outbound.start_activity(SimpleNamespace(disable_eager_execution=disabled))
    with suppress(ZeroDivisionError), eager_dispatch.by_the_queue():
        outbound.start_activity(SimpleNamespace(disable_eager_execution=False))
        raise ZeroDivisionError
    outbound.start_activity(SimpleNamespace(disable_eager_execution=False))
    assert begun == [True, False, True, False]
