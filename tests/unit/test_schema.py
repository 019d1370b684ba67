"""From a function's signature to its JSON schema, and from a model's arguments to Python values."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, field_validator
from typing_extensions import TypedDict

from everturn.errors import InvalidTool
from everturn.providers.schema_strict import fits_strict
from everturn.tools import unknown_names
from everturn.tools.arguments import InvalidArguments, ModelArguments
from everturn.tools.signature import Signature, UntypedParameter, read_signature

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Context: ...


class Line(BaseModel):
    """One line of an order."""

    title: str
    cents: int = Field(ge=0, description="Price in cents")


class Order(BaseModel):
    """An order of a customer."""

    id: str
    lines: list[Line] = []
    parts: list[Order] = []


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Place(TypedDict):
    title: str
    where: Point


def read(function: Callable[..., Any]) -> Signature:
    return read_signature(function, context_type=Context)


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    return read(function).arguments.schema


def validate(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    return read(function).arguments.validate(arguments)


def problems(function: Callable[..., Any], **arguments: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        validate(function, **arguments)
    return str(caught.value).splitlines()


def one(annotation: Any, *default: Any) -> Callable[..., Any]:
    """A function with one parameter `value` of this annotation, and a default where one is given."""

    def function(value): ...  # type: ignore[no-untyped-def]

    function.__annotations__ = {"value": annotation}
    function.__defaults__ = default or None
    return function


def test_a_schema_is_a_closed_object_without_generated_titles() -> None:
    def weather(city: str, days: int = 3) -> str: ...

    assert schema(weather) == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_objects_within_are_closed_as_the_whole_so_that_strict_mode_takes_them() -> None:
    class Open(BaseModel, extra="allow"):
        x: int

    class Visit(BaseModel):
        line: Line
        tags: list[Line]

    def book(visit: Visit, unit: Unit) -> str: ...
    def note(things: Open, line: Line) -> str: ...

    assert fits_strict(schema(book))
    made = schema(note)["$defs"]
    assert (made["Open"]["additionalProperties"], made["Line"]["additionalProperties"]) == (True, False)


def test_a_function_without_parameters_takes_no_arguments() -> None:
    def now() -> str: ...

    assert schema(now) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert problems(now, zone="UTC") == ["zone: Unknown argument; there are no arguments"]


@pytest.mark.parametrize(
    ("annotation", "expected", "sent", "value"),
    [
        (str, {"type": "string"}, "a", "a"),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}, "b", "b"),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045 - users write both
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x", "x"),  # noqa: UP007 - the same
        (set[int], {"items": {"type": "integer"}, "type": "array", "uniqueItems": True}, [1, 1], {1}),
        (list[str], {"items": {"type": "string"}, "type": "array"}, ["a"], ["a"]),
        (dict[str, int], {"additionalProperties": {"type": "integer"}, "type": "object"}, {"a": 1}, {"a": 1}),
        (datetime.date, {"format": "date", "type": "string"}, "2024-02-29", datetime.date(2024, 2, 29)),
        (uuid.UUID, {"format": "uuid", "type": "string"}, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
        (Annotated[int, Field(ge=1, description="Up")], {"type": "integer", "minimum": 1, "description": "Up"}, 2, 2),
        (Any, {}, {"a": [None]}, {"a": [None]}),
        ("list[int]", {"items": {"type": "integer"}, "type": "array"}, [1], [1]),
    ],
)
def test_type_hints_become_schemas_and_values(annotation: Any, expected: Any, sent: Any, value: Any) -> None:
    assert schema(one(annotation))["properties"]["value"] == expected
    assert validate(one(annotation), value=sent) == {"value": value}


def test_a_tuple_keeps_its_shape() -> None:
    assert schema(one(tuple[int, str]))["properties"]["value"]["prefixItems"] == [
        {"type": "integer"},
        {"type": "string"},
    ]
    assert validate(one(tuple[int, str]), value=[1, "a"]) == {"value": (1, "a")}


@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [
        (Unit, "k", Unit.KELVIN),
        (Line, {"title": "Tea", "cents": 3}, Line(title="Tea", cents=3)),
        (Point, {"x": 1}, Point(1)),
        (Place, {"title": "Here", "where": {"x": 1, "y": 2}}, {"title": "Here", "where": Point(1, 2)}),
        (list[Line], [{"title": "Tea", "cents": 3}], [Line(title="Tea", cents=3)]),
    ],
)
def test_named_types_are_definitions_without_titles(annotation: Any, sent: Any, value: Any) -> None:
    def pick(value: Any, also: int = 0) -> None: ...

    pick.__annotations__["value"] = annotation
    made = schema(pick)
    assert "$ref" in str(made["properties"]["value"])
    assert all("title" not in definition for definition in made["$defs"].values())
    assert validate(pick, value=sent) == {"value": value, "also": 0}


def test_one_pydantic_model_alone_gives_its_fields_as_arguments() -> None:
    def place(order: Order) -> str: ...

    read_place = read(place)
    made = read_place.arguments.schema
    assert list(made["properties"]) == ["id", "lines", "parts"]
    assert "title" in made["$defs"]["Line"]["properties"]
    assert (made["required"], made["additionalProperties"], made["type"]) == (["id"], False, "object")
    assert set(made["$defs"]) == {"Line", "Order"}
    assert read_place.description == "An order of a customer."
    assert read_place.arguments.validate({"id": "81"}) == {"id": "81", "lines": [], "parts": []}
    assert read_place.arguments.keywords({"id": "81"}) == {"order": Order(id="81")}
    assert problems(place, id="81", colour="red") == ["colour: Unknown argument; the arguments are id, lines, parts"]


class Money(BaseModel):
    """Two spellings of a field: a rule about one of them would not see the other."""

    model_config = ConfigDict(populate_by_name=True)

    cents: int = Field(alias="amount")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"amount": 5, "cents": 90_000}, "value.cents"),
        ([{"amount": 5}, {"cents": 90_000}], "value[1].cents"),
        ({"refunds": {"81": {"cents": 90_000}}}, "value.refunds.81.cents"),
    ],
)
def test_inside_of_objects_only_the_names_of_the_schema_count(value: Any, place: str) -> None:
    class Batch(BaseModel):
        refunds: dict[str, Money]

    def pay(value: Money | list[Money] | Batch, also: int = 0) -> None: ...

    [problem] = [line for line in problems(pay, value=value) if "Unknown" in line]
    assert problem.startswith(f"{place}: Unknown; its fields are amount")


def test_they_count_in_a_union_whose_types_are_listed() -> None:
    money = {"type": ["object", "null"], "properties": {"amount": {}}, "additionalProperties": False}
    schema = {"properties": {"value": {"anyOf": [money, {"type": ["string", "integer"]}]}}}
    [problem] = unknown_names.problems_within({"value": {"cents": 90_000}}, schema)
    assert problem.startswith("value.cents: Unknown; its fields are amount")


@pytest.mark.timeout(60)
def test_a_schema_that_holds_unions_of_itself_is_looked_through_once_however_deep_the_value() -> None:
    """A look at each branch for each branch above it would end in years."""
    below = {"anyOf": [{"$ref": "#/$defs/Leaf"}, {"$ref": "#/$defs/Branch"}, {"type": "null"}]}
    closed = {"type": "object", "additionalProperties": False}
    kinds = {"Leaf": {"colour": {"type": "string"}}, "Branch": {"size": {"type": "integer"}}}
    definitions = {name: {**closed, "properties": {"below": below, **own}} for name, own in kinds.items()}
    tree: dict[str, Any] = {"size": 1, "heigth": 2}
    for _ in range(60):
        tree = {"below": tree}
    schema = {"properties": {"tree": below}, "$defs": definitions}
    [problem] = unknown_names.problems_within({"tree": tree}, schema)
    assert problem.endswith("below.heigth: Unknown; its fields are below, size")


def test_one_pydantic_model_beside_the_context_is_alone_too() -> None:
    def place(order: Annotated[Order, Field(description="What to place")], context: Context) -> str: ...

    assert list(schema(place)["properties"]) == ["id", "lines", "parts"]


def test_an_optional_model_is_an_argument_like_others() -> None:
    def place(order: Order | None = None) -> str: ...

    assert list(schema(place)["properties"]) == ["order"]


def test_a_model_that_allows_more_gets_more() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        id: str

    def place(order: Open) -> str: ...

    assert validate(place, id="81", colour="red") == {"id": "81", "colour": "red"}


def test_strict_models_still_take_what_json_writes_as_text() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        day: datetime.date

    assert validate(one(list[Strict]), value=[{"day": "2024-02-29"}])["value"][0].day.day == 29


def test_field_as_default_gives_description_constraint_and_default() -> None:
    def book(nights: int = Field(2, ge=1, description="How many"), guests: int = Field(description="Who")) -> None: ...

    made = schema(book)
    assert made["properties"]["nights"] == {"type": "integer", "minimum": 1, "default": 2, "description": "How many"}
    assert made["required"] == ["guests"]
    assert validate(book, guests="4") == {"nights": 2, "guests": 4}
    assert validate(one(list[int], Field(default_factory=list))) == {"value": []}


def test_a_field_may_rename_its_argument() -> None:
    def search(from_: Annotated[str, Field(alias="from")], to: str = Field(alias="until")) -> None: ...

    assert list(schema(search)["properties"]) == ["from", "until"]
    assert validate(search, **{"from": "a", "until": "b"}) == {"from_": "a", "to": "b"}


def test_names_that_pydantic_keeps_for_itself_are_fine() -> None:
    def odd(_id: int, schema: int, copy: int, model_config: int, self: int) -> None: ...

    arguments = {"_id": 1, "schema": 2, "copy": 3, "model_config": 4, "self": 5}
    assert list(schema(odd)["properties"]) == list(arguments)
    assert validate(odd, **arguments) == arguments


def test_what_has_no_annotation_takes_any_json_value_with_a_warning() -> None:
    def echo(value, times=2) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.warns(UntypedParameter) as caught:
        read(echo)
    first, second = caught
    assert "'echo' (" in str(first.message)
    assert "'value'" in str(first.message)
    assert "Write `times: int`" in str(second.message)
    assert {first.filename, second.filename} == {__file__}

    with pytest.warns(UntypedParameter):
        arguments = read(echo).arguments
    assert arguments.schema["properties"] == {"value": {}, "times": {"default": 2}}
    assert arguments.validate({"value": [{"a": None}]}) == {"value": [{"a": None}], "times": 2}


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema() -> None:
    sentinel = object()
    function = one(Any, sentinel)
    assert schema(function)["properties"] == {"value": {}}
    assert validate(function) == {"value": sentinel}


@pytest.mark.parametrize("annotation", [Context, Optional[Context], Context | None, "Context", "Optional[Context]"])  # noqa: UP045
def test_the_context_is_hidden(annotation: Any) -> None:
    def tool(city: str, context: Any = None) -> None: ...

    tool.__annotations__["context"] = annotation
    assert list(schema(tool)["properties"]) == ["city"]
    assert read(tool).context_parameters == ("context",)
    assert problems(tool, city="Paris", context={}) == ["context: Unknown argument; the arguments are city"]


DOCSTRINGS = {
    "google": "Args:\n  city: Where it is,\n    with its country.\n  nights (int): How many.\n\nReturns:\n  A number.",
    "numpy": "Parameters\n----------\ncity : str\n    Where it is,\n    with its country.\nnights\n    How many.\n\n"
    "Returns\n-------\nstr\n    A number.",
    "sphinx": ":param city: Where it is,\n    with its country.\n:param int nights: How many.\n:returns: A number.",
}


@pytest.mark.parametrize("sections", DOCSTRINGS.values(), ids=DOCSTRINGS)
def test_docstrings_describe_tool_and_parameters(sections: str) -> None:
    def book(city: str, nights: int, kind: Unit) -> str: ...

    book.__doc__ = f"Book a room.\n\nPays at once.\n\n{sections}"
    assert read(book).description == "Book a room.\n\nPays at once."
    described = schema(book)["properties"]
    assert described["city"]["description"].replace("\n", " ") == "Where it is, with its country."
    assert described["nights"]["description"] == "How many."


@pytest.mark.parametrize(
    "docstring",
    [
        """Args:
            city: Where it is,
                with its country.
            nights: How many.
        """,
        """
        Args:
            city: Where it is,
                with its country.
            nights: How many.

        Returns:
            What was booked.
        """,
        """Parameters
        ----------
        city : str
            Where it is,
            with its country.
        nights : int
            How many.
        """,
        """:param city: Where it is,
            with its country.
        :param nights: How many.
        """,
    ],
)
def test_a_docstring_that_begins_with_the_arguments_describes_them(docstring: str) -> None:
    def book(city: str, nights: int) -> str: ...

    book.__doc__ = docstring
    assert read(book).description == ""
    described = schema(book)["properties"]
    assert described["city"]["description"].replace("\n", " ") == "Where it is, with its country."
    assert described["nights"]["description"] == "How many."


class Doc:
    """As typing_extensions has it (PEP 727)."""

    def __init__(self, documentation: str) -> None:
        self.documentation = documentation


class Stay(BaseModel):
    city: Annotated[str, "Where"]
    nights: Annotated[int, "How many"] = Field(1, alias="for")
    kind: Annotated[str, "not this"] = Field("any", description="From Field")


@dataclasses.dataclass
class Guest:
    name: Annotated[str, "As in the passport"]


class Route(TypedDict):
    start: Annotated[str, "From"]
    via: NotRequired[Annotated[str, "Over"]]


@pytest.mark.parametrize(
    ("annotation", "described"),
    [
        (Annotated[int, "How many"], "How many"),
        (Annotated[int, Field(ge=1), "How many"], "How many"),
        (Annotated[int, Doc("How many")], "How many"),
        (Annotated[int | None, "How many"], "How many"),
        (Annotated[int, "How many"] | None, "How many"),
        (Annotated[Unit, "How many"], "How many"),
        (Annotated[int, "not this", Field(description="How many")], "How many"),
        (Annotated[int, 7], None),
    ],
)
def test_a_text_in_annotated_describes_the_parameter(annotation: Any, described: str | None) -> None:
    assert schema(one(annotation))["properties"]["value"].get("description") == described


def test_a_text_in_annotated_wins_over_the_docstring() -> None:
    def book(city: Annotated[str, "From Annotated"]) -> str:
        """Book.

        Args:
            city: From the docstring.
        """
        return city

    assert schema(book)["properties"]["city"]["description"] == "From Annotated"


def test_a_text_in_annotated_describes_the_fields_of_what_a_parameter_is_made_of() -> None:
    def book(stay: Stay, guest: Guest, route: Route, names: list[Annotated[str, "A guest"]]) -> str: ...

    made = schema(book)
    stay, guest, route = (made["$defs"][name]["properties"] for name in ("Stay", "Guest", "Route"))
    assert [one.get("description") for one in stay.values()] == ["Where", "How many", "From Field"]
    assert guest["name"]["description"] == "As in the passport"
    assert (route["start"]["description"], route["via"]["description"]) == ("From", "Over")
    assert made["properties"]["names"]["items"]["description"] == "A guest"

    def alone(stay: Stay) -> str: ...

    assert schema(alone)["properties"]["for"]["description"] == "How many"


def test_a_field_description_wins_over_the_docstring() -> None:
    def book(city: Annotated[str, Field(description="From Field")]) -> str:
        """Book.

        Args:
            city: From the docstring.
        """
        return city

    assert schema(book)["properties"]["city"]["description"] == "From Field"


def test_types_of_the_function_around_are_found() -> None:
    class Room(BaseModel):
        beds: int

    @dataclasses.dataclass
    class Hotel:
        rooms: list[Room]

    def book(hotel: Hotel, rooms: list[Room], view: Optional[Room] = None) -> None: ...  # noqa: UP045

    assert set(schema(book)["$defs"]) == {"Hotel", "Room"}
    assert validate(book, hotel={"rooms": [{"beds": 2}]}, rooms=[])["hotel"] == Hotel([Room(beds=2)])


def test_partials_bound_methods_and_objects_are_read() -> None:
    class Shop:
        def refund(self, order: str, cents: int = 0) -> None:
            """Give money back."""

        def __call__(self, order: str) -> None:
            """Sell."""

    def send(order: str, key: str, note: str = "") -> None:
        """Send it."""

    assert list(schema(Shop().refund)["properties"]) == ["order", "cents"]
    assert read(Shop()).description == "Sell."
    bound = read(functools.partial(send, key="secret"))
    assert list(bound.arguments.schema["properties"]) == ["order", "note"]
    assert "secret" not in str(bound.arguments.schema)
    assert bound.description == "Send it."
    assert list(schema(functools.partial(send, "81"))["properties"]) == ["key", "note"]


def test_decorators_that_use_wraps_are_seen_through() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @logged
    def book(city: str) -> None:
        """Book it."""

    assert list(schema(book)["properties"]) == ["city"]


def unresolved(price: OnlyForTypeCheckers) -> None: ...


def starred(*rooms: str) -> None: ...


def double_starred(**rooms: str) -> None: ...


def positional(city: str, /) -> None: ...


def method(self, city: str) -> None: ...  # type: ignore[no-untyped-def]


class Callback(BaseModel):
    then: Callable[[], None]


def generated(order: Callback) -> None: ...


def without_schema(city: str, then: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameter", "cure"),
    [
        (unresolved, "price", "TYPE_CHECKING"),
        (starred, "*rooms", "Name the parameters"),
        (double_starred, "**rooms", "Name the parameters"),
        (positional, "city", "Take out the '/'"),
        (method, "self", "bound"),
        (without_schema, "then", "JSON"),
        (generated, "order", "JSON"),
        (one(object()), "value", "JSON"),
    ],
)
def test_a_signature_that_no_model_can_call_is_refused(function: Callable[..., Any], parameter: str, cure: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        read(function)
    message = str(caught.value)
    assert f"'{function.__name__}' ({__file__}:" in message
    assert repr(parameter) in message
    assert cure in message
    assert "\n" not in message
    assert "errors.pydantic.dev" not in message


@given(st.builds(Order, id=st.text(), lines=st.lists(st.builds(Line, title=st.text(), cents=st.integers(0, 10**9)))))
def test_what_a_model_of_the_schema_writes_is_taken_back(order: Order) -> None:
    assert ModelArguments(Order, whole="order").keywords(order.model_dump(mode="json")) == {"order": order}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def book_room(city: str, cents: int, lines: list[Line], unit: Unit = Unit.KELVIN) -> None: ...


BOOKING = read(book_room).arguments


@given(st.dictionaries(st.text(), JSON_VALUES))
def test_any_arguments_at_all_are_taken_or_refused_in_words(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="Field required"):
        BOOKING.validate(arguments)


class Checked(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _check(cls, number: int) -> int:
        return number


class Prepared(BaseModel):
    number: int

    def model_post_init(self, context: Any) -> None: ...


@pytest.mark.parametrize(
    ("annotation", "runs"),
    [
        (int, False),
        (list[dict[str, float]] | None, False),
        (Literal["a", "b"], False),
        (Annotated[int, Field(ge=1)], False),
        (Checked, True),
        (list[Checked], True),
        (Prepared, True),
        (Annotated[int, AfterValidator(lambda number: number)], True),
        (Annotated[list[int], Field(default_factory=list)], True),
    ],
)
def test_it_is_known_which_arguments_run_code_of_the_users(annotation: Any, runs: bool) -> None:
    for name in ("number", "default", "metadata", "fields", "type", "expected"):
        model = create_model("Arguments", **{name: (annotation, ...)})
        assert ModelArguments(model).runs_user_code is runs, name
