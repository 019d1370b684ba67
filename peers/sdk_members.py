"""Run by `peers/vendors.py` with the Python that has the SDKs: a JSON line for each row about their unions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, get_args

import anthropic.types as messages_types
import anthropic.types.beta as beta_types
import openai.types.responses as responses_types
from google.genai.types import FinishReason
from openai.types.chat.chat_completion import Choice

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers import anthropic_messages, openai_responses
from everturn.providers.base import Request
from everturn.providers.failures import ErrorInReply
from everturn.providers.finish_reasons import ending_of
from everturn.records import Message, Reply
from tests.support.sdk_types import Pair, example, marked, members, names_of, pairs

USER = Message.user("?")
OPENAI = Model("openai:gpt-6")
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


def main() -> int:
    problems, names = checked(
        lambda: pairs(responses_types.ResponseOutputItem, responses_types.ResponseInputItemParam), item_problems
    )
    row("openai", f"Responses: {len(names)} kinds of items, whole, streamed and sent back", problems, names)
    for module, beta in ((messages_types, ""), (beta_types, "Beta")):
        outputs, inputs = getattr(module, f"{beta}ContentBlock"), getattr(module, f"{beta}ContentBlockParam")
        problems, names = checked(lambda outputs=outputs, inputs=inputs: pairs(outputs, inputs), block_problems)
        ran = f"{'beta ' if beta else ''}Messages: {len(names)} kinds of blocks, whole, streamed and sent back"
        row("anthropic", ran, problems, names)
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
