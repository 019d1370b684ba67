"""Commands that look at conversations, and those that steer them, as programs have them: `--json` throughout."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.prepared import run
from tests.support.shell import Shell
from tests.support.waiting import until, waiting

AD_HOC = ["-m", "scripted:x", "--tool", "tools.py"]
REFUND = [call("refund", {"order": "81", "cents": 5}), "It is done."]


@pytest.mark.long
def test_a_finished_conversation_from_all_sides(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    model(REFUND)
    assert shell.run("run", "Refund order 81", *AD_HOC, "--yes", "--id", name).returncode == 0

    events = [json.loads(line) for line in shell.run("watch", name, "--json").stdout.splitlines()]
    assert [event["reason"] for event in events if event["kind"] == "approval_requested"] == ["needs_approval"]
    third = events[2]["cursor"]
    assert [json.loads(line) for line in shell.run("watch", name, "--since", third, "--json").stdout.splitlines()] == (
        events[3:]
    )
    nowhere = shell.run("watch", name, "--since", "yesterday")
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert "'yesterday' is not a cursor" in nowhere.stderr

    shown = shell.run("show", name).stdout
    assert "✓ refund [approved by" in shown
    assert "● It is done." in shown

    lines = [json.loads(line) for line in shell.run("export", name).stdout.splitlines()]
    assert (lines[0]["id"], lines[0]["status"]) == (name, "completed")
    assert shell.run("export", name, "-o", "it.md").stdout == f"exported: {name} to it.md\n"
    assert (shell.folder / "it.md").read_text().startswith(f"# {name}\n")
    assert shell.run("export", name, "--output", "it.db").returncode == 0
    with closing(sqlite3.connect(shell.folder / "it.db")) as database:
        assert database.execute("SELECT name, text FROM tool_results").fetchall() == [("refund", "refunded 5 of 81")]
    homeless = shell.run("export", name, "--format", "sqlite")
    assert (homeless.returncode, homeless.stdout) == (2, "")
    assert "--output FILE" in homeless.stderr
    lost = shell.run("export", name, "nobody", "-o", "it.md")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "no conversation 'nobody'" in lost.stderr

    forked = shell.json("fork", name, "--at-turn", "1", "--id", f"{name}-2")
    assert forked == {"id": f"{name}-2", "forked_from": name, "at_turn": 1}
    refused = shell.run("fork", name, "--at-turn", "9")
    assert refused.returncode == 1
    assert "9" in refused.stderr


def test_steering_says_what_it_did_to_programs(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    model(["One."])
    with shell.start("chat", "-m", "scripted:x", "--id", name) as chat:
        assert chat.stdin
        assert chat.stdout
        chat.stdin.write("hi\n")
        chat.stdin.flush()
        assert chat.stdout.readline() == "One.\n"
        said = [shell.json(command, name) for command in ("pause", "resume", "close")]
        assert said == [{"id": name, "did": did} for did in ("paused", "resumed", "closing")]
        chat.kill()


def test_a_watch_that_is_left_says_how_to_go_on(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    model(REFUND)
    with shell.start("run", "Refund order 81", *AD_HOC, "--id", name) as process:
        shell.until_one_waits(name)
        with shell.start("watch", name) as watch:
            assert watch.stdout
            assert watch.stdout.readline() == "▸ Refund order 81\n"
            until(lambda: "waits" in watch.stdout.readline())
            watch.send_signal(signal.SIGINT)
            _, err = watch.communicate(timeout=180)
        process.kill()
    assert watch.returncode == 130
    assert f"To continue: everturn watch {name} --since " in err


def test_the_shell_completes_ids_and_calls_and_is_told_nothing_else(
    shell: Shell, model: Callable[[Any], None], name: str
) -> None:
    def completed(line: str) -> list[str]:
        words = line.split(" ")
        asked = {"_EVERTURN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        done = run("-m", "everturn", env={**shell.environment, **asked})
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    model(REFUND)
    with shell.start("run", "Refund order 81", *AD_HOC, "--id", name) as process:
        shell.until_one_waits(name)
        # Nothing is offered if the server is too busy to say it within a moment.
        until(lambda: completed(f"everturn show {name[:-2]}") == [name])
        until(lambda: completed(f"everturn approve {name} ") == ["call_0_0"])
        until(lambda: "assistant" in completed("everturn run hi --agent "))
        process.kill()
    assert completed("everturn list --status awaiting_") == ["awaiting_approval", "awaiting_answer"]
    assert completed("everturn list --status stu") == ["stuck"]
    assert completed("everturn run -m gr") == ["groq:"]
    shell.environment["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    assert completed("everturn show x") == []


def test_the_status_holds_whatever_threads_do_at_the_end(shell: Shell) -> None:
    """Temporal's runtime may abort an interpreter that ends while its threads run; ours is ended before."""
    assert os.name == "posix"
    running = [shell.start("show", "nobody") for _ in range(4)]
    for one in running:
        one.communicate(timeout=180)
    assert {one.returncode for one in running} == {1}


async def test_a_call_that_may_have_run_already_is_not_approved_by_who_does_not_name_it(
    shell: Shell, client: Client, scripted: Callable[..., ScriptedModel]
) -> None:
    times: list[str] = []

    @tool(name="refund", effect="once", timeout=timedelta(seconds=0.2))
    async def lost(order_id: str) -> str:
        times.append(order_id)
        await asyncio.sleep(60 if len(times) == 1 else 0)
        return "Refunded."

    async def everturn(*arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(shell.run, *arguments)
        return done.returncode, done.stdout + done.stderr

    shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
    agent = agent_on(scripted([call("refund", {"order_id": "81"}, id="a"), "Done."]), tools=[lost])
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        ways = [f"everturn {one}" for one in (f"approve {conversation.id} a", f"answer {conversation.id} a CONTENT")]
        code, told = await everturn("approve", conversation.id)
        assert (code, [way for way in ways if f"`{way}`" in told]) == (1, ways)
        assert "may have run already" in told
        assert times == ["81"]
        _, told = await everturn("show", conversation.id)
        assert "    It may have run already." in told
        assert [line.strip() for line in told.splitlines() if "everturn " in line] == ways
        assert await everturn("approve", conversation.id, "a") == (0, "approved: a\n")
        assert await conversation.reply() == "Done."
    assert times == ["81", "81"]
