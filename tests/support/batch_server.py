"""The batches of OpenAI, Anthropic and Gemini on loopback, in one server: a file or a body with requests, a list, a
state that is polled, results by line. The shapes are those that the vendors' own SDKs read:
tests/providers/test_batches.py lets them.

A batch is worked on when it is created, which is when it is paid. It ends when the test says so.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from everturn import Model
from tests.support.provider_server import Json, LoopbackServer, QuietHandler, claude, message_item, response

Vendor = Literal["openai", "openai-chat", "anthropic", "google"]
VENDORS: tuple[Vendor, ...] = ("openai", "openai-chat", "anthropic", "google")
MODELS: dict[Vendor, str] = {
    "openai": "gpt-5.5",
    "openai-chat": "gpt-4.1",
    "anthropic": "claude-sonnet-4-5",
    "google": "gemini-2.5-flash",
}


@dataclass(frozen=True)
class Refused:
    """What becomes of a line in place of a reply."""

    status: int
    kind: str
    message: str


EXPIRED = "expired"
Call = tuple[str, str, Json]
"""Its id, its tool, its arguments."""
Result = str | Refused | Call | list[Call]
"""A text; EXPIRED; a refusal; or calls."""


@dataclass
class Batch:
    id: str
    name: str
    vendor: Vendor
    requests: dict[str, Json]
    results: dict[str, Result] = field(default_factory=dict)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: Literal["running", "ended", "cancelled", "failed"] = "running"
    refused_lines: tuple[int, ...] = ()


class BatchServer(LoopbackServer):
    """`reply` is given each request's body, and says what becomes of it."""

    def __init__(self, reply: Callable[[Json], Result] = lambda _: "Done.") -> None:
        self.reply = reply
        self.batches: dict[str, Batch] = {}
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        """Method and path of each request."""
        self.live: list[Json] = []
        """The bodies of live questions."""
        self.lose_answers = 0
        """So many of the next creations take effect, and are not answered."""
        self.ends_at_once = False
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}
        """What is done as a `creation` or the `results` are asked for, before that takes effect and after it. A
        creation that it came before is not answered."""
        self.key = ""
        """The one that it takes, if any: with another, no batch is found."""
        self.spoil: Callable[[list[bytes]], list[bytes]] = lambda lines: lines
        """What becomes of the lines of a results file."""
        self.bodies: dict[str, bytes] = {}
        """As they came, by the id of their line."""

    def model(self, vendor: Vendor) -> Model:
        return Model(f"{vendor}:{MODELS[vendor]}", base_url=self.base_url)

    @property
    def paid(self) -> int:
        """How many lines were worked on."""
        return sum(len(batch.requests) for batch in self.batches.values())

    def finish(self) -> None:
        """All batches that run end now."""
        for batch in self.batches.values():
            if batch.state == "running":
                batch.state = "ended"

    # ------------------------------------------------------------ requests

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, content_type: str) -> Any:
        self.asked.append(f"{method} {path}")
        for pattern, handler in _ROUTES:
            if match := re.fullmatch(pattern, f"{method} {path}"):
                step = _STEPS.get(handler.__name__, "")
                if before := self.before.pop(step, None):
                    before()
                    return None
                answer = handler(self, *map(unquote, match.groups()), query=query, body=body, content_type=content_type)
                is_step = step != "results" or any(batch.state == "ended" for batch in self.batches.values())
                if is_step and (after := self.after.pop(step, None)):
                    after()
                return answer
        return 404, {"error": {"message": f"no route for {method} {path}", "type": "invalid_request_error"}}

    def begin(self, vendor: Vendor, name: str, requests: dict[str, Json]) -> Batch | None:
        """The new batch; None if its creation is not answered."""
        ids = {"anthropic": "msgbatch_{}", "google": "batches/{}"}
        number = len(self.batches) + 1
        batch = Batch(ids.get(vendor, "batch_{}").format(number), name, vendor, requests)
        batch.results = {line: self.reply(request) for line, request in requests.items()}
        if self.ends_at_once:
            batch.state = "ended"
        self.batches[batch.id] = batch
        if self.lose_answers:
            self.lose_answers -= 1
            return None
        return batch

    def make_handler(self) -> type[QuietHandler]:
        outer = self

        class Handler(QuietHandler):
            def answer(self, body: bytes) -> None:
                split = urlsplit(self.path)
                path = split.path.removeprefix("/v1") if "/messages" not in split.path else split.path
                path = split.path if split.path.startswith("/v1beta") else path
                answer: Any = _not_found()
                if (self.headers.get("Authorization") or "").endswith(outer.key):
                    content_type = self.headers.get("Content-Type") or ""
                    answer = outer.answer(self.command, path, dict(parse_qsl(split.query)), body, content_type)
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(2)
                    return
                status, data = answer if isinstance(answer, tuple) else (200, answer)
                if isinstance(data, bytes):
                    self.send_whole(data, "application/octet-stream", status)
                else:
                    self.send_whole(json.dumps(data).encode(), "application/json", status)

        return Handler

    # ------------------------------------------------------------ OpenAI

    def _upload(self, *, body: bytes, content_type: str, **_: Any) -> Json:
        boundary = content_type.partition("boundary=")[2].strip('"').encode()
        parts = [part for part in body.split(b"--" + boundary) if b"filename=" in part]
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = parts[0].partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        return {
            "id": file_id,
            "object": "file",
            "purpose": "batch",
            "bytes": len(body),
            "created_at": int(time.time()),
            "filename": "x.jsonl",
            "status": "processed",
        }

    def _create_openai(self, *, body: bytes, **_: Any) -> Any:
        creation = json.loads(body)
        assert creation["completion_window"] == "24h"
        vendor: Vendor = "openai" if creation["endpoint"] == "/v1/responses" else "openai-chat"
        requests = {}
        for raw in self.files[creation["input_file_id"]].splitlines():
            line = json.loads(raw)
            assert (line["method"], line["url"]) == ("POST", creation["endpoint"])
            requests[line["custom_id"]] = line["body"]
            self.bodies[line["custom_id"]] = raw.partition(b'"body":')[2].removesuffix(b"}")
        batch = self.begin(vendor, creation["metadata"]["everturn_batch"], requests)
        return batch and self._openai(batch, input_file_id=creation["input_file_id"], endpoint=creation["endpoint"])

    def _openai(self, batch: Batch, input_file_id: str = "file-1", endpoint: str = "/v1/responses") -> Json:
        states = {"running": "in_progress", "ended": "completed"}
        described: Json = {
            "id": batch.id,
            "object": "batch",
            "endpoint": endpoint,
            "input_file_id": input_file_id,
            "completion_window": "24h",
            "status": states.get(batch.state, batch.state),
            "created_at": int(batch.created.timestamp()),
            "metadata": {"everturn_batch": batch.name},
            "request_counts": {"total": len(batch.requests), "completed": 0, "failed": 0},
        }
        if batch.state == "failed":
            data = [
                {"code": "invalid", "line": line, "message": "no such field", "param": "x"}
                for line in batch.refused_lines
            ]
            return described | {"errors": {"object": "list", "data": data}}
        if batch.state != "running":
            described |= {"output_file_id": f"{batch.id}-out", "error_file_id": f"{batch.id}-err"}
        return described

    def _list_openai(self, *, query: dict[str, str], **_: Any) -> Json:
        newest = [batch for batch in reversed(self.batches.values()) if batch.vendor.startswith("openai")]
        page, has_more = _page(newest, query.get("after"), int(query.get("limit", 20)))
        return {"object": "list", "data": [self._openai(batch) for batch in page], "has_more": has_more}

    def _get_openai(self, batch_id: str, **_: Any) -> Any:
        return self._openai(self.batches[batch_id]) if batch_id in self.batches else _not_found()

    def _cancel_openai(self, batch_id: str, **_: Any) -> Json:
        self.batches[batch_id].state = "cancelled"
        return self._openai(self.batches[batch_id])

    def _content_openai(self, file_id: str, **_: Any) -> Any:
        batch_id, dash, which = file_id.rpartition("-")
        if not dash or batch_id not in self.batches:
            return _not_found()
        batch = self.batches[batch_id]
        lines = [_openai_line(batch, line, batch.results[line]) for line in batch.requests]
        wanted = [
            line
            for line in lines
            if (line["error"] is None and line["response"]["status_code"] == 200) == (which == "out")
        ]
        if batch.state == "cancelled":
            wanted = []
        return b"".join(line + b"\n" for line in self.spoil([json.dumps(line).encode() for line in wanted]))

    def _live_openai(self, *, body: bytes, **_: Any) -> Json:
        self.live.append(json.loads(body))
        return response(message_item("Live."))

    # ------------------------------------------------------------ Anthropic

    def _create_anthropic(self, *, body: bytes, **_: Any) -> Any:
        requests = {entry["custom_id"]: entry["params"] for entry in json.loads(body)["requests"]}
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", line) for line in requests)
        for line in requests:
            begins = body.partition(b'{"custom_id":"' + line.encode() + b'","params":')[2]
            _, end = json.JSONDecoder().raw_decode(begins.decode())
            self.bodies[line] = begins.decode()[:end].encode()
        batch = self.begin("anthropic", "", requests)
        return batch and self._anthropic(batch)

    def _anthropic(self, batch: Batch) -> Json:
        counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
        counts["processing" if batch.state == "running" else "succeeded"] = len(batch.requests)
        ended = batch.state != "running"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": batch.created.isoformat().replace("+00:00", "Z"),
            "expires_at": (batch.created + timedelta(days=1)).isoformat().replace("+00:00", "Z"),
            "ended_at": batch.created.isoformat() if ended else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": f"{self.base_url}/v1/messages/batches/{batch.id}/results" if ended else None,
        }

    def _list_anthropic(self, *, query: dict[str, str], **_: Any) -> Json:
        newest = [batch for batch in reversed(self.batches.values()) if batch.vendor == "anthropic"]
        page, has_more = _page(newest, query.get("after_id"), int(query.get("limit", 20)))
        ids = [batch.id for batch in page] or [None]
        return {
            "data": [self._anthropic(batch) for batch in page],
            "has_more": has_more,
            "first_id": ids[0],
            "last_id": ids[-1],
        }

    def _get_anthropic(self, batch_id: str, **_: Any) -> Any:
        return self._anthropic(self.batches[batch_id]) if batch_id in self.batches else _not_found()

    def _cancel_anthropic(self, batch_id: str, **_: Any) -> Json:
        self.batches[batch_id].state = "cancelled"
        return self._anthropic(self.batches[batch_id])

    def _results_anthropic(self, batch_id: str, **_: Any) -> Any:
        batch = self.batches.get(batch_id)
        if batch is None or batch.state == "running":
            return _not_found()
        lines = [
            {"custom_id": line, "result": _anthropic_result(batch, batch.results[line])}
            for line in reversed(batch.requests)
        ]
        return b"".join(line + b"\n" for line in self.spoil([json.dumps(line).encode() for line in lines]))

    # ------------------------------------------------------------ Gemini

    def _create_google(self, model: str, *, body: bytes, **_: Any) -> Any:
        creation = json.loads(body)["batch"]
        entries = creation["inputConfig"]["requests"]["requests"]
        requests = {
            entry.get("metadata", {}).get("key", str(number)): entry["request"] for number, entry in enumerate(entries)
        }
        for line in requests:
            ends = body.partition(b',"metadata":{"key":"' + line.encode() + b'"}')[0]
            self.bodies[line] = ends.rpartition(b'{"request":')[2]
        batch = self.begin("google", creation.get("displayName", ""), requests)
        return batch and self._google(batch)

    def _google(self, batch: Batch) -> Json:
        states = {"running": "RUNNING", "ended": "SUCCEEDED", "cancelled": "CANCELLED", "failed": "FAILED"}
        described: Json = {
            "name": batch.id,
            "metadata": {
                "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
                "model": "models/gemini-2.5-flash",
                "displayName": batch.name,
                "createTime": batch.created.isoformat().replace("+00:00", "Z"),
                "updateTime": batch.created.isoformat().replace("+00:00", "Z"),
                "batchStats": {"requestCount": str(len(batch.requests))},
                "state": f"BATCH_STATE_{states[batch.state]}",
                "name": batch.id,
            },
        }
        if batch.state == "ended":
            lines = [{**_google_result(batch.results[line]), "metadata": {"key": line}} for line in batch.requests]
            output = {"inlinedResponses": {"inlinedResponses": lines}}
            described["metadata"]["output"] = output
            response_type = "type.googleapis.com/x.GenerateContentBatchOutput"
            described |= {"done": True, "response": {"@type": response_type, **output}}
        return described

    def _list_google(self, *, query: dict[str, str], **_: Any) -> Json:
        newest = [batch for batch in reversed(self.batches.values()) if batch.vendor == "google"]
        page, has_more = _page(newest, query.get("pageToken"), int(query.get("pageSize", 50)))
        more = {"nextPageToken": page[-1].id} if has_more else {}
        return {"operations": [self._google(batch) for batch in page], **more}

    def _get_google(self, batch_id: str, **_: Any) -> Any:
        return self._google(self.batches[batch_id]) if batch_id in self.batches else _not_found()

    def _cancel_google(self, batch_id: str, **_: Any) -> Json:
        self.batches[batch_id].state = "cancelled"
        return {}


