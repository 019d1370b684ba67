"""`everturn demo`: a conversation on real files, whose worker is killed in the middle. Then all of it is checked."""

from __future__ import annotations

import asyncio

import typer


def demo() -> None:
    """See it all work in half a minute: tools on real files, an approval, a worker killed in the middle."""
    from everturn.cli.demo.show import play_demo

    if not asyncio.run(play_demo()):
        raise typer.Exit(1)
