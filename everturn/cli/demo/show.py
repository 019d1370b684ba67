"""The demo's show: what is played on the stage, and what people see of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everturn.cli.demo.checks import Check, PlayedDemo, check_demo
from everturn.cli.demo.kill import Kill, kill_in_the_middle, second_tries
from everturn.cli.demo.stage import Stage, set_up_stage
from everturn.cli.render import marked_text, transcript_lines
from everturn.cli.terminal import Screen
from everturn.errors import EverturnError, Stalled

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation

AGENT = "bookkeeper"
TASK = (
    "Do October's books: check and book the invoices in the folder, write report.md, "
    "and pay what is due by 10 October 2026."
)
LIMIT_SECONDS = 300


async def play_demo() -> bool:
    """Plays the demo, checks it, and prints the results. False if a check failed."""
    from everturn.cli.connect import quiet_logs

    screen = Screen(to_stdout=True)
    quiet_logs(None)
    started = time.monotonic()
    screen.print_line(
        "everturn demo: a bookkeeper works on real files, and its worker is killed in the middle", style="bold"
    )
    screen.show_busy("starting Temporal, a model and a worker")
    try:
        async with set_up_stage() as set_up:
            checks = await _play_on(set_up, screen, started)
            await _let_look(screen)
    finally:
        screen.stop_spinner()
    return all(check.happened for check in checks)


async def _play_on(set_up: Stage, screen: Screen, started: float) -> list[Check]:
    pid = set_up.start_worker()
    conversation = await set_up.client.start(AGENT, TASK, id=f"october-books-{pid}", model=set_up.model)
    _print_setup(set_up, screen, pid)
    kill = asyncio.create_task(kill_in_the_middle(set_up, conversation.id, screen))
    async with asyncio.timeout(None if screen.can_ask else LIMIT_SECONDS):
        await _follow_conversation(set_up, conversation, screen, kill)
    messages = await conversation.transcript()
    tries = await second_tries(set_up, conversation.id)
    described = await set_up.client.temporal.get_workflow_handle(conversation.id).describe()
    chain_id = described.raw_description.workflow_execution_info.first_run_id
    checks = check_demo(set_up, PlayedDemo(conversation.id, chain_id, messages, _kill_result(kill), tries))
    _print_results(set_up, conversation, screen, messages, checks, seconds=time.monotonic() - started)
    return checks


async def _follow_conversation(
    set_up: Stage, conversation: Conversation, screen: Screen, kill: asyncio.Task[Kill]
) -> None:
    """Follows the conversation to its end. Raises the worker's errors meanwhile."""
    from everturn.cli.follow import Follower

    follower = Follower(
        conversation,
        screen=screen,
        temporal=set_up.client.temporal,
        approve_all=not screen.can_ask,
        show_messages=True,
    )
    following = asyncio.create_task(_until_done(follower, screen))
    try:
        await asyncio.wait({following, kill}, return_when=asyncio.FIRST_COMPLETED)
        if kill.done():
            kill.result()
        await following
        await asyncio.wait({kill}, timeout=2)  # if the kill has happened, it only has to see the next worker take over
    finally:
        for task in (following, kill):
            task.cancel()
        await asyncio.wait({following, kill})


async def _until_done(follower: Any, screen: Screen) -> None:
    from everturn import events

    while True:
        stop = await follower.next_stop()
        if isinstance(stop, events.Replied):
            screen.print_line(marked_text("assistant", stop.message.text))
        elif isinstance(stop, events.Stalled):
            raise Stalled(stop.cause, cure=stop.cure)
        elif isinstance(stop, events.Done):
            if stop.outcome is None:
                raise EverturnError(f"The conversation ended without a reply: {stop.why}")
            return


def _kill_result(kill: asyncio.Task[Kill]) -> Kill | None:
    with suppress(asyncio.CancelledError):
        return kill.result()
    return None


# ---------------------------------------------------------------- what people see


def _print_setup(set_up: Stage, screen: Screen, pid: int) -> None:
    screen.stop_spinner()
    model = set_up.model
    if set_up.is_scripted:
        model += "  (no key needed; MODEL=provider:name takes a real one)"
    facts = [
        ("Temporal", set_up.client.temporal.service_client.config.target_host),
        ("Web UI", set_up.ui_url or "where your Temporal has it"),
        ("Model", model),
        ("Worker", f"process {pid}"),
        ("Files", str(set_up.books)),
    ]
    for name, value in facts:
        screen.print_line(f"  {name:<9} {value}")
    screen.print_line()


def _print_results(
    set_up: Stage,
    conversation: Conversation,
    screen: Screen,
    messages: Sequence[Any],
    checks: list[Check],
    *,
    seconds: float,
) -> None:
    _print_heading(screen, "The transcript, as Temporal's history has it")
    screen.print_lines(transcript_lines(messages, width=screen.width))
    _print_heading(screen, "What really happened")
    for check in checks:
        screen.print_line(marked_text("done" if check.happened else "failed", check.text))
    screen.print_line()
    if all(check.happened for check in checks):
        screen.print_line(f"Everything happened, in {seconds:.0f} s.", style="bold green")
    else:
        screen.print_line(f"Something did not happen. The worker's last words: {set_up.last_words()}", style="bold red")
    if set_up.ui_url:
        namespace = set_up.client.temporal.namespace
        screen.print_line(f"Web UI: {set_up.ui_url}/namespaces/{namespace}/workflows/{conversation.id}")


def _print_heading(screen: Screen, text: str) -> None:
    screen.print_line()
    screen.print_line(f"── {text} " + "─" * max(min(screen.width, 100) - len(text) - 4, 3), style="dim")


async def _let_look(screen: Screen) -> None:
    if screen.can_ask:
        with suppress(EOFError):
            await screen.ask_line("Have a look. Enter ends the demo, and its server with it. ")
