"""The inbox's list: what each conversation is about and asks, filters in the address, children, many decisions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from everturn import Client, Limits, ask_user, tool
from everturn.temporal.namespace import Namespace
from everturn.testing import ScriptedModel, call
from everturn.text.markdown import inline, unescape
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting
from tests.ui.inbox import served

Scripted = Callable[..., ScriptedModel]


def refunds(cents: int = 1200) -> list[Any]:
    return [call("refund", {"order_id": "81", "cents": cents}, id="a"), "It is done."]


async def row_of(page: Page, conversation_id: str) -> Locator:
    link = page.locator(f'#conversations a[data-id="{conversation_id}"]')
    await expect(link).to_be_visible()
    return link


async def search(page: Page, words: str) -> None:
    await page.locator("#filter").fill(words)


async def test_a_row_says_what_was_said_first_what_is_asked_and_how_it_ended(
    page: Page, client: Client, scripted: Scripted
) -> None:
    clerk = agent_on(scripted(refunds()), tools=[refund])
    asker = agent_on(
        scripted([[call("ask_user", {"question": "Which size?", "choices": ["S", "L"]}, id="q")], "Thanks."]),
        tools=[ask_user],
        name="asker",
    )
    looped = agent_on(scripted(lambda _: call("note_it")), name="looper", tools=[note_it], limits=Limits(max_turns=1))
    async with hosting(client, clerk, asker, looped):
        order = await client.start(clerk, "*My* lamp <b>broke</b>", id=f"order-{client.task_queue}")
        shirt = await client.start(asker, "A shirt, please", id=f"shirt-{client.task_queue}")
        loop = await client.start(looped, "Go on", id=f"loop-{client.task_queue}")
        await loop.outcome()
        row = await row_of(page, order.id)
        await expect(row.locator("b")).to_have_text("*My* lamp <b>broke</b>")
        await expect(row.locator(".asks")).to_contain_text('refund order_id="81"  cents=1200')
        await expect(row.locator("small")).to_contain_text(order.id)
        await expect((await row_of(page, shirt.id)).locator(".asks")).to_contain_text("Which size? (S / L)")
        over = await row_of(page, loop.id)
        await expect(over.locator("small")).to_contain_text("limit reached")
        await expect(over.locator('.dot[data-status="limit_reached"]')).to_be_visible()
        # Its choices are buttons, and keys.
        await page.evaluate("id => { location.hash = id }", shirt.id)
        await expect(page.get_by_role("button", name="S", exact=True)).to_be_visible()
        await page.keyboard.press("2")
        await expect(page.locator(".call .result")).to_have_text("L")
        await shirt.outcome()
        await order.deny()
        await order.outcome()


@tool
def note_it() -> str:
    return "noted"


async def test_filters_stand_in_the_address_and_ask_the_servers_index(
    page: Page, client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(listed=1)  # of each state: what the index does not find is not shown
    name = f"agent-{uuid4().hex[:8]}"
    agent = agent_on(scripted(lambda _: "Hello."), name=name)
    tenant = f"acme-{uuid4().hex[:6]}"
    async with hosting(client, agent):
        # A server that has just started does not say at once which search attributes it has.
        await eventually(lambda: Namespace(client.temporal).searchable())
        await eventually(lambda: Namespace(client.temporal).indexed())
        client.namespace = Namespace(client.temporal)
        old = await client.start(
            agent, "First of all", id=f"old-{client.task_queue}", tenant=tenant, searchable=["tenant"]
        )
        await old.outcome()
        for number in range(2):
            await (await client.start(agent, "Later", id=f"new-{number}-{client.task_queue}")).outcome()
        await search(page, f"old-{client.task_queue}")
        await row_of(page, old.id)
        await expect(page.locator("#conversations a")).to_have_count(1)
        await expect(page).to_have_url(re.compile(f"q=old-{client.task_queue}"))
        await search(page, "")
        await page.keyboard.press("Escape")
        await page.keyboard.press("f")
        await page.get_by_label("Tenant").fill(tenant)
        await page.keyboard.press("Enter")
        await expect(page.locator("#conversations a")).to_have_count(1)
        await row_of(page, old.id)
        # The address opens the same.
        await page.reload()
        await row_of(page, old.id)
        await expect(page.get_by_label("Tenant")).to_have_value(tenant)
        await page.get_by_label("State").select_option("waiting")
        await expect(page.locator("#conversations a")).to_have_count(0)
        await page.get_by_role("button", name="Show all").click()
        await page.get_by_label("Agent", exact=True).first.fill(name)
        await page.keyboard.press("Enter")
        over = page.locator('[data-group="Over"]')
        await expect(over.locator(".count")).to_have_text("1 of 3")
        await page.get_by_role("button", name="Load more").click()
        await expect(over.locator("a")).to_have_count(3)
        await expect(over.locator(".count")).to_have_text("3")
        await expect(page.get_by_role("button", name="Load more")).to_be_hidden()
        await page.get_by_label("Started").select_option("1h")
        await expect(page.locator("#narrow")).to_have_text("Filters (2)")
        await expect(over.locator("a")).to_have_count(3)
        await expect(page).to_have_url(re.compile("within=1h"))


async def test_a_childs_waiting_call_is_shown_under_its_parent_and_decided_there(
    page: Page, client: Client, scripted: Scripted
) -> None:
    clerk = agent_on(scripted(refunds()), tools=[refund])
    lead = agent_on(
        scripted([call("clerk", {"message": "Refund 81"}, id="c"), "The clerk did it."]), tools=[clerk], name="lead"
    )
    async with hosting(client, clerk, lead):
        parent = await client.start(lead, "Sort it out", id=f"lead-{client.task_queue}")
        row = await row_of(page, parent.id)
        child = page.locator(f'[data-group="Waits for you"] li:has(> a[data-id="{parent.id}"]) ul a')
        await expect(child.locator(".asks")).to_contain_text("refund")
        child_id = str(await child.get_attribute("data-id"))
        await row.click()
        asks = page.locator(".call .children .call")
        await expect(asks.locator("dd").nth(1)).to_have_text("1200")
        await page.get_by_label("Deciding as").fill("Ada")
        await asks.get_by_role("button", name="Approve").click()
        await expect(page.locator(".turn .text").last).to_have_text("The clerk did it.")
        await parent.outcome()
        card = page.locator('.call[data-state="done"]').first
        await card.evaluate("card => { card.open = true }")
        await card.get_by_role("link", name=child_id).last.click()
        await expect(page.locator("#title")).to_have_text(child_id)
        await expect(page.locator(".call .who")).to_have_text("approved by Ada")
        await page.keyboard.press("u")
        await expect(page.locator("#title")).to_have_text(parent.id)


async def test_many_calls_are_shown_and_then_decided_on_as_they_were_shown(
    page: Page, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(refunds()), tools=[refund], name=f"clerk-{uuid4().hex[:8]}")
    async with hosting(client, agent):
        started = [
            await client.start(agent, f"Order {number}", id=f"{number}-{client.task_queue}") for number in range(3)
        ]
        started.append(
            await client.start(agent, "Order 3", id=f"kept-{client.task_queue}", keep_open=timedelta(hours=1))
        )
        for one in started:
            await waiting(one)
        await page.goto(f"{page.url.split('?')[0]}?agent={agent.name}")
        await expect(page.locator('[data-group="Waits for you"] .count')).to_have_text("4")
        await page.keyboard.press("b")
        many = page.locator("#many")
        await expect(many.locator("li")).to_have_count(4)
        await expect(many.locator("li dd").first).to_have_text("81")
        # Somebody else is quicker with one of them.
        await Client(client.temporal, task_queue=client.task_queue, by="Bob").conversation(started[3].id).deny("a")
        await many.get_by_label("all of these").check()
        await many.get_by_label("Only calls with these words").fill(f"0-{client.task_queue}")
        await many.get_by_label("A note for the model").fill("not ours")
        await many.get_by_role("button", name="Deny 1").click()  # those that are not seen are not decided on
        await expect(many.locator('[data-came="deny"] .came')).to_have_text("denied")
        await expect(many.get_by_label("A note for the model")).to_have_value("")  # it was for that one
        await many.get_by_label("Only calls with these words").fill("")
        await many.get_by_label("all of these").check()
        await many.get_by_role("button", name="Approve 3").click()
        await expect(many.locator("[data-part=note]")).to_have_text("2 approved, 1 not taken: each says why.")
        await expect(many.locator('[data-came="refused"] .came')).to_contain_text("Bob")
        await started[3].close()
        outcomes = [await one.outcome() for one in started]
        assert [outcome.status for outcome in outcomes] == ["completed"] * 4
        first, second = [await started[number].transcript() for number in (0, 1)]
        assert "not ours" in first[2].tool_results[0].text
        assert second[2].tool_results[0].text == "1200 back for 81"


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"verdict": "approve", "calls": []}, 400, "at least 1"),
        ({"verdict": "answer", "calls": [{"conversation": "x", "call_id": "a", "expected": {}}]}, 400, "verdict"),
        ({"verdict": "approve", "calls": [{"conversation": "x", "call_id": "a"}]}, 400, "expected"),
        (
            {"verdict": "approve", "calls": [{"conversation": "none", "call_id": "a", "expected": {}}]},
            200,
            "no conversation",
        ),
    ],
)
async def test_many_decisions_that_make_no_sense_are_refused(
    client: Client, body: dict[str, Any], status: int, why: str
) -> None:
    async with served(client) as address, httpx.AsyncClient(base_url=address, timeout=180) as web:
        answer = await web.post("/api/decide_many", json=body)
        assert (answer.status_code, why in answer.text) == (status, True), answer.text
        for bad in ("state=nonsense", "after=yesterday", "limit=-1", "limit=99999", f"q={'x' * 201}"):
            assert (await web.get(f"/api/waiting?{bad}")).status_code == 400


async def test_what_is_decided_on_is_bound_to_what_was_shown(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(refunds()), tools=[refund])
    async with (
        hosting(client, agent),
        served(client) as address,
        httpx.AsyncClient(base_url=address, timeout=180) as web,
    ):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        one = {"conversation": conversation.id, "call_id": "a", "expected": {"order_id": "81", "cents": 1}}
        refused = (await web.post("/api/decide_many", json={"verdict": "approve", "calls": [one]})).json()
        assert "arguments" in refused["calls"][0]["refused"]
        await conversation.deny()
        await conversation.outcome()


@pytest.mark.parametrize("text", ["*a* <b>`_~|#&[x](y)", "1. first", "- item", "\\", "plain", "12) x = y"])
def test_what_was_escaped_for_a_summary_is_read_back(text: str) -> None:
    assert unescape(inline(text)) == text
