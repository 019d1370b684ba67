"""`everturn approve`, `deny` and `answer`: a person's decision on tool calls that wait."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import tell, tell_json
from everturn.names import EVERY_CALL
from everturn.system.json_numbers import parse_json

if TYPE_CHECKING:
    from everturn.client.client import Client
    from everturn.client.conversation import Conversation
    from everturn.client.many_decisions import DecidedCall

OptionalId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The conversation; or --all.", autocompletion=completion.ids),
]
CallsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CALL",
        help="The calls, those of sub-agents too. Without any, all waiting ones.",
        autocompletion=completion.calls,
    ),
]
EveryOption = Annotated[bool, typer.Option("--all", help="All conversations, instead of one ID.")]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="With --all: of this agent only.", autocompletion=completion.agents),
]
ToolOption = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Calls of this tool only.")]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="JSON", help='Only calls whose arguments fit, such as \'{"cents": {"at_most": 2000}}\'.'
    ),
]
AlwaysOption = Annotated[
    bool, typer.Option("--always", help="Decide the same way for every such call from now on, in these conversations.")
]
WithinOption = Annotated[
    float | None,
    typer.Option("--within", metavar="SECONDS", min=0.1, help="Don't accept the decision later than this."),
]


@dataclass(frozen=True)
class _Which:
    """The calls to decide on, as the options say."""

    id: str | None
    calls: list[str]
    every: bool
    agent: str | None
    tool: str | None
    where: dict[str, Any] | None
    always: bool = False
    seconds: float | None = None
    """How long the decisions may take."""

    @property
    def remembered(self) -> dict[str, Any] | bool:
        """The value of `always=` for the conversation's methods."""
        return (self.where or True) if self.always else False

    @property
    def within(self) -> timedelta | None:
        return timedelta(seconds=self.seconds) if self.seconds else None

    def check(self, *, edited: bool = False) -> None:
        """Raises BadParameter for options that don't go together."""
        if (self.id is None) != self.every:
            said = (
                "name a conversation, or use --all"
                if self.id is None
                else "--all decides on all conversations: leave out the ID"
            )
            raise typer.BadParameter(said, param_hint="ID")
        if self.agent is not None and not self.every:
            raise typer.BadParameter("it goes with --all", param_hint="--agent")
        if self.calls and self.tool is not None:
            raise typer.BadParameter("calls are named already", param_hint="--tool")
        if self.calls and self.where is not None and not self.always:
            raise typer.BadParameter("calls are named already: it goes with --always then", param_hint="--where")
        if edited and (self.by_look or len(self.calls) > 1):
            raise typer.BadParameter("--arguments is for one call: name that call", param_hint="--arguments")

    @property
    def by_look(self) -> bool:
        """Whether the calls have to be looked up first."""
        return self.every or self.tool is not None or (self.where is not None and not self.calls)


def approve(
    id: OptionalId = None,  # noqa: A002
    call: CallsArgument = None,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--arguments",
            metavar="JSON",
            help="Run the call with these arguments instead of the model's. They are checked when it is to run; if "
            "they don't fit, the call waits again.",
        ),
    ] = None,
    note: Annotated[str | None, typer.Option("--note", help="A note for the model.")] = None,
    every: EveryOption = False,
    agent: AgentOption = None,
    tool: ToolOption = None,
    where: WhereOption = None,
    always: AlwaysOption = False,
    within: WithinOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve waiting tool calls, so that they run."""
    which = _Which(id, call or [], every, agent, tool, _object(where, "--where"), always, within)
    edited = _object(arguments, "--arguments")
    which.check(edited=edited is not None)

    async def one(conversation: Conversation, call_id: str) -> tuple[str, ...]:
        if call_id == EVERY_CALL:
            await _check_none_may_have_run(conversation)
        return await conversation.approve(call_id, edited, note, always=which.remembered, within=which.within)

    def many(client: Client, **asked: Any) -> Awaitable[list[DecidedCall]]:
        return client.approve_all(**asked, note=note, always=always, within=which.within)

    _decide(which, one, many, said="approved", as_json=as_json, edited=edited is not None)


def deny(
    id: OptionalId = None,  # noqa: A002
    call: CallsArgument = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason, for the model.")] = None,
    every: EveryOption = False,
    agent: AgentOption = None,
    tool: ToolOption = None,
    where: WhereOption = None,
    always: AlwaysOption = False,
    within: WithinOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny waiting tool calls, so that they don't run."""
    which = _Which(id, call or [], every, agent, tool, _object(where, "--where"), always, within)
    which.check()

    def one(conversation: Conversation, call_id: str) -> Awaitable[tuple[str, ...]]:
        return conversation.deny(call_id, reason, always=which.remembered, within=which.within)

    def many(client: Client, **asked: Any) -> Awaitable[list[DecidedCall]]:
        return client.deny_all(**asked, reason=reason, always=always, within=which.within)

    _decide(which, one, many, said="denied", as_json=as_json)


