"""A response in JSON that every browser can read."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from everturn.text.json_text import json_bytes


class JsonResponse(JSONResponse):
    """Starlette's own raises for NaN, infinities and half a surrogate pair, so that the page gets a 500."""

    def render(self, content: Any) -> bytes:
        return json_bytes(content, compact=True)
