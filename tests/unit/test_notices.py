"""A text that is cut says so, wherever a model or a person reads it; and it is measured in bytes as written.

The letters are zeros, which JSON writes with six bytes each, or others that take several.
"""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from mcp import types
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError

from everturn import Agent, McpServer, tool
from everturn.activities import approvers, planning
from everturn.calls.activity_outputs import failure_of
from everturn.calls.decision_records import Deny
from everturn.calls.pending_calls import PendingCall, rules_of
from everturn.carryover import QuestionToPerson
from everturn.client import client_base
from everturn.errors import NotAnswered, ToolFailed
from everturn.heartbeats import heartbeat
from everturn.mcp_server import turns
from everturn.payloads import PersonsAnswer, Start, WaitingCall
from everturn.plans import AwaitAnswer, RefuseCall, RunTool
from everturn.records import ToolCall
from everturn.sizes import (
    MAX_BESIDE_REPLY_BYTES,
    MAX_CAUSE_BYTES,
    MAX_ERROR_BYTES,
    MAX_LEFT_BYTES,
    MAX_PROGRESS_BYTES,
    MAX_QUESTION_BYTES,
    MAX_REASON_BYTES,
    MAX_RULE_CHARS,
    SUMMARY_BYTES,
    size_of,
)
from everturn.text.markdown import first_line, summary_bytes
from everturn.tools.context import ToolContext
from everturn.tools.context_ask import AsksPerson, Questions
from everturn.tools.mcp.calls import ServerCall
from everturn.tools.mcp.listed_tools import ListedTool
from everturn.tools.mcp.questions import Answers, Elicitation
from everturn.tools.mcp.tasks import Task
from everturn.tools.results import error_text
from everturn.workflows import web_ui

LETTERS = pytest.mark.parametrize("letter", ["x", "\x00", "語", "🔥"])


def is_cut(text: str, most: int, total: int = 0) -> bool:
    notice = f"of {total:,} characters are shown.]" if total else "characters are shown.]"
    return text.endswith(notice) and size_of(text) - 2 <= most


# ---------------------------------------------------------------- what people read


@LETTERS
def test_a_long_question_of_a_tool(letter: str) -> None:
    with pytest.raises(AsksPerson) as asked:
        Questions().ask_person(letter * 9_000)
    assert is_cut(asked.value.question, MAX_QUESTION_BYTES, 9_000)
    answer = PersonsAnswer(action="accept", text="Yes.", left=json.loads(json.dumps(asked.value.left)))
    assert Questions(answer).ask_person(letter * 9_000) == "Yes."


def test_a_long_question_that_an_earlier_version_asked_is_not_asked_again() -> None:
    left: dict[str, Any] = {"question": "x" * 4_000, "answers": {}}
    assert Questions(PersonsAnswer(action="accept", text="Yes.", left=left)).ask_person("x" * 9_000) == "Yes."


def test_a_long_question_that_nobody_answered_is_named_by_its_beginning() -> None:
    left: dict[str, Any] = {"question": "x" * 300, "answers": {}}
    with pytest.raises(NotAnswered, match=r"a question that begins with 'x{200}' would not answer"):
        Questions(PersonsAnswer(action="decline", left=left)).ask_person("x" * 300)


@LETTERS
def test_a_long_question_of_a_server(letter: str) -> None:
    assert is_cut(Elicitation(letter * 9_000).in_words, MAX_QUESTION_BYTES, 9_000)


def test_why_an_answer_does_not_fit_comes_whole_beside_the_question() -> None:
    form = {"type": "object", "properties": {"a": {"type": "integer"}}}
    answers = Answers()
    answers.open = {"1": Elicitation("\x00" * 1_500, form)}
    left = json.loads(json.dumps(answers.asking_error().left))
    with pytest.raises(AsksPerson) as asked:
        Answers.from_answer(PersonsAnswer(action="accept", text=json.dumps({"a": "y" * 5_000}), left=left))
    assert asked.value.question.endswith(" characters are shown.])")
    assert "(the answer does not fit: a: 'yyy" in asked.value.question
    assert size_of(asked.value.question) <= MAX_CAUSE_BYTES


def test_what_a_server_asks_is_measured_as_it_is_written() -> None:
    form = {"type": "object", "properties": {f"f{n:04}": {"type": "string"} for n in range(1_700)}}
    answers = Answers()
    answers.open = {"1": Elicitation("Which?", form)}
    assert size_of(form) < MAX_LEFT_BYTES - 200 < len(json.dumps(form)), "the latter with spaces"
    assert size_of(answers.asking_error().left) <= MAX_LEFT_BYTES


def test_a_long_reason_why_somebody_may_not_decide() -> None:
    said = approvers._in_words("\x00" * 3_000)
    assert is_cut(said, MAX_REASON_BYTES, 3_000)
    assert approvers._in_words("half \ud83d") == "half \ufffd"


@LETTERS
def test_a_long_reason_that_becomes_a_rule(letter: str) -> None:
    call, plan = ToolCall(call_id="c1", name="pay", arguments={}), RunTool(call_id="c1", approval="why")
    waits = PendingCall(call, plan, QuestionToPerson(call_id="c1", reason="needs_approval", why="why"))
    (rule,) = rules_of(Deny(call_id="c1", reason=letter * 1_001, always=True), [waits])
    assert is_cut(rule.reason, MAX_RULE_CHARS, 1_001)
    (rule,) = rules_of(Deny(call_id="c1", reason=letter * MAX_RULE_CHARS, always=True), [waits])
    assert rule.reason == letter * MAX_RULE_CHARS, "as before"


