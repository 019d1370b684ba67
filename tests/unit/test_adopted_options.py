"""The options of other libraries' tools: each is obeyed, refused, or known to limit nothing here."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everturn import ToolContext, tool
from everturn.errors import InvalidTool, NeedsApproval, ToolFailed
from everturn.tools.options import ToolOptions
from everturn.tools.other_libraries import LANGCHAIN, OPENAI, PYDANTIC_AI, LibraryOption, RanTooLong
from everturn.tools.results import error_text
from everturn.tools.unwritten_results import UnwrittenResult
from tests.support.vendors import agents, langchain_tools, pydantic_ai

CONTEXT = ToolContext(conversation_id="orders", call_id="c1", attempt=1, turn=3)
PAGE = Path(__file__).parents[2] / "docs/howto/tools-of-other-libraries.md"


def openais() -> set[str]:
    return {field.name for field in dataclasses.fields(agents.FunctionTool) if not field.name.startswith("_")}


def pydantics() -> set[str]:
    return {*inspect.signature(pydantic_ai.Tool).parameters}


def langchains() -> set[str]:
    return {*langchain_tools.StructuredTool.model_fields, *langchain_tools.Tool.model_fields}


@pytest.mark.parametrize(
    ("options", "theirs"),
    [(OPENAI, openais), (PYDANTIC_AI, pydantics), (LANGCHAIN, langchains)],
    ids=["openai-agents", "pydantic-ai", "langchain-core"],
)
def test_no_option_is_unknown(options: dict[str, LibraryOption], theirs: Callable[[], set[str]]) -> None:
    """A newer version has another one? Obey it, or refuse it as `is_enabled` is refused."""
    assert theirs() - options.keys() == set()


def test_the_page_says_what_becomes_of_each() -> None:
    rows = PAGE.read_text().splitlines()
    libraries = (("OpenAI Agents SDK", OPENAI), ("pydantic-ai", PYDANTIC_AI), ("LangChain", LANGCHAIN))
    for library, options in libraries:
        for name, option in options.items():
            assert f"| {library} | `{name}` | {option.does} | {option.how} |" in rows


async def ran(made: Any, **arguments: Any) -> str:
    return "".join(part.text for part in await made.run(arguments, CONTEXT))


paid: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def openai_tool(**options: Any) -> Any:
    async def pay(to: str) -> str:
        """Pay somebody."""
        await asyncio.sleep(0.3 if to == "slow" else 0)
        paid.append(to)
        return f"Paid {to}."

    return agents.function_tool(**options)(pay)


def pydantic_tool(**options: Any) -> Any:
    async def pay(context: pydantic_ai.RunContext[None], to: str) -> str:
        """Pay somebody."""
        await asyncio.sleep(0.3 if to == "slow" else 0)
        if to == "large" and not context.tool_call_approved:
            raise pydantic_ai.ApprovalRequired
        paid.append(to)
        return f"Paid {to}."

    return pydantic_ai.Tool(pay, **options)


def guard(behaviour: str, *, on: str) -> Any:
    def check(data: Any) -> agents.ToolGuardrailFunctionOutput:
        if "bob" not in data.context.tool_arguments:
            return agents.ToolGuardrailFunctionOutput.allow()
        if behaviour == "broken":
            raise LookupError(data.agent.name)
        if behaviour == "halt":
            return agents.ToolGuardrailFunctionOutput.raise_exception()
        return agents.ToolGuardrailFunctionOutput.reject_content("Not to bob.")

    return agents.tool_input_guardrail(check) if on == "input" else agents.tool_output_guardrail(check)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [("reject", "Not to bob."), ("halt", "The guardrail check stopped this call: it did not run."), ("broken", "")],
)
async def test_an_input_guardrail_lets_only_pass_what_it_allows(behaviour: str, text: str) -> None:
    made = tool(openai_tool(tool_input_guardrails=[guard(behaviour, on="input")]))
    assert await ran(made, to="ann") == "Paid ann."
    with pytest.raises((ToolFailed, AttributeError)) as refusal:
        await made.run({"to": "bob"}, CONTEXT)
    assert text in str(refusal.value)
    assert paid == ["ann"]


async def test_an_output_guardrail_decides_what_the_model_reads() -> None:
    made = tool(openai_tool(tool_output_guardrails=[guard("reject", on="output")]))
    assert (await ran(made, to="ann"), await ran(made, to="bob")) == ("Paid ann.", "Not to bob.")
    halted = tool(openai_tool(tool_output_guardrails=[guard("halt", on="output")]))
    assert await ran(halted, to="bob") == "The guardrail check stopped this call after it ran: its result is withheld."
    broken = tool(openai_tool(tool_output_guardrails=[guard("broken", on="output")]))
    with pytest.raises(UnwrittenResult) as failure:  # it has run, and the model is told so
        await broken.run({"to": "bob"}, CONTEXT)
    assert error_text(failure.value).startswith("The tool ran")
    assert paid == ["ann", "bob", "bob", "bob"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_validator_lets_only_pass_what_it_accepts(kind: str) -> None:
    def not_to_bob(context: pydantic_ai.RunContext[None], to: str) -> None:
        if to == "bob":
            raise pydantic_ai.ModelRetry(f"Not to bob, in call {context.tool_call_id}.")
        if to == "crash":
            raise LookupError("to whom?")

    async def later(context: pydantic_ai.RunContext[None], to: str) -> None:
        not_to_bob(context, to)

    made = tool(pydantic_tool(args_validator=not_to_bob if kind == "sync" else later))
    assert await ran(made, to="ann") == "Paid ann."
    with pytest.raises(ToolFailed, match=r"Not to bob, in call c1\."):
        await made.run({"to": "bob"}, CONTEXT)
    with pytest.raises(LookupError):
        await made.run({"to": "crash"}, CONTEXT)
    assert paid == ["ann"]


@pytest.mark.parametrize(
    "theirs",
    [
        lambda: openai_tool(timeout=0.05),
        lambda: openai_tool(timeout=0.05, timeout_behavior="raise_exception"),
        lambda: pydantic_tool(timeout=0.05),
    ],
    ids=["openai", "openai, raised", "pydantic-ai"],
)
async def test_a_timeout_holds(theirs: Any) -> None:
    made = tool(theirs())
    assert await ran(made, to="ann") == "Paid ann."
    with pytest.raises(RanTooLong, match=r"pay did not finish within 0\.05 s"):
        await made.run({"to": "slow"}, CONTEXT)
    assert paid == ["ann"]


async def test_the_text_for_a_timeout_is_the_tools_own() -> None:
    made = tool(openai_tool(timeout=0.05, timeout_error_function=lambda _, error: f"late: {error.timeout_seconds}"))
    with pytest.raises(RanTooLong, match=r"^late: 0\.05$"):
        await made.run({"to": "slow"}, CONTEXT)


async def test_a_tool_that_asks_for_an_approval_gets_one() -> None:
    made = tool(pydantic_tool())
    with pytest.raises(NeedsApproval):
        await made.run({"to": "large"}, CONTEXT)
    approved = dataclasses.replace(CONTEXT, approved=True)
    assert [part.text for part in await made.run({"to": "large"}, approved)] == ["Paid large."]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("theirs", "option"),
    [
        (lambda: openai_tool(is_enabled=False), "is_enabled"),
        (lambda: pydantic_tool(prepare=lambda _, definition: definition), "prepare"),
        (lambda: pydantic_tool(sequential=True), "sequential"),
        (
            lambda: langchain_tools.StructuredTool.from_function(
                lambda a: a, name="f", description="F.", return_direct=True
            ),
            "return_direct",
        ),
    ],
)
def test_what_can_not_be_obeyed_is_refused(theirs: Any, option: str) -> None:
    with pytest.raises(InvalidTool, match=f"has {option}=, which only agents of that library use"):
        tool(theirs())


def test_options_for_providers_are_kept() -> None:
    assert tool(openai_tool(defer_loading=True)).options == ToolOptions(defer_loading=True)
    assert tool(pydantic_tool(defer_loading=True)).options == ToolOptions(defer_loading=True)
    assert tool(openai_tool(defer_loading=True), options={"strict": True}).options == ToolOptions(strict=True)

    def look_up(order_id: str) -> str:
        """Look it up."""
        return order_id

    theirs = langchain_tools.StructuredTool.from_function(look_up)
    theirs.extras = {"defer_loading": True, "other": 1}
    assert tool(theirs).options == ToolOptions(defer_loading=True)
