"""Which conversation this is, among all that had or will have its id: a part of its calls' idempotency keys."""

from __future__ import annotations

from temporalio import workflow


class Chain:
    """The runs that continue one another have one id: the first run's.

    A reset goes back and does again what was done behind that point. From there on, the id is that of the new run, so
    that a call which is made again has a key of its own. What was scheduled before that point was written down with the
    id that it had then.
    """

    def __init__(self, carried: str, *, reset_run: str = "") -> None:
        info = workflow.info()
        # A run that a reset made begins with the event of the run that was left, which holds that one's id.
        reset = info.original_execution_run_id not in ("", info.run_id)
        self.reset_run = info.run_id if reset else reset_run
        """The run that the last reset made, this one or one before; empty if there was none."""
        self.id = info.run_id if reset else carried or info.original_execution_run_id
