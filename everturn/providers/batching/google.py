"""Gemini's batches, with the requests in the body and the replies in the answer.

Shapes: google-genai 3.6.1, batches.py (the Developer API's); ai.google.dev/api/batch-api (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from everturn.providers.batching.api import MAX_LISTED, BatchEndpoint, BatchRequest, LineResult, LineResults
from everturn.providers.json_values import a_dict, a_list, a_str, parse_json, write_json

_PAGE: Final = 100
_OVER: Final = frozenset({"SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"})
_STATUS: Final[Mapping[int, int]] = {3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 13: 500, 14: 503, 16: 401}
"""HTTP's status for google.rpc's codes, as google/rpc/code.proto says them."""
_CANCELLED: Final = 1


class GoogleBatches:
    most_bytes = 18 * 1024 * 1024
    """Gemini takes 20 MB."""

    def __init__(self, calls: BatchEndpoint, path: str) -> None:
        """`path`: of the live endpoint, /v1beta/models/NAME:generateContent."""
        self._calls = calls
        self._model_path = path.rpartition(":")[0]

    async def create(self, name: str, lines: Sequence[BatchRequest]) -> str:
        requests = b",".join(
            b'{"request":' + line.content + b',"metadata":{"key":' + write_json(line.id) + b"}}" for line in lines
        )
        content = (
            b'{"batch":{"displayName":'
            + write_json(name)
            + b',"inputConfig":{"requests":{"requests":['
            + requests
            + b"]}}}}"
        )
        answer = await self._calls.json("POST", f"{self._model_path}:batchGenerateContent", content=content)
        with self._calls.reading():
            return str(answer["name"])

    async def find(self, name: str, lines: Sequence[str], *, since: float) -> str:  # noqa: ARG002 - its name is enough
        token = ""
        for _ in range(MAX_LISTED // _PAGE):
            page = await self._calls.json("GET", f"/v1beta/batches?pageSize={_PAGE}{token}")
            for batch in map(a_dict, a_list(page.get("operations"))):
                if _metadata(batch).get("displayName") == name:
                    return a_str(batch.get("name"))
            if not (next_page := a_str(page.get("nextPageToken"))):
                break
            token = f"&pageToken={quote(next_page, safe='')}"
        return ""

    async def is_over(self, batch_id: str) -> bool:
        return _state(await self._batch(batch_id)) in _OVER

    async def cancel(self, batch_id: str) -> None:
        await self._calls.json("POST", f"/v1beta/{quote(batch_id)}:cancel", content=b"{}")

    async def results(self, batch_id: str) -> LineResults:
        batch = await self._batch(batch_id)
        output = a_dict(batch.get("response")) or a_dict(_metadata(batch).get("output"))
        replies = a_list(a_dict(output.get("inlinedResponses")).get("inlinedResponses"))
        raw = {a_str(a_dict(reply.get("metadata")).get("key")): write_json(reply) for reply in map(a_dict, replies)}
        error = a_dict(batch.get("error"))
        match _state(batch):
            case "EXPIRED":
                return LineResults(raw, LineResult("expired"))
            case "CANCELLED":
                return LineResults(raw, LineResult("cancelled"))
            case "FAILED":
                return LineResults(raw, _refused(error))
            case _:
                return LineResults(raw)

    async def _batch(self, batch_id: str) -> dict[str, Any]:
        return await self._calls.json("GET", f"/v1beta/{quote(batch_id)}")

    def read(self, raw: bytes) -> LineResult:
        line = a_dict(parse_json(raw))
        if error := a_dict(line.get("error")):
            return LineResult("cancelled") if error.get("code") == _CANCELLED else _refused(error)
        return LineResult("replied", line.get("response"))


def _metadata(batch: dict[str, Any]) -> dict[str, Any]:
    return a_dict(batch.get("metadata"))


def _state(batch: dict[str, Any]) -> str:
    """Without its prefix: BATCH_STATE_ in the API, JOB_STATE_ in the SDK's words."""
    return a_str(_metadata(batch).get("state")).rpartition("STATE_")[2]


def _refused(error: dict[str, Any]) -> LineResult:
    code = error.get("code")
    return LineResult("refused", {"error": error}, _STATUS.get(code, 500) if isinstance(code, int) else 500)
