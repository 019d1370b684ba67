"""Which conversation this is, among all that had or will have its id: a part of its calls' idempotency keys."""

from __future__ import annotations

from temporalio import workflow


class Chain:
    """The runs that continue one another have one id: the first run's.

    A reset goes back and does again what was done behind that point. From there on, the id is that of the new run, so
    that a call which is made again has a key of its own.
    """

    def __init__(self, carried: str) -> None:
        info = workflow.info()
        self.id = carried or info.original_execution_run_id
        self._run_id = info.run_id
        # Temporal gives a run that a reset made another seed, in the workflow task that it goes on with.
        workflow.register_random_seed_callback(self._reset)

    def _reset(self, _: int) -> None:
        self.id = self._run_id
