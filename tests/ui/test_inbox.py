"""The inbox in a real browser: following, deciding, talking; and nothing lost when anything restarts."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from everturn import Client, Conversation, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, fail, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting
from tests.ui.inbox import looking, served

Scripted = Callable[..., ScriptedModel]

LOOK = {"name": "look", "description": "Look at the screen.", "parameters": {"type": "object", "properties": {}}}
MARKUP = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
BIG = 2**63 - 1
"""Beyond what a browser's numbers hold."""


@tool(effect="read")
def echo(text: str) -> str:
    return text


ONE = [call("refund", {"order_id": "81", "cents": BIG}, id="a"), "It is done."]


async def choose(page: Page, conversation: Conversation) -> None:
    await page.evaluate("id => { location.hash = encodeURIComponent(id) }", conversation.id)
    await expect(page.locator("#title")).to_have_text(conversation.id)


async def test_a_run_appears_and_is_approved_by_the_name_that_was_typed(
    page: Page, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await page.locator('[data-group="Waits for you"] a').get_by_text(conversation.id).click()
        await expect(page).to_have_title(re.compile(r"\(\d+\) everturn"))
        card = page.locator('.call[data-state="waiting"]')
        await expect(card.locator("dd").nth(1)).to_have_text(str(BIG))
        await page.get_by_label("Deciding as").fill("Ada")
        await card.get_by_role("button", name="Approve").click()
        await expect(page.locator(".turn .text").last).to_have_text("It is done.")
        await expect(page.locator('.call[data-state="done"] .label')).to_contain_text("done")
        await expect(page.locator("p.line").last).to_contain_text("completed · 2 turns")
    (result,) = results_of(await conversation.transcript())
    assert result.text == f"{BIG} back for 81"
    assert result.decision
    assert (result.decision.verdict, result.decision.by) == ("approve", "Ada")
    await page.reload()
    await expect(page.get_by_label("Deciding as")).to_have_value("Ada")


async def test_the_button_says_so_if_an_approval_runs_again_what_may_have_run_already(
    page: Page, client: Client, scripted: Scripted
) -> None:
    """By the reason, and not by how the sentence begins."""

    @tool(name="refund", effect="once", timeout=timedelta(seconds=0.2))
    async def lost(order_id: str, cents: int) -> str:
        await asyncio.sleep(60)
        return "late"

    agent = agent_on(scripted(ONE), tools=[lost])
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Refund 81")
        await choose(page, conversation)
        card = page.locator('.call[data-state="waiting"]')
        await expect(card.locator("p.note")).to_contain_text("outcome unknown: refund did not finish")
        await expect(card.get_by_role("button", name="Run it again")).to_be_visible()
        await conversation.approve("a", {"order_id": "81"})
        await expect(card.locator("p.note")).to_contain_text("(the edited arguments do not fit: cents: ")
        await expect(card.get_by_role("button", name="Run it again")).to_be_visible()
        await conversation.deny("a")
        await conversation.outcome()


async def test_arguments_are_edited_and_what_is_no_json_stays_in_the_box(
    page: Page, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await choose(page, conversation)
        await page.get_by_role("button", name="Edit arguments").click()
        box = page.get_by_label("Arguments, as JSON")
        assert json.loads(await box.input_value()) == {"order_id": "81", "cents": BIG}
        await box.fill('{"order_id": "81", ')
        await page.get_by_role("button", name="Approve with these").click()
        await expect(page.get_by_text("That is not JSON")).to_be_visible()
        await box.fill(json.dumps({"order_id": "81", "cents": BIG - 1}))
        await page.get_by_role("button", name="Approve with these").click()
        assert (await conversation.outcome()).status == "completed"
    (result,) = results_of(await conversation.transcript())
    assert result.text.endswith(f"{BIG - 1} back for 81")


async def test_a_call_is_denied_with_a_reason_by_keyboard(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await page.keyboard.press("/")
        await page.keyboard.type(conversation.id)
        await expect(page.locator("#conversations a")).to_have_count(1)
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await expect(page.locator("#title")).to_have_text(conversation.id)
        await expect(page.locator(".call.marked")).to_be_visible()
        await page.keyboard.press("d")
        await page.keyboard.type("not ours")
        await page.keyboard.press("Control+Enter")
        card = page.locator(".call")
        await expect(card.locator(".label")).to_have_text("denied")
        # The model's next turn tells what became of it.
        await expect(card.locator(".result")).to_contain_text("Reason: not ours")
    (result,) = results_of(await conversation.transcript())
    assert result.text == "This call was denied by tester and did not run. Reason: not ours"


async def test_a_call_that_runs_outside_is_answered(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([call("look", id="l"), "I see."]), tools=[LOOK])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        await choose(page, conversation)
        await expect(page.locator(".call .label")).to_have_text("waits for your answer")
        await page.get_by_role("button", name="Answer", exact=True).click()
        await page.get_by_label("The result").fill("a cat")
        await page.get_by_role("button", name="Answer", exact=True).click()
        assert (await conversation.outcome()).text == "I see."
        await expect(page.locator(".call .result")).to_have_text("a cat")
    (result,) = results_of(await conversation.transcript())
    assert result.text == "a cat"


async def test_a_decision_that_is_refused_says_why(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund], approvers=lambda call, decision: decision.by == "Ada")
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await choose(page, conversation)
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".call .note")).to_contain_text("not among the approvers")
        await page.get_by_label("Deciding as").fill("Ada")
        await page.get_by_role("button", name="Approve").click()
        assert (await conversation.outcome()).status == "completed"


