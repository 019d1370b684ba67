"""A batch can be seen only with the key that it was sent with. Workers of one task queue may have different keys: who
lacks it hands the activity back, so that another one takes it."""

from __future__ import annotations

from typing import Final

from temporalio.exceptions import ApplicationError

from everturn.activities import agent_lookup
from everturn.errors import KeyMissing, ProviderError
from everturn.sizes import MAX_ERROR_BYTES
from everturn.text.shortening import shortened

KEY_DELAY_SECONDS: Final = 60.0
"""The longest from one try to the next, while no worker has the key."""
KEY_CURE: Final = "Start a worker that has it. Then it goes on by itself. To ask the model anew: cancel the turn."


def is_of_another_key(error: ProviderError) -> bool:
    """The batch was sent with a key that this worker has not: providers don't find it then, or refuse."""
    return isinstance(error, KeyMissing) or error.status in (401, 403, 404)


def without_key(batch_id: str, error: ProviderError, hand_back_for: float | None) -> ApplicationError:
    """The error that hands the activity back. `batch_id`: empty if it is not sent yet."""
    cause = f"No worker has the key for it; the one that was asked last says: {error.message}"
    if not isinstance(error, KeyMissing):
        cause = f"No worker has the key that batch {batch_id} was sent with: {error.message}"
    cause = shortened(cause, max_bytes=MAX_ERROR_BYTES)
    return agent_lookup.handed_back(
        cause, KEY_CURE, hand_back_for, longest_delay=KEY_DELAY_SECONDS, lacks="key", batch=batch_id
    )
