"""A receiver of webhooks on loopback, which checks each signature with the package of Standard Webhooks."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from standardwebhooks.webhooks import Webhook as Verifier

from tests.support.provider_server import LoopbackServer, QuietHandler

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()


@dataclass
class Receiver(LoopbackServer):
    """`answers`: the statuses of the next tries, in order; then 204."""

    answers: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=lambda: {"Retry-After": "0", "Location": "/elsewhere"})
    hangs_until: Event | None = None
    asked: int = 0
    tries: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    """Each with its answer, its webhook-id and its body."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies that were taken."""
        return [body for status, _, body in self.tries if status < 300]

    @property
    def kinds(self) -> list[str]:
        return [body["type"].removeprefix("conversation.") for body in self.messages]

    def make_handler(self) -> type[QuietHandler]:
        receiver = self

        class Handler(QuietHandler):
            def answer(self, body: bytes) -> None:
                Verifier(SECRET).verify(body, dict(self.headers))
                receiver.asked += 1
                if receiver.hangs_until:
                    receiver.hangs_until.wait(30)
                status = receiver.answers.pop(0) if receiver.answers else 204
                receiver.tries.append((status, self.headers["webhook-id"], json.loads(body)))
                self.send_whole(b"", "text/plain", status, receiver.headers)

        return Handler
