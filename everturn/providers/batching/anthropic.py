"""Anthropic's Message Batches: all requests in one body, and a file with a result on each line.

Shapes: anthropic 2.14.0, types/messages and resources/messages/batches.py;
platform.claude.com/docs/en/build-with-claude/batch-processing (2026-11).

A batch has no name, and no list shows the ids of its requests: only its results do, once it has ended. So a batch whose
creation was not answered is one of those that began since then with as many requests, and which of them it is can
only be told when they have ended (decision 0059).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from everturn.providers.batching.api import (
    MAX_LISTED,
    BatchEndpoint,
    BatchRequest,
    LineResult,
    LineResults,
    UnknownCreation,
)
from everturn.providers.json_values import a_dict, a_list, a_str, parse_json, write_json

_PATH: Final = "/v1/messages/batches"
_PAGE: Final = 100
_SKEW_SECONDS: Final = 300.0
"""How far this machine's clock may be ahead of Anthropic's."""


class AnthropicBatches:
    most_bytes = 96 * 1024 * 1024
    """Anthropic takes 256 MB."""

    def __init__(self, calls: BatchEndpoint) -> None:
        self._calls = calls

    async def create(self, name: str, lines: Sequence[BatchRequest]) -> str:  # noqa: ARG002 - there is no place for it
        requests = b",".join(
            b'{"custom_id":' + write_json(line.id) + b',"params":' + line.content + b"}" for line in lines
        )
        answer = await self._calls.json("POST", _PATH, content=b'{"requests":[' + requests + b"]}")
        with self._calls.reading():
            return str(answer["id"])

    async def find(self, name: str, lines: Sequence[str], *, since: float) -> str:  # noqa: ARG002 - likewise
        candidates = [batch for batch in await self._since(since) if _size(batch) == len(lines)]
        ended = [batch for batch in candidates if _is_over(batch)]
        for batch in ended:
            results = await self.results(a_str(batch["id"]))
            if len(results.raw) + results.unreadable == len(lines) and set(results.raw) <= set(lines):
                return a_str(batch["id"])
        if len(ended) < len(candidates):
            open_ids = ", ".join(a_str(batch.get("id")) for batch in candidates if batch not in ended)
            raise UnknownCreation(f"{open_ids} may be it, which shows when it has ended")
        return ""

    async def _since(self, since: float) -> list[dict[str, Any]]:
        """The batches that were created since then, the newest first."""
        newer: list[dict[str, Any]] = []
        after = ""
        for _ in range(MAX_LISTED // _PAGE):
            page = await self._calls.json("GET", f"{_PATH}?limit={_PAGE}{after}")
            batches = [a_dict(batch) for batch in a_list(page.get("data"))]
            with self._calls.reading():
                new = [batch for batch in batches if _created(batch) >= since - _SKEW_SECONDS]
            newer += new
            if len(new) < len(batches) or not page.get("has_more"):
                break
            after = f"&after_id={quote(a_str(page.get('last_id')), safe='')}"
        return newer

    async def is_over(self, batch_id: str) -> bool:
        return _is_over(await self._calls.json("GET", f"{_PATH}/{quote(batch_id, safe='')}"))

    async def cancel(self, batch_id: str) -> None:
        await self._calls.json("POST", f"{_PATH}/{quote(batch_id, safe='')}/cancel")

    async def results(self, batch_id: str) -> LineResults:
        lines, unreadable = await self._calls.lines(f"{_PATH}/{quote(batch_id, safe='')}/results")
        raw = {a_str(line.get("custom_id")): write_json(line) for line in lines}
        return LineResults(raw, unreadable=unreadable)

    def read(self, raw: bytes) -> LineResult:
        result = a_dict(a_dict(parse_json(raw)).get("result"))
        match result.get("type"):
            case "succeeded":
                return LineResult("replied", result.get("message"))
            case "expired":
                return LineResult("expired")
            case "canceled":
                return LineResult("cancelled")
            case _:
                return LineResult("refused", result.get("error"))


def _is_over(batch: dict[str, Any]) -> bool:
    return a_str(batch.get("processing_status")) == "ended"


def _size(batch: dict[str, Any]) -> int:
    return sum(count for count in a_dict(batch.get("request_counts")).values() if isinstance(count, int))


def _created(batch: dict[str, Any]) -> float:
    return datetime.fromisoformat(a_str(batch.get("created_at"))).timestamp()
