"""Responses: items of a reply read into parts, and parts written as the items that they were, byte for byte.

An item is what the protocol's `output` and `input` hold: a message, a reasoning, a call, a tool that the server ran.
A message and a reasoning hold blocks; each block is a part, and the item's other fields are the first one's
`extra["item"]`. An item of a shape that blocks don't cover is kept whole there, which its `type` tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from everturn.providers.base import UNPARSED, plain_name
from everturn.providers.json_values import (
    NO_ARGUMENTS,
    a_dict,
    a_list,
    a_str,
    arguments_in,
    mend_texts,
    object_in,
    text_or_json,
    write_json,
)
from everturn.providers.openai_responses import caller_run
from everturn.providers.openai_responses.caller_run import DeclaredTools, Item
from everturn.providers.reading import MAX_REPLY_NAME_CHARS
from everturn.records import Message, Opaque, Part, ServerToolUse, Text, Thinking, ToolCall

_BLOCK_OF = {"summary": "summary_text", "content": "reasoning_text"}
_OUTPUT_ONLY: Mapping[str, frozenset[str]] = {"custom_tool_call_output": frozenset({"created_by", "status"})}
_OF_OUTPUTS = frozenset({"created_by"})
"""Fields that only replies have: a request with one is refused ("Unknown parameter"). By the types of openai 3.52.0;
tests/providers/test_request_types.py walks all of them."""

_RUN_BY_SERVER = re.compile(r"_call(_output)?$|^mcp_|^tool_search_|^program(_output)?$")


def is_call(item: Item, declared: DeclaredTools) -> bool:
    """Whether the item is a call for us. xAI streams its own searches as calls of custom tools: what we did not
    declare as such was run by the server."""
    match item.get("type"):
        case "function_call":
            return True
        case "custom_tool_call":
            return a_str(item.get("name")) in declared.custom
        case str(kind):
            return kind in declared.kinds
        case _:
            return False


def parts_of(item: Item, *, logprobs: bool) -> list[Part]:
    """The parts of an item that is no call for us. `logprobs`: whether they were asked for; else they are left out."""
    item = mend_texts(item)
    match item.get("type"):
        case "message":
            return _message_parts(item, logprobs=logprobs)
        case "reasoning":
            return _reasoning_parts(item)
        case str(kind) if _RUN_BY_SERVER.search(kind):
            name = a_str(item.get("name")) or kind.removesuffix("_call")
            return [ServerToolUse(name=name[:MAX_REPLY_NAME_CHARS], data=item)]
        case _:
            return [Opaque(data=item)]


def call_of(item: Item, *, name: str, call_id: str, provider_id: str | None, cut_off: bool) -> ToolCall:
    """The call in an item. Arguments that may have been `cut_off` are not taken for whole."""
    item = mend_texts(item)
    if item["type"] in caller_run.NAMES:
        return caller_run.call_of(item, call_id=call_id, provider_id=provider_id, cut_off=cut_off)
    arguments: dict[str, Any] | None
    if item["type"] == "custom_tool_call":
        text = a_str(item.get("input"))
        extra = _without_fields(item, "call_id", "name", "input")
        arguments = {"input": text}
    else:
        given = item.get("arguments")
        text = "" if given is None else text_or_json(given)
        extra = _without_fields(item, "type", "call_id", "name", "arguments")
        if not text.strip() or text.strip() in NO_ARGUMENTS:
            arguments = {}
        else:
            arguments = arguments_in(text)
            if arguments is not None and write_json(arguments).decode() != text:
                extra["arguments"] = text  # as the model wrote them: the server's cache of the prompt goes by tokens
    if cut_off:
        arguments = None
    return ToolCall(
        call_id=call_id,
        name=name,
        arguments=arguments or {},
        provider_id=provider_id,
        unparsed=text if arguments is None else None,
        extra=extra,
    )


def own_items(message: Message, *, wire_id: Callable[[ToolCall], str]) -> list[Item]:
    """The items of a message that this provider made, as they came."""
    items: list[Item] = []
    blocks: list[Any] | None = None
    for part in message.parts:
        match part:
            case Text() | Thinking():
                frame = part.extra.get("item")
                kind = "message" if isinstance(part, Text) else "reasoning"
                if frame is not None or blocks is None or items[-1].get("type") != kind:
                    blocks = _open_item(items, kind, a_dict(frame))
                if blocks is not None and isinstance(part, Text):
                    blocks.append(_text_block(part))
                elif blocks is not None and isinstance(part, Thinking) and (part.text or frame is None):
                    blocks.append(_thought_block(part, items[-1], blocks))
            case ToolCall():
                items.append(own_call(part, wire_id=wire_id(part)))
                blocks = None
            case ServerToolUse(data=dict(item)) | Opaque(data=dict(item)) if item:
                items.append(item)
                blocks = None
            case _:
                pass
    return [as_input(item) for item in items]


def as_input(item: Item) -> Item:
    """The item without what only replies have, in it and in the list of its output."""
    left_out = _OUTPUT_ONLY.get(a_str(item.get("type")), _OF_OUTPUTS)
    if left_out & item.keys():
        item = _without_fields(item, *left_out)
    output = item.get("output")
    if isinstance(output, list) and any(_OF_OUTPUTS & a_dict(block).keys() for block in output):
        item = item | {"output": [_without_fields(block, *_OF_OUTPUTS) for block in map(a_dict, output)]}
    return item


def own_call(call: ToolCall, *, wire_id: str) -> Item:
    if caller_run.kind_of(call):
        return caller_run.item_of(call, wire_id=wire_id)
    item: Item = {"type": "function_call"}
    if a_str(call.extra.get("type")) not in caller_run.NAMES:
        # Its id is left out: servers look up what an id says, and a call is paired by its call_id alone.
        item |= _without_fields(call.extra, "id", "status", "arguments")
    item |= {"call_id": wire_id, "name": plain_name(call.name)}
    if item["type"] == "custom_tool_call":
        if call.unparsed is not None:
            return item | {"input": call.unparsed}
        return item | {"input": a_str(call.arguments.get("input"))}
    return item | {"arguments": _arguments_text(call, as_written=call.extra.get("arguments"))}


def others_items(message: Message, *, wire_id: Callable[[ToolCall], str]) -> Iterator[Item]:
    """The items of a message that another provider made: what it said, and its calls."""
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            yield from _assistant_item(texts)
            texts = []
            call: Item = {"type": "function_call", "call_id": wire_id(part), "name": plain_name(part.name)}
            yield call | {"arguments": _arguments_text(part)}
    yield from _assistant_item(texts)


def _assistant_item(texts: Sequence[str]) -> Iterator[Item]:
    if text := "".join(texts):
        yield {"role": "assistant", "content": text}


def _message_parts(item: Item, *, logprobs: bool) -> list[Part]:
    content = item.get("content")
    if isinstance(content, str):  # as requests may have it
        content = [{"type": "output_text", "text": content}]
    blocks = [_lean_block(a_dict(block), logprobs=logprobs) for block in a_list(content)]
    if not blocks or not all(map(_is_text, blocks)):
        text = "".join(a_str(block.get(_text_field(block))) for block in blocks)
        if not text:
            return [Opaque(data=item)]
        return [Text(text=text, extra={"item": item})]
    frame = _item_frame(item, "content")
    if frame.get("role") == "assistant":
        del frame["role"]
    parts: list[Part] = []
    for block in blocks:
        field = _text_field(block)
        extra = _without_fields(block, field)
        if extra["type"] == "output_text":
            del extra["type"]
        if not parts:
            extra = {"item": frame, **extra}
        parts.append(Text(text=block[field], extra=extra))
    return parts


def _text_field(block: Mapping[str, Any]) -> str:
    return "refusal" if block.get("type") == "refusal" else "text"


def _is_text(block: Mapping[str, Any]) -> bool:
    name = {"output_text": "text", "text": "text", "refusal": "refusal"}.get(a_str(block.get("type")))
    return name is not None and isinstance(block.get(name), str) and "item" not in block


def _lean_block(block: dict[str, Any], *, logprobs: bool) -> dict[str, Any]:
    left_out = {name for name in ("annotations", "logprobs") if block.get(name) == []}
    if not logprobs:
        left_out.add("logprobs")
    return _without_fields(block, *left_out)


def _text_block(part: Text) -> dict[str, Any]:
    extra = _without_fields(part.extra, "item")
    if extra.get("type") == "refusal":
        return {**extra, "refusal": part.text}
    return {"type": "output_text", "annotations": [], **extra, "text": part.text}


def _reasoning_parts(item: Item) -> list[Part]:
    """A part for each block of the summary, or, if a server shows the thoughts themselves, of these."""
    summary = a_list(item.get("summary"))
    content = a_list(item.get("content"))
    name = "content" if content and not summary else "summary"
    texts = [a_str(a_dict(block).get("text")) for block in summary or content]
    plain = [{"type": _BLOCK_OF[name], "text": text} for text in texts]
    if (summary and content) or (summary or content) != plain or (name == "content" and "summary" not in item):
        return [Thinking(text="\n\n".join(texts), extra={"item": item})]
    if texts[:1] == [""]:
        return [Thinking(text="".join(texts), extra={"item": item})]
    first, *others = texts or [""]
    frame = _item_frame(item, name)
    return [Thinking(text=first, extra={"item": frame}), *(Thinking(text=text) for text in others)]


def _thought_block(part: Thinking, item: Item, blocks: list[Any]) -> dict[str, Any]:
    kind = _BLOCK_OF["content" if item.get("content") is blocks else "summary"]
    return {"type": kind, "text": part.text}


def _open_item(items: list[Item], kind: str, frame: Item) -> list[Any] | None:
    """Starts an item, and returns the list for its blocks; None if it has them already."""
    if "type" in frame:
        items.append(frame)
        return None
    blocks: list[Any] = []
    item: Item = {"type": kind}
    if kind == "message":
        item["role"] = "assistant"
    name = "content" if kind == "message" or "summary" in frame else "summary"
    items.append({**item, **frame, name: blocks})
    return blocks


def _item_frame(item: Item, blocks: str) -> Item:
    return _without_fields(item, "type", blocks)


def _without_fields(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _arguments_text(call: ToolCall, *, as_written: object = None) -> str:
    if call.unparsed is not None:
        return write_json({UNPARSED: call.unparsed}).decode()
    # A call that somebody edited since says what it says now.
    if isinstance(as_written, str) and object_in(as_written) == call.arguments:
        return as_written
    return write_json(call.arguments).decode()
