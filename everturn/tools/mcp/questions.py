"""What an MCP server asks a person (elicitation): in words, and the person's answer as the server wants it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everturn.sizes import MAX_LEFT_BYTES, MAX_MISFIT_BYTES, MAX_QUESTION_BYTES, size_of
from everturn.text.shortening import shortened
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
    def from_params(cls, params: types.ElicitRequestParams) -> Elicitation:
        if params.mode == "url":
            return cls(params.message, url=params.url)
        written = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        return cls(params.message, form=written["requestedSchema"])

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
            text = f"{self.message} (at {self.url}: answer when you have done that)"
        elif not self.fields:
            text = self.message
        elif len(self.fields) == 1:
            [(name, field_schema)] = self.fields.items()
            text = f"{self.message} (answer with {name}: {_kind_in_words(field_schema)})"
        else:
            required = self.form.get("required") or ()
            kinds = []
            for name, field_schema in self.fields.items():
                kind = f"{name}: {_kind_in_words(field_schema)}"
                if name not in required:
                    kind += ", may be left out"
                kinds.append(kind)
            text = f"{self.message} (answer with JSON: {'; '.join(kinds)})"
        return shortened(text, max_bytes=MAX_QUESTION_BYTES)

    def read_answer(self, text: str) -> Json:
        """The answer by field, with the form's defaults for those that it leaves out. Raises DoesNotFit."""
        if not self.fields:
            return {}
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text
        if not isinstance(answer, dict):
            if len(self.fields) != 1:
                raise DoesNotFit(f"write a JSON object with {', '.join(self.fields)}")
            answer = {next(iter(self.fields)): _fit_answer(next(iter(self.fields.values())), answer, text)}
        defaults = {
            name: field_schema["default"]
            for name, field_schema in self.fields.items()
            if isinstance(field_schema, dict) and "default" in field_schema
        }
        answer = {**defaults, **answer}
        self._check_answer(answer)
        return answer

    def _check_answer(self, answer: Json) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            problem = next(iter(Draft202012Validator(self.form).iter_errors(answer)), None)
        except (SchemaError, TypeError, KeyError, AttributeError, RecursionError):
            return  # the form itself is invalid: leave the check to the server
        if problem:
            place = ".".join(map(str, problem.absolute_path))
            if not place:
                raise DoesNotFit(problem.message)
            raise DoesNotFit(f"{place}: {problem.message}")
        if unknown := [name for name in answer if name not in self.fields]:
            raise DoesNotFit(f"there is no {unknown[0][:100]!r}; the fields are {', '.join(self.fields)}")


class Answers:
    """The answers to a call's questions, and the open questions: each try of the call hands them to the next."""

    def __init__(self, carried: Json | None = None) -> None:
        carried = carried or {}
        self.given: dict[str, Json] = dict(carried.get("given") or {})
        """Answers as the server wants them, by the key of their question."""
        self.state: str | None = carried.get("state")
        """The server's state, which the client sends back with the answers."""
        self.task: str | None = carried.get("task")
        """The id of the task that asks, if the call has become one."""
        self.open: dict[str, Elicitation] = {
            name: Elicitation(question["message"], question.get("form") or {}, question.get("url") or "")
            for name, question in (carried.get("open") or {}).items()
        }
        """The open questions, by the server's names."""

    @classmethod
    def from_answer(cls, answer: PersonsAnswer | None) -> Answers:
        """The answers, with this one added. Raises AsksPerson again if it does not fit, and for the next question."""
        if answer is None:
            return cls()
        answers = cls(answer.left)
        if question := answers.next_question:
            try:
                answers.given[question.key] = _response_to(question, answer)
            except DoesNotFit as error:
                problem = shortened(str(error), max_bytes=MAX_MISFIT_BYTES)
                raise answers.asking_error(f" (the answer does not fit: {problem})") from None
        if answers.next_question:
            raise answers.asking_error()
        return answers

    @property
    def next_question(self) -> Elicitation | None:
        return next((question for question in self.open.values() if question.key not in self.given), None)

    def responses(self) -> dict[str, Json]:
        """The answers to the open questions, by the server's names."""
        return {name: self.given[question.key] for name, question in self.open.items() if question.key in self.given}

    def asking_error(self, refused: str = "") -> AsksPerson:
        """The exception that asks the next question, for the caller to raise. Raises AsksTooMuch."""
        question = self.next_question
        assert question is not None
        opened = {
            name: {"message": open_question.message, "form": open_question.form, "url": open_question.url}
            for name, open_question in self.open.items()
        }
        carried: Json = {"given": self.given, "state": self.state, "open": opened}
        if self.task:
            carried["task"] = self.task
        if len(self.given) >= MAX_QUESTIONS:
            raise AsksTooMuch(f"it asked {MAX_QUESTIONS} questions and can't ask more")
        if size_of(carried) > MAX_LEFT_BYTES:
            raise AsksTooMuch(f"its question has more than {MAX_LEFT_BYTES:,} bytes")
        return AsksPerson(question.in_words + refused, carried=carried)


def _response_to(question: Elicitation, answer: PersonsAnswer) -> Json:
    match answer.action:
        case "accept":
            if not question.form:
                return {"action": "accept"}
            return {"action": "accept", "content": question.read_answer(answer.text)}
        case action:
            return {"action": action}


def _kind_in_words(field_schema: Any) -> str:
    if not isinstance(field_schema, dict):
        return "a value"
    items = field_schema.get("items")
    if not isinstance(items, dict):
        items = {}
    choices = field_schema.get("enum") or [
        c.get("const") for c in field_schema.get("oneOf") or () if isinstance(c, dict)
    ]
    several = items.get("enum") or [c.get("const") for c in items.get("anyOf") or ()]
    if choices:
        return " or ".join(map(str, choices))
    if several:
        return f"a list of {', '.join(map(str, several))}"
    kind = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}.get(
        field_schema.get("type", "")
    )
    kind_text = kind or field_schema.get("format") or "a text"
    if description := field_schema.get("description"):
        return f"{kind_text}, {description}"
    return str(kind_text)


def _fit_answer(form: Any, answer: Any, text: str) -> Any:
    """Fits an answer to the only field: a text stays a text even if it looks like a number, and "yes" means true."""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "string":
        if not isinstance(answer, str):
            return text
        return answer
    if kind == "boolean" and isinstance(answer, str):
        return {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}.get(
            answer.lower(), answer
        )
    if kind == "array" and not isinstance(answer, list):
        return [answer]
    return answer
