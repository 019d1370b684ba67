"""Who asks: what your `authorize` function says of a request, and which conversation that opens."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from starlette.requests import Request

CHAT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What a page calls its chat. Without a colon, so that it can't name a part of a conversation's id that is not its."""

MAX_NAME_CHARS: Final = 200


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """Who asks, as your application knows them."""

    name: str
    """The person's own, such as a user id. It is part of the conversation's id, so that nobody else's chats can be
    opened; and it is who decided, in approvals."""
    tenant: str | None = None
    """As in `Client.start`, for a conversation that begins. It is part of the conversation's id, too: two tenants may
    each have an Ann."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """As in `Client.start`, for a conversation that begins: what its tools have to know of the person."""
    decides: bool = True
    """Whether they may approve and deny calls here. If not, the page shows that a call waits, and goes on once somebody
    else has decided."""
    conversation: str = ""
    """The conversation to open, whatever the page calls its chat: for one that several people share, or that was
    started elsewhere. Empty: their own."""

    def conversation_id(self, agent: str, chat_id: str) -> str:
        """The same for the same person of the same tenant and chat. No part has a colon of its own, so no two
        people can meet in one."""
        whose = [self.name] if self.tenant is None else [self.tenant, self.name]
        return self.conversation or ":".join([agent, *map(_without_colons, whose), chat_id])


def _without_colons(name: str) -> str:
    return name.replace("%", "%25").replace(":", "%3A")


Authorize = Callable[["Request", str], Visitor | Awaitable[Visitor | None] | None]
"""Your function: given the request and the page's name for its chat, who asks; None if they may not. Sync or async."""


def anybody(request: Request, chat_id: str) -> Visitor:  # noqa: ARG001 - every authorize takes both
    """An `authorize` for trying things out: everybody is the same person, and whoever knows a chat's id may open it."""
    return Visitor(name="")
