"""The timeout of the workflow tasks of all our workflows: how long Temporal waits for a worker that was killed in
one."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

TASK_TIMEOUT: Final = timedelta(seconds=5)
"""Temporal's own default is 10 s."""
