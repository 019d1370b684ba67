"""Asking a model, whoever serves it: `ask(Request(...))` once, `generate(...)` for people. No Temporal in here.

For packages that add a provider: Row, Dialect, ResponsesDialect, ModelRow and Abilities; and for a protocol of their
own WireProtocol, Request, StreamEvent, Delta and Reply. See docs/howto/add-a-provider.md.
"""

from everturn.http.sse import Event as StreamEvent
from everturn.providers.base import Delta, Request, ToolSpec, specs_of
from everturn.providers.catalog import Dialect, ResponsesDialect, Row
from everturn.providers.generate import generate
from everturn.providers.model_call import ask
from everturn.providers.wire_protocol import WireProtocol
from everturn.records import Reply
from everturn.vendor_models.abilities import Abilities, ModelRow

__all__ = [
    "Abilities",
    "Delta",
    "Dialect",
    "ModelRow",
    "Reply",
    "Request",
    "ResponsesDialect",
    "Row",
    "StreamEvent",
    "ToolSpec",
    "WireProtocol",
    "ask",
    "generate",
    "specs_of",
]
