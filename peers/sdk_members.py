"""Run by `peers/vendors.py` with the Python that has the SDKs: a JSON line for each row about their unions."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, get_args

import anthropic.types as messages_types
import anthropic.types.beta as beta_types
import openai.types.responses as responses_types
from anthropic.types import ModelParam
from google.genai.types import FinishReason, Part
from openai.types.chat import ChatCompletionMessageToolCallUnion
from openai.types.chat.chat_completion import Choice
from openai.types.shared import ChatModel, ResponsesModel

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers import anthropic_messages, gemini, openai_chat, openai_responses
from everturn.providers.base import Request
from everturn.providers.failures import ErrorInReply
from everturn.providers.finish_reasons import ending_of
from everturn.records import Message, Reply
from tests.support.sdk_types import Pair, example, marked, members, names_of, pairs

USER = Message.user("?")
OPENAI = Model("openai:gpt-6")
GEMINI = Model("google:gemini-3.5-flash")
BESIDE_A_PART = {"thought", "thought_signature"} | {
    *("video_metadata", "media_resolution", "part_metadata", "media_processing", "speech_metadata"),
    *("document_metadata", "spreadsheet_metadata", "audio_metadata", "audio_transcription"),
}
"""Fields that go with a part's own, and are none by themselves."""
PARTS: dict[str, Any] = {
    "text": "x",
    "inline_data": {"data": "aGk=", "mimeType": "image/png"},
    "file_data": {"fileUri": "gs://x", "mimeType": "image/png"},
    "function_call": {"name": "f", "args": {}},
    "function_response": {"name": "f", "response": {}},
    "executable_code": {"language": "PYTHON", "code": "x"},
    "code_execution_result": {"outcome": "OUTCOME_OK", "output": "x"},
    "tool_call": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "args": {}},
    "tool_response": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "response": {}},
}
"""A part of each kind."""
CLAUDE = Model("anthropic:claude-opus-5-5")


def row(peer: str, ran: str, problems: Iterable[str], names: Iterable[str] = ()) -> None:
    print(json.dumps({"peer": peer, "ran": ran, "problems": list(problems), "names": sorted(names)}))


def streamed(protocol: Any, request: Request, events: Iterable[dict[str, Any]]) -> Reply:
    assembler = protocol.Assembler(request)
    for event in events:
        assembler.feed(Event(json.dumps(event), event.get("type", "")))
    return assembler.finish()  # type: ignore[no-any-return]


def item_problems(pair: Pair) -> list[str]:
    item = example(pair.output, pair.inputs) | {"status": "completed"}
    request = Request(OPENAI, [USER], raw_tools=[{"type": "shell"}, {"type": "apply_patch"}, {"type": "computer"}])
    response = {"id": "r", "status": "completed", "output": [item]}
    whole = openai_responses.decode(response, request)
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    completed = {"type": "response.completed", "response": {**response, "output": []}}
    problems = []
    if streamed(openai_responses, request, [added, done, completed]) != whole:
        problems.append(f"{pair.name}: streamed, it is another reply")
    _, body = openai_responses.encode(Request(OPENAI, [USER, whole.message, Message.user("Go on.")]))
    if marked(body["input"]):
        problems.append(f"{pair.name}: what only outputs have goes back")
    return problems


def block_problems(pair: Pair) -> list[str]:
    block = example(pair.output, pair.inputs) | {"id": "srvtoolu_1", "tool_use_id": "srvtoolu_1"}
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "any", "input": {}}
    text = {"type": "text", "text": "And so."}
    request = Request(CLAUDE, [USER])
    whole = anthropic_messages.decode({"id": "m", "content": [use, block, text], "stop_reason": "end_turn"}, request)
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "content": []}}]
    for index, start in enumerate((use, block, text)):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.append({"type": "content_block_stop", "index": index})
    events += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    problems = []
    if streamed(anthropic_messages, request, events) != whole:
        problems.append(f"{pair.name}: streamed, it is another reply")
    _, body = anthropic_messages.encode(Request(CLAUDE, [USER, whole.message, Message.user("Go on.")]))
    if marked(body["messages"]):
        problems.append(f"{pair.name}: what only outputs have goes back")
    return problems


