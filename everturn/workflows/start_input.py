"""What a run is started with. A first run that can't read it fails; one that continues another waits for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from temporalio import workflow

from everturn.calls.unreadable_inputs import UNREADABLE_START, start_problem
from everturn.carryover import REMEMBERED_IDS
from everturn.payloads import Start
from everturn.sizes import MARGIN_BYTES, MAX_PAYLOAD_BYTES, size_of
from everturn.state import State
from everturn.storage.data_converter import NoValue
from everturn.truncation import cut_messages
from everturn.user_parts import kinds_problem
from everturn.validation.explaining import explain
from everturn.workflows import message_dispatch


@dataclass(frozen=True)
class StartInput:
    start: Start
    problem: str = ""
    """What is wrong with it, in words; empty if nothing is."""
    handed: dict[str, Any] = field(default_factory=dict)
    """The input as it came from the run before, if it can't be read. Other code may be able to."""

    def handed_on(self, state: State) -> dict[str, Any]:
        """The same, with what people have sent meanwhile."""
        if state.inbox.late:  # what was said while it closed takes it up again
            state.take_up_again(workflow.time())
        carry = self.handed["carry"]
        carry_changes: dict[str, Any] = {}
        if state.paused:
            carry_changes["paused"] = True
        if state.policy:
            carry_changes["policy"] = [rule.model_dump(mode="json") for rule in state.policy]
        if ids := (*carry.get("message_ids", ()), *state.message_ids):
            carry_changes["message_ids"] = ids[-REMEMBERED_IDS:]
        kept = {**self.handed, "carry": {**carry, **carry_changes}}
        messages = cut_messages(tuple(state.inbox.messages), max(0, MAX_PAYLOAD_BYTES - MARGIN_BYTES - size_of(kept)))
        inbox = [*carry.get("inbox", ()), *(message.model_dump(mode="json") for message in messages)]
        return {**kept, "carry": {**kept["carry"], "inbox": inbox}}


def read_start(inputs: tuple[Any, ...]) -> StartInput:
    given = next(iter(inputs), None)
    if isinstance(given, NoValue) and given.elsewhere:
        # This fails the workflow task, which a worker with the right storage takes over.
        raise RuntimeError(f"This conversation's input can't be fetched: {given.why}")
    start, cause = _try_to_read(inputs)
    handed: dict[str, Any] = {}
    if isinstance(given, dict) and isinstance(given.get("carry"), dict):
        handed = given
    if handed and _is_unreadable(cause):
        return StartInput(Start.model_construct(agent=""), start_problem(cause), handed)
    if start:
        return StartInput(start)
    its_input = 'Its input is {"agent": "NAME", "message": "…"}; see docs/reference/wire.md.'
    return StartInput(Start.model_construct(agent=""), f"This conversation can't start: {cause}. {its_input}")


def _is_unreadable(cause: str) -> bool:
    """Whether what the run before handed over can't be read; in a replay, whether it could not when it came. `cause`:
    why this worker can't read it; empty if it can."""
    if not workflow.unsafe.is_replaying():
        if cause:
            workflow.patched(UNREADABLE_START)
        return bool(cause)
    if workflow.patched(UNREADABLE_START):
        return True
    if cause:
        raise RuntimeError(
            f"Another version of the code has read the carry-over of the earlier run, but this one can't: {cause}"
        )
    return False


def _try_to_read(inputs: tuple[Any, ...]) -> tuple[Start | None, str]:
    """What the run is started with, or why it can't be."""
    try:
        start = message_dispatch.read_input(Start, inputs)
    except ValueError as error:
        return None, explain(error)
    if not start.message and start.keep_open is None and not start.carry:
        return None, "message: it is required, unless the conversation is kept open"
    # A fork or a revival has checked it: there, the message may be one of the transcript's.
    if not start.carry and (problem := kinds_problem(start.message)):
        return None, f"message: {problem.removesuffix('.')}"
    return start, ""
