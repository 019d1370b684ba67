"""What the Web UI shows of a conversation: one line for a step, Markdown for the whole."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from everturn import Agent, tool
from everturn.client.client_base import _details_in_markdown as _details_of_start
from everturn.payloads import AskedAgent, Start, Status, WaitingCall
from everturn.records import Decision, Message, Text, ToolCall, ToolResult, Usage
from everturn.sizes import SUMMARY_BYTES
from everturn.storage.data_converter import data_converter
from everturn.text.markdown import first_line, summary_bytes
from everturn.workflows import web_ui

REFUND = WaitingCall(call_id="c1", tool="refund", arguments={"order_id": "81", "cents": 3490}, why="it costs money")
BLOCK = re.compile(r"```(\w+)\n(.*?)\n```", re.DOTALL)


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (None, 'refund(order_id="81", cents=1200)'),
        (Decision(verdict="approve", by="ada"), 'refund(order_id="81", cents=1200) · approved by ada'),
        (Decision(verdict="approve"), 'refund(order_id="81", cents=1200) · approved'),
        (
            Decision(verdict="approve", by="ada", arguments={"cents": 1}),
            'refund(order_id="81", cents=1200) · edited and approved by ada',
        ),
    ],
)
def test_a_calls_summary_says_what_and_who(decision: Decision | None, expected: str) -> None:
    assert web_ui.call_summary("refund", {"order_id": "81", "cents": 1200}, decision) == expected


def test_a_summary_does_not_say_again_what_stands_before_it() -> None:
    by_ada = Decision(verdict="approve", by="ada")
    assert (
        web_ui.call_summary("refund", {"order_id": "81"}, by_ada, beside="refund") == 'order_id="81" · approved by ada'
    )
    assert web_ui.call_summary("refund", {"order_id": "81"}, beside="give_back") == 'refund(order_id="81")'
    assert web_ui.call_summary("now", {}, beside="now") == ""
    assert web_ui.call_summary("now", {}, by_ada, beside="now") == "approved by ada"
    assert web_ui.call_summary("refund", {"order_id": "81"}, visibility="minimal", beside="refund") == ""


def test_a_call_that_hooks_changed_names_them_in_forty_characters() -> None:
    assert web_ui.call_summary("refund", {"a": 1}, changed_by="caps") == "refund(a=1) · changed by caps"
    for length, named in ((40, "h" * 40), (41, f"{'h' * 39}…")):
        shown = web_ui.call_summary("refund", {"a": 1}, changed_by="h" * length)
        assert shown == f"refund(a=1) · changed by {named}"


def test_the_turn_after_a_tool_that_failed_says_so() -> None:
    def result(name: str, **more: Any) -> ToolResult:
        return ToolResult(call_id="c", name=name, content=(Text(text="no"),), **more)

    denied = result("write", is_error=True, decision=Decision(verdict="deny"))
    told = [Message(role="tool", parts=(result("fetch", is_error=True), result("read"), denied))]
    assert web_ui.turn_summary(3, "openai:gpt-5.5", delta=told) == "turn 3 · gpt-5.5 · fetch failed"
    twice = [Message(role="tool", parts=(result("fetch", is_error=True), result("fetch", is_error=True)))]
    assert web_ui.turn_summary(3, "", delta=twice) == "turn 3 · fetch failed"
    assert web_ui.turn_summary(3, "", delta=[*told, *told], summarise=True) == "a summary · fetch failed"
    long = [Message(role="tool", parts=(result("f" * 41, is_error=True),))]
    assert web_ui.turn_summary(3, "", delta=long) == f"turn 3 · {'f' * 39}… failed", "40 characters of it"
    assert "**fetch failed:** no" in next(web_ui.message_lines(told))


def test_a_long_call_is_shortened_but_not_who_approved_it() -> None:
    summary = web_ui.call_summary("write", {"text": "a" * 1000}, Decision(verdict="approve", by="b" * 1000))
    assert re.fullmatch(r'write\(text="a+… · approved by b+…', summary)
    assert len(summary) < 140, "Temporal takes 400 bytes"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("anthropic:claude-sonnet-5", "turn 3 · claude-sonnet-5"),
        ("ollama:qwen3:8b", "turn 3 · qwen3:8b"),
        ("", "turn 3"),
    ],
)
def test_a_turns_summary_names_its_model(model: str, expected: str) -> None:
    assert web_ui.turn_summary(3, model) == expected


def test_a_turns_summary_names_the_agent_that_the_conversation_was_handed_to() -> None:
    assert web_ui.turn_summary(3, "openai:gpt-5.5", agent="billing") == "turn 3 · billing · gpt-5.5"
    assert web_ui.turn_summary(3, "", agent="billing") == "turn 3 · billing"


def _details(status: Status, **options: Any) -> str:
    return web_ui.current_details(status, conversation_id="order 81's", agent="clerk", **options)


def test_the_updates_can_be_pasted_as_they_stand() -> None:
    blocks = BLOCK.findall(_details(Status(state="awaiting_approval", waiting=(REFUND,))))
    assert [language for language, _ in blocks] == ["json", "json", "json", "sh"]
    arguments, approve, deny, command = (text for _, text in blocks)
    assert json.loads(arguments) == REFUND.arguments
    assert json.loads(approve) == {"call_id": "c1"}
    assert json.loads(deny) == {"call_id": "c1", "reason": "why not"}
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:4] == ["temporal", "workflow", "update", "execute"]
    assert words[4:] == ["--workflow-id", "order 81's", "--name", "approve", "--input", approve]


def test_no_line_to_paste_is_longer_than_the_web_ui_shows() -> None:
    call = REFUND.model_copy(update={"call_id": "toolu_01A09q90qw90lq917835lq9"})
    blocks = BLOCK.findall(_details(Status(state="awaiting_approval", waiting=(call,))))
    assert max(len(line) for _, text in blocks for line in text.splitlines()) <= 68


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            Status(state="stalled", cause="no key", cure="Set it."),
            ["🛑 clerk: stalled", "no key", "Set it.", "`resume`"],
        ),
        (Status(state="paused"), ["⏸️ clerk: paused", "`resume`", "--name resume"]),
        (
            Status(state="awaiting_answer", waiting=(REFUND.model_copy(update={"needs": "answer"}),)),
            ["`answer`", "content"],
        ),
        (
            Status(state="running", turn=2, usage=Usage(input_tokens=1200, output_tokens=34), cost_usd=0.0125),
            ["Turn 2 · `openai:gpt-5.5` · 1,200 tokens in, 34 out · 0.0125 USD"],
        ),
        (Status(state="running", turn=1, cost_usd=0.00002345), ["0 out · 0.000023 USD"]),
    ],
    ids=lambda value: value.state if isinstance(value, Status) else "",
)
def test_it_says_what_goes_on_and_what_to_do(status: Status, expected: list[str]) -> None:
    details = _details(status, model="openai:gpt-5.5")
    for text in expected:
        assert text in details


def test_many_waiting_calls_stay_readable_and_can_be_decided_at_once() -> None:
    calls = tuple(REFUND.model_copy(update={"call_id": f"c{n}", "arguments": {"note": "x" * 9000}}) for n in range(64))
    details = _details(Status(state="awaiting_approval", waiting=calls))
    assert details.count("### `refund` waits") == web_ui.SHOWN_CALLS
    assert '64 calls wait. `{"call_id": "*"}` decides on all of them.' in details
    assert len(details) < 20_000


def test_the_latest_messages_are_told_in_a_line_each() -> None:
    refund = ToolCall(call_id="c1", name="refund", arguments={"cents": 5})
    result = ToolResult(call_id="c1", name="refund", content=(Text(text="done\n" * 1000),))
    latest = [
        Message.user("Please\nrefund it."),
        Message(role="assistant", parts=(Text(text="I do."), refund)),
        Message(role="tool", parts=(result,)),
    ]
    *_, user, assistant, result_line = _details(
        Status(state="running"), latest_lines=list(web_ui.message_lines(latest))
    ).splitlines()
    assert user == "- **user:** Please refund it."
    assert assistant == "- **assistant:** I do. `refund(cents=5)`"
    assert result_line.startswith("- **refund:** done done")
    assert result_line.endswith("…")


def test_what_a_model_says_can_not_pass_for_ours() -> None:
    said = "</iframe> ## Approve now\n```sh\nrm -rf /\n```\n[here](https://example.com) `x`"
    details = _details(
        Status(state="running"),
        latest_lines=list(web_ui.message_lines([Message(role="assistant", parts=(Text(text=said),))])),
    )
    line = details.splitlines()[-1]
    assert line.startswith(r"- **assistant:** \</iframe\> \#\# Approve now \`\`\`sh rm -rf /")
    assert r"\[here\](https://example.com)" in line
    assert not BLOCK.findall(details)


FORGED = "x`\n\n## ✅ approved\n\n```json\n{}\n```\n\n<b>[x](http://evil)</b> \u202e"
"""What would make a heading, a block to copy, a link and a line that reads backwards, if anybody let it."""
OUR_HEADING = re.compile(r"^#+ ", re.MULTILINE)


@pytest.mark.parametrize("needs", ["approval", "answer"])
def test_no_name_that_a_model_makes_up_forges_a_heading_or_a_block(needs: Any) -> None:
    plain = WaitingCall(call_id="c1", tool="x", arguments={"a": "x"}, needs=needs, why="x")
    forged = WaitingCall(call_id=FORGED, tool=FORGED, arguments={FORGED: FORGED}, needs=needs, why=FORGED)
    asked = AskedAgent(call_id="c1", agent=FORGED, conversation_id=FORGED)
    said = [
        Message(role="user", author=FORGED, parts=(Text(text=FORGED),)),
        Message(role="assistant", parts=(ToolCall(call_id="c1", name=FORGED, arguments={FORGED: FORGED}),)),
        Message(role="tool", parts=(ToolResult(call_id="c1", name=FORGED, content=(Text(text=FORGED),)),)),
    ]

    def shown(call: WaitingCall, one: str, latest: list[Message]) -> str:
        agents = (asked if one == FORGED else asked.model_copy(update={"agent": "x", "conversation_id": "x"}),)
        status = Status(state="stalled", cause=one, cure=one, waiting=(call,), agents=agents)
        lines = list(web_ui.message_lines(latest))
        return web_ui.current_details(status, conversation_id=one, agent=one, model=one, latest_lines=lines)

    details = shown(forged, FORGED, said)
    simple = [Message.user("x"), Message.user("x"), Message.user("x")]
    ours = shown(plain, "x", simple)
    assert len(OUR_HEADING.findall(outside_blocks(details))) == len(OUR_HEADING.findall(outside_blocks(ours)))
    assert outside_blocks(details).count("Send an Update") == ours.count("Send an Update")
    assert len(blocks_of(details)) == len(blocks_of(ours))
    assert "\u202e" not in details
    updates = [json.loads(text) for language, text in blocks_of(details) if language == "json"]
    assert {FORGED: FORGED} in updates, "what is copied still says what the model said"
    assert {"call_id": FORGED} in updates or needs == "answer"


def blocks_of(details: str) -> list[tuple[str, str]]:
    """The code blocks as CommonMark reads them: a fence is closed by one that is as long, at least."""
    return [(language, text) for _, language, text in re.findall(r"^(`{3,})(\w+)\n(.*?)\n\1`*$", details, re.M | re.S)]


def outside_blocks(details: str) -> str:
    return re.sub(r"^(`{3,})\w+\n.*?\n\1`*$", "", details, flags=re.M | re.S)


LONG = ["x" * 1000, "\N{GRINNING FACE}" * 500, "*" * 500, "\u202e" * 500, "ж" * 500, "\\" * 500, "\U000e0001" * 500]


@pytest.mark.parametrize("text", LONG)
def test_a_summary_is_one_that_temporal_takes(text: str) -> None:
    decision = Decision(verdict="approve", by=text, arguments={})
    summaries = [web_ui.call_summary(text, {"a": text}, decision), web_ui.turn_summary(1, text), first_line(text)]
    sizes = [data_converter.payload_converter.to_payload(summary).ByteSize() for summary in summaries]
    assert all(summaries)
    assert max(sizes) <= 400


@pytest.fixture(scope="module")
def with_many_tools() -> Agent:
    return Agent("clerk", model="scripted:demo", tools=[tool(lambda: "", name=f"t{n:063}") for n in range(100)])


@pytest.mark.parametrize("text", LONG)
def test_details_are_no_more_than_is_shown(text: str, with_many_tools: Agent) -> None:
    """However much of everything there is: Temporal takes 20,000 bytes at the start, and an answer has a payload."""
    started = _details_of_start(
        Start(agent=text[:500], message="Hi", model=text[:500], tenant=text[:500]), with_many_tools
    )
    assert data_converter.payload_converter.to_payload(started).ByteSize() <= 20_000
    calls = tuple(ToolCall(call_id=f"{n:0128}", name=text, arguments={text: text}) for n in range(512))
    status = Status(
        state="stalled",
        cause=text * 1_000,
        cure=text * 1_000,
        waiting=tuple(
            WaitingCall(call_id=call.call_id, tool=call.name, arguments=call.arguments, why=text * 1_000)
            for call in calls
        ),
        agents=tuple(AskedAgent(call_id=call.call_id, agent=text, conversation_id=text) for call in calls),
    )
    latest = list(web_ui.message_lines([Message(role="assistant", parts=(Text(text=text * 1_000), *calls))] * 5))
    details = web_ui.current_details(
        status, conversation_id=text[:250], agent=text[:500], model=text[:500], latest_lines=latest
    )
    assert len(details.encode()) < 500_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Order 81 arrived broken.", "Order 81 arrived broken."),
        ("# Done\n![x](http://evil)", r"\# Done !\[x\](http://evil)"),
        ("1. one", r"1\. one"),
        ("- one", r"\- one"),
        ("<img src=x>", r"\<img src=x\>"),
    ],
)
def test_a_first_message_shows_as_it_was_written(text: str, expected: str) -> None:
    assert first_line(text) == expected


def test_whom_a_conversation_is_for_shows_as_it_was_written() -> None:
    details = _details_of_start(Start(agent="# a", message="Hi", model="m`x", tenant="**b**\n\n## c"), "# a")
    assert details == r"Agent **\# a**, model **m\`x**, for **\*\*b\*\* \#\# c**"


def test_with_minimal_visibility_nothing_that_was_said_is_shown() -> None:
    assert web_ui.call_summary("refund", {"order_id": "81"}, visibility="minimal") == "refund"
    stalled = Status(state="stalled", turn=3, waiting=(REFUND,), cause="the model said: secret", cure="secret")
    shown = web_ui.current_details(web_ui.without_content(stalled), conversation_id="c", agent="A conversation")
    assert "secret" not in shown
    assert "3490" not in shown
    assert "costs money" not in shown
    assert "`refund` waits" in shown
    assert "resume" in shown
    assert '{"call_id": "c1"}' in shown


def test_the_whole_of_a_call_that_waits() -> None:
    call = REFUND.model_copy(update={"expires_at": "tomorrow"})
    status = Status(state="awaiting_approval", turn=2, waiting=(call,), usage=Usage(input_tokens=1, output_tokens=2))
    assert web_ui.current_details(status, conversation_id="order", agent="clerk") == "\n\n".join(
        (
            "## ✋ clerk: awaiting approval",
            "Turn 2 · 1 tokens in, 2 out",
            "### `refund` waits, until tomorrow: it costs money",
            '```json\n{\n  "order_id": "81",\n  "cents": 3490\n}\n```',
            "To approve it: *More Actions*, *Send an Update*, `approve`, with this input:",
            '```json\n{"call_id": "c1"}\n```',
            "To deny it: *More Actions*, *Send an Update*, `deny`, with this input:",
            '```json\n{"call_id": "c1", "reason": "why not"}\n```',
            "Or in a terminal:",
            "```sh\ntemporal workflow update execute \\\n  --workflow-id order \\\n  --name approve \\\n"
            '  --input \'{"call_id": "c1"}\'\n```',
            "A signal `approve` does the same, but does not say whether it was accepted.",
        )
    )


def test_the_whole_of_a_conversation_that_is_stalled() -> None:
    status = Status(state="stalled", cause="no\nkey", cost_usd=0.0)
    assert web_ui.current_details(status, conversation_id="order", agent="clerk").split("\n\n")[:6] == [
        "## 🛑 clerk: stalled",
        "Turn 0 · 0 tokens in, 0 out",
        "**Cause:** no key",
        "**Cure:** see the cause",
        "To go on: *More Actions*, *Send an Update*, `resume`, with this input:",
        "```json\n{}\n```",
    ]


def test_a_call_that_waits_for_an_answer_says_so_without_words_of_its_own() -> None:
    call = WaitingCall(call_id="c1", tool="ask", needs="answer")
    details = _details(Status(state="awaiting_answer", waiting=(call,)))
    assert "### `ask` waits: for an answer\n\nTo answer it: " in details, "it has no arguments"
    assert '{"call_id": "c1", "content": "the result"}' in details
    assert "decides on all of them" not in details, "it is the only one"
    assert "--name answer" in details
    assert "**Cause:**" not in details
    assert "resume" not in details


@pytest.mark.parametrize("beside", [0, 2])
def test_as_many_agents_at_work_as_are_shown_are_no_more(beside: int) -> None:
    agents = tuple(
        AskedAgent(call_id=str(n), agent=f"helper{n}", conversation_id=f"talk{n}")
        for n in range(web_ui.SHOWN_CALLS + beside)
    )
    details = _details(Status(state="running", agents=agents))
    assert "### `helper0` is at work: see conversation `talk0`" in details
    assert details.count("is at work") == web_ui.SHOWN_CALLS
    assert ("2 more agents are at work." in details) is bool(beside)
    assert details.count("more agents") == bool(beside)


def test_two_calls_that_wait_can_be_decided_at_once() -> None:
    other = REFUND.model_copy(update={"call_id": "c2"})
    details = _details(Status(state="awaiting_approval", waiting=(REFUND, other)))
    assert '2 calls wait. `{"call_id": "*"}` decides on all of them.' in details
    assert details.count("Or in a terminal:") == 1
    assert details.count("--input") == 1


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Decision(verdict="deny", by="ada"), "denied by ada"),
        (Decision(verdict="answer", by="a" * 41), f"answered by {'a' * 39}…"),
        (Decision(verdict="approve", by="clerk", by_policy=True), "approved by the policy of clerk"),
        (Decision(verdict="deny", by_policy=True, arguments={}), "denied by its policy"),
        (Decision(verdict="approve", by="guard", by_model=True), "approved by the reviewer guard"),
        (Decision(verdict="approve", arguments={}), "edited and approved"),
    ],
)
def test_a_summary_says_in_words_who_decided(decision: Decision, words: str) -> None:
    assert web_ui.call_summary("now", {}, decision, beside="now") == words


def test_a_tool_that_failed_is_named_unless_a_person_denied_its_call() -> None:
    def told(**facts: Any) -> list[Message]:
        result = ToolResult(**{"call_id": "c", "name": "", "content": (), "is_error": True} | facts)
        return [Message(role="tool", parts=(result,))]

    approved = told(name="pay", decision=Decision(verdict="approve"))
    assert web_ui.turn_summary(1, "", delta=approved) == "turn 1 · pay failed"
    assert web_ui.turn_summary(1, "", delta=told()) == "turn 1 · a tool failed"
    assert web_ui.turn_summary(1, "", delta=told(decision=Decision(verdict="deny"))) == "turn 1"
    assert next(web_ui.message_lines(told())) == "**tool failed:**"
    assert next(web_ui.message_lines(told(is_error=False, content=(Text(text="5"),)))) == "**tool:** 5"


def test_a_message_is_named_after_its_author() -> None:
    said = Message(role="user", author="ada", parts=(Text(text="Hi"),))
    assert list(web_ui.message_lines([said])) == ["**ada:** Hi"]


def test_a_summary_of_many_bytes_keeps_as_much_as_fits_but_for_a_twentieth() -> None:
    for letter in ("ж", "\N{GRINNING FACE}"):
        kept = web_ui.summary_line(letter * 2 * SUMMARY_BYTES)
        assert SUMMARY_BYTES * 0.93 < summary_bytes(kept) <= SUMMARY_BYTES
        assert kept.endswith("…")


def test_without_content_nothing_is_said_of_a_cause_that_there_is_not() -> None:
    assert web_ui.without_content(Status(state="running")).cause is None
    stalled = web_ui.without_content(Status(state="stalled", cause="secret", cure="secret"))
    assert (stalled.cause, stalled.cure) == ("its status says what", None)


@pytest.mark.parametrize(("beside", "whole"), [(0, True), (1, False)])
def test_texts_are_shown_up_to_their_bounds(beside: int, *, whole: bool) -> None:
    cause = "c" * (web_ui.CAUSE_CHARS + beside)
    status = Status(state="stalled", cause=cause, cure=cause.upper())
    details = _details(status)
    assert (f"**Cause:** {cause}\n" in details, f"**Cure:** {cause.upper()}\n" in details) == (whole, whole)
    said = Message.user("s" * (web_ui.MESSAGE_CHARS + beside))
    assert next(web_ui.message_lines([said])).endswith("…") is not whole


def test_what_is_cut_says_how_much_is_shown() -> None:
    call = REFUND.model_copy(update={"arguments": {"note": "x" * 9_000}})
    details = _details(Status(state="awaiting_approval", waiting=(call,)))
    assert "\n[Cut: the first 2,000 characters are shown.]" in details


def test_a_summary_is_a_line_of_eighty_characters() -> None:
    """As our style has it, and lists in the Web UI show."""
    assert web_ui.turn_summary(1, "m" * 100) == f"turn 1 · {'m' * 70}…"
