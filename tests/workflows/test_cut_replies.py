"""A reply that the model did not finish says so: the outcome, the event, whoever asked, the page, the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client
from everturn.client.followed_reply import FollowedReply
from everturn.events import Replied
from everturn.exporting.markdown import to_markdown
from everturn.exporting.reading import read_conversation
from everturn.mcp_server.turns import look_at
from everturn.testing import ScriptedModel, call, say
from everturn.ui.ai_sdk_messages import ui_messages
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.shell import Shell

Scripted = Callable[..., ScriptedModel]

TEXT = "The refund is 34."


@pytest.mark.parametrize(
    ("finish", "stop", "words"),
    [
        ("length", "length", "output limit"),
        ("content_filter", "filtered", "filter"),
        ("stop", "end", None),
    ],
)
@pytest.mark.parametrize("keep_open", [None, timedelta(minutes=1)])
async def test_the_outcome_and_the_event_say_that_a_reply_is_not_whole(
    client: Client,
    scripted: Scripted,
    bounds: Bounds,
    finish: str,
    stop: str,
    words: str | None,
    keep_open: timedelta | None,
) -> None:
    bounds(events=10)  # one that stays open goes on as a new run, which hands it on
    agent = agent_on(scripted([say(TEXT, finish=finish)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much?", keep_open=keep_open)
        assert await conversation.reply() == TEXT
        async with FollowedReply(conversation) as answer:
            _ = [event async for event in answer.follow_on()]
        if keep_open:
            await conversation.pause()
            await conversation.resume()
            await conversation.close()
        outcome = await conversation.outcome()
        (replied,) = [event async for event in conversation.events() if isinstance(event, Replied)]
    assert (outcome.status, outcome.text, outcome.stop, outcome.usage.total_tokens > 0) == (
        "completed",
        TEXT,
        stop,
        True,
    )
    assert (outcome.reason is None) if words is None else (words in (outcome.reason or ""))
    assert (replied.stop, answer.rest and answer.rest.stop) == (stop, stop)


async def test_an_agent_reads_that_the_answer_of_the_one_it_asked_is_not_whole(
    client: Client, scripted: Scripted
) -> None:
    cashier = agent_on(scripted([say(TEXT, finish="length")]), name="cashier")
    model = scripted([call("cashier", {"message": "How much?"}), "About 34."])
    agent = agent_on(model, tools=[cashier])
    async with hosting(client, agent, cashier):
        outcome = await client.run(agent, "How much?")
    assert outcome.stop == "end"
    read = model.requests[-1]["messages"][-1]["content"]
    assert read == (
        f"{TEXT}\n[cashier's answer is not whole: the model's last reply is cut off: it reached the model's output "
        "limit (length).]"
    )


def test_run_says_so_beside_the_text(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    model([say(TEXT, finish="length")])
    done = shell.run("run", "How much?", "-m", "scripted:x", "--id", name)
    assert (done.returncode, done.stdout) == (0, f"{TEXT}\n")
    assert "output limit (length)" in done.stderr
    assert shell.json("run", "How much?", "-m", "scripted:x", "--id", name)["stop"] == "length"


async def test_who_reads_it_later_is_told_that_it_is_not_whole(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([say(TEXT, finish="length")]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much?")
        await conversation.outcome()
        assert (await look_at(conversation)).in_words == (
            f"{TEXT}\n[clerk's answer is not whole: the model's last reply is cut off: it reached the model's output "
            "limit (length).]"
        )
        async with FollowedReply(conversation) as answer:
            loaded = ui_messages(await answer.transcript(), answer)
        assert loaded[-1]["metadata"] == {"everturn": {"state": "answered", "stop": "length"}}
        exported = await read_conversation(client, conversation.id)
        assert to_markdown(exported).endswith(
            f"{TEXT}\n\n*Not whole: the model's last reply is cut off: it reached the model's output limit (length).*\n"
        )
