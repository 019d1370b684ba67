"""OpenAI's Chat Completions, and the dialects of the servers that speak it too.

To its users a protocol is one module: `encode(request)`, `decode(body, request)`, `Assembler(request)`.
"""

from everturn.providers.openai_chat.reply import Assembler, decode
from everturn.providers.openai_chat.request import encode

__all__ = ["Assembler", "decode", "encode"]
