"""What a tool returned or raised, as the model is told."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from everturn.errors import ToolFailed
from everturn.records import Document, Image, Text
from everturn.sizes import MAX_ERROR_BYTES
from everturn.system.json_numbers import numbers_as_texts
from everturn.tools.arguments import InvalidArguments
from everturn.tools.results import error_text, parts_of_error, to_parts
from everturn.vendors.content_blocks import NO_OUTPUT

IMAGE = Image(data="aGk=", media_type="image/png")


class Order(BaseModel):
    id: str
    day: datetime.date = datetime.date(2024, 2, 29)


@dataclasses.dataclass
class Point:
    x: int


class Colour(enum.StrEnum):
    RED = "r"


class Level(enum.Enum):
    HIGH = 3


def text_of(value: Any) -> str:
    [part] = to_parts(value)
    assert isinstance(part, Text)
    return part.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        (True, "true"),
        (1.5, "1.5"),
        (10**40, "1" + "0" * 40),
        ([], "[]"),
        (["a", "b"], '["a","b"]'),
        ({"ü": [1, None]}, '{"ü":[1,null]}'),
        ({1: "a"}, '{"1":"a"}'),
        (("a", 1), '["a",1]'),
        ({7}, "[7]"),
        (Order(id="81"), '{"id":"81","day":"2024-02-29"}'),
        ([Order(id="81")], '[{"id":"81","day":"2024-02-29"}]'),
        (Point(1), '{"x":1}'),
        (Colour.RED, "r"),
        (Level.HIGH, "3"),
        (datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), '"2024-02-29T12:00:00Z"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (pathlib.PurePosixPath("/tmp/a"), '"/tmp/a"'),
        (float("nan"), "NaN"),
        ([float("inf"), {"x": float("nan")}], '["Infinity",{"x":"NaN"}]'),
        ("half \ud83d", "half \ufffd"),
        ("pair \ud83d\ude00", "pair 😀"),
        ({"half \ud83d": ["half \ud83d"]}, '{"half \ufffd":["half \ufffd"]}'),
        ({datetime.date(2024, 2, 29): Point(1)}, '{"2024-02-29":{"x":1}}'),
        ({"orders": {Order(id="81").id: Order(id="81")}}, '{"orders":{"81":{"id":"81","day":"2024-02-29"}}}'),
    ],
)
def test_what_a_tool_returns_becomes_one_text(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (IMAGE, (IMAGE,)),
        (Text(text="a"), (Text(text="a"),)),
        ([Text(text="a"), IMAGE], (Text(text="a"), IMAGE)),
        ((IMAGE, "a"), (IMAGE, Text(text="a"))),
    ],
)
def test_parts_are_kept_as_they_are(value: Any, parts: Any) -> None:
    assert to_parts(value) == parts


def test_a_document_is_a_part_like_an_image() -> None:
    document = Document(data="aGk=", media_type="application/pdf", name="bill.pdf")
    assert to_parts(document) == (document,)
    assert to_parts(["The bill:", document, IMAGE]) == (Text(text="The bill:"), document, IMAGE)


PNG = {"data": "aGk=", "media_type": "image/png"}
PDF = Document(data="aGk=", media_type="application/pdf", name="bill.pdf")
URL = "https://h/cat.png"


class Blob(BaseModel):
    """As MCP's SDK has its pictures."""

    type: str = "image"
    data: str = "aGk="
    mimeType: str = "image/png"  # noqa: N815 - MCP's name


