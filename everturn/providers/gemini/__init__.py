"""Google's generateContent, as the Gemini Developer API serves it (v1beta).

To its users a protocol is one module: `encode(request)`, `decode(body, request)`, `Assembler(request)`.
"""

from everturn.providers.gemini.reply import Assembler, decode
from everturn.providers.gemini.request import encode

__all__ = ["Assembler", "decode", "encode"]
