"""One call of an MCP server's tool: sent over the worker's connection, with what people answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from everturn.errors import Retry, ToolFailed
from everturn.records import Document, Image, Text
from everturn.tools.asking import OutcomeUnknown, answered
from everturn.tools.context import ToolContext
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.connections import ConnectionLost, NotConnected, Running, ServerConnection, ServerConnections
from everturn.tools.mcp.questions import Answers, AsksTooMuch, Elicitation
from everturn.tools.mcp.results import parts_of
from everturn.tools.tool import Effect

if TYPE_CHECKING:
    from mcp import MCPError, types

IDEMPOTENCY_KEY = "everturn/idempotencyKey"
"""In a call's `_meta`: the same for every try of it."""

CONNECT_TRIES = 6
"""For a run-once tool: as long as nothing was sent, it can be tried again here, and nowhere else."""
FIRST_WAIT_SECONDS = 0.5

_LATER = (408, 425, 429, 502, 503, 504)
"""HTTP statuses of what is before a server, or of a server that has not begun."""

ROUNDS = 30
"""Of questions and answers in one try, with nobody asked."""


class ServerCall:
    """One try. `tool`: the server's name for it."""

    def __init__(
        self, connections: ServerConnections, server: McpServer, tool: str, effect: Effect, context: ToolContext
    ) -> None:
        self._connections = connections
        self._server = server
        self._tool = tool
        self._effect = effect
        self._context = context
        self._begun_anew = False

    async def result(self, arguments: dict[str, Any]) -> list[Text | Image | Document]:
        """Raises AsksPerson, Retry, OutcomeUnknown and ToolFailed."""
        try:
            answers = Answers.after(answered())
            for _ in range(ROUNDS):
                result = await self._sent(arguments, answers)
                if not _asks(result):
                    return parts_of(result)
                answers.state, answers.open = result.request_state, _questions(result)
                if answers.next_question:
                    raise answers.asks()
        except AsksTooMuch as error:
            raise ToolFailed(f"{self._server.label} can't be answered: {error}.") from None
        raise ToolFailed(f"{self._server.label} asks the same again and again.")

    async def _sent(self, arguments: dict[str, Any], answers: Answers) -> Any:
        """The server's answer to one request, once there is one."""
        from mcp import MCPError

        failed, most = 0, CONNECT_TRIES if self._effect == "once" else 1
        while True:
            connection = self._connections.to(self._server)
            try:
                return await self._request(connection, arguments, answers)
            except MCPError as error:
                why = await self._failed(connection, error, answers)
            except NotConnected as error:
                why = str(error)
            except ConnectionLost as error:
                raise self._lost(str(error)) from None
            except ValidationError as error:
                raise ToolFailed(f"{self._server.label} answered what MCP does not know: {error}"[:2000]) from None
            if why is None:
                continue
            failed += 1
            if failed == most:
                raise self._unreachable(why)
            await asyncio.sleep(FIRST_WAIT_SECONDS * 2 ** (failed - 1))

    def _unreachable(self, why: str) -> Exception:
        text = f"{self._server.label} can't be reached: {why}."
        return ToolFailed(f"{text} The call was not made.") if self._effect == "once" else Retry(text)

    async def _request(self, connection: ServerConnection, arguments: dict[str, Any], answers: Answers) -> Any:
        from mcp import types

        # Before 2026, a question is answered while it is asked.
        stateless = (await connection.session()).discover_result is not None
        parameters = types.CallToolRequestParams(
            name=self._tool,
            arguments=arguments,
            input_responses=_input_responses(answers) if stateless and answers.open else None,
            request_state=answers.state if stateless else None,
            _meta={IDEMPOTENCY_KEY: self._context.idempotency_key},
        )
        call, asked = Running(), asyncio.Event()
        call.elicits = lambda question: self._elicited(Elicitation.of(question), answers, asked)
        request = types.CallToolRequest(params=parameters)
        result: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        sending = asyncio.create_task(connection.request(call, request, result, progress=self._progress))
        waiting = asyncio.create_task(asked.wait())
        try:
            await asyncio.wait({sending, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if asked.is_set():
                raise answers.asks()
            return await sending
        finally:
            for task in (sending, waiting):
                task.cancel()
            await asyncio.gather(sending, waiting, return_exceptions=True)

    def _elicited(self, question: Elicitation, answers: Answers, asked: asyncio.Event) -> types.ElicitResult:
        """A question that a server of before 2026 asks while it is at work."""
        from mcp import types

        if given := answers.given.get(question.key):
            return types.ElicitResult.model_validate(given)
        answers.open = {"": question}
        asked.set()
        return types.ElicitResult(action="cancel")

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        said = {"progress": progress, "total": total, "message": message}
        self._context.heartbeat({name: value for name, value in said.items() if value is not None})

    async def _failed(self, connection: ServerConnection, error: MCPError, answers: Answers) -> str | None:
        """Why it is worth another try, for nothing has run; None for one at once. Raises what it is otherwise."""
        from mcp import types

        from everturn.tools.mcp.transports import HTTP_STATUS, LOST, NOT_SENT, SESSION_GONE

        code, begun_anew = error.code, self._begun_anew
        if code == NOT_SENT:
            return error.message
        if code in (types.CONNECTION_CLOSED, LOST):
            await self._connections.renew(connection)
            raise self._lost(error.message)
        if code == HTTP_STATUS:
            return await self._refused(connection, error)
        if not begun_anew and code == SESSION_GONE:
            self._begun_anew = True
            await self._connections.renew(connection)
            return None
        if not begun_anew and code == types.HEADER_MISMATCH:
            self._begun_anew = True
            await (await connection.session()).list_tools()
            return None
        if not begun_anew and answers.state is not None:
            # What it gave us to remember means nothing to it any more. It asks again, and finds what was answered.
            self._begun_anew, answers.state, answers.open = True, None, {}
            return None
        raise ToolFailed(f"{self._server.label} refused the call: {error.message}")

    async def _refused(self, connection: ServerConnection, error: MCPError) -> str:
        """By an HTTP status."""
        status = (error.data or {}).get("status", 0)
        if status in _LATER:
            return error.message
        if status >= 500:
            raise self._lost(error.message)
        await self._connections.renew(connection)  # its headers may have changed
        raise ToolFailed(f"{self._server.label} refused the call: {error.message}")

    def _lost(self, why: str) -> Exception:
        text = f"{self._server.label} was lost in the middle of the call: {why}."
        return OutcomeUnknown(text) if self._effect == "once" else Retry(text)


def _asks(result: Any) -> bool:
    from mcp import types

    return isinstance(result, types.InputRequiredResult)


def _questions(result: types.InputRequiredResult) -> dict[str, Elicitation]:
    """Raises ToolFailed for what is no question to a person."""
    from mcp import types

    questions = {}
    for name, request in (result.input_requests or {}).items():
        if not isinstance(request, types.ElicitRequest):
            raise ToolFailed(f"The server asks for {request.method}, which is not to be had here.")
        questions[name] = Elicitation.of(request.params)
    return questions


def _input_responses(answers: Answers) -> Any:
    from mcp import types

    return {name: types.ElicitResult.model_validate(one) for name, one in answers.responses().items()}
