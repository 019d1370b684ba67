"""The page that `make peers` writes."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module

from peers.__main__ import page_with, parts, section
from peers.bench import Row

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def test_each_part_has_a_time_limit_and_a_title() -> None:
    assert "vendors" in parts()
    for name in parts():
        module = import_module(f"peers.{name}")
        assert module.MINUTES > 0
        assert module.__doc__


def test_a_part_that_runs_again_replaces_its_rows_and_no_other_part_s() -> None:
    page = page_with("", "mcp", section("mcp", "MCP", [Row("go-sdk", "1.0", "a call")], NOON), ["mcp", "vendors"])
    page = page_with(
        page, "vendors", section("vendors", "Vendors", [Row("openai", "3.0", "old")], NOON), ["mcp", "vendors"]
    )
    new = section("vendors", "Vendors", [Row("openai", "3.52.0", "all | items", "differs", "it lacks\nthem")], NOON)
    page = page_with(page, "vendors", new, ["mcp", "vendors"])
    assert "| go-sdk | 1.0 | a call | right |" in page
    assert "| openai | 3.52.0 | all \\| items | **differs**: it lacks them |" in page
    assert "old" not in page
    assert page == page_with(page, "vendors", new, ["mcp", "vendors"])


def test_what_was_right_with_a_peer_is_one_row() -> None:
    rows = [Row("mcp", "2.3", "a call"), Row("mcp", "2.3", "a stream", "differs", "no"), Row("mcp", "2.3", "a list")]
    lines = section("mcp", "MCP", rows, NOON).splitlines()[-3:-1]
    assert lines == ["| mcp | 2.3 | a call; a list | right |", "| mcp | 2.3 | a stream | **differs**: no |"]
