"""Three providers: one that speaks Chat Completions as OpenAI does, one with a dialect, one with its own protocol."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from everturn import Message, Text, ToolCall, ToolResult, Usage
from everturn.errors import InvalidReply
from everturn.providers import Abilities, Delta, Dialect, ModelRow, Reply, Request, Row, StreamEvent

ACME = Row(base_url="https://llm.acme.example/v1", keys=("ACME_API_KEY",))

ACME_CLOUD = Row(
    base_url="https://cloud.acme.example/v1",
    keys=("ACME_API_KEY",),
    key_header="x-acme-key",
    dialect=Dialect(max_tokens="max_completion_tokens", required="any", server_tools=(("WebSearch", "acme_search"),)),
    models=(
        ModelRow(re.compile(r"tiny"), Abilities(efforts=(), calls=False), "acme.example, models (2026-11)"),
        ModelRow(re.compile(r""), Abilities(efforts=("low", "high")), "acme.example, models (2026-11)"),
    ),
)


class OwnProtocol:
    """POST /talk with what was said so far; the answer says something, and may want functions to be called."""

    def encode(self, request: Request) -> tuple[str, dict[str, Any]]:
        spoken: list[dict[str, Any]] = []
        if request.instructions:
            spoken.append({"who": "system", "says": request.instructions})
        for message in request.messages:
            spoken.append({"who": message.role, "says": message.text})
            for part in message.parts:
                match part:
                    case ToolCall():
                        spoken.append(
                            {"who": "function", "id": part.call_id, "name": part.name, "with": part.arguments}
                        )
                    case ToolResult():
                        spoken.append({"who": "result", "id": part.call_id, "says": part.text})
        body: dict[str, Any] = {"model": request.model.model, "said": spoken, "stream": request.settings.stream}
        if request.tools:
            body["functions"] = [{"name": tool.name, "takes": dict(tool.parameters)} for tool in request.tools]
        return "/talk", body

    def decode(self, body: object, request: Request) -> Reply:
        if not isinstance(body, dict) or "says" not in body:
            raise InvalidReply(f"The reply of {request.model.name!r} says nothing.", provider=request.model.provider)
        calls = [
            ToolCall(call_id=call["id"], name=call["name"], arguments=call["with"]) for call in body.get("wants", ())
        ]
        texts = [Text(text=body["says"])] if body["says"] else []
        spent = body.get("spent", {})
        return Reply(
            message=Message(role="assistant", parts=(*texts, *calls)),
            stop="tool_calls" if calls else "end",
            usage=Usage(input_tokens=spent.get("in", 0), output_tokens=spent.get("out", 0)),
            model=request.model.name,
        )

    def Assembler(self, request: Request) -> OwnStream:  # noqa: N802 - as in everturn's own protocols
        return OwnStream(self, request)


@dataclass
class OwnStream:
    """Events with pieces of text; the last one has the whole answer."""

    protocol: OwnProtocol
    request: Request
    done: bool = False
    usage_so_far: Usage = field(default_factory=Usage)
    _whole: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.done

    def feed(self, event: StreamEvent) -> list[Delta]:
        data = json.loads(event.data)
        if "whole" in data:
            self._whole, self.done = data["whole"], True
            return []
        return [Delta("text", data["piece"])]

    def finish(self) -> Reply:
        if not self.done:
            raise InvalidReply(f"The stream of {self.request.model.name!r} ended in the middle.")
        return self.protocol.decode(self._whole, self.request)


ACME_OWN = Row(OwnProtocol(), base_url="https://own.acme.example", keys=("ACME_API_KEY",))
