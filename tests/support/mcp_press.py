"""A real MCP server whose calls become tasks, in the protocol of 2026: `python -m tests.support.mcp_press FOLDER PORT`.

What it knows of its tasks is in FOLDER, so that it may be killed, too: FOLDER/log has what it did. A task is at work as
long as FOLDER has no `go`, and asks while it has an `ask` and no answer.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolRequestParams, RequestParams, Result, ToolAnnotations
from pydantic import ConfigDict

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")

QUESTION = {
    "method": "elicitation/create",
    "params": {
        "message": "Which paper?",
        "requestedSchema": {"type": "object", "properties": {"paper": {"type": "string"}}, "required": ["paper"]},
    },
}


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(f"{line}\n")


class OneTask(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class State(Result):
    model_config = ConfigDict(extra="allow")

    result_type: Literal["task", "complete"] = "complete"
    task_id: str
    status: str
    created_at: str = "2026-11-22T00:00:00Z"
    last_updated_at: str = "2026-11-22T00:00:00Z"
    ttl_ms: int | None = None
    poll_interval_ms: int = 100


class Tasks(Extension):
    identifier = "io.modelcontextprotocol/tasks"

    def methods(self) -> list[MethodBinding]:
        handlers = {"tasks/get": self.get, "tasks/update": self.update, "tasks/cancel": self.cancel}
        return [MethodBinding(method, OneTask, handler) for method, handler in handlers.items()]

    async def intercept_tool_call(self, params: CallToolRequestParams, ctx: Any, call_next: CallNext) -> HandlerResult:
        if params.name == "quote":
            return await call_next(ctx)
        task_id = uuid.uuid4().hex
        (FOLDER / task_id).write_text(json.dumps({"book": (params.arguments or {})["book"], "answers": {}}))
        note(f"{params.name} {task_id}")
        return State(result_type="task", task_id=task_id, status="working")

    async def get(self, ctx: Any, params: OneTask) -> State:
        known = self.known(params.task_id)
        note(f"get {params.task_id}")
        if (FOLDER / "fail").exists():
            return self.state(params, "failed", error={"code": -32603, "message": "the press is broken"})
        if (FOLDER / "ask").exists() and not known["answers"]:
            return self.state(params, "input_required", inputRequests={"paper": QUESTION})
        if not (FOLDER / "go").exists():
            return self.state(params, "working", statusMessage="setting the type")
        text = f"printed {known['book']}{known['answers'].get('paper', {}).get('content', {}).get('paper', '')}"
        return self.state(params, "completed", result={"content": [{"type": "text", "text": text}]})

    async def update(self, ctx: Any, params: OneTask) -> Result:
        known = self.known(params.task_id)
        known["answers"] |= params.input_responses or {}
        (FOLDER / params.task_id).write_text(json.dumps(known))
        note(f"update {params.task_id}")
        return Result()

    async def cancel(self, ctx: Any, params: OneTask) -> Result:
        self.known(params.task_id)
        note(f"cancel {params.task_id}")
        return Result()

    def known(self, task_id: str) -> dict[str, Any]:
        file = FOLDER / task_id
        if not file.exists():
            raise MCPError(code=INVALID_PARAMS, message="there is no such task")
        return dict(json.loads(file.read_text()))

    def state(self, params: OneTask, status: str, **more: Any) -> State:
        return State(task_id=params.task_id, status=status, **more)


press = MCPServer("press", extensions=[Tasks()])


@press.tool()
def print_book(book: str) -> str:
    """Prints a book, once."""
    raise NotImplementedError(book)


@press.tool(annotations=ToolAnnotations(idempotent_hint=True))
def bind_book(book: str) -> str:
    """Binds a book."""
    raise NotImplementedError(book)


@press.tool(annotations=ToolAnnotations(read_only_hint=True))
def quote(book: str) -> str:
    """What printing costs."""
    return f"{len(book)} cents"


if __name__ == "__main__":
    press.run("streamable-http", port=int(sys.argv[2]))
