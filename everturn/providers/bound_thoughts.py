"""Thoughts that their provider does not take back.

Some providers bind a thought to what came before it, or to an account: Claude's newest models to the system prompt,
the tools and all earlier messages; OpenAI its encrypted reasoning to the organisation; Gemini a signature to its part.
Whoever changes the beginning (instructions by a function, a handoff, other tools, a summary, a deploy) gets 400 for it,
in this request and in every later one.

So a request that is refused for its thoughts is sent once more, without any. The reply's message then carries
`bound_to`: a digest of the instructions and tools that it was asked with. Later requests leave out every thought before
that message, and, if the instructions or tools have changed again, every thought, without asking to be refused first. A
thought that the provider still takes is never left out. (Claude could drop them by itself, by `thinking.block_binding`:
only with a beta header, behind few gateways, and not beside `between_tools`; anthropic 2.14.0, 2026-11.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.encoded_messages import RememberedMessages, shown_beginning
from everturn.providers.json_values import a_dict, a_str
from everturn.providers.transcript_facts import facts_of
from everturn.records import Message, Opaque, Part, Reply, ServerToolUse, Thinking

LEFT_OUT: Final = "thoughts_left_out"
"""In a reply's details: how many thoughts the model was not shown, because its provider would have refused them."""

_SEALED: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""The types of blocks and items that are thoughts."""
_SEALS: Final = frozenset(
    {
        *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "reasoning_details"),
        "extra_content",
        *("thinking_blocks", "content_blocks", "reasoning_opaque"),  # LiteLLM's, Portkey's and GitHub Copilot's
    }
)
"""Where providers put a thought's seal beside other parts, and gateways the sealed thought."""
_DIGEST_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class BoundRequest:
    """A request as it is sent."""

    request: Request
    beginning: str = ""
    """What its reply is to be marked with, if thoughts were left out that earlier requests had."""
    left_out: int = 0


def without_stale_thoughts(request: Request) -> BoundRequest:
    """The request without the thoughts that its provider is known to refuse."""
    marked = facts_of(request.messages).bound.get(request.model.provider)
    if marked is None:
        return BoundRequest(request)
    beginning = beginning_of(request)
    latest, bound_to = marked
    if bound_to == beginning:
        return BoundRequest(_strip_thoughts(request, end=latest))
    left_out = _count_thoughts(request.messages[latest:], request.model)
    return BoundRequest(_strip_thoughts(request, end=len(request.messages)), beginning, left_out)


def without_thoughts(request: Request) -> BoundRequest | None:
    """The same request without any thought; None if it has none, or if its sender wants to be refused."""
    left_out = _count_thoughts(request.messages, request.model)
    binding = a_dict(a_dict(request.settings.extra.get("thinking")).get("block_binding"))
    if not left_out or binding.get("prefix_mismatch_behavior") == "error":
        return None
    return BoundRequest(_strip_thoughts(request, end=len(request.messages)), beginning_of(request), left_out)


def marked_reply(reply: Reply, sent: BoundRequest) -> Reply:
    """The reply, marked if thoughts were left out for it. Of a concluding reply, the thoughts lose their seal: they are
    bound to the note that tells the model to conclude, which no later request has."""
    message = _unseal_thoughts(reply.message) if sent.request.conclude else reply.message
    if sent.beginning:
        provider = sent.request.model.provider
        message = message.model_copy(update={"bound_to": sent.beginning, "provider": provider})
    details = dict(reply.details)
    if sent.left_out:
        details[LEFT_OUT] = sent.left_out
    if message is reply.message and details == reply.details:
        return reply
    return reply.model_copy(update={"message": message, "details": details})


def _is_thought(part: Part) -> bool:
    return isinstance(part, Thinking) or (isinstance(part, Opaque) and a_str(a_dict(part.data).get("type")) in _SEALED)


def _count_thoughts(messages: Sequence[Message], model: Model) -> int:
    """How many thoughts, or seals beside other parts, these have for the provider."""
    own_messages = [
        message for message in messages if message.role == "assistant" and message.provider == model.provider
    ]
    return sum(
        _is_thought(part) or _without_seal(part) is not part for message in own_messages for part in message.parts
    )


def _strip_thoughts(request: Request, *, end: int) -> Request:
    def strip_all(messages: Sequence[Message]) -> list[Message]:
        return [_without_thoughts(message, request.model) for message in messages]

    messages = request.messages
    if not isinstance(messages, RememberedMessages):
        return replace(request, messages=[*strip_all(messages[:end]), *messages[end:]])
    beginning, new = messages.beginning, messages.new
    if (end_in_new := end - len(beginning)) <= 0:
        # The end is a part of the key: what was encoded with thoughts after another one has not the same bytes.
        shown = shown_beginning(beginning, ("without thoughts", request.model, end), end, strip_all)
    else:
        key = ("without any thought", request.model)
        shown = shown_beginning(beginning, key, 0, strip_all, lambda message: strip_all([message])[0])
        new = (*strip_all(new[:end_in_new]), *new[end_in_new:])
    return replace(request, messages=RememberedMessages(shown, new))


def _without_thoughts(message: Message, model: Model) -> Message:
    if message.role != "assistant" or message.provider != model.provider:
        return message
    parts = tuple(_without_seal(part) for part in message.parts if not _is_thought(part))
    if len(parts) == len(message.parts) and all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    # Of OpenAI's Responses, items that a reasoning led to are refused without it in their own form, and taken in words.
    provider = message.provider
    if row_of(model.provider).protocol == "openai_responses":
        provider = ""
    return message.model_copy(update={"parts": parts, "provider": provider})


def _without_seal(part: Part) -> Part:
    """The part without a thought's seal; the same object if it has none."""
    if (extra := _unseal_fields(part.extra)) is not part.extra:
        part = part.model_copy(update={"extra": extra})
    if isinstance(part, ServerToolUse | Opaque) and isinstance(part.data, dict) and "thoughtSignature" in part.data:
        data = {name: value for name, value in part.data.items() if name != "thoughtSignature"}
        part = part.model_copy(update={"data": data})
    return part


def _unseal_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without seals, at any depth: gateways put them into objects of their own, or into a call's `function`.
    The same object if there are none."""
    kept = {
        name: _unseal_fields(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in _SEALS
    }
    if len(kept) == len(fields) and all(kept[name] is fields[name] for name in kept):
        return fields
    return {name: value for name, value in kept.items() if value != {}}


def _unseal_thoughts(message: Message) -> Message:
    """With thoughts that people may read, and no provider gets back. Only Claude binds them to what was before."""
    if message.provider != "anthropic" or not any(map(_is_thought, message.parts)):
        return message
    parts = (part for part in message.parts if not isinstance(part, Opaque) or not _is_thought(part))
    bare = (part.model_copy(update={"extra": {}}) if isinstance(part, Thinking) else part for part in parts)
    return message.model_copy(update={"parts": tuple(bare)})


def beginning_of(request: Request) -> str:
    """A digest of what stands before the messages. Only requests of one provider are compared."""
    tools = [[tool.name, tool.description, tool.parameters, tool.options.model_dump()] for tool in request.tools]
    served = [[type(tool).__name__, tool.model_dump(mode="json")] for tool in request.server_tools]
    system = [*facts_of(request.messages).system]
    beginning: list[Any] = [request.instructions, system, tools, served, [dict(tool) for tool in request.raw_tools]]
    written = json.dumps(beginning, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    return hashlib.sha256(written).hexdigest()[:_DIGEST_CHARS]