class Result(BaseModel):
    """As MCP's SDK has a call's result."""

    content: list[Blob]
    isError: bool = False  # noqa: N815 - MCP's name
    structuredContent: dict[str, int] | None = None  # noqa: N815 - MCP's name


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "hi"}, Text(text="hi")),
        ({"type": "input_text", "text": "hi"}, Text(text="hi")),
        ({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}, Text(text="hi")),
        ({"type": "image", "source": {"type": "base64", **PNG}}, IMAGE),
        ({"type": "image", "source": {"type": "url", "url": URL}}, Image(url=URL)),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, IMAGE),
        ({"type": "image_url", "image_url": {"url": URL}}, Image(url=URL)),
        ({"type": "input_image", "image_url": URL}, Image(url=URL)),
        ({"type": "image", "data": "aGk=", "mimeType": "image/png"}, IMAGE),
        ({"type": "image", "base64": "aGk=", "mime_type": "image/png"}, IMAGE),
        ({"type": "image", "url": URL}, Image(url=URL)),
        ({"kind": "image", **PNG}, IMAGE),
        ({"inlineData": {"mimeType": "image/png", "data": "aGk="}}, IMAGE),
        ({"inline_data": {"mime_type": "image/png", "data": "aGk="}}, IMAGE),
        ({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, Document(data="aGk=", media_type="audio/wav")),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
            Document(data="aGk=", media_type="audio/mp3"),
        ),
        (
            {
                "type": "document",
                "title": "bill.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            },
            PDF,
        ),
        ({"type": "file", "file": {"filename": "bill.pdf", "file_data": "data:application/pdf;base64,aGk="}}, PDF),
        ({"type": "input_file", "filename": "bill.pdf", "file_data": "data:application/pdf;base64,aGk="}, PDF),
        (
            {"type": "resource", "resource": {"uri": "x:/a/bill.pdf", "mimeType": "application/pdf", "blob": "aGk="}},
            PDF,
        ),
        ({"type": "resource", "resource": {"uri": "x:/a", "mimeType": "text/plain", "text": "hi"}}, Text(text="hi")),
        (Blob(), IMAGE),
    ],
)
def test_a_content_block_is_the_part_that_it_means(block: Any, part: Any) -> None:
    assert to_parts(block) == (part,)
    assert to_parts([block]) == (part,)
    assert to_parts([Text(text="See:"), block]) == (Text(text="See:"), part)
    assert to_parts({"content": [block], "isError": False, "structuredContent": {"a": 1}}) == (part,)


def test_among_blocks_with_a_picture_what_is_no_block_becomes_text() -> None:
    link = {"type": "resource_link", "uri": "x:/a", "name": "a"}
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert to_parts([picture, link, "a"]) == (
        IMAGE,
        Text(text='{"type":"resource_link","uri":"x:/a","name":"a"}'),
        Text(text="a"),
    )
    assert to_parts(Result(content=[Blob(), Blob()], structuredContent={"a": 1})) == (IMAGE, IMAGE)


def test_a_result_of_mcps_that_is_an_error_is_told_as_one() -> None:
    with pytest.raises(ToolFailed, match=r"^no such city$"):
        to_parts({"content": [{"type": "text", "text": "no such city"}], "isError": True})


def test_a_result_of_mcps_without_content_is_what_it_says() -> None:
    with pytest.raises(ToolFailed, match=r"^It failed\.$"):
        to_parts({"content": [], "isError": True})
    assert to_parts({"content": [], "isError": False}) == (Text(text="(no output)"),)
    assert to_parts(Result(content=[], structuredContent={"a": 1})) == (Text(text='{"a":1}'),)


@pytest.mark.parametrize("kind", [Image, Document])
@pytest.mark.parametrize("data", ["not base64!", "aGVsb", "data:image/png;base64,aGk=", "caf\u00e9"])
def test_a_picture_whose_data_is_no_base64_is_the_tools_fault_and_stays_out_of_the_transcript(
    kind: type[Image] | type[Document], data: str
) -> None:
    part = kind(data=data, media_type="image/png")
    for value in (part, ["See:", part]):
        with pytest.raises(TypeError, match=rf"an? {kind.__name__} whose data is not base64") as caught:
            to_parts(value)
        assert data not in str(caught.value)


