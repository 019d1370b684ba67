"""What is sent fits what Temporal takes, whatever it is made of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn.calls.decision_records import Approve
from everturn.errors import Refused
from everturn.payloads import MessageIn, Start
from everturn.sizes import MAX_ID_BYTES, check_input, too_deep
from everturn.temporal.ids import child_id, id_problem
from tests.support.source import MODULES, tree_of

PACKAGE = Path(everturn.__file__).parent
ELSEWHERE = {
    # What is read from others, or sent to others than Temporal.
    "providers": "HTTP bodies, and what vendors take",
    "http/sse.py": "HTTP bodies",
    "http/content_encoding.py": "HTTP bodies",
    "tools/mcp/limits.py": "what MCP servers send",
    "tools/mcp/programs.py": "log lines",
    "tools/mcp/transports.py": "log lines",
    "tools/mcp/tool_names.py": "names of tools, as models take them",
    "live": "text over HTTP",
    "live/lane_writer.py": "text over HTTP",
    "worker": "OpenTelemetry",
    "web": "HTTP",
    "ui": "HTTP",
    "batching": "ids of providers",
    "webhooks": "keys that sign",
    # What is held in memory or on disk.
    "batching/turns.py": "memory",
    "packed_messages.py": "memory",
    "lost_workers/journal.py": "files",
    "activities/prompt_cache_watch.py": "memory",
    "activities/prefix_cache.py": "memory",
    "workflows/recent_messages.py": "memory",
    "storage": "memory and HTTP bodies; the header of what is encrypted",
    # One line for people, or a page that a model asks for.
    "testing": "tests",
    "workflows/web_ui.py": "lines",
    "evals": "lines",
    "evaluations/judge_activity.py": "an error's line in a judgement",
    "evaluations": "20 results, of 2,000 characters each, and so an eighth of a payload at most",
    "calls/pending_calls.py": "the length of a digest",
    "carryover.py": "the length of a digest",
    "text/markdown.py": "lines",
    "validation/explaining.py": "lines",
    "mcp_server": "lines",
    "tools/json_schema.py": "lines",
    "tools/context_ask.py": "lines",
    "tools/mcp/results.py": "which fields a text has said already",
    "tools/read_result.py": "a page, which is a result",
    "activities/compaction.py": "which results are worth trimming",
    "reviews/verdicts.py": "what a model is to judge",
    "guardrails.py": "what a model is to judge",
    # A format.
    "size_estimates.py": "JSON",
    "tracing.py": "W3C's traceparent",
    "text/secrets.py": "which secrets are hidden",
    "sizes.py": "",
}


def numbers_of_their_own() -> Iterator[tuple[str, str]]:
    for module, path in MODULES.items():
        for node in tree_of(module).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            inside = [*ast.walk(value)] if (value := getattr(node, "value", None)) else []
            number = any(isinstance(one, ast.Constant) and type(one.value) is int for one in inside)
            if not number or any(isinstance(one, ast.Name) for one in inside):
                continue
            for target in targets:
                if isinstance(target, ast.Name) and re.search(r"_(BYTES|CHARS)$", target.id):
                    yield str(path.relative_to(PACKAGE)), target.id


def test_no_bound_of_what_temporal_takes_stands_outside_of_the_ledger() -> None:
    """A module that has a number of bytes or characters of its own says here what it is about."""
    found = [*numbers_of_their_own()]
    assert [(path, name) for path, name in found if not {path, path.split("/")[0]} & ELSEWHERE.keys()] == []
    used = {one for path, _ in found for one in (path, path.split("/")[0])}
    assert set(ELSEWHERE) - used == set(), "there is no number in these any more"


def test_a_childs_id_says_who_asked_and_for_which_call() -> None:
    assert child_id("order-81", "call_1") == "order-81.call_1"


@pytest.mark.parametrize("parent", ["x" * 995, "x" * 1000, "é" * 500, "🔥" * 250])
def test_a_childs_id_is_never_longer_than_temporal_takes(parent: str) -> None:
    one, other = child_id(parent, "c" * 128), child_id(parent, "c" * 127 + "d")
    assert one != other
    assert one[:100] == parent[:100]
    assert max(len(one.encode()), len(other.encode())) <= MAX_ID_BYTES
    # A child may ask in its turn.
    assert len(child_id(one, "c1").encode()) <= MAX_ID_BYTES
    assert child_id(one, "c1") != child_id(one, "c2")


def test_an_id_that_temporal_would_not_take_is_refused_with_its_size() -> None:
    assert id_problem("é" * 501) == "The id has 1,002 bytes; the limit is 1,000."
    assert id_problem("")
    assert not id_problem("é" * 500)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"x": 1}
    for number in range(levels - 1):
        value = {"x": value} if number % 2 else {"x": [value]}
    return value


@pytest.mark.parametrize(("value", "deep"), [({}, False), ("x", False), (nested(60), False), (nested(150), True)])
def test_what_could_not_be_read_again_is_too_deep(value: Any, *, deep: bool) -> None:
    assert too_deep(value) is deep


@pytest.mark.parametrize("value", [nested(150), nested(5000), [{"kind": "text", "text": "x", "extra": nested(150)}]])
def test_it_is_refused_before_it_is_sent_and_when_it_comes(value: Any) -> None:
    with pytest.raises(Refused, match="The message is nested more than 100 levels deep"):
        check_input("message", {"parts": value})
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        MessageIn.model_validate({"parts": value})
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        Start.model_validate({"agent": "clerk", "message": value})
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        Approve.model_validate({"call_id": "c1", "arguments": {"x": value}})
