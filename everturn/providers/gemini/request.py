"""Google's generateContent, as the Gemini Developer API serves it (v1beta): requests.

Server-side tools: WebSearch is googleSearch (none of its fields can be honoured), CodeExecution is codeExecution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeGuard
from urllib.parse import quote

from everturn.errors import InvalidTool
from everturn.models import Model, ModelSettings
from everturn.providers.base import (
    NOTHING,
    Request,
    ToolSpec,
    check_tools,
    own_extra,
    placeholder,
    schema_in_words,
    sent_arguments,
    tool_options,
    warn_unsupported,
    with_extra,
)
from everturn.providers.efforts import nearest_effort
from everturn.providers.encoded_messages import EncodedMessages, encoded_messages
from everturn.providers.gemini.calls import wire_name
from everturn.providers.gemini.reply import BESIDE
from everturn.providers.gemini.signatures import with_signature
from everturn.providers.json_values import a_dict, object_in
from everturn.providers.media import GEMINI, PICTURES, SCHEMES, can_take, in_words, medium_of
from everturn.providers.pairing import Pairing
from everturn.records import (
    Document,
    Image,
    Message,
    Opaque,
    Part,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.tools.provider_defined import in_a_browser
from everturn.tools.server_tools import CodeExecution, ServerTool, WebSearch
from everturn.validation.open_objects import takes_more
from everturn.vendor_models.abilities import abilities_of, untaken_error

_NOTHING: Final = {"text": NOTHING}
"""Stands for a user's message without content: a content needs a part, and the first content has to be a user's."""

NO_RESULT: Final = "this call has no result"
"""What the model reads, as an error, for a call that was never answered. Each call needs a result."""

_VERSION = re.compile(r"gemini-(?:[a-z-]+-)?(\d+)(?:\.(\d+))?")
_NEWEST = (3, 0)

_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Types that a functionResponse may carry, from Gemini 3 on."""

_takes = partial(can_take, schemes=(*SCHEMES, "gs://"))
"""Google fetches from its own storage, too."""

_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
"""Tokens of thought for Gemini 2.5. 24576 is the most that all of its models take."""
_LEAST_BUDGET_OF_PRO: Final = 128

_SAYS_NOTHING = frozenset({"type", "properties", "additionalProperties", "required", "title", "description", "$schema"})
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

Json = dict[str, Any]


def encode(request: Request) -> tuple[str, Json]:
    """The path under the base URL, and the body. Raises InvalidTool for a server-side tool that Gemini lacks."""
    check_tools(request)
    browses = any(raw.keys() & {"computerUse", "computer_use"} for raw in request.raw_tools)
    encoded = encoded_messages(request, BrowsersContents if browses else GeminiContents, request.model)
    if not request.as_given:
        encoded.begin_with_a_user()
    body: Json = {"contents": encoded.wire_items()}
    # There is no place for a system message in the middle, and a user's message would carry less weight.
    system = [request.instructions, *encoded.system]
    if request.output_schema is not None and not _holds_output(request):
        system.insert(1, schema_in_words(request))
    if text := "\n\n".join(filter(None, system)):
        body["systemInstruction"] = {"parts": [{"text": text}]}
    if tools := _encode_tools(request):
        body["tools"] = tools
    if config := _tool_config(request, tools):
        body["toolConfig"] = config
    forced = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode") == "ANY"
    if config := _generation_config(request, forced=forced):
        body["generationConfig"] = config
    name = request.model.model
    if "/" not in name:
        name = f"models/{name}"
    method = "streamGenerateContent?alt=sse" if request.settings.stream else "generateContent"
    return f"/v1beta/{quote(name)}:{method}", _merge_extra(body, request.settings.extra)


def _model_version(model: str) -> tuple[int, int]:
    """Gemini's version. A name without a version (gemini-flash-latest, a gateway's own) counts as a new one."""
    if match := _VERSION.search(model):
        return int(match[1]), int(match[2] or 0)
    if "gemma" in model:
        return 0, 0
    return _NEWEST


def _is_3(request: Request) -> bool:
    return _model_version(request.model.model) >= _NEWEST


# ---------------------------------------------------------------- tools


