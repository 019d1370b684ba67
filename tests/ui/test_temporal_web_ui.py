"""Temporal's own Web UI as a person has it: a conversation reads as a story there, and a call is approved there."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from everturn import Client, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on, hosting
from tests.support.waiting import WAIT_SECONDS, waiting

SCRIPT = [
    [say("I look it up."), call("look_up", {"order_id": "81"})],
    [say("A lamp for 34.90 EUR: I refund it."), call("refund", {"order_id": "81", "cents": 3490})],
    "The 34.90 EUR are on their way.",
]


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": 1440, "height": 1500})
    context.set_default_timeout(WAIT_SECONDS * 1000)
    yield await context.new_page()
    await context.close()


@pytest.mark.long  # Temporal's pages take their browser ten seconds
async def test_a_call_is_approved_in_the_web_ui_and_the_conversation_goes_on(
    server: DevServer, client: Client, scripted: Callable[..., ScriptedModel], page: Page
) -> None:
    refunds: list[int] = []

    @tool(effect="read")
    def look_up(order_id: str) -> str:
        return f"order {order_id}: a lamp, 34.90 EUR"

    @tool(needs_approval=True, effect="once")
    def refund(order_id: str, cents: int) -> str:
        refunds.append(cents)
        return f"refunded {cents} of order {order_id}"

    agent = agent_on(scripted(SCRIPT), tools=[look_up, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Order 81 arrived broken.", id=f"order-81-{uuid4().hex[:6]}")
        (call_id,) = await waiting(conversation)

        await page.goto(f"{server.ui_url}/namespaces/default/workflows/{conversation.id}")
        await _reads(page, "turn 1 · demo", 'order_id="81"', "turn 2 · demo")

        await page.get_by_text("User Metadata", exact=True).click()
        summary, details, now = [page.frame_locator("iframe").nth(index).locator("body") for index in range(3)]
        await expect(summary).to_contain_text("Order 81 arrived broken.")
        await expect(details).to_contain_text("Agent clerk, model scripted:demo")
        await expect(details).to_contain_text("refund, after an approval")
        await expect(now).to_contain_text("clerk: awaiting approval")
        await expect(now).to_contain_text("tokens in")
        await expect(now).to_contain_text("assistant: A lamp for 34.90 EUR: I refund it.")
        arguments, pasted, *_ = await _blocks(now)
        assert json.loads(arguments) == {"order_id": "81", "cents": 3490}
        assert json.loads(pasted) == {"call_id": call_id}
        assert await now.evaluate("body => body.scrollWidth <= body.clientWidth"), "nothing is cut off at the right"

        refused = await _send_update(page, "approve", '{"call_id": "call_9_9"}')
        await expect(refused).to_contain_text("No call 'call_9_9' waits")
        await _send_update(page, "approve", pasted)
        outcome = await conversation.outcome()
        assert (outcome.status, refunds) == ("completed", [3490])

        await page.get_by_text("Timeline", exact=True).first.click()
        await _reads(page, 'order_id="81", cents=3490 · approved', "turn 3 · demo")
        await page.get_by_text("Event History").first.click()
        await _reads(page, "turn 1 · demo", 'order_id="81"', 'order_id="81", cents=3490 · approved')


async def _reads(page: Page, *story: str) -> None:
    for text in story:
        line = page.get_by_text(text).first
        with suppress(AssertionError):
            await expect(line).to_be_visible(timeout=30_000)
            continue
        await page.reload()  # Temporal's page may miss an event that came while it was loaded
        await expect(line).to_be_visible()


async def _blocks(body: Any) -> list[str]:
    """The code blocks of a piece of Markdown, as one copies them."""
    await expect(body.locator("pre").first).to_be_visible()
    return list(await body.locator("pre").all_inner_texts())


async def _send_update(page: Page, name: str, payload: str) -> Locator:
    """Where the details say that it is. Returns the dialog, which stays if the update was refused."""
    dialog = page.get_by_role("dialog", name="Send an Update")
    if not await dialog.is_visible():
        await page.get_by_role("button", name="More Actions").click()
        await page.get_by_role("menuitem", name="Send an Update").click()
    await dialog.get_by_test_id("update-select-button").click()
    # Its accessible name goes on with what the update does.
    await dialog.get_by_role("option", name=re.compile(rf"^{name}\b")).click()
    await dialog.get_by_role("textbox", name="Data").click()
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text(payload)
    await dialog.get_by_role("button", name="Submit").click()
    return dialog