def event_problems(protocol: Any, model: Model, kinds: Iterable[Any]) -> list[str]:
    """Each event of a stream alone: it is read, passed over or refused, and nothing else happens."""
    problems = []
    for kind in kinds:
        event = example(kind, ())
        try:
            protocol.Assembler(Request(model, [USER])).feed(Event(json.dumps(event), event.get("type", "")))
        except (InvalidReply, ErrorInReply):
            continue
        except Exception as error:  # noqa: BLE001 - it is what the row is for
            problems.append(f"{event.get('type')}: {type(error).__name__}: {error}")
    return problems


def accumulated_problems(pair: Pair) -> list[str]:
    """The stream of a block, beside what the SDK's own accumulator makes of it."""
    from anthropic._models import construct_type
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import RawMessageStreamEvent

    block = example(pair.output, ()) | {"id": "srvtoolu_1", "tool_use_id": "srvtoolu_1"}
    usage = {"input_tokens": 3, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    message |= {"stop_reason": None, "stop_sequence": None}
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "", "citations": None}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "And "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "so."}},
        {"type": "content_block_stop", "index": 1},
        ended,
    ]
    snapshot: Any = None
    for event in events:
        read: Any = construct_type(type_=RawMessageStreamEvent, value=event)  # as the SDK reads its own streams
        snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs={})
    theirs = [kept.model_dump(mode="json", exclude_none=True, warnings=False) for kept in snapshot.content]
    ours = streamed(anthropic_messages, Request(CLAUDE, [USER]), [*events, {"type": "message_stop"}])
    texts = "".join(kept["text"] for kept in theirs if kept["type"] == "text")
    problems = [] if ours.text == texts else [f"{pair.name}: the text is {ours.text!r}, the SDK's {texts!r}"]
    if ours.usage.total_tokens != snapshot.usage.input_tokens + snapshot.usage.output_tokens:
        problems.append(f"{pair.name}: the usage is {ours.usage}, the SDK's {snapshot.usage}")
    return problems