_ROUTES: list[tuple[str, Callable[..., Any]]] = [
    (r"POST /files", BatchServer._upload),
    (r"GET /files/([^/]+)/content", BatchServer._content_openai),
    (r"POST /batches", BatchServer._create_openai),
    (r"GET /batches", BatchServer._list_openai),
    (r"GET /batches/([^/]+)", BatchServer._get_openai),
    (r"POST /batches/([^/]+)/cancel", BatchServer._cancel_openai),
    (r"POST /responses", BatchServer._live_openai),
    (r"POST /v1/messages/batches", BatchServer._create_anthropic),
    (r"GET /v1/messages/batches", BatchServer._list_anthropic),
    (r"GET /v1/messages/batches/([^/]+)/results", BatchServer._results_anthropic),
    (r"GET /v1/messages/batches/([^/]+)", BatchServer._get_anthropic),
    (r"POST /v1/messages/batches/([^/]+)/cancel", BatchServer._cancel_anthropic),
    (r"POST /v1beta/models/([^/]+):batchGenerateContent", BatchServer._create_google),
    (r"GET /v1beta/batches", BatchServer._list_google),
    (r"GET /v1beta/(batches/[^/]+)", BatchServer._get_google),
    (r"POST /v1beta/(batches/[^/]+):cancel", BatchServer._cancel_google),
]