def _encode_tools(request: Request) -> list[Json]:
    server_tools = [_server_tool(tool, request) for tool in request.server_tools]
    if server_tools and request.tools and not _is_3(request):
        raise InvalidTool(
            f"{request.model.name} can't have functions and server-side tools in one request.",
            cure="Use Gemini 3 or later, or only one of the two kinds of tools.",
        )
    tools = [*server_tools, *map(dict, request.raw_tools)]
    if request.tools:
        declarations = [_declare_function(tool, request.model) for tool in request.tools]
        tools.insert(0, {"functionDeclarations": declarations})
    return tools


def _declare_function(tool: ToolSpec, model: Model) -> Json:
    tool_options(model, tool)  # it has none of them
    declaration: Json = {"name": wire_name(tool.name), "description": tool.description}
    schema = tool.parameters
    # An object without properties is refused by some models.
    if schema.keys() - _SAYS_NOTHING or schema.get("properties") or takes_more(schema):
        declaration["parametersJsonSchema"] = dict(schema)
    return declaration


def _server_tool(tool: ServerTool, request: Request) -> Json:
    if isinstance(tool, WebSearch):
        for name in WebSearch.model_fields:
            if getattr(tool, name):
                warn_unsupported(request.model, f"WebSearch({name}=)")
        return {"googleSearch": {}}
    if isinstance(tool, CodeExecution):
        return {"codeExecution": {}}
    raise untaken_error(request.model, type(tool).__name__)


def _tool_config(request: Request, tools: Sequence[Json]) -> Json:
    declaring = [tool for tool in tools if tool.keys() & {"functionDeclarations", "function_declarations"}]
    mixed = 0 < len(declaring) < len(tools) and _is_3(request)
    settings = request.settings
    config: Json = {}
    # Server-side tools have no mode: they stay allowed in a concluding turn, whose reply is the last one all the same.
    choice = "none" if request.conclude else settings.tool_choice
    if declaring and choice:
        calling: Json = {"mode": _MODES.get(choice, "ANY")}
        if mixed and choice == "auto":
            calling["mode"] = "VALIDATED"  # with both kinds of tools, Gemini has no AUTO: this is left to the model
        if choice not in _MODES:
            calling["allowedFunctionNames"] = [wire_name(choice)]
        config["functionCallingConfig"] = calling
    if mixed:
        config["includeServerSideToolInvocations"] = True
    if declaring and settings.parallel_calls is False:
        warn_unsupported(request.model, "parallel_calls=False")
    return config


# ---------------------------------------------------------------- settings


def _generation_config(request: Request, *, forced: bool) -> Json:
    """`forced`: the reply has to be a call. With a schema for its text as well, Gemini answers 400. The schema is left
    out then, at no loss: such a reply has no text."""
    settings = request.settings
    config: Json = {}
    if settings.max_output_tokens is not None:
        config["maxOutputTokens"] = settings.max_output_tokens
    if settings.temperature is not None:
        config["temperature"] = settings.temperature
    if settings.stop:
        config["stopSequences"] = list(settings.stop)
    if settings.reasoning_effort is not None and (thinking := _thinking_config(request, settings)):
        config["thinkingConfig"] = thinking
    if request.output_schema is not None and not forced:
        if _holds_output(request):
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = dict(request.output_schema)
        elif request.grammars:
            warn_unsupported(request.model, "an output schema together with tools", "The model reads it instead.")
    return config


def _holds_output(request: Request) -> bool:
    """Whether Gemini holds the model to an output's schema: before its version 3, not beside tools."""
    return request.grammars and (_is_3(request) or not (request.tools or request.server_tools or request.raw_tools))


def _thinking_config(request: Request, settings: ModelSettings) -> Json:
    effort = settings.reasoning_effort or ""
    model = request.model.model
    thoughts: Json = {} if effort == "none" else {"includeThoughts": True}
    if _is_3(request):
        if level := nearest_effort(request.model, effort):
            return {"thinkingLevel": level.upper(), **thoughts}
        return {}
    if _model_version(model) < (2, 5) or abilities_of(request.model).efforts == ():
        warn_unsupported(request.model, "reasoning_effort")
        return {}
    budget = _BUDGETS[effort]
    if not budget and "pro" in model:
        warn_unsupported(request.model, "reasoning_effort='none'", "It is asked for its lowest effort instead.")
        budget = _LEAST_BUDGET_OF_PRO
    return {"thinkingBudget": budget, **thoughts}


