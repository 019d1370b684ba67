"""What people send to a conversation: one table of names, each a signal and an update with the same payload.

An update is validated and answers, or is refused with a reason. A signal that can't be taken is logged and changes
nothing; one that only comes too early may be held until it can. Neither can fail a workflow task, whatever it carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.logs import workflow_log
from everturn.payloads import Withdrawal
from everturn.records import Record
from everturn.sizes import MAX_NAME_CHARS
from everturn.storage.data_converter import NoValue
from everturn.validation.explaining import explain

MAX_WITHDRAWN = 1000
"""How many ids of withdrawn updates are kept. Such an update arrives in the next workflow task, or never."""

MOST_LOGGED = 20
"""Signals of one workflow task that are passed over and have a log line each: thousands can come at once, and Temporal
gives the task two seconds."""

P = TypeVar("P", bound=Record)

DESCRIPTIONS = {
    names.MESSAGE: 'Sends a message: {"text": "..."} or {"parts": [...]}.',
    names.APPROVE: 'Approves a waiting call, which then runs: {"call_id": "..."}. "*" is all, also what may have run.',
    names.DENY: 'Denies a waiting call, which then does not run: {"call_id": "...", "reason": "..."}.',
    names.ANSWER: 'Gives a call\'s result instead of the tool: {"call_id": "...", "content": ...}.',
    names.PAUSE: "Pauses the conversation before its next turn.",
    names.RESUME: "Continues a paused or stalled conversation.",
    names.CANCEL_TURN: "Cancels the running turn. The conversation goes on.",
    names.CLOSE: "Ends the conversation once its running calls have finished.",
    names.SET_POLICY: 'Replaces the rules that decide on calls: {"rules": [{"tool": "...", "then": "approve"}]}.',
    names.INHERIT_POLICY: "The rules of the conversation that asked for this one, as they are now.",
    names.WITHDRAW: "Withdraws an update that no worker has taken yet.",
    names.BATCH: "What became of a turn that waits in a batch, from the batch's collector.",
}
"""The descriptions that the Web UI shows for each signal."""

Later = Callable[[str], None]
"""Takes a signal that was held; if it is given a reason, or finds one, logs why the signal can't be taken."""


class LostSignal(NamedTuple):
    number: int
    """Among the run's signals, from 1 on."""
    name: str
    problem: str
    """Why it can't be read; empty in a replay."""


@dataclass(frozen=True, slots=True)
class CommandType:
    """What a name means. The functions get the owner of the conversation's commands, and the payload: conversations
    share them."""

    payload_type: type[Any]
    objection: Callable[[Any, Any], str | None]
    """Why the payload can't be taken, or None."""
    take: Callable[[Any, Any], dict[str, Any]]
    hold: Callable[[Any, Any, Later], bool] | None = None
    """Is asked about a signal that can't be taken now: True if it keeps it for later."""


class CommandOwner(Protocol):
    def find_type(self, name: str) -> CommandType | None: ...
    @property
    def known_names(self) -> list[str]: ...


class Handlers:
    """Takes the signals and updates of a conversation, and knows those that were withdrawn."""

    def __init__(self, owner: CommandOwner, listeners: Mapping[str, Callable[..., None]]) -> None:
        """`listeners` take the signals, by name, that are no commands of a person's: they have no updates, and are not
        counted."""
        self.updates = 0
        """How many updates were taken in this run."""
        self.lost: list[LostSignal] = []
        """Signals that can't be read here, though another worker may be able to; the conversation waits for a
        person."""
        self._owner = owner
        self._signals = 0
        self._ignored = 0
        """How many signals of this workflow task were ignored."""
        self._withdrawn: dict[str, None] = {}
        self._listeners: dict[str, Callable[..., None]] = {names.WITHDRAW: self._withdraw_update, **listeners}

    def check_update(self, name: str, inputs: tuple[Any, ...]) -> None:
        """Raises ApplicationError if it can't be taken."""
        update = workflow.current_update_info()
        if update and update.id in self._withdrawn:
            raise ApplicationError("It was withdrawn.", type=names.WITHDRAWN, non_retryable=True)
        _, problem = self._check_input(self._type_of(name), inputs)
        if problem:
            raise ApplicationError(problem, type=names.REFUSED, non_retryable=True)

    def take_update(self, name: str, inputs: tuple[Any, ...]) -> dict[str, Any]:
        self.updates += 1
        command = self._type_of(name)
        return command.take(self._owner, read_input(command.payload_type, inputs))

    def _type_of(self, name: str) -> CommandType:
        command = self._owner.find_type(name)
        assert command is not None, name  # the workflow's class has no other updates
        return command

    def take_signal(self, name: str, inputs: tuple[Any, ...]) -> None:
        if listener := self._listeners.get(name):
            listener(*inputs)
        elif command := self._owner.find_type(name):
            self._take_command(name, command, inputs)
        else:
            known = ", ".join(self._owner.known_names)
            self._ignore_signal(name[:MAX_NAME_CHARS], f"there is no such signal; there are {known}")

    def _take_command(self, name: str, command: CommandType, inputs: tuple[Any, ...]) -> None:
        if lost := self._find_lost(name, inputs):
            self.lost.append(lost)
            workflow_log("signal.unreadable", level="error", signal=name, why=lost.problem)
            return
        payload, problem = self._check_input(command, inputs)

        def take_or_ignore(problem: str | None) -> None:
            if payload is None or problem:
                self._ignore_signal(name, problem)
            else:
                command.take(self._owner, payload)

        def take_late(problem: str) -> None:
            if payload is not None:
                take_or_ignore(problem or command.objection(self._owner, payload))

        hold = command.hold
        if payload is None or problem is None or hold is None or not hold(self._owner, payload, take_late):
            take_or_ignore(problem)

    def _check_input(self, command: CommandType, inputs: tuple[Any, ...]) -> tuple[Any, str | None]:
        try:
            payload = read_input(command.payload_type, inputs)
        except ValueError as error:
            return None, explain(error)
        return payload, command.objection(self._owner, payload)

    def _find_lost(self, name: str, inputs: tuple[Any, ...]) -> LostSignal | None:
        """The signal, if this worker can't get at its input; None if it can, or if no worker could. Each replay has the
        same answer, even on a worker that can read it."""
        self._signals += 1
        marker = f"unreadable signal {self._signals}"
        replaying = workflow.unsafe.is_replaying()
        if replaying and workflow.patched(marker):
            return LostSignal(self._signals, name, "")
        problem = next((value.why for value in inputs if isinstance(value, NoValue) and value.elsewhere), "")
        if not problem:
            return None
        if replaying:
            raise RuntimeError(f"A signal was read before, but this worker can't read it: {problem}")
        workflow.patched(marker)
        return LostSignal(self._signals, name, problem)

    def _ignore_signal(self, name: str, problem: str | None) -> None:
        self._ignored += 1
        if self._ignored == 1:
            asyncio.get_running_loop().call_soon(self._count_ignored)  # after the other signals of this task
        if self._ignored <= MOST_LOGGED:
            workflow_log("signal.ignored", level="warning", signal=name, why=problem)

    def _count_ignored(self) -> None:
        more = self._ignored - MOST_LOGGED
        self._ignored = 0
        if more > 0:
            workflow_log("signal.ignored", level="warning", more=more)

    def _withdraw_update(self, *inputs: Any) -> None:
        try:
            withdrawal = read_input(Withdrawal, inputs)
        except ValueError as error:
            self._ignore_signal(names.WITHDRAW, explain(error))
            return
        self._withdrawn[withdrawal.update_id] = None
        if len(self._withdrawn) > MAX_WITHDRAWN:
            self._withdrawn.pop(next(iter(self._withdrawn)))


