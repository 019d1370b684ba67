"""What happens when a tool raises Retry, or an exception of its `retry=`: tried again while its patience lasts."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn.activities import patience, retry_delays
from everturn.errors import Retry
from everturn.logs import get_logger
from everturn.sizes import MAX_CAUSE_BYTES
from everturn.text.shortening import shortened
from everturn.tools import raised
from everturn.tools.results import safe_error_text
from everturn.tools.tool import Tool

_log = get_logger("everturn.tool")


async def retry_or_text(tool: Tool, error: Exception) -> str:
    """What the model is told when there are no more tries. Until then, raises the error that makes Temporal retry."""
    text = await safe_error_text(error, whole=True)
    attempt = activity.info().attempt
    # Only the model is told all of it: a failure that is too large for a message would count as a lost worker.
    short_text = shortened(text, max_bytes=MAX_CAUSE_BYTES)
    if tool.effect == "once" and not tool.attaches:
        _log.error("retry.refused", tool=tool.name, effect=tool.effect, error=short_text)
        return f"{text} It is not tried again: {tool.name} has effect='once', so it runs only once."
    after = raised.longest_wait(error)
    seconds = None if after is None else after.total_seconds()
    delay = retry_delays.retry_delay(seconds, attempt=attempt, longest=tool.patience)
    if not patience.spend(delay, tool.patience):
        return f"{text} It was tried {attempt} {'time' if attempt == 1 else 'times'}, for as long as {tool.patience}."
    _log.info("tool.retried", tool=tool.name, after_seconds=round(delay.total_seconds(), 3), error=short_text)
    raise ApplicationError(
        short_text,
        type=Retry.__name__,
        next_retry_delay=max(delay, timedelta(milliseconds=1)),
        category=ApplicationErrorCategory.BENIGN,
    ) from None  # what raised it is reported, too, however long its words are