def _merge_extra(body: Json, extra: Mapping[str, Any]) -> Json:
    """`body` with `extra` merged in, object by object: setting one field of generationConfig keeps the others."""
    both = body | dict(extra)
    for name in body.keys() & extra.keys():
        if isinstance(body[name], dict) and isinstance(extra[name], dict):
            both[name] = _merge_extra(body[name], extra[name])
    return both


# ---------------------------------------------------------------- the transcript


class GeminiContents(EncodedMessages):
    """A transcript's contents."""

    browses = False
    """Whether the model uses a browser, whose screenshots are in the results, whatever the model's version."""

    def __init__(self) -> None:
        super().__init__()
        self.system: tuple[str, ...] = ()
        """What system messages say."""

    def branch(self) -> Self:
        copied = super().branch()
        copied.open = [{**content, "parts": [*content["parts"]]} for content in self.open]
        return copied

    def close_messages(self, messages: Sequence[Message], texts: Sequence[bytes]) -> None:
        if self.open:
            self.begin_with_a_user()
        super().close_messages(messages, texts)

    def _encode_messages(self, messages: Sequence[Message], request: Request) -> None:
        pairing = Pairing(messages, as_given=request.as_given)
        own_messages = (message for message in messages if message.provider == request.model.provider)
        extras_by_call_id = {
            result.call_id: result.extra for message in own_messages for result in message.tool_results
        }
        is_3 = _is_3(request) or self.browses
        contents = self.open
        nothing = {"text": ""} if request.as_given else _NOTHING
        for message in messages:
            same_provider = message.provider == request.model.provider
            if message.role == "user":
                user_parts = list(_user_parts(message.parts, same_provider=same_provider))
                if not (user_parts or pairing.has_answers(message)):
                    user_parts = [nothing]
                if user_parts:
                    contents.append({"role": "user", "parts": user_parts})
            elif message.role == "assistant":
                parts = list(_model_parts(message, same_provider=same_provider))
                if is_3:
                    parts = with_signature(parts)
                if not parts:
                    pass  # a content without parts is refused
                elif contents and contents[-1]["role"] == "model":
                    contents[-1]["parts"] += parts  # a call has to come right after a user's content
                else:
                    contents.append({"role": "model", "parts": parts})
            elif message.role == "system":
                self.system += (message.text,)
            contents += _result_contents(
                pairing.calls_after(message), pairing.results, extras_by_call_id, is_3=is_3, browses=self.browses
            )

    def begin_with_a_user(self) -> None:
        if not self.written and (not self.open or self.open[0]["role"] == "model"):
            self.open.insert(0, {"role": "user", "parts": [_NOTHING]})


class BrowsersContents(GeminiContents):
    """The same for a model that uses a browser."""

    browses = True


def _user_parts(parts: Sequence[Part], *, same_provider: bool) -> Iterator[Json]:
    """What a user said. A part's `extra`, such as videoMetadata, and parts of other kinds are for the same provider
    only."""
    for part in parts:
        extra = own_extra(part, same_provider=same_provider)
        if isinstance(part, Text):
            if part.text:
                yield with_extra({"text": part.text}, extra)
        elif isinstance(part, Image | Document):
            yield _medium(part, extra, sendable=_takes(part, GEMINI))
        elif isinstance(part, Opaque) and same_provider and _is_part(part.data):
            yield part.data


