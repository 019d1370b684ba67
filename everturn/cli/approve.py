"""`everturn approve`, `deny` and `answer`: a person's decision on tool calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_json, print_text
from everturn.names import EVERY_CALL
from everturn.system.json_numbers import parse_json
from everturn.text.commands import command_about

if TYPE_CHECKING:
    from everturn.client.client import Client
    from everturn.client.conversation import Conversation
    from everturn.client.many_decisions import DecidedCall

OptionalId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The conversation; or --all.", autocompletion=completion.offer_ids),
]
CallsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CALL",
        help="The calls, those of sub-agents too. Without any, all waiting ones.",
        autocompletion=completion.offer_calls,
    ),
]
EveryOption = Annotated[bool, typer.Option("--all", help="All conversations, instead of one ID.")]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="NAME", help="With --all: of this agent only.", autocompletion=completion.offer_agents
    ),
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
class _Selection:
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
        if not self.always:
            return False
        return self.where or True

    @property
    def within(self) -> timedelta | None:
        return timedelta(seconds=self.seconds) if self.seconds else None

    def check_options(self, *, edited: bool = False) -> None:
        """Raises BadParameter for options that don't go together."""
        if self.id is None and not self.every:
            raise typer.BadParameter("name a conversation, or use --all", param_hint="ID")
        if self.id is not None and self.every:
            raise typer.BadParameter("--all decides on all conversations: leave out the ID", param_hint="ID")
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
    selection = _Selection(id, call or [], every, agent, tool, _parse_object(where, "--where"), always, within)
    edited = _parse_object(arguments, "--arguments")
    selection.check_options(edited=edited is not None)

    async def approve_call(conversation: Conversation, call_id: str) -> tuple[str, ...]:
        if call_id == EVERY_CALL:
            await _check_none_may_have_run(conversation)
        return await conversation.approve(call_id, edited, note, always=selection.remembered, within=selection.within)

    def approve_matching(client: Client, **filters: Any) -> Awaitable[list[DecidedCall]]:
        return client.approve_all(**filters, note=note, always=always, within=selection.within)

    _decide_and_report(
        selection, approve_call, approve_matching, verb="approved", as_json=as_json, edited=edited is not None
    )


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
    selection = _Selection(id, call or [], every, agent, tool, _parse_object(where, "--where"), always, within)
    selection.check_options()

    def deny_call(conversation: Conversation, call_id: str) -> Awaitable[tuple[str, ...]]:
        return conversation.deny(call_id, reason, always=selection.remembered, within=selection.within)

    def deny_matching(client: Client, **filters: Any) -> Awaitable[list[DecidedCall]]:
        return client.deny_all(**filters, reason=reason, always=always, within=selection.within)

    _decide_and_report(selection, deny_call, deny_matching, verb="denied", as_json=as_json)


def answer(
    id: IdArgument,  # noqa: A002
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call's id.", autocompletion=completion.offer_calls)],
    content: Annotated[str, typer.Argument(metavar="CONTENT", help="The result: JSON or text.")],
    error: Annotated[
        bool, typer.Option("--error", help="The result is an error: CONTENT says what went wrong.")
    ] = False,
    within: WithinOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a tool call's result instead of the tool, or answer its question."""
    selection = _Selection(id, [call], False, None, None, None, seconds=within)

    def answer_call(conversation: Conversation, call_id: str) -> Awaitable[tuple[str, ...]]:
        return conversation.answer(call_id, _json_or_text(content), is_error=error, within=selection.within)

    _decide_and_report(selection, answer_call, None, verb="answered", as_json=as_json)


def _decide_and_report(
    selection: _Selection,
    decide_call: Callable[[Conversation, str], Awaitable[tuple[str, ...]]],
    decide_matching: Callable[..., Awaitable[list[DecidedCall]]] | None,
    *,
    verb: str,
    as_json: bool,
    edited: bool = False,
) -> None:
    """`edited`: it is approved with other arguments, which its worker checks only when the call is to run."""
    if selection.by_look and decide_matching:
        _report_matching(asyncio.run(_decide_matching(selection, decide_matching)), verb=verb, as_json=as_json)
        return
    assert selection.id is not None
    call_ids = asyncio.run(_decide_named(selection, decide_call))
    if as_json:
        decided: dict[str, Any] = {"call_ids": call_ids}
        if edited:
            decided["arguments_checked"] = False
        print_json(decided)
        return
    line = f"{verb}: {', '.join(call_ids)}"
    if edited:
        watch = command_about("watch", selection.id)
        line += f", with other arguments; they are checked before it runs: {watch}"
    print_text(line)


async def _decide_named(
    selection: _Selection, decide_call: Callable[[Conversation, str], Awaitable[tuple[str, ...]]]
) -> tuple[str, ...]:
    """Decides on one call after the other. The first refusal ends it, and names the calls decided before."""
    from everturn.cli.connect import act_on
    from everturn.errors import Refused

    done: tuple[str, ...] = ()

    async def decide_each(conversation: Conversation) -> tuple[str, ...]:
        nonlocal done
        for call_id in selection.calls or [EVERY_CALL]:
            try:
                done += await decide_call(conversation, call_id)
            except Refused as error:
                before = f" Decided before it: {', '.join(done)}." if done else ""
                raise Refused(f"{error.message}{before}", cure=error.cure) from None
        return done

    assert selection.id is not None
    call_ids: tuple[str, ...] = await act_on(selection.id, decide_each)
    return call_ids


async def _check_none_may_have_run(conversation: Conversation) -> None:
    """Raises Refused if a call may have run already. A person who names no call may not know that, or mean another."""
    from everturn.cli.render import ways_to_decide
    from everturn.errors import Refused

    waiting = (await conversation.status()).waiting
    for call in waiting:
        if call.reason == "outcome_unknown":
            again, instead = ways_to_decide(conversation.id, call, waiting)
            raise Refused(
                f"{call.tool} ({call.call_id}) may have run already, and an approval runs it again.",
                cure=f"If it has to run again: `{again}`. If it has run: `{instead}`.",
            )


async def _decide_matching(
    selection: _Selection, decide_matching: Callable[..., Awaitable[list[DecidedCall]]]
) -> list[DecidedCall]:
    from everturn.cli.connect import remote_client

    async with remote_client() as client:
        ids = None if selection.id is None else [selection.id]
        return await decide_matching(client, ids=ids, agent=selection.agent, tool=selection.tool, where=selection.where)


def _report_matching(calls: list[DecidedCall], *, verb: str, as_json: bool) -> None:
    from everturn.cli.render import call_line

    if as_json:
        print_json([asdict(call) for call in calls])
    else:
        for call in calls:
            line = f"{call.conversation_id} {call.call_id} {call_line(call.tool, call.arguments, 100)}"
            print_text(f"not {verb}: {line}: {call.refused}" if call.refused else f"{verb}: {line}")
        if not calls:
            print_text("No waiting call matches. `everturn list --status awaiting_approval` lists who waits.")
    if any(call.refused for call in calls):
        raise typer.Exit(1)


def _parse_object(written: str | None, option: str) -> dict[str, Any] | None:
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