def response_problems(pair: Pair) -> list[str]:
    """The stream of an item and a message, beside what the SDK's own accumulator makes of it."""
    from openai import Omit
    from openai._models import construct_type
    from openai.lib.streaming.responses._responses import ResponseStreamState
    from openai.types.responses import ResponseStreamEvent

    item = example(pair.output, pair.inputs) | {"status": "completed"}
    if pair.name == "function_call":
        item |= {"call_id": "call_1", "name": "f", "arguments": '{"city": "Paris"}'}
    part = {"type": "output_text", "text": "And so.", "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    head = {"id": "r", "object": "response", "created_at": 1, "model": "m", "tools": [], "tool_choice": "auto"}
    head |= {"parallel_tool_calls": True, "status": "in_progress", "output": []}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, **details}
    place = {"output_index": 1, "content_index": 0, "item_id": "msg_1"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": head},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.added", "output_index": 1, "item": {**message, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "And ", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "so.", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "And so.", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
    ]
    whole = {**head, "status": "completed", "output": [item, message], "usage": usage}
    events.append({"type": "response.completed", "response": whole})
    state: Any = ResponseStreamState(input_tools=Omit(), text_format=Omit())
    for number, event in enumerate(events):
        read: Any = construct_type(type_=ResponseStreamEvent, value={**event, "sequence_number": number})
        state.handle_event(read)
    theirs = state._completed_response
    request = Request(OPENAI, [USER], raw_tools=[{"type": "shell"}, {"type": "apply_patch"}, {"type": "computer"}])
    ours = streamed(openai_responses, request, events)
    problems = []
    contents = [content for kept in theirs.output if kept.type == "message" for content in kept.content]
    text = "".join(getattr(content, "text", None) or getattr(content, "refusal", "") for content in contents)
    if ours.text != text:
        problems.append(f"{pair.name}: the text is {ours.text!r}, the SDK's {text!r}")
    kept = [(call.name, json.loads(call.arguments)) for call in theirs.output if call.type == "function_call"]
    calls = [(call.name, dict(call.arguments)) for call in ours.tool_calls]
    if kept and kept != calls:
        problems.append(f"{pair.name}: the calls are {calls}, the SDK's {kept}")
    if ours.usage.total_tokens != theirs.usage.total_tokens:
        problems.append(f"{pair.name}: the usage is {ours.usage}, the SDK's {theirs.usage}")
    return problems


def part_problems(field: str) -> list[str]:
    """A part of Gemini's, whole, streamed and sent back."""
    if field not in PARTS:
        return [f"{field}: new to us"]
    name = Part.model_fields[field].alias or field
    part = Part.model_validate({name: PARTS[field]}).model_dump(mode="json", by_alias=True, exclude_none=True)
    request = Request(GEMINI, [USER])
    candidate = {"content": {"role": "model", "parts": [part, {"text": "And so."}]}, "finishReason": "STOP"}
    body = {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}}
    whole = gemini.decode(body, request)
    pieces = [{"candidates": [{"content": {"role": "model", "parts": [item]}}]} for item in (part, {"text": "And so."})]
    read = streamed(gemini, request, [*pieces, {**body, "candidates": [{"finishReason": "STOP"}]}])
    problems = [] if read.message.parts == whole.message.parts else [f"{name}: streamed, it is another reply"]
    _, again = gemini.encode(Request(GEMINI, [USER, whole.message, Message.user("Go on.")]))
    back = [kept for content in again["contents"] if content["role"] == "model" for kept in content["parts"]]
    if not any(name in kept for kept in back):
        problems.append(f"{name}: it does not go back")
    return problems


def chat_problems(kind: Any) -> list[str]:
    """A call of Chat Completions, whole, and streamed beside what the SDK's own accumulator makes of it."""
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    call = example(kind, ()) | {"id": "call_1"}
    inner = "custom" if "custom" in call else "function"
    call[inner] = {"name": "f", "input" if inner == "custom" else "arguments": "{}"}
    head = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    message = {"role": "assistant", "content": "So.", "tool_calls": [call]}
    tools = [{"type": "custom", "custom": {"name": "f"}}] if inner == "custom" else []
    request = Request(Model("openai-chat:gpt-6"), [USER], raw_tools=tools)
    choice = {"index": 0, "finish_reason": "tool_calls"}
    whole = openai_chat.decode({**head, "choices": [{**choice, "message": message}], "usage": usage}, request)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "S"}, {"content": "o."}]
    deltas.append({"tool_calls": [{**call, "index": 0}]})
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks += [{**head, "choices": [{**choice, "delta": {}}]}, {**head, "choices": [], "usage": usage}]
    problems = [] if streamed(openai_chat, request, chunks) == whole else [f"{inner}: streamed, it is another reply"]
    if inner == "function":  # its accumulator knows no other
        state: Any = ChatCompletionStreamState()
        for chunk in chunks:
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
        theirs = state.current_completion_snapshot.choices[0].message
        kept = [(made.function.name, json.loads(made.function.arguments)) for made in theirs.tool_calls]
        ours = [(made.name, dict(made.arguments)) for made in whole.tool_calls]
        if (theirs.content, kept) != (whole.text, ours):
            problems.append(f"{inner}: it is {whole.text!r} {ours}, the SDK's {theirs.content!r} {kept}")
    return problems


