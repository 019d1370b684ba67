"""How long Temporal waits for a workflow task of a worker that was killed: of all workflows of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

TASK_TIMEOUT: Final = timedelta(seconds=5)
"""Temporal's own default is 10 s."""