@pytest.mark.parametrize("live", ["heartbeats", "http"])
async def test_text_streams_while_the_model_writes_it(
    page: Page, client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, live: str
) -> None:
    monkeypatch.setenv("EVERTURN_LIVE", live)
    words = [f"word{number}" for number in range(500)]
    agent = agent_on(scripted([slow(say(" ".join(words)), after=20, until=threading.Event())]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Talk", stream=True)
        await choose(page, conversation)
        text = page.locator(".turn[data-live] .text")
        await expect(text).to_contain_text("word1 ")
        assert words[-1] not in str(await text.text_content())
        # A page that comes later is told the text from its beginning, once.
        await page.reload()
        await expect(text).to_contain_text("word0 word1 word2")
        await conversation.close()
        await conversation.cancel_turn()
        await expect(page.locator("#controls")).to_be_hidden()


async def test_messages_start_a_conversation_go_on_with_it_and_revive_it(
    page: Page, client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        await page.get_by_role("button", name="Start a conversation").click()
        await page.locator("#begin-agent").fill(agent.name)
        await page.locator("#begin-message").fill("First")
        await page.get_by_role("button", name="Start", exact=True).click()
        await expect(page.locator(".turn .text")).to_have_text("One.")
        await expect(page.locator("p.line")).to_contain_text("completed · 1 turn")
        await page.locator("#say").fill("Second")
        await page.keyboard.press("Enter")
        await expect(page.locator(".turn .text").last).to_have_text("Two.")
        conversation = client.conversation(await page.locator("#title").inner_text())
        said = [message.text for message in await conversation.transcript() if message.role == "user"]
        assert said == ["First", "Second"]
        await page.get_by_role("button", name="Show earlier messages (2)").click()
        await expect(page.locator(".said p, .turn .text")).to_have_text(["First", "One.", "Second", "Two."])


async def test_markup_of_models_and_tools_stays_text(page: Page, client: Client, scripted: Scripted) -> None:
    script = [[say(MARKUP), call("echo", {"text": MARKUP})], f"```\n{MARKUP}\n```\n- {MARKUP}\n**{MARKUP}**"]
    agent = agent_on(scripted(script), tools=[echo])
    async with hosting(client, agent):
        conversation = await client.start(agent, MARKUP, id=f"{MARKUP} {client.task_queue}")
        await conversation.outcome()
        await choose(page, conversation)
        await expect(page.locator(".said p")).to_have_text(MARKUP)
        await page.locator(".call summary").click()
        await expect(page.locator(".call .result")).to_have_text(MARKUP)
        await expect(page.locator(".turn .text").last).to_contain_text(MARKUP)
        await page.locator("#filter").fill(client.task_queue)
        await expect(page.locator("#conversations b")).to_have_text(MARKUP)
        await expect(page.locator("#conversations small")).to_contain_text(conversation.id)
    assert await page.evaluate("window.pwned") is None
    assert await page.locator("#transcript img, #transcript script, #conversations img").count() == 0


async def test_a_stall_is_shown_with_its_cure_and_resumed(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([fail(401), "Here I am."], order="arrival"))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello")
        await choose(page, conversation)
        await expect(page.locator(".notice")).to_contain_text("answered 401")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".turn .text").last).to_have_text("Here I am.")


async def test_a_conversation_is_paused_and_closed(page: Page, client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    page.on("dialog", lambda dialog: dialog.accept())
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await choose(page, conversation)
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator("p.line")).to_have_text("paused by tester")
        await page.get_by_role("button", name="Close").click()
        await conversation.outcome()
        await expect(page.locator("#controls")).to_be_hidden()


async def test_long_conversations_show_their_latest_run_and_earlier_messages_on_demand(
    page: Page, client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=40)
    turns = 40
    script = [*(call("echo", {"text": f"echo {turn}"}) for turn in range(turns)), "The end."]
    agent = agent_on(scripted(script), tools=[echo])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await conversation.outcome()
    await choose(page, conversation)
    await expect(page.locator(".turn .text").last).to_have_text("The end.")
    assert await page.locator(".call").count() < 20
    while await page.locator(".earlier").count():
        before = await page.locator(".call").count()
        await page.locator(".earlier").click()
        await eventually(lambda before=before: _more_than(page, before))
    lines = await page.locator(".call .line").all_text_contents()
    assert [line.rpartition("→  ")[2] for line in lines] == [f"echo {turn}" for turn in range(turns)]
    await expect(page.locator(".said")).to_have_count(1)


async def _more_than(page: Page, count: int) -> bool:
    return await page.locator(".call").count() > count


async def test_restarts_of_the_inbox_and_of_temporal_lose_nothing(
    browser: Browser, scripted: Scripted, tmp_path: Path
) -> None:
    async with DevServer(db_filename=tmp_path / "temporal.db") as server:
        client = await Client.connect(server.address, task_queue="restarts", by="tester")
        script = [ONE[0], call("refund", {"order_id": "82", "cents": 1}, id="b"), "Done."]
        agent = agent_on(scripted(script), tools=[refund])
        async with hosting(client, agent):
            conversation = await client.start(agent, "Refund both")
            async with served(client) as address:
                port = int(address.rpartition(":")[2])
                context = await browser.new_context()
                page = await context.new_page()
                await page.goto(f"{address}/#{conversation.id}")
                await expect(page.locator('.call[data-state="waiting"]')).to_have_count(1)
            await expect(page.locator("#link")).to_have_text("reconnecting")
            await conversation.approve("a")
            await waiting(conversation)
            async with served(client, port=port):
                await expect(page.locator('.call[data-state="done"]')).to_have_count(1)
                await expect(page.locator('.call[data-state="waiting"]')).to_have_count(1)
                server.kill()
                await server.restart()
                await waiting(conversation)
                await page.get_by_role("button", name="Approve").click()
                await expect(page.locator(".turn .text").last).to_have_text("Done.")
                assert await page.locator(".turn").count() == 3
                await context.close()


async def test_a_page_that_is_refused_says_why_and_comes_in_once_there_is_room(
    tab: Page, client: Client, bounds: Bounds
) -> None:
    bounds(pages=0)
    async with served(client) as address, looking(tab, address) as page:
        await expect(page.locator("#trouble")).to_contain_text("0 pages are already open. Close some")
        await expect(page.locator("#link")).to_have_text("reconnecting")
        bounds(pages=2)
        await expect(page.locator("#link")).to_have_text("live")
        await expect(page.locator("#trouble")).to_be_hidden()
