"""One conversation in the inbox: where it opens, what it shows of time, tokens and people, and forks beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect

from everturn import Agent, Client, Conversation, Limits, Model, tool
from everturn.errors import InvalidSetting
from everturn.records import Image
from everturn.testing import ScriptedModel, call, say
from everturn.web.temporal_ui import check_address, ui_of
from tests.support.agents import agent_on, hosting
from tests.support.tools import refund
from tests.support.waiting import reaches, waiting
from tests.ui.inbox import looking, served

Scripted = Callable[..., ScriptedModel]

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

MARKDOWN = """# Report

*soft* ~~gone~~ [the order](https://shop.example/81) [bad](javascript:alert(1)) ![pic](https://spy.example/a.png)

| item | price |
|:-----|------:|
| lamp | 34.90 |

> quoted
> twice

1. first
   - nested
2. second
"""

REFUND = [[say(MARKDOWN), call("refund", {"order_id": "81", "cents": 1200}, id="a")], "It is done."]


@tool
def plot() -> list[object]:
    return ["a plot", Image(data=DOT, media_type="image/png")]


async def choose(page: Page, conversation: Conversation) -> None:
    await page.evaluate("id => { location.hash = encodeURIComponent(id) }", conversation.id)
    await expect(page.locator("#title")).to_have_text(conversation.id)


async def test_markdown_is_whole_and_leads_nowhere_unsaid(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([MARKDOWN]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Report")
        await conversation.outcome()
    await choose(page, conversation)
    text = page.locator(".turn .text")
    await expect(text.locator("h3")).to_have_text("Report")
    await expect(text.locator("em")).to_have_text("soft")
    await expect(text.locator("s")).to_have_text("gone")
    await expect(text.locator("td")).to_have_text(["lamp", "34.90"])
    await expect(text.locator("blockquote")).to_have_text("quoted\ntwice")
    await expect(text.locator("ol > li > ul > li")).to_have_text("nested")
    await expect(text.locator("ol > li")).to_have_count(2)
    links = await text.locator("a").evaluate_all("all => all.map(one => [one.href, one.rel, one.target])")
    safe = ["noopener noreferrer nofollow", "_blank"]
    assert links == [["https://shop.example/81", *safe], ["https://spy.example/a.png", *safe]]
    await expect(text.locator(".place").first).to_have_text("(shop.example)")
    await expect(text).to_contain_text("[bad](javascript:alert(1))")
    assert await text.locator("img").count() == 0


async def test_it_opens_at_what_waits_else_at_the_end(page: Page, client: Client, scripted: Scripted) -> None:
    long = "A line of it.\n\n" * 40
    both = [[say(long), call("refund", {"order_id": "1", "cents": 1}, id="a")], *[[say(long)]] * 2]
    agent = agent_on(scripted(both), tools=[refund])
    async with hosting(client, agent):
        over = await client.start(agent, long)
        await waiting(over)
        await choose(page, over)
        await expect(page.locator('.call[data-state="waiting"] .decide')).to_be_in_viewport(ratio=1)
        await over.approve()
        await over.outcome()
        await page.evaluate("location.hash = ''")
        await choose(page, over)
        await expect(page.locator("p.line")).to_be_in_viewport(ratio=1)
        await expect(page.locator("p.line")).to_contain_text("completed")


async def test_an_edit_is_a_diff_a_refused_one_keeps_its_form_and_who_decided_is_on_the_line(
    page: Page, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(REFUND), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await choose(page, conversation)
        await page.get_by_label("Deciding as").fill("Ada")
        await page.get_by_role("button", name="Edit arguments").click()
        box = page.get_by_label("Arguments, as JSON")
        await box.fill('{"order_id": "81", "cents": "many"}')
        await expect(page.locator(".changes del")).to_have_text("1200")
        await expect(page.locator(".changes ins")).to_have_text("many")
        await page.get_by_role("button", name="Approve with these").click()
        await expect(page.locator(".call .note")).to_contain_text("the edited arguments do not fit")
        await expect(box).to_have_value('{"order_id": "81", "cents": "many"}')
        await box.fill('{"order_id": "81", "cents": 900}')
        await page.get_by_role("button", name="Approve with these").click()
        assert (await conversation.outcome()).status == "completed"
        await expect(page.locator(".call > summary .who")).to_have_text("edited and approved by Ada")
        await page.locator(".call").evaluate("card => { card.open = true }")
        changed = page.locator(".decided .difference")
        await expect(changed.locator("del")).to_have_text("1200")
        await expect(changed.locator("ins")).to_have_text("900")
        await expect(changed.locator("dt")).to_have_text("cents")


async def test_who_came_second_is_told_who_was_first(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(REFUND), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81", keep_open=timedelta(hours=1))
        await choose(page, conversation)
        approve = page.get_by_role("button", name="Approve", exact=True)
        await expect(approve).to_be_visible()

        async def bob_is_quicker(route: object) -> None:
            bob = Client(client.temporal, task_queue=client.task_queue, by="Bob")
            await bob.conversation(conversation.id).deny("a", "no")
            await route.continue_()  # type: ignore[attr-defined]

        await page.route("**/api/approve", bob_is_quicker)
        await approve.click()
        await expect(page.locator(".call .note")).to_contain_text("Bob")
        await page.unroute("**/api/approve")
        await expect(page.locator(".call > summary .who")).to_contain_text("denied by Bob")
        await conversation.close()
        await conversation.outcome()


async def test_time_tokens_and_cost_are_shown_and_lead_to_the_turn(
    page: Page, client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = scripted([call("plot", id="p"), *REFUND[0:1], "It is done."])
    monkeypatch.setenv("DEEPSEEK_API_KEY", "any")
    agent = Agent("clerk", model=Model("deepseek:deepseek-chat", base_url=replies.base_url), tools=[plot, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await choose(page, conversation)
        await page.get_by_role("button", name="Approve", exact=True).click()
        await conversation.outcome()
        await expect(page.locator("p.line")).to_contain_text("completed")
        # Everything that a tool gave: its picture, too.
        await page.locator(".call").first.evaluate("card => { card.open = true }")
        await expect(page.locator(".call .result img")).to_be_visible()
        await expect(page.locator(".call").first.locator(".label")).to_contain_text("done ·")
        await page.keyboard.press("t")
        insight = page.locator("#insight")
        names = insight.locator(".span .name")
        await expect(names).to_have_text(["turn 1", "plot", "turn 2", "refund waits", "refund", "turn 3"])
        await expect(insight.locator(".span .took").nth(3)).to_contain_text("approve by tester")
        await expect(insight.locator("svg g")).to_have_count(3)
        outcome = await conversation.outcome()
        await expect(insight.locator(".sums")).to_contain_text(f"{outcome.usage.total_tokens:,}")
        # Its cost in all, and as a line over the bars of which each names the cost of its turn.
        costs = [event.cost_usd async for event in conversation.events() if event.kind == "replied"]
        assert len(costs) == 3
        assert all(costs)
        assert outcome.cost_usd == pytest.approx(sum(filter(None, costs)))
        await expect(insight.locator(".sums")).to_contain_text("cost in all")
        shown = [
            str(await title.text_content()).splitlines()[-1] for title in await insight.locator("svg g title").all()
        ]
        assert [float(one.removeprefix("$")) for one in shown] == pytest.approx(costs, rel=0.1)
        await expect(insight.locator("svg polyline.cost")).to_have_count(1)
        await insight.locator(".span").first.click()
        await expect(page.locator('.turn[data-turn="1"]')).to_be_focused()
        await page.keyboard.press("i")
        raw = json.loads(str(await page.locator("#raw-text").text_content()))
        assert (raw["id"], raw["events"][-1]["kind"]) == (conversation.id, "done")
        await page.keyboard.press("Escape")


async def test_another_result_and_other_words_are_tried_beside_the_original(
    page: Page, client: Client, scripted: Scripted
) -> None:
    def told(messages: list[dict[str, Any]]) -> Any:
        last = messages[-1]
        if last["role"] == "user":
            return [say(f"I hear: {last['content']}"), call("note", {"number": 1}, id="n")]
        return f"The tool gave {last['content']}"

    @tool
    def note(number: int) -> str:
        return "noted"

    agent = agent_on(scripted(told), tools=[note])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Note it")
        await conversation.outcome()
        await choose(page, conversation)
        await page.locator(".call").evaluate("card => { card.open = true }")
        await page.get_by_role("button", name="Run again with another result").click()
        fork = page.locator("#fork")
        await expect(fork.get_by_label("What the tool gave")).to_have_value("noted")
        await fork.get_by_label("What the tool gave").fill("the disk is full")
        await fork.get_by_role("button", name="Start it").click()
        beside = page.locator("#other-transcript")
        await expect(beside.locator(".text").last).to_have_text("The tool gave the disk is full")
        await expect(page.locator("#transcript .text").last).to_have_text("The tool gave noted")
        # What came before the fork is shown, and only what differs is marked: the result, and what it led to.
        await expect(beside.locator(".said p")).to_have_text("Note it")
        for pane in (beside, page.locator("#transcript")):
            await expect(pane.locator(".differs")).to_have_count(2)
            await expect(pane.locator(".turn.differs")).to_have_count(2)
        await expect(beside.locator(".differs .call .line")).to_have_text("number=1 → the disk is full")
        await expect(page).to_have_url(re.compile("beside="))
        await page.keyboard.press("c")
        await expect(page.locator("#other")).to_be_hidden()
        # By keyboard: to the first message, into its actions.
        await page.locator("#scroll").focus()
        await page.keyboard.press("]")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Run again with other words").click()
        await fork.get_by_label("What is said").fill("Note it twice")
        await fork.get_by_role("button", name="Start it").click()
        await expect(beside.locator(".said p")).to_have_text("Note it twice")
        await expect(beside.locator(".text").first).to_have_text("I hear: Note it twice")
        there = str(await page.locator("#other-title").text_content())
        await page.keyboard.press("o")
        await expect(page.locator("#title")).to_have_text(there)
        await client.conversation(there).outcome()


async def test_controls_are_offered_where_they_mean_something(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(REFUND), tools=[refund], limits=Limits(max_turns=1))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81", keep_open=timedelta(hours=1))
        await choose(page, conversation)
        controls = page.locator("#controls")
        await expect(controls.get_by_role("button")).to_have_text(["Pause", "Cancel turn", "Close"])
        await page.locator("#scroll").focus()
        await page.keyboard.press("p")
        await reaches(conversation, "paused")
        await expect(controls.get_by_role("button", name="Resume")).to_be_visible()
        await page.keyboard.press("p")
        await expect(controls.get_by_role("button", name="Resume")).to_be_hidden()
        await conversation.approve()
        assert (await conversation.outcome()).status == "limit_reached"
        await expect(page.locator("#state")).to_have_text("limit reached")
        await expect(page.locator("p.line.warning")).to_contain_text("limit reached")
        await expect(controls).to_be_hidden()
    idle = agent_on(scripted(["Hello."]), name="idle")
    async with hosting(client, idle):
        talk = await client.start(idle, "Hi", keep_open=timedelta(hours=1))
        await reaches(talk, "idle")
        await choose(page, talk)
        await expect(page.locator("#state")).to_have_text("idle")
        await expect(controls.get_by_role("button")).to_have_text(["Close"])
        await talk.close()
        await talk.outcome()


async def test_places_lead_to_the_same_in_temporals_web_ui(tab: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with (
        hosting(client, agent),
        served(client, temporal_ui="http://127.0.0.1:8233/") as address,
        looking(tab, address) as page,
    ):
        conversation = await client.start(agent, "Hi", id=f"with space {client.task_queue}")
        await conversation.outcome()
        await choose(page, conversation)
        run = (await conversation.cursor()).split("/")[0]
        place = f"http://127.0.0.1:8233/namespaces/default/workflows/with%20space%20{client.task_queue}/{run}"
        await page.get_by_label("turn 1: actions").click()
        link = page.locator(".turn .entries").get_by_role("link")
        await expect(link).to_have_attribute("href", re.compile(f"^{re.escape(place)}/history/events/\\d+$"))
        await page.get_by_label("More about this conversation").click()
        whole = page.locator("#views").get_by_role("link", name="Open in Temporal’s Web UI")
        await expect(whole).to_have_attribute("href", place)


async def test_what_there_is_none_of_is_not_shown(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
        await choose(page, conversation)
        await page.get_by_label("turn 1: actions").click()
        await expect(page.locator(".turn .entries button")).not_to_have_count(0)
        await expect(page.locator(".turn .entries a")).to_have_count(0)
        # Nor does the timeline say what there was nothing of.
        await page.keyboard.press("Escape")
        await page.keyboard.press("t")
        sums = page.locator("#insight .sums")
        await expect(sums).to_contain_text("model at work")
        assert await sums.evaluate("sums => [...sums.childNodes].map((one) => one.nodeName)") == ["DIV"] * 4


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("127.0.0.1:7233", "http://127.0.0.1:8233"),
        ("localhost:7233", "http://localhost:8233"),
        ("temporal.internal:7233", None),
        ("ns.acct.tmprl.cloud:7233", None),
        ("nonsense", None),
    ],
)
def test_only_a_dev_servers_web_ui_is_guessed(target: str, address: str | None) -> None:
    assert ui_of(target) == address


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "localhost:8233", "http://", "http://[", "file:///etc/passwd"]
)
def test_what_is_no_pages_address_becomes_no_link(address: str) -> None:
    with pytest.raises(InvalidSetting, match="is not the address of a page"):
        check_address(address)
