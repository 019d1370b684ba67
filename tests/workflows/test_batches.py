"""Turns that wait for a provider's batch, on the real server: paid once, whatever is killed."""

from __future__ import annotations

import pytest

from everturn import Agent, Client, ModelSettings
from tests.support.agents import hosting
from tests.support.batch_server import VENDORS, BatchServer, Vendor
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-test")
    monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "0.3")


def batched(provider: BatchServer, vendor: Vendor = "openai", **options: object) -> Agent:
    return Agent("clerk", model=provider.model(vendor), settings=ModelSettings(batch=True), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("vendor", VENDORS)
async def test_turns_of_several_conversations_are_one_batch_whose_replies_reach_each(
    client: Client, vendor: Vendor, cached_conversations: int
) -> None:
    with BatchServer() as provider:
        agent = batched(provider, vendor)
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversations = [await client.start(agent, f"Hi {number}") for number in range(3)]
            await eventually(lambda: provider.batches)
            [batch] = provider.batches.values()

            async def told() -> bool:
                status = await conversations[0].status()
                return batch.id in (status.cause or "")

            await eventually(told)
            provider.finish()
            outcomes = [await conversation.outcome() for conversation in conversations]
    assert [outcome.text for outcome in outcomes] == ["Done."] * 3
    assert provider.paid == 3
    assert not provider.live
