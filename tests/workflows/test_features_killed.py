"""A worker is killed with many conversations in hand, each in the middle of something else; another one ends them all.

More such kills: test_hooks_killed.py (hooks of tools), test_context_killed.py (deps, agents from a store),
test_handoffs_killed.py, test_mcp.py, test_mcp_tasks.py, test_background.py, test_cancelled_replies.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Client, Conversation
from everturn.devserver import DevServer
from everturn.errors import Unreachable
from everturn.testing import ScriptedModel, call
from tests.support import held_agents
from tests.support.agents import hosting
from tests.support.bounds import Bounds
from tests.support.prepared import Program
from tests.support.provider_server import ProviderServer, claude, in_order
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

ROOT = Path(__file__).parents[2]

DOOMED = """
import asyncio, sys
from everturn import Client, Worker
from tests.support.held_agents import agents

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=agents()).run()

asyncio.run(main())
"""

SAYS: dict[str, list[Any]] = {
    "hook before": ["Hello."],
    "hook after": ["secret"],
    "tools": [call("echo", {"text": "a"}, id="e1"), "Done."],
    "forced at first": [call("echo", {"text": "a"}, id="e1"), "Done."],
    "forced later": [call("echo", {"text": "a"}, id="e1"), "Done."],
    "pauses itself": [call("pay", {"cents": 500}, id="p1"), "Done."],
    "asks": [call("book", {}, id="b1"), "Done."],
    "remembers": [*(call("refund", {"cents": cents}, id=f"r{cents}") for cents in (1, 2, 3)), "Done."],
    "decided too late": [call("refund", {"cents": 7}, id="r7"), "Done."],
    "begins with a transcript": ["As I said."],
    "asks another agent": [call("helper", {"wants": "help"}, id="h1"), "Done."],
    '{"wants": "help", "politely": true}': [call("refund", {"cents": 9}, id="r9"), "It is done."],
}
"""What the model says to whoever begins so, reply after reply."""

EARLIER = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4."}]

Ends = Callable[[], Awaitable[None]]
"""What is left to do, and to see, once the next worker is there."""


def speak(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    """By the last message of a user: so many replies as came after it are said already."""
    said = [place for place, message in enumerate(messages) if message["role"] == "user"][-1]
    after = sum(message["role"] == "assistant" for message in messages[said:])
    return SAYS[str(messages[said]["content"])][after]


class Story:
    """The conversations, and what was asked of the model for each."""

    def __init__(self, client: Client, folder: Path, model: ScriptedModel) -> None:
        self.client, self.folder, self.model = client, folder, model

    async def begin(self, agent: str, says: str, held: str, **options: Any) -> Conversation:
        metadata = {"held": held}
        name = f"{self.client.task_queue}-{says.replace(' ', '-')}"
        return await self.client.start(agent, says, id=name, metadata=metadata, **options)

    async def is_held(self, conversation_id: str) -> None:
        await eventually((self.folder / conversation_id).exists, what=f"{conversation_id} is where it is to be")

    def asked(self, says: str) -> list[dict[str, Any]]:
        """The requests of a conversation: of a turn, there is one more for each try that asked and was lost."""
        return [
            request
            for request in self.model.requests
            if says in [message["content"] for message in request["messages"]]
        ]


async def results(conversation: Conversation) -> list[str]:
    return [result.text for result in results_of(await conversation.transcript())]


def instructions_of(request: dict[str, Any]) -> str:
    return "".join(message["content"] for message in request["messages"] if message["role"] in ("system", "developer"))


def first_letters(requests: list[dict[str, Any]]) -> str:
    return "".join(dict.fromkeys(str(request.get("tool_choice") or "-")[0] for request in requests))


# ------------------------------------------------------------ each begins something, and returns how it ends


async def a_hook_before_the_model(story: Story) -> Ends:
    conversation = await story.begin("hooked", "hook before", "before_model 1")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Hello."
        assert {instructions_of(one) for one in story.asked("hook before")} == {"Be polite."}

    return ends


async def a_hook_after_the_model(story: Story) -> Ends:
    """The reply that it was looking at was not recorded: the model is asked again, and the hook looks again."""
    conversation = await story.begin("hooked", "hook after", "after_model")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Let us stop here."
        assert len(story.asked("hook after")) >= 2
        acted = [event async for event in conversation.events() if event.kind == "hook_acted"]
        assert [(one.point, one.did) for one in acted] == [("before_model", "changed"), ("after_model", "stopped")]

    return ends


async def tools_of_a_turn(story: Story) -> Ends:
    conversation = await story.begin("prepared", "tools", "prepare_tools")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Done."
        assert await results(conversation) == ["a, a"]
        asked = story.asked("tools")
        assert [*dict.fromkeys(map(instructions_of, asked))] == ["Turn 1.", "Turn 2."]
        assert all([tool["function"]["name"] for tool in one["tools"]] == ["echo"] for one in asked)

    return ends


async def a_forced_call_of_the_first_turn(story: Story) -> Ends:
    conversation = await story.begin("forced", "forced at first", "before_model 1")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Done."
        assert first_letters(story.asked("forced at first")) == "r-"

    return ends


async def a_turn_after_a_forced_call(story: Story) -> Ends:
    conversation = await story.begin("forced", "forced later", "before_model 2")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Done."
        assert first_letters(story.asked("forced later")) == "r-"
        assert await results(conversation) == ["a, a"]

    return ends


async def a_tool_that_paused_itself(story: Story) -> Ends:
    conversation = await story.begin("careful", "pauses itself", "approved")
    await waiting(conversation)
    await conversation.approve("p1")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Done."
        assert await results(conversation) == ["paid 500"]
        requested = [event async for event in conversation.events() if event.kind == "approval_requested"]
        assert len(requested) == 1, "nobody is asked again"

    return ends


async def a_tool_that_asked(story: Story) -> Ends:
    conversation = await story.begin("careful", "asks", "answered")
    await waiting(conversation)
    await conversation.answer("b1", "Monday")
    await story.is_held(conversation.id)

    async def ends() -> None:
        await waiting(conversation)
        [asks] = (await conversation.status()).waiting
        assert asks.why == "How many?", "the first question was answered"
        await conversation.answer("b1", "3")
        assert await conversation.reply() == "Done."
        assert await results(conversation) == ["Monday, for 3"]

    return ends


async def a_decision_for_always(story: Story) -> Ends:
    conversation = await story.begin("careful", "remembers", "refund 2")
    await waiting(conversation)
    await conversation.approve("r1", always=True)
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "Done."
        assert await results(conversation) == ["1 back", "2 back", "3 back"]
        requested = [event async for event in conversation.events() if event.kind == "approval_requested"]
        assert [one.call.call_id for one in requested] == ["r1"]

    return ends


async def a_decision_that_has_a_time(story: Story) -> Ends:
    """It is given while nobody is there to take it: it is never taken."""
    conversation = await story.begin("careful", "decided too late", "nowhere")
    await waiting(conversation)

    async def ends() -> None:
        [still] = await waiting(conversation)
        assert still == "r7"
        await conversation.deny("r7", "too late")
        assert await conversation.reply() == "Done."
        [result] = await results(conversation)
        assert "did not run" in result

    return ends


async def a_handler_of_a_providers_tool(story: Story) -> Ends:
    conversation = await story.begin("shell", "List the files", "bash")
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "One file."
        assert await results(conversation) == ["ls ran"]

    return ends


async def a_transcript_to_begin_with(story: Story) -> Ends:
    options = {"transcript": EARLIER}
    conversation = await story.begin("prepared", "begins with a transcript", "instructions", **options)
    await story.is_held(conversation.id)

    async def ends() -> None:
        assert await conversation.reply() == "As I said."
        asked = story.asked("begins with a transcript")[-1]
        contents = [message["content"] for message in asked["messages"] if message["role"] in ("user", "assistant")]
        assert contents == ["What is 2 + 2?", "4.", "begins with a transcript"]
        transcript = await conversation.transcript()
        assert [message.text for message in transcript] == [*contents, "As I said."]

    return ends


async def an_agent_that_another_one_asks(story: Story) -> Ends:
    conversation = await story.begin("boss", "asks another agent", "refund 9")
    child = story.client.conversation(f"{conversation.id}.h1")
    await eventually(lambda: _waits(child))
    await child.approve("r9")
    await story.is_held(child.id)

    async def ends() -> None:
        assert await conversation.reply() == "Done."
        assert await results(conversation) == ["It is done."]
        events = [event async for event in conversation.events(children=True, deltas=False) if event.child]
        assert [one.kind for one in events].count("approval_requested") == 1

    return ends


async def _waits(conversation: Conversation) -> bool:
    try:
        return bool((await conversation.status()).waiting)
    except Exception:  # noqa: BLE001 - it is yet to begin
        return False


BEGIN = (
    a_hook_before_the_model,
    a_hook_after_the_model,
    tools_of_a_turn,
    a_forced_call_of_the_first_turn,
    a_turn_after_a_forced_call,
    a_tool_that_paused_itself,
    a_tool_that_asked,
    a_decision_for_always,
    a_decision_that_has_a_time,
    a_handler_of_a_providers_tool,
    a_transcript_to_begin_with,
    an_agent_that_another_one_asks,
)


@asynccontextmanager
async def doomed(server: DevServer, client: Client, folder: Path) -> AsyncIterator[Program]:
    """A worker that stays at the places that its conversations name, and is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HELD_FOLDER": str(folder)}
    worker = Program("-c", DOOMED, server.address, client.task_queue, cwd=ROOT, env=environment)
    try:
        yield worker
    finally:
        worker.kill()
        assert await asyncio.to_thread(worker.wait, 60) == -9


