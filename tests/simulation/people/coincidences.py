"""What comes at the worst moment: in the same workflow task as a reply, a result, a failure or a timer, and before a
run has done anything. By chance alone that hardly happens, and it is where most bugs of before were."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payloads
from temporalio.api.history.v1 import HistoryEvent

from everturn.storage.data_converter import data_converter
from tests.simulation.temporal.runs import Run

if TYPE_CHECKING:
    from tests.simulation.agents.model import SimulatedModel
    from tests.simulation.people.people import Person
    from tests.simulation.temporal.server import Server

BROUGHT = ("activity_task_completed", "activity_task_failed", "activity_task_timed_out", "timer_fired")

WHAT = (
    *("cancel_turn",) * 4,
    *("decide",) * 6,
    *("cancel and decide",) * 2,
    *("two decide",) * 3,
    *("resume",) * 2,
    *("message",) * 2,
    *("close", "close twice", "close and say", "cancel", "cancel both", "pause", "pause and close"),
)


class Coincidences:
    """Sees to it that signals come together with what the server brings: so `often`, of all that it brings."""

    def __init__(
        self,
        server: Server,
        people: Person,
        model: SimulatedModel,
        chance: random.Random,
        often: float,
        *,
        what: Sequence[str] = (),
        as_runs_begin: bool = False,
    ) -> None:
        self._server = server
        self._people = people
        self._model = model
        self._chance = chance
        self._often = often
        self._what = what or WHAT
        self._as_runs_begin = as_runs_begin
        self._brings = server.arrive_with
        self._begins = server.begin
        server.arrive_with = self._brought  # type: ignore[method-assign]
        server.begin = self._begun  # type: ignore[method-assign]

    def _brought(self, run: Run, name: str, write: Callable[[], HistoryEvent]) -> None:
        self._brings(run, name, write)
        if name.split(maxsplit=1)[0] in BROUGHT and not self._as_runs_begin:
            self._perhaps(run)

    def _begun(self, *args: Any, **values: Any) -> Run:
        run = self._begins(*args, **values)
        if values.get("continues"):
            self._perhaps(run)
        return run

    def _perhaps(self, run: Run) -> None:
        if run.closed or run.parent or self._chance.random() >= self._often:
            return
        told = self._people.of(run.workflow_id)
        match self._chance.choice(self._what):
            case "decide":
                self._decide(run)
            case "cancel and decide":
                self._signal(run, "cancel_turn", {})
                self._decide(run)
            case "two decide":
                call_id = self._some_call()
                for by in self._chance.choice((("stranger", "me"), ("me", "stranger"), ("stranger", "stranger"))):
                    self._decide(run, call_id, by=by)
            case "message":
                self._say(run)
            case "close":
                told.ended = True
                self._signal(run, "close", {})
            case "close twice":
                told.ended = True
                self._signal(run, "close", {})
                self._signal(run, "close", {})
            case "close and say":
                told.ended = True
                self._signal(run, "close", {})
                self._say(run)
            case "close and say twice":
                told.ended = True
                self._say(run)
                self._signal(run, "close", {})
                self._say(run)
                self._say(run)
            case "two words":
                self._two_words(run)
            case "pause and close":
                told.ended = True
                self._signal(run, "pause", {})
                self._signal(run, "close", {})
            case "cancel":
                told.ended = True
                self._server.request_cancel(run)
            case "cancel both":
                told.ended = True
                self._signal(run, "cancel_turn", {})
                self._server.request_cancel(run)
            case name:
                self._signal(run, name, {})

    def _decide(self, run: Run, call_id: str = "", *, by: str = "me") -> None:
        call_id = call_id or self._some_call()
        match self._chance.choice(("approve", "approve", "deny", "answer", "edit", "misedit")):
            case "deny":
                self._signal(run, "deny", {"call_id": call_id, "by": by})
            case "answer":
                self._signal(run, "answer", {"call_id": call_id, "by": by, "content": f"A{call_id}"})
            case "misedit":
                self._signal(run, "approve", {"call_id": call_id, "by": by, "arguments": {"x": [1]}})
            case _:
                self._signal(run, "approve", {"call_id": call_id, "by": by})

    def _two_words(self, run: Run) -> None:
        """Different ones on one call, by the same person."""
        call_id = self._some_call()
        for name in self._chance.sample(("approve", "deny", "approve"), 2):
            self._signal(run, name, {"call_id": call_id, "by": "me"})

    def _some_call(self) -> str:
        """Of one of the last replies, the one that comes in now included."""
        number = self._model._count - self._chance.choice((0, 0, 0, 1))
        return self._chance.choice((f"c{number}-0", f"c{number}-0", f"c{number}-1"))

    def _say(self, run: Run) -> None:
        told = self._people.of(run.workflow_id)
        number = len(told.said) + len(told.maybe)
        told.said[f"m{number}"] = text = f"message {number} of {run.workflow_id}"
        self._signal(run, "message", {"text": text, "message_id": f"m{number}"})

    def _signal(self, run: Run, name: str, payload: Any) -> None:
        self._server.count("coincidences")
        values = data_converter.payload_converter.to_payloads([payload])
        self._brings(
            run,
            "workflow_execution_signaled",
            lambda: run.write(
                "workflow_execution_signaled", signal_name=name, input=Payloads(payloads=values), identity="somebody"
            ),
        )
