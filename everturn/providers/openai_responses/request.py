"""OpenAI's Responses, and the servers that speak it too (xAI, OpenResponses): requests. Stateless: nothing is stored
at the server but a response in the background, and reasoning goes to and fro encrypted.

The transcript's items are written in `items.py`, the tools in `tools.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from everturn.errors import RequestRefused
from everturn.providers.base import (
    NO_RESULT,
    Request,
    cache_key,
    check_tools,
    error_prefix,
    may_call,
    own_extra,
    schema_in_words,
    warn_unsupported,
    with_extra,
)
from everturn.providers.catalog import grammar_over_calls, row_of, runs_in_background
from everturn.providers.efforts import nearest_effort, temperature_beside
from everturn.providers.encoded_messages import BranchedSet, EncodedMessages, encoded_messages
from everturn.providers.media import (
    OFFICE,
    PICTURES,
    TEXTS,
    can_take,
    file_name,
    in_words,
    is_picture,
    medium_of,
    url_of,
)
from everturn.providers.openai_responses import caller_run
from everturn.providers.openai_responses.caller_run import Item
from everturn.providers.openai_responses.items import others_items, own_items
from everturn.providers.openai_responses.tools import (
    encode_tools,
    included_fields,
    refused_beside_minimal,
    tool_choice_fields,
)
from everturn.providers.pairing import Pairing, calls_in
from everturn.providers.schema_strict import fits_strict
from everturn.records import Document, Image, Message, Opaque, Part, Text, ToolCall, ToolResult, on_lines
from everturn.vendor_models.abilities import abilities_of

PATH = "/responses"

_WIRE_ID = re.compile(r"\S{1,64}")


def encode(request: Request) -> tuple[str, dict[str, Any]]:
    """The path under the base URL, and the body. Raises InvalidTool for a server-side tool that does not exist, and
    RequestRefused for `background` in extra: nothing would pick up the response."""
    check_tools(request)
    settings = request.settings
    provider = request.model.provider
    stored = bool(settings.extra.get("store"))
    body: dict[str, Any] = {"model": request.model.model, "input": [], "store": False}
    instructions = request.instructions
    if request.output_schema is not None and (grammar_over_calls(request.model) or not request.grammars):
        # llama.cpp (build 11549) does not even read the schema here.
        instructions = f"{instructions}\n\n{schema_in_words(request)}".strip()
    if instructions:
        if row_of(provider).responses.instructions:
            body["instructions"] = instructions
        else:
            body["input"].append({"role": "system", "content": instructions})
    encoded = encoded_messages(request, StoredItems if stored else ResponsesItems, request.model)
    body["input"] = encoded.wire_items(body["input"])
    # A model that does not reason answers 400 if it is asked for its encrypted reasoning.
    reasons = abilities_of(request.model).encrypted_reasoning
    if include := ["reasoning.encrypted_content"] * reasons + included_fields(request):
        body["include"] = include
    if offered := encode_tools(request):
        body |= {"tools": offered, **tool_choice_fields(request)}
    if settings.stop:
        warn_unsupported(request.model, f"stop={settings.stop!r}")
    if settings.extra.get("background"):
        raise RequestRefused(
            f"{request.model.name} has extra={{'background': True}}: its reply would never "
            "arrive, because it has to be fetched later.",
            cure="Write ModelSettings(background=True) instead: everturn then waits for the reply.",
            provider=provider,
        )
    if runs_in_background(request):
        body |= {"background": True, "store": True}  # it refuses the one without the other
    body |= _encode_settings(request)
    return PATH, _merge_extra(body, settings.extra)


def _encode_settings(request: Request) -> dict[str, Any]:
    settings = request.settings
    fields: dict[str, Any] = {}
    if settings.max_output_tokens is not None:
        fields["max_output_tokens"] = settings.max_output_tokens
    effort: str | None = None
    if settings.reasoning_effort:
        effort = nearest_effort(request.model, settings.reasoning_effort)
    if effort == "minimal" and (refused := refused_beside_minimal(request)):
        warn_unsupported(request.model, f"reasoning_effort='minimal' beside {refused}", "It is asked for 'low'.")
        effort = "low"
    if effort:
        fields["reasoning"] = {"effort": effort}
    temperature = temperature_beside(request.model, settings.temperature, effort)
    if temperature is not None:
        fields["temperature"] = temperature
    over_calls = may_call(request) and grammar_over_calls(request.model)
    if request.output_schema is not None and request.grammars and not over_calls:
        schema = dict(request.output_schema)
        strict = fits_strict(schema)
        fields["text"] = {"format": {"type": "json_schema", "name": "output", "schema": schema, "strict": strict}}
    if settings.cache and request.conversation_id:
        fields["prompt_cache_key"] = cache_key(request.conversation_id)
    if settings.stream:
        fields["stream"] = True
    return fields


def _merge_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`extra` last. Of what both have, objects (`reasoning`, `text`) are joined, and so is `include`: who asks for a
    reasoning's summary means to keep its effort, and nobody means to lose what the next turn needs."""
    for name, given in extra.items():
        ours = body.get(name)
        if isinstance(ours, dict) and isinstance(given, dict):
            body[name] = ours | given
        elif name == "include" and isinstance(ours, list) and isinstance(given, list):
            body[name] = [*dict.fromkeys([*ours, *given])]
        else:
            body[name] = given
    return body


