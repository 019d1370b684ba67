"""A turn in a batch: its line, made as a live request is, and its reply, read as a live one is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from everturn.errors import FAULTS, InvalidSetting, ProviderError
from everturn.models import Model
from everturn.providers import bound_thoughts, failures
from everturn.providers.base import Request
from everturn.providers.batching.anthropic import AnthropicBatches
from everturn.providers.batching.api import BatchApi, BatchEndpoint, LineResult
from everturn.providers.batching.google import GoogleBatches
from everturn.providers.batching.openai import OpenAIBatches
from everturn.providers.bound_thoughts import BoundRequest, marked_reply, without_stale_thoughts
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.http import PreparedRequest, prepare_request, request_headers
from everturn.providers.refused_grammars import loosened, without_refused
from everturn.providers.tool_schemas import fit_schemas, undo_fit_schemas
from everturn.records import Reply

TIER = "batch"
"""A batched reply's `service_tier`: it has a price of its own."""


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A turn's request as the line of a batch."""

    question: Request
    sent: BoundRequest
    prepared: PreparedRequest

    def read_reply(self, body: Any) -> Reply:
        """The reply that its result holds. Raises ProviderError."""
        endpoint = self.prepared.endpoint
        try:
            reply = self.prepared.protocol.decode(body, self.sent.request)
        except failures.ErrorInReply as error:
            raise failures.of_response(endpoint, status=200, headers={}, body=error.body) from None
        except FAULTS as error:
            problem = f"reading it failed ({type(error).__name__}: {error!s:.200})"
            raise failures.not_the_protocol(endpoint, problem, status=200) from error
        reply = undo_fit_schemas(marked_reply(reply, self.sent), self.question)
        return reply.model_copy(update={"details": {**reply.details, "service_tier": TIER}})

    def loosen(self) -> bool:
        """Remembers that this line was refused for its schemas; False if it has none that the next line could omit."""
        return without_refused(self.sent.request) is not None

    def error_of(self, result: LineResult) -> ProviderError:
        """The error, if it was refused."""
        return failures.of_response(self.prepared.endpoint, status=result.status, headers={}, body=result.body)


def line_of(question: Request, *, without_thoughts: bool = False) -> TurnLine:
    """`without_thoughts`: without those in the transcript. Raises as `http.prepare_request`."""
    settings = question.settings.model_copy(update={"stream": False, "background": False})
    sent = without_stale_thoughts(loosened(fit_schemas(replace(question, settings=settings))))
    if without_thoughts:
        sent = bound_thoughts.without_thoughts(sent.request) or sent
    return TurnLine(question, sent, prepare_request(sent.request))


def api_of(prepared: PreparedRequest) -> BatchApi:
    """The batches that a line goes to."""
    return _api(BatchEndpoint(prepared.endpoint, prepared.headers), prepared.path)


def batches_of(model: Model) -> BatchApi:
    """The batches of a model's provider, to find, poll, cancel and read them. Raises as `resolve_endpoint`."""
    endpoint = resolve_endpoint(model)
    return _api(BatchEndpoint(endpoint, request_headers((), tuple(endpoint.key_headers().items()))), "")


def _api(calls: BatchEndpoint, path: str) -> BatchApi:
    match calls.endpoint.provider:
        case "openai" | "openai-chat":
            return OpenAIBatches(calls, path)
        case "anthropic":
            return AnthropicBatches(calls)
        case "google":
            return GoogleBatches(calls, path)
        case provider:
            raise InvalidSetting(f"{provider!r} has no batches here.", cure="Leave out batch=True.")
