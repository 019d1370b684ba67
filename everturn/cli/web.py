"""`everturn web`: the inbox in the browser."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everturn.cli.options import url_host
from everturn.errors import EverturnError
from everturn.system import extras


def web(
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. Other machines can reach it only with a token.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")] = 8234,
    token: Annotated[
        str | None,
        typer.Option("--token", help="Use EVERTURN_WEB_TOKEN instead: other users of this machine can't see it."),
    ] = None,
    by_header: Annotated[
        str | None,
        typer.Option(
            "--by-header",
            metavar="NAME",
            help="The header in which your reverse proxy names the user. Nothing but the proxy may reach the inbox.",
        ),
    ] = None,
    temporal_ui: Annotated[
        str | None,
        typer.Option(
            "--temporal-ui",
            metavar="URL",
            help="Where Temporal's Web UI is, for links; else that of a Temporal on this machine, at its port + 1000.",
        ),
    ] = None,
) -> None:
    """Serve the inbox, a web page to follow conversations, decide on calls and send messages, until Ctrl-C."""
    asyncio.run(_serve_web(host, port, token, by_header, temporal_ui))


async def _serve_web(host: str, port: int, token: str | None, by_header: str | None, temporal_ui: str | None) -> None:
    try:
        from everturn.web.app import Inbox
        from everturn.web.auth import check_token
        from everturn.web.server import open_socket, serve
        from everturn.web.temporal_ui import check_address, ui_of
    except ImportError as error:
        raise EverturnError(
            f"The inbox needs {error.name}, which is not installed.", cure=extras.install("web")
        ) from None
    from everturn.cli.connect import remote_client, require_namespace
    from everturn.cli.terminal import Screen
    from everturn.settings import Settings

    if token is None and (kept := Settings.load().web_token):
        token = kept.get_secret_value()
    check_token(token, host=host)
    screen = Screen()
    async with remote_client() as client:
        await require_namespace(client)
        with open_socket(host, port) as bound:
            address = f"http://{url_host(host)}:{bound.getsockname()[1]}/"

            def announce_address() -> None:
                # Not the token itself: terminal output ends up in logs.
                screen.print_line(f"Inbox   {address}" + ("?token=$EVERTURN_WEB_TOKEN" if token else ""))
                screen.print_line("Ctrl-C ends it.", style="dim")

            ui = check_address(temporal_ui) if temporal_ui else ui_of(client.temporal.service_client.config.target_host)
            inbox = Inbox(client, token=token, by_header=by_header, temporal_ui=ui)
            await serve(inbox, bound, started=announce_address)
