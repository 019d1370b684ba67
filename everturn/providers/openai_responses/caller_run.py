"""Responses: the provider's own tools that its caller runs, such as a shell. Their calls are items of their own kinds,
and so are the results.

A call's arguments are what it asks for (a shell's `action`, a patch's `operation`), and the rest of its item is beside
it, so that it goes back as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from everturn.providers.base import NO_RESULT, Request
from everturn.providers.json_values import (
    a_dict,
    a_list,
    a_str,
    an_int,
    object_in,
    parse_json,
    text_or_json,
    write_json,
)
from everturn.providers.media import in_words, url_of
from everturn.records import Document, Image, Text, ToolCall, ToolResult
from everturn.tools.provider_defined import MCP_APPROVAL, called_as, custom_names

Item = dict[str, Any]

NAMES: Final[Mapping[str, str]] = {
    "shell_call": "shell",
    "local_shell_call": "local_shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
    "mcp_approval_request": MCP_APPROVAL,
}
"""By the item's type, the name of its call."""

_ASKS_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "shell_call": ("action",),
    "local_shell_call": ("action",),
    "apply_patch_call": ("operation",),
}
"""The field whose object is the call's arguments. A computer's are in one of two, and keep their names."""

_ACTIONS: Final = ("action", "actions")
_ASKED_FOR: Final = ("server_label", "name")
_NEEDS_ID: Final = frozenset({"computer_call", "local_shell_call"})

_NO_SCREENSHOT: Final = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""One pixel. A computer's result has to be a picture, and a call that failed has none; why is said after it."""


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """What a request has its caller run, beside functions."""

    custom: frozenset[str]
    """The names of custom tools."""
    kinds: frozenset[str]
    """The types of other items that are calls."""


def declared_tools(request: Request) -> DeclaredTools:
    names = {name for item in request.raw_tools for name in called_as(item)}
    return DeclaredTools(
        custom_names(request.raw_tools), frozenset(kind for kind, name in NAMES.items() if name in names)
    )


def kind_of(call: ToolCall) -> str | None:
    """The type of the item that the call came as, if it is one of these and came whole."""
    kind = call.extra.get("type")
    if isinstance(kind, str) and kind in NAMES and call.unparsed is None:
        return kind
    return None


def given_id(item: Item) -> str:
    """What the item calls itself, for its result."""
    name = "id" if item.get("type") == "mcp_approval_request" else "call_id"
    return a_str(item.get(name))


def call_of(item: Item, *, call_id: str, provider_id: str | None, cut_off: bool) -> ToolCall:
    kind = a_str(item["type"])
    extra = {name: value for name, value in item.items() if name != "call_id"}
    arguments: dict[str, Any]
    if kind in _ASKS_IN:
        arguments = a_dict(extra.pop(_ASKS_IN[kind][0], None))
    elif kind == "computer_call":
        arguments = {name: extra.pop(name) for name in _ACTIONS if extra.get(name) is not None}
    else:
        arguments = {name: a_str(extra.pop(name, None)) for name in _ASKED_FOR}
        text = a_str(extra.pop("arguments", None))
        parsed = object_in(text)
        if parsed is None:
            arguments["arguments"] = text
        else:
            arguments["arguments"] = parsed
            if write_json(parsed).decode() != text:
                extra["arguments"] = text
        extra.pop("id", None)
    unparsed = None
    if cut_off:
        unparsed = write_json(arguments).decode()
        arguments = {}
    return ToolCall(
        call_id=call_id,
        name=NAMES[kind],
        arguments=arguments,
        provider_id=provider_id,
        unparsed=unparsed,
        extra=extra,
    )


def item_of(call: ToolCall, *, wire_id: str) -> Item:
    """The item again, as it came."""
    kind = a_str(call.extra.get("type"))
    if kind == "mcp_approval_request":
        arguments = text_or_json(call.arguments.get("arguments"))
        names = {name: call.arguments.get(name) for name in _ASKED_FOR}
        return {**call.extra, **names, "arguments": call.extra.get("arguments", arguments), "id": wire_id}
    # If it need not have an id it goes without: servers look up what an id says.
    extra = {name: value for name, value in call.extra.items() if name != "id" or kind in _NEEDS_ID}
    item = {**extra, "call_id": wire_id}
    if kind in _ASKS_IN:
        return item | {_ASKS_IN[kind][0]: call.arguments}
    return item | call.arguments


