"""OpenAI's Batch API, for Responses and Chat Completions: a file with a request on each line, and one with the results.

Shapes: openai 3.57.0, types/batch.py, resources/files.py; platform.openai.com/docs/guides/batch (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx

from everturn.providers.batching.api import MAX_LISTED, BatchEndpoint, BatchRequest, LineResult, LineResults
from everturn.providers.json_values import a_dict, a_list, a_str, parse_json, write_json

_NAME: Final = "everturn_batch"
"""The key of our name in a batch's metadata, which every list of batches shows."""
_OVER: Final = frozenset({"failed", "completed", "expired", "cancelled"})
_PAGE: Final = 100


class OpenAIBatches:
    most_bytes = 96 * 1024 * 1024
    """OpenAI takes 200 MB. The worker that sends a batch holds it in memory."""

    def __init__(self, calls: BatchEndpoint, path: str) -> None:
        """`path`: of the live endpoint, such as /responses."""
        self._calls = calls
        self._url = f"/v1{path}"

    async def create(self, name: str, lines: Sequence[BatchRequest]) -> str:
        file_id = await self._upload(name, lines)
        body = {
            "input_file_id": file_id,
            "endpoint": self._url,
            "completion_window": "24h",
            "metadata": {_NAME: name},
        }
        answer = await self._calls.json("POST", "/batches", content=write_json(body))
        with self._calls.reading():
            return str(answer["id"])

    async def _upload(self, name: str, lines: Sequence[BatchRequest]) -> str:
        content = b"".join(self._pieces(lines))
        # Only httpx's encoding of the form: it is sent like everything else.
        form = httpx.Request(
            "POST",
            self._calls.endpoint.url_of("/files"),
            data={"purpose": "batch"},
            files={"file": (f"{name}.jsonl", content, "application/jsonl")},
        )
        answer = await self._calls.json(
            "POST", "/files", content=form.read(), content_type=form.headers["content-type"]
        )
        with self._calls.reading():
            return str(answer["id"])

    def _pieces(self, lines: Sequence[BatchRequest]) -> Iterator[bytes]:
        for line in lines:
            head = {"custom_id": line.id, "method": "POST", "url": self._url}
            yield write_json(head)[:-1] + b',"body":' + line.content + b"}\n"

    async def find(self, name: str, lines: Sequence[str], *, since: float) -> str:  # noqa: ARG002 - its name is enough
        after = ""
        for _ in range(MAX_LISTED // _PAGE):
            page = await self._calls.json("GET", f"/batches?limit={_PAGE}{after}")
            batches = [a_dict(batch) for batch in a_list(page.get("data"))]
            for batch in batches:
                if a_dict(batch.get("metadata")).get(_NAME) == name:
                    return a_str(batch.get("id"))
            oldest = batches[-1] if batches else {}
            if not page.get("has_more") or (oldest.get("created_at") or 0) < since:
                return ""
            after = f"&after={quote(a_str(oldest.get('id')), safe='')}"
        return ""

    async def is_over(self, batch_id: str) -> bool:
        return a_str((await self._batch(batch_id)).get("status")) in _OVER

    async def cancel(self, batch_id: str) -> None:
        await self._calls.json("POST", f"/batches/{quote(batch_id, safe='')}/cancel")

    async def results(self, batch_id: str) -> LineResults:
        batch = await self._batch(batch_id)
        raw: dict[str, bytes] = {}
        unreadable = 0
        for name in ("output_file_id", "error_file_id"):
            if file_id := a_str(batch.get(name)):
                lines, faulty = await self._calls.lines(f"/files/{quote(file_id, safe='')}/content")
                raw |= {a_str(line.get("custom_id")): write_json(line) for line in lines}
                unreadable += faulty
        status = a_str(batch.get("status"))
        if status == "failed":
            return _failed(batch, raw)
        whole: dict[str, LineResult] = {"expired": LineResult("expired"), "cancelled": LineResult("cancelled")}
        return LineResults(raw, whole.get(status), unreadable=unreadable)

    async def _batch(self, batch_id: str) -> dict[str, Any]:
        return await self._calls.json("GET", f"/batches/{quote(batch_id, safe='')}")

    def read(self, raw: bytes) -> LineResult:
        line = a_dict(parse_json(raw))
        response = a_dict(line.get("response"))
        status = response.get("status_code")
        if status == 200:
            return LineResult("replied", response.get("body"))
        error = a_dict(line.get("error"))
        if (code := a_str(error.get("code"))) == "batch_expired":
            return LineResult("expired")
        if code == "batch_cancelled":
            return LineResult("cancelled")
        return LineResult(
            "refused", response.get("body") or {"error": error}, status if isinstance(status, int) else 500
        )


def _failed(batch: dict[str, Any], raw: dict[str, bytes]) -> LineResults:
    """A batch that was refused before it began. If lines are to blame, only these: the others may be sent again."""
    errors = [a_dict(error) for error in a_list(a_dict(batch.get("errors")).get("data"))]
    by_number = {
        error["line"]: LineResult("refused", {"error": error}, 400)
        for error in errors
        if isinstance(error.get("line"), int)
    }
    whole = LineResult("missing") if by_number else LineResult("refused", {"error": errors[0] if errors else {}}, 400)
    return LineResults(raw, whole, by_number)
