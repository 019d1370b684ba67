"""The errors that everturn raises. Each names the thing, the place and the next step.

EverturnError
 ├─ ConfigError                 what you wrote needs a change before anything can run
 │   ├─ InvalidTool             an item of tools=, or a tool's signature
 │   ├─ InvalidAgent            an Agent's name or settings
 │   ├─ InvalidModel            a model name that no provider answers to
 │   ├─ InvalidSetting          an environment variable or option
 │   └─ InvalidFile             a tool file or agent file that can't be loaded
 ├─ ToolFailed                  raised by a tool: the model is told, and nothing is retried
 │   └─ NotAnswered             raised by `ToolContext.ask`: nobody has answered the tool's question
 ├─ NeedsApproval               raised by a tool: the call waits for a person's approval, and is run again
 ├─ Retry                       raised by a tool: its call is tried again, while the tool's patience lasts
 ├─ OutcomeUnknown              raised by a tool that runs once: whether it took effect is not known; a person decides
 ├─ ProviderError               a model API failed; `retry` says whether trying again can help
 │   ├─ RateLimited             429
 │   ├─ Unavailable             503, 529, other 5xx: a temporary failure of the provider
 │   ├─ ConnectionFailed        no connection, a broken one, or a timeout
 │   ├─ InvalidReply            the reply is not valid, or it stopped in the middle
 │   ├─ KeyMissing              no key in the worker's environment
 │   ├─ KeyRefused              401, 403
 │   ├─ ModelNotFound           404
 │   ├─ RequestRefused          400 and similar: the request itself is wrong
 │   ├─ QuotaExhausted          429 or 402 that no waiting cures: the account has run out
 │   └─ ContextTooLong          the transcript no longer fits the model
 ├─ ConversationError           a conversation can't do what you ask
 │   ├─ AlreadyStarted          this id has another conversation already
 │   ├─ NotFound                no conversation has this id
 │   │   └─ OtherWorkflow       a workflow has it that is no conversation
 │   ├─ Refused                 it refused an update; the message says why
 │   ├─ Stalled                 it waits for a person; cause and cure are in the message
 │   └─ Ended                   it is over, and can't do what you asked for
 └─ Unreachable                 no Temporal server answers at the address, or no worker answers
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from math import isnan
from typing import Any, Final

_LONGEST_SECONDS = 366 * 86_400.0


class EverturnError(Exception):
    """Base of all. `cure` is the next step, in words; it ends the message."""

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(f"{message} {cure}" if cure else message)
        self.message = message
        self.cure = cure


class ConfigError(EverturnError): ...


class InvalidTool(ConfigError): ...


class InvalidAgent(ConfigError): ...


class InvalidModel(ConfigError): ...


class InvalidSetting(ConfigError): ...


class InvalidFile(ConfigError): ...


class ToolFailed(EverturnError):
    """Raise it in a tool: its message becomes the model's ToolResult, marked as an error. Never retried.

    `parts`: what the model gets besides the message, such as an `Image` of the page that broke.
    """

    def __init__(self, message: str = "", *, cure: str = "", parts: Iterable[Any] = ()) -> None:
        super().__init__(message, cure=cure)
        self.parts = tuple(parts)


class NotAnswered(ToolFailed):
    """From `ToolContext.ask`: the person declined to answer, or nobody answered in time. A tool may catch it; else the
    model is told."""


class NeedsApproval(EverturnError):
    """Raise it in a tool that finds out that a person has to approve this call. The call then waits, with the
    message as its reason. Once approved, it runs again from its beginning, with `ToolContext.approved` set."""


class Retry(EverturnError):
    """Raise it in a tool whose call may succeed later. The call is tried again after the time `after`; without it,
    after half a second, then twice as long each time. When the tool's patience is over, the model reads the message
    as an error.

    `after`: a timedelta, or seconds, as a Retry-After header gives them. So that not all calls come back at once, up to
    half of it is added, 30 seconds at the most. A tool with effect="once" is never tried again: the model is told at
    once.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message or "The tool asked to be tried again later.")
        if after is None or isinstance(after, timedelta):
            self.after = after
        elif isnan(after):  # says nothing; and the message is not to be lost over it
            self.after = None
        else:
            self.after = timedelta(seconds=min(max(after, 0.0), _LONGEST_SECONDS))


class OutcomeUnknown(EverturnError):
    """Raise it in a tool that can't know whether it took effect, such as after a payment whose answer was lost. With
    effect="once", the call waits for a person, who runs it again, answers in its place, or tells the model that the
    outcome is unknown. Any other tool is tried again, as after Retry: there, that does no harm."""


class ProviderError(EverturnError):
    """A model call that failed.

    `retry`: whether the same request can succeed later. `retry_after`: seconds that the provider asks for, None
    if it does not say. `status`: the HTTP status, None without one. `request_id`: the provider's name for the
    request, for its support. `refuses_thoughts`: what it refuses is the model's own earlier thoughts;
    `refuses_grammars`: a schema that it can't hold the model to.
    """

    retry: bool = False
    refuses_thoughts: bool = False
    refuses_grammars: bool = False

    def __init__(
        self,
        message: str,
        *,
        cure: str = "",
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, cure=cure)
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id
        self.most_output_tokens: int | None = None
        """The most tokens that the request could have asked for, if its error names them."""

    @property
    def after(self) -> float | None:
        """`retry_after`, by the name that it has in `Retry(after=)`."""
        return self.retry_after


class RateLimited(ProviderError):
    retry = True


class Unavailable(ProviderError):
    retry = True


class ConnectionFailed(ProviderError):
    retry = True


class InvalidReply(ProviderError):
    retry = True


class KeyMissing(ProviderError):
    """`variables`: the environment variables that would hold the key, the most usual one first."""

    def __init__(self, message: str, *, cure: str = "", provider: str = "", variables: tuple[str, ...] = ()) -> None:
        super().__init__(message, cure=cure, provider=provider)
        self.variables = variables


class KeyRefused(ProviderError): ...


class ModelNotFound(ProviderError): ...


class RequestRefused(ProviderError): ...


class QuotaExhausted(ProviderError): ...


class ContextTooLong(ProviderError): ...


class ConversationError(EverturnError): ...


class AlreadyStarted(ConversationError): ...


class NotFound(ConversationError): ...


class OtherWorkflow(NotFound):
    """The id is that of a workflow of another type. It is asked nothing, and told nothing. It is NotFound, since no
    conversation has this id; Refused is what a conversation says."""


class Refused(ConversationError): ...


class Stalled(ConversationError): ...


class Ended(ConversationError): ...


class Unreachable(EverturnError): ...


FAULTS: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a program with a bug raises. Doing the same again does not help."""
