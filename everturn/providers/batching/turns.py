"""A turn in a batch: its line, made as a live request is, and its reply, read as a live one is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from everturn.errors import FAULTS, InvalidSetting, ProviderError
from everturn.models import Model
from everturn.providers import failures
from everturn.providers.base import Request
from everturn.providers.batching.anthropic import AnthropicBatches
from everturn.providers.batching.api import BatchApi, Calls, LineResult
from everturn.providers.batching.google import GoogleBatches
from everturn.providers.batching.openai import OpenAIBatches
from everturn.providers.bound_thoughts import BoundRequest, marked_reply, without_stale_thoughts, without_thoughts
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.http import Prepared, prepare_request, request_headers
from everturn.providers.tool_schemas import fit_schemas, with_own_names
from everturn.records import Reply

TIER = "batch"
"""A batched reply's `service_tier`: it has a price of its own."""


def line_of(question: Request, *, without: bool = False) -> Prepared:
    """The request of a line. `without`: without the thoughts in the transcript. Raises as `http.prepare_request`."""
    return prepare_request(_bound(question, without=without).request)


def api_of(prepared: Prepared) -> BatchApi:
    """The batches that a line goes to."""
    return _api(Calls(prepared.endpoint, prepared.headers), prepared.path)


def batches_of(model: Model) -> BatchApi:
    """The batches of a model's provider, to find, poll, cancel and read them. Raises as `resolve_endpoint`."""
    endpoint = resolve_endpoint(model)
    return _api(Calls(endpoint, request_headers((), tuple(endpoint.key_headers().items()))), "")


def _api(calls: Calls, path: str) -> BatchApi:
    match calls.endpoint.provider:
        case "openai" | "openai-chat":
            return OpenAIBatches(calls, path)
        case "anthropic":
            return AnthropicBatches(calls)
        case "google":
            return GoogleBatches(calls, path)
        case provider:
            raise InvalidSetting(f"{provider!r} has no batches here.", cure="Leave out batch=True.")


def reply_of(question: Request, body: Any, *, without: bool = False) -> Reply:
    """The reply that a line's result holds. Raises ProviderError."""
    sent = _bound(question, without=without)
    prepared = prepare_request(sent.request)
    try:
        reply = prepared.protocol.decode(body, sent.request)
    except failures.ErrorInReply as error:
        raise failures.of_response(prepared.endpoint, status=200, headers={}, body=error.body) from None
    except FAULTS as error:
        problem = f"reading it failed ({type(error).__name__}: {error!s:.200})"
        raise failures.not_the_protocol(prepared.endpoint, problem, status=200) from error
    reply = with_own_names(marked_reply(reply, sent), question)
    return reply.model_copy(update={"details": {**reply.details, "service_tier": TIER}})


def error_of(question: Request, result: LineResult) -> ProviderError:
    """The error for a line that was refused."""
    endpoint = prepare_request(_bound(question).request).endpoint
    return failures.of_response(endpoint, status=result.status, headers={}, body=result.body)


def _bound(question: Request, *, without: bool = False) -> BoundRequest:
    settings = question.settings.model_copy(update={"stream": False, "background": False})
    bound = without_stale_thoughts(fit_schemas(replace(question, settings=settings)))
    return (without_thoughts(bound.request) or bound) if without else bound
