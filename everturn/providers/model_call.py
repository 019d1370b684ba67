"""One reply, from a single answer or from a response in the background."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from everturn.errors import ProviderError
from everturn.logs import get_logger
from everturn.providers.base import OnDelta, Request, warn_unsupported
from everturn.providers.bound_thoughts import BoundRequest, marked_reply, without_stale_thoughts, without_thoughts
from everturn.providers.catalog import runs_in_background
from everturn.providers.refused_grammars import loosened, without_refused
from everturn.records import Reply
from everturn.system.gc_pauses import paused

if TYPE_CHECKING:
    from everturn.providers.background import KeptId
    from everturn.providers.http import OnStart

_log = get_logger("everturn.turn")


def import_protocols() -> None:
    """Imports what the first question needs, which takes a tenth of a second: httpx, and what speaks it. A protocol is
    imported with the first question in it."""
    with paused():
        import everturn.providers.http  # noqa: F401


async def ask(
    request: Request, *, on_delta: OnDelta | None = None, on_start: OnStart | None = None, kept: KeptId | None = None
) -> Reply:
    """As `http.ask`, but a request that is refused for the thoughts in it is sent again without them; one that is
    refused for a schema, without a grammar of that.

    `kept`: holds the id of a response in the background for the next try. Without `kept`, such a response is cancelled
    if nobody waits for it any more."""
    import_protocols()
    from everturn.providers import http
    from everturn.providers.tool_schemas import fit_schemas, undo_fit_schemas

    async def send_once(request: Request) -> Reply:
        if runs_in_background(request):
            from everturn.providers import background

            return await background.ask_in_background(request, kept=kept, on_delta=on_delta, on_start=on_start)
        return await http.ask(request, on_delta=on_delta, on_start=on_start)

    if request.settings.background and not runs_in_background(request):
        warn_unsupported(request.model, "background=True", "The turn waits for the whole answer instead.")
    sent = without_stale_thoughts(loosened(fit_schemas(request)))
    while True:
        try:
            reply = await send_once(sent.request)
            return undo_fit_schemas(marked_reply(reply, sent), request)
        except ProviderError as error:
            again = _to_send_again(sent, error)
            if again is None:
                raise
            sent = again


def _to_send_again(sent: BoundRequest, error: ProviderError) -> BoundRequest | None:
    """What is to be sent after a refusal: the request without what was refused; None if it had nothing of that."""
    if error.refuses_thoughts and (again := without_thoughts(sent.request)) is not None:
        _log.info("thoughts.left_out", model=sent.request.model.name, thoughts=again.left_out)
        return again
    if error.refuses_grammars and (looser := without_refused(sent.request)) is not None:
        _log.info("grammar.left_out", model=sent.request.model.name, strict_tools=looser.grammars)
        return replace(sent, request=looser)
    return None
