"""What an MCP server asks a person (elicitation): in words, and the person's answer as the server wants it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everturn.sizes import MAX_LEFT_BYTES, MAX_MISFIT_BYTES, MAX_QUESTION_BYTES, shortened, size_of
from everturn.tools.context_ask import MAX_QUESTIONS, AsksPerson

if TYPE_CHECKING:
    from mcp import types

    from everturn.payloads import PersonsAnswer

Json = dict[str, Any]


class DoesNotFit(Exception):
    """An answer that the question's form does not take; the message is for the person."""


class AsksTooMuch(Exception):
    """The server asks more, or at greater length, than a person can be asked; the message is for the model."""


@dataclass(frozen=True)
class Elicitation:
    message: str
    form: Json = field(default_factory=dict)
    """The JSON schema of the answer: an object of plain values; empty if it is only about `url`."""
    url: str = ""

    @classmethod
    def of(cls, asked: types.ElicitRequestParams) -> Elicitation:
        if asked.mode == "url":
            return cls(asked.message, url=asked.url)
        written = asked.model_dump(mode="json", by_alias=True, exclude_none=True)
        return cls(asked.message, form=written["requestedSchema"])

    @property
    def key(self) -> str:
        """Identifies the question, so that its answer is found if the server asks it again."""
        written = json.dumps([self.message, self.form, self.url], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def fields(self) -> Json:
        fields = self.form.get("properties")
        return fields if isinstance(fields, dict) else {}

    @property
    def in_words(self) -> str:
        if self.url:
            told = f"{self.message} (at {self.url}: answer when you have done that)"
        elif not self.fields:
            told = self.message
        elif len(self.fields) == 1:
            [(name, one)] = self.fields.items()
            told = f"{self.message} (answer with {name}: {_kind(one)})"
        else:
            required = self.form.get("required") or ()
            kinds = (
                f"{name}: {_kind(one)}{'' if name in required else ', may be left out'}"
                for name, one in self.fields.items()
            )
            told = f"{self.message} (answer with JSON: {'; '.join(kinds)})"
        return shortened(told, max_bytes=MAX_QUESTION_BYTES)

    def content(self, text: str) -> Json:
        """The answer by field, with the form's defaults for those that it leaves out. Raises DoesNotFit."""
        if not self.fields:
            return {}
        try:
            said = json.loads(text)
        except ValueError:
            said = text
        if not isinstance(said, dict):
            if len(self.fields) != 1:
                raise DoesNotFit(f"write a JSON object with {', '.join(self.fields)}")
            said = {next(iter(self.fields)): _fitting(next(iter(self.fields.values())), said, text)}
        defaults = {
            name: one["default"] for name, one in self.fields.items() if isinstance(one, dict) and "default" in one
        }
        said = {**defaults, **said}
        self._check(said)
        return said

    def _check(self, said: Json) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            problem = next(iter(Draft202012Validator(self.form).iter_errors(said)), None)
        except (SchemaError, TypeError, KeyError, AttributeError, RecursionError):
            return  # the form itself is invalid: leave the check to the server
        if problem:
            place = ".".join(map(str, problem.absolute_path))
            raise DoesNotFit(f"{place}: {problem.message}" if place else problem.message)
        if unknown := [name for name in said if name not in self.fields]:
            raise DoesNotFit(f"there is no {unknown[0][:100]!r}; the fields are {', '.join(self.fields)}")


class Answers:
    """The answers to a call's questions, and the open questions: each try of the call hands them to the next."""

    def __init__(self, left: Json | None = None) -> None:
        left = left or {}
        self.given: dict[str, Json] = dict(left.get("given") or {})
        """Answers as the server wants them, by the key of their question."""
        self.state: str | None = left.get("state")
        """The server's state, which the client sends back with the answers."""
        self.task: str | None = left.get("task")
        """The id of the task that asks, if the call has become one."""
        self.open: dict[str, Elicitation] = {
            name: Elicitation(one["message"], one.get("form") or {}, one.get("url") or "")
            for name, one in (left.get("open") or {}).items()
        }
        """The open questions, by the server's names."""

    @classmethod
    def after(cls, answer: PersonsAnswer | None) -> Answers:
        """The answers, with this one added. Raises AsksPerson again if it does not fit, and for the next question."""
        if answer is None:
            return cls()
        answers = cls(answer.left)
        if question := answers.next_question:
            try:
                answers.given[question.key] = _response(question, answer)
            except DoesNotFit as error:
                why = shortened(str(error), max_bytes=MAX_MISFIT_BYTES)
                raise answers.asks(f" (the answer does not fit: {why})") from None
        if answers.next_question:
            raise answers.asks()
        return answers

    @property
    def next_question(self) -> Elicitation | None:
        return next((one for one in self.open.values() if one.key not in self.given), None)

    def responses(self) -> dict[str, Json]:
        """The answers to the open questions, by the server's names."""
        return {name: self.given[one.key] for name, one in self.open.items() if one.key in self.given}

    def asks(self, refused: str = "") -> AsksPerson:
        """The exception that asks the next question, for the caller to raise. Raises AsksTooMuch."""
        question = self.next_question
        assert question is not None
        opened = {name: {"message": one.message, "form": one.form, "url": one.url} for name, one in self.open.items()}
        left: Json = {"given": self.given, "state": self.state, "open": opened}
        if self.task:
            left["task"] = self.task
        if len(self.given) >= MAX_QUESTIONS:
            raise AsksTooMuch(f"it asked {MAX_QUESTIONS} questions and can't ask more")
        if size_of(left) > MAX_LEFT_BYTES:
            raise AsksTooMuch(f"its question has more than {MAX_LEFT_BYTES:,} bytes")
        return AsksPerson(question.in_words + refused, left=left)


def _response(question: Elicitation, answer: PersonsAnswer) -> Json:
    match answer.action:
        case "accept":
            return {"action": "accept", "content": question.content(answer.text)} if question.form else _accepted
        case action:
            return {"action": action}


_accepted: Json = {"action": "accept"}


def _kind(one: Any) -> str:
    if not isinstance(one, dict):
        return "a value"
    items = one.get("items") if isinstance(one.get("items"), dict) else {}
    choices = one.get("enum") or [c.get("const") for c in one.get("oneOf") or () if isinstance(c, dict)]
    several = (items or {}).get("enum") or [c.get("const") for c in (items or {}).get("anyOf") or ()]
    if choices:
        return " or ".join(map(str, choices))
    if several:
        return f"a list of {', '.join(map(str, several))}"
    kind = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}.get(one.get("type", ""))
    told = kind or one.get("format") or "a text"
    return f"{told}, {one['description']}" if one.get("description") else str(told)


def _fitting(form: Any, said: Any, text: str) -> Any:
    """Fits an answer to the only field: a text stays a text even if it looks like a number, and "yes" means true."""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "string":
        return said if isinstance(said, str) else text
    if kind == "boolean" and isinstance(said, str):
        return {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}.get(said.lower(), said)
    if kind == "array" and not isinstance(said, list):
        return [said]
    return said