def checked(
    pairs_of: Callable[[], list[Pair]], problems_of: Callable[[Pair], list[str]]
) -> tuple[list[str], list[str]]:
    problems, names = [], []
    for pair in pairs_of():
        names.append(pair.name)
        try:
            problems += problems_of(pair)
        except Exception as error:  # noqa: BLE001 - it is what the row is for
            problems.append(f"{pair.name}: {type(error).__name__}: {error}")
    return problems, names


def tried(problems_of: Callable[[Any], list[str]], member: Any) -> list[str]:
    try:
        return problems_of(member)
    except Exception as error:  # noqa: BLE001 - it is what the row is for
        return [f"{member}: {type(error).__name__}: {error}"]


def literals(kind: Any) -> Iterable[str]:
    """The names in a type of literals."""
    for inner in get_args(kind):
        yield from [inner] if isinstance(inner, str) else literals(inner)


def main() -> int:
    warnings.filterwarnings("ignore", "Pydantic serializer")  # examples have a value of each kind, which no item has
    problems, names = checked(
        lambda: pairs(responses_types.ResponseOutputItem, responses_types.ResponseInputItemParam), item_problems
    )
    row("openai", f"Responses: {len(names)} kinds of items, whole, streamed and sent back", problems, names)
    problems, names = checked(
        lambda: pairs(responses_types.ResponseOutputItem, responses_types.ResponseInputItemParam), response_problems
    )
    row("openai", f"Responses: {len(names)} streams, beside the SDK's own accumulator", problems, names)
    for module, beta in ((messages_types, ""), (beta_types, "Beta")):
        outputs, inputs = getattr(module, f"{beta}ContentBlock"), getattr(module, f"{beta}ContentBlockParam")
        problems, names = checked(lambda outputs=outputs, inputs=inputs: pairs(outputs, inputs), block_problems)
        ran = f"{'beta ' if beta else ''}Messages: {len(names)} kinds of blocks, whole, streamed and sent back"
        row("anthropic", ran, problems, names)
    problems, names = checked(
        lambda: pairs(messages_types.ContentBlock, messages_types.ContentBlockParam), accumulated_problems
    )
    row("anthropic", f"Messages: {len(names)} streams, beside the SDK's own accumulator", problems, names)
    calls = list(members(ChatCompletionMessageToolCallUnion))
    problems = [problem for kind in calls for problem in tried(chat_problems, kind)]
    names = [min(names_of(kind)) for kind in calls]
    row("openai", f"Chat: {len(names)} kinds of calls, whole, and beside the SDK's accumulator", problems, names)
    fields = [field for field in Part.model_fields if field not in BESIDE_A_PART]
    problems = [problem for field in fields for problem in tried(part_problems, field)]
    row("google-genai", f"{len(fields)} kinds of parts, whole, streamed and sent back", problems, fields)
    named = {"openai": {*literals(ChatModel), *literals(ResponsesModel)}, "anthropic": {*literals(ModelParam)}}
    for peer, models in named.items():
        row(peer, f"{len(models)} names of models", [], models)
    kinds = list(members(responses_types.ResponseStreamEvent))
    names = [min(names_of(kind)) for kind in kinds]
    row("openai", f"Responses: {len(kinds)} events of streams", event_problems(openai_responses, OPENAI, kinds), names)
    kinds = list(members(beta_types.BetaRawMessageStreamEvent))
    names = [min(names_of(kind)) for kind in kinds]
    row(
        "anthropic",
        f"Messages: {len(kinds)} events of streams",
        event_problems(anthropic_messages, CLAUDE, kinds),
        names,
    )
    reasons = {
        "openai": get_args(Choice.model_fields["finish_reason"].annotation),
        "anthropic": get_args(beta_types.BetaStopReason),
        "google-genai": [reason.value for reason in FinishReason if reason.value != "FINISH_REASON_UNSPECIFIED"],
    }
    for peer, found in reasons.items():
        unknown = [f"{reason}: not in the table" for reason in found if ending_of(reason) == "unknown"]
        row(peer, f"{len(found)} reasons to finish", unknown, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
