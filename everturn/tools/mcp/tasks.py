"""Long-running calls of MCP servers: a call that a server answers with a task, followed until that is over.

The task's id outlives the connection and the worker: whoever takes the call over follows the same task. There are two
protocols: that of 2025-11-25, in which the client asks for a task, and the extension to that of 2026-07-28, in which
the server makes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter

from everturn.sizes import MAX_TASK_ID_CHARS

if TYPE_CHECKING:
    from mcp import ClientSession, types
    from mcp.client import ClientExtension
    from mcp.shared.dispatcher import ProgressFnT

EXTENSION = "io.modelcontextprotocol/tasks"

QUICKEST_POLL_SECONDS = 0.1
SLOWEST_POLL_SECONDS = 30.0
USUAL_POLL_SECONDS = 1.0

Made = Literal["never", "asked", "offered"]
"""Whether calls of a tool become tasks: never, if we ask for one (2025), or as the server likes (2026)."""

_anything: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class Memory(Protocol):
    """What one try of a call keeps for the next, even if the worker is killed in between."""

    @property
    def once(self) -> bool:
        """The call was planned to run once, whatever the server's list says by now."""

    @property
    def again(self) -> bool:
        """A person said to run it, though it may have run before."""

    @property
    def task(self) -> str | None:
        """The id of the task that the call has become."""

    @property
    def sent(self) -> bool:
        """The call may have been sent by a try before this one."""

    @property
    def is_cancelled(self) -> bool:
        """Nobody wants the result any more."""

    async def keep(self, *, task: str | None = None) -> None:
        """The call is about to be sent, or has become this task. Returns once it is certain that the next try knows."""


class Task(BaseModel):
    """How far a task is, in either protocol."""

    task_id: str = Field(alias="taskId", min_length=1, max_length=MAX_TASK_ID_CHARS)
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    message: str | None = Field(default=None, alias="statusMessage")
    poll_ms: float | None = Field(default=None, validation_alias=AliasChoices("pollIntervalMs", "pollInterval"))
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    questions: dict[str, Any] | None = Field(default=None, alias="inputRequests")

    @property
    def poll_seconds(self) -> float:
        wanted = USUAL_POLL_SECONDS
        if self.poll_ms is not None:
            wanted = self.poll_ms / 1000
        return min(max(wanted, QUICKEST_POLL_SECONDS), SLOWEST_POLL_SECONDS)


class TaskGone(Exception):
    """The server knows nothing of the task; the words are its own."""


class TaskFailed(Exception):
    """It is over, and has no result; the words are the server's."""


def extension() -> ClientExtension:
    """Says to servers of 2026-07-28 that they may answer a call with a task."""
    from mcp.client import advertise

    return advertise(EXTENSION)


def made_by(session: ClientSession) -> Made:
    """Whether its server makes tasks at all."""
    offered = session.server_capabilities
    if offered is None:
        return "never"
    if session.discover_result is not None:
        return "offered" if EXTENSION in (offered.extensions or {}) else "never"
    requests = offered.tasks and offered.tasks.requests
    if requests and requests.tools and requests.tools.call is not None:
        return "asked"
    return "never"


def made_for(task_mode: Made, tool: types.Tool) -> Made:
    """The same for one of its tools."""
    supported = tool.execution and tool.execution.task_support
    if task_mode == "asked" and supported not in ("optional", "required"):
        return "never"
    return task_mode


async def perhaps_made(
    session: ClientSession, request: types.CallToolRequest, progress: ProgressFnT | None = None
) -> Task | dict[str, Any]:
    """Sends a call: its result as it came, or the task that the server has made of it. Raises MCPError and
    ValidationError."""
    raw: dict[str, Any] = await session.send_request(request, _anything, progress_callback=progress)
    if raw.get("resultType") == "task":
        return Task.model_validate(raw)
    return raw


async def asked_for(session: ClientSession, request: types.CallToolRequest) -> Task | dict[str, Any]:
    """The same with a server of 2025, which is asked for a task."""
    # The SDK's send_request() takes nothing but a result for the answer.
    data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    raw = await session._dispatcher.send_raw_request(data["method"], data["params"])
    if "task" in raw and "content" not in raw:
        return Task.model_validate(raw["task"])
    return raw


async def read_status(session: ClientSession, task_id: str) -> Task:
    return Task.model_validate(await _send_request(session, "tasks/get", {"taskId": task_id}))


async def read_result(session: ClientSession, task: Task) -> dict[str, Any]:
    """The result of a task that is over. For one that asks, a server of before 2026 asks first, then answers. Raises
    TaskFailed."""
    from mcp import MCPError, types

    if task.error is not None:
        raise TaskFailed(str(task.error.get("message") or "it failed"))
    if task.result is not None:
        return task.result
    if session.discover_result is not None or task.status == "cancelled":
        raise TaskFailed(task.message or f"it is {task.status}")
    try:
        return await _send_request(session, "tasks/result", {"taskId": task.task_id})
    except MCPError as error:
        if task.status == "failed" and error.code in (types.INTERNAL_ERROR, types.INVALID_REQUEST):
            raise TaskFailed(error.message) from None
        raise


async def send_answers(session: ClientSession, task_id: str, responses: dict[str, Any]) -> None:
    await _send_request(session, "tasks/update", {"taskId": task_id, "inputResponses": responses})


async def cancel(session: ClientSession, task_id: str) -> None:
    await _send_request(session, "tasks/cancel", {"taskId": task_id})


async def _send_request(session: ClientSession, method: str, params: dict[str, Any]) -> dict[str, Any]:
    from mcp import types

    class TaskRequest(types.Request[dict[str, Any], str]):
        name_param = "taskId"

    answer: dict[str, Any] = await session.send_request(TaskRequest(method=method, params=params), _anything)
    return answer