async def test_whatever_a_killed_worker_was_in_the_middle_of_the_next_one_ends(
    server: DevServer,
    client: Client,
    scripted: Callable[..., ScriptedModel],
    monkeypatch: pytest.MonkeyPatch,
    bounds: Bounds,
    tmp_path: Path,
    cached_conversations: int,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    model = scripted(speak)
    bash = {"type": "tool_use", "id": "b1", "name": "bash", "input": {"command": "ls"}}
    said = claude(bash, stop="tool_use"), claude({"type": "text", "text": "One file."})
    with ProviderServer(in_order(*said)) as provider:
        monkeypatch.setenv("HELD_MODEL", model.base_url)
        monkeypatch.setenv("HELD_CLAUDE", provider.base_url)
        story = Story(client, tmp_path, model)
        async with doomed(server, client, tmp_path):
            ends = await asyncio.gather(*(begin(story) for begin in BEGIN))
        late = client.conversation(f"{client.task_queue}-decided-too-late")
        bounds(answer_seconds=0.5)
        with pytest.raises(Unreachable, match="will not be carried out later"):
            await late.approve("r7", within=timedelta(seconds=1))
        bounds(answer_seconds=40.0)
        async with hosting(client, *held_agents.agents(), cached_conversations=cached_conversations):
            await asyncio.gather(*(end() for end in ends))
