"""The differences between a recorded request and ours that change nothing: the written list.

Every protocol: fields in another order, nulls, empty lists; whether a text stands alone or in a list of one block;
how JSON in a text is spaced; `developer` for `system`.
Chat: leading system messages apart or in one, since many servers take one only; an image's or a file's own spelling;
`refusal`, `annotations`, `audio` and `function_call` of an assistant's message, which no server wants back; thoughts of
a reply without calls, which servers may have back and don't need.
Responses: `id` and `status` of calls, for a call is paired by its call_id; `logprobs`; `detail` of a picture.
Messages: cache_control; `citations` that a client lost; `is_error: false`; `caller: direct`, which is the default; a
user's turns in a row, in one or apart; system messages in the middle, which older models refuse (ours come first).
generateContent: names in snake_case; base64 in the URL alphabet; ids of calls, where the provider gave none; the key
that a result stands under, and the words that announce a file; contents of one role in a row, in one or apart; pieces
of text without a signature, in one or apart; empty texts without a signature.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_CAMEL = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "thought_signature": "thoughtSignature",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "tool_call": "toolCall",
    "tool_response": "toolResponse",
    "tool_type": "toolType",
    "video_metadata": "videoMetadata",
}


def plain(protocol: str, messages: str | list[Json]) -> list[Any]:
    """Messages, items or contents without what is benign, to be compared."""
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return {
        "openai_chat": _chat,
        "openai_responses": _responses,
        "anthropic_messages": _anthropic,
        "gemini_generate_content": _gemini,
    }[protocol](given)


def opaque(value: Any) -> Iterator[str]:
    """The strings in `value` that only their maker can read, and has to get back as they were."""
    if isinstance(value, dict):
        kind = value.get("type")
        names = {"signature", "encrypted_content", "encrypted_index", "encrypted_stdout", "fingerprint", "call_id"}
        names |= {"thoughtSignature", "thought_signature"}
        names |= {"data"} if kind in {"redacted_thinking", "reasoning.encrypted"} else set()
        yield from (inner for name, inner in value.items() if name in names and isinstance(inner, str) and inner)
        for inner in value.values():
            yield from opaque(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from opaque(inner)


def _chat(messages: list[Json]) -> list[Any]:
    found: list[Any] = []
    for message in messages:
        words = [
            block.get("text") if block["type"] == "text" else _without(block)
            for block in _blocks(message.get("content"))
            if block["type"] != "thinking"
        ]
        said = ["".join(words)] if all(isinstance(word, str) for word in words) else [word for word in words if word]
        calls = [
            (call["id"], call["function"]["name"], _parsed(call["function"]["arguments"] or "{}"))
            for call in message.get("tool_calls") or []
        ]
        kept = ("reasoning_content", "reasoning", "reasoning_details") if calls else ("reasoning_details",)
        thoughts = {name: message[name] for name in kept if message.get(name)}
        role = {"developer": "system"}.get(message["role"], message["role"])
        found.append((role, said, message.get("tool_call_id"), calls, thoughts))
    leading = next((place for place, message in enumerate(found) if message[0] != "system"), len(found))
    system = "".join(word for message in found[:leading] for word in message[1]).replace("\n", "")
    return [system, *found[leading:]]


def _responses(items: list[Json]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        match item.get("type", "message"):
            case "message":
                blocks = [_without(block, "logprobs", "annotations", "detail") for block in _blocks(item["content"])]
                texts = [block.get("text") or block.get("refusal") or block for block in blocks]
                said = "".join(texts) if all(isinstance(text, str) for text in texts) else texts
                role = {"developer": "system"}.get(item["role"], item["role"])
                found.append((role, said or "", item.get("phase")))
            case "function_call":
                found.append(_without(item, "id", "status") | {"arguments": _parsed(item["arguments"] or "{}")})
            case "function_call_output":
                found.append((item["call_id"], _without(item["output"], "detail")))
            case "reasoning":
                found.append(_without(item, "status"))
            case _:
                found.append(_without(item, "id", "status", "logprobs", "annotations"))
    return found


def _anthropic(messages: list[Json]) -> list[Any]:
    found: list[Any] = []
    for message in messages:
        if message["role"] == "system":
            continue
        blocks = []
        for given in _blocks(message["content"]):
            block = _without(given, "cache_control", *(["citations"] if given["type"] == "text" else []))
            if block.get("is_error") is False:
                del block["is_error"]
            if block.get("caller") == {"type": "direct"}:
                del block["caller"]
            if block["type"] == "tool_result":
                content = _blocks(block.get("content"))
                text = all(inner["type"] == "text" for inner in content)
                block["content"] = "".join(inner["text"] for inner in content) if text else content
            blocks.append(block)
        _add(found, message["role"], blocks)
    return found


def _gemini(contents: list[Json]) -> list[Any]:
    found: list[Any] = []
    for content in _camel(contents):
        parts: list[Json] = []
        for given in content.get("parts") or []:
            part = dict(given)
            if "thoughtSignature" in part:
                part["thoughtSignature"] = _standard(part["thoughtSignature"])
            if "inlineData" in part:
                part["inlineData"] = part["inlineData"] | {"data": _standard(part["inlineData"]["data"])}
            if call := part.get("functionCall"):
                part["functionCall"] = {"name": call["name"], "args": call.get("args") or {}}
            if response := part.get("functionResponse"):
                part["functionResponse"] = response["name"], _said(response["response"])
            if part.get("text") == "" and len(part) == 1:
                continue
            if part.keys() == {"text"} and parts and parts[-1].keys() == {"text"}:
                parts[-1] = {"text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        _add(found, content.get("role") or "user", parts)
    return found


def _said(response: Any) -> Any:
    """What a functionResponse says, whatever it stands under, without the words for its files."""
    value = response
    if isinstance(response, str):
        lines = [line for line in response.splitlines() if not line.endswith((", attached]", ", in the next message]"))]
        value = _parsed("\n".join(lines))
    if isinstance(value, dict) and len(value) == 1:
        return _said(next(iter(value.values())))
    return value or ""


def _add(found: list[Any], role: str, parts: list[Any]) -> None:
    if found and found[-1][0] == role:
        found[-1][1].extend(parts)
    elif parts:
        found.append((role, parts))


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _without(value: Any, *names: str) -> Any:
    if isinstance(value, dict):
        kept = {name: _without(inner, *names) for name, inner in value.items() if name not in names}
        return {name: inner for name, inner in kept.items() if inner is not None and inner != []}
    return [_without(inner, *names) for inner in value] if isinstance(value, list) else value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _CAMEL.get(name, name): inner if name in {"args", "response"} else _camel(inner)
            for name, inner in value.items()
        }
    return [_camel(inner) for inner in value] if isinstance(value, list) else value


def _standard(data: str) -> str:
    try:
        return base64.b64encode(base64.urlsafe_b64decode(data.replace("+", "-").replace("/", "_"))).decode()
    except ValueError:
        return data
