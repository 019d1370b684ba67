"""A Nexus service, as its callers and its handlers know it."""

from __future__ import annotations

from dataclasses import dataclass

import nexusrpc


@dataclass
class Refund:
    """What is refunded."""

    order_id: str
    cents: int = 5


@dataclass
class Receipt:
    order_id: str
    refunded: int


@nexusrpc.service(name="Shop")
class Shop:
    refund: nexusrpc.Operation[Refund, Receipt]
    greet: nexusrpc.Operation[str, str]
    now: nexusrpc.Operation[None, str]
    ship: nexusrpc.Operation[str, str]
    fail: nexusrpc.Operation[str, str]
