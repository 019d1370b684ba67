"""`python -m benchmarks inbox`: how soon the inbox shows 608 conversations, how it scrolls 2,000 turns, and how late it
is while 50 run.

Everything is real and on this machine: a dev server, a worker, `everturn web`'s application and Debian's chromium.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

from playwright.async_api import Page, async_playwright

from benchmarks import report
from everturn import Agent, Client, Conversation, Limits, Model, Worker, tool
from everturn.devserver import DevServer, find_binary
from everturn.testing import ScriptedModel, call, say
from everturn.testing.script import Slow
from tests.ui.inbox import served

CHROMIUM = "/usr/bin/chromium"
OVER, WAITING, TURNS = 600, 8, 2_000
AT_ONCE = 24
RUNNING, STEPS, STEP_SECONDS = 50, 12, 2.0
"""So many run at once; each has so many turns of so many seconds, and then asks for a decision."""
LONGEST_SECONDS = 900.0

_AT_WORK = (
    f"The list asks the server's index once a second, so what it shows is up to a second old. {RUNNING} conversations "
    f"run at once,\nwith {STEPS} turns of {STEP_SECONDS:.0f} s each; the last asks for a decision. All of it is on the "
    "same cores: the server, the worker, the\nmodel, the inbox and the browser."
)

SHOWN = "wanted => document.querySelectorAll(wanted.what).length >= wanted.count && performance.now()"
"""How long the page has been there, once it shows so many."""

SCROLLED = """async () => {
  const frame = document.querySelector("#scroll");
  frame.scrollTop = 0;
  const took = [];
  let before = await new Promise(requestAnimationFrame);
  while (frame.scrollTop + frame.clientHeight < frame.scrollHeight - 2 && took.length < 2000) {
    frame.scrollTop += 400;
    const now = await new Promise(requestAnimationFrame);
    took.push(now - before);
    before = now;
  }
  return took.sort((one, other) => one - other);
}"""

SEEN = """() => {
  window.seen = { asks: {}, turns: {} };
  const look = () => {
    for (const asks of document.querySelectorAll("#conversations a[data-id^=walker] .asks"))
      if (asks.textContent.includes("refund")) window.seen.asks[asks.closest("a").dataset.id] ??= Date.now();
    for (const turn of document.querySelectorAll("#transcript .turn[data-turn]"))
      if (turn.textContent.includes("Step")) window.seen.turns[turn.dataset.turn] ??= Date.now();
  };
  look();
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
"""Notes when the page first shows that a conversation waits, and each turn's text of the one that is open."""


@tool(needs_approval=True, effect="once")
def refund(order_id: str) -> str:
    """Refund an order."""
    return f"refunded {order_id}"


@tool(effect="read")
def look_up(page: int) -> dict[str, Any]:
    """Read a page of the ledger."""
    return {"page": page, "orders": [f"order {page}-{n}: a desk lamp for 34.90 EUR" for n in range(5)]}


def _reads(turns: int) -> Any:
    def script(messages: list[dict[str, Any]]) -> Any:
        turn = sum(message["role"] == "assistant" for message in messages) + 1
        if turn >= turns:
            return "All is read."
        return [say(f"I read page **{turn}**, see `ledger`:\n\n- one\n- two"), call("look_up", {"page": turn})]

    return script


def _walks(messages: list[dict[str, Any]]) -> Any:
    turn = sum(message["role"] == "assistant" for message in messages) + 1
    last = call("refund", {"order_id": "81"}) if turn == STEPS else call("look_up", {"page": turn})
    return Slow([say(f"Step {turn}."), last], seconds=STEP_SECONDS)


async def _start(client: Client) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(agent: str, number: int) -> None:
        async with places:
            conversation = await client.start(agent, f"Where is order {number}?", id=f"{agent}-{number}")
            kind = "approval_requested" if agent == "clerk" else "done"
            await anext(event async for event in conversation.events() if event.kind == kind)

    await asyncio.gather(*(one("clerk", number) for number in range(WAITING)))
    await asyncio.gather(*(one("concierge", number) for number in range(OVER)))


async def _opened(page: Page, address: str, what: str, count: int) -> float:
    """Milliseconds from the navigation until so many are shown."""
    await page.goto("about:blank")
    await page.goto(address, wait_until="commit")
    shown = await page.wait_for_function(SHOWN, arg={"what": what, "count": count}, timeout=120_000)
    return float(await shown.json_value())


@asynccontextmanager
async def _page() -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield await chromium.new_page(viewport={"width": 1280, "height": 820}, reduced_motion="reduce")
        finally:
            await chromium.close()


async def _follow(client: Client, address: str) -> list[tuple[str, str]]:
    """How late the page is: against the server's times of what it shows, on the same clock."""
    async with _page() as page:
        walkers = await asyncio.gather(*[client.start("walker", f"Walk {n}", id=f"walker-{n}") for n in range(RUNNING)])
        await page.goto(f"{address}/#walker-0", wait_until="commit")
        await page.wait_for_selector("#transcript .turn")
        await page.evaluate(SEEN)
        looked = time.time()
        happened = await asyncio.gather(*map(_happened, walkers))
        shown = "wanted => Object.keys(window.seen.asks).length >= wanted"
        await page.wait_for_function(shown, arg=RUNNING, timeout=120_000)
        seen = await page.evaluate("() => window.seen")
    asks = [seen["asks"][one.id] / 1000 - asked for one, (_, asked) in zip(walkers, happened, strict=True)]
    turns = [seen["turns"][turn] / 1000 - at for turn, at in happened[0][0].items() if at > looked]
    return [
        (f"{RUNNING} run: that one waits for a person is in the list after", _spread(asks)),
        (f"{RUNNING} run: in the open one, a reply is there after ({len(turns)} replies)", _spread(turns)),
    ]


async def _happened(walker: Conversation) -> tuple[dict[str, float], float]:
    """When each turn replied, and when it asked for the decision: seconds since 1970, by the server's clock."""
    replied: dict[str, float] = {}
    async for event in walker.events():
        at = datetime.fromisoformat(event.at).timestamp() if event.at else 0.0
        if event.kind == "replied":
            replied[str(event.turn)] = at
        if event.kind == "approval_requested":
            return replied, at
    raise RuntimeError(f"{walker.id} ended before it asked for a decision")


def _spread(seconds: list[float]) -> str:
    late = sorted(max(0.0, second) * 1000 for second in seconds)
    return f"{late[len(late) // 2]:.0f} ms (at most {late[-1]:.0f})"


async def _measure(address: str) -> list[tuple[str, str]]:
    async with _page() as page:
        rows: list[tuple[str, str]] = []
        await _opened(page, address, "#conversations a", 1)  # its scripts are in the browser's cache, as any day
        for name, query, count in (
            ("the list, as it opens", "", 200),
            ("all 608", "?limit=1000", OVER + WAITING),
        ):
            took = sorted([await _opened(page, f"{address}/{query}", "#conversations a", count) for _ in range(5)])
            rows.append((f"{name}: {count} rows are there after", f"{took[2]:.0f} ms (at most {took[4]:.0f})"))
        took = [await _opened(page, f"{address}/#ledger", ".turn", 1)]
        rows.append(("a conversation of 2,000 turns: its end is there after", f"{took[0]:.0f} ms"))
        began = time.monotonic()
        while await page.locator(".earlier").count():
            before = await page.locator(".turn").count()
            await page.locator(".earlier").click()
            await page.wait_for_function("n => document.querySelectorAll('.turn').length > n", arg=before)
        turns = await page.locator(".turn").count()
        rows.append(
            ("all that came before, 200 messages a click", f"{time.monotonic() - began:.1f} s, {turns:,} turns")
        )
        frames: list[float] = await page.evaluate(SCROLLED)
        middle, late = frames[len(frames) // 2], frames[int(len(frames) * 0.99)]
        rows.append(
            (
                f"scrolled through, {len(frames)} frames",
                f"median {middle:.0f} ms, p99 {late:.0f}, longest {frames[-1]:.0f}",
            )
        )
        return rows


async def main(*, record: bool = False) -> None:
    """Raises TimeoutError after LONGEST_SECONDS."""
    ask = [[say("It costs 34.90 EUR."), call("refund", {"order_id": "81"})], "Done."]
    scripts = {"concierge": lambda _: "On its way.", "clerk": ask, "reader": _reads(TURNS), "walker": _walks}
    async with AsyncExitStack() as stack, asyncio.timeout(LONGEST_SECONDS):
        server = await stack.enter_async_context(DevServer())
        client = await Client.connect(server.address, task_queue="inbox-benchmark")
        agents = [
            Agent(
                name,
                model=Model("scripted:demo", base_url=stack.enter_context(ScriptedModel(script)).base_url),
                tools=[refund, look_up],
                limits=Limits(max_turns=TURNS + 1),
            )
            for name, script in scripts.items()
        ]
        await stack.enter_async_context(Worker(client, agents=agents))
        print(f"{OVER + WAITING} conversations, and one of {TURNS:,} turns, are made first ...", flush=True)
        began = time.monotonic()
        ledger = await client.start("reader", "Read the ledger.", id="ledger")
        await asyncio.gather(_start(client), ledger.outcome())
        print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
        looks = await Client.connect(server.address)  # by now, the server says what its index has
        address = await stack.enter_async_context(served(looks))
        rows = [*await _measure(address), *await _follow(client, address)]
    table = "\n".join(["| the inbox | |", "| :--- | :--- |", *(f"| {name} | {value} |" for name, value in rows)])
    print(table)
    if record:
        facts = report.machine(await find_binary())
        report.record("inbox", facts, "### The inbox (`python -m benchmarks inbox`)", table, _AT_WORK)
