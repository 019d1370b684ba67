"""What the program for Slack posts: the person sees all that a button decides on, and a model can't dress it up."""

from __future__ import annotations

import json
import runpy
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from everturn.payloads import WaitingCall
from tests.support.doc_pages import ROOT

PROGRAM = ROOT / "examples" / "slack_approvals.py"


async def posted(arguments: dict[str, Any], why: str = "refund needs approval") -> dict[str, Any]:
    messages: list[dict[str, Any]] = []

    async def post_message(request: Request) -> JSONResponse:
        messages.append(await request.json())
        return JSONResponse({"ok": True, "channel": "C", "ts": "1"})

    slack_itself = Starlette(routes=[Route("/api/chat.postMessage", post_message, methods=["POST"])])
    program = runpy.run_path(str(PROGRAM))
    call = WaitingCall(call_id="c", tool="refund", arguments=arguments, why=why, since="2026-11-22T21:00:00+00:00")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=slack_itself)) as slack:
        await program["ask"](slack, "order-81", call)
    [message] = messages
    return message


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else "hidden"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"note": "x" * 3000}, "a refund"), ({"note": deep(60)}, "a refund"), ({"note": "x"}, "y" * 3000)],
    ids=["long", "deep", "a long reason"],
)
async def test_what_can_not_be_shown_whole_has_no_buttons(arguments: dict[str, Any], why: str) -> None:
    message = await posted(arguments, why)
    [section] = message["blocks"]
    assert "everturn show order-81" in section["text"]["text"]
    assert len(section["text"]["text"]) <= 3000


async def test_a_model_can_not_mention_link_or_leave_the_block() -> None:
    arguments = {"note": "``` <!channel> <https://evil.example|Details> \u202e & *bold*"}
    message = await posted(arguments, why="<@U0> asks")
    text = message["blocks"][0]["text"]["text"]
    assert "<" not in text + message["text"]
    assert "\u202e" not in text
    assert text.count("```") == 2
    shown = text.split("```")[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert json.loads(shown) == arguments
    approve, _ = message["blocks"][1]["elements"]
    assert json.loads(approve["value"])["arguments"] == arguments


async def test_it_does_not_start_without_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_SIGNING_SECRET", raising=False)
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-test")
    program = runpy.run_path(str(PROGRAM))
    with pytest.raises(ValueError, match="SLACK_SIGNING_SECRET"):
        async with program["lifespan"](program["app"]):
            pass
