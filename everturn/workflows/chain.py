"""The chain id: which conversation this is, among all that had or will have its id. Idempotency keys hold it."""

from __future__ import annotations

from temporalio import workflow


class RunChain:
    """The runs that continue one another share one id: that of the first run.

    A reset goes back to an earlier point, and what came after it is done again. From that point on, the id is that of
    the new run, so that a call which is made again gets a new key. Calls that were scheduled before it keep theirs.
    """

    def __init__(self, carried: str, *, reset_run: str = "") -> None:
        info = workflow.info()
        # The first event of a run that a reset made is a copy of the old run's, and holds that one's id.
        reset = info.original_execution_run_id not in ("", info.run_id)
        self.reset_run = info.run_id if reset else reset_run
        """The run that the last reset made, this one or one before; empty if there was none."""
        self.id = info.run_id if reset else carried or info.original_execution_run_id