class ResponsesItems(EncodedMessages):
    """A transcript's items, each call's output right after it."""

    stored = False
    """Whether the server keeps what it says, so that an item may only refer to it."""

    def __init__(self) -> None:
        super().__init__()
        self._wire_ids: set[str] | BranchedSet = set()

    def branch(self) -> Self:
        copied = super().branch()
        copied._wire_ids = BranchedSet(self._wire_ids)
        return copied

    def _encode_messages(self, messages: Sequence[Message], request: Request) -> None:
        provider = request.model.provider
        pairing = Pairing(messages, as_given=request.as_given)
        own = (message for message in messages if message.provider == provider)
        own_call_ids = {result.call_id for message in own for result in message.tool_results}
        wire_ids = _wire_ids(messages, provider, pairing, used=self._wire_ids)
        for message in messages:
            match message.role:
                case "assistant":
                    items, as_made = _encode_reply(message, wire_ids, provider, self.stored)
                    self.open += items
                    # Right after their calls: some servers look no further.
                    self.open += _call_outputs(
                        pairing.calls_after(message), pairing, wire_ids, own_call_ids, same_provider=as_made
                    )
                case "user":
                    content = _user_content(message.parts, same_provider=message.provider == provider)
                    self.open.append({"role": "user", "content": content})
                case "system":
                    self.open.append({"role": "system", "content": message.text})
                case "tool":  # each result goes after its call
                    self.open += _call_outputs(
                        pairing.calls_after(message), pairing, wire_ids, own_call_ids, same_provider=False
                    )


class StoredItems(ResponsesItems):
    """The same for a server that keeps what it says."""

    stored = True


def _call_outputs(
    calls: Iterable[ToolCall],
    pairing: Pairing,
    wire_ids: Mapping[str, str],
    own_call_ids: Container[str],
    *,
    same_provider: bool,
) -> Iterator[Item]:
    for call in calls:
        result = pairing.results.get(call.call_id)
        if same_provider and caller_run.kind_of(call):
            for item in caller_run.result_items(call, result, wire_id=wire_ids[call.call_id]):
                yield _with_caller(item, call)
            continue
        yield _output_item(
            call,
            result,
            wire_id=wire_ids[call.call_id],
            same_provider=same_provider,
            own_result=call.call_id in own_call_ids,
        )


def _encode_reply(
    message: Message, wire_ids: Mapping[str, str], provider: str, stored: bool
) -> tuple[list[Item], bool]:
    """The items of an assistant's message, and whether they are exactly as this provider made them."""

    def wire_id(call: ToolCall) -> str:
        return wire_ids[call.call_id]

    if message.provider == provider:
        items = own_items(message, wire_id=wire_id)
        # A reasoning that led to nothing is one of a reply that was cut off. After the words, OpenRouter puts what
        # some models sign their whole reply with.
        if row_of(provider).responses.reasoning_leads or all(item.get("type") == "reasoning" for item in items):
            while items and items[-1].get("type") == "reasoning":
                items.pop()
        if stored or not any(map(_is_elsewhere, items)):
            return items, True
    # If its reasoning is lost, a message is refused in its first form; its words and calls alone are not.
    return [*others_items(message, wire_id=wire_id)], False


