"""Anthropic's Messages API.

To its users a protocol is one module: `encode(request)`, `decode(body, request)`, `Assembler(request)`.
"""

from everturn.providers.anthropic_messages.reply import Assembler, decode
from everturn.providers.anthropic_messages.request import encode

__all__ = ["Assembler", "decode", "encode"]
