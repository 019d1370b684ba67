"""Temporal's own Web UI reads an encrypted conversation through `everturn codec`, signed in by its cookie."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import pytest
from playwright.async_api import Browser, expect

from everturn import Client, Encryption, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from everturn.web.codec_server import CodecServer
from tests.support.agents import agent_on, hosting
from tests.support.doc_readers import serving
from tests.support.waiting import WAIT_SECONDS

TOKEN = "a-token-of-some-length"


@pytest.mark.long  # Temporal's pages take their browser ten seconds
async def test_the_web_ui_shows_what_is_encrypted_to_who_has_signed_in(
    server: DevServer, scripted: Callable[..., ScriptedModel], browser: Browser
) -> None:
    @tool
    def look_up(order_id: str) -> str:
        return f"order {order_id}: a lamp"

    client = await Client.connect(
        server.address, task_queue=f"q-{uuid4().hex[:8]}", encryption=Encryption({"key-1": b"k" * 32})
    )
    agent = agent_on(scripted([call("look_up", {"order_id": "81"}), "It is a lamp."]), tools=[look_up])
    async with hosting(client, agent):
        conversation = await client.start(agent, "What is order 81?")
        await conversation.outcome()
    codec = CodecServer(client.temporal.data_converter, origins=[server.ui_url], token=TOKEN)
    async with serving(codec.app) as address:
        settings = {"endpoint": address, "includeCredentials": True, "overrideRemoteCodecConfiguration": True}
        kept = "".join(
            f"localStorage.setItem({name!r}, {json.dumps(json.dumps(it))});" for name, it in settings.items()
        )
        shown = f"{server.ui_url}/namespaces/default/workflows/{conversation.id}"
        for signed_in in (False, True):
            context = await browser.new_context(viewport={"width": 1440, "height": 1500})
            context.set_default_timeout(WAIT_SECONDS * 1000)
            await context.add_init_script(kept)
            page = await context.new_page()
            if signed_in:
                await page.goto(f"{address}/?token={TOKEN}")
                await expect(page.get_by_text("Signed in")).to_be_visible()
            await page.goto(shown)
            await expect(page.get_by_text("look_up").first).to_be_visible()
            readable = page.get_by_text('order_id="81"').first
            if signed_in:
                await expect(readable).to_be_visible()
                await expect(page.get_by_text("What is order 81?").first).to_be_visible()
            else:
                await expect(page.get_by_text("What is order 81?")).to_have_count(0)
            await context.close()
