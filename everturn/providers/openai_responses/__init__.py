"""OpenAI's Responses, and the servers that speak it too.

To its users a protocol is one module: `encode(request)`, `decode(body, request)`, `Assembler(request)`.
"""

from everturn.providers.openai_responses.reply import Assembler, decode
from everturn.providers.openai_responses.request import encode

__all__ = ["Assembler", "decode", "encode"]
