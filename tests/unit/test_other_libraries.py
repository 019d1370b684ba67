"""Tools of other libraries, with the real libraries: as they are, and nothing of these is imported by everturn."""

import subprocess
import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from everturn import Agent, Image, Tool, ToolContext, ToolFailed, tool
from everturn.errors import InvalidTool
from everturn.tools.arguments import InvalidArguments
from everturn.tools.results import error_text

CONTEXT = ToolContext(conversation_id="orders", call_id="c1", attempt=2, turn=3)


async def ran(made: Tool, **arguments: Any) -> str:
    return "".join(getattr(part, "text", f"<{part.kind}>") for part in await made.run(arguments, CONTEXT))


def test_none_of_them_is_imported_by_everturn() -> None:
    program = (
        "import sys, everturn.worker.worker, everturn.tools.other_libraries;"
        "print(*sorted({'agents', 'langchain_core', 'pydantic_ai'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


# ---------------------------------------------------------------- LangChain


class TestLangChain:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("langchain_core", reason="langchain-core is not installed")

    async def test_functions_sync_and_async(self) -> None:
        from langchain_core.tools import tool as theirs

        @theirs
        def look_up(order_id: str, much: Annotated[int, "How much of it"] = 1) -> dict[str, Any]:
            """What was ordered."""
            return {"order_id": order_id, "much": much}

        @theirs
        async def look_up_later(order_id: str) -> str:
            """What was ordered."""
            return f"later {order_id}"

        agent = Agent("clerk", model="scripted:demo", tools=[look_up, look_up_later])
        now, later = agent.tools
        assert (now.name, now.description) == ("look_up", "What was ordered.")
        assert now.parameters["properties"]["much"]["type"] == "integer"
        assert now.parameters["required"] == ["order_id"]
        assert await ran(now, order_id="81") == '{"order_id": "81", "much": 1}'
        assert await ran(later, order_id="81") == "later 81"
        with pytest.raises(InvalidArguments, match="much: Input should be a valid integer"):
            await now.checked({"order_id": "81", "much": "lots"})

    async def test_a_class_with_a_schema_injected_ids_artifacts_and_errors(self) -> None:
        from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
        from langchain_core.tools import tool as theirs

        class Order(BaseModel):
            order_id: str = Field(description="As on the invoice")

        class Cancel(BaseTool):
            name: str = "cancel"
            description: str = "Cancel an order."
            args_schema: type[BaseModel] = Order

            def _run(self, order_id: str) -> str:
                raise ToolException(f"No order {order_id}.")

        @theirs(response_format="content_and_artifact")
        def draw(call_id: Annotated[str, InjectedToolCallId]) -> tuple[list[dict[str, Any]], str]:
            """Draw."""
            return [
                {"type": "text", "text": call_id},
                {"type": "image", "source_type": "base64", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
            ], "kept"

        made = tool(Cancel(), effect="once", needs_approval=True)
        assert (made.name, made.effect, made.needs_approval) == ("cancel", "once", True)
        assert made.parameters["properties"]["order_id"]["description"] == "As on the invoice"
        with pytest.raises(Exception, match="No order 81"):
            await ran(made, order_id="81")
        with pytest.raises(ToolFailed, match="No order 81"):
            await ran(tool(Cancel(handle_tool_error=True)), order_id="81")
        drawing = tool(draw)
        assert drawing.parameters["properties"] == {}
        assert await ran(drawing) == "c1<image>"

    async def test_a_tool_without_a_schema_takes_one_text(self) -> None:
        from langchain_core.tools import Tool as TheirTool

        made = tool(TheirTool(name="search", func=lambda query: f"found {query}", description="Search."))
        assert made.parameters["properties"] == {"tool_input": {"type": "string"}}
        assert await ran(made, tool_input="lamps") == "found lamps"


# ---------------------------------------------------------------- the OpenAI Agents SDK


class TestOpenAiAgents:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("agents", reason="openai-agents is not installed")

    async def test_a_function_tool_with_its_context(self) -> None:
        from agents import RunContextWrapper, function_tool
        from agents.tool_context import ToolContext as TheirContext

        @function_tool
        def look_up(ctx: RunContextWrapper[str], order_id: str, much: int = 1) -> str:
            """What was ordered.

            Args:
                order_id: As on the invoice.
            """
            return f"{much} of {order_id} in {ctx.context}"

        @function_tool
        async def who(ctx: TheirContext[Any]) -> str:
            """Who calls."""
            return f"{ctx.tool_name} {ctx.tool_call_id}"

        agent = Agent("clerk", model="scripted:demo", tools=[tool(look_up, deps="Bern"), who])
        first, second = agent.tools
        assert (first.name, first.description) == ("look_up", "What was ordered.")
        assert first.parameters["properties"]["order_id"]["description"] == "As on the invoice."
        assert await ran(first, order_id="81", much=2) == "2 of 81 in Bern"
        assert await ran(second) == "who c1"

    async def test_approvals_outputs_and_errors(self) -> None:
        from agents import ToolOutputImage, ToolOutputText, function_tool

        async def large(ctx: Any, given: dict[str, Any], call_id: str) -> bool:
            return bool(given["cents"] > 100)

        @function_tool(needs_approval=large)
        def refund(cents: int) -> str:
            """Refund."""
            raise ValueError("no money")

        @function_tool
        def draw() -> list[Any]:
            """Draw."""
            url = "data:image/png;base64,iVBORw0KGgo="
            return [ToolOutputText(text="a dot: "), ToolOutputImage(image_url=url)]

        made = tool(refund)
        assert [await made.needs_decision({"cents": cents}) for cents in (5, 500)] == [False, True]
        assert "An error occurred" in await ran(made, cents=5), "the words of the SDK's own"
        parts = await tool(draw).run({}, CONTEXT)
        assert [type(part) for part in parts][1] is Image
        assert not tool(refund, needs_approval=False).needs_approval

    @pytest.mark.parametrize(("verdict", "asks"), [(False, False), (True, True), (None, True), (0, True), ("", True)])
    async def test_only_false_lets_a_call_run_without_an_approval(self, verdict: Any, asks: bool) -> None:
        from agents import function_tool

        @function_tool(needs_approval=lambda context, given, call_id: verdict)
        def refund(cents: int) -> str:
            """Refund."""
            return "Paid."

        assert await tool(refund).needs_decision({"cents": 5}) is asks


# ---------------------------------------------------------------- pydantic-ai


class TestPydanticAi:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed")

    async def test_a_tool_and_a_plain_function_with_a_run_context(self) -> None:
        from pydantic_ai import RunContext
        from pydantic_ai import Tool as Theirs

        def look_up(ctx: RunContext[str], order_id: str, much: int = 1) -> str:
            """What was ordered.

            Args:
                order_id: As on the invoice.
            """
            return f"{much} of {order_id} in {ctx.deps}: {ctx.tool_name} {ctx.tool_call_id} {ctx.retry}"

        async def plain(order_id: str) -> str:
            """Plain."""
            return order_id

        for given in (look_up, Theirs(look_up)):
            made = tool(given, deps="Bern")
            assert (made.name, made.description) == ("look_up", "What was ordered.")
            assert list(made.parameters["properties"]) == ["order_id", "much"]
            assert made.parameters["properties"]["order_id"]["description"] == "As on the invoice."
            assert await ran(made, order_id="81") == "1 of 81 in Bern: look_up c1 1"
            with pytest.raises(InvalidArguments, match="much: Input should be a valid integer"):
                await made.checked({"order_id": "81", "much": "lots"})
        agent = Agent(
            "clerk", model="scripted:demo", tools=[look_up, Theirs(plain, name="other", requires_approval=True)]
        )
        assert [tool.name for tool in agent.tools] == ["look_up", "other"]
        assert agent.tools[1].needs_approval is True
        assert await ran(agent.tools[1], order_id="81") == "81"

    async def test_what_they_raise_and_return_for_the_model(self) -> None:
        from pydantic_ai import CallDeferred, ModelRetry, ToolReturn
        from pydantic_ai import Tool as Theirs

        def retry() -> str:
            raise ModelRetry("Ask for another.")

        def later() -> str:
            raise CallDeferred

        def told() -> ToolReturn:
            return ToolReturn(return_value={"a": 1}, metadata={"secret": 1})

        def pay() -> None:
            try:
                {}["till"]
            except KeyError as error:
                raise ValueError("closed") from error

        with pytest.raises(ValueError, match="closed") as failure:
            await ran(tool(Theirs(pay)))
        assert error_text(failure.value) == "ValueError: closed (from KeyError: 'till')"
        with pytest.raises(ToolFailed, match=r"^Ask for another\.$"):
            await ran(tool(Theirs(retry)))
        with pytest.raises(ToolFailed, match="works only in agents of pydantic-ai"):
            await ran(tool(Theirs(later)))
        assert await ran(tool(Theirs(told))) == '{"a":1}'

    async def test_a_tool_of_a_schema(self) -> None:
        from pydantic_ai import Tool as Theirs

        def run(**given: Any) -> Any:
            return given

        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        made = tool(Theirs.from_schema(run, name="run", description="Runs.", json_schema=schema))
        assert await ran(made, a=1) == '{"a":1}'


# ---------------------------------------------------------------- a function with a schema


SCHEMA = {
    "type": "object",
    "description": "Of the schema.",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
    "additionalProperties": False,
}


async def test_a_function_takes_the_arguments_that_a_schema_describes() -> None:
    @tool(parameters=SCHEMA, effect="read")
    def search(query: str, limit: int = 3, *, context: ToolContext) -> str:
        return f"{query} {limit} {context.call_id}"

    assert search.description == "Of the schema."
    assert search.parameters["properties"] == SCHEMA["properties"]
    assert await ran(search, query="x") == "x 3 c1"
    with pytest.raises(InvalidArguments, match="query: Field required\nother: Unknown argument"):
        search.check({"other": 1})
    anything = tool(lambda **given: given, name="anything", parameters={"properties": {"a-b": {}}})
    assert await ran(anything, **{"a-b": 1}) == '{"a-b":1}'


async def test_a_pydantic_model_in_place_of_a_schema_is_validated() -> None:
    class Query(BaseModel):
        text: str
        limit: int = Field(default=3, le=5)

    @tool(parameters=Query)
    def search(text: str, limit: int = 1) -> str:
        """Search."""
        return f"{text} {limit + 1}"

    assert await ran(search, text="x") == "x 4"
    with pytest.raises(InvalidArguments, match="limit: Input should be less than or equal to 5, got 9"):
        search.check({"text": "x", "limit": 9})


@pytest.mark.parametrize(
    ("function", "parameters", "problem"),
    [
        (lambda a: a, {"type": "string"}, "has parameters="),
        (lambda a: a, ["a"], "has parameters="),
        (lambda a: a, {"properties": {"b": {}}}, "has no parameter 'b', but its schema has one"),
        (lambda a, b: a, {"properties": {"a": {}}, "required": ["a"]}, "needs 'b', but its schema does not require it"),
    ],
)
def test_a_schema_that_does_not_fit_its_function_is_refused(function: Any, parameters: Any, problem: str) -> None:
    with pytest.raises(InvalidTool, match=problem):
        tool(function, name="f", parameters=parameters)


# ---------------------------------------------------------------- what decides whether it is there


def test_a_tool_that_its_own_library_hides_at_times_is_refused() -> None:
    """Shown always, it would be called when its author did not want that."""
    theirs = pytest.importorskip("agents", reason="openai-agents is not installed")
    ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

    def erase() -> str:
        """Erase it all."""
        return "gone"

    for hidden in (False, lambda context, agent: False):
        with pytest.raises(InvalidTool, match="is_enabled=") as refused:
            tool(theirs.function_tool(erase, is_enabled=hidden))
        assert "prepare_tools" in refused.value.cure
    with pytest.raises(InvalidTool, match="prepare="):
        tool(ai.Tool(erase, prepare=lambda context, definition: None))