def answer(
    id: IdArgument,  # noqa: A002
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call's id.", autocompletion=completion.calls)],
    content: Annotated[str, typer.Argument(metavar="CONTENT", help="The result: JSON or text.")],
    error: Annotated[
        bool, typer.Option("--error", help="The result is an error: CONTENT says what went wrong.")
    ] = False,
    within: WithinOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a tool call's result instead of the tool, or answer its question."""
    which = _Which(id, [call], False, None, None, None, seconds=within)

    def one(conversation: Conversation, call_id: str) -> Awaitable[tuple[str, ...]]:
        return conversation.answer(call_id, _json_or_text(content), is_error=error, within=which.within)

    _decide(which, one, None, said="answered", as_json=as_json)


def _decide(
    which: _Which,
    one: Callable[[Conversation, str], Awaitable[tuple[str, ...]]],
    many: Callable[..., Awaitable[list[DecidedCall]]] | None,
    *,
    said: str,
    as_json: bool,
    edited: bool = False,
) -> None:
    """`edited`: it is approved with other arguments, which its worker checks only when the call is to run."""
    if which.by_look and many:
        _tell_many(asyncio.run(_looked_up(which, many)), said=said, as_json=as_json)
        return
    assert which.id is not None
    call_ids = asyncio.run(_named(which, one))
    if as_json:
        tell_json({"call_ids": call_ids, **({"arguments_checked": False} if edited else {})})
        return
    unchecked = "with other arguments; they are checked before it runs: everturn watch"
    later = f", {unchecked} {shlex.quote(which.id)}" if edited else ""
    tell(f"{said}: {', '.join(call_ids)}{later}")


async def _named(which: _Which, one: Callable[[Conversation, str], Awaitable[tuple[str, ...]]]) -> tuple[str, ...]:
    """Decides on one call after the other. The first refusal ends it, and names the calls decided before."""
    from everturn.cli.connect import act_on
    from everturn.errors import Refused

    done: tuple[str, ...] = ()

    async def act(conversation: Conversation) -> tuple[str, ...]:
        nonlocal done
        for call_id in which.calls or [EVERY_CALL]:
            try:
                done += await one(conversation, call_id)
            except Refused as error:
                before = f" Decided before it: {', '.join(done)}." if done else ""
                raise Refused(f"{error.message}{before}", cure=error.cure) from None
        return done

    assert which.id is not None
    made: tuple[str, ...] = await act_on(which.id, act)
    return made


async def _check_none_may_have_run(conversation: Conversation) -> None:
    """Raises Refused if a call may have run already. A person who names no call may not know that, or mean another."""
    from everturn.cli.render import ways_to_decide
    from everturn.errors import Refused

    waiting = (await conversation.status()).waiting
    for waits in waiting:
        if waits.reason == "outcome_unknown":
            again, instead = ways_to_decide(conversation.id, waits, waiting)
            raise Refused(
                f"{waits.tool} ({waits.call_id}) may have run already, and an approval runs it again.",
                cure=f"If it has to run again: `{again}`. If it has run: `{instead}`.",
            )


async def _looked_up(which: _Which, many: Callable[..., Awaitable[list[DecidedCall]]]) -> list[DecidedCall]:
    from everturn.cli.connect import remote_client

    async with remote_client() as client:
        ids = None if which.id is None else [which.id]
        return await many(client, ids=ids, agent=which.agent, tool=which.tool, where=which.where)


def _tell_many(calls: list[DecidedCall], *, said: str, as_json: bool) -> None:
    from everturn.cli.render import call_line

    if as_json:
        tell_json([asdict(one) for one in calls])
    for one in [] if as_json else calls:
        line = f"{one.conversation_id} {one.call_id} {call_line(one.tool, one.arguments, 100)}"
        tell(f"not {said}: {line}: {one.refused}" if one.refused else f"{said}: {line}")
    if not calls and not as_json:
        tell("No waiting call matches.")
    if any(one.refused for one in calls):
        raise typer.Exit(1)


def _object(written: str | None, option: str) -> dict[str, Any] | None:
    if written is None:
        return None
    try:
        value = parse_json(written)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"this is not JSON: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter("it is a JSON object, such as '{\"cents\": 900}'", param_hint=option)
    return value


def _json_or_text(content: str) -> Any:
    try:
        return parse_json(content)
    except (ValueError, RecursionError):
        return content
