"""Results that are too large are cut, kept whole, and can be read on by their own conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everturn import Agent, Text, ToolContext, ToolFailed, ToolResult, tool
from everturn.errors import InvalidAgent, InvalidSetting
from everturn.records import Image
from everturn.sizes import size_of
from everturn.storage.artifacts import Artifacts, name_of
from everturn.tools.read_result import READ_RESULT, read_result_tool
from everturn.truncation import Notice, bound_content, chars_of, result_fits

IDS = st.text(min_size=1, max_size=300)


def result(text: str, call_id: str = "call_1") -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=text),))


@pytest.fixture(params=["directory", "fsspec"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    return Artifacts.at(tmp_path / "kept" if request.param == "directory" else f"memory://{uuid4().hex}")


# ---------------------------------------------------------------- names


@given(IDS, IDS)
@example("..", ".")
@example("a/b", "../../etc/passwd")
@example("a" * 200, "b" * 201)
@example("+/", "%")
def test_a_name_is_a_safe_path_that_says_whose_it_is(conversation_id: str, call_id: str) -> None:
    name = name_of(conversation_id, call_id)
    assert tuple(map(unquote, name.replace("+/", "").split("/"))) == (conversation_id, call_id)
    segments = name.split("/")
    assert all(segment and segment.strip(".") and len(segment) <= 201 for segment in segments)
    assert name.isascii()
    assert name.isprintable()


@given(st.lists(st.tuples(IDS, IDS), max_size=20, unique=True))
def test_no_name_is_another_one_or_lies_below_it(owners: list[tuple[str, str]]) -> None:
    names = [name_of(*owner) for owner in [*owners, ("a" * 200, "b"), ("a" * 200 + "b", "c"), ("a", "b"), ("a/b", "c")]]
    assert len(set(names)) == len(names) or len({*owners}) < len(owners) + 4
    assert not any(name != other and other.startswith(f"{name}/") for name in names for other in names)


# ---------------------------------------------------------------- stores


def test_what_was_kept_is_read_and_written_over(artifacts: Artifacts) -> None:
    assert artifacts.read("order/81", "call_1") is None
    name = artifacts.keep("order/81", result("first"))
    assert name == "order%2F81/call_1"
    assert artifacts.read("order/81", "call_1") == result("first")
    artifacts.keep("order/81", result("second"))
    assert artifacts.read("order/81", "call_1") == result("second")
    assert artifacts.read("order/82", "call_1") is None


def test_on_a_file_system_that_ignores_case_nobody_reads_what_is_anothers(tmp_path: Path) -> None:
    artifacts = Artifacts.at(tmp_path)
    artifacts.keep("Order", result("secret"))
    (tmp_path / "order").mkdir(exist_ok=True)
    (tmp_path / "order" / "call_1").write_bytes((tmp_path / "Order" / "call_1").read_bytes())
    assert artifacts.read("order", "call_1") is None


def test_a_directory_holds_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = Artifacts.at(f"file://{tmp_path}")
    artifacts.keep("c", result("first"))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        artifacts.keep("c", result("second"))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["call_1"]
    assert artifacts.read("c", "call_1") == result("first")


@pytest.mark.parametrize("place", ["nosuch://bucket", "/dev/null/here"])
def test_a_place_that_cannot_be_opened_is_refused(place: str) -> None:
    with pytest.raises(InvalidSetting, match=place.replace("/", ".")):
        Artifacts.at(place)


# ---------------------------------------------------------------- read_result


async def read(artifacts: Artifacts, *, max_result_chars: int = 200_000, of: str = "c", **arguments: Any) -> str:
    made = read_result_tool(artifacts, max_result_chars=max_result_chars)
    made.check({"call_id": "call_1", **arguments})
    (part,) = await made.run({"call_id": "call_1", **arguments}, ToolContext(conversation_id=of))
    assert isinstance(part, Text)
    return part.text


async def test_pages_put_together_are_the_whole(artifacts: Artifacts) -> None:
    whole = "".join(f"line {number}: äöü\n" for number in range(5000))
    artifacts.keep("c", result(whole))
    read_on, offset = "", 0
    while offset < len(whole):
        page = await read(artifacts, offset=offset, limit=7000)
        head, _, text = page.partition("\n")
        assert f"characters {offset} to {offset + len(text)} of {len(whole)}" in head
        read_on, offset = read_on + text, offset + len(text)
    assert read_on == whole
    assert "this is the end" in head


async def test_a_page_always_fits_the_agents_own_bound(artifacts: Artifacts) -> None:
    artifacts.keep("c", result("x" * 5000, call_id="call_1"))
    assert len(await read(artifacts, max_result_chars=1000, limit=10**9)) <= 1000
    assert len(await read(artifacts, max_result_chars=1000, search="x", limit=10**9)) <= 1000


async def test_a_search_says_where(artifacts: Artifacts) -> None:
    whole = "\n".join(f"{number}: {'ERROR disk full' if number % 1000 == 7 else 'fine'}" for number in range(5000))
    artifacts.keep("c", result(whole))
    found = await read(artifacts, search="error DISK")
    assert found.startswith("[5 found from offset 0 on")
    offsets = [int(line.split()[1].rstrip(":")) for line in found.splitlines()[1:]]
    assert all(whole[offset:].startswith("ERROR disk") for offset in offsets)
    assert (await read(artifacts, search="error", offset=offsets[3])).startswith("[2 found")
    assert (await read(artifacts, search="nowhere")).startswith("[0 found")
    some = await read(artifacts, search="fine", limit=2000)
    assert some.startswith("[More follow: search again from offset=")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"call_id": "call_2"}, "No result of 'call_2' is kept"),
        ({"call_id": "../c/call_1"}, "No result of"),
        ({"of": "another conversation"}, "No result of 'call_1' is kept"),
        ({"offset": 6}, "has 5 characters: offset=6 is past its end"),
    ],
)
async def test_the_model_is_told_what_it_cannot_read(artifacts: Artifacts, arguments: Any, said: str) -> None:
    artifacts.keep("c", result("whole"))
    with pytest.raises(ToolFailed, match=said):
        await read(artifacts, **arguments)


async def test_a_store_that_cannot_be_read_is_no_riddle_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "call_1").write_text("not ours")
    with pytest.raises(ToolFailed, match="can't be read now") as failure:
        await read(Artifacts.at(tmp_path))
    assert str(tmp_path) not in str(failure.value)


def test_an_agent_with_a_tool_of_that_name_is_refused(tmp_path: Path) -> None:
    @tool(name=READ_RESULT)
    def own() -> str:
        return ""

    agent = Agent("clerk", model="scripted:demo", tools=[own])
    with pytest.raises(InvalidAgent, match="has a tool 'read_result', and so has its worker"):
        agent.with_tools(read_result_tool(Artifacts.at(tmp_path), max_result_chars=1000))


def test_more_tools_make_another_agent() -> None:
    agent = Agent("clerk", model="scripted:demo")
    more = agent.with_tools(tool(lambda: "", name="extra"))
    assert (agent.tools, agent.tool("extra")) == ((), None)
    assert [item.name for item in more.tools] == ["extra"]
    assert more.tool("extra") is more.tools[0]
    assert more.model is agent.model


# ---------------------------------------------------------------- cutting


PARTS = st.lists(
    st.one_of(
        st.text(max_size=3000).map(lambda text: Text(text=text)),
        st.integers(0, 4000).map(lambda size: Image(data="A" * size, media_type="image/png")),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(PARTS, st.integers(0, 4000), st.integers(500, 6000))
def test_what_is_cut_fits_and_what_fits_is_left_alone(content: list[Any], max_chars: int, max_bytes: int) -> None:
    cut = bound_content(content, max_chars=max_chars, notice=Notice(), max_bytes=max_bytes)
    notices = [part for part, was in zip(cut, content, strict=False) if part != was]
    assert size_of(cut) <= max_bytes + 300 * (len(content) + 1)
    assert chars_of(cut) <= max_chars + 200 * len(content)
    if result_fits(content, max_chars=max_chars, max_bytes=max_bytes):
        assert not notices
        assert list(cut) == content
    else:
        assert size_of(content) > max_bytes or chars_of(content) > max_chars


def test_a_notice_says_how_much_is_shown_and_what_can_be_done() -> None:
    content = (Text(text="a" * 600), Text(text="b" * 600), Image(data="A" * 10, media_type="image/png"), Text(text="c"))
    cut = bound_content(content, max_chars=1000, notice=Notice(text="Read on at {shown}."))
    assert cut[1] == Text(text="b" * 400 + "\n[Cut: 1,000 of 1,201 characters are shown. Read on at 1000.]")
    assert [part.kind for part in cut] == ["text", "text", "image"]


def test_characters_that_json_writes_long_count_as_what_they_take() -> None:
    cut = bound_content((Text(text="\x00" * 1000),), max_chars=1000, notice=Notice(), max_bytes=1000)
    assert size_of(cut) < 1200


def test_an_image_that_is_too_large_is_described() -> None:
    image = Image(data="A" * 2_000_000, media_type="image/png")
    (notice,) = bound_content((image,), max_chars=1000, notice=Notice(other="It is kept as c/call_1."))
    described = "image (image/png, 2,000,000 base64 characters)"
    assert notice == Text(text=f"\n[Left out because it is too large: {described}. It is kept as c/call_1.]")
