"""The inbox without a mouse, and for those who listen: axe-core finds nothing, and every action has a key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect

from everturn import Client, tool
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on, hosting
from tests.support.tools import refund
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

AXE = Path(__file__).parents[1] / "typescript" / "node_modules" / "axe-core" / "axe.min.js"

REPLY = """### A report

It is a **lamp**, see [the order](https://shop.example/81) and `this`.

| item | price |
|:-----|------:|
| lamp | 34.90 |

> Quoted.
"""


@tool
def look_up(order_id: str) -> dict[str, str]:
    return {"order_id": order_id}


@pytest.fixture
async def page(page: Page) -> AsyncIterator[Page]:
    """The same; whatever the test made of its size and its colours is undone."""
    size = page.viewport_size
    assert size
    yield page
    await page.set_viewport_size(size)
    await page.emulate_media(color_scheme="light")


def clerk(scripted: Scripted) -> Any:
    script = [
        [say("I look.", thinking="It needs the price."), call("look_up", {"order_id": "81"}, id="l")],
        [say(REPLY), call("refund", {"order_id": "81", "cents": 1200}, id="a")],
        "It is done.",
    ]
    return agent_on(scripted(script), tools=[look_up, refund])


RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""All of axe-core's rules; and for the other colours, those about colours."""


async def violations(page: Page, rules: dict[str, Any]) -> list[str]:
    """What axe-core says against the page as it is."""
    found: list[dict[str, Any]] = await page.evaluate("rules => axe.run(rules).then((told) => told.violations)", rules)
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: run `npm install --no-save` in tests/typescript")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_in_list_conversation_forms_and_dialogs(
    page: Page, client: Client, scripted: Scripted, scheme: Literal["light", "dark"]
) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.evaluate(AXE.read_text("utf-8"))
    agent = clerk(scripted)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81", id=f"order-{client.task_queue}")
        await waiting(conversation)
        row = page.locator(f'#conversations a[data-id="{conversation.id}"]')
        await expect(row.locator(".asks")).to_contain_text("refund")
        # Of all the conversations that other tests left on this server, axe-core need not look at each.
        await page.locator("#filter").fill(conversation.id)
        await expect(page.locator("#conversations a")).to_have_count(1)
        assert await violations(page, RULES[scheme]) == []
        await row.click()
        await expect(page.locator('.call[data-state="waiting"] .decide')).to_be_visible()
        await expect(page.locator("#state")).to_have_text("awaiting approval")
        assert await violations(page, RULES[scheme]) == []
        for key, there in (("e", ".decide form"), ("t", "#insight .span"), ("b", "#many li"), ("?", "#keys")):
            await page.keyboard.press(key)
            await expect(page.locator(there).first).to_be_visible()
            assert await violations(page, RULES[scheme]) == [], key
            await page.keyboard.press("Escape")
        await conversation.approve()
        await expect(page.locator("p.line")).to_contain_text("completed")
        assert await violations(page, RULES[scheme]) == []


async def test_the_first_stop_skips_the_list_and_the_focus_stays_with_what_was_decided(
    page: Page, client: Client, scripted: Scripted
) -> None:
    agent = clerk(scripted)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await page.evaluate("id => { location.hash = encodeURIComponent(id) }", conversation.id)
        await expect(page.locator('.call[data-state="waiting"] .decide')).to_be_visible()
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the conversation")
        await expect(skip).to_be_focused()
        await expect(skip).to_be_in_viewport(ratio=1)
        await page.keyboard.press("Enter")
        await expect(page.locator("#scroll")).to_be_focused()
        # Into a form and back: the focus is where it was.
        await page.get_by_role("button", name="Deny").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Why not? The model is told.")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Deny")).to_be_focused()
        await page.keyboard.press("a")
        await conversation.outcome()
        await expect(page.locator('.call[data-call="a"] > summary')).to_be_focused()
        # Turn by turn, and into the actions of each.
        await page.locator("#scroll").focus()
        for label in ("user said", "clerk, turn 1", "clerk, turn 2"):
            await page.keyboard.press("]")
            await expect(page.get_by_role("article", name=label)).to_be_focused()
        await page.keyboard.press("[")
        await expect(page.get_by_role("article", name="clerk, turn 1")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Copy", exact=True).first).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_label("turn 1: actions")).to_be_focused()


async def test_what_is_open_is_in_view_in_the_list(page: Page, client: Client, scripted: Scripted) -> None:
    agent = clerk(scripted)
    async with hosting(client, agent):
        first, *others = [await client.start(agent, f"Refund {n}", id=f"{n}-{client.task_queue}") for n in range(9)]
        # One that is opened before the index says that it waits is not followed to where it goes.
        for one in (first, *others):
            await expect(page.locator(f'#conversations a[data-id="{one.id}"] .asks:not([hidden])')).to_have_count(1)
        await page.set_viewport_size({"width": 1000, "height": 420})
        there = f"{page.url.split('#')[0]}#{first.id}"
        await page.goto("about:blank")
        await page.goto(there)
        await expect(page.locator(f'#conversations a[data-id="{first.id}"] .asks')).to_be_in_viewport()
        for one in (first, *others):
            await one.deny()
            await one.outcome()


async def test_every_action_stands_in_the_list_of_keys(page: Page) -> None:
    await page.keyboard.press("?")
    listed = await page.locator("#keys dt").all_inner_texts()
    assert sorted("".join(listed).replace(" ", "").replace("…", "").replace("Esc", "")) == sorted(
        "jk/flbnaedr19w][GmtiuocpxX?"
    )
    for title in await page.locator("button[title$=')']").evaluate_all("all => all.map((one) => one.title)"):
        assert title[title.rindex("(") + 1 : -1] in "".join(listed), title
    await page.keyboard.press("Escape")
    await expect(page.locator("#keys")).to_be_hidden()
    # In a box, a key is a letter.
    await page.locator("#filter").press_sequentially("b?")
    await expect(page.locator("#filter")).to_have_value("b?")
    await expect(page.locator("dialog[open]")).to_have_count(0)