_STEPS = {
    **dict.fromkeys(("_create_openai", "_create_anthropic", "_create_google"), "creation"),
    **dict.fromkeys(("_content_openai", "_results_anthropic", "_get_google"), "results"),
}


def _page(newest: list[Batch], after: str | None, limit: int) -> tuple[list[Batch], bool]:
    if after:
        places = [batch.id for batch in newest]
        newest = newest[places.index(after) + 1 :]
    return newest[:limit], len(newest) > limit


def _not_found() -> tuple[int, Json]:
    return 404, {"type": "error", "error": {"type": "not_found_error", "message": "There is no such batch."}}


def _openai_line(batch: Batch, line: str, result: Result) -> Json:
    described: Json = {"id": f"batch_req_{line}", "custom_id": line, "response": None, "error": None}
    if result == EXPIRED:
        return described | {
            "error": {"code": "batch_expired", "message": "This request could not be executed in time."}
        }
    if isinstance(result, Refused):
        body = {"error": {"message": result.message, "type": result.kind, "code": None, "param": None}}
        return described | {"response": {"status_code": result.status, "request_id": "req_1", "body": body}}
    body = _response(result) if batch.vendor == "openai" else _completion(result)
    return described | {"response": {"status_code": 200, "request_id": "req_1", "body": body}}