def _model_parts(message: Message, *, same_provider: bool) -> Iterator[Json]:
    """What the model said. `same_provider`: this provider made it, so that what only it may see goes back, as it
    came."""
    for part in message.parts:
        extra = own_extra(part, same_provider=same_provider)
        if isinstance(part, Text):
            if part.text or extra:
                yield with_extra({"text": part.text}, extra)
        elif isinstance(part, ToolCall):
            called = {"id": _wire_id(part), "name": wire_name(part.name), "args": sent_arguments(part)}
            yield with_extra({"functionCall": called}, extra)
        elif isinstance(part, Image | Document):
            yield _medium(part, extra, sendable=same_provider or _takes(part, PICTURES))
        elif isinstance(part, Thinking) and same_provider:
            yield with_extra({"text": part.text, "thought": True}, extra)
        elif isinstance(part, ServerToolUse | Opaque) and same_provider and _is_part(part.data):
            yield part.data


def _is_part(data: object) -> TypeGuard[Json]:
    return isinstance(data, dict) and not data.keys() & BESIDE.keys()


def _wire_id(call: ToolCall) -> str:
    """Gemini also accepts ids that we made up, if a call and its result have the same one."""
    return call.provider_id or call.call_id


def _result_contents(
    calls: Sequence[ToolCall],
    results: Mapping[str, ToolResult],
    extras: Mapping[str, Json],
    *,
    is_3: bool,
    browses: bool,
) -> Iterator[Json]:
    """The results of one reply's calls, all in one content and in order; then whatever a result can't carry. `extras`:
    by call, the extra fields of results that are this provider's own."""
    responses: list[Json] = []
    following: list[Json] = []
    for call in calls:
        result = results.get(call.call_id) or ToolResult(
            call_id=call.call_id, content=(Text(text=NO_RESULT),), is_error=True
        )
        extra = extras.get(call.call_id, {})
        if "parts" in extra:  # its media, as they came
            result = result.model_copy(update={"content": (Text(text=result.text),)})
        media = [part for part in result.content if isinstance(part, Image | Document)]
        parts_inside = [part for part in media if is_3 and part.data is not None and _takes(part, _IN_RESULTS)]
        parts_outside = [part for part in media if part not in parts_inside and _takes(part, GEMINI)]
        response: Json = {"id": _wire_id(call), "name": wire_name(call.name)}
        # Always a text under one key: Gemini reads "$ref" in an object as the name of a file.
        text = _result_text(result, parts_inside, parts_outside)
        response["response"] = {"error" if result.is_error else "output": text}
        if browses and in_a_browser(call.name):
            response["response"] = _of_browser(call, result) or response["response"]
        if parts_inside:
            response["parts"] = [_media_part(part) for part in parts_inside]
        responses.append({"functionResponse": response | extra})
        if parts_outside:
            following += [
                {"text": f"From the result of {call.name} ({_wire_id(call)}):"},
                *map(_media_part, parts_outside),
            ]
    if responses:
        yield {"role": "user", "parts": responses}
    if following:
        yield {"role": "user", "parts": following}


def _of_browser(call: ToolCall, result: ToolResult) -> Json:
    """Of computer use, the object that the browser is described by: its `url` has to be there. Empty if there is
    none."""
    state = next((a_dict(object_in(part.text)) for part in result.content if isinstance(part, Text)), {})
    if result.is_error or "url" not in state:
        return {}
    if call.arguments.get("safety_decision"):
        return state | {"safety_acknowledgement": "true"}
    return state


def _result_text(result: ToolResult, inside: Sequence[Image | Document], outside: Sequence[Image | Document]) -> str:
    if not any(isinstance(part, Image | Document) for part in result.content):
        return result.text

    def words(part: Text | Image | Document) -> str:
        if isinstance(part, Text):
            return part.text
        if part in inside:
            return placeholder(part, "attached")
        if part in outside:
            return placeholder(part, "in the next message")
        return in_words(part)

    return "\n".join(map(words, result.content))


def _media_part(part: Image | Document) -> Json:
    """An Image or Document as a part. Gemini fetches URLs itself, of its own files and of other servers."""
    media_type, data = medium_of(part)
    if data is not None:
        return {"inlineData": {"mimeType": media_type, "data": data}}
    file: Json = {"fileUri": part.url}
    if media_type:
        file["mimeType"] = media_type
    return {"fileData": file}


def _medium(part: Image | Document, extra: Mapping[str, Any], *, sendable: bool) -> Json:
    if not sendable:
        return {"text": in_words(part)}
    return with_extra(_media_part(part), extra)
