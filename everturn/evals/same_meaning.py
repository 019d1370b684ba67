"""Asks a model whether two answers, of a rerun and of before, mean the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from everturn.models import Model
from everturn.providers.generate import generate

if TYPE_CHECKING:
    from everturn.evals.comparison import Comparison

ASKS = (
    "You compare two answers to the same person. Do they tell the person the same facts, and promise the same? Style "
    "and length do not matter. Reply with yes or no, and nothing else."
)


async def same_meaning(judge: str | Model, comparison: Comparison) -> bool | None:
    """None if the judge says neither yes nor no, or if a rerun has no answer to compare."""
    if comparison.same_text:
        return True
    if comparison.diverged or comparison.problem:
        return False
    before, after = comparison.answers
    question = json.dumps({"first": before, "second": after}, ensure_ascii=False)
    word = (await generate(judge, question, instructions=ASKS)).text.strip().strip(".").lower()
    return {"yes": True, "no": False}.get(word)
