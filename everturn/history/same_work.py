"""The same id is the same work: whether the conversation that has an id is the one that somebody wants to start."""

from __future__ import annotations

from typing import Any, Final

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from everturn import names
from everturn.errors import AlreadyStarted
from everturn.history.reader import first_step
from everturn.logs import get_logger
from everturn.payloads import Start
from everturn.temporal.any_status import describe, is_over
from everturn.temporal.temporal_errors import not_found
from everturn.tenants.metadata import TENANT

CURE: Final = "Use another id. client.send() says something more to that conversation; "
ANEW: Final = "again=True starts anew once it is over."

KEPT_OPTIONS: Final = ("policy", "model", "limits", "keep_open", "metadata", "searchable")
"""What a conversation keeps as it was begun, whoever joins it with other values."""

_log = get_logger("everturn.conversation")


async def is_begun(temporal: Client, conversation_id: str, wanted: Start) -> bool:
    """Whether this work has been begun under the id. False if there is nothing by now. Raises AlreadyStarted if the id
    has other work, and RPCError."""
    try:
        described = await describe(temporal, conversation_id)
        if described.workflow_type != names.CONVERSATION:
            raise AlreadyStarted(
                f"The id {conversation_id!r} is taken: by a workflow of type {described.workflow_type!r}, which is no "
                "conversation.",
                cure="Use another id.",
            )
        started = await first_step(temporal, conversation_id, described.run_id)
    except RPCError as error:
        if not not_found(error):
            raise
        return False
    if problem := difference(started.start if started else None, wanted):
        raise AlreadyStarted(f"Conversation {conversation_id!r} is other work: {problem}.", cure=CURE + ANEW)
    if wanted.notify and started and started.start.notify != wanted.notify and not is_over(described):
        raise AlreadyStarted(
            f"Conversation {conversation_id!r} was begun by somebody else, and workflow {wanted.notify.workflow_id!r} "
            "would not be sent its signal when a call waits for a person.",
            cure="Leave notify= out to wait for its outcome, or use another id.",
        )
    if started:
        _warn_of_kept_options(conversation_id, started.start, wanted)
    return True


def _warn_of_kept_options(conversation_id: str, begun: Start, wanted: Start) -> None:
    """Logs which options hold as they were when the conversation began, and not as they are given now."""
    kept = [
        name
        for name in KEPT_OPTIONS
        if getattr(wanted, name) and _without_deciders(begun, name) != _without_deciders(wanted, name)
    ]
    if kept:
        _log.warning(
            "conversation.joined",
            conversation=conversation_id,
            kept=kept,
            cause=f"Conversation {conversation_id!r} exists already: its own {', '.join(kept)} hold, not the given.",
            cure="set_policy() gives it other rules. For all else, use another id.",
        )


def _without_deciders(start: Start, option: str) -> Any:
    """Who made a rule does not matter: it may be another process of the same program."""
    value = getattr(start, option)
    if option == "policy":
        return [rule.model_copy(update={"by": ""}) for rule in value]
    return value


async def check_tenant(temporal: Client, described: WorkflowExecutionDescription, tenant: str) -> None:
    """Raises AlreadyStarted if the conversation is for another tenant, and RPCError."""
    if (await described.memo()).get(TENANT) == tenant:
        return
    started = await first_step(temporal, described.id, described.run_id)  # it may be started by any program
    begun = started.start.tenant if started else None
    if begun != tenant:
        raise AlreadyStarted(
            f"Conversation {described.id!r} is other work: {_tenants_in_words(begun, tenant)}.", cure="Use another id."
        )


def difference(begun: Start | None, wanted: Start) -> str:
    """How the two are other work, in words; empty if they are the same. What else they are started with (a model,
    limits, metadata ...) holds as it was begun, but nobody is given the conversation of another tenant."""
    if begun is None:
        return "its beginning can't be read"
    if not begun.began.is_same(wanted.began):
        return f"it was begun as {begun.began.in_words}, and not as {wanted.began.in_words}"
    if wanted.tenant is not None and begun.tenant != wanted.tenant:
        return _tenants_in_words(begun.tenant, wanted.tenant)
    return ""


def _tenants_in_words(begun: str | None, wanted: str) -> str:
    if begun is None:
        return f"it is for no tenant, and not for {wanted!r}"
    return f"it is for tenant {begun!r}, and not for {wanted!r}"
