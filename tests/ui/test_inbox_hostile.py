"""What models, tools and strangers wrote is shown in the inbox as what it is, and decided on as what it is."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from typing import Any

from playwright.async_api import Page, expect

from everturn import Client, names, tool
from everturn.testing import ScriptedModel, call
from everturn.text.printable import printable
from tests.support.agents import agent_on, hosting
from tests.support.hostile import EVIL, HIDDEN, raw
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

EVERYTHING_SHOWN = """() => {
  const shown = [document.title];
  for (const node of document.querySelectorAll("*")) {
    for (const name of ["title", "placeholder", "alt", "aria-label", "value"]) {
      if (typeof node[name] === "string") shown.push(node[name]);
      if (node.hasAttribute(name)) shown.push(node.getAttribute(name));
    }
    for (const child of node.childNodes) if (child.nodeType === Node.TEXT_NODE) shown.push(child.data);
  }
  return shown;
}"""


@tool(needs_approval=True, effect="once")
def refund(order: str, cents: int) -> str:
    return f"{cents} back for {order}"


async def test_the_pages_function_is_the_same_as_ours(page: Page) -> None:
    drawn = random.Random(81)
    letters = [*HIDDEN, *"a1文שم\u0645❤😀\u093e\U00010d01\u200c\u200d\u200e\u200f\ufe0f\n\t\\"]
    texts = ["".join(drawn.choices(letters, k=6)) for _ in range(3_000)]
    texts += [f"a{chr(point)}b" for point in range(sys.maxunicode + 1) if point < 0x3400 or point % 97 == 0]
    texts = [text for text in texts if not re.search("[\ud800-\udbff][\udc00-\udfff]", text)]  # JSON joins those
    # As JSON, for Playwright's own wire takes no lone surrogates.
    theirs = await page.evaluate(
        "async (texts) => JSON.stringify(JSON.parse(texts).map((await import('/page/printable.js')).printable))",
        json.dumps(texts),
    )
    wrong = [
        (ascii(text), ours, here)
        for text, here in zip(texts, json.loads(theirs), strict=True)
        if (ours := printable(text)) != here
    ]
    assert wrong == []


async def test_a_call_is_shown_and_decided_on_as_what_it_is(
    page: Page,
    client: Client,
    scripted: Scripted,
) -> None:
    async def shows_nothing_raw() -> None:
        assert raw("".join(await page.evaluate(EVERYTHING_SHOWN))) == []

    calls = [call("refund", {"order": EVIL, "cents": 5}, id="a"), call(f"pay{EVIL}", {EVIL: [EVIL]}, id="b")]
    agent = agent_on(
        scripted([calls, f"It is done. {EVIL}\n\n- {EVIL}\n- `{EVIL}`\n\n```\n{EVIL}\n```"]), tools=[refund]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, f"Refund {EVIL}", id=f"{client.task_queue}{EVIL}")
        await waiting(conversation)
        await page.evaluate("id => { location.hash = encodeURIComponent(id) }", conversation.id)
        card = page.locator('.call[data-state="waiting"]')
        await expect(card.locator("dd").first).to_have_text(printable(EVIL))
        await expect(page.locator("#title")).to_have_text(printable(conversation.id))
        await shows_nothing_raw()
        await page.get_by_role("button", name="Edit arguments").click()
        box = page.get_by_label("Arguments, as JSON")
        assert json.loads(await box.input_value()) == {"order": EVIL, "cents": 5}
        await shows_nothing_raw()
        await box.fill((await box.input_value()).replace('"cents": 5', '"cents": 6'))
        await page.get_by_role("button", name="Approve with these").click()
        await expect(page.locator(".turn .text").last).to_contain_text("It is done.")
        await conversation.outcome()
        await expect(page.locator("p.line").last).to_contain_text("completed")
        await shows_nothing_raw()
    (result,) = [result for result in results_of(await conversation.transcript()) if result.name == "refund"]
    assert result.text.endswith(f"6 back for {EVIL}"), "the tool got what it was"


async def test_what_strangers_signalled_and_said(page: Page, client: Client, scripted: Scripted) -> None:
    told: dict[str, Any] = {"agent": EVIL, "message": f"# {EVIL}", "keep_open": 60}
    agent = agent_on(scripted([EVIL]))
    async with hosting(client, agent):
        handle = await client.temporal.start_workflow(
            "Conversation", told, id=f"{client.task_queue}{EVIL}", task_queue=client.task_queue
        )
        await handle.signal(names.PAUSE, {"reason": EVIL, "by": EVIL})
        await page.evaluate("id => { location.hash = encodeURIComponent(id) }", handle.id)
        await expect(page.locator("#title")).to_have_text(printable(handle.id))
        await expect(page.locator("p.line").first).to_contain_text("paused")
        await page.get_by_label("Deciding as").fill("Ada")
        assert raw("".join(await page.evaluate(EVERYTHING_SHOWN))) == []
        await handle.terminate()
