"""The codes of errors: those that are made on this side of the connection, told apart from a server's own.

JSON-RPC leaves -32000 to -32099 to servers for errors of their own. The SDK (2.3) says by -32000 that the connection is
closed, and by -32700 that it can't read an answer; our transports have codes of their own, too. What comes from the
server with such a code gets another one, before the SDK sees it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp import types

NOT_SENT: Final = -32901
"""The code of an error of our own: nothing of the request reached the server."""
LOST: Final = -32902
"""The same: the request was sent, and no answer came."""
HTTP_STATUS: Final = -32903
"""The same: the server, or what is before it, refused with an HTTP status."""
SESSION_GONE: Final = -32904
"""The same: the server has forgotten the session, and so has run nothing."""
TOO_MUCH: Final = -32905
"""The same: the answer to a request came, but it is more than we take."""
UNREADABLE: Final = -32906
"""The same: an answer came that is not MCP."""
SERVERS_OWN: Final = -32907
"""In the place of one of these codes, or of the SDK's, that a server sent: `data` has its `code`."""

CONNECTION_CLOSED: Final = -32000
PARSE_ERROR: Final = -32700
"""The SDK's, as it gives them to requests of ours."""

RESERVED: Final = frozenset(
    {NOT_SENT, LOST, HTTP_STATUS, SESSION_GONE, TOO_MUCH, UNREADABLE, SERVERS_OWN, CONNECTION_CLOSED, PARSE_ERROR}
)


def status_of(error: Any) -> int:
    """The HTTP status of an MCPError with the code HTTP_STATUS."""
    return int((error.data or {}).get("status", 0))


def told_apart(error: types.ErrorData) -> types.ErrorData:
    """An error that a server sent, with a code that is not of this side."""
    if error.code not in RESERVED:
        return error
    return error.model_copy(update={"code": SERVERS_OWN, "data": {"code": error.code, "data": error.data}})


def text_told_apart(text: bytes, *, request_id: Any = None) -> bytes:
    """The same in a message as it came, if it is an error. `request_id`: of the request that an error without an id
    answers."""
    if b'"error"' not in text:
        return text
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(message, dict):
        return text
    changed = message_told_apart(message)
    if request_id is not None and is_error_without_id(message):
        changed = {**changed, "id": request_id}
    return text if changed is message else json.dumps(changed).encode()


def is_error_without_id(answer: dict[str, Any]) -> bool:
    """By JSON-RPC, the server could not read the request, and so has run nothing."""
    return isinstance(answer.get("error"), dict) and answer.get("id") is None and "method" not in answer


def message_told_apart(message: dict[str, Any]) -> dict[str, Any]:
    """The same in a message that was read; that message itself if nothing is to be changed."""
    error = message.get("error")
    if not isinstance(error, dict):
        return message
    code = error.get("code")
    if not isinstance(code, int | float) or code not in RESERVED:
        return message
    own = {"code": SERVERS_OWN, "data": {"code": code, "data": error.get("data")}}
    return {**message, "error": {**error, **own}}


def events_told_apart(events: bytes, *, request_id: Any = None) -> bytes:
    """The same in whole events of a stream (text/event-stream)."""
    if b'"error"' not in events:
        return events
    return b"".join(_event_told_apart(event, request_id) for event in _split_events(events))


def _split_events(events: bytes) -> list[bytes]:
    """Each with the empty line that ends it."""
    whole_events: list[bytes] = []
    event = b""
    for line in events.splitlines(keepends=True):
        event += line
        if not line.strip(b"\r\n"):
            whole_events.append(event)
            event = b""
    return [*whole_events, event]


def _event_told_apart(event: bytes, request_id: Any) -> bytes:
    lines = event.splitlines()
    data = b"\n".join(_line_value(line) for line in lines if line == b"data" or line.startswith(b"data:"))
    if (changed := text_told_apart(data, request_id=request_id)) == data:
        return event
    others = [line for line in lines if line and line != b"data" and not line.startswith(b"data:")]
    return b"\n".join([*others, b"data: " + changed, b"", b""])


def _line_value(line: bytes) -> bytes:
    return line.removeprefix(b"data").removeprefix(b":").removeprefix(b" ")