def result_items(call: ToolCall, result: ToolResult | None, *, wire_id: str) -> Iterator[Item]:
    """The item of the result, in the shape that this kind of call wants; and what has no room in it."""
    result = result or ToolResult(call_id=call.call_id, content=(Text(text=NO_RESULT),), is_error=True)
    notice, content = _split_notice(result)
    text = "\n".join(_part_texts(content))
    value = _parse_value(text)
    match call.extra.get("type"):
        case "shell_call":
            output = _output_chunks(text, value, failed=result.is_error)
            if notice:
                output.insert(0, _output_chunk({"stdout": notice}))
            item: Item = {"type": "shell_call_output", "call_id": wire_id, "output": output}
            if (longest := call.arguments.get("max_output_length")) is not None:
                item["max_output_length"] = longest
            yield item
        case "apply_patch_call":
            fields = a_dict(value)
            status = "completed"
            if fields.get("status") in ("completed", "failed"):
                status = fields["status"]
                text = a_str(fields.get("output"))
            yield {
                "type": "apply_patch_call_output",
                "call_id": wire_id,
                "status": "failed" if result.is_error else status,
                "output": f"{notice}\n{text}".strip(),
            }
        case "computer_call":
            yield from _screenshot_items(call, result, wire_id=wire_id)
        case "mcp_approval_request":
            approved = not result.is_error and value is not False and a_dict(value).get("approve") is not False
            response: Item = {"type": "mcp_approval_response", "approval_request_id": wire_id, "approve": approved}
            reason = a_str(a_dict(value).get("reason"))
            if result.is_error:
                reason = reason or text
            if reason and not approved:
                response["reason"] = reason
            yield response
        case _:
            yield {"type": "local_shell_call_output", "call_id": wire_id, "output": f"{notice}\n{text}".lstrip("\n")}


def _split_notice(result: ToolResult) -> tuple[str, tuple[Text | Image | Document, ...]]:
    """What the model is told of a person's word, and what the tool said."""
    if result.decision and result.decision.is_told and len(result.content) > 1:
        first, *rest = result.content
        if isinstance(first, Text):
            return first.text, tuple(rest)
    return "", result.content


def _part_texts(content: Iterable[Text | Image | Document]) -> list[str]:
    return [part.text if isinstance(part, Text) else in_words(part) for part in content]


def _parse_value(text: str) -> Any:
    """What a function returned, if it was no text."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _output_chunks(text: str, value: Any, *, failed: bool) -> list[Item]:
    """A shell's output: as its function gave it (`stdout`, `stderr`, `exit_code`; of several commands a list), or the
    text as what it printed."""
    chunks = a_dict(value).get("output", value)
    if not isinstance(chunks, list):
        chunks = [value]
    if chunks and all(isinstance(chunk, dict) and chunk.keys() & {"stdout", "stderr", "outcome"} for chunk in chunks):
        return [_output_chunk(chunk) for chunk in chunks]
    if failed:
        return [_output_chunk({"stderr": text, "exit_code": 1})]
    return [_output_chunk({"stdout": text})]


def _output_chunk(given: Mapping[str, Any]) -> Item:
    outcome = a_dict(given.get("outcome"))
    if not outcome and given.get("timed_out") is True:
        outcome = {"type": "timeout"}
    elif not outcome:
        code = an_int(given.get("exit_code"))
        outcome = {"type": "exit", "exit_code": 0 if code is None else code}
    return {"stdout": a_str(given.get("stdout")), "stderr": a_str(given.get("stderr")), "outcome": outcome}


def _screenshot_items(call: ToolCall, result: ToolResult, *, wire_id: str) -> Iterator[Item]:
    pictures = [part for part in result.content if isinstance(part, Image)]
    image_url = _NO_SCREENSHOT
    if pictures and not result.is_error:
        image_url = url_of(pictures[-1])
    item: Item = {
        "type": "computer_call_output",
        "call_id": wire_id,
        "output": {"type": "computer_screenshot", "image_url": image_url},
    }
    checks = a_list(call.extra.get("pending_safety_checks"))
    if checks and not result.is_error:  # it ran, as a person has let it
        item["acknowledged_safety_checks"] = checks
    yield item
    if text := "\n".join(part.text for part in result.content if isinstance(part, Text)):
        yield {"role": "user", "content": f"[Of the computer] {text}"}
