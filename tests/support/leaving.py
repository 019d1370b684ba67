"""A page that goes away before it has sent its whole request."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message


async def leave_in_the_middle(app: ASGIApp, path: str, headers: Mapping[str, str]) -> None:
    """Posts the first bytes, and is gone. Raises what the app raises, which a server would write into its log."""
    coming: list[Message] = [
        {"type": "http.request", "body": b'{"id": "c", ', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return coming.pop(0) if len(coming) > 1 else coming[0]

    async def send(_: Message) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await app(scope, receive, send)