def test_large_progress_of_a_tool() -> None:
    progress = heartbeat._progress_copy({"rows": "\x00" * MAX_PROGRESS_BYTES})
    assert progress.startswith('{"rows":"')
    assert is_cut(progress, 1_000)
    assert is_cut(heartbeat._progress_copy(iter_named("é" * 5_000)), 1_000)
    assert heartbeat._progress_copy({"rows": 3}) == {"rows": 3}


def iter_named(name: str) -> Any:
    class Endless:
        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            return 1

        def __repr__(self) -> str:
            return name

    return Endless()


def test_long_arguments_that_an_mcp_client_shows() -> None:
    call = WaitingCall(call_id="c1", tool="pay", arguments={"x": "y" * 5_000}, needs="approval", why="w", since="now")
    question, _ = turns.question_about("clerk", call)
    assert "[Cut: 1,000 of 5,009 characters are shown.]" in question


def test_long_arguments_in_the_web_ui() -> None:
    assert web_ui._json_beginning({"x": "y" * 5_000}).endswith("\n[Cut: the first 2,000 characters are shown.]")


@LETTERS
def test_a_long_message_as_the_line_that_says_what_a_conversation_is_about(letter: str) -> None:
    shown = first_line(letter * 201)
    assert shown.endswith("…")
    assert summary_bytes(shown) <= SUMMARY_BYTES
    assert first_line(f"{letter}  {letter * 20}") == first_line(f"{letter} {letter * 20}")
    assert not first_line(letter * 20).endswith("…")


def test_many_tools_and_long_metadata_as_the_web_ui_shows_them_of_a_start() -> None:
    tools = [tool(lambda: "", name=f"tool_{number}") for number in range(43)]
    agent = Agent("clerk", model="scripted:demo", tools=tools)
    details = client_base._details_in_markdown(Start(agent="clerk", metadata={"order": "x" * 500}), agent)
    assert details.endswith("- `tool_39`\n- and 3 more")
    assert "xxx…`" in details
    few = client_base._details_in_markdown(
        Start(agent="clerk"), Agent("clerk", model="scripted:demo", tools=tools[:40])
    )
    assert few.endswith("- `tool_39`")
    assert "with" not in few


# ---------------------------------------------------------------- what models read


@LETTERS
def test_the_long_words_of_an_exception(letter: str) -> None:
    assert is_cut(error_text(ValueError(letter * 9_000)), MAX_ERROR_BYTES, 9_000 + len("ValueError: "))


@LETTERS
def test_the_long_words_of_an_activity_that_failed(letter: str) -> None:
    result = failure_of("c1", "pay", ApplicationError(letter * 9_000), max_chars=200_000)
    assert is_cut(result.text, MAX_ERROR_BYTES, 9_000)
    assert result.is_error


@LETTERS
def test_the_long_texts_of_a_plan(letter: str) -> None:
    said = letter * 9_000
    refused, awaited, run = planning._fit_plan(
        (
            RefuseCall(call_id="c1", text=said),
            AwaitAnswer(call_id="c2", why=said),
            RunTool(call_id="c3", approval=said),
        )
    )
    assert isinstance(refused, RefuseCall)
    assert isinstance(awaited, AwaitAnswer)
    assert isinstance(run, RunTool)
    assert all(is_cut(text or "", 4_000, 9_000) for text in (refused.text, awaited.why, run.approval))
    many = planning._fit_plan(tuple(RefuseCall(call_id=f"c{n}", text=said) for n in range(512)))
    assert size_of(many) <= MAX_BESIDE_REPLY_BYTES
    assert all(is_cut(one.text, 200, 9_000) for one in many if isinstance(one, RefuseCall))


def broken() -> ValidationError:
    try:
        types.CallToolResult.model_validate({"x" * 9_000: 1, "content": [{"type": "y" * 9_000, "text": "z" * 900}] * 9})
    except ValidationError as error:
        return error
    raise AssertionError


class Answering(ServerCall):
    """A call whose server answers what it is told to."""

    def __init__(self, *answers: Any, context: ToolContext | None = None, **options: Any) -> None:
        listed = ListedTool("pay", effect="once")
        memory = cast("Any", type("Memory", (), {"once": True, "is_cancelled": False}))
        shop = McpServer(command=["shop"], **options)
        connections = cast("Any", type("Connections", (), {"connection_to": lambda *_: None})())
        super().__init__(connections, shop, listed, context or ToolContext(), memory)
        self._answers = iter(answers)

    async def _send_request(self, *_: Any) -> Any:
        raise next(self._answers)

    async def _poll_server(self, *_: Any) -> Any:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_the_long_words_about_an_answer_that_is_not_mcp() -> None:
    with pytest.raises(ToolFailed) as failed:
        await Answering(broken())._send_call({}, Answers())
    assert is_cut(failed.value.message, MAX_ERROR_BYTES)
    with pytest.raises(ToolFailed) as failed:
        await Answering(broken())._follow_task("t1", Answers())
    assert is_cut(failed.value.message, MAX_ERROR_BYTES)


def test_the_long_words_of_a_function_for_meta() -> None:
    def meta(_: ToolContext) -> Any:
        raise ValueError("half \ud83d" + "x" * 9_000)

    with pytest.raises(ToolFailed) as failed:
        Answering(meta=meta)._read_meta()
    assert is_cut(failed.value.message, MAX_ERROR_BYTES)


async def test_the_long_words_of_a_task() -> None:
    told: list[Any] = []
    working = Task(taskId="t1", status="working", statusMessage="\x00" * 9_000, pollIntervalMs=1)
    done = Task(taskId="t1", status="completed")
    result = types.CallToolResult(content=[types.TextContent(type="text", text="ok")]).model_dump(by_alias=True)
    call = Answering(working, done, result, context=ToolContext(heartbeat=told.append))
    await call._follow_task("t1", Answers())
    assert is_cut(told[0]["message"], MAX_ERROR_BYTES, 9_000)
