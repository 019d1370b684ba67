"""Nothing that is too large for Temporal is sent: it is cut, kept whole elsewhere, or refused. Conversations go on."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from everturn import Agent, Client, Limits, Message, Model, Text, ToolFailed, tool
from everturn.errors import InvalidAgent, Refused, Stalled
from everturn.records import Image
from everturn.storage.artifacts import Artifacts
from everturn.testing import ScriptedModel, call, fail, say
from tests.support.agents import agent_on, hosting
from tests.support.histories import TWO_MIB, largest_payload
from tests.support.side_by_side import side_by_side
from tests.support.transcripts import results_of
from tests.support.waiting import nothing_runs, waiting

Scripted = Callable[..., ScriptedModel]


def pictures() -> list[Image | Text]:
    return [Text(text="Three."), *(Image(data="A" * 900_000, media_type="image/png") for _ in range(3))]


def failing() -> str:
    raise ToolFailed("no " * 1_000_000)


RETURNED: dict[str, tuple[Callable[[], Any], str]] = {
    "ascii": (
        lambda: "x" * 3_000_000,
        r"\[Cut: 200,000 of 3,000,000 characters are shown. Ask for less, or for a part.\]",
    ),
    "three bytes a character": (lambda: "語" * 3_000_000, r"\[Cut: 200,000 of 3,000,000 "),
    "six bytes a character": (lambda: "\x00" * 3_000_000, r"\[Cut: 200,000 of 3,000,000 "),
    "json": (lambda: {"rows": ["row"] * 500_000}, r"\[Cut: 200,000 of "),
    "images": (pictures, r"Three\..*Left out because it is too large: image \(image/png, 900,000 base64 characters\)"),
    "error": (failing, r"no no no.*\[Cut: 200,000 of 3,000,000"),
}


@pytest.mark.long
async def test_whatever_a_tool_returns_the_conversation_goes_on(client: Client, scripted: Scripted) -> None:
    @tool
    def dump(what: str) -> Any:
        returned, _ = RETURNED[what]
        return returned()

    def ask(messages: list[dict[str, Any]]) -> Any:
        return "Done." if len(messages) > 1 else call("dump", {"what": messages[0]["content"]})

    agent = agent_on(scripted(ask), tools=[dump])

    async def goes_on(what: str) -> None:
        conversation = await client.start(agent, what)
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
        assert re.search(RETURNED[what][1], result.text, re.DOTALL)
        assert await largest_payload(client, conversation) < TWO_MIB

    async with hosting(client, agent):
        await side_by_side(goes_on, {what: what for what in RETURNED})


async def test_a_large_result_is_kept_and_can_be_read_on(client: Client, scripted: Scripted, tmp_path: Path) -> None:
    whole = "".join(f"{number:07}\n" for number in range(5000))

    @tool
    def dump() -> str:
        return whole

    model = scripted(
        [
            call("dump"),
            call("read_result", {"call_id": "call_0_0", "offset": 10_000, "limit": 1_000}),
            call("read_result", {"call_id": "call_0_0", "search": "0004000"}),
            "Done.",
        ]
    )
    agent = agent_on(model, tools=[dump], limits=Limits(max_result_chars=10_000))
    async with hosting(client, agent, artifacts=tmp_path):
        conversation = await client.start(agent, "Go", id="order 81")
        assert await conversation.reply() == "Done."
    cut, page, found = results_of(await conversation.transcript())
    assert cut.text.startswith(whole[:10_000])
    assert cut.text[10_000:] == (
        "\n[Cut: 10,000 of 40,000 characters are shown. All of it is kept as order%2081/call_0_0: "
        'read_result(call_id="call_0_0", offset=10000) reads on, and search= finds a text in it.]'
    )
    assert page.text.partition("\n")[2] == whole[10_000:11_000]
    assert "offset 32000: …" in found.text
    kept = Artifacts.at(tmp_path).read("order 81", "call_0_0")
    assert kept is not None
    assert kept.text == whole
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["call_0_0"]
    assert "read_result" in [item["function"]["name"] for item in model.requests[0]["tools"]]


async def test_what_belongs_to_another_conversation_cannot_be_read(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    @tool
    def dump() -> str:
        return "secret " * 1000

    read = call("read_result", {"call_id": "call_0_0"})
    agent = agent_on(scripted([call("dump"), "Done."]), tools=[dump], limits=Limits(max_result_chars=1000))
    other = agent_on(scripted([read, call("read_result", {"call_id": "../a/call_0_0"}), "Done."]), name="other")
    async with hosting(client, agent, other, artifacts=tmp_path):
        assert (await client.run(agent, "Go", id=f"a-{client.task_queue}")).status == "completed"
        conversation = await client.start(other, "Go")
        await conversation.outcome()
    results = results_of(await conversation.transcript())
    assert [result.is_error for result in results] == [True, True]
    assert not any("secret" in result.text for result in results)


async def test_where_nothing_can_be_kept_the_model_learns_that_the_rest_is_lost(
    client: Client, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        def write(self, name: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def read(self, name: str) -> bytes:
            raise FileNotFoundError(name)

    @tool(effect="once")
    def dump() -> str:
        return "x" * 5000

    agent = agent_on(scripted([call("dump"), "Done."]), tools=[dump], limits=Limits(max_result_chars=1000))
    async with hosting(client, agent, artifacts=Artifacts(Full())):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert "1,000 of 5,000 characters are shown. The rest is lost: it could not be stored." in result.text
    assert not result.is_error


async def test_a_setting_names_the_store(
    client: Client, scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_ARTIFACTS", str(tmp_path / "kept"))

    @tool
    def read_result() -> str:
        return ""

    with pytest.raises(InvalidAgent, match="'read_result'"):
        hosting(client, agent_on(scripted([""]), tools=[read_result]))
    hosting(client, Agent("clerk", model="scripted:demo"))
    assert (tmp_path / "kept").is_dir()


# ---------------------------------------------------------------- what people send


async def test_what_a_client_sends_is_measured_before(client: Client, scripted: Scripted) -> None:
    @tool(needs_approval=True)
    def save(text: str) -> str:
        return f"{len(text)} saved"

    large = "語" * 700_000
    agent = agent_on(scripted([call("save", {"text": "short"}), "Done."]), tools=[save])
    async with hosting(client, agent):
        with pytest.raises(Refused, match=r"message has 2,100,051 bytes of JSON; the limit is 400,000\. Put it"):
            await client.start(agent, large)
        conversation = await client.start(agent, "Save")
        (call_id,) = await waiting(conversation)
        with pytest.raises(Refused, match="message has 2,100,0"):
            await conversation.send(large)
        with pytest.raises(Refused, match="approve has 2,100,0"):
            await conversation.approve(call_id, arguments={"text": large})
        with pytest.raises(Refused, match=r"has 1,170,0.. bytes of JSON; the limit is 400,000"):
            await conversation.approve(call_id, arguments={"text": large[:390_000]})
        with pytest.raises(Refused, match="answer has 2,100,0"):
            await conversation.answer(call_id, large)
        with pytest.raises(Refused, match="deny has 2,100,0"):
            await conversation.deny(call_id, reason=large)
        await conversation.approve(call_id, arguments={"text": large[:130_000]})
        assert await conversation.reply() == "Done."
    assert await largest_payload(client, conversation) < TWO_MIB


@pytest.mark.long
async def test_a_conversation_that_ends_on_large_results_and_messages_ends(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    """Its outcome carries what no model has seen, and that may be more than a payload holds."""

    @tool
    def dump(number: int) -> str:
        return f"{number}" + "語" * 190_000

    @tool(runs_on="client")
    def ask() -> str: ...

    calls = [*(call("dump", {"number": number}) for number in range(8)), call("ask")]
    agent = agent_on(scripted([calls, "Done."]), tools=[dump, ask])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await nothing_runs(client, conversation)
        for _ in range(4):
            await conversation.send("語" * 130_000)
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        outcome = await conversation.outcome()
        assert outcome.status == "cancelled"
        results = results_of(await conversation.transcript())
        assert [len(result.text) for result in results[:8]] == [190_001] * 8
        assert await largest_payload(client, conversation) < TWO_MIB


@pytest.mark.long
async def test_a_page_of_the_transcript_fits_an_answer(client: Client, scripted: Scripted) -> None:
    @tool
    def dump(number: int) -> str:
        return f"{number}" + "語" * 190_000

    # No model has seen the results while the conversation stalls: the worker holds them all.
    script = [[call("dump", {"number": number}) for number in range(6)], fail(400, "no")]
    agent = agent_on(scripted(script), tools=[dump])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled):
            await conversation.reply()
        handle = client.temporal.get_workflow_handle(conversation.id)
        page = await handle.query("transcript", {"from": 0, "limit": 1000})
        assert (page["from"], page["total"], len(page["messages"])) == (0, 3, 2)
        rest = await handle.query("transcript", {"from": 2, "limit": 1000})
        assert (rest["from"], len(rest["messages"])) == (2, 1)
        shown = [result.text for result in results_of([Message.model_validate(rest["messages"][0])])]
        assert (len(shown), len(shown[0]), "[Cut: " in shown[-1]) == (6, 190_001, True)
        await conversation.close()
        await conversation.outcome()


@pytest.mark.long
async def test_a_revived_conversation_hands_over_what_fits(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["語" * 400_000, "Done."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await conversation.outcome()
        await client.send(agent, "And?" + "語" * 130_000, id=conversation.id)
        assert (await conversation.outcome()).text == "Done."
    assert await largest_payload(client, conversation) < TWO_MIB


async def test_what_slips_through_fails_with_the_size_and_the_limit(client: Client) -> None:
    """A backstop: the converter itself refuses what Temporal would not take."""
    with pytest.raises(Exception, match=r"A payload has 3,000,0\d\d bytes; the limit is 2,000,000") as refusal:
        await client.temporal.start_workflow("Conversation", "x" * 3_000_000, id="large", task_queue="nowhere")
    assert not isinstance(refusal.value, WorkflowFailureError)


async def test_an_id_that_is_too_long_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="The id has 1,002 bytes; the limit is 1,000"):
        await client.start("clerk", "Hi", id="é" * 501)


async def test_names_and_numbers_that_no_search_attribute_holds_are_cut(client: Client, scripted: Scripted) -> None:
    """The server would turn the workflow task down, again and again."""

    usage = {"prompt_tokens": 10**30, "completion_tokens": 1, "total_tokens": 10**30}
    model = scripted([say("Hello.", usage=usage)])
    agents = {
        letter: Agent(f"clerk{number}", model=Model(f"scripted:{letter * 3000}", base_url=model.base_url))
        for number, letter in enumerate(("x", "語", "🔥", '"'))
    }

    async def ends(agent: Agent) -> int:
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Hello."
        await conversation.close()
        return (await conversation.outcome()).usage.input_tokens

    async with hosting(client, *agents.values()):
        assert await side_by_side(ends, agents) == dict.fromkeys(agents, 10**30)
