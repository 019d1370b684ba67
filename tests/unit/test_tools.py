"""Tools: made of functions, checked when made, and run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
import structlog
from pydantic import BaseModel, Field, field_validator
from structlog.testing import LogCapture

from everturn.errors import InvalidTool, ToolFailed
from everturn.records import Image, Text
from everturn.tools.arguments import SchemaArguments
from everturn.tools.context import ToolContext
from everturn.tools.tool import InvalidArguments, Tool, tool

CONTEXT = ToolContext(conversation_id="order-81", call_id="call_1", attempt=2, turn=3)


@tool
def refund(order: str, cents: int = 100) -> str:
    """Give money back."""
    return f"{order}: {cents}"


async def text_of(made: Tool, /, **arguments: Any) -> str:
    [part] = await made.run(arguments, CONTEXT)
    assert isinstance(part, Text)
    return part.text


def test_a_bare_decorator_takes_name_description_and_schema_from_the_function() -> None:
    assert (refund.name, refund.description) == ("refund", "Give money back.")
    assert list(refund.parameters["properties"]) == ["order", "cents"]
    assert (refund.effect, refund.runs_on, refund.needs_approval) == ("idempotent", "worker", False)
    assert (refund.timeout, refund.patience) == (timedelta(minutes=10), timedelta(minutes=30))


def test_options_are_taken() -> None:
    @tool(
        name="pay",
        description="Pay it.",
        needs_approval=True,
        effect="once",
        timeout=timedelta(seconds=5),
        patience=timedelta(seconds=9),
        runs_on="client",
    )
    async def pay_out(order: str) -> str:
        """Not this."""
        return order

    assert (pay_out.name, pay_out.description, pay_out.effect) == ("pay", "Pay it.", "once")
    assert (pay_out.timeout.seconds, pay_out.patience.seconds) == (5, 9)
    assert (pay_out.needs_approval, pay_out.runs_on) == (True, "client")


async def test_a_tool_is_called_like_its_function() -> None:
    @tool(effect="read")
    async def look(order: str) -> str:
        return order

    assert refund("81", cents=5) == "81: 5"
    assert await look("81") == "81"
    assert list(inspect.signature(refund).parameters) == ["order", "cents"]
    assert (refund.__doc__, getattr(refund, "__name__", None)) == ("Give money back.", "refund")


def test_patience_is_never_shorter_than_one_try_unless_asked_for() -> None:
    assert tool(refund.function, timeout=timedelta(hours=2)).patience == timedelta(hours=2)
    with pytest.raises(InvalidTool, match="Raise patience or lower timeout"):
        tool(refund.function, timeout=timedelta(hours=2), patience=timedelta(hours=1))


def test_a_tool_can_be_changed_by_replace() -> None:
    once = replace(refund, effect="once", needs_approval=True)
    assert (once.effect, once.needs_approval, once("81")) == ("once", True, "81: 100")


async def test_sync_functions_run_in_threads_with_the_callers_context_variables() -> None:
    user = contextvars.ContextVar("user", default="nobody")
    user.set("ada")

    @tool
    def who() -> list[str]:
        return [user.get(), threading.current_thread().name]

    with ThreadPoolExecutor(thread_name_prefix="tools") as executor:
        assert await who.run({}, CONTEXT, executor=executor) == (Text(text='["ada","tools_0"]'),)
    assert threading.current_thread().name not in await text_of(who)


async def test_async_functions_run_on_the_event_loop() -> None:
    loop = asyncio.get_running_loop()

    @tool
    async def where() -> bool:
        return asyncio.get_running_loop() is loop

    assert await text_of(where) == "true"


async def test_arguments_arrive_as_python_values() -> None:
    class Order(BaseModel):
        id: str

    @tool
    def kinds(order: Order, days: set[int]) -> list[str]:
        return [type(order).__name__, type(days).__name__]

    assert await text_of(kinds, order={"id": "81"}, days=["1"]) == '["Order","set"]'
    assert kinds.check({"order": {"id": "81"}, "days": []}) == {"order": Order(id="81"), "days": set()}
    with pytest.raises(InvalidArguments, match="order: Field required"):
        await kinds.run({"days": []}, CONTEXT)


async def test_a_model_alone_arrives_whole() -> None:
    class Order(BaseModel):
        id: str
        cents: int = 5

    @tool(needs_approval=lambda arguments: arguments["cents"] > 5)
    def place(order: Order) -> str:
        return order.id

    assert await text_of(place, id="81") == "81"
    assert await place.needs_decision({"id": "81"}) is False
    assert await place.needs_decision({"id": "81", "cents": 6}) is True


async def test_the_context_says_which_call_this_is() -> None:
    beats = []

    @tool
    def look(order: str, context: ToolContext) -> list[Any]:
        context.heartbeat({"done": 1})
        return [order, context.conversation_id, context.call_id, context.idempotency_key, context.attempt, context.turn]

    context = replace(CONTEXT, heartbeat=beats.append)
    assert await look.run({"order": "81"}, context) == (Text(text='["81","order-81","call_1","order-81:call_1",2,3]'),)
    assert beats == [{"done": 1}]
    assert look("81", ToolContext())[1:3] == ["conversation", "call"]
    ToolContext().heartbeat()


def test_the_contexts_log_has_the_call_bound() -> None:
    capture = LogCapture()
    log = structlog.wrap_logger(None, processors=[capture])
    replace(CONTEXT, log=log).log.info("refund.sent", cents=5)
    facts = {"conversation": "order-81", "turn": 3, "call": "call_1", "attempt": 2, "cents": 5}
    assert capture.entries == [{"event": "refund.sent", "log_level": "info", **facts}]


async def test_partials_bound_methods_static_methods_and_objects_become_tools() -> None:
    class Shop:
        async def sell(self, order: str) -> str:
            return f"sold {order}"

        async def __call__(self, order: str) -> str:
            return f"called {order}"

        @staticmethod
        @tool
        def count(order: str) -> str:
            return f"counted {order}"

        @tool
        @staticmethod
        def weigh(order: str) -> str:
            return f"weighed {order}"

    def send(key: str, order: str) -> str:
        return f"{key} {order}"

    made = [
        tool(Shop().sell),
        tool(Shop(), name="call"),
        tool(functools.partial(Shop(), "81"), name="call_81"),
        Shop.count,
        Shop().weigh,
        tool(functools.partial(send, key="k")),
    ]
    assert [one.name for one in made] == ["sell", "call", "call_81", "count", "weigh", "send"]
    said = [await text_of(one, **({} if one.name == "call_81" else {"order": "81"})) for one in made]
    assert said == ["sold 81", "called 81", "called 81", "counted 81", "weighed 81", "k 81"]


async def test_what_a_function_raises_comes_through() -> None:
    @tool
    def fail() -> None:
        raise ToolFailed("no such order")

    with pytest.raises(ToolFailed, match="no such order"):
        await fail.run({}, CONTEXT)


@pytest.mark.parametrize(
    ("error", "said"), [(StopIteration(), "StopIteration"), (SystemExit(2), r"sys\.exit\(2\)")], ids=["stop", "exit"]
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_would_end_the_worker_is_a_failure_of_the_tool(
    error: BaseException, said: str, is_async: bool
) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    with pytest.raises(RuntimeError, match=said):
        await tool(fail_async if is_async else fail).run({}, CONTEXT)


async def test_images_are_parts_of_their_own() -> None:
    image = Image(url="https://example.com/a.png")

    @tool
    def draw() -> list[Any]:
        return ["Here:", image]

    assert await draw.run({}, CONTEXT) == (Text(text="Here:"), image)


def large(arguments: dict[str, Any]) -> bool:
    return bool(arguments["cents"] > 1_000)


async def large_later(arguments: dict[str, Any]) -> bool:
    await asyncio.sleep(0)
    return large(arguments)


@pytest.mark.parametrize("predicate", [large, large_later, functools.partial(large), lambda it: it["cents"] > 1_000])
@pytest.mark.parametrize(("arguments", "expected"), [({}, False), ({"cents": "1200"}, True), ({"cents": 1}, False)])
async def test_a_predicate_sees_validated_arguments_with_defaults(
    predicate: Callable[..., Any], arguments: dict[str, Any], expected: bool
) -> None:
    made = tool(refund.function, needs_approval=predicate)
    assert await made.needs_decision({"order": "81", **arguments}) is expected
    with pytest.raises(InvalidArguments):
        await made.needs_decision({})


async def test_without_a_predicate_the_option_decides() -> None:
    assert [await replace(refund, needs_approval=it).needs_decision({}) for it in (True, False)] == [True, False]


async def test_a_predicate_that_fails_asks_a_human(caplog: pytest.LogCaptureFixture) -> None:
    made = tool(refund.function, needs_approval=lambda arguments: arguments["typo"])
    assert await made.needs_decision({"order": "81"}) is True
    assert "approval_predicate.failed" in caplog.text


def yields() -> Any:
    yield 1


@pytest.mark.parametrize("name", ["", "1st", "get weather", "call_model", "a" * 65, "grün", "-a", "a\n", None])
def test_names_that_providers_refuse_are_refused(name: Any) -> None:
    with pytest.raises(InvalidTool, match=r"tool\(name='...'\)"):
        replace(refund, name=name)


@pytest.mark.parametrize("name", ["a", "_a", "get-weather_2", "a" * 64])
def test_names_that_providers_take_are_taken(name: str) -> None:
    assert replace(refund, name=name).name == name


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"effect": "twice"}, "idempotent, read, once"),
        ({"runs_on": "moon"}, "worker, client"),
        ({"timeout": 30}, "timedelta"),
        ({"timeout": timedelta()}, "above zero"),
        ({"patience": -timedelta(1)}, "above zero"),
        ({"needs_approval": "yes"}, "True, False, or a function"),
        ({"needs_approval": lambda: True}, "one parameter"),
        ({"needs_approval": lambda one, two, three: True}, "one parameter"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], cure: str) -> None:
    with pytest.raises(InvalidTool, match=cure) as caught:
        tool(**options)(refund.function)
    assert "'refund'" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (refund, "is already a tool"),
        (dict, "is a class"),
        ("refund", "can't be called"),
        (lambda order: order, r"tool\(name='...'\)"),
        (yields, "Return the whole result"),
    ],
)
def test_what_is_no_function_is_refused(function: Any, cure: str) -> None:
    with pytest.raises(InvalidTool, match=cure):
        tool(function)


def test_a_tool_of_the_client_cannot_run_here() -> None:
    made = Tool(name="ask", description="", arguments=SchemaArguments({}), runs_on="client")
    with pytest.raises(InvalidTool, match="the client runs it"):
        made()


class Line(BaseModel):
    title: str
    cents: int = Field(ge=0)


def one(annotation: Any) -> Callable[..., Any]:
    """A function with one parameter `value` of this annotation."""

    def function(value): ...  # type: ignore[no-untyped-def]

    function.__annotations__["value"] = annotation
    return function


def problems(function: Callable[..., Any], **arguments: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        tool(function).check(arguments)
    return str(caught.value).splitlines()


def test_problems_say_where_what_and_what_was_sent() -> None:
    def book(city: str, cents: int, lines: list[Line], unit: Literal["c", "k"] = "k") -> None: ...

    assert problems(book, cents="12.5x", lines=[{"title": "Tea", "cents": -1}, {"cents": 1}], unit="f", town="x") == [
        "city: Field required",
        'cents: Input should be a valid integer, got "12.5x"',
        "lines[0].cents: Input should be greater than or equal to 0, got -1",
        "lines[1].title: Field required",
        "unit: Input should be 'c' or 'k', got \"f\"",
        "town: Unknown argument; the arguments are city, cents, lines, unit",
    ]


@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [(int, "3", 3), (int, 3.0, 3), (float, "1.5", 1.5), (bool, "true", True), (list[int], ["3"], [3])],
)
def test_harmless_slips_are_taken(annotation: Any, sent: Any, value: Any) -> None:
    assert tool(one(annotation)).check({"value": sent}) == {"value": value}


def test_problems_are_bounded() -> None:
    sent = {f"name_{index}" + "x" * 500: "y" * 5_000 for index in range(200)}
    lines = problems(one(list[int]), value=["z" * 10_000] * 500, **sent)
    assert len(lines) == 11
    assert sum(map(len, lines)) < 5_000
    assert lines[0].endswith(" [Cut: 80 of 10,002 characters are shown.]"), "a model reads it"
    assert lines[-1] == "… and 491 more"
    assert problems(one(str), **sent, value="")[-1].endswith(" and 195 more: Unknown argument; the arguments are value")


def test_a_validator_of_the_users_own_speaks_in_its_own_words() -> None:
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def _even(cls, number: int) -> int:
            if number > 100:
                raise KeyError("too large")  # a bug in it must not end the conversation
            if number % 2:
                raise ValueError("must be even")
            return number

    def take(even: Even) -> None: ...

    assert problems(take, number=3) == ["number: must be even, got 3"]
    assert problems(take, number=101) == ["KeyError: 'too large'"]


def test_a_decorator_on_a_method_names_what_works_instead() -> None:
    def refund(self, order_id: str) -> str:  # type: ignore[no-untyped-def]
        return f"refunded {order_id}"

    refund.__qualname__ = "test.<locals>.Shop.refund"
    with pytest.raises(InvalidTool, match=r"'Shop.refund' .* 'self': this is a method without its object") as caught:
        tool(effect="once", timeout=timedelta(seconds=5))(refund)
    works = 'tool(effect="once", timeout=timedelta(seconds=5))(Shop().refund)'
    assert caught.value.cure.endswith(f"make the tool of a bound one: {works}.")
    with pytest.raises(InvalidTool) as caught:
        tool(refund)
    assert caught.value.cure.endswith(": tool(Shop().refund).")

    shop = type("Shop", (), {"refund": refund})
    assert eval(works, {"tool": tool, "timedelta": timedelta, "Shop": shop}).effect == "once"


def test_broken_text_is_mended_not_refused() -> None:
    assert tool(one(str)).check({"value": "half \ud83d"}) == {"value": "half ?"}


def test_arguments_nested_beyond_reason_are_a_problem_and_no_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(problems(one(Any), value=deep)) == 1