def _response(result: Any) -> Json:
    if isinstance(result, str):
        return response(
            message_item(result),
            model=MODELS["openai"],
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            created_at=1,
        )
    items = [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": call_id,
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        for number, (call_id, name, arguments) in enumerate(_calls(result), 1)
    ]
    return response(*items)


def _calls(result: Any) -> list[Call]:
    return result if isinstance(result, list) else [result]


def _completion(result: Any) -> Json:
    message: Json = {"role": "assistant", "content": result if isinstance(result, str) else None}
    finish = "stop"
    if not isinstance(result, str):
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call_id, name, arguments in _calls(result)
        ]
        finish = "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODELS["openai-chat"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def _anthropic_result(batch: Batch, result: Result) -> Json:
    if batch.state == "cancelled":
        return {"type": "canceled"}
    if result == EXPIRED:
        return {"type": "expired"}
    if isinstance(result, Refused):
        error = {"type": result.kind, "message": result.message}
        return {"type": "errored", "error": {"type": "error", "error": error, "request_id": "req_1"}}
    if isinstance(result, str):
        return {"type": "succeeded", "message": claude({"type": "text", "text": result})}
    uses = [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in _calls(result)
    ]
    return {"type": "succeeded", "message": claude(*uses, stop="tool_use")}


_GOOGLE_CODES = {400: 3, 429: 8, 503: 14}


def _google_result(result: Result) -> Json:
    if result == EXPIRED:
        return {"error": {"code": 4, "message": "The request was not processed in time."}}
    if isinstance(result, Refused):
        return {"error": {"code": _GOOGLE_CODES[result.status], "message": result.message}}
    parts: list[Json] = [{"text": result}]
    if not isinstance(result, str):
        parts = [
            {"functionCall": {"id": call_id, "name": name, "args": arguments}}
            for call_id, name, arguments in _calls(result)
        ]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"response": {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"}}
