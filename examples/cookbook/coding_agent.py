"""A coding agent on a real git repository: it reads and tests by itself, and asks before it writes or commits.

python coding_agent.py [REPOSITORY] [TASK]
"""

import asyncio
import difflib
import subprocess
import sys
from os import environ
from pathlib import Path

from everturn import Agent, Client, ToolCall, ToolFailed, Worker, tool

REPOSITORY = Path(sys.argv[1] if len(sys.argv) > 1 else "calculator").resolve()
TASK = sys.argv[2] if len(sys.argv) > 2 else "The tests fail. Repair the code, and commit it."


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}"


def inside(path: str) -> Path:
    file = (REPOSITORY / path).resolve()
    if not file.is_relative_to(REPOSITORY) or ".git" in file.relative_to(REPOSITORY).parts:
        raise ToolFailed(f"{path} is not a file of the repository.")
    return file


@tool(effect="read")
def list_files() -> str:
    """The files that git knows."""
    return run("git", "ls-files")


@tool(effect="read")
def read_file(path: str) -> str:
    """What is in a file."""
    return inside(path).read_text()


@tool(effect="idempotent", needs_approval=True)
def write_file(path: str, text: str) -> str:
    """Replace a file, or make a new one."""
    inside(path).write_text(text)
    return f"{path} is written."


@tool(effect="idempotent")
def run_tests() -> str:
    """Run the tests."""
    # -B: what Python has compiled is no part of the repository, and within a second it may be that of an older text.
    return run(sys.executable, "-B", "-m", "unittest", "--quiet")


@tool(effect="once", needs_approval=True)
def commit(message: str) -> str:
    """Commit all changes."""
    run("git", "add", "--all")
    return run("git", "-c", "user.name=agent", "-c", "user.email=agent@example.com", "commit", "-m", message)


coder = Agent(
    "coder",
    model=environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You work on a git repository. Read before you write. Run the tests before you commit.",
    tools=[list_files, read_file, write_file, run_tests, commit],
)


def shown(call: ToolCall) -> str:
    """What a person has to see of a call: the changes, not the whole file."""
    if call.name != "write_file":
        return f"{call.name}: {call.arguments}"
    try:
        file = inside(str(call.arguments["path"]))
    except ToolFailed as error:
        return str(error)
    before = file.read_text() if file.exists() else ""
    lines = difflib.unified_diff(
        before.splitlines(), str(call.arguments["text"]).splitlines(), "before", "after", lineterm=""
    )
    return f"{call.arguments['path']}\n" + "\n".join(lines)


async def main() -> None:
    make_repository()
    client = await Client.connect()
    async with Worker(client, agents=[coder]):
        conversation = await client.start(coder, TASK)
        async for event in conversation.events(deltas=False):
            if event.kind == "approval_requested":
                print(shown(event.call))
                if await asyncio.to_thread(input, "? Do it? [y/n] ") == "y":
                    await conversation.approve(event.call_id, expected=event.arguments)
                else:
                    await conversation.deny(event.call_id, "Not like this.")
            elif event.kind == "tool_finished" and event.result.name == "run_tests":
                print("tests:", event.result.text.strip().splitlines()[-1])
        print((await conversation.outcome()).text)


def make_repository() -> None:
    """A small one with a bug, if there is none."""
    if not REPOSITORY.exists():
        REPOSITORY.mkdir()
        (REPOSITORY / "calculator.py").write_text("def add(a, b):\n    return a - b\n")
        (REPOSITORY / "test_calculator.py").write_text(
            "import unittest\n\nfrom calculator import add\n\n\nclass TestAdd(unittest.TestCase):\n"
            "    def test_it_adds(self):\n        self.assertEqual(add(1, 2), 3)\n"
        )
        run("git", "init")
        run("git", "add", "--all")
        run("git", "-c", "user.name=you", "-c", "user.email=you@example.com", "commit", "-m", "A calculator")


if __name__ == "__main__":
    asyncio.run(main())