def signal_handler(name: str) -> Callable[..., None]:
    """The handler of a signal, as a part of the workflow's class. For handlers that are set when a run begins, the SDK
    keeps the signals of its first task name by name, and so loses the order in which they were sent."""

    @workflow.signal(name=name, description=DESCRIPTIONS[name])
    def handler(self: Any, *inputs: Any) -> None:
        self.take_signal(name, inputs)

    return handler


def update_handler(name: str) -> Any:
    """The handler of an update, as a part of the workflow's class: handlers that are set when a run begins take 17 KB
    of memory for each conversation."""

    @workflow.update(name=name, description=DESCRIPTIONS[name])
    def handler(self: Any, *inputs: Any) -> dict[str, Any]:
        return self.take_update(name, inputs)  # type: ignore[no-any-return]

    @handler.validator
    def check(self: Any, *inputs: Any) -> None:
        self.check_update(name, inputs)

    return handler


@workflow.signal(dynamic=True, description="Logs a signal of another name, and does nothing.")
def unknown_signal(self, name: str, _: Sequence[RawValue]) -> None:  # type: ignore[no-untyped-def]
    """Without it, a misspelt signal would wait in the SDK's memory, and nobody would know. It runs no command, so that
    histories from before it replay."""
    self.take_signal(name, ())


def read_start(payload_type: type[P], inputs: tuple[Any, ...]) -> tuple[P | None, str]:
    """A run's input, or None and what is wrong with it. If the run before handed it over, the workflow task fails
    instead, until a worker comes that can read it."""
    try:
        return read_input(payload_type, inputs), ""
    except ValueError as error:
        problem = explain(error)
        if workflow.info().continued_run_id:
            raise RuntimeError(f"What the run before handed over can't be read: {problem}") from error
        return None, problem


def require_input(payload_type: type[P], inputs: tuple[Any, ...], *, otherwise: str) -> P:
    """As `read_start`; raises ApplicationError if it can't be read: `otherwise`, and why."""
    payload, problem = read_start(payload_type, inputs)
    if payload is None:
        raise invalid_start(f"{otherwise}: {problem}")
    return payload


def invalid_start(problem: str) -> ApplicationError:
    """Ends a run that was begun with what makes no sense."""
    return ApplicationError(problem, type=names.INVALID_START, non_retryable=True)


def read_signal(payload_type: type[P], name: str, inputs: tuple[Any, ...]) -> P | None:
    """The input of the signal `name`; None, and a log line, if it can't be read."""
    try:
        return read_input(payload_type, inputs)
    except ValueError as error:
        workflow_log("signal.ignored", level="warning", signal=name, why=explain(error))
        return None


def read_input(payload_type: type[P], inputs: tuple[Any, ...]) -> P:
    """The one input as its record; raises ValueError with a sentence that says what is wrong with it."""
    if len(inputs) > 1:
        raise ValueError(f"it takes one input, got {len(inputs)}")
    payload: Any = {}
    if inputs and inputs[0] is not None:
        payload = inputs[0]
    if isinstance(payload, NoValue):
        raise ValueError(payload.why)
    if not isinstance(payload, dict):
        raise ValueError(f"its input is a JSON object, got {payload!r:.100}")
    return payload_type.model_validate(payload)
