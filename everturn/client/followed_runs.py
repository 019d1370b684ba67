"""The runs of one conversation, and their steps, followed from one run to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import replace

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn.history.reader import Reading, first_step, read_steps
from everturn.history.resets import reset_of
from everturn.history.steps import RunClosed, Step
from everturn.temporal import temporal_errors


class Runs:
    """The runs of the conversation with this id."""

    def __init__(self, temporal: Client, conversation_id: str) -> None:
        self._temporal = temporal
        self._id = conversation_id

    def _explained(self) -> AbstractContextManager[None]:
        return temporal_errors.explained(self._temporal, self._id)

    async def _all(self) -> list[str]:
        """The conversation's runs, oldest first, as far back as the namespace still has them.

        Found from the latest one backwards: a run that an operator has reset still names its old successor.
        """
        with self._explained():
            described = await self._temporal.get_workflow_handle(self._id).describe()
        run, first = described.run_id, described.raw_description.workflow_execution_info.first_run_id
        runs: list[str] = []
        with self._explained():
            while run:
                try:
                    started = await first_step(self._temporal, self._id, run)
                except RPCError as error:
                    if runs and error.status is RPCStatusCode.NOT_FOUND:
                        break  # its retention is over: what is left begins with the run after it
                    raise
                runs.insert(0, run)
                run = started.previous_run_id if started and run != first else ""
        return runs

    async def follow(
        self, run_id: str, *, past: bool = False, reading: Reading | None = None
    ) -> AsyncIterator[tuple[str, Step]]:
        """Each step with its run's id, from this run on through all runs that continue it, resets included. `past`:
        follows resets also of a run that had ended with an outcome. `reading`: how far the first run was read."""
        run = run_id
        while run:
            next_run = ""
            with self._explained():
                async for step in read_steps(self._temporal, self._id, run_id=run, follow=True, reading=reading):
                    if not isinstance(step, RunClosed):
                        yield run, step
                        continue
                    next_run, alike = step.next_run_id, 0
                    if not next_run and (past or step.outcome is None):
                        next_run, alike = await temporal_errors.outlasting(reset_of, self._temporal, self._id, run)
                    yield run, replace(step, next_run_id=next_run, alike=alike)
            run, reading = next_run, None

    async def follow_all(self) -> AsyncIterator[tuple[str, Step]]:
        """As `follow`, from the conversation's beginning, or from the last time that it was revived."""
        runs = await self._all()
        with self._explained():
            for run in runs[:-1]:
                async for step in read_steps(self._temporal, self._id, run_id=run):
                    yield run, step
        async for run, step in self.follow(runs[-1]):
            yield run, step

    async def follow_revivals(self, run_id: str) -> AsyncIterator[tuple[str, Step]]:
        """As `follow`; if the conversation ended and was revived, goes on with the runs after that."""
        run, first = run_id, run_id
        while first:
            async for run, step in self.follow(first, past=True):
                yield run, step
            first = await self._revival_of(run)

    async def _revival_of(self, last_run: str) -> str:
        """The first run after the revival of a conversation that ended with `last_run`; empty if there was none."""
        run = ""
        while True:
            with self._explained():
                described = await self._temporal.get_workflow_handle(self._id, run_id=run or None).describe()
                first = described.raw_description.workflow_execution_info.first_run_id
                started = await first_step(self._temporal, self._id, first) if last_run != described.run_id else None
            origin = started.start.carry.origin if started and started.start.carry else None
            if origin is None or origin.conversation_id:
                return ""  # it is the latest; or what came later was started anew, or forked, under this id
            if origin.run_id == last_run:
                return first
            run = origin.run_id
