"""What goes back, by the vendors' own request types: every member of their unions, in the versions of the lock file.

Each type of output is held against the type of input of the same name, level by level. A field that only outputs have
must not be in what is sent.
"""

from __future__ import annotations

from typing import Any

import pytest

from everturn.models import Model
from everturn.providers import anthropic_messages, openai_responses
from everturn.providers.base import Request
from everturn.records import Message
from tests.support.sdk_types import Pair, example, marked, pairs


@pytest.fixture(scope="module")
def items() -> list[Pair]:
    from openai.types.responses import ResponseInputItemParam, ResponseOutputItem

    return pairs(ResponseOutputItem, ResponseInputItemParam)


@pytest.fixture(scope="module")
def blocks() -> list[Pair]:
    from anthropic.types import ContentBlock, ContentBlockParam
    from anthropic.types.beta import BetaContentBlock, BetaContentBlockParam

    return [*pairs(ContentBlock, ContentBlockParam), *pairs(BetaContentBlock, BetaContentBlockParam)]


def test_the_types_are_found(items: list[Pair], blocks: list[Pair]) -> None:
    assert len(items) > 25
    assert len(blocks) > 28
    with_marks = {pair.name for pair in [*items, *blocks] if marked(example(pair.output, pair.inputs))}
    assert {"compaction", "shell_call", "shell_call_output", "text", "mcp_tool_result"} <= with_marks


def item_sent_back(pair: Pair) -> Any:
    item = example(pair.output, pair.inputs) | {"status": "completed"}
    request = Request(
        Model("openai:gpt-6"), [Message.user("?")], raw_tools=[{"type": "shell"}, {"type": "apply_patch"}]
    )
    reply = openai_responses.decode({"id": "r", "status": "completed", "output": [item]}, request)
    _, body = openai_responses.encode(
        Request(request.model, [*request.messages, reply.message, Message.user("Go on.")])
    )
    return [sent for sent in body["input"] if sent.get("role") != "user"]


def test_an_item_goes_back_without_what_only_outputs_have(items: list[Pair]) -> None:
    for pair in items:
        assert not marked(item_sent_back(pair)), pair.name


def block_sent_back(pair: Pair) -> Any:
    block = example(pair.output, pair.inputs) | {"id": "srvtoolu_1", "tool_use_id": "srvtoolu_1"}
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "any", "input": {}}
    text = {"type": "text", "text": "And so."}
    request = Request(Model("anthropic:claude-opus-5-5"), [Message.user("?")])
    reply = anthropic_messages.decode({"content": [use, block, text], "stop_reason": "end_turn"}, request)
    messages = [*request.messages, reply.message, Message.user("Go on.")]
    _, body = anthropic_messages.encode(Request(request.model, messages))
    return body["messages"]


def test_a_block_goes_back_without_what_only_outputs_have(blocks: list[Pair]) -> None:
    for pair in blocks:
        assert not marked(block_sent_back(pair)), pair.output.__name__
