"""Claude's newest models bind a thought to the system prompt, the tools and all messages before it. Whatever everturn
or an agent's author changes there: the conversation goes on, and the reply's details say what was lost."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

import pytest

from everturn import Agent, Client, Compaction, HandOff, Limits, Model, ModelSettings, tool
from everturn.events import Replied
from tests.support.agents import hosting
from tests.support.provider_server import Answer, Asked, ProviderServer, Status, claude

Json = dict[str, Any]
CALL = {"type": "tool_use", "name": "look_up", "input": {"order_id": "81"}}
LONG = "A desk lamp. " * 60


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")


@tool(effect="read")
def look_up(order_id: str) -> str:
    """What was ordered."""
    return LONG


@tool(effect="read")
def find(text: str) -> str:
    """Finds an order."""
    return text


class Sealing:
    """Answers as such a model does, behind a gateway that knows no `thinking.block_binding`. It calls a tool in each of
    its first `calls` replies."""

    def __init__(self, *, calls: int = 2, call: Json = CALL) -> None:
        self.calls, self.call = calls, call
        self.refused: list[str] = []
        self.brought: list[int] = []
        """How many thoughts each accepted request brought back."""

    def __call__(self, asked: Asked) -> Answer:
        body, before, brought = asked.body, list[Any](), 0
        for place, message in enumerate(body["messages"]):
            content, done = message["content"], list[Any]()
            for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
                if block["type"] == "thinking":
                    brought += 1
                    if block["signature"] != self._seal(body, [*before, done]):
                        said = f"messages.{place}: Invalid `signature` in `thinking` block. The block is bound to a "
                        said += "different conversation."
                        self.refused.append(said)
                        return Status(400, {"error": {"type": "invalid_request_error", "message": said}})
                done.append(_bare(block))
            before.append(done)
        self.brought.append(brought)
        thought = {"type": "thinking", "thinking": "", "signature": self._seal(body, [*before, []])}
        replies = sum(message["role"] == "assistant" for message in body["messages"])
        if replies < self.calls and body.get("tool_choice") != {"type": "none"}:
            return claude(thought, {**self.call, "id": f"toolu_{len(self.brought)}"}, stop="tool_use")
        return claude(thought, {"type": "text", "text": "A desk lamp."})

    def _seal(self, body: Json, before: list[Any]) -> str:
        beginning = json.dumps([_bare(body.get("system")), _bare(body.get("tools")), before])
        return hashlib.sha256(beginning.encode()).hexdigest()


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(inner) for name, inner in value.items() if name != "cache_control"}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


def _agents(case: str, model: Model) -> list[Agent]:
    turn = itertools.count()

    def agent(name: str = "clerk", **options: Any) -> Agent:
        settings = ModelSettings(stream=False)
        return Agent(name, **{"model": model, "tools": [look_up, find], "settings": settings, **options})

    def by_turn(_: Any, tools: list[Any]) -> list[Any]:
        return tools[:1] if next(turn) % 2 else tools

    def reversed_at_times(_: Any, tools: list[Any]) -> list[Any]:
        return tools[::-1] if next(turn) % 2 else tools

    match case:
        case "instructions by a function":
            return [agent(instructions=lambda: f"It is minute {next(turn)}.")]
        case "tools by a function":
            return [agent(prepare_tools=by_turn)]
        case "tools in another order":
            return [agent(prepare_tools=reversed_at_times)]
        case "results that are trimmed":
            return [agent(compaction=Compaction(window_tokens=100, at=0.1, keep_messages=1))]
        case "a limit":
            return [agent(limits=Limits(max_turns=2))]
        case "a handoff":
            there = agent("desk", instructions="You have the desk.")
            return [agent(handoff_to=[HandOff(there)]), there]
    raise AssertionError(case)


@pytest.mark.parametrize(
    ("case", "refused", "lost"),
    [
        ("instructions by a function", 1, 3),  # once: then it is known that this server binds them
        ("tools by a function", 1, 3),
        ("tools in another order", 0, 0),
        ("a limit", 0, 0),
        ("a handoff", 1, 1),
        ("results that are trimmed", 3, 3),
    ],
)
async def test_a_conversation_goes_on_after_its_beginning_has_changed(
    client: Client, case: str, refused: int, lost: int
) -> None:
    call = {"type": "tool_use", "name": "transfer_to_desk", "input": {}} if case == "a handoff" else CALL
    sealing = Sealing(calls=1 if case == "a handoff" else 3, call=call)
    with ProviderServer(sealing) as server:
        model = Model("anthropic:claude-opus-5-5", base_url=server.base_url)
        agents = _agents(case, model)
        async with hosting(client, *agents):
            conversation = await client.start(agents[0], "What is order 81?")
            outcome = await conversation.outcome()
            details = [event.details async for event in conversation.events() if isinstance(event, Replied)]
    assert (outcome.text, len(sealing.refused)) == ("A desk lamp.", refused)
    assert sum(detail.get("thoughts_left_out", 0) for detail in details) == lost
    if not refused:
        assert sealing.brought == [*range(len(sealing.brought))]  # every thought came back