@pytest.mark.parametrize(("data", "common"), [("aG\r\nk=\n", "aGk="), ("aGk", "aGk="), ("-_-_", "+/+/")])
def test_base64_is_written_as_everybody_reads_it(data: str, common: str) -> None:
    expected = Image(data=common, media_type="image/png")
    assert to_parts(Image(data=data, media_type="image/png")) == (expected,)


@pytest.mark.parametrize(
    "value",
    [
        {"content": []},
        {"type": "image", "title": "A cat", "url": URL},
        {"type": "image", "source": "camera"},
        {"type": "image", "source": {"type": "base64", "data": None}},
        {"type": "text", "text": "hi", "author": "Ada"},
        {"type": "text", "text": 7},
        {"type": "document", "id": 81},
        {"kind": "image", "title": "A cat"},
        {"content": [{"title": "A cat"}]},
        {"content": [{"type": "text", "text": "hi"}], "author": "Ada"},
        [{"type": "text", "text": "hi"}, {"order": 81}],
        [],
    ],
)
def test_data_that_only_looks_like_blocks_stays_json(value: Any) -> None:
    assert text_of(value) == json.dumps(value, separators=(",", ":"))


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x89PNG", "bytes. Return a str, or Image"),
        ([b"\x89PNG"], "a list, which can't be written as JSON"),
        (circle(), "Circular reference"),
        (deep(), "recursion|Stack overflow"),
        (object(), "an object, which"),
        ({"picture": IMAGE}, "in a list of Text, Image and Document"),
        ([IMAGE, {"a": 1}], "its item 1 is a dict"),
        ({"a": [object()]}, "an object is not JSON"),
        (lambda: 1, "a function, which"),
    ],
)
def test_what_no_model_can_read_is_a_type_error_that_says_what_to_return(value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said) as caught:
        to_parts(value)
    str(caught.value).encode()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES.filter(lambda value: value is not None and not isinstance(value, str)))
def test_any_json_value_comes_back_from_its_text(value: Any) -> None:
    # JSON has neither NaN nor the infinities: within a value they come back as texts.
    expected = value if isinstance(value, float) else numbers_as_texts(value)
    assert json.loads(text_of(value)) == expected


@given(st.text(st.characters(categories=["Cs", "L"])))
def test_any_text_can_be_sent(value: str) -> None:
    text_of(value).encode()
    text_of([value]).encode()


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolFailed("No order 81."), "No order 81."),
        (ToolFailed("No order 81.", cure="Ask for its number."), "No order 81. Ask for its number."),
        (InvalidArguments("city: Field required"), "city: Field required"),
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("city"), "KeyError: 'city'"),
        (TimeoutError(), "TimeoutError"),
        (Speechless(), "Speechless"),
        (ValueError("half \ud83d"), "ValueError: half \ufffd"),
    ],
)
def test_the_model_is_told_what_was_raised(error: Exception, text: str) -> None:
    assert error_text(error) == text


def test_a_long_exception_is_cut_and_a_long_failure_is_not() -> None:
    assert MAX_ERROR_BYTES - 10 < len(error_text(ValueError("x" * 10_000))) <= MAX_ERROR_BYTES
    assert error_text(ToolFailed("x" * 10_000)) == "x" * 10_000


def test_what_a_failure_shows_reaches_the_model_and_what_is_none_is_told() -> None:
    picture = Image(data="AAAA", media_type="image/png")
    assert parts_of_error(ToolFailed("no", parts=[picture, {"code": 7}])) == (picture, Text(text='{"code":7}'))
    [part] = parts_of_error(ToolFailed("no", parts=[Image(data="no base64!", media_type="image/png")]))
    assert isinstance(part, Text)
    assert "not base64" in part.text
    assert parts_of_error(ValueError("no")) == ()
    block = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    with pytest.raises(ToolFailed) as failed:
        to_parts({"content": [{"type": "text", "text": "no"}, block], "isError": True})
    assert (str(failed.value), failed.value.parts) == ("no", (picture,))
