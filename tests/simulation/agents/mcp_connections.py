"""A connection to a simulated MCP server, in the place of a program's pipes or of HTTP: the SDK's client is at its
other end, as it is. Both protocols are spoken: that with a handshake, and that of 2026."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import METHOD_NOT_FOUND, jsonrpc_message_adapter

from tests.simulation.agents.ledger import worker_of_this_task

if TYPE_CHECKING:
    from tests.simulation.agents.mcp_servers import SimulatedMcp

Json = dict[str, Any]

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

HEARS_AFTER_SECONDS = 4.0
"""A program that ponders hears so late that a call was given up; everturn expects its questions for a little longer."""


class Refusal(Exception):
    """An error in place of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


class Line:
    """What is sent on it comes in order. After its worker was killed, nothing that is sent on it arrives."""

    def __init__(self, server: SimulatedMcp) -> None:
        self.server = server
        self.worker = worker_of_this_task()
        self.to_client, self.client_reads = anyio.create_memory_object_stream[Any](math.inf)
        self.client_writes, self._from_client = anyio.create_memory_object_stream[Any](math.inf)
        self._requests: dict[Any, asyncio.Task[None]] = {}
        self._questions: dict[str, asyncio.Future[Json]] = {}
        self._listens: Any = None
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    @property
    def dead(self) -> bool:
        return self.worker is not None and not self.worker.alive

    def close(self, *, why: int = 0) -> None:
        """`why`: the code of the error that ends what is under way; 0: nothing is said, and a program's work ends."""
        self.server.lines.pop(self, None)
        for number, task in list(self._requests.items()):
            if why:
                self._say({"id": number, "error": {"code": why, "message": "the connection broke"}})
            if why or not self.server.modern:
                task.cancel()
        self._serving.cancel()
        self.to_client.close()

    def forget(self) -> None:
        """Its world is over, and so is whoever would have closed it."""
        for stream in (self.to_client, self.client_reads, self.client_writes, self._from_client):
            stream.close()

    async def _serve(self) -> None:
        async for sent in self._from_client:
            if self.dead:
                continue
            message = sent.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            number, method = message.get("id"), message.get("method")
            if method is None:
                if waiting := self._questions.pop(str(number), None):
                    waiting.set_result(message.get("result") or {"action": "refused"})
            elif number is not None:
                task = asyncio.get_running_loop().create_task(self._answer(number, method, message.get("params") or {}))
                self._requests[number] = task
            elif method == "notifications/cancelled" and not self.server.obstinate:
                if self.server.world.ponders:
                    asyncio.get_running_loop().call_later(HEARS_AFTER_SECONDS, self._give_up, message["params"])
                else:
                    self._give_up(message["params"])

    def _give_up(self, params: Json) -> None:
        if given_up := self._requests.pop(params.get("requestId"), None):
            given_up.cancel()

    async def _answer(self, number: Any, method: str, params: Json) -> None:
        try:
            if method == "subscriptions/listen":
                self._listens = number
                self.notify("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})
                return
            self._say({"id": number, "result": await self.server.handle(self, method, params)})
        except Refusal as refused:
            self._say({"id": number, "error": refused.error})
        finally:
            self._requests.pop(number, None)

    async def ask(self, params: Json) -> Json:
        """A question in the middle of a call, as before 2026."""
        self.server.count += 1
        number = f"q{self.server.count}"
        self._questions[number] = asyncio.get_running_loop().create_future()
        self._say({"id": number, "method": "elicitation/create", "params": params})
        return await self._questions[number]

    def notify(self, method: str, params: Json | None = None) -> None:
        told = {**(params or {})}
        if self.server.modern and method != "notifications/progress":
            if self._listens is None:
                return
            told["_meta"] = {SUBSCRIPTION: self._listens}
        self._say({"method": method, "params": told})

    def _say(self, message: Json) -> None:
        if not self.dead:
            known = jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message}, by_name=False)
            self.to_client.send_nowait(SessionMessage(known))


def unknown(method: str) -> Refusal:
    return Refusal(METHOD_NOT_FOUND, f"there is no {method}")
