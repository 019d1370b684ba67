"""What the browser tests share: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from everturn import Client
from tests.support.waiting import WAIT_SECONDS
from tests.ui.inbox import looking, served

CHROMIUM = Path("/usr/bin/chromium")

# On a busy machine, a page takes its time.
expect.set_options(timeout=WAIT_SECONDS * 1000)


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium for the session; take `await browser.new_context()` for each test."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    async with async_playwright() as playwright:
        # Debian's draws as for a GPU, in software, which takes more CPU than what is drawn.
        drawing = ("--disable-gpu", "--in-process-gpu", "--disable-software-rasterizer", "--disable-extensions")
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *drawing])
        yield chromium
        await chromium.close()


@pytest.fixture(scope="session")
async def tab(browser: Browser) -> Page:
    """One for the tests of the inbox: a profile and a process of its own would cost each a second."""
    return await (await browser.new_context(locale="en-GB", reduced_motion="reduce")).new_page()


@pytest.fixture
async def page(tab: Page, client: Client) -> AsyncIterator[Page]:
    async with served(client) as address, looking(tab, address) as page:
        yield page
