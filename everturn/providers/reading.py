"""What the readers of all protocols share: bounds, and the JSON of a stream's events."""

from __future__ import annotations

from typing import Any, Final

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.failures import ErrorInReply
from everturn.providers.json_values import a_dict, a_str, parse_json
from everturn.text.utf8 import mend

MAX_CALLS: Final = 2048
"""Most calls in one reply; see MAX_PLANNED_CALLS too. The results of more calls would fit no payload."""
MAX_REPLY_NAME_CHARS: Final = 256
"""Of a name in a reply, such as that of the called tool. No provider takes tools with names of more than 128: a longer
one is made up, and is only shown."""


def unusable_reply(model: Model, what: str) -> InvalidReply:
    """The error for a reply that can't be used; `what` is wrong with it."""
    return InvalidReply(f"The reply of {model.name!r} is unusable: {what}.", provider=model.provider)


def stop_texts(request: Request) -> bool:
    """Whether the request has texts at which a reply is cut off, wherever that is in it."""
    names = ("stop", "stop_sequences", "stopSequences")
    places = (request.settings.extra, a_dict(request.settings.extra.get("generationConfig")))
    return bool(request.settings.stop) or any(place.get(name) for place in places for name in names)


def takes_arguments(request: Request, name: str) -> bool:
    """Whether the tool has parameters, so that a call of it without any may be half a call. True for unknown tools."""
    parameters = next((tool.parameters for tool in request.tools if tool.name == name), None)
    if parameters is None:
        return True
    says_nothing = {"type", "properties", "additionalProperties", "required", "title", "description", "$schema"}
    return bool(
        parameters.get("properties") or parameters.get("additionalProperties") or parameters.keys() - says_nothing
    )


def own_name(given: str, request: Request) -> str:
    """The name of a called tool. Servers of open weights leave spaces around it, and what the model wrote behind it:
    `query<|channel|>commentary` (vLLM's issue 32587, 2026-05)."""
    name = mend(given)[:MAX_REPLY_NAME_CHARS]
    if name.isidentifier():
        return name
    bare = name.partition("<|")[0].strip()
    if any(tool.name == bare for tool in request.tools):
        return bare
    return name


def response_id(given: object) -> str | None:
    """The provider's name for a reply; None if it gives none."""
    return mend(a_str(given))[:MAX_REPLY_NAME_CHARS] or None


def value_of(event: Event, model: Model) -> Any:
    """The JSON in an event. Raises ErrorInReply if the event is named an error, InvalidReply if it holds no JSON."""
    try:
        value = parse_json(event.data)
    except ValueError as error:
        if event.name == "error":
            raise ErrorInReply(mend(event.data)) from None
        raise unusable_reply(model, f"an event of the stream is not JSON ({error})") from None
    if event.name == "error":
        raise ErrorInReply(value)
    return value


def object_of(event: Event, model: Model) -> dict[str, Any]:
    """The JSON object in an event; raises as `value_of` does."""
    value = value_of(event, model)
    if not isinstance(value, dict):
        raise unusable_reply(model, "an event of the stream is not a JSON object")
    return value
