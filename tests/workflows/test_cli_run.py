"""The command line as users have it: processes, a real server, a scripted model."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from everturn.testing import call, fail
from tests.support.shell import Shell
from tests.support.waiting import until

WEATHER = [[call("get_weather", {"city": "Paris"}), call("get_weather", {"city": "Rome"})], "Sunny in both."]
REFUND = [call("refund", {"order": "81", "cents": 5}), "It is done."]


AD_HOC = ["-m", "scripted:x", "--tool", "tools.py"]


@pytest.fixture
def waiting_run(shell: Shell, model: Callable[[Any], None], name: str) -> Iterator[subprocess.Popen[str]]:
    """A `run` whose refund waits for somebody."""
    model(REFUND)
    with shell.start("run", "Refund order 81", *AD_HOC, "--id", name) as process:
        try:
            shell.until_one_waits(name)
            yield process
        finally:
            process.kill()


def test_a_prompt_may_come_from_a_pipe(shell: Shell, model: Callable[[Any], None]) -> None:
    model(lambda messages: f"You said: {messages[-1]['content']}")
    assert shell.run("run", "-", "-m", "scripted:x", says="a long\ntext\n").stdout == "You said: a long\ntext\n"


def test_run_without_a_temporal_brings_its_own(alone: Shell, model: Callable[[Any], None]) -> None:
    model(WEATHER)
    done = alone.run("run", "How is the weather?", *AD_HOC)
    assert (done.returncode, done.stdout) == (0, "Sunny in both.\n")
    assert '✓ get_weather(city="Paris")  Sunny in Paris' in done.stderr
    assert '✓ get_weather(city="Rome")  Sunny in Rome' in done.stderr


def test_run_as_json_with_yes(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    model(REFUND)
    outcome = shell.json("run", "Refund order 81", *AD_HOC, "--yes", "--id", name)
    assert (outcome["id"], outcome["status"], outcome["text"]) == (name, "completed", "It is done.")
    shown = shell.json("show", name)
    assert shown["status"]["state"] == "done"

    folded, whole = shell.run("show", name).stdout, shell.run("show", name, "--full").stdout
    assert '→ refund(order="81", cents=5)' in folded
    assert '"cents": 5' not in folded
    assert '"cents": 5' in whole
    assert "      refunded 5 of 81" in whole

    over = shell.run("run", "Refund another", *AD_HOC, "--yes", "--id", name)
    assert over.returncode == 1
    assert f"`everturn send {name} TEXT` says more to it; --again starts anew" in over.stderr
    assert shell.json("run", "Refund order 81", *AD_HOC, "--yes", "--id", name, "--again")["text"] == "It is done."


def test_an_export_says_its_format_by_its_name(shell: Shell) -> None:
    done = shell.run("export", "order-81", "-o", "order.x")
    assert (done.returncode, (shell.folder / "order.x").exists()) == (2, False)
    assert "order.x has no known ending: use .jsonl, .md, .db, .sqlite, .sqlite3, or add --format" in done.stderr


def test_without_a_terminal_it_says_how_to_approve_and_waits(
    shell: Shell, waiting_run: subprocess.Popen[str], name: str
) -> None:
    shown = shell.run("show", name).stdout
    assert f"everturn approve {name} call_0_0" in shown
    assert '"cents": 5' in shown

    refused = shell.run("approve", name, "call_9_9")
    assert refused.returncode == 1
    assert "No call 'call_9_9' waits; these do: 'call_0_0'." in refused.stderr

    approved = shell.run("approve", name, "call_0_0", "--arguments", '{"order": "81", "cents": 4}', "--note", "less")
    assert (approved.returncode, approved.stdout) == (
        0,
        "approved: call_0_0, with other arguments; they are checked before it runs: everturn watch " + f"{name}\n",
    )
    out, err = waiting_run.communicate(timeout=180)
    assert (waiting_run.returncode, out) == (0, "It is done.\n")
    assert f"everturn approve {name} call_0_0" in err
    assert "refunded 4 of 81" in err

    late = shell.run("approve", name)
    assert late.returncode == 1
    assert "is over" in late.stderr
    kinds = [json.loads(line)["kind"] for line in shell.run("watch", name, "--json").stdout.splitlines()]
    assert (kinds[0], kinds[-1]) == ("message_received", "done")
    assert "completed" in shell.run("watch", name).stdout


def test_denied_and_answered_from_outside(shell: Shell, waiting_run: subprocess.Popen[str], name: str) -> None:
    until(
        lambda: (
            name
            in [
                conversation["id"]
                for conversation in shell.json("list", "--status", "awaiting_approval")["conversations"]
            ]
        )
    )
    assert shell.json("deny", name, "--reason", "not today") == {"call_ids": ["call_0_0"]}
    waiting_run.communicate(timeout=180)
    assert waiting_run.returncode == 0
    (result,) = [part for message in shell.json("show", name)["messages"] for part in message["parts"][:1]][2:3]
    assert "not today" in result["content"][0]["text"]


def test_ctrl_c_says_how_to_go_on(shell: Shell, waiting_run: subprocess.Popen[str], name: str) -> None:
    waiting_run.send_signal(signal.SIGINT)
    _, err = waiting_run.communicate(timeout=180)
    assert waiting_run.returncode == 130
    assert f"everturn chat --id {name} -m scripted:x --tool tools.py" in err
    assert "Traceback" not in err


def _offered(shell: Shell, **asked: str) -> list[str]:
    shell.environment |= asked
    return shell.run().stdout.split()


def test_after_the_id_the_shell_offers_what_waits(shell: Shell, waiting_run: subprocess.Popen[str], name: str) -> None:
    shell.environment["_EVERTURN_COMPLETE"] = "complete_bash"
    for command in ("approve", "deny", "answer"):
        words = f"everturn {command} {name} "
        # Nothing is offered if the server is too busy to say it within a moment; and ids are the index's, which lags.
        until(lambda words=words: _offered(shell, COMP_CWORD="3", COMP_WORDS=words) == ["call_0_0"])
        words = f"everturn {command} {name[:3]}"
        until(lambda words=words: name in _offered(shell, COMP_CWORD="2", COMP_WORDS=words))


def test_a_stall_is_cause_and_cure_in_one_line(shell: Shell, model: Callable[[Any], None]) -> None:
    model([fail(401, "no such key")])
    done = shell.run("run", "hi", "-m", "scripted:x")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("everturn: ")
    assert "401" in line


def test_an_agent_that_nobody_hosts_is_named(shell: Shell) -> None:
    shell.environment["EVERTURN_TASK_QUEUE"] = f"empty-{uuid4().hex[:8]}"
    done = shell.run("run", "hi", "--agent", "clerk")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No worker polls the task queue" in line
    assert "everturn worker" in line


@pytest.mark.parametrize("command", [["run", "hi", "-m", "scripted:x"], ["worker", "--agents", "clerk.py"]], ids=str)
def test_a_namespace_that_is_not_there_is_one_line(
    shell: Shell, model: Callable[[Any], None], command: list[str]
) -> None:
    model(["One."])
    (shell.folder / "clerk.py").write_text("from everturn import Agent\nclerk = Agent('clerk', model='scripted:x')\n")
    shell.environment |= {"TEMPORAL_NAMESPACE": "nowhere", "EVERTURN_LOG_LEVEL": "error"}
    done = shell.run(*command)
    assert done.returncode == 1
    assert "has no namespace 'nowhere'. Check TEMPORAL_NAMESPACE, or make it: " in done.stderr.splitlines()[-1]


@pytest.fixture
def clerk(shell: Shell, model: Callable[[Any], None]) -> Iterator[subprocess.Popen[str]]:
    """`everturn worker` with an agent, on a task queue of its own."""
    model(REFUND)
    (shell.folder / "clerk.py").write_text(
        "from everturn import Agent\nfrom tools import refund\n"
        "clerk = Agent('clerk', model='scripted:x', tools=[refund])\n"
    )
    shell.environment |= {"EVERTURN_TASK_QUEUE": f"clerk-{uuid4().hex[:8]}", "EVERTURN_AGENTS": "clerk.py"}
    with shell.start("worker") as worker:
        try:
            until(lambda: shell.run("doctor").returncode == 0)
            yield worker
        finally:
            worker.kill()


def test_hosted_elsewhere(shell: Shell, clerk: subprocess.Popen[str], name: str) -> None:
    found = shell.json("doctor")
    findings = {one["part"]: one["state"] for one in found}
    assert {findings[part] for part in ("Temporal", "namespace", "search attributes", "workers", "agents")} == {"ok"}
    (workers,) = [one["detail"] for one in found if one["part"] == "workers"]
    assert "1 polled task queue" in workers
    assert "in the last 2 minutes" in workers
    command = ["run", "Refund order 81", "--agent", "clerk", "--yes", "--id", name]
    done = shell.run(*command)
    assert (done.returncode, done.stdout) == (0, "It is done.\n")
    until(lambda: "they host clerk" in shell.run("doctor").stdout)  # its first heartbeat may take three seconds
    wrong = shell.run("run", "hi", "--agent", "clark")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "hosts the agent 'clark'; they host clerk. Did you mean 'clerk'?" in wrong.stderr
    clerk.terminate()
    assert clerk.wait(60) == 0
    # What is over needs no worker to be looked at; what is to begin does.
    shell.environment["EVERTURN_TASK_QUEUE"] = f"empty-{uuid4().hex[:8]}"
    assert shell.run(*command).stdout == "It is done.\n"
    assert "No worker polls the task queue" in shell.run(*command, "--again").stderr


def test_steering_a_conversation(shell: Shell, model: Callable[[Any], None], name: str) -> None:
    """Pause, send, resume, close: on a chat that waits for its next message."""
    model(["One.", "Two.", "Three."])
    with shell.start("chat", "-m", "scripted:x", "--id", name) as chat:
        assert chat.stdin
        assert chat.stdout
        chat.stdin.write("hi\n")
        chat.stdin.flush()
        assert chat.stdout.readline() == "One.\n"
        assert shell.run("pause", name).returncode == 0
        assert shell.run("send", name, "and?").stdout == f"sent: {name}\n"
        assert shell.run("resume", name).returncode == 0
        until(lambda: shell.json("show", name)["messages"][-1]["parts"][0]["text"] == "Two.")
        chat.stdin.close()  # the end of the input closes it politely
        assert chat.wait(60) == 0
    assert shell.json("show", name)["status"]["state"] == "done"
    # The index lags a little.
    until(
        lambda: (
            (name, "done")
            in [(conversation["id"], conversation["status"]) for conversation in shell.json("list")["conversations"]]
        )
    )
    over = shell.run("chat", "-m", "scripted:x", "--id", name, says="/resume\n/quit\n")
    assert (
        over.stderr.count("■ The conversation is over. Your next message continues it.") == 2
    )  # as it begins, and for the /resume


def test_a_chat_outlives_its_server(alone: Shell, model: Callable[[Any], None], name: str) -> None:
    model(["One.", "Two."])
    with alone.start("chat", "-m", "scripted:x", "--id", name) as chat:
        assert chat.stdin
        assert chat.stdout
        chat.stdin.write("hi\n")
        chat.stdin.flush()
        assert chat.stdout.readline() == "One.\n"
        chat.send_signal(signal.SIGINT)
        _, err = chat.communicate(timeout=180)
    assert chat.returncode == 130
    assert f"everturn chat --id {name}" in err
    back = alone.run("chat", "--id", name, says="and?\n/quit\n")
    assert (back.returncode, back.stdout) == (0, "Two.\n")
    assert "▸ hi" in back.stderr  # where it was left
    assert not [path for path in (alone.folder / "state").rglob("*") if path.is_file()]  # nothing to come back to