def _is_elsewhere(item: Item) -> bool:
    """Whether an item only refers to a reasoning that a server would have had to store."""
    return item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content"))


def _wire_ids(
    messages: Sequence[Message], provider: str, pairing: Pairing, *, used: set[str] | BranchedSet
) -> dict[str, str]:
    """For each call_id the id on the wire, which is then among those that are `used`. Calls and results are paired by
    it alone, so that no two may share one; what a message's id is never changes as the conversation goes on."""
    ids: dict[str, str] = {}
    for message in messages:
        same_provider = message.provider == provider and message.role == "assistant"
        for call in calls_in(message) or pairing.calls_after(message):
            given = call.call_id
            if same_provider and call.provider_id and call.provider_id not in used:
                given = call.provider_id
            if given in used or not (same_provider or _WIRE_ID.fullmatch(given)):
                given = hashlib.sha256(call.call_id.encode()).hexdigest()[:24]
            used.add(given)
            ids[call.call_id] = given
    return ids


def _output_item(
    call: ToolCall, result: ToolResult | None, *, wire_id: str, same_provider: bool, own_result: bool
) -> Item:
    """The item of a result. `same_provider`: this provider made the call; `own_result`: the result is in its form."""
    custom = same_provider and call.extra.get("type") == "custom_tool_call"
    item: Item = {"type": "custom_tool_call_output" if custom else "function_call_output", "call_id": wire_id}
    item["output"] = _result_content(result, same_provider=own_result) if result else NO_RESULT
    if same_provider:
        item = _with_caller(item, call)
    if result and own_result:
        return item | result.extra
    return item


def _with_caller(item: Item, call: ToolCall) -> Item:
    """Sends the result of a program's call to the program."""
    caller = call.extra.get("caller")
    if caller is None or "call_id" not in item:
        return item
    return item | {"caller": caller}


def _result_content(result: ToolResult, *, same_provider: bool) -> str | list[dict[str, Any]]:
    """Text, or a list if there is more than text. The protocol has no flag for errors: they are put into words."""
    text = result.text
    prefix = error_prefix(result, text)
    if all(isinstance(part, Text) for part in result.content) and not (
        same_provider and any(p.extra for p in result.content)
    ):
        return prefix + text
    content = [*_content_blocks(result.content, same_provider=same_provider)]
    if not prefix:
        return content
    return [{"type": "input_text", "text": prefix.rstrip()}, *content]


def _user_content(parts: Sequence[Part], *, same_provider: bool) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(only := parts[0], Text) and not (same_provider and only.extra):
        return only.text
    content = [*_content_blocks(parts, same_provider=same_provider)]
    words_only = not any(isinstance(part, Image | Document) for part in parts)
    if words_only and all(block.keys() == {"type", "text"} for block in content):
        return on_lines([block["text"] for block in content])
    return content


def _content_blocks(parts: Sequence[Part], *, same_provider: bool = False) -> Iterator[dict[str, Any]]:
    """What a user's message or a result says. A part's `extra`, such as an image's detail, and blocks of other kinds,
    such as a stored file, are for the provider that they came from."""
    for part in parts:
        extra = own_extra(part, same_provider=same_provider)
        match part:
            case Text(text=text) if text:
                yield with_extra({"type": "input_text", "text": text}, extra)
            case Image() | Document() if is_picture(part) and can_take(part, PICTURES):
                yield with_extra({"type": "input_image", "image_url": url_of(part)}, {"detail": "auto"} | extra)
            case Document() if can_take(part, OFFICE | TEXTS) and medium_of(part).data is None:
                yield with_extra({"type": "input_file", "file_url": part.url}, extra)
            case Document() if can_take(part, OFFICE | TEXTS):
                # A file's data is refused without a name.
                file = {"type": "input_file", "filename": file_name(part), "file_data": url_of(part)}
                yield with_extra(file, extra)
            case Image() | Document():
                yield {"type": "input_text", "text": in_words(part)}
            case Opaque(data=dict() as data) if same_provider and "type" in data:
                yield dict(data)
            case _:
                pass
