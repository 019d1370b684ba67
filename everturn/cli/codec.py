"""`everturn codec`: a codec server, so that Temporal's Web UI and command line read what is encrypted."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everturn.cli.options import url_host
from everturn.errors import EverturnError
from everturn.system import extras


def codec(
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. Other machines can reach it only with a token.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")] = 8089,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin",
            metavar="URL",
            help="The origin of a Web UI that may use this server. May be repeated. Default: the dev server's Web UI.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="Use EVERTURN_CODEC_TOKEN instead: other users of this machine can't see it."),
    ] = None,
) -> None:
    """Decode payloads for Temporal's Web UI and CLI with this environment's keys, until Ctrl-C."""
    asyncio.run(_serve_codec(host, port, origin or [], token))


async def _serve_codec(host: str, port: int, origins: list[str], token: str | None) -> None:
    try:
        from everturn.web.auth import check_token
        from everturn.web.codec_server import ORIGINS, CodecServer
        from everturn.web.server import open_socket, serve
    except ImportError as error:
        raise EverturnError(
            f"The codec server needs {error.name}, which is not installed.", cure=extras.install("codec")
        ) from None
    from everturn.cli.connect import quiet_logs
    from everturn.cli.terminal import Screen
    from everturn.settings import Settings
    from everturn.storage.data_converter import configured_converter, with_storage

    settings = Settings.load()
    quiet_logs(None)
    if token is None and settings.codec_token:
        token = settings.codec_token.get_secret_value()
    check_token(token, host=host, what="codec server", variable="EVERTURN_CODEC_TOKEN")
    converter = configured_converter()
    if settings.storage:
        converter = with_storage(converter, settings.storage)
    server = CodecServer(converter, origins=origins or ORIGINS, token=token)
    screen = Screen()
    with open_socket(host, port, what="codec server") as bound:
        address = f"http://{url_host(host)}:{bound.getsockname()[1]}"

        def announce_address() -> None:
            screen.print_line(f"Codec server   {address}")
            screen.print_line(
                f"Web UI         {', '.join(origins or ORIGINS)}: name it there, in the codec server settings"
            )
            if token:  # not the token itself: terminal output ends up in logs
                screen.print_line(f"Sign in first  {address}/?token=$EVERTURN_CODEC_TOKEN")
            screen.print_line("Ctrl-C ends it.", style="dim")

        await serve(server, bound, started=announce_address)
