"""The runs of one conversation, and their steps, followed from one run to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import replace

from temporalio.client import Client
from temporalio.service import RPCError

from everturn.history.reader import RunReading, first_step, read_steps
from everturn.history.resets import reset_of
from everturn.history.steps import RunClosed, Step
from everturn.temporal import temporal_errors


class FollowedRuns:
    """The runs of the conversation with this id."""

    def __init__(self, temporal: Client, conversation_id: str) -> None:
        self._temporal = temporal
        self._id = conversation_id

    def _explaining_errors(self) -> AbstractContextManager[None]:
        return temporal_errors.explained(self._temporal, self._id)

    async def list_run_ids(self) -> list[str]:
        """The conversation's runs, oldest first, as far back as the namespace still has them.

        Found from the latest one backwards: a run that an operator has reset still names its old successor.
        """
        with self._explaining_errors():
            described = await self._temporal.get_workflow_handle(self._id).describe()
        first_run_id = described.raw_description.workflow_execution_info.first_run_id
        run_id = described.run_id
        run_ids: list[str] = []
        with self._explaining_errors():
            while run_id:
                try:
                    started = await first_step(self._temporal, self._id, run_id)
                except RPCError as error:
                    if run_ids and temporal_errors.not_found(error):
                        break  # its retention is over: what is left begins with the run after it
                    raise
                run_ids.insert(0, run_id)
                if started is None or run_id == first_run_id:
                    break
                run_id = started.previous_run_id
        return run_ids

    async def follow(
        self, run_id: str, *, past: bool = False, reading: RunReading | None = None
    ) -> AsyncIterator[tuple[str, Step]]:
        """Each step with its run's id, from this run on through all runs that continue it, resets included. `past`:
        follows resets also of a run that had ended with an outcome. `reading`: how far the first run was read."""
        run = run_id
        while run:
            next_run = ""
            with self._explaining_errors():
                async for step in read_steps(self._temporal, self._id, run_id=run, follow=True, reading=reading):
                    if not isinstance(step, RunClosed):
                        yield run, step
                        continue
                    next_run = step.next_run_id
                    alike = 0
                    if not next_run and (past or step.outcome is None):
                        next_run, alike = await temporal_errors.outlasting(reset_of, self._temporal, self._id, run)
                    yield run, replace(step, next_run_id=next_run, alike=alike)
            run = next_run
            reading = None

    async def follow_all(self) -> AsyncIterator[tuple[str, Step]]:
        """As `follow`, from the conversation's beginning, or from the last time that it was revived."""
        run_ids = await self.list_run_ids()
        with self._explaining_errors():
            for run_id in run_ids[:-1]:
                async for step in read_steps(self._temporal, self._id, run_id=run_id):
                    yield run_id, step
        async for run_id, step in self.follow(run_ids[-1]):
            yield run_id, step

    async def follow_revivals(self, run_id: str) -> AsyncIterator[tuple[str, Step]]:
        """As `follow`; if the conversation ended and was revived, goes on with the runs after that."""
        last_run = first_run = run_id
        while first_run:
            async for last_run, step in self.follow(first_run, past=True):
                yield last_run, step
            first_run = await self._revival_of(last_run)

    async def _revival_of(self, last_run: str) -> str:
        """The first run after the revival of a conversation that ended with `last_run`; empty if there was none."""
        run = ""
        while True:
            with self._explaining_errors():
                described = await self._temporal.get_workflow_handle(self._id, run_id=run or None).describe()
                first_run_id = described.raw_description.workflow_execution_info.first_run_id
                started = (
                    await first_step(self._temporal, self._id, first_run_id) if last_run != described.run_id else None
                )
            origin = started.start.carry.origin if started and started.start.carry else None
            if origin is None or origin.conversation_id:
                return ""  # it is the latest; or what came later was started anew, or forked, under this id
            if origin.run_id == last_run:
                return first_run_id
            run = origin.run_id
