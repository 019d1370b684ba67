"""One reply, from a single answer or from a response in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everturn.providers.base import OnDelta, Request, warn_unsupported
from everturn.records import Reply
from everturn.system.gc_pauses import paused

if TYPE_CHECKING:
    from everturn.providers.background import KeptId
    from everturn.providers.http import OnStart


def prepare() -> None:
    """Imports what the first question needs, which takes a tenth of a second: httpx and the protocols."""
    with paused():
        import everturn.providers.background  # noqa: F401


async def ask(
    request: Request, *, on_delta: OnDelta | None = None, on_start: OnStart | None = None, kept: KeptId | None = None
) -> Reply:
    """As `http.ask`. `kept`: holds the id of a response in the background for the next try. Without `kept`, such a
    response is cancelled if nobody waits for it any more."""
    prepare()
    from everturn.providers import background, http
    from everturn.providers.openai_responses.request import in_background

    if in_background(request):
        return await background.ask(request, kept=kept, on_delta=on_delta, on_start=on_start)
    if request.settings.background:
        warn_unsupported(request.model, "background=True", "The turn waits for the whole answer instead.")
    return await http.ask(request, on_delta=on_delta, on_start=on_start)
