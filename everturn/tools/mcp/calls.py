"""One call of an MCP server's tool: sent over the worker's connection, with what people answered; and followed, if its
server makes a task of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from everturn import names
from everturn.errors import Retry, ToolFailed
from everturn.logs import get_logger
from everturn.records import Document, Image, Text
from everturn.tools.context import ToolContext
from everturn.tools.context_ask import AsksPerson, current_answer
from everturn.tools.mcp import error_codes, tasks
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.connections import (
    ConnectionLost,
    NotConnected,
    RunningCall,
    ServerConnection,
    ServerConnections,
)
from everturn.tools.mcp.failed_calls import CallFailures, NothingHasRun, cut_text, tool_failed
from everturn.tools.mcp.listed_tools import ListedTool
from everturn.tools.mcp.questions import Answers, AsksTooMuch, Elicitation
from everturn.tools.mcp.results import parts_of

if TYPE_CHECKING:
    from mcp import ClientSession, types

R = TypeVar("R")

CONNECT_TRIES = 6
"""The most attempts to send a run-once call. They are made here: only here it is known that nothing was sent."""
FIRST_WAIT_SECONDS = 0.5

ROUNDS = 30
"""The most rounds of questions in one try that stored answers can answer."""

LONGEST_WAIT_SECONDS = 30.0
"""The longest pause before a server that is away is asked about its task again."""

CANCEL_SECONDS = 5.0

_AWAY = frozenset({error_codes.CONNECTION_CLOSED, error_codes.LOST, error_codes.SESSION_GONE, error_codes.HTTP_STATUS})
"""What a server that is away, or comes back, has for those who ask about a task."""

_log = get_logger("everturn.mcp")


class ServerCall:
    """One try."""

    def __init__(
        self,
        connections: ServerConnections,
        server: McpServer,
        tool: ListedTool,
        context: ToolContext,
        memory: tasks.Memory,
    ) -> None:
        self._connections = connections
        self._server = server
        self._tool = tool
        self._context = context
        self._memory = memory
        self._once = tool.effect == "once" or memory.once
        self._failures = CallFailures(connections, server, memory, once=self._once)

    async def call_tool(self, arguments: dict[str, Any]) -> list[Text | Image | Document]:
        """Raises AsksPerson, Retry, OutcomeUnknown and ToolFailed."""
        try:
            answers = Answers.from_answer(current_answer())
            if known := self._memory.task or answers.task:
                try:
                    return parts_of(await self._follow_task(known, answers))
                except tasks.TaskGone as error:
                    self._failures.check_not_sent(f"it does not know the task {known[:100]!r}: {error}")
                answers.task = None
            elif self._memory.sent:
                self._failures.check_not_sent("the worker was lost before it made a task")
            for _ in range(ROUNDS):
                result = await self._send_call(arguments, answers)
                if isinstance(result, tasks.Task):
                    return parts_of(await self._follow_new_task(result, answers))
                if not _is_asking(result):
                    return parts_of(result)
                open_questions = _read_questions(result)
                answers.state = result.request_state
                answers.open = open_questions
                if answers.next_question:
                    raise answers.asking_error()
        except AsksTooMuch as error:
            raise ToolFailed(f"{self._server.label} can't be answered: {error}.") from None
        raise ToolFailed(f"{self._server.label} asks the same question again and again.")

    async def _send_call(self, arguments: dict[str, Any], answers: Answers) -> Any:
        """The server's answer to one request, once there is one."""
        from mcp import MCPError

        if self._tool.tasks != "never":
            await self._keep_task()
        failed = 0
        most_tries = CONNECT_TRIES if self._once else 1
        while True:
            connection = self._connections.connection_to(self._server)
            try:
                return await self._send_request(connection, arguments, answers)
            except MCPError as error:
                next_try = await self._failures.judge_error(connection, error, answers)
            except NotConnected as error:
                next_try = NothingHasRun(str(error))
            except ConnectionLost as error:
                raise self._failures.lost_error(str(error)) from None
            except ValidationError as error:
                raise tool_failed(
                    f"{self._server.label} has run the call, but its answer is not MCP: {error}"
                ) from None
            if next_try is None:
                continue
            failed += 1
            if failed == most_tries:
                raise self._failures.unreachable_error(next_try)
            await asyncio.sleep(
                max(FIRST_WAIT_SECONDS * 2 ** (failed - 1), min(next_try.seconds, LONGEST_WAIT_SECONDS))
            )

    async def _send_request(self, connection: ServerConnection, arguments: dict[str, Any], answers: Answers) -> Any:
        from mcp import types

        # Before 2026, a question is answered while it is asked.
        stateless = (await connection.opened_session()).discover_result is not None
        task: types.TaskMetadata | None = None
        request_state: str | None = None
        input_responses: Any = None
        if stateless:
            request_state = answers.state
            if answers.open:
                input_responses = _input_responses(answers)
        elif self._tool.tasks == "asked":
            task = types.TaskMetadata(ttl=round(self._server.patience.total_seconds() * 1000))
        parameters = types.CallToolRequestParams(
            name=self._tool.name,
            task=task,
            arguments=arguments,
            input_responses=input_responses,
            request_state=request_state,
            _meta={**self._read_meta(), names.MCP_IDEMPOTENCY_KEY: self._context.idempotency_key},
        )
        request = types.CallToolRequest(params=parameters)
        if parameters.task:
            send = partial(tasks.asked_for, request=request)
        else:
            send = partial(tasks.perhaps_made, request=request, progress=self._report_progress)
        answer = await self._exchange_request(connection, send, answers)
        if isinstance(answer, tasks.Task):
            return answer
        result: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        return result.validate_python(answer, by_name=False)

    def _read_meta(self) -> dict[str, Any]:
        """Raises ToolFailed."""
        try:
            if not self._server.meta:
                return {}
            return dict(self._server.meta(self._context))
        except Exception as error:  # noqa: BLE001 - it is the user's function
            cause = f"{type(error).__name__}: {error}"
            raise tool_failed(f"The call was not made: meta of {self._server.label} failed: {cause}") from None

    async def _exchange_request(
        self, connection: ServerConnection, send: Callable[[ClientSession], Coroutine[Any, Any, R]], answers: Answers
    ) -> R:
        """The answer to one request. Raises AsksPerson for what the server asks meanwhile."""
        call = RunningCall()
        is_asked = asyncio.Event()
        call.elicits = lambda question: self._on_elicitation(Elicitation.from_params(question), answers, is_asked)
        sending = asyncio.create_task(connection.run_call(call, send))
        waiting = asyncio.create_task(is_asked.wait())
        try:
            await asyncio.wait({sending, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if is_asked.is_set():
                call.answered = True
                raise answers.asking_error()
            return await sending
        finally:
            for task in (sending, waiting):
                task.cancel()
            await asyncio.gather(sending, waiting, return_exceptions=True)

    def _on_elicitation(self, question: Elicitation, answers: Answers, is_asked: asyncio.Event) -> types.ElicitResult:
        """A question that a server of before 2026 asks while it is at work."""
        from mcp import types

        if given := answers.given.get(question.key):
            return types.ElicitResult.model_validate(given)
        answers.open = {"": question}
        is_asked.set()
        return types.ElicitResult(action="cancel")

    async def _report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        details = {"progress": progress, "total": total, "message": message}
        self._context.heartbeat({name: value for name, value in details.items() if value is not None})

    # ------------------------------------------------------------ tasks

    async def _keep_task(self, task: str | None = None) -> None:
        try:
            await self._memory.keep(task=task)
        except Exception as error:  # noqa: BLE001 - Temporal's, whatever it is
            if task is None:
                raise Retry(f"The call was not made because it could not be recorded in Temporal: {error}") from None
            _log.warning("mcp.task_not_kept", server=self._server.label, error=str(error))

    async def _follow_new_task(self, task: tasks.Task, answers: Answers) -> types.CallToolResult:
        await self._keep_task(task.task_id)
        _log.info("mcp.task_began", server=self._server.label, tool=self._tool.name, task=task.task_id)
        await asyncio.sleep(task.poll_seconds)
        try:
            return await self._follow_task(task.task_id, answers)
        except tasks.TaskGone as error:
            raise self._failures.lost_error(f"it made the call a task, but does not know that task: {error}") from None

    async def _follow_task(self, task_id: str, answers: Answers) -> types.CallToolResult:
        """The task's result, once it has one. Raises TaskGone, AsksPerson and ToolFailed."""
        from mcp import types

        answers.task = task_id
        last_message = None
        try:
            while True:
                task = await self._poll_server(partial(tasks.read_status, task_id=task_id), answers)
                if task.message and task.message != last_message:
                    last_message = task.message
                    self._context.heartbeat({"message": cut_text(task.message)})
                if task.status == "input_required" and task.questions:
                    await self._answer_questions(task, answers)
                elif task.status != "working":
                    result = await self._poll_server(partial(tasks.read_result, task=task), answers)
                    return types.CallToolResult.model_validate(result, by_name=False)
                await asyncio.sleep(task.poll_seconds)
        except asyncio.CancelledError:
            if self._memory.is_cancelled:
                await self._cancel_task(task_id)
            raise
        except AsksPerson:
            if self._tool.tasks == "asked":
                # Before 2026, a task that asks waits for the answer while it is connected.
                await self._cancel_task(task_id)
                answers.task = None
            raise answers.asking_error() from None
        except tasks.TaskFailed as error:
            raise ToolFailed(f"The task of {self._server.label} has no result: {error}") from None
        except ValidationError as error:
            raise tool_failed(f"{self._server.label} answered what MCP does not know: {error}") from None

    async def _answer_questions(self, task: tasks.Task, answers: Answers) -> None:
        """Raises AsksPerson for what nobody has answered."""
        from mcp import types

        input_required = types.InputRequiredResult.model_validate(
            {"resultType": "input_required", "inputRequests": task.questions}, by_name=False
        )
        answers.open = _read_questions(input_required)
        if answers.next_question:
            raise answers.asking_error()
        responses = answers.responses()
        await self._poll_server(partial(tasks.send_answers, task_id=task.task_id, responses=responses), answers)

    async def _cancel_task(self, task_id: str) -> None:
        with suppress(Exception):
            async with asyncio.timeout(CANCEL_SECONDS):
                connection = self._connections.connection_to(self._server)
                await connection.run_call(RunningCall(), partial(tasks.cancel, task_id=task_id))

    async def _poll_server(self, send: Callable[[ClientSession], Coroutine[Any, Any, R]], answers: Answers) -> R:
        """What the server says of a task, however long it is away. Raises TaskGone."""
        from mcp import MCPError

        failed = 0
        while True:
            connection = self._connections.connection_to(self._server)
            try:
                return await self._exchange_request(connection, send, answers)
            except (NotConnected, ConnectionLost):
                pass
            except MCPError as error:
                if error.code in _AWAY:
                    await self._connections.renew(connection)
                elif error.code == error_codes.TOO_MUCH:
                    raise self._failures.unread_result_error(error) from None
                elif error.code in (error_codes.UNREADABLE, error_codes.PARSE_ERROR):
                    raise self._failures.unreadable_error(error) from None
                elif error.code != error_codes.NOT_SENT and not await self._failures.is_forgotten(connection, error):
                    raise tasks.TaskGone(error.message) from None
            await asyncio.sleep(min(FIRST_WAIT_SECONDS * 2**failed, LONGEST_WAIT_SECONDS))
            failed = min(failed + 1, 10)


def _is_asking(result: Any) -> bool:
    from mcp import types

    return isinstance(result, types.InputRequiredResult)


def _read_questions(result: types.InputRequiredResult) -> dict[str, Elicitation]:
    """Raises ToolFailed for requests that are not questions to a person."""
    from mcp import types

    questions = {}
    for name, request in (result.input_requests or {}).items():
        if not isinstance(request, types.ElicitRequest):
            raise ToolFailed(f"The server asks for {request.method}, which this client does not offer.")
        questions[name] = Elicitation.from_params(request.params)
    return questions


def _input_responses(answers: Answers) -> Any:
    from mcp import types

    return {name: types.ElicitResult.model_validate(response) for name, response in answers.responses().items()}
