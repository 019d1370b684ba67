"""`ask_user`: a tool with which the model asks a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from everturn.tools.tool import Tool, tool


def _ask_question(
    question: Annotated[str, Field(description="One question that can be understood by itself.")],
    choices: Annotated[list[str] | None, Field(description="The likely answers, if they are few.")] = None,
) -> str:
    """Ask the user a question and wait for the answer.

    For what only they can know or decide, and nothing else tells you. They may answer in their own words.
    """
    raise NotImplementedError


ask_user: Tool = replace(tool(_ask_question, name="ask_user", runs_on="client"), function=None)
"""`Agent(tools=[ask_user])`: the call waits (`awaiting_answer`, with the question as its `why`) until somebody answers
it, for as long as it takes: `dataclasses.replace(ask_user, timeout=...)` for less."""


def question_of(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """The question to the user, in words; None for calls of other tools."""
    if tool.arguments is not ask_user.arguments:
        return None
    question = str(arguments.get("question", ""))
    if choices := arguments.get("choices"):
        question += f" ({' / '.join(map(str, choices))})"
    return question
